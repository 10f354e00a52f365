// W4A8-int8 on p16, AMX-INT8: 16 weight rows x 64 k a B tile, up to 16 tokens an A tile, one TDPBSUD for both.
//
// A unit of the layout is expanded to 1 KiB of u8 in L1, row 8h + j of the B tile the low nibbles of V[h][j] and row
// 8h + 4 + j the high ones; a unit of a tok8 tile is the A tile as it lies. Sums leave the tile registers once per
// weight group, which must be whole units (or the whole row); corrections and the float steps are those of
// kernels/ref/w4a8.cpp, in its order. Few tokens go to the AVX-512 row: a tile would be mostly empty.
#include <immintrin.h>

#include <array>
#include <cstring>

#include "kernels/target.h"
#include "kernels/x86/amx.h"
#include "kernels/x86/rows.h"

#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 flags its own _mm512_undefined_* (GCC bug 105593)
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
MOE_TARGET_BEGIN("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni,amx-tile,amx-int8")

namespace moe {
namespace {

constexpr int kTileRows = 16;
constexpr int kFewRows = 4;
constexpr std::ptrdiff_t kAhead = 4096;  // bytes of a panel between prefetch and use

// Tile registers: 0 and 1 sums of two panels, 2 activations, 3 and 4 weights.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t column_bytes[16] = {64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {};
};

inline __m512i load(const std::byte* p) { return _mm512_loadu_si512(p); }
inline __m512 load_f32(const std::byte* p) { return _mm512_loadu_ps(p); }
inline __m512 load_bf16(const std::byte* p) {
  const __m256i h = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

// The memory of one pair of panels.
struct alignas(64) Scratch {
  std::array<std::array<std::uint8_t, 1024>, 2> weights;
  std::int32_t sums[2][kTileRows][16];
  float results[2][kTileRows][16];
};

inline void expand(const std::byte* unit, std::uint8_t* tile) {
  const __m512i mask = _mm512_set1_epi8(15);
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    const int row = i / 4 * 8 + i % 4;
    const __m512i v = load(unit + 64 * i);
    _mm512_store_si512(tile + 64 * row, _mm512_and_si512(v, mask));
    _mm512_store_si512(tile + 64 * (row + 4), _mm512_and_si512(_mm512_srli_epi16(v, 4), mask));
    _mm_prefetch(reinterpret_cast<const char*>(unit + kAhead + 64 * i), _MM_HINT_T0);
  }
}

// Sums over units [begin, end) of P panels.
template <int P>
void multiply(const GemmArgs& a, const std::byte* codes, std::int64_t begin, std::int64_t end, Scratch& s) {
  const P16Matrix& m = *a.matrix;
  const std::size_t unit_rows = static_cast<std::size_t>(kUnitK) * static_cast<std::size_t>(a.n);
  _tile_zero(0);
  if constexpr (P == 2) _tile_zero(1);
  for (std::int64_t u = begin; u < end; ++u) {
    const auto at = static_cast<std::size_t>(u);
    for (int p = 0; p < P; ++p)
      expand(codes + static_cast<std::size_t>(p) * m.panel_bytes() + at * m.unit_bytes(),
             s.weights[static_cast<std::size_t>(p)].data());
    _tile_loadd(2, a.tile + at * unit_rows, kUnitK);
    _tile_loadd(3, s.weights[0].data(), 64);
    _tile_dpbsud(0, 2, 3);
    if constexpr (P == 2) {
      _tile_loadd(4, s.weights[1].data(), 64);
      _tile_dpbsud(1, 2, 4);
    }
  }
  _tile_stored(0, s.sums[0], 64);
  if constexpr (P == 2) _tile_stored(1, s.sums[1], 64);
}

// What the tile keeps beside the codes.
struct RowFacts {
  const std::int32_t* corr;  // [G][n]
  const float* recip;
  const std::int32_t* z;

