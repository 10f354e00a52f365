// Integer dots on AMX-INT8: W4A8 per token and W8A8 per token (definitions: kernels/ref/w4a8.cpp,
// kernels/ref/symmetric.h).
//
// A B tile is 16 weight rows x 64 k: a unit of int8 codes as it lies, or a unit of int4 codes expanded to signed bytes
// in L1 (tile row 8h + j: the low nibbles of V[h][j], 8h + 4 + j: the high ones). A unit of a tok8 tile is the A tile.
// Two panels meet the whole tile, up to 128 tokens, 32 of them at a time (2 x 2 tiles of sums), a run of units after
// another: a weight group, or 512 k of a longer one. So the expansion is paid once for all tokens, and what a run needs
// stays in L1. Sums leave the tile registers once per run, and meet their scales while the dots of the next run are
// under way. Few tokens go to the AVX-512 row, whose bits are the same.
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/checked.h"
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

constexpr int kTileRows = 128;
constexpr int kFewRows = 4;
constexpr std::int64_t kRunUnits = 8;

#include "kernels/x86/vector_avx512.inl"

#include "kernels/x86/amx_tiles.inl"

#include "kernels/x86/read_ahead.inl"

inline __m512i load(const std::byte* p) { return _mm512_loadu_si512(p); }
inline __m512 load_f32(const std::byte* p) { return _mm512_loadu_ps(p); }

// 16 x 16 sums of one part of tokens with two panels: int32, or float between groups.
using Block = std::array<std::array<std::array<std::int32_t, 16>, kSubRows>, 2>;

struct alignas(64) Scratch {
  std::array<std::array<std::array<std::uint8_t, 1024>, kRunUnits>, 2> weights;
  std::array<Block, 4> sums;      // of the parts at work, and of those before
  std::array<Block, kSubs> kept;  // of all parts: results so far, channel-wise: the sums so far
};

// How units become B tiles, and which product they want: signed bytes, or codes value + 128 (kBiased: sums want corr).
struct Nibbles {
  static constexpr bool kBiased = false;
  template <int Sum>
  [[gnu::always_inline]] static inline void dot() {  // the intrinsics want literal numbers
    if constexpr (Sum == 0) _tile_dpbssd(0, 4, 6);
    if constexpr (Sum == 1) _tile_dpbssd(1, 4, 7);
    if constexpr (Sum == 2) _tile_dpbssd(2, 5, 6);
    if constexpr (Sum == 3) _tile_dpbssd(3, 5, 7);
  }
  // Where the B tile of a unit lies.
  [[gnu::always_inline]] static inline const void* tile(const std::byte* unit, std::uint8_t* room) {
    const __m512i mask = _mm512_set1_epi8(15), eight = _mm512_set1_epi8(8);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      const int row = i / 4 * 8 + i % 4;
      const __m512i v = load(unit + 64 * i);
      const __m512i low = _mm512_and_si512(v, mask), high = _mm512_and_si512(_mm512_srli_epi16(v, 4), mask);
      _mm512_store_si512(room + 64 * row, _mm512_sub_epi8(low, eight));
      _mm512_store_si512(room + 64 * (row + 4), _mm512_sub_epi8(high, eight));
    }
    return room;
  }
};
struct Bytes {
  static constexpr bool kBiased = true;
  template <int Sum>
  [[gnu::always_inline]] static inline void dot() {  // the intrinsics want literal numbers
    if constexpr (Sum == 0) _tile_dpbsud(0, 4, 6);
    if constexpr (Sum == 1) _tile_dpbsud(1, 4, 7);
    if constexpr (Sum == 2) _tile_dpbsud(2, 5, 6);
    if constexpr (Sum == 3) _tile_dpbsud(3, 5, 7);
  }
  [[gnu::always_inline]] static inline const void* tile(const std::byte* unit, std::uint8_t*) { return unit; }
};

