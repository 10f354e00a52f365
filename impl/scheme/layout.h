// Packed layout p16 for int4 weights with int8 activations (decisions 7.2, spec/kernels.md 4.2).
//
// A matrix [N, K] is a row of panels of 16 consecutive rows; a panel is a header and units of 64 k.
// One unit holds 8 vectors V[h][j] of 64 bytes (h = k half, j = 0..3); byte b of V[h][j] has
//   low nibble  = code(16p + b/4, 64u + 32h + 4j + b%4),  code = value + 8
//   high nibble = code(16p + b/4, 64u + 32h + 16 + 4j + b%4)
// so V & 15 and (V >> 4) & 15 are dot-product operands of 16 rows x 4 k without a shuffle.
//
//   g = 32        header: rsum f32[16], [bias f32[16]];                unit: scales bf16[2][16], 512 codes
//   other groups  header: scales bf16[K/g][16] padded to 64 bytes, rsum f32[16], [bias]; unit: 512 codes
//   channel-wise  header: scale f32[16] = s/16, wsum i32[16], [bias];  unit: 512 codes
//
// w13 has gate and up panels in turn, G0 U0 G1 U1 ..., each half padded to 16 rows by itself. An
// expert is w13 then w2; experts lie at a stride of whole 4 KiB pages. Padding: code 8, else 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/checked.h"

namespace moe {

constexpr std::int64_t kPanelRows = 16;
constexpr std::int64_t kUnitK = 64;
constexpr std::size_t kUnitCodeBytes = 512;
constexpr std::size_t kExpertAlignment = 4096;

enum class Grouping : std::uint8_t { g32, grouped, channel };

// One matrix in p16/int4: sizes and addresses. half_rows = N for w2, I for w13 (which has two halves).
struct P16Matrix {
  std::int64_t half_rows = 0;
  int halves = 1;
  std::int64_t k = 0;
  std::int64_t group = 0;  // == k: channel-wise
  bool has_bias = false;

  constexpr Grouping grouping() const {
    return group == k ? Grouping::channel : group == 32 ? Grouping::g32 : Grouping::grouped;
  }
  constexpr std::int64_t groups() const { return k / group; }
  constexpr std::int64_t rows() const { return half_rows * halves; }
  constexpr std::int64_t units() const { return ceil_div(k, kUnitK); }
  constexpr std::int64_t panels() const { return ceil_div(half_rows, kPanelRows) * halves; }

  constexpr std::size_t scale_section() const {  // bytes of scales at the start of the panel
    if (grouping() == Grouping::g32) return 0;
    if (grouping() == Grouping::channel) return 64;
    return round_up(static_cast<std::size_t>(groups()) * 32, std::size_t{64});
  }
  constexpr std::size_t sum_offset() const { return scale_section(); }  // rsum f32[16] or wsum i32[16]
  constexpr std::size_t bias_offset() const { return sum_offset() + 64; }
  constexpr std::size_t header_bytes() const { return bias_offset() + (has_bias ? 64 : 0); }
  constexpr std::size_t unit_header() const { return grouping() == Grouping::g32 ? 64 : 0; }
  constexpr std::size_t unit_bytes() const { return unit_header() + kUnitCodeBytes; }
  constexpr std::size_t panel_bytes() const {
    return header_bytes() + static_cast<std::size_t>(units()) * unit_bytes();
  }
  constexpr std::size_t bytes() const { return static_cast<std::size_t>(panels()) * panel_bytes(); }

  // Where the pieces of logical row n (w13: gate rows 0..I-1, then up rows I..2I-1) lie.
  constexpr std::int64_t panel_of(std::int64_t n) const {
    const std::int64_t half = n / half_rows, r = n % half_rows;
    return r / kPanelRows * halves + half;
  }
  constexpr std::int64_t lane_of(std::int64_t n) const { return n % half_rows % kPanelRows; }
  // Byte of the code of (lane, k) within its panel; the high nibble iff nibble_high(k).
  constexpr std::size_t code_offset(std::int64_t lane, std::int64_t kk) const {
    const std::int64_t u = kk / kUnitK, h = kk % kUnitK / 32, j = kk % 16 / 4;
    return header_bytes() + static_cast<std::size_t>(u) * unit_bytes() + unit_header() +
           static_cast<std::size_t>(h * 256 + j * 64 + lane * 4 + kk % 4);
  }
  static constexpr bool nibble_high(std::int64_t kk) { return kk % 32 >= 16; }
  // Byte of the bf16 scale of (lane, group g) within its panel (not channel-wise).
  constexpr std::size_t scale_offset(std::int64_t lane, std::int64_t g) const {
    if (grouping() == Grouping::g32)
      return header_bytes() + static_cast<std::size_t>(g / 2) * unit_bytes() +
             static_cast<std::size_t>(g % 2 * 32 + lane * 2);
    return static_cast<std::size_t>(g * 32 + lane * 2);
  }

  friend constexpr bool operator==(const P16Matrix&, const P16Matrix&) = default;
};

enum class LayoutKind : std::uint8_t { none, p16_int4, foreign };

// The packed form of one layer's experts. `foreign`: a backend's layout that this build cannot write.
struct Layout {
  LayoutKind kind = LayoutKind::none;
  P16Matrix w13, w2;
  std::int64_t experts = 0;

  // p16/int4-g32/1, p16/int4-cw-bias/1, p16/int4-g32,cw/1; "" for none.
  std::string id() const;
  std::size_t w2_offset() const { return w13.bytes(); }  // within an expert
  std::size_t expert_stride() const { return round_up(w13.bytes() + w2.bytes(), kExpertAlignment); }
  std::size_t payload_bytes() const { return expert_stride() * static_cast<std::size_t>(experts); }

  friend bool operator==(const Layout&, const Layout&) = default;
};

struct LayoutShape {
  std::int64_t experts, hidden, intermediate;  // this rank's
  std::int64_t group;                          // -1 = channel-wise
  bool gated, has_bias;
};
// The p16/int4 layout of a layer; group sizes already checked to divide hidden and intermediate.
Layout p16_int4_layout(const LayoutShape& shape);

}  // namespace moe
