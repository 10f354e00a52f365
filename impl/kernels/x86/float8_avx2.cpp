// FP8, MXFP8, MXFP4 and NVFP4 weights on p16 with float32 rows, AVX2: body/gemm_float.inl and the elements of
// body/weights_*.inl for 8 lanes.
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/float_formats.h"
#include "kernels/ref/float.h"
#include "kernels/ref/float_acts.h"
#include "kernels/target.h"
#include "kernels/x86/steps.h"

MOE_TARGET_BEGIN("avx2,fma,f16c")

namespace moe::kernels {
namespace {

constexpr int kTileRows = tile_rows("fp8_f32_p16_avx2");

#include "kernels/x86/vector_avx2.inl"

#include "kernels/body/quantize_symmetric.inl"

#include "kernels/body/quantize_floats.inl"

#include "kernels/body/places.inl"

#include "kernels/x86/read_ahead.inl"

#include "kernels/body/gemm_float.inl"

#include "kernels/body/float8_bytes.inl"

#include "kernels/body/weights_float8.inl"

#include "kernels/body/weights_fp4.inl"

}  // namespace

constinit const Kernel kernel_rows::fp8_f32_p16_avx2 =
    kernel_row("fp8_f32_p16_avx2", avx2::kSteps, ref::copy_floats, gemm<Float8>);
constinit const Kernel kernel_rows::mxfp8_f32_p16_avx2 =
    kernel_row("mxfp8_f32_p16_avx2", avx2::kSteps, ref::copy_floats, gemm<Float8>);
constinit const Kernel kernel_rows::mxfp4_f32_p16_avx2 =
    kernel_row("mxfp4_f32_p16_avx2", avx2::kSteps, ref::copy_floats, gemm_float4);
constinit const Kernel kernel_rows::nvfp4_f32_p16_avx2 =
    kernel_row("nvfp4_f32_p16_avx2", avx2::kSteps, ref::copy_floats, gemm_float4);
constinit const Kernel kernel_rows::fp8_e4m3_p16_avx2 =
    kernel_row("fp8_e4m3_p16_avx2", avx2::kSteps, float_acts::quantize_float8, gemm<Float8>);
constinit const Kernel kernel_rows::mxfp8_e4m3_p16_avx2 =
    kernel_row("mxfp8_e4m3_p16_avx2", avx2::kSteps, float_acts::quantize_float8, gemm<Float8>);
constinit const Kernel kernel_rows::mxfp4_e4m3_p16_avx2 =
    kernel_row("mxfp4_e4m3_p16_avx2", avx2::kSteps, float_acts::quantize_float8, gemm_float4);

}  // namespace moe::kernels

MOE_TARGET_END
