// FP8 and MXFP8 weights on p16 with rows of bf16 or of e4m3, AMX-BF16. Its bits are its own, but for every number of
// rows the same ones: a segment is columns of one group within 512; its sum t is one chain of TDPBF16PS, then
// a = fma(t, scale, a). With rows of e4m3 that have scales segments end at multiples of
// the greatest common divisor of both sides' groups, and scale is the product of both.
//
// Codes become B tiles in scratch a chunk of one or two panels ahead, among the products of the chunk at hand, and all
// rows of the tile meet them there, two panels and 32 rows at a time (amx_tiles.inl, chains). The sums of a segment
// meet their scale among the products of the next one.
//
// The scales of MXFP8 are powers of two. Where with each scale of a panel all codes are normal bf16, scales are part of
// the B tiles, exactly, and segments are whole chunks. The weights alone decide it.
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <new>
#include <numeric>

#include "base/float_formats.h"
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

constexpr int kTileRows = tile_rows("fp8_bf16_p16_amxbf16");

#include "kernels/x86/vector_avx512.inl"

#include "kernels/body/places.inl"

#include "kernels/body/float8_bytes.inl"

#include "kernels/x86/amx_tiles.inl"

#include "kernels/x86/dot_amxbf16.inl"

#include "kernels/x86/read_ahead.inl"

constexpr std::int64_t kStepK = 32;
constexpr std::int64_t kSegment = 16, kShortChunk = 4;     // steps at most
constexpr std::size_t kCodeBytes = 512, kHalfBytes = 256;  // of a step of a panel

using Sums = PartSums<float>;
using PanelScales = std::array<std::array<float, 16>, 2>;  // of a segment, by panel
using Tile = std::array<std::byte, kPieceBytes>;

struct alignas(64) Scratch {
  std::array<std::array<Tile, 2 * kSegment>, 2> tiles;      // of a chunk to come and of the one at hand
  std::array<std::array<PanelScales, kSegment>, 4> scales;  // of the last chunks, by segment
  std::array<std::array<Sums, 2>, 2> sums;                  // of the last segments, of one or two parts
  std::array<Sums, kMaxParts> results;
};

// Panels that are multiplied together.
struct Panels {
  const std::byte* first;
  int count;
  bool folded;  // scales are in the B tiles
  float* out;
};

// A chunk of panels.
struct Chunk {
  Panels panels;
  std::int64_t begin, steps;  // in steps of k
};

// What reads ahead: where a tile is one part of the rows, panels come one by one, in order, and each step asks for as
// much as it takes; with more parts a call fetches its share.
struct InOrder {
  Stream stream;
  void begin(const std::byte* panel, std::size_t header) const { stream.header(panel, header); }
  [[gnu::always_inline]] void used(const std::byte* codes) const { stream.fetch(codes, kHalfBytes); }
};
struct Shared {
  Share share;
  void begin(const std::byte*, std::size_t) const {}
  [[gnu::always_inline]] void used(const std::byte*) { share.advance(); }
};

// Makes the B tiles of a chunk, half a tile at a time.
template <class Reader>
class TileMaker {
 public:
  TileMaker(const Places& at, Reader& reader) : at_(at), reader_(reader) {}

  void begin(const Chunk& place, Tile* to) {
    codes_ = place.panels.first + at_.header + usize(place.begin) * kCodeBytes;
    scales_ = place.panels.first + usize(place.begin) * at_.group_bytes;
    panels_ = place.panels.count;
    folded_ = place.panels.folded;
    to_ = to;
    next_ = 0;
    left_ = static_cast<int>(place.steps) * panels_ * 2;
    if (place.begin == 0)
      for (int p = 0; p < panels_; ++p) reader_.begin(place.panels.first + usize(p) * at_.stride, at_.header);
  }
  int left() const { return left_; }
  [[gnu::always_inline]] void half() {
    if (left_ == 0) return;
    const auto step = usize(next_ >> panels_), p = usize((next_ >> 1) & (panels_ - 1)), half = usize(next_ & 1);
    const std::byte* codes = codes_ + p * at_.stride + step * kCodeBytes + half * kHalfBytes;
    std::byte* to = to_[next_ >> 1].data() + half * (kPieceBytes / 2);
    reader_.used(codes);
    if (folded_) {
      const I scale = V::shl<7>(V::sub_i(V::load_u8(scales_ + p * at_.stride + step * kPanelRows), V::set_i(127)));
      decode<true>(codes, to, V::or_i(V::shl<16>(scale), V::and_i(scale, V::set_i(0xffff))));
    } else {
      decode<false>(codes, to, V::set_i(0));
    }
    ++next_;
    --left_;
  }
  void finish() {
    while (left_ != 0) half();
  }

