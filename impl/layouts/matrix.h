// One matrix of a layer's experts as every layout has it: what its numbers are, how many, what shares a scale. Where
// they lie, a view of it says: P16 (layouts/p16/p16.h), KaiMatrix, Wna16Matrix, FloatMatrix.
//
// The writers, the readers and the kernels of a layout all start from this struct, so a fact that
// two of them need is a member here and is never worked out twice. It has no address: the same
// matrix can be packed by several layouts.
#pragma once

#include <cstdint>
#include <optional>

#include "scheme/elements.h"
#include "scheme/groups.h"
#include "scheme/scheme.h"

namespace moe {

// w13 is the fused gate and up matrix [2I, H] (ungated [I, H]), w2 the down matrix [H, I].
enum class Which : std::uint8_t { w13, w2 };

// 0 cannot be the height of a block, so it is free to mean "all".
constexpr std::int64_t kAllRows = 0;  // Matrix::scale_rows

// Columns, and the groups that they are in.
// They belong together: a count without its groups cannot say which column has which scale.
struct Columns {
  std::int64_t count = 0;
  Groups groups = {};

  friend constexpr bool operator==(const Columns&, const Columns&) = default;
};

// half_rows = N for w2, I for w13 (which has two halves when gated). (What is always inlined is called by code for an
// instruction set, which must share no function.)
// Packed files store the members one by one (packed_file.md 2.2), so a new one needs a place there
// and a default that means what older files meant.
struct Matrix {
  Element element = Element::int4;
  Scales scales = Scales::w4a8;
  // A zero point per group and row: value = (code - zero) * scale. Without them the code of value 0
  // is the element's own (code_bias).
  bool has_zeros = false;
  // Halves are padded apart, so "row n" is not enough: gate row r and up row r share one place in
  // the middle row, and kernels need them side by side.
  std::int64_t half_rows = 0;
  int halves = 1;
  // As packed. It is more than the checkpoint's where groups are filled up (`source`).
  std::int64_t k = 0;
  Groups groups = {};  // whole where one covers all columns, and of floats
  bool has_bias = false;
  // act_order: the checkpoint numbers the group of each column (g_idx). Sorting columns by group
  // once, at conversion, leaves kernels with groups that lie together.
  bool has_order = false;  // columns lie in the order of a list
  // How many rows share a scale: 1, kAllRows (all rows of a half), or the height of a block, a multiple of 16.
  std::int64_t scale_rows = 1;
  // Of the checkpoint, where groups are filled up.
  // Shapes that a caller sees, ids and error texts speak of these; kernels only see k and groups.
  std::optional<Columns> source = {};

  // Of the checkpoint.
  constexpr std::int64_t columns() const { return source ? source->count : k; }
  constexpr Groups source_groups() const { return source ? source->groups : groups; }
  constexpr std::int64_t source_count() const { return source_groups().count_in(columns()); }
  [[gnu::always_inline]] constexpr std::int64_t group() const { return groups.size_in(k); }  // columns of one
  [[gnu::always_inline]] constexpr std::int64_t group_count() const { return groups.count_in(k); }
  constexpr std::int64_t rows() const { return half_rows * halves; }
  // NVFP4: a second scale, the same number for all rows of a half.
  // The first scales are e4m3 numbers of at most 448, which alone could not reach the range of bf16
  // weights.
  [[gnu::always_inline]] constexpr bool has_tensor_scale() const { return scales == Scales::e4m3; }

  friend constexpr bool operator==(const Matrix&, const Matrix&) = default;
};

}  // namespace moe
