// FP4 weights, and int4 in groups of 32, with activations of 16 bits on AMX-BF16 (definition: kernels/ref/symmetric.h).
//
// The codes of these weights and of bf16 activations are bf16 numbers. A sum of 32 of their products is an integer
// below 2^24, so a product of tiles in float32 is exact, whatever its order: the bits are those of the scalar row.
// Codes of other activations are two bf16 numbers each (kernels/tile.h, `values`), whose products add up in the same
// tile.
//
//   chunk  8 blocks of 32 columns of one or two panels: as B tiles, with their scales, they lie in L1 while all tokens
//          pass
//   part   8, 12 or 16 tokens, the rows of an A tile as it lies; their results with a panel stay in vector registers
//   turn   one sum: 32 columns of a part and a panel, NVFP4 16 (half of the tiles is not used). Three are under way:
//
//   tile registers   products of sum i
//   stores           sum i - 1
//   vector units     scales of sum i - 2
//
// A scale of activations is a power of two. The quantizer has multiplied the codes by it where nothing can overflow, so
// that a sum meets the scales of the weights alone; where it has not, or where a weight's scale is extreme, the sum is
// taken back to that of codes and meets both scales (multiply<false>). Few tokens go to the AVX-512 rows.
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
#include "kernels/ref/symmetric.h"
#include "kernels/target.h"
#include "kernels/x86/amx.h"
#include "kernels/x86/steps.h"

#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 flags its own _mm512_undefined_* (GCC bug 105593)
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
MOE_TARGET_BEGIN("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni,amx-tile,amx-bf16")

namespace moe::kernels {
namespace {

constexpr int kTileTokens = tile_rows("mxfp4_blk16_p16_amxbf16");
constexpr int kTileRows = kTileTokens;

#include "kernels/x86/vector_avx512.inl"

#include "kernels/body/quantize_symmetric.inl"

#include "kernels/body/symmetric_tile.inl"

#include "kernels/x86/amx_tiles.inl"

#include "kernels/x86/read_ahead.inl"

// --- tiles of activations -----------------------------------------------------------------------

// What a sum is multiplied by to become that of codes; negative: it is one. Where a block's correction would be, which
// these rows do not need.
constexpr float kOfCodes = -1.0f;
// Codes times such a scale, sums of them, and those times such a scale of weights, are far from the ends of float32.
constexpr float kSmallest = 0x1p-60f, kGreatest = 0x1p60f;

// 32 numbers as a row of an A tile: columns k and k + 2 of each four in a dword, columns 0-15 before 16-31.
// Then the nibbles of a B tile's row are those of one vector of codes, shifted (Codes::expand).
[[gnu::always_inline]] inline __m512i row_of_tile(__m512 low, __m512 high) {
  const __m512i even = _mm512_castps_si512(_mm512_shuffle_ps(low, high, 0x44)),
                odd = _mm512_castps_si512(_mm512_shuffle_ps(low, high, 0xee));
  const __m512i pairs = _mm512_or_si512(
      _mm512_srli_epi32(even, 16), _mm512_and_si512(odd, _mm512_set1_epi32(static_cast<std::int32_t>(0xffff0000u))));
  return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), pairs);
}
// The eight most significant bits: a bf16 number. The rest of a code has seven.
[[gnu::always_inline]] inline __m512 bf16_part(__m512 x) {
  return _mm512_castsi512_ps(
      _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(static_cast<std::int32_t>(0xffff0000u))));
}

