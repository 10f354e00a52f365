// Integer dots on AMX-INT8: W4A8 per token and W8A8 per token (definitions: kernels/ref/w4a8.cpp,
// kernels/ref/symmetric.h).
//
// A B tile is 16 weight rows x 64 k: a unit of int8 codes as it lies, or a unit of int4 codes expanded to signed bytes
// in L1 (tile row 8h + j: the low nibbles of V[h][j], 8h + 4 + j: the high ones). A unit of a tok8 tile is the A tile.
//
//   part   16 tokens: the rows of an A tile
//   pass   the weights of up to two units stay in the tile registers while all parts go by
//   chain  the sums of two parts and two panels stay there while all of k goes by
//   panel  16 rows of weights
//
// amx_tiles.inl has both walks and their timelines. The sums of a part:
//
//   weight group      walk    lie in                                   and meet their scales
//   one or two units  passes  one of four buffers in turn              two parts later, beside its products
//   more units        passes  the part's buffer, from pass to pass     two parts behind the last pass: the next group's
//                                                                      sums of the part are still in the registers
//   the whole row     chains  the registers, then a buffer of two      beside the next two parts' products
//
// Passes expand int4 codes once for all tokens of a tile, chains again for every two parts: a whole panel's B tiles
// would not stay in L1.
//
// Few tokens go to the AVX-512 row, whose bits are the same.
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <type_traits>

#include "base/checked.h"
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

constexpr int kTileRows = tile_rows("w4a8_tok8_p16_amxint8");
constexpr int kFewRows = 4;

#include "kernels/x86/vector_avx512.inl"

#include "kernels/x86/amx_tiles.inl"

#include "kernels/x86/dot_amx.inl"

#include "kernels/x86/read_ahead.inl"

inline __m512i load(const std::byte* p) { return _mm512_loadu_si512(p); }
inline __m512 load_f32(const std::byte* p) { return _mm512_loadu_ps(p); }

using Sums = PartSums<std::int32_t>;

// int4 codes meet W4A8's tokens, which have zero points, int8 codes symmetric ones.
template <class Codes>
constexpr bool kW4a8 = std::is_same_v<Codes, Nibbles>;

using TileBuffer = std::array<std::array<std::uint8_t, 1024>, 2>;  // for the B tiles of a step: panels

struct alignas(64) PassScratch {
  std::array<std::array<TileBuffer, kSteps>, 2> weights;  // of a pass, the last one
  std::array<Sums, kMaxParts> sums;                       // of the parts; of short groups: the last few
  std::array<Sums, kMaxParts> kept;                       // results so far: floats
  Sums spare, zeros{};  // spare: never read; zeros: the results before the first group
  std::array<std::array<std::array<float, 16>, 2>, 4> scales;  // of the last groups, of the panels
};
struct alignas(64) ChainScratch {
  std::array<TileBuffer, 4> weights;        // of steps, in turn
  std::array<std::array<Sums, 2>, 2> sums;  // of two parts: the last ones, those before
};

constexpr std::size_t kScratchBytes = std::max(sizeof(PassScratch), sizeof(ChainScratch));

// A call, and where the pieces of its panels and its tile lie: asked for once.
struct Call {
  const GemmArgs& a;
  Parts parts;
  bool channel, short_groups, has_bias;
  enum class Scale { bf16, f16, f32 } scale;
  std::int64_t units, groups, per_group;                // per_group: units
  std::size_t stride, header, group_bytes, sums, bias;  // of a panel
  const std::int32_t* corr;                             // [groups][n]
  const float* recip;
  const std::int32_t* z;