 private:
  // kFold: `scale` is added to the exponents of what is not 0.
  template <bool kFold>
  [[gnu::always_inline]] static I scaled(I pairs, I scale) {
    if constexpr (!kFold) return pairs;
    const __mmask32 numbers = _mm512_test_epi16_mask(pairs, _mm512_set1_epi16(0x7fff));
    return _mm512_mask_add_epi16(pairs, numbers, pairs, scale);
  }
  template <bool kFold>
  [[gnu::always_inline]] static void decode(const std::byte* codes, std::byte* to, I scale) {
    constexpr std::size_t kVectors = kHalfBytes / 64;
    const I exponents = V::set_u8(0x78);
    __mmask64 subnormal = 0;
#pragma GCC unroll 4
    for (std::size_t i = 0; i < kVectors; ++i)
      subnormal |= _mm512_testn_epi8_mask(V::load_i(codes + i * 64), exponents);
    const auto store = [&](std::size_t i, const Float8Bytes& bytes) __attribute__((always_inline)) {
      _mm512_store_si512(to + i * 128, scaled<kFold>(bytes.pairs<0>(), scale));
      _mm512_store_si512(to + i * 128 + 64, scaled<kFold>(bytes.pairs<1>(), scale));
    };
    if (subnormal == 0) {  // of real weights a few in a thousand
#pragma GCC unroll 4
      for (std::size_t i = 0; i < kVectors; ++i) store(i, Float8Bytes::of_normal(V::load_i(codes + i * 64)));
    } else {
#pragma GCC unroll 4
      for (std::size_t i = 0; i < kVectors; ++i) store(i, Float8Bytes(V::load_i(codes + i * 64)));
    }
  }

  const Places& at_;
  Reader& reader_;
  const std::byte *codes_ = nullptr, *scales_ = nullptr;
  Tile* to_ = nullptr;
  int panels_ = 1, next_ = 0, left_ = 0;
  bool folded_ = false;
};

// The sums of a segment of one or two parts, and what becomes of them.
struct InFlight {
  const std::array<Sums, 2>* sums = nullptr;
  Sums* results = nullptr;  // of the first part
  const PanelScales* scales = nullptr;
  std::array<const float*, 2> row_scales = {};  // by part; nullptr: rows have none
  bool first = true;                            // the results begin with them
  int panels = 1, parts = 1, rows = 0;
  int next = 0, left = 0;  // quarters of the rows of a panel and a part

  // results = fma(sums, scale, results)
  [[gnu::always_inline]] void quarter() {
    if (left == 0) return;
    const auto part = usize(next >> (panels + 1)), p = usize((next >> 2) & (panels - 1));
    const int i = next & 3;
    const __m512 scales_of_panel = _mm512_loadu_ps((*scales)[p].data());
    const float* const own = row_scales[part];
    for (int row = i * rows / 4; row < (i + 1) * rows / 4; ++row) {
      float* to = at(results[part][p], row).data();
      const __m512 scale = own == nullptr ? scales_of_panel : _mm512_mul_ps(scales_of_panel, _mm512_set1_ps(own[row]));
      const __m512 before = first ? _mm512_setzero_ps() : _mm512_load_ps(to);
      _mm512_store_ps(to, _mm512_fmadd_ps(_mm512_load_ps(at((*sums)[part][p], row).data()), scale, before));
    }
    ++next;
    --left;
  }
  void finish() {
    while (left != 0) quarter();
  }
};

// A call.
template <bool kMx, class Reader>
class Walk {
 public:
  Walk(const GemmArgs& a, const Parts& parts, Reader& reader)
      : a_(a),
        parts_(parts),
        at_(*a.matrix),
        s_(*new (a.scratch) Scratch),
        steps_(a.shape.blocks()),
        chunk_(parts.count == 1 ? kShortChunk : kSegment),
        maker_(at_, reader) {
    if (!a.matrix->groups.is_whole()) weight_steps_ = a.matrix->group() / kStepK;
    if (a.shape.has_row_scales()) {
      row_scales_ = row_scales(a.shape, {const_cast<std::byte*>(a.tile), a.n, 0});
      row_steps_ = a.shape.floats.columns / kStepK;
    }
    group_steps_ = std::gcd(weight_steps_, row_steps_);
  }

  void run() {
    Chunk place = first_of(0);
    prepare(place);
    maker_.finish();
    for (bool more = true; more;) {
      const Chunk here = place;
      const std::size_t chunk = newest_;
      more = advance(place);
      if (more) prepare(place);
      here.panels.count == 2 ? multiply<2>(here, chunk) : multiply<1>(here, chunk);
      maker_.finish();
      if (here.begin + here.steps == steps_) write(here.panels);
    }
  }

