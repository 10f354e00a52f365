// FP8 and MXFP8 weights on p16 with rows of bf16 or of e4m3, AVX512-BF16. Its bits are its own, but for every number of
// rows the same ones: per block of 32 columns one chain b of vdpbf16ps, then a = fma(b, scale, a). Rows of e4m3 that
// have scales: scale is the product of both.
//
// A few rows leave the time to the memory: codes become bf16 in passing. For more of them some blocks of two
// panels are decoded once, into scratch, where all rows of the tile meet them, a dozen at a time.
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <new>
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
MOE_TARGET_BEGIN("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512bf16")

namespace moe::kernels {
namespace {

#include "kernels/x86/vector_avx512.inl"

#include "kernels/body/places.inl"

#include "kernels/body/quantize_symmetric.inl"

#include "kernels/body/quantize_floats.inl"

#include "kernels/x86/read_ahead.inl"

#include "kernels/body/float8_bytes.inl"

constexpr std::int64_t kBlockK = 32;
constexpr std::size_t kBlockBytes = kBlockK * kPanelRows;
constexpr int kColumnPairs = 16;  // of a block

[[gnu::always_inline]] inline F dot(F x, F w, F sum) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(w));
}

constexpr int kFewRows = 4;
constexpr int kPanels = 2;          // at a time
constexpr int kMostTogether = 12;   // rows whose sums fit into the registers
constexpr std::int64_t kChunk = 8;  // blocks, with their rows in L1

struct alignas(64) Scratch {
  F weights[kChunk][kColumnPairs][kPanels];
  F scales[kChunk][kPanels];
  const float* row_scales[kChunk];
};

// The scales that the rows of a tile have in consecutive blocks.
class RowScales {
 public:
  explicit RowScales(const GemmArgs& a)
      : at_(row_scales(a.shape, {const_cast<std::byte*>(a.tile), a.n, 0})),
        n_(a.n),
        blocks_(a.shape.floats.is_grouped() ? a.shape.floats.columns / kBlockK : INT64_MAX),
        left_(blocks_) {}
  // Of the block that begins, by row; called once for each.
  const float* next() {
    if (left_ == 0) at_ += n_, left_ = blocks_;
    --left_;
    return at_;
  }

 private:
  const float* at_;
  std::ptrdiff_t n_;
  std::int64_t blocks_, left_;
};

// Some blocks of two panels, decoded. The last panel may be alone: it is there twice and counts once.
struct Chunk {
  const Scratch& s;
  std::int64_t blocks;
  int panels;
  bool first;     // of the panels: results begin there
  const F* bias;  // nullptr: not the last one
};

// `out` of N rows that begin at x, the rows of a block `stride` values behind those of the one before. `row`: the
// first.
template <bool kRowScales, int N>
void add_chunk(const Chunk& c, const float* x, std::ptrdiff_t stride, float* out, std::ptrdiff_t ld, int row,
               Share& share) {
  const auto each = [&](auto result) __attribute__((always_inline)) {
#pragma GCC unroll 2
    for (int p = 0; p < kPanels; ++p) {
      if (p == c.panels) return;
#pragma GCC unroll 16
      for (int n = 0; n < N; ++n) result(p, n, out + n * ld + p * kPanelRows);
    }
  };
  for (std::int64_t b = 0; b < c.blocks; ++b, x += stride) {
    share.advance();
    F sums[kPanels][N];
#pragma GCC unroll 16
    for (int n = 0; n < N; ++n) sums[0][n] = sums[1][n] = V::set(0.0f);
    const auto& weights = c.s.weights[b];
#pragma GCC unroll 2
    for (std::size_t pair = 0; pair < kColumnPairs; ++pair) {
      const F w0 = weights[pair][0], w1 = weights[pair][1];
#pragma GCC unroll 16
      for (std::size_t n = 0; n < N; ++n) {
        const F value = V::set(x[n * 16 + pair]);
        sums[0][n] = dot(value, w0, sums[0][n]);
        sums[1][n] = dot(value, w1, sums[1][n]);
      }
    }
    const bool begins = c.first && b == 0;
    each([&](int p, int n, float* to) __attribute__((always_inline)) {
      F scale = c.s.scales[b][p];
      if constexpr (kRowScales) scale = V::mul(scale, V::set(c.s.row_scales[b][row + n]));
      V::store(to, V::fma(sums[p][n], scale, begins ? V::set(0.0f) : V::load(to)));
    });
  }
  if (c.bias != nullptr) each([&](int p, int, float* to) { V::store(to, V::add(V::load(to), c.bias[p])); });
}

