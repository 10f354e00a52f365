// Integer weights with activations of 16 bits on AMX-INT8: W4A16 and W8A16 (definition: kernels/ref/symmetric.h).
//
// A unit of a blk16 tile is an A tile as it lies: two rows per token, of high and of low digits. A block of columns
// with one scale of activations is one or two units, so one pass of the walk (amx_tiles.inl) is one block and its sums
// are complete: beside the products of later parts the two rows of a token become one sum, 255 * high + low, which
// meets its scales. Zero points leave int4 codes before the products and the sums of int8 ones behind them: both are
// exact. Few tokens go to the AVX-512 row, whose bits are the same.
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>

#include "base/index.h"
#include "kernels/target.h"
#include "kernels/x86/amx.h"
#include "kernels/x86/steps.h"

#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 flags its own _mm512_undefined_* (GCC bug 105593)
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
MOE_TARGET_BEGIN("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni,amx-tile,amx-int8")

namespace moe::kernels {
namespace {

constexpr int kTokens = tile_rows("w4a16_blk16_p16_amxint8"), kFewTokens = 4;
constexpr int kTileRows = 2 * kTokens;

#include "kernels/x86/vector_avx512.inl"

#include "kernels/body/symmetric_tile.inl"

#include "kernels/x86/amx_tiles.inl"

#include "kernels/x86/dot_amx.inl"

#include "kernels/x86/read_ahead.inl"

constexpr int kPartTokens = kPartRows / 2;

using Sums = PartSums<std::int32_t>;
using Results = std::array<std::array<std::array<float, 16>, kPartTokens>, 2>;

// Scales and zero points of a block's weights, by panel.
struct Factors {
  __m512 scale[2];
  __m512i zero[2];
};

struct alignas(64) Scratch {
  std::array<std::array<std::array<std::array<std::uint8_t, 1024>, 2>, kSteps>, 2> weights;  // of passes, in turn
  std::array<Sums, 4> sums;                                                                  // of the last parts
  Sums spare;                                                                                // before the first part
  std::array<Results, kMaxParts> results;
  Results zeros{};                 // the results before the first block
  std::array<Factors, 4> factors;  // of the last blocks
};

// One pair of panels (or the last one alone) against the tile: the work beside the products of a pass.
template <class Codes, class Facts, int kPanels>
class Pair {
 public:
  Pair(const Call<Facts>& call, const Parts& parts, const std::byte* panel, Scratch& s, Share& share)
      : c_(call), parts_(parts), tokens_(usize(parts.rows / 2)), panel_(panel), s_(s), share_(share) {}

  void run(std::int64_t units, float* out) {
    const std::int64_t whole = c_.together / 2;  // units of a block
    _tile_zero(0);
    _tile_zero(1);
    for (std::int64_t unit = 0; unit < units; unit += whole, ++block_)
      if (std::min(units - unit, whole) == kSteps)
        multiply<kSteps>(unit);
      else
        multiply<1>(unit);
    flush();
    for (std::size_t p = 0; p < kPanels; ++p) write(p, out + p * kPanelRows);
  }

  // For pass(), see there.
  Sums& in_registers() { return *newest_.sums; }
  Sums& home(int) { return s_.sums[passed_ % 4]; }
  [[gnu::always_inline]] void beside(std::size_t quarter) {
    if (waiting_.factors != nullptr) scale_tokens(quarter * tokens_ / 4, (quarter + 1) * tokens_ / 4);
  }
  void passed(int part, Sums& sums) {
    Results& results = at(s_.results, part);
    const std::int64_t first = block_ * c_.n + parts_.first(part) / 2;  // of the block's words
    waiting_ = newest_;
    newest_ = {.sums = &sums,
               .results = &results,
               .before = block_ == 0 ? &s_.zeros : &results,
               .factors = &factors(),
               .scale = c_.words.scale + first,
               .corr = c_.words.corr + first};
    ++passed_;
    share_.advance();
  }

 private:
  // Sums of a part and what becomes of them.
  struct InFlight {
    Sums* sums;
    Results* results;        // where they go
    const Results* before;   // and what they are added to
    const Factors* factors;  // nullptr: nothing, the registers held no part
    const float* scale;      // from the part's first token on
    const std::int32_t* corr;
  };

  const std::byte* panel(std::size_t p) const { return panel_ + p * c_.stride; }
  Factors& factors() { return at(s_.factors, block_ % 4); }

  // noinline: together they are too many values for the registers
  template <int kPassSteps>
  [[gnu::noinline]] void multiply(std::int64_t first) {
    Tiles tiles;
    ScaleWalk scales = c_.scales;
    const auto group = usize(2 * first / c_.per_group);
    scales.at += group * scales.step;
    __m512i zero = _mm512_set1_epi8(8);
    expanded_ ^= 1;
    for (std::size_t p = 0; p < kPanels; ++p) {
      factors().scale[p] = load_scales(scales, panel(p));
      if constexpr (Facts::kZeros) {
        const __m512i zeros = V::load_u8(panel(p) + c_.zeros + group * kPanelRows);
        factors().zero[p] = zeros;
        zero = _mm512_mullo_epi32(zeros, _mm512_set1_epi32(0x01010101));  // of the four bytes of each row
      }
      const std::byte* unit = panel(p) + c_.header + usize(first) * Codes::kUnitBytes;
      for (std::size_t step = 0; step < kPassSteps; ++step)
        tiles[step][p] = Codes::tile(unit + step * Codes::kUnitBytes, s_.weights[expanded_][step][p].data(), zero);
    }
    pass<Codes, kPanels, kPassSteps>(tiles, c_.a.tile + first * kUnitK * parts_.n, parts_, false, *this);
  }

