// W4A8-int8 on p16, AVX2: 8 weight rows in the lanes, vpmaddubsw with sums kept in int16 over 32 k.
//
// Codes are at most 15, so 8 steps of 2 * 15 * 128 stay below 2^15: a 32-k block costs 8 vpmaddubsw,
// 7 vpaddw and one vpmaddwd per 8 rows and token. A panel is done as two halves of 8 rows. The float
// steps are those of kernels/ref/w4a8.cpp, in its order.
#include <immintrin.h>

#include <bit>
#include <cstring>
#include <limits>

#include "kernels/ref/w4a8.h"
#include "kernels/target.h"
#include "kernels/x86/rows.h"

MOE_TARGET_BEGIN("avx2,fma,f16c")

namespace moe {
namespace {

constexpr int kTileRows = 4;
constexpr std::ptrdiff_t kAhead = 8192;  // bytes between prefetch and use

#include "kernels/x86/vector_avx2.inl"

#include "kernels/body/quantise_tok8.inl"

inline __m256i broadcast4(const std::int8_t* p) {
  std::int32_t v;
  std::memcpy(&v, p, 4);
  return _mm256_set1_epi32(v);
}
inline __m256i load(const std::byte* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
inline __m256 load_f32(const std::byte* p) { return _mm256_loadu_ps(reinterpret_cast<const float*>(p)); }
inline __m256 load_bf16(const std::byte* p) {
  const __m128i h = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

struct Tile {
  const std::int8_t* codes;
  const std::int32_t* corr;  // [G][n]
  const float* recip;
  const std::int32_t* z;

  explicit Tile(const GemmArgs& a) {
    const auto n = static_cast<std::size_t>(a.n);
    codes = reinterpret_cast<const std::int8_t*>(a.tile);
    corr = reinterpret_cast<const std::int32_t*>(a.tile + a.shape.code_bytes() * n);
    recip = reinterpret_cast<const float*>(corr + static_cast<std::size_t>(a.shape.groups()) * n);
    z = reinterpret_cast<const std::int32_t*>(recip + n);
  }
};

// Sums of 32 k for 8 rows (codes at w, every 64 bytes) and N tokens, added to c.
template <int N>
inline void add_block(const std::byte* w, const std::int8_t* a, __m256i (&c)[N]) {
  const __m256i mask = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
  __m256i s[N];
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m256i v = load(w + 64 * j);
    const __m256i lo = _mm256_and_si256(v, mask), hi = _mm256_and_si256(_mm256_srli_epi16(v, 4), mask);
#pragma GCC unroll 4
    for (int m = 0; m < N; ++m) {
      const __m256i x = _mm256_maddubs_epi16(lo, broadcast4(a + 32 * m + 4 * j));
      s[m] = j == 0 ? x : _mm256_add_epi16(s[m], x);
      s[m] = _mm256_add_epi16(s[m], _mm256_maddubs_epi16(hi, broadcast4(a + 32 * m + 16 + 4 * j)));
    }
  }
  for (int m = 0; m < N; ++m) c[m] = _mm256_add_epi32(c[m], _mm256_madd_epi16(s[m], ones));
}

// One half (8 rows) of a panel against the tile.
template <int N>
void half_panel(const GemmArgs& a, const Tile& t, const std::byte* panel, int half, float* out, const std::byte* end) {
  const P16Matrix& mat = *a.matrix;
  const std::size_t row32 = static_cast<std::size_t>(half) * 32, row16 = static_cast<std::size_t>(half) * 16;
  const Grouping kind = mat.grouping();
  const std::int64_t blocks = a.shape.blocks(), per_group = kind == Grouping::channel ? blocks : mat.group / 32;
  const std::byte* unit = panel + mat.header_bytes();
  const std::int8_t* codes = t.codes;
  const std::int32_t* corr = t.corr;
  __m256 f[N];
  for (auto& x : f) x = _mm256_setzero_ps();
  __m256i c[N];
  std::int64_t left = per_group, g = 0;
  for (int m = 0; m < N; ++m) c[m] = _mm256_set1_epi32(corr[m]);
  for (std::int64_t k = 0; k < blocks; ++k, codes += 32 * N) {
    const std::size_t h = static_cast<std::size_t>(k & 1);
    const std::byte* w = unit + mat.unit_header() + 256 * h;
    if (half == 0) {
      const std::byte* p = w + kAhead;
      if (p >= end && a.next != nullptr) p = a.next + (p - end);
      if (p < end || a.next != nullptr)
        for (int i = 0; i < 4; ++i) _mm_prefetch(reinterpret_cast<const char*>(p + 64 * i), _MM_HINT_T0);
    }
    add_block<N>(w + row32, codes, c);
    if (kind != Grouping::channel && --left == 0) {
      const __m256 scale =
          load_bf16(kind == Grouping::g32 ? unit + 32 * h + row16 : panel + static_cast<std::size_t>(g) * 32 + row16);
      left = per_group;
      ++g;
      corr += N;
      for (int m = 0; m < N; ++m) {
        f[m] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(c[m]), scale, f[m]);
        if (k + 1 < blocks) c[m] = _mm256_set1_epi32(corr[m]);
      }
    }
    if (h == 1) unit += mat.unit_bytes();
  }
  const std::byte* sums = panel + mat.sum_offset() + row32;
  const __m256 bias = mat.has_bias ? load_f32(panel + mat.bias_offset() + row32) : _mm256_setzero_ps();
  for (int m = 0; m < N; ++m) {
    const __m256 s_a = _mm256_set1_ps(t.recip[m]);
    __m256 r;
    if (kind == Grouping::channel) {
      const __m256i i = _mm256_add_epi32(c[m], _mm256_mullo_epi32(load(sums), _mm256_set1_epi32(t.z[m])));
      r = _mm256_mul_ps(_mm256_mul_ps(_mm256_set1_ps(16.0f), _mm256_cvtepi32_ps(i)),
                        _mm256_mul_ps(load_f32(panel + row32), s_a));
    } else {
      r = _mm256_mul_ps(_mm256_fmadd_ps(load_f32(sums), _mm256_set1_ps(static_cast<float>(t.z[m])), f[m]), s_a);
    }
    _mm256_storeu_ps(out + m * a.ld, _mm256_add_ps(r, bias));
  }
}

template <int N>
void gemm_rows(const GemmArgs& a) {
  const Tile t(a);
  const std::size_t bytes = a.matrix->panel_bytes();
  const std::byte* const end = a.panels + static_cast<std::size_t>(a.panel_count) * bytes;
  for (std::int64_t p = 0; p < a.panel_count; ++p)
    for (int half = 0; half < 2; ++half)
      half_panel<N>(a, t, a.panels + static_cast<std::size_t>(p) * bytes, half, a.out + p * kPanelRows + half * 8, end);
}

void gemm(const GemmArgs& a) {
  static constexpr void (*kByRows[kTileRows])(const GemmArgs&) = {gemm_rows<1>, gemm_rows<2>, gemm_rows<3>,
                                                                  gemm_rows<4>};
  kByRows[a.n - 1](a);
}

}  // namespace

const Kernel kW4a8Avx2 = {.id = &kKernelIds[*kernel_index("w4a8_tok8_p16_avx2")],
                          .exact = true,
                          .tile_rows = kTileRows,
                          .steps = &avx2::kSteps,
                          .quantise = quantise,
                          .gemm = gemm};

}  // namespace moe

MOE_TARGET_END