 private:
  static constexpr int kQuarters = 4;

  Chunk first_of(std::int64_t panel) const {
    const std::byte* first = a_.panels + usize(panel) * at_.stride;
    const bool fold = folds(first);
    const bool two = parts_.count > 1 && panel + 1 < a_.panel_count && folds(first + at_.stride) == fold;
    return {{first, two ? 2 : 1, fold, a_.out + panel * kPanelRows}, 0, std::min(chunk_, steps_)};
  }
  bool advance(Chunk& p) {
    p.begin += p.steps;
    if (p.begin < steps_) {
      p.steps = std::min(chunk_, steps_ - p.begin);
      return true;
    }
    panel_ += p.panels.count;
    if (panel_ == a_.panel_count) return false;
    p = first_of(panel_);
    return true;
  }

  // Whether all codes times each scale of a panel are normal bf16 numbers, or 0.
  bool folds(const std::byte* panel) const {
    if (!kMx || weight_steps_ != 1) return false;
    const __m128i low = _mm_set1_epi8(kLeast), range = _mm_set1_epi8(static_cast<char>(kMost - kLeast));
    __m128i beyond = _mm_setzero_si128();
    for (std::int64_t i = 0; i < steps_; ++i, panel += kPanelRows) {
      const __m128i above = _mm_sub_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(panel)), low);
      beyond = _mm_or_si128(beyond, _mm_subs_epu8(above, range));  // what is below the least wraps
    }
    return _mm_movemask_epi8(_mm_cmpeq_epi8(beyond, _mm_setzero_si128())) == 0xffff;
  }
  // 2^-9 and 448, which are the smallest and the largest code, times 2^(scale - 127).
  static constexpr int kLeast = 127 - 126 + 9, kMost = 127 + 127 - 8;

  // Whether a segment ends before this step.
  bool is_edge(const Chunk& p, std::int64_t step) const {
    if (step % kSegment == 0 || step == steps_) return true;
    return group_steps_ != 0 && !p.panels.folded && step % group_steps_ == 0;
  }
  // Where the segment, or the chunk, ends.
  std::int64_t end_of(const Chunk& p, std::int64_t step) const {
    do ++step;
    while (step < p.begin + p.steps && !is_edge(p, step));
    return step;
  }
  bool is_first(const Chunk& p, std::int64_t step) const {
    while (!is_edge(p, step)) --step;
    return step == 0;
  }

  // The chunk to come.
  void prepare(const Chunk& p) {
    ++newest_;
    maker_.begin(p, s_.tiles[newest_ % 2].data());
    PanelScales* scales = s_.scales[newest_ % 4].data();
    for (std::int64_t i = p.begin; i < p.begin + p.steps; i = end_of(p, i), ++scales)
      for (int panel = 0; panel < p.panels.count; ++panel) {
        const std::int64_t group = weight_steps_ == 0 ? 0 : i / weight_steps_;
        _mm512_storeu_ps((*scales)[usize(panel)].data(),
                         p.panels.folded ? V::set(1.0f) : at_.scale(p.panels.first, panel, usize(group)));
      }
  }

  // The work beside a chain: the sums before it, the tiles to come.
  struct Beside {
    Walk& walk;
    const Tile* tiles;
    int panels;
    int quarters, halves;  // of the sums at a quarter of a step, of tiles at a step

    [[gnu::always_inline]] const std::byte* tile(std::int64_t step, std::size_t p) const {
      return tiles[usize(step * panels) + p].data();
    }
    [[gnu::always_inline]] void operator()(std::int64_t, int quarter) const {
      for (int i = 0; i < quarters; ++i) walk.waiting_.quarter();
      for (int i = quarter; i < halves; i += kQuarters) walk.maker_.half();
    }
  };

  template <int kPanels>
  [[gnu::noinline]] void multiply(const Chunk& p, std::size_t chunk) {
    const int turns = (parts_.count + 1) / 2 * static_cast<int>(p.steps);
    halves_ = (maker_.left() + turns - 1) / turns;
    int part = 0;
    for (; part + 1 < parts_.count; part += 2) multiply_parts<2, kPanels>(p, chunk, part);
    if (part < parts_.count) multiply_parts<1, kPanels>(p, chunk, part);
  }
  template <int kParts, int kPanels>
  [[gnu::noinline]] void multiply_parts(const Chunk& p, std::size_t chunk, int part) {
    const PanelScales* scales = s_.scales[chunk % 4].data();
    const Tile* tiles = s_.tiles[chunk % 2].data();
    for (std::int64_t i = p.begin, end = 0; i < p.begin + p.steps; i = end, ++scales) {
      end = end_of(p, i);
      const auto rows = [&](int k) { return a_.tile + (i * a_.n + parts_.first(part + k)) * std::ptrdiff_t{64}; };
      const int slots = static_cast<int>(end - i) * kQuarters;
      chain<Product, kParts, kPanels>(
          {rows(0), rows(kParts - 1)}, usize(a_.n) * 64, end - i,
          Beside{*this, tiles + (i - p.begin) * kPanels, kPanels, (waiting_.left + slots - 1) / slots, halves_},
          !is_edge(p, i));
      if (!is_edge(p, end)) continue;
      waiting_.finish();
      std::array<Sums, 2>& sums = s_.sums[passed_++ % 2];
      store_chain<kParts, kPanels>([&](int k, int panel) { return at(at(sums, k), panel)[0].data(); }, 64);
      waiting_ = {.sums = &sums,
                  .results = &at(s_.results, part),
                  .scales = scales,
                  .row_scales = {row_scales_of(end - 1, part), row_scales_of(end - 1, part + kParts - 1)},
                  .first = is_first(p, end - 1),
                  .panels = kPanels,
                  .parts = kParts,
                  .rows = parts_.rows,
                  .next = 0,
                  .left = kParts * kPanels * kQuarters};
    }
  }

  // Of the rows of a part, in a step.
  const float* row_scales_of(std::int64_t step, int part) const {
    if (row_scales_ == nullptr) return nullptr;
    return row_scales_ + (row_steps_ == 0 ? 0 : step / row_steps_) * a_.n + parts_.first(part);
  }

  void write(const Panels& panels) {
    waiting_.finish();
    for (int p = 0; p < panels.count; ++p) {
      const std::byte* bias_at = panels.first + usize(p) * at_.stride + at_.bias;
      const __m512 bias = at_.has_bias ? _mm512_loadu_ps(bias_at) : _mm512_setzero_ps();
      for (int part = 0; part < parts_.count; ++part)
        for (int row = 0; row < parts_.rows; ++row)
          _mm512_storeu_ps(panels.out + (parts_.first(part) + row) * a_.ld + p * kPanelRows,
                           _mm512_add_ps(_mm512_load_ps(at(at(at(s_.results, part), p), row).data()), bias));
    }
  }

  const GemmArgs& a_;
  const Parts parts_;
  const Places at_;
  Scratch& s_;
  const std::int64_t steps_;
  const std::int64_t chunk_;                       // steps at most
  std::int64_t weight_steps_ = 0, row_steps_ = 0;  // of a group; 0: one group
  std::int64_t group_steps_ = 0;                   // of what has one scale on both sides
  const float* row_scales_ = nullptr;
  TileMaker<Reader> maker_;
  InFlight waiting_;
  std::int64_t panel_ = 0;
  std::size_t newest_ = 0;  // chunk
  std::size_t passed_ = 0;  // segments of parts
  int halves_ = 0;
};

