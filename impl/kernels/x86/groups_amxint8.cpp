// Weights of 4 and 8 bits on AMX-INT8 where a sum ends with a block of 32 columns: groups of 32 with int8 activations
// per token (tok8) and with two digits for each activation of 16 bits (blk16), all groups with int8 activations per
// block (blk8; definitions: kernels/ref/w4a8.cpp, kernels/ref/symmetric.h).
//
// A sum is one product of tiles of 32 columns, half of what a tile holds, and an instruction takes as long for it. What
// bounds it is that each sum is stored, loaded and scaled. groups_amxbf16.cpp has the same walk:
//
//   chunk  16 blocks of 32 columns of one panel: as B tiles of signed bytes, with their scales, they lie in L1 while
//          all tokens pass
//   part   8, 12 or 16 rows of an A tile as it lies, half as many tokens where each has two; their results stay in
//          vector registers
//   turn   one sum. Three are under way: products of sum i, stores of sum i - 1, scales of sum i - 2
//
// Weights that few tokens meet come from memory, which the AVX-512 rows read as fast.
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <type_traits>

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

constexpr int kTileTokens = tile_rows("w8a8_blk8_p16_amxint8"), kTileRows = kTileTokens;
constexpr int kFewTokens = 31;

#include "kernels/x86/vector_avx512.inl"

#include "kernels/body/symmetric_tile.inl"

#include "kernels/x86/amx_tiles.inl"

#include "kernels/x86/dot_amx.inl"

#include "kernels/x86/read_ahead.inl"

// --- weights ------------------------------------------------------------------------------------

// How 32 columns of a panel become a B tile.
struct Int8 {
  static constexpr bool kDoubled = false;
  static constexpr std::size_t kBytes = 512;
  [[gnu::always_inline]] static inline void expand(const std::byte* codes, std::uint8_t* to) {
#pragma GCC unroll 8
    for (std::size_t row = 0; row < 8; ++row)
      _mm512_store_si512(to + 64 * row, _mm512_xor_si512(_mm512_loadu_si512(codes + 64 * row), _mm512_set1_epi8(-128)));
  }
};
struct Int4 {
  static constexpr bool kDoubled = false;
  static constexpr std::size_t kBytes = 256;
  [[gnu::always_inline]] static inline void expand(const std::byte* codes, std::uint8_t* to) {
    Nibbles::expand(codes, to, 0, _mm512_set1_epi8(8));
  }
};
// Twice the values.
struct E2m1 {
  static constexpr bool kDoubled = true;
  static constexpr std::size_t kBytes = 256;
  [[gnu::always_inline]] static inline void expand(const std::byte* codes, std::uint8_t* to) {
    const __m512i mask = _mm512_set1_epi8(15),
                  values = _mm512_sub_epi8(V::repeated(kE2m1Codes.data()), _mm512_set1_epi8(12));
#pragma GCC unroll 4
    for (std::size_t i = 0; i < 4; ++i) {
      const __m512i v = _mm512_loadu_si512(codes + 64 * i), high = _mm512_srli_epi16(v, 4);
      _mm512_store_si512(to + 64 * i, _mm512_shuffle_epi8(values, _mm512_and_si512(v, mask)));
      _mm512_store_si512(to + 64 * (i + 4), _mm512_shuffle_epi8(values, _mm512_and_si512(high, mask)));
    }
  }
};

// W4A8: tokens have zero points.
struct PerShiftedToken : PerToken {
  const std::int32_t* z;  // [n]
  PerShiftedToken(const GemmArgs& a, int first)
      : PerToken(a, first), z(reinterpret_cast<const std::int32_t*>(scale + a.n)) {}
};
template <class Facts>
constexpr bool kShifted = std::is_same_v<Facts, PerShiftedToken>;

// --- products -----------------------------------------------------------------------------------

constexpr std::int64_t kChunkBlocks = 16;

using Sums = std::array<std::array<std::int32_t, 16>, kPartRows>;

