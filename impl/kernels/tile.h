// Tiles: the rows of activations that meet one expert's weights, in the form that gemm reads.
//
// A tile holds n rows (1 <= n <= Kernel::tile_rows) of one expert; its size is n * TileShape::row_bytes(), so the
// tile of slots s..s+n-1 begins at base + s * row_bytes().
//
//   tok8   the rows side by side per unit of 64 k, so that a kernel walks them with one pointer, and one unit is an
//          A tile of AMX:
//            int8  code[ceil(K/64)][n][64]      0 beyond K
//            int32 corr[G][n]                   -bias * sum of the codes of each weight group (weights: value + bias)
//            float recip[n], int32 z[n]
//   blk8   the same codes with a scale per 32 k:
//            int8  code[ceil(K/64)][n][64]
//            int32 corr[ceil(K/32)][n], float scale[ceil(K/32)][n]
//          with weight groups that blocks of 32 don't fit into, corr[ceil(K/32)][32 / gcd(group, 32)][n]
//          bias is 1 for weights with zero points, which kernels multiply corr by
//   blk16  int16 codes as two planes of int8, 255 * high + low, with a scale per 128 columns; with grouped weights per
//          gcd(group, 128) columns, which are at least 32; corr as for blk8:
//            int8  code[ceil(K/64)][n][2][64]
//            int32 corr[ceil(K/columns)][n], float scale[ceil(K/columns)][n]
//   e2m1   twice the value of 4-bit floats, -12 to 12, as blk8; NVFP4: a scale per 16 k, for whole blocks of 32
//   qai8dx for kernels that read KleidiAI's weights; n rows are its packed form qai8dxp of mr = n:
//            int8  code[ceil(K/32)*4][n][8]     beyond K the last one again
//            int32 z[n], float recip[n]
//   bf16   bf16 value[ceil(K/64)*2][n][32]      0 beyond K
//   f32    float value[ceil(K/64)*4][n][16]     0 beyond K
//   e4m3   for kernels of float32 what codes times scales are, as f32; for those of bf16 units, which the shape says:
//          where scales are powers of two the same as bf16, else the codes' values and their scales
//            bf16  value[ceil(K/64)*2][n][32]     0 beyond K
//            float scale[groups][n]
//
// blk16 of a kernel that takes values, in tiles of more than kDigitTokens rows: codes as bf16 numbers. Codes of a bf16
// input are one each, others two whose sum they are. The kernel's file says in which order a row has them, times what:
//            bf16  value[ceil(K/32)][1 or 2][n][32], words as above
//
// Why pieces of all rows lie side by side: a gemm loop takes 64 columns of every row before it goes
// on, so its reads form one ascending stream, and all addresses are one pointer plus constants. For
// AMX such a piece is loaded as it is: 16 rows of 64 bytes. Why words come last: codes stay aligned
// to 64 bytes whatever the number of groups is. Why row_bytes() is a multiple of 64: tiles of any n
// then begin at a cache line.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>

#include "base/checked.h"
#include "base/index.h"
#include "kernels/kernel_ids.h"
#include "layouts/p16/p16.h"
#include "scheme/float_acts.h"

namespace moe::kernels {

// Kernels of bf16 tiles give tiles of at most this many tokens to the AVX-512 row, which reads digits.
constexpr int kDigitTokens = 7;

// The shape of a tile follows from the weights that it meets and from ActFormat. The engine makes
// two per layer, one for w13 (K = H) and one for w2 (K = I); everything below is arithmetic on
// them.
struct TileShape {
  // Columns as packed, so with the places that filling groups up has added.
  std::int64_t k = 0;
  Groups groups = {};  // of the weights that will meet it
  ActFormat act = ActFormat::tok8;
  // Kernels multiply unsigned codes: value + bias. The sum of the activation codes times -bias, put
  // into the sum at its start, takes the offset back without an instruction in the loop.
  std::int32_t bias = 8;  // P16::sum_factor of those weights
  bool qai8dx = false;    // of tok8: in KleidiAI's form
  int values = 0;         // of blk16: bf16 numbers of a code; 0: digits only
  FloatActs floats = {};  // of e4m3
  bool halves = false;    // of e4m3: bf16 numbers, not float32