  // flatten: no inline function of a header may be left as a symbol of this instruction set
  [[gnu::flatten]] explicit Call(const GemmArgs& args) : a(args), parts(args.n) {
    const P16& m = *args.matrix;
    channel = m.grouping() == Grouping::channel;
    has_bias = m.has_bias;
    scale = m.scale_bytes() == 4 ? Scale::f32 : m.scales == Scales::f16 ? Scale::f16 : Scale::bf16;
    units = m.units();
    groups = m.group_count();
    per_group = channel ? units : m.group() / kUnitK;
    short_groups = !channel && per_group <= kSteps;
    stride = m.panel_bytes();
    header = m.header_bytes();
    group_bytes = kPanelRows * m.scale_bytes();
    sums = m.sum_offset();
    bias = m.bias_offset();
    corr = reinterpret_cast<const std::int32_t*>(args.tile + args.shape.code_bytes(args.n));
    recip = reinterpret_cast<const float*>(corr + groups * args.n);
    z = reinterpret_cast<const std::int32_t*>(recip + args.n);
  }
  std::int64_t passes() const { return units / per_group * ceil_div(per_group, std::int64_t{kSteps}); }
  const std::byte* rows(int part) const { return a.tile + parts.first(part) * kUnitK; }
  // Scales of group g of the panel at `head`; W4A8's channel-wise ones have their own use.
  [[gnu::always_inline]] __m512 scale_of(const std::byte* head, std::int64_t g) const {
    const std::byte* at = head + usize(g) * group_bytes;
    if (scale == Scale::f32) return load_f32(at);
    if (scale == Scale::f16) return V::load_f16(at);
    const __m256i h = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
  }
};

__m512i corrected(const std::array<std::int32_t, 16>& sums, const std::int32_t* corr) {
  const __m512i sum = _mm512_load_si512(sums.data());
  return corr == nullptr ? sum : _mm512_add_epi32(sum, _mm512_set1_epi32(*corr));
}

// One pair of panels (or the last one alone) with groups against the tile: the work beside the products of a pass.
template <class Codes, int kPanels>
class Grouped {
 public:
  using Scratch = PassScratch;
  static std::int64_t steps(const Call& call) { return call.passes() * call.parts.count; }

  Grouped(const Call& call, const std::byte* panel, Scratch& s, Share& share)
      : c_(call), parts_(call.parts), panel_(panel), s_(s), share_(share) {}

  void run(float* out) {
    _tile_zero(0);
    _tile_zero(1);
    for (std::int64_t u = 0; u < c_.units;) {
      const std::int64_t at = u % c_.per_group, left = c_.per_group - at;
      group_ = u / c_.per_group;
      complete_ = left <= kSteps;
      if (left >= kSteps)
        multiply<kSteps>(u, at != 0);
      else
        multiply<1>(u, at != 0);
      u += std::min<std::int64_t>(left, kSteps);
    }
    flush();
    write(out);
  }

  // For pass(), see there. Sums of a group that is complete after one pass live for two parts more; those of a longer
  // one until its end, and with a single part beside the next group's.
  Sums& in_registers() { return *newest_.sums; }
  Sums& home(int part) {
    if (c_.short_groups) return s_.sums[passed_ % 4];
    return at(s_.sums, parts_.count == 1 ? group_ % 2 : part);
  }
  [[gnu::always_inline]] void beside(int quarter) {
    if (waiting_.scales == nullptr || quarter / 2 >= kPanels) return;
    const auto p = usize(quarter / 2);
    const int half = (parts_.rows + 1) / 2, begin = quarter % 2 * half, end = quarter % 2 == 0 ? half : parts_.rows;
    scale_rows((*waiting_.sums)[p], (*waiting_.results)[p], (*waiting_.before)[p], p, begin, end);
  }
  void passed(int part, Sums& sums) {
    const auto at = usize(part);
    waiting_ = newest_;
    newest_ = {&sums, &s_.kept[at], group_ == 0 ? &s_.zeros : &s_.kept[at], complete_ ? &scales() : nullptr,
               c_.corr + group_ * c_.a.n + parts_.first(part)};
    ++passed_;
    share_.advance();
  }

 private:
  using Scales = std::array<std::array<float, 16>, 2>;
  // Sums of a part, and when they are those of a complete group, what becomes of them.
  struct InFlight {
    Sums *sums, *results;
    const Sums* before;
    const Scales* scales;
    const std::int32_t* corr;
  };

