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
//
// Why 16 rows: a float32 result per row fills a vector of AVX-512, two of AVX2, and a row of an AMX
// tile of sums. Rows lie in lanes so that a sum never has to be added across lanes. Why 64 columns:
// 4 bytes of 16 rows are one 64-byte vector, 16 such vectors of int8 are a B tile of AMX, and half
// the count is a unit of int4. Why one form for all instruction sets: a packed file made on one
// machine runs on every other. Why the header comes first: its bytes are few, and a kernel that
// reads a panel in order finds them in the stream instead of at a second address. p16.cpp proves
// while compiling that no two codes share a bit; offsets are otherwise repeated by hand in the
// kernels (as constants such as 64 * j), so a change here is a new kind of layout.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/checked.h"
#include "base/index.h"
#include "layouts/matrix.h"

namespace moe {

constexpr std::int64_t kPanelRows = 16;
constexpr std::int64_t kUnitK = 64;
// A page: the unit in which a mapped file is read and memory is placed on NUMA nodes. Two experts
// share none.
constexpr std::size_t kExpertAlignment = 4096;
// The number is stored as one byte in units of 16 rows, where 255 and 0 have other meanings
// (packed_file.md).
constexpr std::int64_t kMostScaleRows = 16 * 254;  // of a block; larger ones are written out row by row
// What Matrix::scale_rows is for blocks of `block` rows.
// A block of whole panels has one scale for all lanes of a panel, which is then broadcast. One that
// ends within a panel would need a scale per lane anyway, so those are written out for every row.
constexpr std::int64_t scale_rows_of(std::int64_t block) {
  return block % kPanelRows == 0 && block <= kMostScaleRows ? block : 1;
}

// none: no scales (elements that are values).
// g32 is W4A8's alone: with a scale per 32 columns a header would be as large as an eighth of the
// codes, far away from them, so scales lie before the codes of their unit.
// A word for the cases that W4A8's kernels are compiled for; other kernels ask Groups.
enum class Grouping : std::uint8_t { g32, grouped, channel, none };

// A matrix in p16, its sizes and addresses: P16{matrix}. A copy, made once for a call. (What is always inlined is large
// enough for a compiler to keep it apart, which code of an instruction set must not share.)
// Everything below follows from the members of Matrix; nothing is cached, and kernels copy what
// their loops need (Places, Call) before they start.
struct P16 : Matrix {
  [[gnu::always_inline]] constexpr Grouping grouping() const {
    if (is_value(element)) return Grouping::none;
    if (groups.is_whole()) return Grouping::channel;
    return group() == 32 && scales == Scales::w4a8 ? Grouping::g32 : Grouping::grouped;
  }
  // Scales of a group in a panel.
  // 1: a block of rows, where the whole panel shares one.
  [[gnu::always_inline]] constexpr std::int64_t scale_lanes() const { return scale_rows == 1 ? kPanelRows : 1; }
  [[gnu::always_inline]] constexpr std::int64_t units() const { return ceil_div(k, kUnitK); }
  constexpr std::int64_t panels() const { return ceil_div(half_rows, kPanelRows) * halves; }