  explicit RowFacts(const GemmArgs& a) {
    const auto n = static_cast<std::size_t>(a.n);
    corr = reinterpret_cast<const std::int32_t*>(a.tile + a.shape.code_bytes() * n);
    recip = reinterpret_cast<const float*>(corr + static_cast<std::size_t>(a.shape.groups()) * n);
    z = reinterpret_cast<const std::int32_t*>(recip + n);
  }
};

template <int P>
void panels_channel(const GemmArgs& a, const RowFacts& t, const std::byte* panel, float* out, Scratch& s) {
  const P16Matrix& m = *a.matrix;
  multiply<P>(a, panel + m.header_bytes(), 0, m.units(), s);
  for (int p = 0; p < P; ++p, panel += m.panel_bytes()) {
    const __m512i wsum = load(panel + m.sum_offset());
    const __m512 scale = load_f32(panel);
    const __m512 bias = m.has_bias ? load_f32(panel + m.bias_offset()) : _mm512_setzero_ps();
    for (int i = 0; i < a.n; ++i) {
      __m512i sum = _mm512_add_epi32(_mm512_load_si512(s.sums[p][i]), _mm512_set1_epi32(t.corr[i]));
      sum = _mm512_add_epi32(sum, _mm512_mullo_epi32(wsum, _mm512_set1_epi32(t.z[i])));
      const __m512 r = _mm512_mul_ps(_mm512_mul_ps(_mm512_set1_ps(16.0f), _mm512_cvtepi32_ps(sum)),
                                     _mm512_mul_ps(scale, _mm512_set1_ps(t.recip[i])));
      _mm512_storeu_ps(out + i * a.ld + p * kPanelRows, _mm512_add_ps(r, bias));
    }
  }
}

template <int P>
void panels_grouped(const GemmArgs& a, const RowFacts& t, const std::byte* panel, float* out, Scratch& s) {
  const P16Matrix& m = *a.matrix;
  const std::int64_t per_group = m.group / kUnitK;
  for (std::int64_t g = 0; g < m.groups(); ++g) {
    multiply<P>(a, panel + m.header_bytes(), g * per_group, (g + 1) * per_group, s);
    const std::int32_t* corr = t.corr + g * a.n;
    for (int p = 0; p < P; ++p) {
      const __m512 scale = load_bf16(panel + static_cast<std::size_t>(p) * m.panel_bytes() + m.scale_offset(0, g));
      for (int i = 0; i < a.n; ++i) {
        const __m512i sum = _mm512_add_epi32(_mm512_load_si512(s.sums[p][i]), _mm512_set1_epi32(corr[i]));
        const __m512 before = g == 0 ? _mm512_setzero_ps() : _mm512_load_ps(s.results[p][i]);
        _mm512_store_ps(s.results[p][i], _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), scale, before));
      }
    }
  }
  for (int p = 0; p < P; ++p, panel += m.panel_bytes()) {
    const __m512 rsum = load_f32(panel + m.sum_offset());
    const __m512 bias = m.has_bias ? load_f32(panel + m.bias_offset()) : _mm512_setzero_ps();
    for (int i = 0; i < a.n; ++i) {
      __m512 f = _mm512_fmadd_ps(rsum, _mm512_set1_ps(static_cast<float>(t.z[i])), _mm512_load_ps(s.results[p][i]));
      f = _mm512_mul_ps(f, _mm512_set1_ps(t.recip[i]));
      _mm512_storeu_ps(out + i * a.ld + p * kPanelRows, _mm512_add_ps(f, bias));
    }
  }
}

template <int P>
void panels(const GemmArgs& a, const RowFacts& t, std::int64_t first, Scratch& s) {
  const std::byte* panel = a.panels + static_cast<std::size_t>(first) * a.matrix->panel_bytes();
  float* out = a.out + first * kPanelRows;
  if (a.matrix->grouping() == Grouping::channel)
    panels_channel<P>(a, t, panel, out, s);
  else
    panels_grouped<P>(a, t, panel, out, s);
}

void gemm(const GemmArgs& a) {
  if (a.n <= kFewRows) {
    kW4a8Avx512Vnni.gemm(a);
    return;
  }
  TileConfig config;
  for (int tile : {0, 1, 2}) config.rows[tile] = static_cast<std::uint8_t>(a.n);
  for (int tile : {3, 4}) config.rows[tile] = 16;
  _tile_loadconfig(&config);
  const RowFacts t(a);
  Scratch s;
  std::int64_t p = 0;
  for (; p + 2 <= a.panel_count; p += 2) panels<2>(a, t, p, s);
  if (p < a.panel_count) panels<1>(a, t, p, s);
  _tile_release();
}

}  // namespace

const Kernel kW4a8AmxInt8 = {.id = &kKernelIds[*kernel_index("w4a8_tok8_p16_amxint8")],
                             .exact = true,
                             .tile_rows = kTileRows,
                             .steps = &avx512::kSteps,
                             .quantise = avx512::quantise_tok8,
                             .gemm = gemm,
                             .ready = permit_amx};

}  // namespace moe

MOE_TARGET_END