// A call, and where the pieces of its panels and its tile lie: asked for once.
struct Call {
  const GemmArgs& a;
  Parts parts;
  bool channel, w4a8, has_bias;
  enum class Scale { bf16, f16, f32 } scale;
  std::int64_t units, groups, per_group;                            // per_group: units
  std::size_t stride, header, unit_bytes, group_bytes, sums, bias;  // of a panel
  const std::int32_t* corr;                                         // [groups][n]
  const float* recip;
  const std::int32_t* z;

  // flatten: no inline function of a header may be left as a symbol of this instruction set
  [[gnu::flatten]] explicit Call(const GemmArgs& args) : a(args), parts(args.n) {
    const P16Matrix& m = *args.matrix;
    channel = m.grouping() == Grouping::channel;
    w4a8 = m.scales == Scales::w4a8;
    has_bias = m.has_bias;
    scale = m.scale_bytes() == 4 ? Scale::f32 : m.scales == Scales::f16 ? Scale::f16 : Scale::bf16;
    units = m.units();
    groups = m.groups();
    per_group = channel ? units : m.group / kUnitK;
    stride = m.panel_bytes();
    header = m.header_bytes();
    unit_bytes = m.unit_bytes();
    group_bytes = kPanelRows * m.scale_bytes();
    sums = m.sum_offset();
    bias = m.bias_offset();
    const auto n = static_cast<std::size_t>(args.n);
    corr = reinterpret_cast<const std::int32_t*>(args.tile + args.shape.code_bytes() * n);
    recip = reinterpret_cast<const float*>(corr + static_cast<std::size_t>(groups) * n);
    z = reinterpret_cast<const std::int32_t*>(recip + n);
  }
  // Scales of group g of the panel at `head`; W4A8's channel-wise ones have their own use.
  [[gnu::always_inline]] __m512 scale_of(const std::byte* head, std::int64_t g) const {
    const std::byte* at = head + static_cast<std::size_t>(g) * group_bytes;
    if (scale == Scale::f32) return load_f32(at);
    if (scale == Scale::f16) return V::load_f16(at);
    const __m256i h = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
  }
};

// One pair of panels (or the last one alone) against the tile.
template <class Codes, bool kTwoPanels>
class Pair {
 public:
  Pair(const Call& call, const std::byte* panel, Scratch& s, Share& share)
      : c_(call), parts_(call.parts), channel_(call.channel), panel_(panel), s_(s), share_(share) {}

  void run(float* out) {
    if (channel_) {
      for (std::int64_t u = 0; u < c_.units; u += kRunUnits) {
        const std::int64_t end = std::min(u + kRunUnits, c_.units);
        find_tiles(u, end);
        for (int part = 0; part < parts_.count; part += 2) sum_run(part, u, end, u != 0);
      }
    } else {
      for (std::int64_t g = 0; g < c_.groups; ++g) add_group(g, g * c_.per_group, (g + 1) * c_.per_group);
    }
    scale_waiting();
    write(out);
  }

 private:
  static constexpr int kPanels = kTwoPanels ? 2 : 1;

  const std::byte* panel(int p) const { return panel_ + static_cast<std::size_t>(p) * c_.stride; }
  Block& sums_of(int part) {
    return channel_ ? s_.kept[static_cast<std::size_t>(part)] : s_.sums[sums_at_ + (part & 1)];
  }

  // A group of more than one run is expanded for every 32 tokens anew.
  void add_group(std::int64_t g, std::int64_t first, std::int64_t end) {
    if (end - first <= kRunUnits) find_tiles(first, end);
    for (int part = 0; part < parts_.count; part += 2) {
      for (std::int64_t u = first; u < end; u += kRunUnits) {
        const std::int64_t stop = std::min(u + kRunUnits, end);
        if (end - first > kRunUnits) find_tiles(u, stop);
        sum_run(part, u, stop, u != first);
      }
      waiting_ = {part, std::min(part + 2, parts_.count), g};
      sums_at_ ^= 2;
    }
  }