using AddChunk = void (*)(const Chunk&, const float*, std::ptrdiff_t, float*, std::ptrdiff_t, int, Share&);
template <bool kRowScales, int... Rows>
constexpr std::array<AddChunk, kMostTogether> by_count(std::integer_sequence<int, Rows...>) {
  return {add_chunk<kRowScales, Rows + 1>...};
}
template <bool kRowScales>
constexpr std::array kAddChunk = by_count<kRowScales>(std::make_integer_sequence<int, kMostTogether>());

// The bf16 of 64 codes: of columns 0 and 1, and of columns 2 and 3.
struct Pairs {
  F first, second;

  [[gnu::always_inline]] explicit Pairs(I codes) : Pairs(Float8Bytes(codes)) {}

 private:
  [[gnu::always_inline]] explicit Pairs(const Float8Bytes& bytes)
      : first(V::from_bits(bytes.pairs<0>())), second(V::from_bits(bytes.pairs<1>())) {}
};

void decode(const std::byte* codes, std::int64_t blocks, std::size_t p, Scratch& s) {
  for (std::int64_t b = 0; b < blocks; ++b)
#pragma GCC unroll 8
    for (std::size_t i = 0; i < kColumnPairs; i += 2, codes += 64) {
      const Pairs w(V::load_i(codes));
      s.weights[b][i][p] = w.first, s.weights[b][i + 1][p] = w.second;
    }
}

template <bool kRowScales>
void gemm_decoded(const GemmArgs& a) {
  Places at(*a.matrix);
  auto& s = *new (a.scratch) Scratch;
  const std::int64_t blocks = a.shape.blocks();
  const int parts = (a.n + kMostTogether - 1) / kMostTogether;
  Share share(a, at.stride, ceil_div(a.panel_count, std::int64_t{kPanels}) * blocks * parts);
  for (std::int64_t first = 0; first < a.panel_count; first += kPanels) {
    const std::byte* panel = a.panels + usize(first) * at.stride;
    const bool whole = first + kPanels <= a.panel_count;
    if (!whole) at.stride = 0;  // the last panel is alone and taken for both
    F bias[kPanels];
    for (std::size_t p = 0; p < kPanels; ++p)
      bias[p] = at.has_bias ? V::load(reinterpret_cast<const float*>(panel + p * at.stride + at.bias)) : V::set(0.0f);
    GroupWalk groups(*a.matrix, kBlockK);
    RowScales own(a);
    const auto* x = reinterpret_cast<const float*>(a.tile);
    for (std::int64_t block = 0; block < blocks; block += kChunk, x += kChunk * a.n * 16) {
      const std::int64_t count = std::min(kChunk, blocks - block);
      for (std::size_t p = 0; p < kPanels; ++p)
        decode(panel + p * at.stride + at.header + usize(block) * kBlockBytes, count, p, s);
      for (std::int64_t b = 0; b < count; ++b) {
        const std::size_t group = groups.next();
        for (int p = 0; p < kPanels; ++p) s.scales[b][p] = at.scale(panel, p, group);
        if constexpr (kRowScales) s.row_scales[b] = own.next();
      }
      const Chunk chunk{s, count, whole ? kPanels : 1, block == 0, block + count == blocks ? bias : nullptr};
      for (int part = 0, row = 0; part < parts; ++part) {
        const int rows = (a.n - row) / (parts - part);
        kAddChunk<kRowScales>[usize(rows - 1)](chunk, x + row * 16, a.n * std::ptrdiff_t{16},
                                               a.out + row * a.ld + first * kPanelRows, a.ld, row, share);
        row += rows;
      }
    }
  }
}

// The sums of B blocks of a panel with N rows. Each line of weights asks for the one that comes in its place.
template <int B, int N>
[[gnu::always_inline]] inline void multiply(const Stream& stream, const std::byte* codes, const float* x,
                                            F (&sums)[B][N]) {
#pragma GCC unroll 4
  for (int b = 0; b < B; ++b)
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) sums[b][n] = V::set(0.0f);
#pragma GCC unroll 4
  for (int i = 0; i < kColumnPairs; i += 2, codes += 64) {
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b) {
      stream.fetch(codes + usize(b) * kBlockBytes, 64);
      const Pairs w(V::load_i(codes + usize(b) * kBlockBytes));
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) {
        const float* row = x + (b * N + n) * kColumnPairs + i;
        sums[b][n] = dot(V::set(row[1]), w.second, dot(V::set(row[0]), w.first, sums[b][n]));
      }
    }
  }
}

