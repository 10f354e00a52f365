// W4A8-int8 on p16, AVX-512 VNNI: 16 weight rows in the lanes, one vpdpbusd per 4 k and token.
//
// A 64-byte vector of the layout holds the operands of two k-steps (low and high nibbles, value + 8 as
// u8); the activation is a 4-byte broadcast. The offset 8 is taken back by the start value corr of each
// sum, so the inner loop is loads, masks and dots only. Sums are exact int32; the float steps are those
// of kernels/ref/w4a8.cpp, in its order.
#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "base/index.h"
#include "kernels/ref/w4a8.h"
#include "kernels/target.h"
#include "kernels/x86/steps.h"

#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 flags its own _mm512_undefined_* (GCC bug 105593)
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
MOE_TARGET_BEGIN("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")

namespace moe::kernels {
namespace {

constexpr int kTileRows = tile_rows("w4a8_tok8_p16_avx512vnni");

#include "kernels/x86/vector_avx512.inl"

#include "kernels/body/quantize_tok8.inl"

#include "kernels/x86/read_ahead.inl"

#include "kernels/x86/dot_avx512.inl"

// The tile as the kernels walk it, from row `first` on. kMany: it may have more rows than one walk takes.
template <bool kMany>
struct Tile {
  int n, first;
  const std::int8_t* codes;
  const std::int32_t* corr;  // [G][n]
  const float* recip;
  const std::int32_t* z;