  // What the sums of a tile's codes come multiplied by (kernels/tile.h): the code of value 0, with zero points 1.
  // Kernels turn codes of e2m1 into twice their values and 12, which are 0 to 24.
  // For e2m1: doubled values are -12 to 12, and vpdpbusd and vpmaddubsw want one operand without a
  // sign, so 12 is added and its sum subtracted.
  constexpr std::int32_t sum_factor() const {
    return has_zeros ? 1 : element == Element::e2m1 ? 12 : code_bias(element);
  }
  // What one scale is.
  // W4A8 has two kinds of numbers: KleidiAI keeps bf16 per group but float32 / 16 per row, because
  // its channel-wise kernel works with 16 times the sum (w4a8_int8.md 5.2).
  [[gnu::always_inline]] constexpr Scales scale_type() const {
    return scales != Scales::w4a8 ? scales : groups.is_whole() ? Scales::f32 : Scales::bf16;
  }
  [[gnu::always_inline]] constexpr std::size_t scale_bytes() const { return row_of(scale_type()).bytes; }
  [[gnu::always_inline]] constexpr std::size_t scale_section() const {  // bytes of scales at the start of the panel
    if (grouping() == Grouping::g32 || grouping() == Grouping::none) return 0;
    return round_up(usize(group_count() * scale_lanes()) * scale_bytes(), std::size_t{64});
  }
  // A byte for a zero point of 4 bits, too: it is used once per group and row, and a kernel widens
  // 16 bytes with one instruction.
  [[gnu::always_inline]] constexpr std::size_t zero_section() const {
    return has_zeros ? round_up(usize(group_count()) * 16, std::size_t{64}) : 0;
  }
  // The activations of W4A8 have zero points, so each row needs the sum of its weights. It is made
  // at conversion, in KleidiAI's order, as a float sum in another order has other bits.
  [[gnu::always_inline]] constexpr bool has_sums() const {
    return grouping() != Grouping::none && scales == Scales::w4a8;
  }
  // Only one of these three sections exists in any matrix, so all begin where the scales end.
  constexpr std::size_t tensor_scale_offset() const { return scale_section(); }  // f32[16]
  constexpr std::size_t sum_offset() const { return scale_section(); }           // rsum f32[16] or wsum i32[16]
  constexpr std::size_t zero_offset() const { return scale_section(); }
  // Last, because it is used last and only when it is there.
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
  // Behind the panels of the matrix and not in them: all panels share the list, and not a kernel
  // but the engine reads it, when it puts activations into the places of their columns.
  constexpr std::size_t order_offset() const { return usize(panels()) * panel_bytes(); }
  constexpr std::size_t bytes() const {
    return order_offset() + (has_order ? round_up(usize(k) * 4, std::size_t{64}) : 0);
  }

  // Where the pieces of logical row n (w13: gate rows 0..I-1, then up rows I..2I-1) lie.
  // Logical rows are what dequantization and tests speak of. Gate and up panels alternate, so that
  // the activation finds both halves of a pair in one tile of results.
  constexpr std::int64_t panel_of(std::int64_t n) const {
    const std::int64_t half = n / half_rows, r = n % half_rows;
    return r / kPanelRows * halves + half;
  }
  // The lane is the row's place in a panel: the number of its 32-bit lane in every vector.
  constexpr std::int64_t lane_of(std::int64_t n) const { return n % half_rows % kPanelRows; }
  // First byte of (lane, k) within its panel; of elements of 4 bits it is the high nibble iff nibble_high(k).
  constexpr std::size_t code_offset(std::int64_t lane, std::int64_t kk) const {
    return header_bytes() + usize(kk / kUnitK) * unit_bytes() + unit_header() + usize(place_in_unit(lane, kk % kUnitK));
  }
  // 16 columns apart, not 1: V & 15 and V >> 4 then are each the operand of one product, with no
  // shuffle in between.
  static constexpr bool nibble_high(std::int64_t kk) { return kk % 32 >= 16; }
  // Byte of the scale of (lane, group g) within its panel.
  constexpr std::size_t scale_offset(std::int64_t lane, std::int64_t g) const {
    if (grouping() == Grouping::g32) return header_bytes() + usize(g / 2) * unit_bytes() + usize(g % 2 * 32 + lane * 2);
    return usize(scale_rows == 1 ? g * kPanelRows + lane : g) * scale_bytes();
  }

 private:
  // `lane` selects 4 bytes within a vector and the low bits of kk a byte in them, so that one
  // 4-byte broadcast of activations meets 4 columns of 16 rows. 8-bit floats swap pairs so that
  // unpacking high and low bytes gives bf16 pairs in the order of a bf16 unit (kernels.md 2.4).
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
