// MXFP4 and NVFP4 weights with symmetric integer activations, AVX-512 VNNI: int8 per block of 32, 16 bits,
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

#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 flags its own _mm512_undefined_* (GCC bug 105593)
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
MOE_TARGET_BEGIN("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")

namespace moe::kernels {
namespace {

constexpr int kTileRows = tile_rows("mxfp4_blk8_p16_avx512vnni");

#include "kernels/x86/vector_avx512.inl"

#include "kernels/body/quantize_symmetric.inl"

#include "kernels/body/quantize_floats.inl"

#include "kernels/x86/read_ahead.inl"

#include "kernels/x86/dot_avx512.inl"

#include "kernels/body/symmetric_tile.inl"

#include "kernels/x86/symmetric_512.inl"

// As Nibbles, looked up.
struct Fp4Codes {
  static constexpr int kVectors = 4, kSteps = 2, kBytes = 256;
  static constexpr bool kDoubled = true;
  template <int H>
  [[gnu::always_inline]] static inline __m512i operand(__m512i v) {
    if constexpr (H == 1) v = _mm512_srli_epi16(v, 4);
    return _mm512_shuffle_epi8(V::repeated(kE2m1Codes.data()), _mm512_and_si512(v, _mm512_set1_epi8(15)));
  }
  template <int P>
  [[gnu::always_inline]] static inline void unpack(__m512i v, __m512i (&codes)[kSteps][P], int p) {
    codes[0][p] = operand<0>(v);
    codes[1][p] = operand<1>(v);
  }
};

}  // namespace

constinit const Kernel kernel_rows::mxfp4_blk8_p16_avx512vnni = kernel_row(
    "mxfp4_blk8_p16_avx512vnni", avx512::kSteps, symmetric::quantize_blocks<1>, gemm_fp4<Fp4Codes, PerBlock>);
constinit const Kernel kernel_rows::mxfp4_blk16_p16_avx512vnni =
    kernel_row("mxfp4_blk16_p16_avx512vnni", avx512::kSteps, symmetric::quantize_blocks<2>, gemm_fp4<Fp4Codes, Per16>);
constinit const Kernel kernel_rows::nvfp4_blk8_p16_avx512vnni = kernel_row(
    "nvfp4_blk8_p16_avx512vnni", avx512::kSteps, symmetric::quantize_blocks<1>, gemm_fp4<Fp4Codes, PerBlock>);
constinit const Kernel kernel_rows::nvfp4_blk16_p16_avx512vnni =
    kernel_row("nvfp4_blk16_p16_avx512vnni", avx512::kSteps, symmetric::quantize_blocks<2>, gemm_fp4<Fp4Codes, Per16>);
constinit const Kernel kernel_rows::mxfp4_e2m1_p16_avx512vnni =
    kernel_row("mxfp4_e2m1_p16_avx512vnni", avx512::kSteps, symmetric::quantize_as<float_acts::Mxfp4>,
               gemm_fp4<Fp4Codes, PerBlock>);
constinit const Kernel kernel_rows::nvfp4_e2m1_p16_avx512vnni =
    kernel_row("nvfp4_e2m1_p16_avx512vnni", avx512::kSteps, symmetric::quantize_as<float_acts::Nvfp4>,
               gemm_fp4<Fp4Codes, PerBlock>);

}  // namespace moe::kernels

MOE_TARGET_END
