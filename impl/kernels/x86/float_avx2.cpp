// bf16, f16 and f32 weights on p16 with float32 rows, AVX2: body/gemm_float.inl for 8 lanes.
#include <immintrin.h>

#include <array>
#include <bit>
#include <utility>

#include "kernels/ref/float.h"
#include "kernels/target.h"
#include "kernels/x86/rows.h"

MOE_TARGET_BEGIN("avx2,fma,f16c")

namespace moe {
namespace {

constexpr int kTileRows = 4;
constexpr std::ptrdiff_t kAhead = 4096;  // bytes between prefetch and use

#include "kernels/x86/vector_avx2.inl"

#include "kernels/body/gemm_float.inl"

}  // namespace

const Kernel kBf16Avx2 = {.id = &kKernelIds[*kernel_index("bf16_f32_p16_avx2")],
                          .exact = true,
                          .tile_rows = kTileRows,
                          .steps = &avx2::kSteps,
                          .quantise = ref::copy_floats,
                          .gemm = gemm<Element::bf16>};
const Kernel kF16Avx2 = {.id = &kKernelIds[*kernel_index("f16_f32_p16_avx2")],
                         .exact = true,
                         .tile_rows = kTileRows,
                         .steps = &avx2::kSteps,
                         .quantise = ref::copy_floats,
                         .gemm = gemm<Element::f16>};
const Kernel kF32Avx2 = {.id = &kKernelIds[*kernel_index("f32_f32_p16_avx2")],
                         .exact = true,
                         .tile_rows = kTileRows,
                         .steps = &avx2::kSteps,
                         .quantise = ref::copy_floats,
                         .gemm = gemm<Element::f32>};

}  // namespace moe

MOE_TARGET_END
