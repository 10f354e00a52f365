// Layouts of float weights, and of int4 weights for 8-bit float activations, that kernels of other engines read: what
// each does with rows, columns and scales, names and sizes (float_layouts.md).
//
// A layout is a row of one table: a kind (whose kernels) and what its weights are. layouts/floats/form_float.cpp has
// the bytes.
//
// Engines differ in few ways: which half comes first, how rows alternate or are shuffled, what
// sizes are padded to, where scales lie. So a layout is data in one table (kForms in
// float_layout.cpp), and a new one usually needs no code. Sources of each row: float_layouts.md.
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
// A kind of kernels serves several of these with other bytes for each, so kind and grain together
// name a row.
enum class Grain : std::uint8_t { tensor, channel, block, mx, values, int4, mxfp4, nvfp4 };

// DeepSeek-V3's blocks. A checkpoint with other blocks has no named layout.
constexpr std::int64_t kBlockSize = 128;  // rows and columns of the only blocks that these kernels know

// Where the element of (row n, column k) of an [N, K] matrix lies; B elements are 128 bytes, C are 16. Two codes of
// e2m1 are a byte, the even column's the low half.
enum class WeightPlace : std::uint8_t {
  rows,        // [N, K]
  transposed,  // [K, N]
  blocks,      // [K/B, N, B]
  // AITER's tiles for AMD's matrix instructions
  tiles16,  // [N/16, K/C, 16, C]
  // vLLM's CPU kernels: two columns of a row lie together, as products of pairs take them
  pairs,    // [K/2, n, 2] for each n = 32 rows, the last ones maybe 16
  marlin,   // tiles of tensor cores: wna16/marlin.cpp
  nibbles,  // [N, K], two codes a byte, in CUTLASS's encoding
  hopper,   // e2m1: bits of 16 rows and 64 columns in turn: float4_weights.cpp
  blocks32  // e2m1: [N/32, K/2, 32], a byte has codes of rows 16 apart: float4_weights.cpp
};

// How scales lie; N rows, G groups of columns.
enum class ScalePlace : std::uint8_t {
  none,
  one,     // a number for the matrix
  rows,    // [N, 1]
  blocks,  // [N/128, G]
  bytes,   // [N, G] powers of two, or NVFP4's 8-bit floats
  // cuBLAS, CUTLASS and FlashInfer share this tile of scales
  swizzled,      // the same in tiles of 128 x 4, filled up with zeros
  marlin,        // [G, N] in the type of the activations, permuted
  marlin_bytes,  // [G, N] bytes, permuted; NVFP4: floats of 5 bits of exponent and 3 of mantissa
  // DeepGEMM: each column begins at a multiple of 16 bytes
  by_columns,  // [N/128, G], a column behind the other, each padded to 4 rows
  packed,      // the same of [N, G] powers of two, four groups in a word
  split,       // [N, G] in 8-bit floats, and a number for each row
  floats,      // [N, G] powers of two as float32
  folded,      // bytes [N/64, G/4, 16, 4, 4]: row 64a + 16b + c, group 4d + e at (a, d, c, b, e)
  lanes,       // bytes [N/32, G/8, 4, 16, 2, 2]: row 32a + 16b + c, group 8d + 4e + f at (a, d, f, c, e, b)
  blocks32     // bytes [N/32, G, 32]
};

// What becomes of the scales of NVFP4's activations.
// A checkpoint has one per projection of each expert. Engines quantize the input once for several
// of them, so they want fewer numbers, or other ones.
enum class InputScales : std::uint8_t {
  none,
  largest,    // [E] times that of all experts
  own,        // [E], gate's or up's, the larger
  reciprocal  // [1], of the largest
};

// Defaults describe the plain layout: rows as they are, nothing padded. A row says only how it
// differs.
struct FloatForm {
  LayoutKind kind;
  Grain grain;
  std::string_view id;  // without the version
  WeightPlace place = WeightPlace::rows;
  ScalePlace scales = ScalePlace::none;
  // What FlashInfer's kernels take for [w1; w3] of a checkpoint is [w3; w1].
  bool up_first = false;  // up before gate
  // A tile of results then has both halves of each pair, so the activation needs no second pass.
  int interleave = 0;  // the two halves alternate after this many rows; 0: one half follows the other
  // TensorRT-LLM's kernels want rows in an order of their own; FloatMatrix::source_row has the
  // formula.
  int shuffle = 0;     // after that, rows change places within blocks of this many; 0: they do not
  bool apart = false;  // gate and up lie so also where the activation takes pairs of rows
  // Sizes become multiples of these; ungated_padding: of the intermediate one without a gate.
  // Padding has the value 0. Where a row names none, sizes must be multiples of the steps below, or
  // the layer cannot have the layout.
  std::int64_t hidden_padding = 1, intermediate_padding = 1, ungated_padding = 1;
  InputScales inputs = InputScales::none;
  // vLLM raises smaller scales to it for FlashInfer's block kernels (float_layouts.md), and so do
  // we.
  float least_scale = 0.0f;
  // Each size must be a multiple of its step. w13_rows_step is checked after padding.
  std::int64_t hidden_step = 1, intermediate_step = 1, w13_rows_step = 1;

