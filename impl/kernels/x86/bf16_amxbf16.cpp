// bf16 weights on p16 with bf16 rows, AMX-BF16.
//
// A B tile is 32 k x 16 weight rows: half a unit as it lies. A piece of a bf16 tile is the A tile. Two panels and 32
// tokens of up to 128 meet at a time (amx_tiles.inl, chains), one panel where 16 tokens or fewer leave the time to the
// memory. Any number of tokens goes this way: every sum is one chain of TDPBF16PS over all k, whatever else is in the
// tile. Its bits are its own.
#include <immintrin.h>

#include <algorithm>
#include <array>

#include "base/index.h"
#include "kernels/target.h"
#include "kernels/x86/amx.h"
#include "kernels/x86/steps.h"

#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 flags its own _mm512_undefined_* (GCC bug 105593)
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
MOE_TARGET_BEGIN("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512bf16,amx-tile,amx-bf16")

namespace moe::kernels {
namespace {

constexpr int kTileRows = tile_rows("bf16_bf16_p16_amxbf16");

#include "kernels/x86/amx_tiles.inl"

#include "kernels/x86/dot_amxbf16.inl"

#include "kernels/x86/read_ahead.inl"

// What reads ahead where a tile is one part of the tokens: weights then pass at the memory's speed, so that panels come
// one by one, in order, and each step asks for as much as it takes.
struct InOrder {
  Stream stream;

  void begin(const std::byte* panel, std::size_t header) const { stream.header(panel, header); }
  [[gnu::always_inline]] void used(const std::byte* piece) const { stream.fetch(piece, kPieceBytes); }
  [[gnu::always_inline]] void next(const std::byte*) const {}
};
// With more parts a call fetches its share into L2, and from there the pieces to come.
struct Shared {
  Share share;

  void begin(const std::byte*, std::size_t) const {}
  [[gnu::always_inline]] void used(const std::byte*) { share.advance(); }
  [[gnu::always_inline]] void next(const std::byte* piece) const { Stream::lines<_MM_HINT_T0>(piece, kPieceBytes); }
};

// The work beside a chain: to read ahead.
template <int kPanels, class Reader>
struct Weights {
  const std::byte* first;  // piece of the first panel
  std::size_t stride;      // of panels
  Reader& reader;

  [[gnu::always_inline]] const std::byte* tile(std::int64_t step, std::size_t p) const {
    return first + p * stride + usize(step) * kPieceBytes;
  }
  [[gnu::always_inline]] void operator()(std::int64_t step, int quarter) const {
    if (quarter == 0) reader.used(tile(step, 0));
    if (quarter >= 2 && quarter - 2 < kPanels) reader.next(tile(step + 1, usize(quarter - 2)));
  }
};

// One pair of panels (or the last one alone) against the tile.
template <int kPanels, class Reader>
void panels(const GemmArgs& a, const std::byte* panel, const Parts& parts, float* out, Reader& reader) {
  const P16& m = *a.matrix;
  reader.begin(panel, m.header_bytes());
  Weights<kPanels, Reader> weights{panel + m.header_bytes(), m.panel_bytes(), reader};
  const auto multiply = [&]<int kParts>(int part) {
    const auto rows = [&](int i) { return a.tile + parts.first(part + i) * 64; };
    chain<Product, kParts, kPanels>({rows(0), rows(kParts - 1)}, usize(a.n) * 64, 2 * m.units(), weights);
    const auto to = [&](int i, int p) { return out + parts.first(part + i) * a.ld + kPanelRows * p; };
    store_chain<kParts, kPanels>(to, a.ld * std::ptrdiff_t{sizeof(float)});
  };
  int part = 0;
  for (; part + 1 < parts.count; part += 2) multiply.template operator()<2>(part);
  if (part < parts.count) multiply.template operator()<1>(part);
  if (!m.has_bias) return;
  for (std::size_t p = 0; p < kPanels; ++p, panel += m.panel_bytes(), out += kPanelRows) {
    const __m512 bias = _mm512_loadu_ps(panel + m.bias_offset());
    for (int i = 0; i < a.n; ++i)
      _mm512_storeu_ps(out + i * a.ld, _mm512_add_ps(_mm512_loadu_ps(out + i * a.ld), bias));
  }
}

void gemm(const GemmArgs& a) {
  const Parts parts(a.n);
  const TileConfig config(parts.rows, kChainWeights);
  config.load();
  const std::size_t bytes = a.matrix->panel_bytes();
  if (parts.count == 1) {
    InOrder order{Stream(a, bytes, a.next)};
    for (std::int64_t p = 0; p < a.panel_count; ++p)
      panels<1>(a, a.panels + usize(p) * bytes, parts, a.out + p * kPanelRows, order);
  } else {
    Shared shared{Share(a, bytes, (a.panel_count + 1) / 2 * 2 * a.matrix->units() * ((parts.count + 1) / 2))};
    in_pairs(a, bytes, [&]<int kPanels>(const std::byte* panel, std::int64_t column) {
      panels<kPanels>(a, panel, parts, a.out + column, shared);
    });
  }
  _tile_release();
}

}  // namespace

constinit const Kernel kernel_rows::bf16_bf16_p16_amxbf16 =
    amx_row("bf16_bf16_p16_amxbf16", avx512::quantize_bf16, gemm);

}  // namespace moe::kernels

MOE_TARGET_END