  void find_tiles(std::int64_t first, std::int64_t end) {
    for (int p = 0; p < kPanels; ++p) {
      const std::byte* unit = panel(p) + c_.header + static_cast<std::size_t>(first) * c_.unit_bytes;
      for (std::size_t u = 0; u < static_cast<std::size_t>(end - first); ++u, unit += c_.unit_bytes)
        tiles_[p][u] = Codes::tile(unit, s_.weights[static_cast<std::size_t>(p)][u].data());
    }
  }

  void sum_run(int part, std::int64_t first, std::int64_t end, bool more) {
    if (part + 1 < parts_.count)
      sum_units<true>(part, first, end, more);
    else
      sum_units<false>(part, first, end, more);
  }

  // Sums of one or two parts over the units that find_tiles prepared; `more`: on top of what the run before left.
  template <bool kTwoParts>
  void sum_units(int part, std::int64_t first, std::int64_t end, bool more) {
    Block& one = sums_of(part);
    Block& two = sums_of(kTwoParts ? part + 1 : part);
    if (more) {
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
    const std::ptrdiff_t unit_bytes = kUnitK * c_.a.n;
    const std::byte* x = c_.a.tile + first * unit_bytes;
    const std::ptrdiff_t at_one = parts_.first(part) * kUnitK, at_two = parts_.first(part + 1) * kUnitK;
    for (std::int64_t u = 0; u < end - first; ++u, x += unit_bytes) {
      share_.advance();
      _tile_loadd(6, tiles_[0][u], 64);
      _tile_loadd(4, x + at_one, kUnitK);
      Codes::template dot<0>();
      if constexpr (kTwoPanels) {
        _tile_loadd(7, tiles_[1][u], 64);
        Codes::template dot<1>();
      }
      if constexpr (kTwoParts) {
        _tile_loadd(5, x + at_two, kUnitK);
        Codes::template dot<2>();
        if constexpr (kTwoPanels) Codes::template dot<3>();
      }
    }
    scale_waiting();  // beside the dots
    _tile_stored(0, one[0].data(), 64);
    if constexpr (kTwoPanels) _tile_stored(1, one[1].data(), 64);
    if constexpr (kTwoParts) _tile_stored(2, two[0].data(), 64);
    if constexpr (kTwoPanels && kTwoParts) _tile_stored(3, two[1].data(), 64);
  }

  __m512i corrected(const std::array<std::int32_t, 16>& sums, std::int64_t g, int token) const {
    const __m512i sum = _mm512_load_si512(sums.data());
    if constexpr (!Codes::kBiased) return sum;
    return _mm512_add_epi32(sum, _mm512_set1_epi32(c_.corr[g * c_.a.n + token]));
  }

  void scale_waiting() {
    for (int t = waiting_.part; t < waiting_.end; ++t) scale_sums(t, waiting_.group);
    waiting_.end = 0;
  }

  // results = fma(sums of a group, scale, results)
  void scale_sums(int part, std::int64_t g) {
    for (int p = 0; p < kPanels; ++p) {
      const auto side = static_cast<std::size_t>(p);
      const auto& sums = s_.sums[(sums_at_ ^ 2) + (part & 1)][side];
      auto& results = s_.kept[static_cast<std::size_t>(part)][side];
      const __m512 scale = c_.scale_of(panel(p), g);
      for (int i = 0; i < parts_.rows; ++i) {
        const auto row = static_cast<std::size_t>(i);
        const __m512 before = g == 0 ? _mm512_setzero_ps() : _mm512_load_ps(results[row].data());
        const __m512 sum = _mm512_cvtepi32_ps(corrected(sums[row], g, parts_.first(part) + i));
        _mm512_store_ps(results[row].data(), _mm512_fmadd_ps(sum, scale, before));
      }
    }
  }

  // The end of the sums: what W4A8 adds for its zero points, the scales of the tokens, the bias.
  void write(float* out) const {
    for (int p = 0; p < kPanels; ++p) {
      const std::byte* head = panel(p);
      const __m512 bias = c_.has_bias ? load_f32(head + c_.bias) : _mm512_setzero_ps();
      for (int part = 0; part < parts_.count; ++part)
        for (int i = 0; i < parts_.rows; ++i) {
          const int token = parts_.first(part) + i;
          const auto& kept = s_.kept[static_cast<std::size_t>(part)][static_cast<std::size_t>(p)];
          const __m512 r = result(head, kept[static_cast<std::size_t>(i)], token);
          _mm512_storeu_ps(out + token * c_.a.ld + p * kPanelRows, _mm512_add_ps(r, bias));
        }
    }
  }
  __m512 result(const std::byte* head, const std::array<std::int32_t, 16>& kept, int token) const {
    const __m512 s_a = _mm512_set1_ps(c_.recip[token]);
    if (channel_) {
      __m512i sum = corrected(kept, 0, token);
      if (!c_.w4a8) return _mm512_mul_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(sum), c_.scale_of(head, 0)), s_a);
      const __m512i zs = _mm512_mullo_epi32(load(head + c_.sums), _mm512_set1_epi32(c_.z[token]));
      sum = _mm512_add_epi32(sum, zs);
      return _mm512_mul_ps(_mm512_mul_ps(_mm512_set1_ps(16.0f), _mm512_cvtepi32_ps(sum)),
                           _mm512_mul_ps(load_f32(head), s_a));
    }
    __m512 f = _mm512_load_ps(kept.data());
    if (c_.w4a8) f = _mm512_fmadd_ps(load_f32(head + c_.sums), _mm512_set1_ps(static_cast<float>(c_.z[token])), f);
    return _mm512_mul_ps(f, s_a);
  }

  const Call& c_;
  const Parts parts_;
  const bool channel_;
  const std::byte* panel_;
  Scratch& s_;
  Share& share_;
  const void* tiles_[2][kRunUnits];
  std::size_t sums_at_ = 0;  // 0 or 2: the blocks at work
  struct {
    int part, end;
    std::int64_t group;
  } waiting_{0, 0, 0};  // parts whose sums of a group are in the other blocks
};