template <bool kMx>
void gemm(const GemmArgs& a) {
  const Parts parts(a.n);
  const TileConfig config(parts.rows, kChainWeights);
  config.load();
  const std::size_t bytes = a.matrix->panel_bytes();
  if (parts.count == 1) {
    InOrder order{Stream(a, bytes, a.next)};
    Walk<kMx, InOrder>(a, parts, order).run();
  } else {
    Shared shared{Share(a, bytes, a.panel_count * a.shape.blocks() * 2)};
    Walk<kMx, Shared>(a, parts, shared).run();
  }
  _tile_release();
}

constexpr Kernel row(std::string_view name, void (*quantize)(const QuantizeArgs&), void (*gemm)(const GemmArgs&)) {
  Kernel k = amx_row(name, quantize, gemm, sizeof(Scratch));
  k.takes_halves = true;
  return k;
}

}  // namespace

constinit const Kernel kernel_rows::fp8_bf16_p16_amxbf16 =
    row("fp8_bf16_p16_amxbf16", avx512::quantize_bf16, gemm<false>);
constinit const Kernel kernel_rows::mxfp8_bf16_p16_amxbf16 =
    row("mxfp8_bf16_p16_amxbf16", avx512::quantize_bf16, gemm<true>);
constinit const Kernel kernel_rows::fp8_e4m3_p16_amxbf16 =
    row("fp8_e4m3_p16_amxbf16", avx512::quantize_float8_halves, gemm<false>);
constinit const Kernel kernel_rows::mxfp8_e4m3_p16_amxbf16 =
    row("mxfp8_e4m3_p16_amxbf16", avx512::quantize_float8_halves, gemm<true>);

}  // namespace moe::kernels

MOE_TARGET_END
