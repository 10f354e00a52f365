// MXFP4 and NVFP4 weights with symmetric integer activations, AVX2: int8 per block of 32, 16 bits,
// or 4-bit floats.
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/float_formats.h"
#include "base/index.h"
#include "kernels/ref/float_acts.h"
#include "kernels/target.h"
#include "kernels/x86/steps.h"

MOE_TARGET_BEGIN("avx2,fma,f16c")

namespace moe::kernels {
namespace {

constexpr int kTileRows = tile_rows("mxfp4_blk8_p16_avx2");

#include "kernels/x86/vector_avx2.inl"

#include "kernels/x86/dot_avx2.inl"

#include "kernels/body/quantize_symmetric.inl"

#include "kernels/body/quantize_floats.inl"

#include "kernels/x86/read_ahead.inl"

#include "kernels/body/symmetric_tile.inl"

#include "kernels/x86/dot_fp4_avx2.inl"

#include "kernels/body/symmetric_256.inl"

}  // namespace

constinit const Kernel kernel_rows::mxfp4_blk8_p16_avx2 =
    kernel_row("mxfp4_blk8_p16_avx2", avx2::kSteps, symmetric::quantize_blocks<1>, gemm_fp4<Fp4Dot, PerBlock>);
constinit const Kernel kernel_rows::mxfp4_blk16_p16_avx2 =
    kernel_row("mxfp4_blk16_p16_avx2", avx2::kSteps, symmetric::quantize_blocks<2>, gemm_fp4<Fp4Dot, Per16>);
constinit const Kernel kernel_rows::nvfp4_blk8_p16_avx2 =
    kernel_row("nvfp4_blk8_p16_avx2", avx2::kSteps, symmetric::quantize_blocks<1>, gemm_fp4<Fp4Dot, PerBlock>);
constinit const Kernel kernel_rows::nvfp4_blk16_p16_avx2 =
    kernel_row("nvfp4_blk16_p16_avx2", avx2::kSteps, symmetric::quantize_blocks<2>, gemm_fp4<Fp4Dot, Per16>);
constinit const Kernel kernel_rows::mxfp4_e2m1_p16_avx2 = kernel_row(
    "mxfp4_e2m1_p16_avx2", avx2::kSteps, symmetric::quantize_as<float_acts::Mxfp4>, gemm_fp4<Fp4Dot, PerBlock>);
constinit const Kernel kernel_rows::nvfp4_e2m1_p16_avx2 = kernel_row(
    "nvfp4_e2m1_p16_avx2", avx2::kSteps, symmetric::quantize_as<float_acts::Nvfp4>, gemm_fp4<Fp4Dot, PerBlock>);

}  // namespace moe::kernels

MOE_TARGET_END
