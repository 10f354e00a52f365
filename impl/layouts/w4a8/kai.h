// KleidiAI's packed int4 weights (w4a8_int8.md 5): qsi4cxp, one scale per row, and qsi4c32p, bf16 scales per group. One
// blob serves every micro-kernel of nr 8, kr 16, sr 2.
//
// Eight rows are a tile; rows past N repeat the last one. Columns go in chunks of 32, 128 bytes each: for half h = 0, 1
// and row r eight bytes, byte j = value 32c+8h+j | value 32c+16+8h+j << 4, both in two's complement.
//   qsi4cxp   codes of all chunks (K padded with 0), i32 16 * sum[8], f32 scale / 16 [8], f32 bias[8]
//   qsi4c32p  per group: codes, bf16 scale[8]; then f32 rsum[8], f32 bias[8]
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/index.h"
#include "layouts/matrix.h"

namespace moe {

constexpr std::int64_t kKaiRows = 8, kKaiChunk = 32;

struct KaiMatrix {
  std::int64_t rows, k, group;

  explicit constexpr KaiMatrix(const Matrix& m) : rows(m.rows()), k(m.k), group(m.group()) {}

  constexpr bool channel() const { return group == k; }
  constexpr std::int64_t group_count() const { return group == k ? 1 : k / group; }
  constexpr std::int64_t chunks() const { return ceil_div(group, kKaiChunk); }  // of one group
  constexpr std::int64_t tiles() const { return ceil_div(rows, kKaiRows); }

  // Offsets within a tile.
  constexpr std::size_t group_bytes() const { return usize(chunks() * 128 + (channel() ? 0 : 16)); }
  constexpr std::size_t code_offset(std::int64_t g, std::int64_t chunk) const {
    return usize(g) * group_bytes() + usize(chunk * 128);
  }
  constexpr std::size_t sum_offset() const { return usize(group_count()) * group_bytes(); }
  constexpr std::size_t scale_offset(std::int64_t g) const {
    return channel() ? sum_offset() + 32 : code_offset(g, chunks());
  }
  constexpr std::size_t bias_offset() const { return sum_offset() + (channel() ? 64 : 32); }
  constexpr std::size_t tile_bytes() const { return bias_offset() + 32; }
  constexpr std::size_t bytes() const { return usize(tiles()) * tile_bytes(); }
};

}  // namespace moe
