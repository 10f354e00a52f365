// Packed layout p16 of the CPU kernels (kernels.md 2).
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
// Named layouts (families.h) are other libraries' forms, handed to a host tensor by tensor: the same logical
// matrices, and a list of tensors [E, ...] that lie one behind another in the payload.
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

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/checked.h"
#include "base/dtype.h"
#include "base/index.h"
#include "scheme/elements.h"
#include "scheme/groups.h"
#include "scheme/scheme.h"

namespace moe {

constexpr std::int64_t kPanelRows = 16;
constexpr std::int64_t kUnitK = 64;
constexpr std::size_t kExpertAlignment = 4096;
constexpr std::int64_t kAllRows = 0;               // P16Matrix::scale_rows
constexpr std::int64_t kMostScaleRows = 16 * 254;  // of a block; larger ones are written out row by row
// The value of P16Matrix::scale_rows for blocks of so many rows.
constexpr std::int64_t scale_rows_of(std::int64_t block) {
  return block % kPanelRows == 0 && block <= kMostScaleRows ? block : 1;
}

// none: no scales (elements that are values).
enum class Grouping : std::uint8_t { g32, grouped, channel, none };

// Columns, and the groups that they are in.
struct Columns {
  std::int64_t count = 0;
  Groups groups = {};

  friend constexpr bool operator==(const Columns&, const Columns&) = default;
};

// One matrix: its logical size, and its sizes and addresses in p16. (What is always inlined is large enough for a
// compiler to keep it apart, which code of an instruction set must not share.) half_rows = N for w2, I for w13 (which
// has two halves when gated).
struct P16Matrix {
  Element element = Element::int4;
  Scales scales = Scales::w4a8;
  bool has_zeros = false;
  std::int64_t half_rows = 0;
  int halves = 1;
  std::int64_t k = 0;
  Groups groups = {};  // whole where one covers all columns, and of floats
  bool has_bias = false;
  bool has_order = false;  // columns lie in the order of a list behind the panels
  // Rows that share scales: each has its own, kAllRows of a half, or blocks of so many, which are whole panels.
  std::int64_t scale_rows = 1;
  // Of the checkpoint, where groups are filled up.
  std::optional<Columns> source = {};

  // Of the checkpoint.
  constexpr std::int64_t columns() const { return source ? source->count : k; }
  constexpr Groups source_groups() const { return source ? source->groups : groups; }
  constexpr std::int64_t source_count() const { return source_groups().count_in(columns()); }
  [[gnu::always_inline]] constexpr Grouping grouping() const {
    if (is_value(element)) return Grouping::none;
    if (groups.is_whole()) return Grouping::channel;
    return group() == 32 && scales == Scales::w4a8 ? Grouping::g32 : Grouping::grouped;
  }
  [[gnu::always_inline]] constexpr std::int64_t group() const { return groups.size_in(k); }  // columns of one
  [[gnu::always_inline]] constexpr std::int64_t group_count() const { return groups.count_in(k); }
  constexpr std::int64_t rows() const { return half_rows * halves; }
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
  // NVFP4: a second scale, the same number for all rows of a half.
  [[gnu::always_inline]] constexpr bool has_tensor_scale() const { return scales == Scales::e4m3; }
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

