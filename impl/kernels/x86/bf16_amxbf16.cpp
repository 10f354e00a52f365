// bf16 weights on p16 with bf16 rows, AMX-BF16.
//
// A B tile is 32 k x 16 weight rows: half a unit as it lies. A piece of a bf16 tile is the A tile. Two panels meet the
// whole tile, up to 128 tokens, 32 of them at a time (2 x 2 tiles of sums), 512 k after another, so that what a run
// needs stays in L1. Sums rest as float32 between runs. Any number of tokens goes this way: every sum is one chain of
// TDPBF16PS over all k, whatever else is in the tile. Its bits are its own.
#include <immintrin.h>

#include <algorithm>
#include <array>

#include "kernels/target.h"
#include "kernels/x86/amx.h"
#include "kernels/x86/rows.h"

#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 flags its own _mm512_undefined_* (GCC bug 105593)
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
MOE_TARGET_BEGIN("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512bf16,amx-tile,amx-bf16")

namespace moe {
namespace {

constexpr int kTileRows = 128;
constexpr std::int64_t kPieceK = 32, kRunPieces = 16;
constexpr std::size_t kPieceBytes = 1024;  // of a panel's weights

#include "kernels/x86/amx_tiles.inl"

#include "kernels/x86/read_ahead.inl"

// 16 x 16 sums of one part of tokens with two panels.
using Block = std::array<std::array<std::array<float, 16>, kSubRows>, 2>;

struct alignas(64) Scratch {
  std::array<Block, kSubs> sums;
};

// Pieces [first, end) of one or two parts of tokens with one or two panels, on top of the pieces before.
template <bool kTwoPanels, bool kTwoParts>
void multiply(const GemmArgs& a, const std::byte* weights, const Parts& parts, int part, std::int64_t first,
              std::int64_t end, Scratch& s, Share& share) {
  const auto at = static_cast<std::size_t>(part);
  Block &one = s.sums[at], &two = s.sums[kTwoParts ? at + 1 : at];
  if (first != 0) {
    _tile_loadd(0, one[0].data(), 64);
    if constexpr (kTwoPanels) _tile_loadd(1, one[1].data(), 64);
    if constexpr (kTwoParts) _tile_loadd(2, two[0].data(), 64);
    if constexpr (kTwoPanels && kTwoParts) _tile_loadd(3, two[1].data(), 64);
  } else {
    _tile_zero(0);
    if constexpr (kTwoPanels) _tile_zero(1);
    if constexpr (kTwoParts) _tile_zero(2);
    if constexpr (kTwoPanels && kTwoParts) _tile_zero(3);
  }
  const std::size_t stride = a.matrix->panel_bytes(), x_bytes = static_cast<std::size_t>(a.n) * 64;
  const std::byte* w = weights + static_cast<std::size_t>(first) * kPieceBytes;
  const std::byte* x = a.tile + static_cast<std::size_t>(first) * x_bytes;
  const std::ptrdiff_t at_one = parts.first(part) * 64, at_two = kTwoParts ? parts.first(part + 1) * 64 : 0;
  for (std::int64_t piece = first; piece < end; ++piece, w += kPieceBytes, x += x_bytes) {
    share.advance();
    _tile_loadd(6, w, 64);
    _tile_loadd(4, x + at_one, 64);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kTwoPanels) {
      _tile_loadd(7, w + stride, 64);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (kTwoParts) {
      _tile_loadd(5, x + at_two, 64);
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (kTwoPanels) _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, one[0].data(), 64);
  if constexpr (kTwoPanels) _tile_stored(1, one[1].data(), 64);
  if constexpr (kTwoParts) _tile_stored(2, two[0].data(), 64);
  if constexpr (kTwoPanels && kTwoParts) _tile_stored(3, two[1].data(), 64);
}

template <bool kTwoPanels>
void panels(const GemmArgs& a, const std::byte* panel, const Parts& parts, float* out, Scratch& s, Share& share) {
  const P16Matrix& m = *a.matrix;
  const std::byte* weights = panel + m.header_bytes();
  const std::int64_t pieces = m.units() * (kUnitK / kPieceK);
  for (std::int64_t first = 0; first < pieces; first += kRunPieces) {
    const std::int64_t end = std::min(first + kRunPieces, pieces);
    int part = 0;
    for (; part + 2 <= parts.count; part += 2)
      multiply<kTwoPanels, true>(a, weights, parts, part, first, end, s, share);
    if (part < parts.count) multiply<kTwoPanels, false>(a, weights, parts, part, first, end, s, share);
  }
  for (std::size_t p = 0; p < (kTwoPanels ? 2 : 1); ++p, panel += m.panel_bytes(), out += kPanelRows) {
    const __m512 bias = m.has_bias ? _mm512_loadu_ps(panel + m.bias_offset()) : _mm512_setzero_ps();
    for (int part = 0; part < parts.count; ++part)
      for (int i = 0; i < parts.rows; ++i) {
        const auto& sums = s.sums[static_cast<std::size_t>(part)][p][static_cast<std::size_t>(i)];
        _mm512_storeu_ps(out + (parts.first(part) + i) * a.ld, _mm512_add_ps(_mm512_load_ps(sums.data()), bias));
      }
  }
}

void gemm(const GemmArgs& a) {
  const Parts parts(a.n);
  const TileConfig config(parts.rows);
  _tile_loadconfig(&config);
  Scratch s;
  const std::size_t bytes = a.matrix->panel_bytes();
  Share share(a, bytes, (a.panel_count + 1) / 2 * (a.matrix->units() * (kUnitK / kPieceK)) * ((parts.count + 1) / 2));
  const std::byte* panel = a.panels;
  std::int64_t p = 0;
  for (; p + 2 <= a.panel_count; p += 2, panel += 2 * bytes)
    panels<true>(a, panel, parts, a.out + p * kPanelRows, s, share);
  if (p < a.panel_count) panels<false>(a, panel, parts, a.out + p * kPanelRows, s, share);
  _tile_release();
}

}  // namespace

const Kernel kBf16AmxBf16 = {.id = &kKernelIds[*kernel_index("bf16_bf16_p16_amxbf16")],
                             .exact = false,
                             .tile_rows = kTileRows,
                             .steps = &avx512::kSteps,
                             .quantise = avx512::quantise_bf16,
                             .gemm = gemm,
                             .ready = permit_amx};

}  // namespace moe

MOE_TARGET_END
