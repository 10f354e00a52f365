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

constexpr int kTileRows = 6;

#include "kernels/x86/vector_avx2.inl"

#include "kernels/x86/read_ahead.inl"

#include "kernels/body/gemm_float.inl"

constexpr Kernel row(std::string_view name, void (*gemm)(const GemmArgs&)) {
  return {.id = &kKernelIds[*kernel_index(name)],
          .exact = true,
          .tile_rows = kTileRows,
          .steps = &avx2::kSteps,
          .quantise = ref::copy_floats,
          .gemm = gemm};
}

}  // namespace

const Kernel kBf16Avx2 = row("bf16_f32_p16_avx2", gemm<Floats<Element::bf16>>);
const Kernel kF16Avx2 = row("f16_f32_p16_avx2", gemm<Floats<Element::f16>>);
const Kernel kF32Avx2 = row("f32_f32_p16_avx2", gemm<Floats<Element::f32>>);

}  // namespace moe

MOE_TARGET_END