  friend constexpr bool operator==(const P16Matrix&, const P16Matrix&) = default;

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

// foreign: a backend's layout that this build cannot write. The others are the rows of layout_kinds.inc.
enum class LayoutKind : std::uint8_t {
  none = 0,
  foreign = 2,
#define MOE_P16(kind_, number_, ...) kind_ = number_,
#define MOE_NAMED(kind_, number_, family_) kind_ = number_,
#include "layouts/layout_kinds.inc"
};

// A kind of p16: its word in ids, what it holds, and how it keeps scales.
struct P16Kind {
  LayoutKind kind;
  std::string_view word;
  Element element;
  Scales scales;
  // Scales are of the type of float that the layout of a layer has and its id tells; else of the one above.
  bool any_float;
};
inline constexpr std::array kP16Kinds = {
#define MOE_P16(kind_, number_, word_, element_, scales_, kept_) \
  P16Kind{LayoutKind::kind_, word_, Element::element_, Scales::scales_, std::string_view(#kept_) == "any_float"},
#define MOE_NAMED(...)
#include "layouts/layout_kinds.inc"
};
// nullptr for the other kinds.
constexpr const P16Kind* p16_kind(LayoutKind kind) {
  for (const P16Kind& row : kP16Kinds)
    if (row.kind == kind) return &row;
  return nullptr;
}
constexpr std::optional<Element> p16_element(LayoutKind kind) {
  const P16Kind* row = p16_kind(kind);
  return row != nullptr ? std::optional(row->element) : std::nullopt;
}

enum class Which : std::uint8_t { w13, w2 };

// A tensor of a named layout.
struct LayoutTensor {
  std::string_view name;  // "w13_packed"; a constant
  DType dtype = DType::u8;
  std::vector<std::int64_t> shape;  // of one expert
  bool shared = false;              // one for all experts, without their dimension
  // In elements, the experts' first; empty: row-major. Never of shared ones.
  std::vector<std::int64_t> strides = {};
  std::size_t offset = 0;  // in the payload, a multiple of 64
  std::size_t bytes = 0;   // of one expert, and its distance to the next

  friend bool operator==(const LayoutTensor&, const LayoutTensor&) = default;
};

// What the matrices of layouts of other engines (layouts/wna16/wna16_layout.h, layouts/floats/float_layout.h) do not
// tell. Other layouts have none: all of it is the default.
struct LayoutVariant {
  MarlinInput input = MarlinInput::none;
  bool awq = false;
  bool bit_compat_vllm = false;      // vLLM's bytes, also where they are wrong
  bool channel_wise = false;         // group_size as configured was -1
  int zero_shift = 0;                // of vLLM's zero points against the real ones: -1, 0, 1
  DType bias = DType::invalid;       // f32, f16 or bf16
  DType number = DType::invalid;     // the same, of dense weights; activations of Marlin's NVFP4, f16 or bf16
  std::int64_t multiprocessors = 0;  // of the device, for Marlin's workspace
  // Of float layouts: the scale of the activations is among the tensors; rows of w13 are g0 u0 g1 u1 ...; codes are
  // those of AMD's 8-bit floats.
  bool input_scales = false, gate_up_pairs = false, fnuz = false;

  friend bool operator==(const LayoutVariant&, const LayoutVariant&) = default;
};

// The packed form of one layer's experts.
struct Layout {
  LayoutKind kind = LayoutKind::none;
  P16Matrix w13, w2;
  std::int64_t experts = 0;
  LayoutVariant variant = {};
  std::vector<LayoutTensor> tensors = {};  // of named layouts, in their order in the payload

  // p16/int4-g32/1, p16/int4-cw-bias/1, p16/int4-g32,cw/1, p16/w8-cw-f32/1, p16/w4-g128-bf16-zp/1, p16/bf16/1,
  // p16/w4-g128,u56-f32-ao/1, p16/f32-bias/1, p16/e4m3-b128x128/1, p16/e4m3-t/1; those of named layouts; "" for none.
  std::string id() const;
  const P16Matrix& matrix(Which which) const { return which == Which::w13 ? w13 : w2; }
  std::size_t w2_offset() const { return w13.bytes(); }  // within an expert of p16
  std::size_t expert_stride() const {                    // of p16; named: all bytes of one expert
    if (p16_element(kind)) return round_up(w13.bytes() + w2.bytes(), kExpertAlignment);
    std::size_t sum = 0;
    for (const LayoutTensor& t : tensors) sum += t.shared ? 0 : t.bytes;
    return sum;
  }
  std::size_t payload_bytes() const {
    if (p16_element(kind)) return expert_stride() * usize(experts);
    return tensors.empty() ? 0 : end_of(tensors.back());
  }
  std::size_t end_of(const LayoutTensor& t) const { return t.offset + t.bytes * (t.shared ? 1 : usize(experts)); }

  friend bool operator==(const Layout&, const Layout&) = default;
};

struct LayoutShape {
  std::int64_t experts, hidden, intermediate;  // this rank's
  Groups groups = {};                          // as configured; whole for values
  bool gated, has_bias;
  Scales scales = Scales::f32;  // of p16_w4, p16_w8 and named layouts
  bool has_zeros = false;
  bool has_order = false;           // of integer elements
  Element element = Element::int4;  // of named layouts
  // Of w2, where they are not `groups`: with activation order a tensor-parallel rank holds some columns but the scales
  // of all groups.
  std::optional<Groups> w2_groups = {};
  std::int64_t scale_rows = 1;  // P16Matrix::scale_rows
};
// Whether gate and up have a scale each, which vLLM makes one: LayoutVariant::bit_compat_vllm of p16.
constexpr bool may_share_scales(const Layout& l) {
  return l.kind == LayoutKind::p16_e4m3 && l.w13.scale_rows == kAllRows && l.w13.halves == 2;
}
// The p16 layout of a layer; group sizes already checked to divide hidden and intermediate.
Layout p16_layout(LayoutKind kind, const LayoutShape& shape);
// A matrix with columns and groups of the checkpoint, with its groups filled up where they are no multiple of 32.
P16Matrix filled(P16Matrix matrix);
// A layout with lists for groups of any sizes, where a matrix has more than one; others as they are.
Layout with_any_groups(const Layout& layout);
inline Layout p16_int4_layout(const LayoutShape& shape) { return p16_layout(LayoutKind::p16_int4, shape); }
// Whether a list names each of so many columns once; -1 names none.
bool is_order(std::span<const std::int32_t> list, std::int64_t columns);
// "g32", "cw"; "u56": 56 groups of any sizes; "b128x64": blocks of rows and columns; "t": one scale
std::string grouping_word(const P16Matrix& m);

}  // namespace moe