struct alignas(64) Scratch {
  std::array<std::array<std::uint8_t, 512>, kChunkBlocks> weights;
  __m512 scales[kChunkBlocks];
  std::array<Sums, 2> sums;     // of the last turns
  __m512 results[kTileTokens];  // of one part behind another; Cut has no more rows than the next multiple of 8
};

// Of a matrix and a tile, asked for once.
template <class Facts>
struct BlockCall : Call<Facts> {
  std::int64_t blocks, blocks_of_group;
  std::size_t row_sums;  // of a panel

  [[gnu::flatten]] explicit BlockCall(const GemmArgs& args)
      : Call<Facts>(args),
        blocks(args.shape.blocks()),
        blocks_of_group(args.matrix->groups.is_whole() ? INT64_MAX : args.matrix->group() / 32),
        row_sums(args.matrix->sum_offset()) {}
  int first(int part, int tokens) const { return std::min(part * tokens, this->n - tokens); }
};

// Tile registers of a turn: 0 and 1 sums, 4 and 5 activations, 6 and 7 weights.
template <int kTurn>
struct Turn {
  [[gnu::always_inline]] static inline void multiply(const std::byte* x, const std::uint8_t* w) {
    if constexpr (kTurn == 0) {  // the intrinsics want literal numbers
      _tile_zero(0);
      _tile_loadd(4, x, 64);
      _tile_loadd(6, w, 64);
      _tile_dpbssd(0, 4, 6);
    } else {
      _tile_zero(1);
      _tile_loadd(5, x, 64);
      _tile_loadd(7, w, 64);
      _tile_dpbssd(1, 5, 7);
    }
  }
  [[gnu::always_inline]] static inline void store(Sums& to) {
    if constexpr (kTurn == 0)
      _tile_stored(0, to.data(), 64);
    else
      _tile_stored(1, to.data(), 64);
  }
};

// One panel against the tile, in parts of kRows of its rows.
template <class Codes, class Facts, int kRows>
class Panel {
  static constexpr int kTokens = kRows / Facts::kPlanes;

 public:
  Panel(const BlockCall<Facts>& call, const Cut& cut, const std::byte* panel, Scratch& s, Share& share)
      : c_(call), cut_(cut), panel_(panel), s_(s), share_(share) {}

  void run(float* out) {
    for (std::int64_t block = 0; block < c_.blocks; block += kChunkBlocks) {
      const std::int64_t count = std::min(kChunkBlocks, c_.blocks - block);
      prepare(block, count);
      for (int part = 0; part < cut_.parts; ++part) multiply(block, count, part, out);
    }
  }