  const std::byte* panel(std::size_t p) const { return panel_ + p * c_.stride; }
  Scales& scales() { return at(s_.scales, group_ % 4); }

  // noinline: together they are too many values for the registers
  template <int kPassSteps>
  [[gnu::noinline]] void multiply(std::int64_t first, bool more) {
    Tiles tiles;
    const __m512i eight = _mm512_set1_epi8(8);
    expanded_ ^= 1;
    for (std::size_t p = 0; p < kPanels; ++p) {
      const std::byte* unit = panel(p) + c_.header + usize(first) * Codes::kUnitBytes;
      for (std::size_t step = 0; step < kPassSteps; ++step)
        tiles[step][p] = Codes::tile(unit + step * Codes::kUnitBytes, s_.weights[expanded_][step][p].data(), eight);
      if (complete_) _mm512_storeu_ps(scales()[p].data(), c_.scale_of(panel(p), group_));
    }
    pass<Codes, kPanels, kPassSteps>(tiles, c_.a.tile + first * kUnitK * c_.a.n, parts_, more, *this);
  }

  // What is still in the registers and what waits for its scales.
  void flush() {
    store_sums<kPanels>(*newest_.sums);
    for (int i = 0; i < 2; ++i, waiting_ = newest_)
      for (int quarter = 0; quarter < 4; ++quarter) beside(quarter);
  }

  // results = fma(sums of a group, scale, results before)
  using Rows = std::array<std::array<std::int32_t, 16>, kPartRows>;
  [[gnu::always_inline]] void scale_rows(const Rows& sums, Rows& results, const Rows& before, std::size_t p, int begin,
                                         int end) {
    const __m512 scale = _mm512_loadu_ps((*waiting_.scales)[p].data());
    const std::int32_t* corr = waiting_.corr;
#pragma GCC unroll 2
    for (int i = begin; i < end; ++i) {
      const auto row = usize(i);
      const __m512 sum = _mm512_cvtepi32_ps(corrected(sums[row], Codes::kBiased ? corr + i : nullptr));
      _mm512_store_ps(results[row].data(), _mm512_fmadd_ps(sum, scale, _mm512_load_ps(before[row].data())));
    }
  }

  // The end of the sums: what W4A8 adds for its zero points, the scales of the tokens, the bias.
  void write(float* out) const {
    for (std::size_t p = 0; p < kPanels; ++p, out += kPanelRows) {
      const std::byte* head = panel(p);
      const __m512 bias = c_.has_bias ? load_f32(head + c_.bias) : _mm512_setzero_ps();
      const __m512 row_sums = kW4a8<Codes> ? load_f32(head + c_.sums) : _mm512_setzero_ps();
      for (int part = 0; part < parts_.count; ++part)
        for (int i = 0, token = parts_.first(part); i < parts_.rows; ++i, ++token) {
          const auto& row = at(at(s_.kept, part)[p], i);
          __m512 sum = _mm512_load_ps(row.data());
          if constexpr (kW4a8<Codes>)
            sum = _mm512_fmadd_ps(row_sums, _mm512_set1_ps(static_cast<float>(c_.z[token])), sum);
          _mm512_storeu_ps(out + token * c_.a.ld,
                           _mm512_add_ps(_mm512_mul_ps(sum, _mm512_set1_ps(c_.recip[token])), bias));
        }
    }
  }

  const Call& c_;
  const Parts parts_;
  const std::byte* panel_;
  Scratch& s_;
  Share& share_;
  std::int64_t group_ = 0;    // of the pass
  bool complete_ = false;     // the group, after the pass
  std::size_t expanded_ = 0;  // which of the two buffers for weights the pass uses
  std::size_t passed_ = 0;    // parts, of all passes
  InFlight newest_{&s_.spare, nullptr, nullptr, nullptr, nullptr}, waiting_ = newest_;
};