void quantize_values(const QuantizeArgs& a) {
  const TileShape& s = a.shape;
  const BlockRow words = block_row(s, a.out);
  const std::int64_t columns = s.scaled_columns(), count = s.scale_count(), sums = s.sum_count() / count;
  std::byte* out = a.out.tile + a.out.row * 64;
  const std::ptrdiff_t piece = a.out.n * std::ptrdiff_t{64};
  for (std::int64_t b = 0; b < count; ++b) {
    const std::int64_t k0 = b * columns, k1 = std::min(k0 + columns, s.k);
    const ref::SymmetricScale scale = ref::symmetric_scale16(symmetric::absmax(a.x + k0, k1 - k0));
    const bool empty = scale.inverse == 0.0f;  // or poisoned
    const bool scaled = columns == 32 && scale.scale >= kSmallest && scale.scale <= kGreatest;
    const float factor = scaled ? scale.inverse : scale.scale == 0.0f ? 1.0f : kOfCodes;
    words.corr[b * sums * words.stride] = std::bit_cast<std::int32_t>(columns == 32 ? factor : kOfCodes);
    words.scale[b * words.stride] = scale.scale;
    const __m512 inverse = _mm512_set1_ps(scale.inverse), back = _mm512_set1_ps(scaled ? scale.scale : 1.0f);
    for (std::int64_t k = k0; k < k1; k += 32) {
      __m512 x[2];
      for (int half = 0; half < 2; ++half) {
        const std::int64_t left = std::clamp<std::int64_t>(k1 - k - 16 * half, 0, 16);
        const __m512 v = _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << left) - 1), a.x + k + 16 * half);
        const __m512 code = _mm512_cvtepi32_ps(V::nearest_even(_mm512_mul_ps(v, inverse)));
        x[half] = empty ? _mm512_setzero_ps() : _mm512_mul_ps(code, back);
      }
      if (s.values == 1) {
        _mm512_storeu_si512(out, row_of_tile(x[0], x[1]));
      } else {
        const __m512 low = bf16_part(x[0]), high = bf16_part(x[1]);
        _mm512_storeu_si512(out, row_of_tile(low, high));
        out += piece;
        _mm512_storeu_si512(out, row_of_tile(_mm512_sub_ps(x[0], low), _mm512_sub_ps(x[1], high)));
      }
      out += piece;
    }
  }
}
void quantize(const QuantizeArgs& a) { a.shape.has_values(a.out.n) ? quantize_values(a) : avx512::quantize_digits(a); }

// --- weights ------------------------------------------------------------------------------------

using Table = std::array<std::uint16_t, 32>;

// How 32 columns of a panel become a B tile: rows of 16 pairs (row_of_tile). A number is looked up by the low five bits
// of a word.
template <class Codes>
[[gnu::always_inline]] inline void expand(const std::byte* codes, std::byte* to, [[maybe_unused]] __m512i zero) {
  const __m512i table = _mm512_loadu_si512(Codes::kTable.data());
  const auto row = [&](std::size_t at, __m512i nibbles) {
    if constexpr (Codes::kZeros) nibbles = _mm512_sub_epi16(_mm512_and_si512(nibbles, _mm512_set1_epi16(15)), zero);
    _mm512_store_si512(to + 64 * at, _mm512_permutexvar_epi16(nibbles, table));
  };
#pragma GCC unroll 4
  for (std::size_t i = 0; i < 4; ++i) {
    const __m512i v = _mm512_loadu_si512(codes + 64 * i);
    row(2 * i, v);
    row(2 * i + 1, _mm512_srli_epi16(v, 8));
    row(2 * i + 8, _mm512_srli_epi16(v, 4));
    row(2 * i + 9, _mm512_srli_epi16(v, 12));
  }
}
// Twice the values. Bit 4 is of another nibble.
struct E2m1 {
  static constexpr bool kDoubled = true, kZeros = false;
  static constexpr Table kTable = [] {
    Table t{};
    for (unsigned i = 0; i < 32; ++i) t[i] = f32_to_bf16(2.0f * small_to_f32(kE2m1, i % 16));
    return t;
  }();
};
struct Int4 {
  static constexpr bool kDoubled = false, kZeros = false;
  static constexpr Table kTable = [] {
    Table t{};
    for (int i = 0; i < 32; ++i) t[usize(i)] = f32_to_bf16(static_cast<float>(i % 16 - 8));
    return t;
  }();
};
// The code less its zero point, -16 to 15 modulo 32.
struct Int4Zeros {
  static constexpr bool kDoubled = false, kZeros = true;
  static constexpr Table kTable = [] {
    Table t{};
    for (int i = 0; i < 32; ++i) t[usize(i)] = f32_to_bf16(static_cast<float>(i < 16 ? i : i - 32));
    return t;
  }();
};