  constexpr std::int64_t blocks() const { return ceil_div(k, std::int64_t{32}); }  // of 32 k that weights have
  constexpr std::int64_t units() const { return ceil_div(k, kUnitK); }
  constexpr std::int64_t group() const { return groups.size_in(k); }
  constexpr std::int64_t group_count() const { return groups.count_in(k); }
  constexpr int planes() const { return act == ActFormat::blk16 ? 2 : 1; }
  // Whether a tile of n rows has values instead of digits.
  constexpr bool has_values(int n) const { return values != 0 && n > kDigitTokens; }
  // Whether a row of a tile of n rows can be copied to one of m.
  constexpr bool are_alike(int n, int m) const { return has_values(n) == has_values(m); }
  // Columns that share a scale of blk8, blk16, e2m1 and e4m3, and how many such scales a row has.
  // A shorter block keeps more digits of small values beside a large one, a longer one has fewer
  // scales to apply: at 128 columns an fma follows 32 products. gcd keeps a block within one weight
  // group, so that a sum has one weight scale. Below 32 a block would be shorter than the kernels'
  // step.
  constexpr std::int64_t scaled_columns() const {
    if (act == ActFormat::e4m3) return floats.is_grouped() ? floats.columns : std::max(k, std::int64_t{1});
    if (act == ActFormat::e2m1) return groups.is_even() && group() == 16 ? 16 : 32;
    if (act != ActFormat::blk16) return 32;
    return groups.is_whole() ? 128 : std::max(std::int64_t{32}, std::gcd(group(), std::int64_t{128}));
  }
  // Rows of e2m1 have scales of whole blocks of 32 columns.
  constexpr std::int64_t scale_count() const {
    return ceil_div(act == ActFormat::e2m1 ? blocks() * 32 : k, scaled_columns());
  }
  // Whether a bf16 row of e4m3 has scales beside its codes.
  constexpr bool has_row_scales() const { return act == ActFormat::e4m3 && halves && !floats.powers_of_two(); }
  // Columns of one sum, which has a correction of its own: those that share both this scale and that of the weights.
  // Shorter than a block only for NVFP4: 16 columns of weights share a scale, 32 of activations do (16 of e2m1).
  constexpr std::int64_t summed_columns() const {
    return groups.is_whole() ? scaled_columns() : std::gcd(group(), scaled_columns());
  }
  constexpr std::int64_t sum_count() const { return scale_count() * (scaled_columns() / summed_columns()); }
  // Codes reach to the end of a whole unit with zeros, so a kernel never asks where K ends: a
  // product with 0 adds nothing. KleidiAI's format pads to its own step of 32 and repeats the last
  // code, whose weights are 0.
  constexpr std::size_t code_bytes() const {
    return usize(qai8dx ? round_up(k, std::int64_t{32}) : units() * kUnitK * std::max(planes(), 2 * values));
  }
  constexpr std::size_t code_bytes(int n) const { return code_bytes() * usize(n); }  // of a tile of n rows
  // Codes lie in pieces: one piece of each row, then the next piece of each row. Words of 4 bytes follow them.
  constexpr std::size_t piece() const { return qai8dx ? 8 : usize(64 * planes()); }
  constexpr std::size_t piece(int n) const { return has_values(n) ? 64 : piece(); }
  constexpr std::size_t piece_bytes() const { return code_bytes() * number_bytes(); }
  constexpr std::size_t number_bytes() const {
    if (act == ActFormat::f32 || act == ActFormat::e4m3) return halves ? 2 : 4;
    return act == ActFormat::bf16 ? 2 : 1;
  }
  // float32 and bf16 rows are the values, so they have neither corrections nor scales, but for codes of e4m3. tok8 has
  // a correction per weight group and two numbers per row; qai8dx leaves corrections to the kernel, because KleidiAI's
  // weights are signed and need none.
  constexpr std::int64_t words() const {
    if (act == ActFormat::f32 || act == ActFormat::bf16) return 0;
    if (act == ActFormat::e4m3) return has_row_scales() ? scale_count() : 0;
    if (act == ActFormat::blk8 || act == ActFormat::blk16 || act == ActFormat::e2m1) return sum_count() + scale_count();
    return qai8dx ? 2 : group_count() + 2;
  }
  constexpr std::size_t row_bytes() const { return round_up(piece_bytes() + usize(words()) * 4, std::size_t{64}); }
};

// A row's place: row `row` of the tile of n rows at `tile`.
// Rows of one tile are written by different threads, each into its own pieces: there is no lock.
struct TilePlace {
  std::byte* tile;
  int n, row;
};

// The pieces of a tok8 row in its place.
// Strides are in elements of the pointer beside them.
struct QuantRow {
  std::int8_t* codes;  // 64 codes of unit u at codes + u * code_stride
  std::ptrdiff_t code_stride;
  std::int32_t* corr;  // of group g at corr[g * corr_stride]
  std::ptrdiff_t corr_stride;
  float* recip;
  // Minus the zero point of the activations: kernels add z * (sum of weights) instead of
  // subtracting.
  std::int32_t* z;
};

// The order codes, corr, recip, z is the one that gemm functions repeat by hand (struct Tile in the
// W4A8 rows): change both.
inline QuantRow quant_row(const TileShape& shape, const TilePlace& at) {
  auto* corr = reinterpret_cast<std::int32_t*>(at.tile + shape.code_bytes(at.n));
  auto* recip = reinterpret_cast<float*>(corr + shape.group_count() * at.n);
  return {reinterpret_cast<std::int8_t*>(at.tile) + at.row * kUnitK, at.n * kUnitK, corr + at.row, at.n, recip + at.row,
          reinterpret_cast<std::int32_t*>(recip + at.n) + at.row};
}

// The pieces of a qai8dx row in its place: eight codes of block b at codes + b * code_stride.
struct KaiRow {
  std::int8_t* codes;
  std::ptrdiff_t code_stride;
  std::int32_t* z;
  float* recip;
};

inline KaiRow kai_row(const TileShape& shape, const TilePlace& at) {
  auto* z = reinterpret_cast<std::int32_t*>(at.tile + shape.code_bytes(at.n));
  return {reinterpret_cast<std::int8_t*>(at.tile) + at.row * 8, at.n * 8, z + at.row,
          reinterpret_cast<float*>(z + at.n) + at.row};
}

// The pieces of a blk8, blk16 or e2m1 row in its place: codes as above, the low plane of blk16 64 bytes behind the high
// one, words of sum or block b at [b * stride].
struct BlockRow {
  std::int8_t* codes;
  std::ptrdiff_t code_stride;
  std::int32_t* corr;
  float* scale;
  std::ptrdiff_t stride;
};

inline BlockRow block_row(const TileShape& shape, const TilePlace& at) {
  auto* corr = reinterpret_cast<std::int32_t*>(at.tile + shape.code_bytes(at.n));
  auto* scale = reinterpret_cast<float*>(corr + shape.sum_count() * at.n);
  const std::ptrdiff_t piece = kUnitK * shape.planes();
  return {reinterpret_cast<std::int8_t*>(at.tile) + at.row * piece, at.n * piece, corr + at.row, scale + at.row, at.n};
}

// The scales of a row of e4m3 that has some, of group g at [g * n].
inline float* row_scales(const TileShape& shape, const TilePlace& at) {
  return reinterpret_cast<float*>(at.tile + shape.piece_bytes() * usize(at.n)) + at.row;
}

// Where the codes of block `block` of 32 k begin in a tile of n rows (blk16: n planes); they are kUnitK apart.
// Two blocks of 32 share a unit of 64, so odd blocks begin in the middle of a piece and not behind
// the pieces of all rows.
constexpr std::int64_t block_offset(std::int64_t block, int n) { return (block >> 1) * kUnitK * n + (block & 1) * 32; }

// Where value k of row `row` lies in a bf16 tile of n rows; 32 values are together.
constexpr std::int64_t half_offset(std::int64_t k, int row, int n) { return (k / 32 * n + row) * 32 + k % 32; }

// Where value k of row `row` lies in a f32 tile of n rows; 16 values are together.
// 16 floats are a cache line, the piece of a row: kernels broadcast one value at a time from it,
// and all rows' values of 16 columns stay within n lines.
constexpr std::int64_t float_offset(std::int64_t k, int row, int n) { return (k / 16 * n + row) * 16 + k % 16; }

// Prefetches a destination row for writing. Its pieces are single cache lines far apart; hardware prefetchers miss that
// pattern.
// always_inline: GCC takes a function that only prefetches for one without effects and drops its calls.
[[gnu::always_inline]] inline void prefetch_tile_row(const TileShape& shape, const TilePlace& to) {
  const std::size_t piece = shape.piece(to.n), end = shape.piece_bytes(), step = piece * usize(to.n);
  std::byte* b = to.tile + usize(to.row) * piece;
  for (std::size_t at = 0; at < end; at += piece, b += step) __builtin_prefetch(b, 1);
}

// Pieces of a size that the compiler knows are copied without a call.
// A memcpy of 64 known bytes is one or two vector moves; a call for each piece would cost more than
// the copy. 0: the size is only known at run time.
template <std::size_t Known>
inline void copy_pieces(const std::byte* a, std::size_t n, std::byte* b, std::size_t m, std::size_t piece,
                        std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += piece) std::memcpy(b + at * m, a + at * n, Known == 0 ? piece : Known);
}

// The same row in another tile, which is like its own (are_alike).
// With the input not weighted, all slots of a token have the same row: it is quantized once and
// copied into the tiles of its other experts, which may have other n.
inline void copy_tile_row(const TileShape& shape, const TilePlace& from, const TilePlace& to) {
  const std::size_t n = usize(from.n), m = usize(to.n);
  const std::size_t piece = shape.piece(from.n), bytes = shape.piece_bytes();
  const std::byte* a = from.tile + usize(from.row) * piece;
  std::byte* b = to.tile + usize(to.row) * piece;
  (piece == 64 ? copy_pieces<64> : piece == 128 ? copy_pieces<128> : copy_pieces<0>)(a, n, b, m, piece, bytes);
  a = from.tile + bytes * n + from.row * 4;
  b = to.tile + bytes * m + to.row * 4;
  for (std::size_t word = 0, words = usize(shape.words()); word < words; ++word)
    std::memcpy(b + word * m * 4, a + word * n * 4, 4);
}

}  // namespace moe::kernels