  // What is still in the registers and what waits for its scales.
  void flush() {
    store_sums<kPanels>(*newest_.sums);
    for (int i = 0; i < 2; ++i, waiting_ = newest_)
      for (std::size_t quarter = 0; quarter < 4; ++quarter) beside(quarter);
  }

  // results = fma(sum of a block, its scales, results before)
  [[gnu::always_inline]] void scale_tokens(std::size_t begin, std::size_t end) {
    const InFlight part = waiting_;  // stores could change a member
    const Factors factors = *part.factors;
#pragma GCC unroll 2
    for (std::size_t i = begin; i < end; ++i) {
      const __m512 token_scale = _mm512_set1_ps(part.scale[i]);
      const __m512i corr = _mm512_set1_epi32(part.corr[i]);
      for (std::size_t p = 0; p < kPanels; ++p) {
        const auto& rows = (*part.sums)[p];
        const __m512i high = _mm512_load_si512(rows[2 * i].data()), low = _mm512_load_si512(rows[2 * i + 1].data());
        __m512i sum = _mm512_add_epi32(_mm512_sub_epi32(_mm512_slli_epi32(high, 8), high), low);
        if constexpr (Codes::kBiased)
          sum = _mm512_add_epi32(sum, Facts::kZeros ? _mm512_mullo_epi32(corr, factors.zero[p]) : corr);
        const __m512 scale = _mm512_mul_ps(factors.scale[p], token_scale);
        const __m512 before = _mm512_load_ps((*part.before)[p][i].data());
        _mm512_store_ps((*part.results)[p][i].data(), _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), scale, before));
      }
    }
  }

  void write(std::size_t p, float* out) const {
    const __m512 bias = c_.has_bias ? _mm512_loadu_ps(panel(p) + c_.bias) : _mm512_setzero_ps();
    for (int part = 0; part < parts_.count; ++part) {
      const Results& results = at(s_.results, part);
      float* at = out + parts_.first(part) / 2 * c_.a.ld;
      for (std::size_t i = 0; i < tokens_; ++i, at += c_.a.ld)
        _mm512_storeu_ps(at, _mm512_add_ps(_mm512_load_ps(results[p][i].data()), bias));
    }
  }

  const Call<Facts>& c_;
  const Parts parts_;
  const std::size_t tokens_;  // of a part
  const std::byte* panel_;
  Scratch& s_;
  Share& share_;
  std::int64_t block_ = 0;    // of the pass
  std::size_t expanded_ = 0;  // which of the two buffers for weights the pass uses
  std::size_t passed_ = 0;    // parts, of all passes
  InFlight newest_{&s_.spare, nullptr, nullptr, nullptr, nullptr, nullptr}, waiting_ = newest_;
};

template <class Codes, class Facts>
void gemm_tiles(const GemmArgs& a) {
  const Call<Facts> call(a);
  const Parts parts(a.n, 2);
  const TileConfig config(parts.rows, kPassWeights);
  const std::int64_t units = (a.shape.k + kUnitK - 1) / kUnitK,
                     blocks = (units * 2 + call.together - 1) / call.together;
  config.load();
  auto& s = *new (a.scratch) Scratch;
  Share share(a, call.stride, (a.panel_count + 1) / 2 * blocks * parts.count);
  in_pairs(a, call.stride, [&]<int kPanels>(const std::byte* panel, std::int64_t column) {
    Pair<Codes, Facts, kPanels>(call, parts, panel, s, share).run(units, a.out + column);
  });
  _tile_release();
}

template <class Codes, const Kernel& kFew>
void gemm(const GemmArgs& a) {
  if (a.n <= kFewTokens)
    kFew.gemm(a);
  else
    (a.matrix->has_zeros ? gemm_tiles<Codes, Per16Zeros> : gemm_tiles<Codes, Per16>)(a);
}

}  // namespace

constinit const Kernel kernel_rows::w4a16_blk16_p16_amxint8 =
    amx_row("w4a16_blk16_p16_amxint8", avx512::quantize_digits, gemm<Nibbles, kernel_rows::w4a16_blk16_p16_avx512vnni>,
            sizeof(Scratch));
constinit const Kernel kernel_rows::w8a16_blk16_p16_amxint8 =
    amx_row("w8a16_blk16_p16_amxint8", avx512::quantize_digits, gemm<Bytes, kernel_rows::w8a16_blk16_p16_avx512vnni>,
            sizeof(Scratch));

}  // namespace moe::kernels

MOE_TARGET_END