// --- products -----------------------------------------------------------------------------------

constexpr std::int64_t kChunkBlocks = 8;
constexpr int kPartTokens = kPartRows, kFewestTokens = Cut::kFewest;

using Sums = std::array<std::array<float, 16>, kPartTokens>;

struct alignas(64) Scratch {
  std::array<std::array<std::array<std::byte, 1024>, kChunkBlocks>, 2> weights;  // by panel
  __m512 scales[2][2 * kChunkBlocks];
  std::array<Sums, 2> sums;  // of the last turns
  __m512 results[kTileTokens / kFewestTokens][2][kPartTokens];
  // Of sums longer than a block, which may not be exact as float32: [part][panel][token].
  __m512i begun[kTileTokens / kFewestTokens][2][kPartTokens];
};

// Of a matrix and a tile, asked for once.
struct GroupCall : Call<Per16> {
  std::int64_t sum_blocks;     // of a sum; 0: half a block
  std::int64_t per_group;      // sums of a group of weights
  const float* factor;         // words.corr
  std::ptrdiff_t factor_step;  // from block to block

  [[gnu::flatten]] explicit GroupCall(const GemmArgs& args)
      : Call<Per16>(args), factor(reinterpret_cast<const float*>(words.corr)) {
    const std::int64_t summed = args.shape.summed_columns();
    sum_blocks = summed / 32;
    per_group = args.matrix->groups.is_whole() ? INT64_MAX : args.matrix->group() / summed;
    factor_step = args.shape.sum_count() / args.shape.scale_count() * n;
  }
  std::size_t unit_bytes() const { return unit_header + 512; }
  int first(int part, int tokens) const { return std::min(part * tokens, n - tokens); }
};

// Tile registers of a turn: 0 and 1 sums, 4 and 5 activations, 6 and 7 weights.
template <int kTurn>
struct Turn {
  // `next`: from a code's first number to its second; 0: there is none.
  [[gnu::always_inline]] static inline void multiply(const std::byte* x, std::ptrdiff_t next, const std::byte* w) {
    if constexpr (kTurn == 0) {  // the intrinsics want literal numbers
      _tile_zero(0);
      _tile_loadd(4, x, 64);
      _tile_loadd(6, w, 64);
      _tile_dpbf16ps(0, 4, 6);
      if (next == 0) return;
      _tile_loadd(4, x + next, 64);
      _tile_dpbf16ps(0, 4, 6);
    } else {
      _tile_zero(1);
      _tile_loadd(5, x, 64);
      _tile_loadd(7, w, 64);
      _tile_dpbf16ps(1, 5, 7);
      if (next == 0) return;
      _tile_loadd(5, x + next, 64);
      _tile_dpbf16ps(1, 5, 7);
    }
  }
  [[gnu::always_inline]] static inline void store(Sums& to) {
    if constexpr (kTurn == 0)
      _tile_stored(0, to.data(), 64);
    else
      _tile_stored(1, to.data(), 64);
  }
};

// One pair of panels (or the last one alone) against the tile.
template <class Codes, bool kHalves, int kTokens>
class Pair {
 public:
  Pair(const GroupCall& call, const Cut& cut, const std::byte* panel, int panels, Scratch& s, Share& share)
      : c_(call), cut_(cut), panel_(panel), panels_(panels), s_(s), share_(share) {}