 private:
  // Weights and scales of a chunk.
  [[gnu::noinline]] void prepare(std::int64_t first, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t block = first + i, group = block / c_.blocks_of_group;
      ScaleWalk walk = c_.scales;
      walk.at += usize(group / 2) * (walk.step + walk.other_step) + usize(group % 2) * walk.step;
      s_.scales[i] = Codes::kDoubled ? V::load_e8m0(panel_ + walk.at) : load_scales(walk, panel_);
      const std::byte* codes = panel_ + c_.header + usize(block / 2) * (c_.unit_header + 2 * Codes::kBytes) +
                               c_.unit_header + usize(block % 2) * Codes::kBytes;
      Codes::expand(codes, at(s_.weights, i).data());
    }
  }

  // noinline: it needs all registers
  [[gnu::noinline]] void multiply(std::int64_t block, std::int64_t count, int part, float* out) {
    __asm__ volatile("" ::
                         : "memory");  // GCC's tile loads do not say that they read: what was just written is there now
    __m512* kept = s_.results + part * kTokens;
    __m512 f[kTokens];
#pragma GCC unroll 16
    for (std::size_t t = 0; t < kTokens; ++t) f[t] = block == 0 ? _mm512_setzero_ps() : kept[t];
    const int first = c_.first(part, kTokens);
    Share share = share_;
    for (std::int64_t i = 0; i < count + 2; i += 2) {
      turn<0>(block, i, count, first, f, share);
      turn<1>(block, i + 1, count, first, f, share);
    }
    share_ = share;
    if (block + count == c_.blocks) return write(f, first, out);
#pragma GCC unroll 16
    for (std::size_t t = 0; t < kTokens; ++t) kept[t] = f[t];
  }

  template <int kTurn>
  [[gnu::always_inline]] void turn(std::int64_t block, std::int64_t i, std::int64_t count, int first,
                                   __m512 (&f)[kTokens], Share& share) {
    if (i < count) {
      const std::byte* x =
          c_.a.tile + block_offset(block + i, c_.n * Facts::kPlanes) + first * std::ptrdiff_t{Facts::kPlanes * kUnitK};
      Turn<kTurn>::multiply(x, s_.weights[0].data() + i * 512);
      share.advance();
    }
    if (i >= 2 && i < count + 2) scale_sums(block + i - 2, s_.scales[i - 2], s_.sums[kTurn], first, f);
    if (i >= 1 && i <= count) Turn<1 - kTurn>::store(s_.sums[1 - kTurn]);
  }

  // results = fma(sum, its scales, results)
  [[gnu::always_inline]] void scale_sums(std::int64_t block, __m512 scale, const Sums& sums, int first,
                                         __m512 (&f)[kTokens]) const {
    const float* token_scale = Facts::kBlocks ? c_.words.scale + block * c_.n + first : nullptr;
#pragma GCC unroll 16
    for (std::size_t t = 0; t < kTokens; ++t) {
      const std::size_t row = t * Facts::kPlanes;
      __m512 sum = _mm512_cvtepi32_ps(_mm512_load_si512(sums[row].data()));
      if constexpr (Facts::kPlanes == 2)  // one rounding, that of the integer 255 * high + low
        sum = _mm512_fmadd_ps(sum, _mm512_set1_ps(255.0f), _mm512_cvtepi32_ps(_mm512_load_si512(sums[row + 1].data())));
      f[t] = _mm512_fmadd_ps(sum, Facts::kBlocks ? _mm512_mul_ps(scale, _mm512_set1_ps(token_scale[t])) : scale, f[t]);
    }
  }

  [[gnu::always_inline]] void write(const __m512 (&f)[kTokens], int first, float* out) const {
    const __m512 row_sums = kShifted<Facts> ? _mm512_loadu_ps(panel_ + c_.row_sums) : _mm512_setzero_ps();
    const __m512 bias = c_.has_bias ? _mm512_loadu_ps(panel_ + c_.bias) : _mm512_setzero_ps();
#pragma GCC unroll 16
    for (std::size_t t = 0; t < kTokens; ++t) {
      const int token = first + static_cast<int>(t);
      __m512 r = f[t];
      if constexpr (kShifted<Facts>)
        r = _mm512_fmadd_ps(row_sums, _mm512_set1_ps(static_cast<float>(c_.words.z[token])), r);
      if constexpr (!Facts::kBlocks) r = _mm512_mul_ps(r, _mm512_set1_ps(c_.words.scale[token]));
      if constexpr (Codes::kDoubled) r = halved(c_, r, panel_);
      _mm512_storeu_ps(out + token * c_.a.ld, _mm512_add_ps(r, bias));
    }
  }

  const BlockCall<Facts>& c_;
  const Cut& cut_;
  const std::byte* panel_;
  Scratch& s_;
  Share& share_;
};

template <class Codes, class Facts, int kRows>
void multiply(const BlockCall<Facts>& call, const Cut& cut) {
  const GemmArgs& a = call.a;
  TileConfig config(kRows, kChainWeights);
  for (const int tile : {4, 5}) config.column_bytes[tile] = 32;
  for (const int tile : {6, 7}) config.rows[tile] = 8;
  config.load();
  auto& s = *new (a.scratch) Scratch;
  Share share(a, call.stride, a.panel_count * cut.parts * call.blocks);
  for (std::int64_t p = 0; p < a.panel_count; ++p)
    Panel<Codes, Facts, kRows>(call, cut, a.panels + usize(p) * call.stride, s, share).run(a.out + p * kPanelRows);
  _tile_release();
}
template <class Codes, class Facts>
void multiply(const GemmArgs& a) {
  const BlockCall<Facts> call(a);
  const Cut cut(a.n * Facts::kPlanes);
  cut.rows == 16   ? multiply<Codes, Facts, 16>(call, cut)
  : cut.rows == 12 ? multiply<Codes, Facts, 12>(call, cut)
                   : multiply<Codes, Facts, 8>(call, cut);
}