  Tile(const GemmArgs& a, int row) : n(a.n), first(row) {
    codes = reinterpret_cast<const std::int8_t*>(a.tile) + first * kUnitK;
    const auto* words = reinterpret_cast<const std::int32_t*>(a.tile + a.shape.code_bytes(n));
    corr = words + first;
    recip = reinterpret_cast<const float*>(words + a.shape.group_count() * n) + first;
    z = words + (a.shape.group_count() + 1) * n + first;
  }
  // Rows of the tile, for addresses: what the compiler knows where N rows are all of them.
  template <int P, int N>
  [[gnu::always_inline]] int rows() const {
    return P == 1 || kMany ? n : N;
  }
};

template <int P, int N, bool kMany>
void finish_rows(const GemmArgs& a, const Tile<kMany>& t, const std::byte* panel, std::int64_t column,
                 const __m512 (&r)[P][N]) {
  const P16& m = *a.matrix;
  for (int p = 0; p < P; ++p) {
    const std::byte* head = panel + usize(p) * m.panel_bytes();
    const __m512 bias = m.has_bias ? load_f32(head + m.bias_offset()) : _mm512_setzero_ps();
    for (int i = 0; i < N; ++i)
      _mm512_storeu_ps(a.out + (t.first + i) * a.ld + column + p * kPanelRows, _mm512_add_ps(r[p][i], bias));
  }
}

// r = a * s_a after a = fma(rsum, z, a): the end of a group-wise sum, with what each panel has for it loaded once.
template <int P, int N, bool kMany>
[[gnu::noinline]] void finish_groups(const GemmArgs& a, const Tile<kMany>& t, const std::byte* panel,
                                     std::int64_t column, const __m512 (&f)[P][N]) {
  const P16& m = *a.matrix;
  const std::size_t stride = m.panel_bytes(), sums = m.sum_offset(), biases = m.bias_offset();
  __m512 rsum[P], bias[P];
  for (int p = 0; p < P; ++p, panel += stride) {
    rsum[p] = load_f32(panel + sums);
    bias[p] = m.has_bias ? load_f32(panel + biases) : _mm512_setzero_ps();
  }
  float* out = a.out + t.first * a.ld + column;
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i, out += a.ld) {
    const __m512 z = _mm512_cvtepi32_ps(_mm512_set1_epi32(t.z[i])), recip = _mm512_set1_ps(t.recip[i]);
    for (int p = 0; p < P; ++p) {
      const __m512 r = _mm512_mul_ps(_mm512_fmadd_ps(rsum[p], z, f[p][i]), recip);
      _mm512_storeu_ps(out + p * kPanelRows, _mm512_add_ps(r, bias[p]));
    }
  }
}

template <int P, int N, bool kMany>
[[gnu::noinline]] void panels_channel(const GemmArgs& a, const Tile<kMany>& t, const std::byte* panel,
                                      std::int64_t column, Ahead<Nibbles, P>& reading) {
  Ahead<Nibbles, P> ahead = reading;
  const P16& m = *a.matrix;
  const std::size_t stride = m.panel_bytes();
  __m512i zw[P * N];
  for (int p = 0; p < P; ++p) {
    const __m512i wsum = load(panel + usize(p) * stride + m.sum_offset());
    for (int i = 0; i < N; ++i) zw[p * N + i] = _mm512_mullo_epi32(wsum, _mm512_set1_epi32(t.z[i]));
  }
  Block<Nibbles, P, N> b;
  b.start(t.corr, zw);
  const std::byte* w = panel + m.header_bytes();
  ahead.header(panel, m.header_bytes());
  for (std::int64_t k = 0, blocks = a.shape.blocks(); k < blocks; ++k, w += 256) {
    ahead.block(w);
    b.add(w, stride, t.codes + block_offset(k, t.template rows<P, N>()));
  }
  reading = ahead;
  __m512 r[P][N];
  for (int p = 0; p < P; ++p) {
    const __m512 scale = load_f32(panel + usize(p) * stride);
    for (int i = 0; i < N; ++i)
      r[p][i] = _mm512_mul_ps(_mm512_mul_ps(_mm512_set1_ps(16.0f), b.sum(p, i)),
                              _mm512_mul_ps(scale, _mm512_set1_ps(t.recip[i])));
  }
  finish_rows<P, N>(a, t, panel, column, r);
}

template <int P, int N, bool kMany>
[[gnu::noinline]] void panels_grouped(const GemmArgs& a, const Tile<kMany>& t, const std::byte* panel,
                                      std::int64_t column, Ahead<Nibbles, P>& reading) {
  Ahead<Nibbles, P> ahead = reading;
  const P16& m = *a.matrix;
  const std::size_t stride = m.panel_bytes();
  const std::int64_t per_group = m.group() / 32;
  __m512 f[P][N];
  for (auto& row : f)
    for (auto& x : row) x = _mm512_setzero_ps();
  const std::byte* w = panel + m.header_bytes();
  ahead.header(panel, m.header_bytes());
  const std::int32_t* corr = t.corr;
  std::int64_t k = 0;
  for (std::int64_t g = 0, groups = m.group_count(); g < groups; ++g, corr += t.template rows<P, N>()) {
    Block<Nibbles, P, N> b;
    b.start(corr, nullptr);
    for (const std::int64_t end = k + per_group; k < end; ++k, w += 256) {
      ahead.block(w);
      b.add(w, stride, t.codes + block_offset(k, t.template rows<P, N>()));
    }
    for (int p = 0; p < P; ++p) {
      const __m512 scale = load_bf16(panel + usize(p) * stride + g * 32);
      for (int i = 0; i < N; ++i) f[p][i] = _mm512_fmadd_ps(b.sum(p, i), scale, f[p][i]);
    }
  }
  reading = ahead;
  finish_groups<P, N>(a, t, panel, column, f);
}

template <int P, int N, bool kMany>
[[gnu::noinline]] void panels_g32(const GemmArgs& a, const Tile<kMany>& t, const std::byte* panel, std::int64_t column,
                                  Ahead<Nibbles, P>& reading) {
  Ahead<Nibbles, P> ahead = reading;
  const P16& m = *a.matrix;
  const std::size_t stride = m.panel_bytes();
  __m512 f[P][N];
  for (auto& row : f)
    for (auto& x : row) x = _mm512_setzero_ps();
  const std::byte* unit = panel + m.header_bytes();
  ahead.header(panel, m.header_bytes());
  const std::int32_t* corr = t.corr;
  const std::int64_t blocks = a.shape.blocks();
  for (std::int64_t k = 0; k < blocks; ++k, corr += t.template rows<P, N>()) {
    const std::size_t h = usize(k & 1);
    const std::byte* w = unit + 64 + 256 * h;
    if (h == 0) ahead.unit(unit, 64);
    ahead.block(w);
    Block<Nibbles, P, N> b;
    b.start(corr, nullptr);
    b.add(w, stride, t.codes + block_offset(k, t.template rows<P, N>()));
    for (int p = 0; p < P; ++p) {
      const __m512 scale = load_bf16(unit + usize(p) * stride + 32 * h);
      for (int i = 0; i < N; ++i) f[p][i] = _mm512_fmadd_ps(b.sum(p, i), scale, f[p][i]);
    }
    if (h == 1) unit += m.unit_bytes();
  }
  reading = ahead;
  finish_groups<P, N>(a, t, panel, column, f);
}

template <int P, int N, bool kMany = false>
void run_panels(const GemmArgs& a, std::int64_t begin, std::int64_t stop, int first) {
  const Tile<kMany> t(a, first);
  const std::size_t bytes = a.matrix->panel_bytes();
  Ahead<Nibbles, P> ahead(a, bytes);
  for (std::int64_t p = begin; p + P <= stop; p += P) {
    const std::byte* panel = a.panels + usize(p) * bytes;
    switch (a.matrix->grouping()) {
      case Grouping::channel:
        panels_channel<P, N>(a, t, panel, p * kPanelRows, ahead);
        break;
      case Grouping::grouped:
        panels_grouped<P, N>(a, t, panel, p * kPanelRows, ahead);
        break;
      case Grouping::g32:
        panels_g32<P, N>(a, t, panel, p * kPanelRows, ahead);
        break;
      case Grouping::none:  // not of this layout
        break;
    }
  }
}

// More rows meet two panels at a time; a last panel alone meets two rows at a time.
[[gnu::noinline]] void last_panel(const GemmArgs& a) {
  const std::int64_t p = a.panel_count - 1;
  for (int row = 0; row + 2 <= a.n; row += 2) run_panels<1, 2>(a, p, a.panel_count, row);
  if (a.n % 2 != 0) run_panels<1, 1>(a, p, a.panel_count, a.n - 1);
}
template <int N>
void gemm_rows(const GemmArgs& a) {
  if constexpr (N <= 4) {  // bound by memory, which one stream of weights serves best
    if (N <= 3 || a.matrix->groups.is_whole()) return run_panels<1, N>(a, 0, a.panel_count, 0);
  }
  if constexpr (N >= 4) {
    run_panels<2, N>(a, 0, a.panel_count, 0);
    if (a.panel_count % 2 != 0) last_panel(a);
  }
}

// More rows than a tile of this row has (the AMX rows'): walks of nearly equal height, which may meet a row twice,
// alike.
template <int N>
void gemm_many(const GemmArgs& a) {
  for (int row = 0; row < a.n; row += N) run_panels<2, N, true>(a, 0, a.panel_count, std::min(row, a.n - N));
  if (a.panel_count % 2 != 0) last_panel(a);
}

void gemm(const GemmArgs& a) {
  if (a.n > kTileRows) {  // so that two walks or more have at least five rows each
    static constexpr void (*kByHeight[])(const GemmArgs&) = {gemm_many<5>, gemm_many<6>, gemm_many<7>, gemm_many<8>};
    const int walks = (a.n + kTileRows - 1) / kTileRows;
    return kByHeight[(a.n + walks - 1) / walks - 5](a);
  }
  static constexpr void (*kByRows[kTileRows])(const GemmArgs&) = {
      gemm_rows<1>, gemm_rows<2>, gemm_rows<3>, gemm_rows<4>, gemm_rows<5>, gemm_rows<6>, gemm_rows<7>, gemm_rows<8>};
  kByRows[a.n - 1](a);
}

}  // namespace

void avx512::quantize_tok8(const QuantizeArgs& args) { quantize(args); }

constinit const Kernel kernel_rows::w4a8_tok8_p16_avx512vnni =
    kernel_row("w4a8_tok8_p16_avx512vnni", avx512::kSteps, avx512::quantize_tok8, gemm);

}  // namespace moe::kernels

MOE_TARGET_END