  void run(float* out) {
    const std::int64_t blocks = c_.a.shape.blocks();
    for (std::int64_t block = 0; block < blocks; block += kChunkBlocks) {
      Chunk k{block, std::min(kChunkBlocks, blocks - block)};
      k.turns = kHalves ? 2 * k.blocks : k.blocks;  // the last half may be padding
      k.ends = block + k.blocks == blocks;
      const bool usual = prepare(k);
      for (int part = 0; part < cut_.parts; ++part) {
        const bool fast = has_scaled_sums(k, usual, c_.first(part, kTokens));
        for (int p = 0; p < panels_; ++p) fast ? multiply<true>(k, part, p, out) : multiply<false>(k, part, p, out);
      }
    }
  }

 private:
  struct Chunk {
    std::int64_t first, blocks;
    std::int64_t turns = 0;
    bool ends = false;  // the row
  };

  const std::byte* panel(int p) const { return panel_ + usize(p) * c_.stride; }
  const std::byte* codes(int p, std::int64_t block) const {
    return panel(p) + c_.header + usize(block / 2) * c_.unit_bytes() + c_.unit_header + usize(block % 2) * 256;
  }

  // Weights and scales of a chunk; whether all of these scales are 0 or far from the ends of float32.
  [[gnu::noinline]] bool prepare(const Chunk& k) {
    bool unusual = false;
    for (int p = 0; p < panels_; ++p) {
      auto& scales = s_.scales[p];
      for (std::int64_t i = 0; i < k.turns; ++i) {
        const std::int64_t sum = kHalves ? 2 * k.first + i : (k.first + i) / c_.sum_blocks, group = sum / c_.per_group;
        ScaleWalk walk = c_.scales;
        walk.at += usize(group / 2) * (walk.step + walk.other_step) + usize(group % 2) * walk.step;
        __m512& scale = scales[i];
        if constexpr (Codes::kDoubled)
          scale =
              walk.kind == ScaleWalk::Kind::e8m0 ? V::load_e8m0(panel(p) + walk.at) : V::load_e4m3(panel(p) + walk.at);
        else
          scale = load_scales(walk, panel(p));
        const __m512 size = _mm512_abs_ps(scale);
        const __mmask16 zeros = _mm512_cmp_ps_mask(size, _mm512_setzero_ps(), _CMP_EQ_OQ),
                        far = _mm512_cmp_ps_mask(size, _mm512_set1_ps(kSmallest), _CMP_GE_OQ) &
                              _mm512_cmp_ps_mask(size, _mm512_set1_ps(kGreatest), _CMP_LE_OQ);
        unusual |= (zeros | far) != 0xffff;
        __m512i zero = _mm512_setzero_si512();
        if constexpr (Codes::kZeros)
          zero = _mm512_mullo_epi32(V::load_u8(panel(p) + c_.zeros + usize(group) * kPanelRows),
                                    _mm512_set1_epi32(0x00010001));  // of both words of each row
        if (!kHalves || i % 2 == 0)
          expand<Codes>(codes(p, k.first + (kHalves ? i / 2 : i)), at(at(s_.weights, p), kHalves ? i / 2 : i).data(),
                        zero);
      }
    }
    return !unusual;
  }

  // Whether the sums of a part are whole and meet the scales of the weights alone.
  bool has_scaled_sums(const Chunk& k, bool usual, int first) const {
    if (!kHalves && c_.sum_blocks != 1) return false;
    if (!usual) return false;
    bool others = false;
    for (std::int64_t b = k.first; b < k.first + k.blocks; ++b) {
      constexpr auto kMask = static_cast<__mmask16>((1u << kTokens) - 1);
      const __m512i factors = _mm512_maskz_loadu_epi32(kMask, c_.factor + b * c_.factor_step + first);
      others |= _mm512_mask_cmplt_epi32_mask(kMask, factors, _mm512_setzero_si512()) != 0;  // the sign of a float
    }
    return !others;
  }

