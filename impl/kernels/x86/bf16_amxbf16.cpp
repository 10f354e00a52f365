// bf16 weights on p16 with bf16 rows, AMX-BF16.
//
// A B tile is 32 k x 16 weight rows: half a unit as it lies. A piece of a bf16 tile is the A tile. Two panels and two
// pieces at a time meet the whole tile, up to 128 tokens (amx_tiles.inl), one panel where 16 tokens or fewer leave the
// time to the memory; sums rest in L1 as float32 between the passes. Any number of tokens goes this way: every sum is
// one chain of TDPBF16PS over all k, whatever else is in the tile. Its bits are its own.
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
constexpr std::size_t kPieceBytes = 1024;  // of 32 k of a panel

#include "kernels/x86/amx_tiles.inl"

#include "kernels/x86/read_ahead.inl"

struct Product {
  template <int kStep, int kPanel>
  [[gnu::always_inline]] static inline void dot() {  // the intrinsics want literal numbers
    if constexpr (kStep == 0 && kPanel == 0) _tile_dpbf16ps(0, 2, 4);
    if constexpr (kStep == 0 && kPanel == 1) _tile_dpbf16ps(1, 2, 5);
    if constexpr (kStep == 1 && kPanel == 0) _tile_dpbf16ps(0, 3, 6);
    if constexpr (kStep == 1 && kPanel == 1) _tile_dpbf16ps(1, 3, 7);
  }
};

struct alignas(64) Scratch {
  std::array<Block<float>, kMaxParts + 1> sums;  // of the parts; the last is nobody's
};

// What reads ahead where a tile is one part of the tokens: weights then pass at the memory's speed, so that panels come
// one by one, in order, and each pass asks for as much as it takes.
struct InOrder {
  Stream stream;
  const std::byte* at = nullptr;

  void begin(const std::byte* panel, std::size_t header) {
    stream.header(panel, header);
    at = panel + header;
  }
  [[gnu::always_inline]] void advance() {
    stream.fetch(at, kSteps * kPieceBytes);
    at += kSteps * kPieceBytes;
  }
};

// The work beside the products of a pass: to read ahead.
template <class Ahead>
struct Sums {
  Scratch& s;
  Ahead& ahead;
  std::size_t newest = kMaxParts;

  Block<float>& in_registers() { return s.sums[newest]; }
  Block<float>& home(int part) { return s.sums[static_cast<std::size_t>(part)]; }
  void beside(int) {}
  [[gnu::always_inline]] void passed(int part, Block<float>&) {
    newest = static_cast<std::size_t>(part);
    ahead.advance();
  }
};

// One pair of panels (or the last one alone) against the tile. A unit is a pass.
template <int kPanels, class Ahead>
void panels(const GemmArgs& a, const std::byte* panel, const Parts& parts, float* out, Scratch& s, Ahead& ahead) {
  const P16Matrix& m = *a.matrix;
  const std::byte* weights = panel + m.header_bytes();
  _tile_zero(0);
  _tile_zero(1);
  Sums<Ahead> sums{s, ahead};
  for (std::int64_t unit = 0; unit < m.units(); ++unit, weights += kSteps * kPieceBytes) {
    Tiles tiles;
    for (std::size_t step = 0; step < kSteps; ++step)
      for (std::size_t p = 0; p < kPanels; ++p) tiles[step][p] = weights + p * m.panel_bytes() + step * kPieceBytes;
    pass<Product, kPanels, kSteps>(tiles, a.tile + unit * kUnitK * 2 * a.n, parts, unit != 0, sums);
  }
  store_sums<kPanels>(sums.in_registers());
  for (std::size_t p = 0; p < kPanels; ++p, panel += m.panel_bytes(), out += kPanelRows) {
    const __m512 bias = m.has_bias ? _mm512_loadu_ps(panel + m.bias_offset()) : _mm512_setzero_ps();
    for (int part = 0; part < parts.count; ++part)
      for (int i = 0; i < parts.rows; ++i) {
        const auto& row = s.sums[static_cast<std::size_t>(part)][p][static_cast<std::size_t>(i)];
        _mm512_storeu_ps(out + (parts.first(part) + i) * a.ld, _mm512_add_ps(_mm512_load_ps(row.data()), bias));
      }
  }
}

void gemm(const GemmArgs& a) {
  const Parts parts(a.n);
  const TileConfig config(parts.rows);
  _tile_loadconfig(&config);
  Scratch s;
  const std::size_t bytes = a.matrix->panel_bytes();
  if (parts.count == 1) {
    InOrder order{Stream(a, bytes, a.next)};
    for (std::int64_t p = 0; p < a.panel_count; ++p) {
      const std::byte* panel = a.panels + static_cast<std::size_t>(p) * bytes;
      order.begin(panel, a.matrix->header_bytes());
      panels<1>(a, panel, parts, a.out + p * kPanelRows, s, order);
    }
  } else {
    Share share(a, bytes, (a.panel_count + 1) / 2 * a.matrix->units() * parts.count);
    in_pairs(a, bytes, [&]<int kPanels>(const std::byte* panel, std::int64_t column) {
      panels<kPanels>(a, panel, parts, a.out + column, s, share);
    });
  }
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
