// Where rows, blocks of rows and bytes of a float layout's matrix lie. See float_layout.h.
#include <algorithm>

#include "base/checked.h"
#include "layouts/floats/float_layout.h"

namespace moe {

std::int64_t FloatMatrix::groups() const {
  return four_bits() ? padded_k / (form->grain == Grain::nvfp4 ? 16 : 32) : source.group_count();
}

std::int64_t FloatMatrix::source_row(std::int64_t n) const {
  const std::int64_t all = rows(), half = padded_half_rows;
  if (const std::int64_t block = form->shuffle; block != 0) {
    const std::int64_t p = n % block;
    n += p % 8 * (block / 8) + p / 8 - p;
  }
  if (source.halves == 2) {
    if (const std::int64_t in_turn = gate_up_pairs ? 1 : form->interleave; in_turn != 0)
      n = n / in_turn % 2 * half + n / (2 * in_turn) * in_turn + n % in_turn;
    if (form->up_first) n = (n + half) % all;
    if (padded_behind) return n < source.rows() ? n : -1;
  }
  return n % half < source.half_rows ? n / half * source.half_rows + n % half : -1;
}

bool FloatMatrix::is_as_given() const {
  const bool in_order = !gate_up_pairs && !form->up_first && form->interleave == 0 && form->shuffle == 0;
  return in_order && padded_half_rows == source.half_rows && padded_k == source.k;
}

std::int64_t FloatMatrix::row_blocks() const {
  if (gate_up_pairs) return ceil_div(rows(), kBlockSize);
  return source.halves * ceil_div(source.half_rows, kBlockSize);
}

std::int64_t FloatMatrix::source_row_of_block(std::int64_t b, std::int64_t i) const {
  if (gate_up_pairs) return b * kBlockSize + i < rows() ? source_row(b * kBlockSize + i) : -1;
  const std::int64_t each = ceil_div(source.half_rows, kBlockSize), row = b % each * kBlockSize + i;
  const std::int64_t half = source.halves == 2 && form->up_first ? 1 - b / each : b / each;
  return row < source.half_rows ? half * source.half_rows + row : -1;
}

std::int64_t FloatMatrix::run() const {
  switch (form->place) {
    case WeightPlace::rows:
      return row_bytes();
    case WeightPlace::blocks:
      return kBlockSize;
    case WeightPlace::tiles16:
      return 16;
    case WeightPlace::pairs:
      return 2 * element_bytes();
    default:
      return element_bytes();
  }
}

std::int64_t FloatMatrix::offset(std::int64_t n, std::int64_t b) const {
  const std::int64_t all = rows(), wide = run();
  switch (form->place) {
    case WeightPlace::transposed:
    case WeightPlace::blocks:
      return (b / wide * all + n) * wide;
    case WeightPlace::tiles16:
      return n / 16 * 16 * row_bytes() + (b / wide * 16 + n % 16) * wide;
    case WeightPlace::pairs: {
      const std::int64_t first = n / 32 * 32, count = std::min<std::int64_t>(32, all - first);
      return first * row_bytes() + (b / wide * count + n - first) * wide;
    }
    default:
      return n * row_bytes() + b;
  }
}

}  // namespace moe
