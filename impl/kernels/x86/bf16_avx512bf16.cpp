// bf16 weights on p16 with bf16 rows, AVX512-BF16: body/gemm_float.inl on pairs of columns.
//
// A pair of bf16 is 4 bytes in the weights and in the tile, which both look like those of float32 with half the
// columns; vdpbf16ps takes the place of fma, a unit of 64 columns that of a block. Its bits are its own: the
// instruction adds two products one after the other and flushes subnormals.
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "kernels/target.h"
#include "kernels/x86/steps.h"

#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 flags its own _mm512_undefined_* (GCC bug 105593)
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
MOE_TARGET_BEGIN("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512bf16")

namespace moe::kernels {
namespace {

constexpr int kTileRows = tile_rows("bf16_bf16_p16_avx512bf16");

#include "kernels/x86/vector_avx512.inl"

#include "kernels/body/places.inl"

#include "kernels/x86/read_ahead.inl"

#include "kernels/body/gemm_float.inl"

struct Pairs : Floats<Element::f32> {
  static constexpr std::int64_t kColumns = kUnitK;
  static std::int64_t blocks(const TileShape& shape) { return shape.units(); }
  [[gnu::always_inline]] static F fma(F x, F w, F sum) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(w));
  }
};

}  // namespace

void avx512::quantize_bf16(const QuantizeArgs& a) {
  constexpr std::int64_t kPiece = 32;
  std::byte* piece = a.out.tile + a.out.row * 64;
  for (std::int64_t k = 0; k < a.shape.units() * kUnitK; k += kPiece, piece += a.out.n * 64) {
    const std::int64_t count = std::clamp<std::int64_t>(a.shape.k - k, 0, kPiece);
    if (count < kPiece) std::memset(piece, 0, 64);
    kSteps.narrow(DType::bf16, a.x + k, count, piece);
  }
}

constinit const Kernel kernel_rows::bf16_bf16_p16_avx512bf16 =
    kernel_row("bf16_bf16_p16_avx512bf16", avx512::kSteps, avx512::quantize_bf16, gemm<Pairs>);

}  // namespace moe::kernels

MOE_TARGET_END
