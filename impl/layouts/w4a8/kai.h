// KleidiAI's packed int4 weights (w4a8_int8.md 5): qsi4cxp, one scale per row, and qsi4c32p, bf16 scales per group. One
// blob serves every micro-kernel of nr 8, kr 16, sr 2.
//
// Eight rows are a tile; rows past N repeat the last one. Columns go in chunks of 32, 128 bytes each: for half h = 0, 1
// and row r eight bytes, byte j = value 32c+8h+j | value 32c+16+8h+j << 4, both in two's complement.
//   qsi4cxp   codes of all chunks (K padded with 0), i32 16 * sum[8], f32 scale / 16 [8], f32 bias[8]
//   qsi4c32p  per group: codes, bf16 scale[8]; then f32 rsum[8], f32 bias[8]
//
// The bytes are those of KleidiAI's packing functions. Our Arm kernels read them as they are, so
// there is no second layout for Arm, and a host may hand the blob to KleidiAI's own kernels. nr, kr
// and sr are KleidiAI's names: 8 rows in a tile, 16 columns in a step, which is 2 parts of 8.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/index.h"
#include "layouts/matrix.h"

namespace moe {

// A chunk of 32 columns of a row is 16 bytes: the low nibbles are columns 0..15, the high ones
// 16..31.
constexpr std::int64_t kKaiRows = 8, kKaiChunk = 32;

// `group` is K for a scale per row. Halves of w13 are not padded apart here: up rows follow gate
// rows directly, and a tile may have rows of both.
struct KaiMatrix {
  std::int64_t rows, k, group;

  explicit constexpr KaiMatrix(const Matrix& m) : rows(m.rows()), k(m.k), group(m.group()) {}

  constexpr bool channel() const { return group == k; }
  constexpr std::int64_t group_count() const { return group == k ? 1 : k / group; }
  // Only a whole row may end within a chunk; groups are multiples of 32.
  constexpr std::int64_t chunks() const { return ceil_div(group, kKaiChunk); }  // of one group
  constexpr std::int64_t tiles() const { return ceil_div(rows, kKaiRows); }

  // Offsets within a tile.
  // The numbers of 8 rows lie side by side, so a kernel loads them as two vectors of four floats.
  // 16 bytes per group are 8 bf16 scales, 32 bytes are 8 of the 4-byte numbers.
  constexpr std::size_t group_bytes() const { return usize(chunks() * 128 + (channel() ? 0 : 16)); }
  constexpr std::size_t code_offset(std::int64_t g, std::int64_t chunk) const {
    return usize(g) * group_bytes() + usize(chunk * 128);
  }
  // The format has no padding between its pieces, so kernels load without alignment.
  constexpr std::size_t sum_offset() const { return usize(group_count()) * group_bytes(); }
  constexpr std::size_t scale_offset(std::int64_t g) const {
    return channel() ? sum_offset() + 32 : code_offset(g, chunks());
  }
  constexpr std::size_t bias_offset() const { return sum_offset() + (channel() ? 64 : 32); }
  constexpr std::size_t tile_bytes() const { return bias_offset() + 32; }
  // PyTorch recognizes a KleidiAI blob by this number of elements alone (w4a8_int8.md 3.3).
  constexpr std::size_t bytes() const { return usize(tiles()) * tile_bytes(); }
};

}  // namespace moe