// The results of the sums of one or two parts, made a few rows at a time: what W4A8 adds for its zero points, the
// scales of rows and tokens, the bias. What it needs is at hand in registers.
template <class Codes, int kPanels>
class Results {
 public:
  Results(const Call& c, const std::byte* panel, float* out) : c_(c), out_(out) {
    for (std::size_t p = 0; p < kPanels; ++p, panel += c.stride) {
      scale_[p] = kW4a8<Codes> ? load_f32(panel) : c.scale_of(panel, 0);
      row_sums_[p] = kW4a8<Codes> ? load(panel + c.sums) : _mm512_setzero_si512();
      bias_[p] = c.has_bias ? load_f32(panel + c.bias) : _mm512_setzero_ps();
    }
  }

  // Sums to come from now on, [part][panel]. The next `steps` steps finish them.
  void begin(const std::array<Sums, 2>& sums, int part, int parts, std::int64_t steps) {
    sums_ = &sums[0];
    token_ = c_.parts.first(part);
    row_ = 0;
    next_part_ = part + 1;
    left_ = parts * c_.parts.rows;
    per_step_ = static_cast<int>(ceil_div(std::int64_t{left_}, steps));
  }
  [[gnu::always_inline]] void step() {
    for (int i = std::min(per_step_, left_); i > 0; --i) finish_row();
  }
  [[gnu::always_inline]] void end() {
    while (left_ > 0) finish_row();
  }

 private:
  [[gnu::always_inline]] void finish_row() {
    const __m512 s_a = _mm512_set1_ps(c_.recip[token_]);
    for (std::size_t p = 0; p < kPanels; ++p) {
      __m512i sum = _mm512_load_si512(at((*sums_)[p], row_).data());
      if constexpr (Codes::kBiased) sum = _mm512_add_epi32(sum, _mm512_set1_epi32(c_.corr[token_]));
      __m512 result;
      if constexpr (kW4a8<Codes>) {
        sum = _mm512_add_epi32(sum, _mm512_mullo_epi32(row_sums_[p], _mm512_set1_epi32(c_.z[token_])));
        result =
            _mm512_mul_ps(_mm512_mul_ps(_mm512_set1_ps(16.0f), _mm512_cvtepi32_ps(sum)), _mm512_mul_ps(scale_[p], s_a));
      } else {
        // fma: a sum of 0 times a negative scale is no -0
        result = _mm512_mul_ps(_mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), scale_[p], _mm512_setzero_ps()), s_a);
      }
      _mm512_storeu_ps(out_ + token_ * c_.a.ld + 16 * p, _mm512_add_ps(result, bias_[p]));
    }
    --left_;
    ++token_;
    if (++row_ < c_.parts.rows) return;
    row_ = 0;
    ++sums_;
    token_ = c_.parts.first(next_part_);
  }

  const Call& c_;
  float* out_;
  __m512 scale_[kPanels], bias_[kPanels];
  __m512i row_sums_[kPanels];
  const Sums* sums_ = nullptr;  // of the part
  int token_ = 0, row_ = 0, next_part_ = 0, left_ = 0, per_step_ = 0;
};

// One pair of panels (or the last one alone) with a scale per row against the tile: the work beside a chain.
template <class Codes, int kPanels>
class Whole {
 public:
  using Scratch = ChainScratch;
  static std::int64_t steps(const Call& call) { return call.units * ceil_div(call.parts.count, 2); }

  Whole(const Call& call, const std::byte* panel, Scratch& s, Share& share)
      : c_(call), panel_(panel), s_(s), share_(share) {}

  void run(float* out) {
    Results<Codes, kPanels> results(c_, panel_, out);
    for (int part = 0; part < c_.parts.count; part += 2)
      if (part + 1 < c_.parts.count)
        multiply<2>(part, results);
      else
        multiply<1>(part, results);
    results.end();
  }

 private:
  static constexpr int kAhead = 2;  // steps that the expansion is ahead

