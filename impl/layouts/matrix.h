// One matrix of a layer's experts as every layout has it: what its numbers are, how many, what shares a scale. Where
// they lie, a view of it says: P16 (layouts/p16/p16.h), KaiMatrix, Wna16Matrix, FloatMatrix.
#pragma once

#include <cstdint>
#include <optional>

#include "scheme/elements.h"
#include "scheme/groups.h"
#include "scheme/scheme.h"

namespace moe {

enum class Which : std::uint8_t { w13, w2 };

constexpr std::int64_t kAllRows = 0;  // Matrix::scale_rows

// Columns, and the groups that they are in.
struct Columns {
  std::int64_t count = 0;
  Groups groups = {};

  friend constexpr bool operator==(const Columns&, const Columns&) = default;
};

// half_rows = N for w2, I for w13 (which has two halves when gated). (What is always inlined is called by code for an
// instruction set, which must share no function.)
struct Matrix {
  Element element = Element::int4;
  Scales scales = Scales::w4a8;
  bool has_zeros = false;
  std::int64_t half_rows = 0;
  int halves = 1;
  std::int64_t k = 0;
  Groups groups = {};  // whole where one covers all columns, and of floats
  bool has_bias = false;
  bool has_order = false;  // columns lie in the order of a list
  // How many rows share a scale: 1, kAllRows (all rows of a half), or the height of a block, a multiple of 16.
  std::int64_t scale_rows = 1;
  // Of the checkpoint, where groups are filled up.
  std::optional<Columns> source = {};

  // Of the checkpoint.
  constexpr std::int64_t columns() const { return source ? source->count : k; }
  constexpr Groups source_groups() const { return source ? source->groups : groups; }
  constexpr std::int64_t source_count() const { return source_groups().count_in(columns()); }
  [[gnu::always_inline]] constexpr std::int64_t group() const { return groups.size_in(k); }  // columns of one
  [[gnu::always_inline]] constexpr std::int64_t group_count() const { return groups.count_in(k); }
  constexpr std::int64_t rows() const { return half_rows * halves; }
  // NVFP4: a second scale, the same number for all rows of a half.
  [[gnu::always_inline]] constexpr bool has_tensor_scale() const { return scales == Scales::e4m3; }

  friend constexpr bool operator==(const Matrix&, const Matrix&) = default;
};

}  // namespace moe
