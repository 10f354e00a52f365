// The tensors of one expert's matrix as a checkpoint stores them, and the way from them to plain rows (layouts/rows.h).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/tensor.h"
#include "layouts/rows.h"
#include "scheme/checkpoint.h"

namespace moe::convert {

// Row r of a half is row first + step * r of the tensor that the caller knows: for messages.
struct RowNumbers {
  std::int64_t first = 0, step = 1;
  bool columns_first = false;  // in that tensor
};

// The tensors of one half (w13: gate or up; w2 has one half) of one expert's matrix. Rows come first whatever the
// checkpoint's order: K-first tensors are transposed views. Where fields of several rows share a word, the view has all
// words of the tensor, and row r of the half is field first + step * r. So do scales that several rows share: row r has
// those of row (first + step * r) / rows_of_scale.
struct SourceHalf {
  TensorView codes, scales, bias, zeros;  // [rows, K or words], [rows, G], [rows] if has_bias, [words, G] if has_zeros
  RowNumbers code_rows, scale_rows, zero_rows;  // for messages
  RowNumbers code_fields, zero_fields;          // of words that several rows share
  RowNumbers scale_fields;                      // where rows share scales
  float tensor_scale = 1.0f;                    // of NVFP4
};

struct SourceMatrix {
  Codes codes = Codes::bytes;
  FieldOrder order = FieldOrder::plain;  // of codes and zero points in words
  bool is_w13 = false;
  bool has_bias = false;
  bool has_zeros = false;  // a tensor of zero points
  ZeroPoints zero_points = ZeroPoints::as_stored;

  int field_of(int c) const {  // of the word's code number c
    return order == FieldOrder::awq ? awq_field(row_of(element).bits, c) : c;
  }
  // Of a code in the checkpoint. Narrow codes may begin inside of words.
  int code_bits() const { return narrow_bits != 0 ? narrow_bits : row_of(element).bits; }
  bool is_narrow() const { return narrow_bits != 0; }
  bool has_plain_words() const {
    return order == FieldOrder::plain && zero_points != ZeroPoints::twos_complement && !is_narrow();
  }
  // A word of 4-bit codes with a sign becomes one whose middle code is 0.
  std::uint32_t without_sign(std::uint32_t word) const {
    return zero_points == ZeroPoints::twos_complement ? word ^ 0x88888888u : word;
  }

  bool bf16_scales = false;         // round scales to bf16 and count the inexact ones
  Element element = Element::int4;  // of the layout
  int narrow_bits = 0;              // of codes that have fewer bits than the element, 0: they have as many
  std::int64_t expert = 0;          // the model's number
  std::int64_t k = 0, groups = 0;
  std::int64_t rows_of_scale = 1;
  float scale_divisor = 1;
  int groups_of_scale = 1;
  int halves = 1;
  std::array<SourceHalf, 2> half;
  std::vector<std::int32_t> g_idx;   // as in CanonicalRows
  std::optional<float> input_scale;  // the same
};

// read_rows.cpp. Whether this build has a reader for weights stored so.
bool can_read(Codes codes);
// Rows [row0, row0 + n) of one half, of `order` when it is not empty; rows n..count-1 of `out` become zero.
// Value faults: invalid_argument, subject "w13_weight[e,n,k]", "w13_scale[e,n,g]" or "w13_zero_point[e,n,g]".
Check read_rows(const SourceMatrix& source, int half, std::int64_t row0, std::int64_t n, CanonicalRows& out,
                std::span<const std::int32_t> order = {});
// All rows into an `out` of as many, gate's, then up's, and what is known of the whole matrix.
Check read_matrix(const SourceMatrix& source, CanonicalRows& out);

}  // namespace moe::convert
