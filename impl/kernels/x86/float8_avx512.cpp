// FP8, MXFP8, MXFP4 and NVFP4 weights on p16 with float32 rows, AVX-512: body/gemm_float.inl and the elements of
// body/weights_*.inl for 16 lanes.
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

#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 flags its own _mm512_undefined_* (GCC bug 105593)
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
MOE_TARGET_BEGIN("avx2,fma,f16c,avx512f,avx512bw,avx512vl")

namespace moe::kernels {
namespace {

constexpr int kTileRows = tile_rows("fp8_f32_p16_avx512vnni");

#include "kernels/x86/vector_avx512.inl"

#include "kernels/body/quantize_symmetric.inl"

#include "kernels/body/quantize_floats.inl"

#include "kernels/body/places.inl"

#include "kernels/x86/read_ahead.inl"

#include "kernels/body/gemm_float.inl"

#include "kernels/body/float8_bytes.inl"

#include "kernels/body/weights_float8.inl"

#include "kernels/body/weights_fp4.inl"

}  // namespace

constinit const Kernel kernel_rows::fp8_f32_p16_avx512vnni =
    kernel_row("fp8_f32_p16_avx512vnni", avx512::kSteps, ref::copy_floats, gemm<Float8>);
constinit const Kernel kernel_rows::mxfp8_f32_p16_avx512vnni =
    kernel_row("mxfp8_f32_p16_avx512vnni", avx512::kSteps, ref::copy_floats, gemm<Float8>);
constinit const Kernel kernel_rows::mxfp4_f32_p16_avx512vnni =
    kernel_row("mxfp4_f32_p16_avx512vnni", avx512::kSteps, ref::copy_floats, gemm_float4);
constinit const Kernel kernel_rows::nvfp4_f32_p16_avx512vnni =
    kernel_row("nvfp4_f32_p16_avx512vnni", avx512::kSteps, ref::copy_floats, gemm_float4);
constinit const Kernel kernel_rows::fp8_e4m3_p16_avx512vnni =
    kernel_row("fp8_e4m3_p16_avx512vnni", avx512::kSteps, float_acts::quantize_float8, gemm<Float8>);
constinit const Kernel kernel_rows::mxfp8_e4m3_p16_avx512vnni =
    kernel_row("mxfp8_e4m3_p16_avx512vnni", avx512::kSteps, float_acts::quantize_float8, gemm<Float8>);
constinit const Kernel kernel_rows::mxfp4_e4m3_p16_avx512vnni =
    kernel_row("mxfp4_e4m3_p16_avx512vnni", avx512::kSteps, float_acts::quantize_float8, gemm_float4);

}  // namespace moe::kernels

MOE_TARGET_END
