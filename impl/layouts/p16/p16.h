// Packed layout p16 of the CPU kernels (kernels.md 2): where everything of a matrix lies.
//
// A matrix [N, K] is a row of panels of 16 consecutive rows; a panel is a header and units of 64 k, of
// 64-byte vectors. The element says what a unit holds.
//
// int4: 8 vectors V[h][j] (h = k half, j = 0..3); byte b of V[h][j] has
//   low nibble  = code(16p + b/4, 64u + 32h + 4j + b%4),  code = value + 8
//   high nibble = code(16p + b/4, 64u + 32h + 16 + 4j + b%4)
// so V & 15 and (V >> 4) & 15 are dot-product operands of 16 rows x 4 k without a shuffle.
//
// W4A8 (kind int4):
//   g = 32        header: rsum f32[16], [bias f32[16]];                unit: scales bf16[2][16], 512 codes
//   other groups  header: scales bf16[K/g][16] padded to 64 bytes, rsum f32[16], [bias]; unit: 512 codes
//   channel-wise  header: scale f32[16] = s/16, wsum i32[16], [bias];  unit: 512 codes
//
// int8: 16 vectors, byte b of V[j] = code(16p + b/4, 64u + 4j + b%4), code = value + 128.
//
// int4 and int8 with scales as the checkpoint has them (kinds w4, w8):
//   header: scales [K/g][16] (f32, bf16 or f16; channel-wise: one) and, with zero points, codes u8 [K/g][16] of value
//   0, each padded with zeros to 64 bytes, [bias f32[16]];             unit: 512 or 1024 codes
//
// Codes of small floats have no bias. e2m1 lies as int4 does. Those of 6 and 8 bits have 16 vectors a unit too, whose
// 16 bytes are of four rows: both pairs of columns lie side by side, so that unpacking a table's low and high bytes
// gives the vectors of a bf16 unit:
//   byte 16q + 8p + 2i + e of V[j] = code(16P + 4q + i, 64u + 4j + 2p + e)           (P the panel; i 0..3; p, e 0..1)
// An MX or NVFP4 scale is a byte in the header. Where rows share scales (scale_rows), so do those of a panel: the
// header has [K/g] scales instead of [K/g][16]. NVFP4 has a second scale, of the whole projection:
//   header: scales e4m3 [K/16][16] padded to 64 bytes, tensor_scale f32[16], [bias f32[16]]
//
// bf16, f16: 32 vectors, 16-bit element b of V[j] = (16p + b/2, 64u + 2j + b%2); f32: 64 vectors, element b of
// V[k] = (16p + b, 64u + k). Their header is the bias, if there is one.
//
// Lists (has_order): a list i32[K] of the checkpoint's columns, padded to 64 bytes, follows the panels of a matrix
// whose columns do not lie as in the checkpoint, for one of two reasons or both:
//   activation order  columns are sorted by group. The rows of either half of w13 lie in the order of w2's list, so
//                     that only the input is reordered at run time.
//   filled groups     groups are filled up to whole steps of 32 columns. The list has -1 there: activations are 0 in
//                     these places, so their weights don't count (codes of value 0, with zero points any value). The
//                     rows of w13 are not filled: the middle row is spread when it is complete.
// Groups of one size g become groups of round_up(g, 32). Two and more groups of any sizes (a g_idx that is not even;
// what a rank of tensor parallelism holds of act-ordered weights) become as many groups of 32 as each needs, and space
// is kept for the most that can be: groups behind the last one have scale 0.
//
// w13 has gate and up panels in turn, G0 U0 G1 U1 ..., each half padded to 16 rows by itself. An
// expert is w13 then w2; experts lie at a stride of whole 4 KiB pages. Padding: value 0 (int4: code 8), else 0.
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
