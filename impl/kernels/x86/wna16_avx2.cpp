// int4 and int8 weights with scales and zero points on p16 with float32 rows, AVX2: body/gemm_float.inl and
// body/weights_wna16.inl for 8 lanes.
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

constexpr int kTileRows = tile_rows("w4a16_f32_p16_avx2");

#include "kernels/x86/vector_avx2.inl"

#include "kernels/body/places.inl"

#include "kernels/x86/read_ahead.inl"

#include "kernels/body/gemm_float.inl"

#include "kernels/body/weights_wna16.inl"

}  // namespace

constinit const Kernel kernel_rows::w4a16_f32_p16_avx2 =
    kernel_row("w4a16_f32_p16_avx2", avx2::kSteps, ref::copy_floats, gemm<IntCodes<4>>);
constinit const Kernel kernel_rows::w8a16_f32_p16_avx2 =
    kernel_row("w8a16_f32_p16_avx2", avx2::kSteps, ref::copy_floats, gemm<IntCodes<8>>);

}  // namespace moe::kernels

MOE_TARGET_END