  const std::byte* unit(std::int64_t step, std::size_t p) const {
    return panel_ + p * c_.stride + c_.header + usize(step) * Codes::kUnitBytes;
  }
  std::uint8_t* expanded(std::int64_t step, std::size_t p) const { return at(s_.weights, step % 4)[p].data(); }
  [[gnu::always_inline]] void expand(std::int64_t step, int quarter) const {
    const auto p = usize(quarter / 2);
    if constexpr (Codes::kExpands) Codes::expand(unit(step, p), expanded(step, p), quarter % 2, _mm512_set1_epi8(8));
  }

  // For chain(), see there.
  struct Beside {
    const Whole& of;
    Results<Codes, kPanels>& results;

    [[gnu::always_inline]] const void* tile(std::int64_t step, std::size_t p) const {
      if constexpr (Codes::kExpands) return of.expanded(step, p);
      return of.unit(step, p);
    }
    [[gnu::always_inline]] void operator()(std::int64_t step, int quarter) const {
      if (quarter == 0) of.share_.advance();
      if (quarter == 1) results.step();
      if constexpr (Codes::kExpands) {
        if (quarter / 2 < kPanels && step + kAhead < of.c_.units) of.expand(step + kAhead, quarter);
      } else if (quarter >= 2 && quarter - 2 < kPanels) {
        Stream::lines<_MM_HINT_T0>(of.unit(step + 1, usize(quarter - 2)), Codes::kUnitBytes);
      }
    }
  };

  template <int kParts>
  void multiply(int part, Results<Codes, kPanels>& results) {
    for (std::int64_t step = 0; step < std::min<std::int64_t>(kAhead, c_.units); ++step)
      for (int quarter = 0; quarter < 2 * kPanels; ++quarter) expand(step, quarter);
    Results<Codes, kPanels> before = results;  // a copy, whose members may lie in registers
    chain<Codes, kParts, kPanels>({c_.rows(part), c_.rows(part + kParts - 1)}, usize(c_.a.n * kUnitK), c_.units,
                                  Beside{*this, before});
    before.end();
    std::array<Sums, 2>& sums = at(s_.sums, part / 2 % 2);
    store_chain<kParts, kPanels>([&](std::size_t i, std::size_t p) { return sums[i][p].data(); }, 64);
    results.begin(sums, part, kParts, c_.units);
  }

  const Call& c_;
  const std::byte* panel_;
  Scratch& s_;
  Share& share_;
};

template <template <class, int> class Work, class Codes>
void gemm_tiles(const Call& call) {
  auto& s = *new (call.a.scratch) typename Work<Codes, 2>::Scratch;
  Share share(call.a, call.stride, (call.a.panel_count + 1) / 2 * Work<Codes, 2>::steps(call));
  in_pairs(call.a, call.stride, [&]<int kPanels>(const std::byte* panel, std::int64_t column) {
    Work<Codes, kPanels>(call, panel, s, share).run(call.a.out + column);
  });
}

template <class Codes, const Kernel& kFew>
void gemm(const GemmArgs& a) {
  if (a.n <= kFewRows) return kFew.gemm(a);
  const Call call(a);
  const TileConfig config(call.parts.rows, call.channel ? kChainWeights : kPassWeights);
  config.load();
  (call.channel ? gemm_tiles<Whole, Codes> : gemm_tiles<Grouped, Codes>)(call);
  _tile_release();
}

}  // namespace

constinit const Kernel kernel_rows::w4a8_tok8_p16_amxint8 =
    amx_row("w4a8_tok8_p16_amxint8", avx512::quantize_tok8, gemm<Nibbles, kernel_rows::w4a8_tok8_p16_avx512vnni>,
            kScratchBytes);
constinit const Kernel kernel_rows::w8a8_tok8_p16_amxint8 =
    amx_row("w8a8_tok8_p16_amxint8", avx512::quantize_symmetric, gemm<Bytes, kernel_rows::w8a8_tok8_p16_avx512vnni>,
            kScratchBytes);

}  // namespace moe::kernels

MOE_TARGET_END