  // noinline: it needs all registers
  template <bool kScaled>
  [[gnu::noinline]] void multiply(const Chunk& k, int part, int p, float* out) {
    __asm__ volatile("" ::
                         : "memory");  // GCC's tile loads do not say that they read: what was just written is there now
    auto& kept = s_.results[part][p];
    __m512 f[kTokens];
    const bool begins = k.first == 0;
#pragma GCC unroll 16
    for (std::size_t t = 0; t < kTokens; ++t) f[t] = begins ? _mm512_setzero_ps() : kept[t];
    const int first = c_.first(part, kTokens);
    if (!kScaled && begins)
      for (__m512i& sum : s_.begun[part][p]) sum = _mm512_setzero_si512();  // sums of blocks are never `kScaled`
    Share share = share_;
    const std::int64_t turns = k.turns;
    for (std::int64_t i = 0; i < turns + 2; i += 2) {
      turn<0, kScaled>(k, i, turns, part, p, first, f, share);
      turn<1, kScaled>(k, i + 1, turns, part, p, first, f, share);
    }
    share_ = share;
    if (k.ends) return write(f, first, p, out);
#pragma GCC unroll 16
    for (std::size_t t = 0; t < kTokens; ++t) kept[t] = f[t];
  }

  template <int kTurn, bool kScaled>
  [[gnu::always_inline]] void turn(const Chunk& k, std::int64_t i, std::int64_t turns, int part, int p, int first,
                                   __m512 (&f)[kTokens], Share& share) {
    if (i < turns) {
      const int values = c_.a.shape.values;
      const std::int64_t block = kHalves ? i / 2 : i;
      const std::byte* x = c_.a.tile + ((k.first + block) * values * c_.n + first) * 64 + (kHalves ? kTurn * 32 : 0);
      const std::byte* w = at(s_.weights, p)[0].data() + i * (kHalves ? 512 : 1024);
      Turn<kTurn>::multiply(x, values == 1 ? 0 : c_.n * std::ptrdiff_t{64}, w);
      share.advance();
    }
    if (i >= 2 && i < turns + 2) {
      if constexpr (kScaled)
        scale_sums(s_.scales[p][i - 2], s_.sums[kTurn], f);
      else
        scale_codes(k, i - 2, s_.sums[kTurn], part, p, first, f);
    }
    if (i >= 1 && i <= turns) Turn<1 - kTurn>::store(s_.sums[1 - kTurn]);
  }

  // results = fma(sum, scales of the weights, results)
  [[gnu::always_inline]] static void scale_sums(__m512 scale, const Sums& sums, __m512 (&f)[kTokens]) {
#pragma GCC unroll 16
    for (std::size_t t = 0; t < kTokens; ++t) f[t] = _mm512_fmadd_ps(_mm512_load_ps(sums[t].data()), scale, f[t]);
  }
  // results = fma(sum of codes, both scales, results), once the sum is whole
  [[gnu::always_inline]] void scale_codes(const Chunk& k, std::int64_t i, const Sums& sums, int part, int p, int first,
                                          __m512 (&f)[kTokens]) {
    const std::int64_t block = k.first + (kHalves ? i / 2 : i), piece = kHalves ? 1 : c_.sum_blocks;
    const float* factor = c_.factor + block / piece * c_.factor_step + first;
    const float* token_scale = c_.words.scale + block / piece * c_.n + first;
    const bool whole = (block + 1) % piece == 0 || (k.ends && i + 1 == k.turns);
    const __m512 scale = s_.scales[p][i];
    auto& begun = s_.begun[part][p];
#pragma GCC unroll 16
    for (std::size_t t = 0; t < kTokens; ++t) {
      const __m512 sum = _mm512_mul_ps(_mm512_load_ps(sums[t].data()), _mm512_abs_ps(_mm512_set1_ps(factor[t])));
      __m512i total = _mm512_cvtps_epi32(sum);
      if (piece != 1) {
        total = _mm512_add_epi32(begun[t], total);
        begun[t] = whole ? _mm512_setzero_si512() : total;
        if (!whole) continue;
      }
      f[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(total), _mm512_mul_ps(scale, _mm512_set1_ps(token_scale[t])), f[t]);
    }
  }

