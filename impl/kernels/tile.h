// Tiles: the rows of activations that meet one expert's weights, in the form that gemm reads.
//
// A tile holds n rows (1 <= n <= Kernel::tile_rows) of one expert; its size is n * TileShape::row_bytes(), so the
// tile of slots s..s+n-1 begins at base + s * row_bytes().
//
//   tok8   the rows side by side per unit of 64 k, so that a kernel walks them with one pointer, and one unit is an
//          A tile of AMX:
//            int8  code[ceil(K/64)][n][64]      0 beyond K
//            int32 corr[G][n]                   -8 * sum of the codes of each weight group (the weights are value + 8)
//            float recip[n], int32 z[n]
//   f32    float row[n][K padded to 64]         0 beyond K
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/checked.h"
#include "scheme/kernel_ids.h"

namespace moe {

struct TileShape {
  std::int64_t k = 0;
  std::int64_t group = 0;  // of the weights that will meet it; == k: channel-wise
  ActFormat act = ActFormat::tok8;

  constexpr std::int64_t blocks() const { return ceil_div(k, std::int64_t{32}); }  // of 32 k that weights have
  constexpr std::int64_t units() const { return ceil_div(k, kUnitK); }
  constexpr std::int64_t groups() const { return k / group; }
  constexpr std::size_t code_bytes() const { return static_cast<std::size_t>(units() * kUnitK); }
  constexpr std::int64_t padded() const { return round_up(k, kUnitK); }
  constexpr std::size_t row_bytes() const {
    if (act == ActFormat::f32) return static_cast<std::size_t>(padded()) * sizeof(float);
    return round_up(code_bytes() + static_cast<std::size_t>(groups()) * 4 + 8, std::size_t{64});
  }
};

// A row's place: row `row` of the tile of n rows at `tile`.
struct TilePlace {
  std::byte* tile;
  int n, row;
};

// The pieces of a tok8 row in its place.
struct QuantRow {
  std::int8_t* codes;  // 64 codes of unit u at codes + u * code_stride
  std::ptrdiff_t code_stride;
  std::int32_t* corr;  // of group g at corr[g * corr_stride]
  std::ptrdiff_t corr_stride;
  float* recip;
  std::int32_t* z;
};

inline QuantRow quant_row(const TileShape& shape, const TilePlace& at) {
  auto* corr = reinterpret_cast<std::int32_t*>(at.tile + shape.code_bytes() * static_cast<std::size_t>(at.n));
  auto* recip = reinterpret_cast<float*>(corr + shape.groups() * at.n);
  return {reinterpret_cast<std::int8_t*>(at.tile) + at.row * kUnitK, at.n * kUnitK, corr + at.row, at.n, recip + at.row,
          reinterpret_cast<std::int32_t*>(recip + at.n) + at.row};
}

// Where the codes of block `block` of 32 k begin in a tile of n rows; the rows are kUnitK apart.
constexpr std::int64_t block_offset(std::int64_t block, int n) { return (block >> 1) * kUnitK * n + (block & 1) * 32; }

inline float* float_row(const TileShape& shape, const TilePlace& at) {
  return reinterpret_cast<float*>(at.tile + static_cast<std::size_t>(at.row) * shape.row_bytes());
}

// The same row in another tile.
inline void copy_tile_row(const TileShape& shape, const TilePlace& from, const TilePlace& to) {
  if (shape.act == ActFormat::f32) {
    std::memcpy(float_row(shape, to), float_row(shape, from), shape.row_bytes());
    return;
  }
  const QuantRow a = quant_row(shape, from), b = quant_row(shape, to);
  for (std::int64_t u = 0; u < shape.units(); ++u)
    std::memcpy(b.codes + u * b.code_stride, a.codes + u * a.code_stride, kUnitK);
  for (std::int64_t g = 0; g < shape.groups(); ++g) b.corr[g * b.corr_stride] = a.corr[g * a.corr_stride];
  *b.recip = *a.recip;
  *b.z = *a.z;
}

}  // namespace moe