template <class Codes>
void gemm_tiles(const GemmArgs& a) {
  const Call call(a);
  const TileConfig config(call.parts.rows);
  _tile_loadconfig(&config);
  Scratch s;
  Share share(a, call.stride, (a.panel_count + 1) / 2 * call.units * ((call.parts.count + 1) / 2));
  const std::byte* panel = a.panels;
  std::int64_t p = 0;
  for (; p + 2 <= a.panel_count; p += 2, panel += 2 * call.stride)
    Pair<Codes, true>(call, panel, s, share).run(a.out + p * kPanelRows);
  if (p < a.panel_count) Pair<Codes, false>(call, panel, s, share).run(a.out + p * kPanelRows);
  _tile_release();
}

template <class Codes, const Kernel& kFew>
void gemm(const GemmArgs& a) {
  if (a.n <= kFewRows)
    kFew.gemm(a);
  else
    gemm_tiles<Codes>(a);
}

}  // namespace

const Kernel kW4a8AmxInt8 = {.id = &kKernelIds[*kernel_index("w4a8_tok8_p16_amxint8")],
                             .exact = true,
                             .tile_rows = kTileRows,
                             .steps = &avx512::kSteps,
                             .quantise = avx512::quantise_tok8,
                             .gemm = gemm<Nibbles, kW4a8Avx512Vnni>,
                             .ready = permit_amx};
const Kernel kW8a8AmxInt8 = {.id = &kKernelIds[*kernel_index("w8a8_tok8_p16_amxint8")],
                             .exact = true,
                             .tile_rows = kTileRows,
                             .steps = &avx512::kSteps,
                             .quantise = avx512::quantise_symmetric,
                             .gemm = gemm<Bytes, kW8a8Avx512Vnni>,
                             .ready = permit_amx};

}  // namespace moe

MOE_TARGET_END
