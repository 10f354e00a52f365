// Integer weights with symmetric integer activations, AVX-512 VNNI: W8A8 per token, and int4 or int8 weights with int8
// per block of 32 or with 16 bits (kernels/ref/symmetric.h has the definition; every float step is in its order).
#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/index.h"
#include "kernels/ref/symmetric.h"
#include "kernels/target.h"
#include "kernels/x86/steps.h"

#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 flags its own _mm512_undefined_* (GCC bug 105593)
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
MOE_TARGET_BEGIN("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")

namespace moe::kernels {
namespace {

constexpr int kTileRows = tile_rows("w8a8_tok8_p16_avx512vnni");

#include "kernels/x86/vector_avx512.inl"

#include "kernels/body/quantize_symmetric.inl"

#include "kernels/x86/read_ahead.inl"

#include "kernels/x86/dot_avx512.inl"

#include "kernels/body/symmetric_tile.inl"

#include "kernels/x86/symmetric_512.inl"

}  // namespace

void avx512::quantize_symmetric(const QuantizeArgs& args) { symmetric::quantize_row(args); }
void avx512::quantize_blocks(const QuantizeArgs& args) { symmetric::quantize_blocks<1>(args); }
void avx512::quantize_digits(const QuantizeArgs& args) { symmetric::quantize_blocks<2>(args); }

constinit const Kernel kernel_rows::w8a8_tok8_p16_avx512vnni =
    kernel_row("w8a8_tok8_p16_avx512vnni", avx512::kSteps, symmetric::quantize_row, gemm<Bytes, PerToken>);
constinit const Kernel kernel_rows::w8a8_blk8_p16_avx512vnni =
    kernel_row("w8a8_blk8_p16_avx512vnni", avx512::kSteps, symmetric::quantize_blocks<1>, gemm_blocks<Bytes>);
constinit const Kernel kernel_rows::w4a8_blk8_p16_avx512vnni =
    kernel_row("w4a8_blk8_p16_avx512vnni", avx512::kSteps, symmetric::quantize_blocks<1>, gemm_blocks<Nibbles>);
constinit const Kernel kernel_rows::w4a8_blk8_p16_avx512vnni_zp =
    kernel_row("w4a8_blk8_p16_avx512vnni_zp", avx512::kSteps, symmetric::quantize_blocks<1>, gemm_blocks<Nibbles>);
constinit const Kernel kernel_rows::w4a16_blk16_p16_avx512vnni =
    kernel_row("w4a16_blk16_p16_avx512vnni", avx512::kSteps, symmetric::quantize_blocks<2>, gemm_16<Nibbles>);
constinit const Kernel kernel_rows::w8a16_blk16_p16_avx512vnni =
    kernel_row("w8a16_blk16_p16_avx512vnni", avx512::kSteps, symmetric::quantize_blocks<2>, gemm_16<Bytes>);

}  // namespace moe::kernels

MOE_TARGET_END
