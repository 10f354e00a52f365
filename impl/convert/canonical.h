// The plain form between readers and writers: some rows of one expert's matrix, independent of how a
// checkpoint stores them and of how a layout wants them.
//
//   codes  int8 [count][stride]   values -8..7 or -128..127, with zero points the stored code - 8 or - 128; columns
//                                 k >= K are 0, stride a multiple of 64
//   values f32  [count][stride]   instead of codes, where weights are not quantized; exact in the layout's element
//   scales f32  [count][groups]   finite, not negative; bf16 values where `bf16_scales` was asked for
//   zeros  u8   [count][groups]   with zero points: the stored code of value 0
//   bias   f32  [count]           0 without a bias
//
// A writer asks for as many rows as it can use (a panel of 16, or all), so the plain form of an expert
// never has to exist as a whole and stays in cache.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "base/checked.h"
#include "base/result.h"
#include "base/tensor.h"
#include "scheme/layout.h"
#include "scheme/scheme.h"

namespace moe {

constexpr std::int64_t kCanonicalPad = 64;

// Row r of a half is row first + step * r of the tensor that the caller knows: for messages.
struct RowNumbers {
  std::int64_t first = 0, step = 1;
};

// The tensors of one half (w13: gate or up; w2 has one half) of one expert's matrix.
struct SourceHalf {
  TensorView codes, scales, bias;  // [rows, K or words], [rows, G], [rows] if has_bias
  RowNumbers code_rows, scale_rows;
};

struct SourceMatrix {
  Format format = Format::int_quantized;
  bool is_w13 = false;
  bool has_bias = false;
  bool bf16_scales = false;         // round scales to bf16 and count the inexact ones
  Element element = Element::int4;  // of the layout
  std::int64_t expert = 0;          // the model's number
  std::int64_t k = 0, groups = 0;
  std::array<SourceHalf, 2> half;
};

struct CanonicalRows {
  std::int64_t count = 0, k = 0, stride = 0, groups = 0;
  std::vector<std::int8_t> codes;
  std::vector<float> values, scales, bias;
  std::vector<std::uint8_t> zeros;
  std::uint64_t scales_rounded = 0;  // running total over all reads

  // Room for `rows` rows, all zero.
  void shape(std::int64_t rows, const P16Matrix& matrix) {
    const bool is_float = !is_integer(matrix.element);
    count = rows;
    k = matrix.k;
    stride = round_up(k, kCanonicalPad);
    groups = is_float ? 0 : matrix.groups();
    codes.assign(is_float ? 0 : static_cast<std::size_t>(rows * stride), 0);
    values.assign(is_float ? static_cast<std::size_t>(rows * stride) : 0, 0.0f);
    scales.assign(static_cast<std::size_t>(rows * groups), 0.0f);
    zeros.assign(matrix.has_zeros ? scales.size() : 0, 0);
    bias.assign(static_cast<std::size_t>(rows), 0.0f);
  }
  // Zero from row n on.
  void clear_from(std::int64_t n) {
    if (n >= count) return;
    if (!codes.empty()) std::fill(codes.begin() + n * stride, codes.end(), std::int8_t{0});
    if (!values.empty()) std::fill(values.begin() + n * stride, values.end(), 0.0f);
    std::fill(scales.begin() + n * groups, scales.end(), 0.0f);
    if (!zeros.empty()) std::fill(zeros.begin() + n * groups, zeros.end(), std::uint8_t{0});
    std::fill(bias.begin() + n, bias.end(), 0.0f);
  }
  const std::int8_t* row(std::int64_t r) const { return codes.data() + r * stride; }
  const float* row_values(std::int64_t r) const { return values.data() + r * stride; }
  const float* row_scales(std::int64_t r) const { return scales.data() + r * groups; }
};

// read_rows.cpp. Whether this build has a reader for a format.
bool can_read(Format format);
// Rows [row0, row0 + n) of one half; rows n..count-1 of `out` become zero.
// Value faults: invalid_argument, subject "w13_weight[e,n,k]" or "w13_scale[e,n,g]".
Check read_rows(const SourceMatrix& source, int half, std::int64_t row0, std::int64_t n, CanonicalRows& out);

}  // namespace moe