// results = fma(sums, scale, results) for B blocks.
template <bool kRowScales, int B, int N>
[[gnu::always_inline]] inline void add_blocks(const Stream& stream, const Places& at, const std::byte* panel,
                                              const std::byte* codes, const float* x, GroupWalk& groups, RowScales& own,
                                              F (&results)[N]) {
  F sums[B][N];
  multiply<B, N>(stream, codes, x, sums);
#pragma GCC unroll 4
  for (int b = 0; b < B; ++b) {
    const F scale = at.scale(panel, 0, groups.next());
    [[maybe_unused]] const float* const rows = kRowScales ? own.next() : nullptr;
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n)
      if constexpr (kRowScales)
        results[n] = V::fma(sums[b][n], V::mul(scale, V::set(rows[n])), results[n]);
      else
        results[n] = V::fma(sums[b][n], scale, results[n]);
  }
}

template <bool kRowScales, int N>
void gemm_few(const GemmArgs& a) {
  const Places at(*a.matrix);
  const Stream stream(a, at.stride, a.next);
  const std::byte* panel = a.panels;
  for (std::int64_t p = 0; p < a.panel_count; ++p, panel += at.stride) {
    stream.header(panel, at.header);
    const std::byte* codes = panel + at.header;
    const auto* x = reinterpret_cast<const float*>(a.tile);
    GroupWalk groups(*a.matrix, kBlockK);
    RowScales own(a);
    F results[N];
    for (F& result : results) result = V::set(0.0f);
    constexpr int kTogether = N <= 2 ? 4 : 2;  // blocks, whose chains hide the latency of vdpbf16ps
    std::int64_t left = a.shape.blocks();
    for (; left >= kTogether; left -= kTogether, codes += kTogether * kBlockBytes, x += kTogether * N * kColumnPairs)
      add_blocks<kRowScales, kTogether, N>(stream, at, panel, codes, x, groups, own, results);
    for (; left != 0; --left, codes += kBlockBytes, x += N * kColumnPairs)
      add_blocks<kRowScales, 1, N>(stream, at, panel, codes, x, groups, own, results);
    const F bias = at.has_bias ? V::load(reinterpret_cast<const float*>(panel + at.bias)) : V::set(0.0f);
    for (int n = 0; n < N; ++n) V::store(a.out + n * a.ld + p * kPanelRows, V::add(results[n], bias));
  }
}

template <bool kRowScales>
constexpr void (*kFew[kFewRows])(const GemmArgs&) = {gemm_few<kRowScales, 1>, gemm_few<kRowScales, 2>,
                                                     gemm_few<kRowScales, 3>, gemm_few<kRowScales, 4>};

template <bool kRowScales>
void gemm_as(const GemmArgs& a) {
  a.n <= kFewRows ? kFew<kRowScales>[a.n - 1](a) : gemm_decoded<kRowScales>(a);
}
void gemm(const GemmArgs& a) { (a.shape.has_row_scales() ? gemm_as<true> : gemm_as<false>)(a); }

constexpr Kernel row(std::string_view name, void (*quantize)(const QuantizeArgs&)) {
  Kernel k = kernel_row(name, avx512::kSteps, quantize, gemm);
  k.scratch_bytes = sizeof(Scratch);
  k.takes_halves = true;
  return k;
}

}  // namespace

void avx512::quantize_float8_halves(const QuantizeArgs& args) { float_acts::quantize_float8_halves(args); }

constinit const Kernel kernel_rows::fp8_bf16_p16_avx512bf16 = row("fp8_bf16_p16_avx512bf16", avx512::quantize_bf16);
constinit const Kernel kernel_rows::mxfp8_bf16_p16_avx512bf16 = row("mxfp8_bf16_p16_avx512bf16", avx512::quantize_bf16);
constinit const Kernel kernel_rows::fp8_e4m3_p16_avx512bf16 =
    row("fp8_e4m3_p16_avx512bf16", float_acts::quantize_float8_halves);
constinit const Kernel kernel_rows::mxfp8_e4m3_p16_avx512bf16 =
    row("mxfp8_e4m3_p16_avx512bf16", float_acts::quantize_float8_halves);

}  // namespace moe::kernels

MOE_TARGET_END