  [[gnu::always_inline]] void write(const __m512 (&f)[kTokens], int first, int p, float* out) const {
    const std::byte* head = panel(p);
    const __m512 bias = c_.has_bias ? _mm512_loadu_ps(head + c_.bias) : _mm512_setzero_ps();
#pragma GCC unroll 16
    for (std::size_t t = 0; t < kTokens; ++t) {
      const __m512 r = Codes::kDoubled ? halved(c_, f[t], head) : f[t];
      _mm512_storeu_ps(out + (first + static_cast<int>(t)) * c_.a.ld + p * kPanelRows, _mm512_add_ps(r, bias));
    }
  }

  const GroupCall& c_;
  const Cut& cut_;
  const std::byte* panel_;
  const int panels_;
  Scratch& s_;
  Share& share_;
};

template <class Codes, bool kHalves, int kTokens>
void multiply(const GroupCall& call, const Cut& cut) {
  const GemmArgs& a = call.a;
  TileConfig config(kTokens, kChainWeights);
  if constexpr (kHalves) {
    for (const int tile : {4, 5}) config.column_bytes[tile] = 32;
    for (const int tile : {6, 7}) config.rows[tile] = 8;
  }
  config.load();
  auto& s = *new (a.scratch) Scratch;
  Share share(a, call.stride, a.panel_count * cut.parts * a.shape.blocks() * (kHalves ? 2 : 1));
  in_pairs(a, call.stride, [&]<int kPanels>(const std::byte* panel, std::int64_t column) {
    Pair<Codes, kHalves, kTokens>(call, cut, panel, kPanels, s, share).run(a.out + column);
  });
  _tile_release();
}
template <class Codes, bool kHalves>
void multiply(const GemmArgs& a) {
  const GroupCall call(a);
  const Cut cut(a.n);
  cut.rows == 16   ? multiply<Codes, kHalves, 16>(call, cut)
  : cut.rows == 12 ? multiply<Codes, kHalves, 12>(call, cut)
                   : multiply<Codes, kHalves, 8>(call, cut);
}

template <const Kernel& kFew>
void gemm_fp4(const GemmArgs& a) {
  if (!a.shape.has_values(a.n)) return kFew.gemm(a);
  a.shape.summed_columns() < 32 ? multiply<E2m1, true>(a) : multiply<E2m1, false>(a);
}
void gemm_int4(const GemmArgs& a) {
  if (!a.shape.has_values(a.n)) return kernel_rows::w4a16_blk16_p16_avx512vnni.gemm(a);
  a.matrix->has_zeros ? multiply<Int4Zeros, false>(a) : multiply<Int4, false>(a);
}

constexpr Kernel values_row(std::string_view name, void (*gemm)(const GemmArgs&)) {
  Kernel k = amx_row(name, quantize, gemm, sizeof(Scratch));
  k.takes_values = true;
  return k;
}

}  // namespace

constinit const Kernel kernel_rows::w4a16_blk16_p16_amxbf16 = values_row("w4a16_blk16_p16_amxbf16", gemm_int4);
constinit const Kernel kernel_rows::mxfp4_blk16_p16_amxbf16 =
    values_row("mxfp4_blk16_p16_amxbf16", gemm_fp4<kernel_rows::mxfp4_blk16_p16_avx512vnni>);
constinit const Kernel kernel_rows::nvfp4_blk16_p16_amxbf16 =
    values_row("nvfp4_blk16_p16_amxbf16", gemm_fp4<kernel_rows::nvfp4_blk16_p16_avx512vnni>);

}  // namespace moe::kernels

MOE_TARGET_END
