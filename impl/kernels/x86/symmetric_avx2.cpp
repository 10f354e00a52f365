// Integer weights with symmetric integer activations, AVX2: W8A8 per token, and int4 or int8 weights with int8 per
// block of 32 or with 16 bits.
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>

#include "kernels/ref/symmetric.h"
#include "kernels/target.h"
#include "kernels/x86/steps.h"

MOE_TARGET_BEGIN("avx2,fma,f16c")

namespace moe::kernels {
namespace {

constexpr int kTileRows = tile_rows("w8a8_tok8_p16_avx2");

#include "kernels/x86/vector_avx2.inl"

#include "kernels/x86/dot_avx2.inl"

#include "kernels/body/quantize_symmetric.inl"

#include "kernels/x86/read_ahead.inl"

#include "kernels/body/symmetric_tile.inl"

#include "kernels/body/symmetric_256.inl"

}  // namespace

constinit const Kernel kernel_rows::w8a8_tok8_p16_avx2 =
    kernel_row("w8a8_tok8_p16_avx2", avx2::kSteps, symmetric::quantize_row, gemm<ByteDot, PerToken>);
constinit const Kernel kernel_rows::w8a8_blk8_p16_avx2 =
    kernel_row("w8a8_blk8_p16_avx2", avx2::kSteps, symmetric::quantize_blocks<1>, gemm_blocks<ByteDot>);
constinit const Kernel kernel_rows::w4a8_blk8_p16_avx2 =
    kernel_row("w4a8_blk8_p16_avx2", avx2::kSteps, symmetric::quantize_blocks<1>, gemm_blocks<NibbleDot>);
constinit const Kernel kernel_rows::w4a8_blk8_p16_avx2_zp =
    kernel_row("w4a8_blk8_p16_avx2_zp", avx2::kSteps, symmetric::quantize_blocks<1>, gemm_blocks<NibbleDot>);
constinit const Kernel kernel_rows::w4a16_blk16_p16_avx2 =
    kernel_row("w4a16_blk16_p16_avx2", avx2::kSteps, symmetric::quantize_blocks<2>, gemm_16<NibbleDot>);
constinit const Kernel kernel_rows::w8a16_blk16_p16_avx2 =
    kernel_row("w8a16_blk16_p16_avx2", avx2::kSteps, symmetric::quantize_blocks<2>, gemm_16<ByteDot>);

}  // namespace moe::kernels

MOE_TARGET_END
