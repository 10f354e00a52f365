// bf16, f16 and f32 weights on p16 with float32 rows, AVX2: body/gemm_float.inl for 8 lanes.
#include <immintrin.h>

#include <array>
#include <bit>
#include <utility>

#include "kernels/ref/float.h"
#include "kernels/target.h"
#include "kernels/x86/steps.h"

MOE_TARGET_BEGIN("avx2,fma,f16c")

namespace moe::kernels {
namespace {

constexpr int kTileRows = tile_rows("bf16_f32_p16_avx2");

#include "kernels/x86/vector_avx2.inl"

#include "kernels/body/places.inl"

#include "kernels/x86/read_ahead.inl"

#include "kernels/body/gemm_float.inl"

}  // namespace

constinit const Kernel kernel_rows::bf16_f32_p16_avx2 =
    kernel_row("bf16_f32_p16_avx2", avx2::kSteps, ref::copy_floats, gemm<Floats<Element::bf16>>);
constinit const Kernel kernel_rows::f16_f32_p16_avx2 =
    kernel_row("f16_f32_p16_avx2", avx2::kSteps, ref::copy_floats, gemm<Floats<Element::f16>>);
constinit const Kernel kernel_rows::f32_f32_p16_avx2 =
    kernel_row("f32_f32_p16_avx2", avx2::kSteps, ref::copy_floats, gemm<Floats<Element::f32>>);

}  // namespace moe::kernels

MOE_TARGET_END
