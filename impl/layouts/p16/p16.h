// Packed layout p16 of the CPU kernels: where everything of a matrix lies. The picture, element by element, is
// kernels.md 2.
//
// A matrix [N, K] is a row of panels of 16 consecutive rows. A panel is a header, then a unit for each 64 columns. A
// unit is vectors of 64 bytes, so that one load gives a kernel what its product takes of 16 rows. The header has what
// all units of the panel share: scales, zero points, row sums, biases, whichever the matrix has. A list of columns may
// follow the panels.
//
// w13 has gate and up panels in turn, each half padded to 16 rows by itself. An expert is w13, then w2; experts lie at
// a stride of whole 4 KiB pages. Padding means the value 0.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/checked.h"
#include "base/index.h"
#include "layouts/matrix.h"

namespace moe {

constexpr std::int64_t kPanelRows = 16;
constexpr std::int64_t kUnitK = 64;
constexpr std::size_t kExpertAlignment = 4096;
constexpr std::int64_t kMostScaleRows = 16 * 254;  // of a block; larger ones are written out row by row
// What Matrix::scale_rows is for blocks of `block` rows.
constexpr std::int64_t scale_rows_of(std::int64_t block) {
  return block % kPanelRows == 0 && block <= kMostScaleRows ? block : 1;
}

// none: no scales (elements that are values).
enum class Grouping : std::uint8_t { g32, grouped, channel, none };

// A matrix in p16, its sizes and addresses: P16{matrix}. A copy, made once for a call. (What is always inlined is large
// enough for a compiler to keep it apart, which code of an instruction set must not share.)
struct P16 : Matrix {
  [[gnu::always_inline]] constexpr Grouping grouping() const {
    if (is_value(element)) return Grouping::none;
    if (groups.is_whole()) return Grouping::channel;
    return group() == 32 && scales == Scales::w4a8 ? Grouping::g32 : Grouping::grouped;
  }
  // Scales of a group in a panel.
  [[gnu::always_inline]] constexpr std::int64_t scale_lanes() const { return scale_rows == 1 ? kPanelRows : 1; }
  [[gnu::always_inline]] constexpr std::int64_t units() const { return ceil_div(k, kUnitK); }
  constexpr std::int64_t panels() const { return ceil_div(half_rows, kPanelRows) * halves; }

  // What the sums of a tile's codes come multiplied by (kernels/tile.h): the code of value 0, with zero points 1.
  // Kernels turn codes of e2m1 into twice their values and 12, which are 0 to 24.
  constexpr std::int32_t sum_factor() const {
    return has_zeros ? 1 : element == Element::e2m1 ? 12 : code_bias(element);
  }
  // What one scale is.
  [[gnu::always_inline]] constexpr Scales scale_type() const {
    return scales != Scales::w4a8 ? scales : groups.is_whole() ? Scales::f32 : Scales::bf16;
  }
  [[gnu::always_inline]] constexpr std::size_t scale_bytes() const { return row_of(scale_type()).bytes; }
  [[gnu::always_inline]] constexpr std::size_t scale_section() const {  // bytes of scales at the start of the panel
    if (grouping() == Grouping::g32 || grouping() == Grouping::none) return 0;
    return round_up(usize(group_count() * scale_lanes()) * scale_bytes(), std::size_t{64});
  }
  [[gnu::always_inline]] constexpr std::size_t zero_section() const {
    return has_zeros ? round_up(usize(group_count()) * 16, std::size_t{64}) : 0;
  }
  [[gnu::always_inline]] constexpr bool has_sums() const {
    return grouping() != Grouping::none && scales == Scales::w4a8;
  }
  constexpr std::size_t tensor_scale_offset() const { return scale_section(); }  // f32[16]
  constexpr std::size_t sum_offset() const { return scale_section(); }           // rsum f32[16] or wsum i32[16]
  constexpr std::size_t zero_offset() const { return scale_section(); }
  [[gnu::always_inline]] constexpr std::size_t bias_offset() const {
    return scale_section() + zero_section() + (has_sums() || has_tensor_scale() ? 64 : 0);
  }
  [[gnu::always_inline]] constexpr std::size_t header_bytes() const { return bias_offset() + (has_bias ? 64 : 0); }
  [[gnu::always_inline]] constexpr std::size_t unit_header() const { return grouping() == Grouping::g32 ? 64 : 0; }
  [[gnu::always_inline]] constexpr std::size_t unit_bytes() const {
    return unit_header() + usize(kPanelRows * kUnitK * row_of(element).packed_bits / 8);
  }
  [[gnu::always_inline]] constexpr std::size_t panel_bytes() const {
    return header_bytes() + usize(units()) * unit_bytes();
  }
  // i32[K]: the checkpoint's column of each column here.
  constexpr std::size_t order_offset() const { return usize(panels()) * panel_bytes(); }
  constexpr std::size_t bytes() const {
    return order_offset() + (has_order ? round_up(usize(k) * 4, std::size_t{64}) : 0);
  }

  // Where the pieces of logical row n (w13: gate rows 0..I-1, then up rows I..2I-1) lie.
  constexpr std::int64_t panel_of(std::int64_t n) const {
    const std::int64_t half = n / half_rows, r = n % half_rows;
    return r / kPanelRows * halves + half;
  }
  constexpr std::int64_t lane_of(std::int64_t n) const { return n % half_rows % kPanelRows; }
  // First byte of (lane, k) within its panel; of elements of 4 bits it is the high nibble iff nibble_high(k).
  constexpr std::size_t code_offset(std::int64_t lane, std::int64_t kk) const {
    return header_bytes() + usize(kk / kUnitK) * unit_bytes() + unit_header() + usize(place_in_unit(lane, kk % kUnitK));
  }
  static constexpr bool nibble_high(std::int64_t kk) { return kk % 32 >= 16; }
  // Byte of the scale of (lane, group g) within its panel.
  constexpr std::size_t scale_offset(std::int64_t lane, std::int64_t g) const {
    if (grouping() == Grouping::g32) return header_bytes() + usize(g / 2) * unit_bytes() + usize(g % 2 * 32 + lane * 2);
    return usize(scale_rows == 1 ? g * kPanelRows + lane : g) * scale_bytes();
  }

 private:
  constexpr std::int64_t place_in_unit(std::int64_t lane, std::int64_t kk) const {
    switch (row_of(element).packed_bits) {
      case 4:
        return kk / 32 * 256 + kk % 16 / 4 * 64 + lane * 4 + kk % 4;
      case 8:
        if (!is_integer(element)) return kk / 4 * 64 + lane / 4 * 16 + kk % 4 / 2 * 8 + lane % 4 * 2 + kk % 2;
        return kk / 4 * 64 + lane * 4 + kk % 4;
      case 16:
        return kk / 2 * 64 + lane * 4 + kk % 2 * 2;
      case 32:
        return kk * 64 + lane * 4;
    }
    return -1;  // no element has another width: elements.h
  }
};

}  // namespace moe
