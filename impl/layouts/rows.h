// The plain form between readers and writers: some rows of one expert's matrix, independent of how a
// checkpoint stores them and of how a layout wants them.
//
//   codes  int8 [count][stride]   integers: stored code - 8 or - 128 (without zero points: the value); small floats:
//                                 the code, which is finite; columns in the checkpoint's order, k >= K are 0, stride
//                                 a multiple of 64
//   values f32  [count][stride]   instead of codes, where weights are not quantized; exact in the layout's element
//   scales f32  [count][groups]   finite; of either sign, also -0, with integers, not negative with floats; numbers of
//                                 the layout's type of scales
//   tensor_scales f32 [count]     of NVFP4: the scale of the row's projection, which multiplies the scales of groups
//   zeros  u8   [count][groups]   with zero points: the code of value 0, whatever the checkpoint's convention (plus_one
//                                 makes 16 of a stored 15); value = (code + 8 or 128 - zero) * scale
//   bias   f32  [count]           0 without a bias
//   g_idx  i32  [K]               with act-order: the group of each column, one list for all rows of the matrix; empty
//                                 where column k is of group k / (K / groups)
//
// K and groups are the checkpoint's. Where a layout has columns in places of their own (column_order.h), its writer
// sees the places instead.
//
// A writer asks for as many rows as it can use (a panel of 16, or all), so the plain form of an expert
// never has to exist as a whole and stays in cache.
//
// With N readers and M writers there are N + M conversions instead of N * M, and each is tested
// against the plain form. The form is wide on purpose (a byte for 4 bits, float32 scales): it lives
// in cache for a few rows, so its size costs nothing, and every source fits in. Why scales are
// float32: f16, bf16, e4m3 and e8m0 all fit in exactly. Why codes are signed here and unsigned in
// layouts: int8 holds both widths around 0, and every layout adds its own bias.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/checked.h"
#include "base/index.h"
#include "layouts/matrix.h"

namespace moe {

// A unit of p16: panel writers read whole vectors at the end of a row and find zeros there.
constexpr std::int64_t kCanonicalPad = 64;

// A struct with public vectors: readers fill it piece by piece, from files of several formats. One
// object is used again for all experts, so memory is allocated once.
struct CanonicalRows {
  std::int64_t count = 0, k = 0, stride = 0, groups = 0;
  std::vector<std::int8_t> codes;
  std::vector<float> values, scales, tensor_scales, bias;
  std::vector<std::uint8_t> zeros;
  std::vector<std::int32_t> g_idx;
  // A total and not a flag: moe_packed_to_json reports how many numbers of the checkpoint a layout
  // could not hold, and a caller decides whether that matters.
  std::uint64_t scales_rounded = 0;  // running total over all reads
  // Of a whole matrix: the largest scale of its activations, where the checkpoint has one; whether scales came as
  // powers of two; and what a writer says: the codes are new ones.
  std::optional<float> input_scale;
  bool has_power_scales = false, requantized = false;

  // Space for `rows` rows, all zero: as the checkpoint has them, or the layout (`places`).
  // Zero is what padding must be: code 0 is the value 0, scale 0 gives 0 whatever the code.
  // `places` has the layout's columns (filled groups), else the checkpoint's.
  void shape(std::int64_t rows, const Matrix& matrix, bool places = false) {
    const bool has_values = is_value(matrix.element);
    count = rows;
    k = places ? matrix.k : matrix.columns();
    stride = round_up(k, kCanonicalPad);
    groups = has_values ? 0 : places ? matrix.group_count() : matrix.source_count();
    codes.assign(has_values ? 0 : usize(rows * stride), 0);
    values.assign(has_values ? usize(rows * stride) : 0, 0.0f);
    scales.assign(usize(rows * groups), 0.0f);
    // 1 and not 0: it multiplies the scales, also those of padded rows.
    tensor_scales.assign(matrix.has_tensor_scale() ? usize(rows) : 0, 1.0f);
    zeros.assign(matrix.has_zeros ? scales.size() : 0, 0);
    bias.assign(usize(rows), 0.0f);
    g_idx.clear();
    input_scale.reset();
    has_power_scales = requantized = false;
  }
  // Zero from row n on.
  // The last panel of a matrix has fewer rows than 16, and the object still has those of the panel
  // before.
  void clear_from(std::int64_t n) {
    if (n >= count) return;
    if (!codes.empty()) std::fill(codes.begin() + n * stride, codes.end(), std::int8_t{0});
    if (!values.empty()) std::fill(values.begin() + n * stride, values.end(), 0.0f);
    std::fill(scales.begin() + n * groups, scales.end(), 0.0f);
    if (!zeros.empty()) std::fill(zeros.begin() + n * groups, zeros.end(), std::uint8_t{0});
    std::fill(bias.begin() + n, bias.end(), 0.0f);  // tensor scales are of all rows
  }
  // Heap memory held by the vectors.
  std::size_t bytes() const {
    return codes.capacity() + zeros.capacity() +
           4 * (values.capacity() + scales.capacity() + tensor_scales.capacity() + bias.capacity() + g_idx.capacity());
  }
  // Rows are 64 bytes apart at least, so a writer may load whole vectors from any of them.
  const std::int8_t* row(std::int64_t r) const { return codes.data() + r * stride; }
  const float* row_values(std::int64_t r) const { return values.data() + r * stride; }
  const float* row_scales(std::int64_t r) const { return scales.data() + r * groups; }
};

}  // namespace moe
