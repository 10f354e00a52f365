// Layouts of float weights, and of int4 weights for 8-bit float activations, that kernels of other engines read: what
// each does with rows, columns and scales, names and sizes (float_layouts.md).
//
// A layout is a row of one table: a kind (whose kernels) and what its weights are. layouts/floats/form_float.cpp has
// the bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/enum_set.h"
#include "layouts/layout.h"
#include "layouts/part_names.h"
#include "scheme/scheme.h"

namespace moe {

// What shares a scale. values: nothing, weights are numbers; int4: groups of 128 integers; mxfp4, nvfp4: 32 and 16
// columns of e2m1, the latter with a second scale for all of a matrix.
enum class Grain : std::uint8_t { tensor, channel, block, mx, values, int4, mxfp4, nvfp4 };

constexpr std::int64_t kBlockSize = 128;  // rows and columns of the only blocks that these kernels know

// Where the element of (row n, column k) of an [N, K] matrix lies; B elements are 128 bytes, C are 16. Two codes of
// e2m1 are a byte, the even column's the low half.
enum class WeightPlace : std::uint8_t {
  rows,        // [N, K]
  transposed,  // [K, N]
  blocks,      // [K/B, N, B]
  tiles16,     // [N/16, K/C, 16, C]
  pairs,       // [K/2, n, 2] for each n = 32 rows, the last ones maybe 16
  marlin,      // tiles of tensor cores: wna16/marlin.cpp
  nibbles,     // [N, K], two codes a byte, in CUTLASS's encoding
  hopper,      // e2m1: bits of 16 rows and 64 columns in turn: float4_weights.cpp
  blocks32     // e2m1: [N/32, K/2, 32], a byte has codes of rows 16 apart: float4_weights.cpp
};

// How scales lie; N rows, G groups of columns.
enum class ScalePlace : std::uint8_t {
  none,
  one,           // a number for the matrix
  rows,          // [N, 1]
  blocks,        // [N/128, G]
  bytes,         // [N, G] powers of two, or NVFP4's 8-bit floats
  swizzled,      // the same in tiles of 128 x 4, filled up with zeros
  marlin,        // [G, N] in the type of the activations, permuted
  marlin_bytes,  // [G, N] bytes, permuted; NVFP4: floats of 5 bits of exponent and 3 of mantissa
  by_columns,    // [N/128, G], a column behind the other, each padded to 4 rows
  packed,        // the same of [N, G] powers of two, four groups in a word
  split,         // [N, G] in 8-bit floats, and a number for each row
  floats,        // [N, G] powers of two as float32
  folded,        // bytes [N/64, G/4, 16, 4, 4]: row 64a + 16b + c, group 4d + e at (a, d, c, b, e)
  lanes,         // bytes [N/32, G/8, 4, 16, 2, 2]: row 32a + 16b + c, group 8d + 4e + f at (a, d, f, c, e, b)
  blocks32       // bytes [N/32, G, 32]
};

// What becomes of the scales of NVFP4's activations.
enum class InputScales : std::uint8_t {
  none,
  largest,    // [E] times that of all experts
  own,        // [E], gate's or up's, the larger
  reciprocal  // [1], of the largest
};

struct FloatForm {
  LayoutKind kind;
  Grain grain;
  std::string_view id;  // without the version
  WeightPlace place = WeightPlace::rows;
  ScalePlace scales = ScalePlace::none;
  bool up_first = false;  // up before gate
  int interleave = 0;     // the two halves alternate after this many rows; 0: one half follows the other
  int shuffle = 0;        // after that, rows change places within blocks of this many; 0: they do not
  bool apart = false;     // gate and up lie so also where the activation takes pairs of rows
  // Sizes become multiples of these; ungated_padding: of the intermediate one without a gate.
  std::int64_t hidden_padding = 1, intermediate_padding = 1, ungated_padding = 1;
  InputScales inputs = InputScales::none;
  float least_scale = 0.0f;
  // Each size must be a multiple of its step. w13_rows_step is checked after padding.
  std::int64_t hidden_step = 1, intermediate_step = 1, w13_rows_step = 1;

  // The type of scales in a Matrix; those of Marlin are f16 or bf16.
  bool keeps(Scales type) const;
};
std::span<const FloatForm> float_forms();

// One matrix as writers and readers see it. "Padded" sizes are the layout's, the others the checkpoint's.
struct FloatMatrix {
  const FloatForm* form = nullptr;
  Matrix source = {};
  bool w13 = false;
  bool gate_up_pairs = false;  // g0 u0 g1 u1 ...: what the activation takes
  bool padded_behind = false;  // rows of padding lie behind both halves
  bool one_scale = false;      // of gate and up together
  bool as_vllm = false;        // and vLLM's way to make it
  bool fnuz = false;           // codes mean half of their values
  std::int64_t padded_half_rows = 0, padded_k = 0;

  std::int64_t rows() const { return source.halves * padded_half_rows; }
  std::int64_t groups() const;
  // The checkpoint's row (gate, then up) behind a row of the layout; -1 for padding.
  std::int64_t source_row(std::int64_t n) const;
  // Rows and columns are the checkpoint's, in its order.
  bool is_as_given() const;
  // Blocks of rows that share scales, each half's by itself; and row i of one, -1 behind its last one.
  std::int64_t row_blocks() const;
  std::int64_t source_row_of_block(std::int64_t b, std::int64_t i) const;
  bool four_bits() const { return source.element == Element::e2m1; }
  int element_bytes() const { return row_of(source.element).packed_bits / 8; }  // not of four bits
  std::int64_t row_bytes() const { return padded_k * row_of(source.element).packed_bits / 8; }
  // From the matrix's first byte to byte b of row n; rows, transposed, blocks, tiles16 and pairs.
  std::int64_t offset(std::int64_t n, std::int64_t b) const;
  // So many bytes lie together, from a multiple of them on.
  std::int64_t run() const;
};

constexpr EnumSet<LayoutPart> kFloatParts = {LayoutPart::weight,      LayoutPart::scale, LayoutPart::scale_2,
                                             LayoutPart::input_scale, LayoutPart::alpha, LayoutPart::bias};

// Of elements that are values.
DType value_type(Element e);
bool is_float_kind(LayoutKind kind);
// Of a layer of these weights; nullptr: the kind has none for them.
const FloatForm* float_form(const Layout& layout);
FloatMatrix float_matrix(const Layout& layout, Which which);
std::int64_t padded_hidden(const Layout& layout);
std::int64_t padded_intermediate(const Layout& layout);
// "gate_up", "up_gate", "interleaved", "interleaved_up_gate", "interleaved64_up_gate"; "" without a gate.
std::string_view w13_rows_word(const Layout& layout);
// What a host has to do to the bytes before a kernel takes them.
std::span<const std::string_view> needs_of_host(const Layout& layout);
// Of the family.
std::string float_id(const Layout& layout);
bool is_float_layout(const Layout& layout);
void list_float(Layout& layout);

// What selection knows of a layer beside its sizes.
struct FloatTraits {
  DType activations = DType::bf16;  // in_dtype
  bool mx = false;                  // scales are powers of two
  bool powers_of_two = true;        // DeepGEMM's scales
  bool static_activations = false;  // their scale is known
  bool gate_up_pairs = false, bit_compat_vllm = false, fnuz = false;
};
Layout make_float_layout(LayoutKind kind, LayoutShape shape, const FloatTraits& traits);

}  // namespace moe