// Zero points are few files', and would cost a multiplication and an addition for each sum.
template <class Codes, const Kernel& kFew>
void gemm_blocks(const GemmArgs& a) {
  if (a.n <= kFewTokens || a.matrix->has_zeros) return kFew.gemm(a);
  multiply<Codes, PerBlock>(a);
}
template <class Codes, class Facts, const Kernel& kFew>
void gemm_groups(const GemmArgs& a) {
  const bool of_a_block = !a.matrix->groups.is_whole() && a.matrix->group() == 32;
  if (a.n <= kFewTokens || !of_a_block) return kFew.gemm(a);
  multiply<Codes, Facts>(a);
}

// `few`: the row that takes few tokens.
constexpr Kernel row(std::string_view name, std::string_view few, void (*quantize)(const QuantizeArgs&),
                     void (*gemm)(const GemmArgs&)) {
  Kernel k = amx_row(name, quantize, gemm, sizeof(Scratch));
  k.few = kFewTokens;
  k.few_rows = kKernelIds[*kernel_index(few)].tile_rows;
  return k;
}

}  // namespace

constinit const Kernel kernel_rows::w8a8_blk8_p16_amxint8 =
    row("w8a8_blk8_p16_amxint8", "w8a8_blk8_p16_avx512vnni", avx512::quantize_blocks,
        gemm_blocks<Int8, kernel_rows::w8a8_blk8_p16_avx512vnni>);
constinit const Kernel kernel_rows::w4a8_blk8_p16_amxint8 =
    row("w4a8_blk8_p16_amxint8", "w4a8_blk8_p16_avx512vnni", avx512::quantize_blocks,
        gemm_blocks<Int4, kernel_rows::w4a8_blk8_p16_avx512vnni>);
constinit const Kernel kernel_rows::w4a8_blk8_p16_amxint8_zp =
    row("w4a8_blk8_p16_amxint8_zp", "w4a8_blk8_p16_avx512vnni_zp", avx512::quantize_blocks,
        gemm_blocks<Int4, kernel_rows::w4a8_blk8_p16_avx512vnni_zp>);
constinit const Kernel kernel_rows::mxfp4_blk8_p16_amxint8 =
    row("mxfp4_blk8_p16_amxint8", "mxfp4_blk8_p16_avx512vnni", avx512::quantize_blocks,
        gemm_blocks<E2m1, kernel_rows::mxfp4_blk8_p16_avx512vnni>);
constinit const Kernel kernel_rows::w8a8_tok8_p16_amxint8_g32 =
    row("w8a8_tok8_p16_amxint8_g32", "w8a8_tok8_p16_avx512vnni", avx512::quantize_symmetric,
        gemm_groups<Int8, PerToken, kernel_rows::w8a8_tok8_p16_avx512vnni>);
constinit const Kernel kernel_rows::w4a8_tok8_p16_amxint8_g32 =
    row("w4a8_tok8_p16_amxint8_g32", "w4a8_tok8_p16_avx512vnni", avx512::quantize_tok8,
        gemm_groups<Int4, PerShiftedToken, kernel_rows::w4a8_tok8_p16_avx512vnni>);
constinit const Kernel kernel_rows::w8a16_blk16_p16_amxint8_g32 =
    row("w8a16_blk16_p16_amxint8_g32", "w8a16_blk16_p16_avx512vnni", avx512::quantize_digits,
        gemm_groups<Int8, Per16, kernel_rows::w8a16_blk16_p16_avx512vnni>);

}  // namespace moe::kernels

MOE_TARGET_END