  // The type of scales in a Matrix; those of Marlin are f16 or bf16.
  // It tells rows of the same kind and grain apart, such as DeepGEMM with float32 and with powers
  // of two.
  bool keeps(Scales type) const;
};
std::span<const FloatForm> float_forms();

// One matrix as writers and readers see it. "Padded" sizes are the layout's, the others the checkpoint's.
struct FloatMatrix {
  const FloatForm* form = nullptr;
  Matrix source = {};
  bool w13 = false;
  bool gate_up_pairs = false;  // g0 u0 g1 u1 ...: what the activation takes
  // vLLM pads the joined [2I, H] tensor, so its halves move; for others each half is padded by
  // itself.
  bool padded_behind = false;  // rows of padding lie behind both halves
  // The kernel has one scale for w13, so requantize.h makes one of two
  bool one_scale = false;  // of gate and up together
  bool as_vllm = false;    // and vLLM's way to make it
  bool fnuz = false;       // codes mean half of their values
  std::int64_t padded_half_rows = 0, padded_k = 0;

  std::int64_t rows() const { return source.halves * padded_half_rows; }
  std::int64_t groups() const;
  // The checkpoint's row (gate, then up) behind a row of the layout; -1 for padding.
  // Everything that moves rows is in this one function. Weights, scales and biases ask it, so they
  // cannot disagree about a row.
  std::int64_t source_row(std::int64_t n) const;
  // Rows and columns are the checkpoint's, in its order.
  // Then whole rows are copied, which is what most layouts do.
  bool is_as_given() const;
  // Blocks of rows that share scales, each half's by itself; and row i of one, -1 behind its last one.
  // Where halves alternate row by row, a block of 128 layout rows has rows of both, and its scale
  // exists only if both agree.
  std::int64_t row_blocks() const;
  std::int64_t source_row_of_block(std::int64_t b, std::int64_t i) const;
  bool four_bits() const { return source.element == Element::e2m1; }
  int element_bytes() const { return row_of(source.element).packed_bits / 8; }  // not of four bits
  std::int64_t row_bytes() const { return padded_k * row_of(source.element).packed_bits / 8; }
  // From the matrix's first byte to byte b of row n; rows, transposed, blocks, tiles16 and pairs.
  std::int64_t offset(std::int64_t n, std::int64_t b) const;
  // So many bytes lie together, from a multiple of them on.
  // What a writer may copy at once.
  std::int64_t run() const;
};

constexpr EnumSet<LayoutPart> kFloatParts = {LayoutPart::weight,      LayoutPart::scale, LayoutPart::scale_2,
                                             LayoutPart::input_scale, LayoutPart::alpha, LayoutPart::bias};

// Of elements that are values.
DType value_type(Element e);
bool is_float_kind(LayoutKind kind);
// Of a layer of these weights; nullptr: the kind has none for them.
// A linear search through the table by kind, grain and type of scales; called per matrix, not per
// row.
const FloatForm* float_form(const Layout& layout);
FloatMatrix float_matrix(const Layout& layout, Which which);
// A host that runs the kernels pads its activations to these sizes.
std::int64_t padded_hidden(const Layout& layout);
std::int64_t padded_intermediate(const Layout& layout);
// "gate_up", "up_gate", "interleaved", "interleaved_up_gate", "interleaved64_up_gate"; "" without a gate.
std::string_view w13_rows_word(const Layout& layout);
// What a host has to do to the bytes before a kernel takes them.
// CUTLASS's own reordering functions are CUDA code; their input is handed out instead.
std::span<const std::string_view> needs_of_host(const Layout& layout);
// Of the family.
std::string float_id(const Layout& layout);
bool is_float_layout(const Layout& layout);
void list_float(Layout& layout);

// What selection knows of a layer beside its sizes.
// The config's facts that change bytes but no number of a matrix.
struct FloatTraits {
  DType activations = DType::bf16;  // in_dtype
  bool mx = false;                  // scales are powers of two
  bool powers_of_two = true;        // DeepGEMM's scales
  bool static_activations = false;  // their scale is known
  bool gate_up_pairs = false, bit_compat_vllm = false, fnuz = false;
};
Layout make_float_layout(LayoutKind kind, LayoutShape shape, const FloatTraits& traits);

}  // namespace moe
