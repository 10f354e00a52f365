// Expert tensors as checkpoints store them: one row per (on-disk format, tensor of a projection), and
// the names  <module>.<expert>.<projection>.<suffix>.
//
//   none             weight f32, f16 or bf16 [N, K]                              [bias [N]]
//   int-quantized    weight i8 [N, K]                       weight_scale [N, G]  [bias [N]]
//                      [weight_zero_point i8, all 0]        [input_scale, input_zero_point: not read]
//   pack-quantized   weight_packed i32 [N, ceil(K*bits/32)]  weight_scale [N, G]  [bias [N]]
//                    [weight_zero_point i32 [ceil(N*bits/32), G]]  [weight_g_idx i32 [K]]
//                    [weight_shape i64 [2] = N, K]
//   pack-quantized-w2, -w3, -w5, -w6, -w7   the same with codes of so many bits, which begin inside of words
//   gptq             qweight i32 [ceil(K*bits/32), N]       scales [G, N]        [bias [N]]
//                    qzeros i32 [G, ceil(N*bits/32)]        g_idx i32 [K]
//   quark-reorder    groups: weight i32 [K, ceil(N*bits/32)]   weight_scale [G, N]
//   quark-order        weight_zero_point i32 [G, ceil(N*bits/32)], fields in awq_field() order or in plain order
//                      rows: weight i32 [N, ceil(K*bits/32)]   weight_scale [N]
//                      weight_zero_point i32 [ceil(N*bits/32)]
//   quark-int8       weight i8 [N, K]                       weight_scale, one number  [weight_zero_point i8, 0]
//   modelopt-int4    weight u8 [N/2, K], row 2r in the low four bits, two's complement  weight_scale [N, G]
//                      [pre_quant_scale [K]], which int8 files may have, too
//   bitsandbytes-int8  weight i8 [N, K]                     SCB f32 [N], 127 times the scale  [weight_format u8, 0]
//   nvfp4-group-32   as ModelOpt's nvfp4-pack-quantized, weight_scale [N, K/32]: two groups of 16 share one
//   awq              qweight i32 [K, ceil(N*bits/32)]       scales [G, N]        [bias [N]]
//                    qzeros i32 [G, ceil(N*bits/32)], fields of both in awq_field() order
//   float-quantized  weight f8_e4m3fn [N, K]              weight_scale           [bias [N]]  [input_scale [1]]
//   naive-quantized    tensor [1] or a scalar; channel [N, 1], ModelOpt [N]; group [N, G]; blocks of n x k
//                      [ceil(N/n), ceil(K/k)], DeepSeek's weight_scale_inv, ModelOpt [N/n, 1, K/k, 1]
//                      all experts: gate_up_proj f8_e4m3fn [E, 2I, H], gate_up_proj_scale_inv [E, 2I/n, H/k], the same
//                      of down_proj (also <name>.weight, <name>.weight_scale_inv)
//   mxfp8-quantized  weight f8_e4m3fn [N, K]              weight_scale e8m0 (or u8) [N, K/32]  [bias [N]]
//   mxfp4-pack-      weight_packed u8 (or i8) [N, K/2]    weight_scale u8 (or e8m0) [N, K/32]  [bias [N]]
//     quantized        DeepSeek-V4: weight, scale
//   mxfp6-pack-      weight_packed u8 [N, K*3/4]          weight_scale u8 (or e8m0) [N, K/32]  [bias [N]]
//     quantized
//   mxfp4-gpt-oss    gate_up_proj_blocks u8 [E, 2I, H/32, 16], gate_up_proj_scales u8 [E, 2I, H/32],
//                    [gate_up_proj_bias [E, 2I]], the same of down_proj
//   nvfp4-pack-      weight_packed u8 [N, K/2]            weight_scale f8_e4m3fn [N, K/16]  [bias [N]]
//     quantized        weight_global_scale f32 [1] or a scalar, a divisor, [input_global_scale]
//                      ModelOpt: weight, weight_scale_2, [input_scale], factors
//
// N, K: outputs and inputs of the whole projection (gate and up: I x H, down: H x I), G = 1 channel-wise,
// else K / group; one scale for a whole projection is [1]. Scales and biases are f32, f16 or bf16, those of fp8 weights
// e8m0, too. Where a format has all experts in one tensor (Stack), so may unquantized weights: gate_up_proj and
// down_proj, or other names that the config gives, [E, 2I, H] or [E, H, 2I] as it says. A further format is a row of
// tensor_sets() and its tensors in tensor_sets.cpp.
//
// Everything about a format that is a fact and no action is data here: which tensors, which types,
// how they lie. Readers of files, the check of what a caller hands over, the list of needed tensors
// in moe_describe and conversion all read the same rows, so a format is known to all of them or to
// none. Why suffixes and not whole names: prefixes belong to the model, suffixes to the tool that
// quantized.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/index.h"
#include "scheme/groups.h"
#include "scheme/roles.h"
#include "scheme/scheme.h"

namespace moe {

// Of a checkpoint. The roles of w13 join gate and up; projections keep them apart because files do.
enum class Projection : std::uint8_t { gate, up, down };
// shape: its two numbers are checked, then dropped. no_zeros: zero points that must be 0, then dropped.
// beside: a number about activations that the layer does not quantize, checked and dropped. input_columns: a factor for
// each input, of all experts of the layer alike.
// scale_2: what a whole projection's scales come multiplied by; global_scale, input_global_scale: the same as scale_2
// and input_scale, as divisors.
// The order matters in one place: is_number() takes all from input_scale on.
enum class TensorKind : std::uint8_t {
  weight,
  scale,
  bias,
  shape,
  zero_point,
  g_idx,
  no_zeros,
  beside,
  input_columns,
  input_scale,
  // NVFP4: factor of the scales
  scale_2,
  // the same numbers as divisors, which is how compressed-tensors writes them
  global_scale,
  input_global_scale
};
// One float32 for a projection.
// It stands for the whole projection, so a tensor-parallel rank takes it as it is.
constexpr bool is_number(TensorKind kind) { return kind >= TensorKind::input_scale; }
// 1 / x is computed once when the number is read. A divisor of 0 or one whose reciprocal is
// infinite is refused there (convert/source_matrix.cpp).
constexpr bool is_divisor(TensorKind kind) {
  return kind == TensorKind::global_scale || kind == TensorKind::input_global_scale;
}
// It has no role: its bytes are looked at when a tensor comes, and none of them become weights.
constexpr bool is_dropped(TensorKind kind) {
  return kind == TensorKind::shape || kind == TensorKind::no_zeros || kind == TensorKind::beside ||
         kind == TensorKind::input_columns;
}
// The other way to say the same; the kind itself where there is only one.
// A file with both is refused: they might disagree, and neither is more right.
constexpr TensorKind other_form(TensorKind kind) {
  switch (kind) {
    case TensorKind::input_scale:
      return TensorKind::input_global_scale;
    case TensorKind::input_global_scale:
      return TensorKind::input_scale;
    case TensorKind::scale_2:
      return TensorKind::global_scale;
    case TensorKind::global_scale:
      return TensorKind::scale_2;
    default:
      return kind;
  }
}
// Why a layer has no place for a tensor that its format knows: a fragment of a sentence.
// The commonest cause is a config that forgot a flag, so the text says which.
std::string_view absence_of(TensorKind kind);

// with_...: what the layer says (Extras).
// A row is for all layers of its format; presence says what the layer's config decides.
enum class Presence : std::uint8_t { required, optional, with_bias, with_zeros, with_g_idx, with_input_scale };

// optional: taken when it is there, no error when it is not.
enum class Need : std::uint8_t { absent, optional, required };
// Which other tensors the experts have, in addition to weights and scales.
// Computed once per layer from the quantization, so that rows stay constants.
struct Extras {
  Need bias = Need::absent, zeros = Need::absent, g_idx = Need::absent, input_scale = Need::absent;
};
// Asymmetric weights have zero points; symmetric GPTQ and AWQ files carry constant ones. Columns in activation order
// have a g_idx; other WNA16 files may have the plain one. Static float activations have a scale, which kernels that
// multiply 16-bit activations do without.
// A constant zero point of a symmetric file is checked against the code of value 0 and then left
// out: packing it would cost a byte per group in every panel.
Extras extras_of(const Quantization& q, bool has_bias);

// What one dimension of a tensor runs along: rows or columns of the projection, i32 words or bytes of their codes,
// blocks of rows or columns that share a scale, or groups of columns. one: something that the whole projection shares;
// halves: the same of a w13, where gate and up have one each.
// With axes instead of numbers, one row gives the shape for any layer, says where a tensor-parallel
// rank may cut, and which dimension is rows.
enum class Axis : std::uint8_t {
  none,
  n,
  n_words,
  n_pairs,
  n_blocks,
  halves,
  k,
  k_words,
  k_bytes,
  k_blocks,
  groups,
  group_pairs,
  one,
  two
};

// One projection of one expert, whole (not this rank's part).
// The numbers that axes become extents with.
struct MatrixSize {
  std::int64_t n = 0, k = 0;
  // Uneven: a tensor-parallel rank holds only some columns but, with activation order, the scales of all groups.
  Groups groups = {};
  int num_bits = 4;                            // of a code in the file
  std::array<std::int64_t, 2> block = {1, 1};  // rows and columns of one, where blocks share scales
  int halves = 1;                              // projections that are joined here, one above the other

  constexpr std::int64_t group_count() const { return groups.count_in(k); }
};

// These two sort the axes by what a shard does to them: tensor parallelism cuts w13 along n and w2
// along k, and a tensor that runs along neither is the same on every rank.
constexpr bool runs_along_n(Axis a) {
  return a == Axis::n || a == Axis::n_words || a == Axis::n_pairs || a == Axis::n_blocks || a == Axis::halves;
}
constexpr bool runs_along_k(Axis a) {
  return a == Axis::k || a == Axis::k_words || a == Axis::k_bytes || a == Axis::k_blocks || a == Axis::groups ||
         a == Axis::group_pairs;
}
// Where a tensor can be cut along an axis: `lines` rows or columns are exactly `elements` elements.
// A rank's share of rows or columns must begin and end at such a step: the middle of a packed word,
// a block or a group belongs to two ranks at once and has one element.
struct AxisStep {
  std::int64_t lines, elements;
  // For messages.
  std::string_view begins;  // what begins there
};
// Of k_bytes with 6-bit codes: 4 columns are 3 bytes; of k_words with 3-bit ones: 32 columns are 3 words.
AxisStep step_of(Axis axis, const MatrixSize& m);

// Two dimensions suffice: what files have beyond them is experts (Stack) or blocks (ShapeKind).
struct TensorShape {
  std::array<std::int64_t, 2> dims{};
  int ndim = 0;

  std::span<const std::int64_t> span() const { return {dims.data(), usize(ndim)}; }
  friend bool operator==(const TensorShape&, const TensorShape&) = default;
};

// Other accepted shapes of a tensor. vector: the last dimension of 1 is dropped. scalar: one number for both halves.
// spread: [n, 1, k, 1]. blocks: the last dimension is split into blocks of 16 bytes.
// Tools disagree about dimensions of 1. Each of these is unambiguous beside the row's own axes, so
// a file never has to say which it uses.
enum class ShapeKind : std::uint8_t { axes, vector, scalar, spread, blocks };
// GPT-OSS: 32 codes of 4 bits, which share a scale.
constexpr std::int64_t kBlockBytes = 16;

// Other suffixes that tools give the same tensor; unused places are empty.
// A file may use any of them, but one name per tensor; writing and messages use `suffix`.
using Aliases = std::array<std::string_view, 5>;

struct CheckpointTensor {
  std::string_view suffix;
  TensorKind kind;
  Presence presence;
  // 4 because FP8 scales come in four types.
  std::array<DType, 4> dtypes;  // allowed on disk; unused places are DType::invalid
  std::array<Axis, 2> axes;
  ShapeKind shape_kind = ShapeKind::axes;
  Aliases aliases = {};

  // An empty suffix is a name (stacks of weights), an empty alias is an unused place.
  constexpr bool has_suffix(std::string_view text) const {
    return text == suffix || (!text.empty() && std::find(aliases.begin(), aliases.end(), text) != aliases.end());
  }
  TensorShape shape(const MatrixSize& m) const;
  // As callers hand it over by role: what the whole projection shares is there for each row.
  // A caller's tensors are [E, n, 1] for a scale that files have once: roles have one shape per
  // kind, whatever the format, so that hosts need not know formats.
  TensorShape role_shape(const MatrixSize& m) const;
  constexpr bool is_shared() const { return axes[0] == Axis::one; }
  Need need(const Extras& extras) const;
  // Whether columns come before rows: [K.., N..].
  // GPTQ and AWQ store [K, N]; conversion turns the view and reads on in the same way.
  constexpr bool k_first() const { return runs_along_n(axes[1]); }
  constexpr bool is_matrix() const { return runs_along_n(axes[0]) ? runs_along_k(axes[1]) : k_first(); }
  // The dimension of rows, -1: none.
  constexpr int n_axis() const {
    for (int i = 0; i < 2; ++i)
      if (runs_along_n(axes[usize(i)])) return i;
    return -1;
  }
  // Fields of several rows share a word.
  // AWQ's weights and the zero points of several formats. Then a single row cannot be viewed by
  // itself, and readers take a word apart.
  constexpr bool shares_words() const {
    return axes[0] == Axis::n_words || axes[1] == Axis::n_words || axes[0] == Axis::n_pairs;
  }
  // How many rows share one element, in a matrix whose halves have `half_rows` rows.
  // 1 for most; block scales have the block's height, one scale of a half has all of its rows.
  std::int64_t rows_of_element(const MatrixSize& m, std::int64_t half_rows) const;
  // Unused places are DType::invalid, so that type is excluded first.
  constexpr bool allows(DType t) const {
    return t != DType::invalid && (t == dtypes[0] || t == dtypes[1] || t == dtypes[2] || t == dtypes[3]);
  }
  // Stored in the model's dtype, whichever that is: scales and biases.
  // moe_describe then tells the type of the layer and not the list of possible ones.
  constexpr bool follows_model_dtype() const { return allows(DType::bf16); }
  std::string dtypes_text() const;  // "f32, f16 or bf16"
};

// How a weight tensor holds its codes: floats, integers of a byte each, fields of i32 words of one row's columns, of
// words of one column's rows, or small floats in as many bits of a row of bytes as they have.
// The reader of codes is chosen by this and CodeWidth alone (convert), not by the format.
// row_pairs: bytes of two rows, the even one in the low four bits.
enum class Codes : std::uint8_t { values, bytes, words, row_words, row_pairs, bits };
// Which field of a word holds which code: the first in the lowest bits, or awq_field().
enum class FieldOrder : std::uint8_t { plain, awq };

// How a checkpoint lays all experts of a layer into one tensor of a kind: [E, ...]; gate and up joined in the row order
// that the config has for w13, or each by itself. The tensors of the layer are <module>.<name><suffix>.
// transformers 5 keeps experts so in memory, and GPT-OSS, Llama 4 and others have such files.
struct Stack {
  std::array<std::string_view, 3> names{};  // w13, w2; or gate, up, down

  constexpr bool is_apart() const { return !names[2].empty(); }
  constexpr std::string_view name(Projection p) const {
    if (is_apart()) return names[usize(p)];
    return names[p == Projection::down ? 1 : 0];
  }
  friend bool operator==(const Stack&, const Stack&) = default;
};
// Which of a set's forms a checkpoint's stacks have: rows come first, or columns. flat: [E * I, H] of gate and up with
// rows first, of down with columns first. by_shape: the first or the second, which the tensors themselves tell.
// Shapes tell the order unless a matrix is square: gate_up_proj is where H = 2I, down_proj where H
// = I. The layer's other tensor then decides, and the config's word only where none does
// (checkpoints.md).
enum class StackedWeights : std::uint8_t { none, rows_first, columns_first, flat, by_shape };

// One way in which checkpoints store experts. The config's word for a format may stand for several of them: which one
// it is, the quantization says.
// The sets of a format are tried in the order of the table, and `holds` decides; the first that
// holds is also the one by which callers name tensors.
struct TensorSet {
  Format format;
  Codes codes;
  std::span<const CheckpointTensor> tensors;
  // A question about the quantization instead of a list of formats, because one word
  // ("float-quantized") covers scales of tensors, rows and blocks.
  bool (*holds)(const Quantization& q);
  const Stack* stack = nullptr;                   // nullptr: each projection of each expert by itself
  StackedWeights stacked = StackedWeights::none;  // of a stack that the config must speak of
  // Only flat stacks: their down is stored the other way round.
  std::span<const CheckpointTensor> down = {};  // those of w2, where they differ
  FieldOrder order = FieldOrder::plain;         // of words
  float scale_divisor = 1;                      // of every scale: bitsandbytes has a row's largest value, not its step

  // Linear: a set has at most seven rows.
  const CheckpointTensor* tensor(TensorKind kind) const {  // nullptr: there is none
    for (const CheckpointTensor& t : tensors)
      if (t.kind == kind) return &t;
    return nullptr;
  }
};
// All that this build knows, a table in tensor_sets.cpp.
// Order matters: where two sets hold the same quantization, the first is the usual one.
std::span<const TensorSet> tensor_sets();
// The one that holds weights so quantized; nullptr: they are not read yet. It is what callers name tensors of by role.
// Not read yet: a config may describe weights whose format has no row; selection can still answer
// for them.
const TensorSet* tensor_set(const Quantization& q);
// All that files may have of them.
// The first is the usual one, the others are stacks of the order that the config speaks of.
std::vector<const TensorSet*> file_sets(const Quantization& q, StackedWeights stacked);
// The set of the same stacks with rows and columns in the other order; nullptr: there is none.
// Used when the shapes of a file show that the class's word was wrong.
const TensorSet* turned(const Quantization& q, const TensorSet& set);

// Where the experts of one layer lie in a checkpoint. Views: the owner of the strings outlives it.
// Built per layer from the config; parsing a file's names against it allocates nothing.
struct ExpertModule {
  std::string_view prefix;                      // "model.layers.3.mlp.experts"
  std::array<std::string_view, 3> projections;  // gate, up, down
  // A file has all experts, so a number below it that is not held here is known and skipped, not an
  // error.
  std::int64_t num_experts = 0;  // of the model, not of this rank
  // Zero ("identity") experts give the token itself (routing.md).
  std::int64_t zero_experts = 0;   // numbers behind them, whose tensors mean nothing
  const TensorSet* set = nullptr;  // nullptr: no tensor is known
  bool gated = true;               // ungated layers have no gate projection; up alone is w13
  bool has_bias = false;           // else bias tensors have no place
  Need zeros = Need::absent, g_idx = Need::absent, input_scale = Need::absent;

  Stack stack = {};  // other names than the set's, of a stack that the config speaks of

  bool is_stacked() const { return set != nullptr && set->stack != nullptr; }
  bool is_flat() const { return is_stacked() && set->stacked == StackedWeights::flat; }
  // The config's names win, e.g. for a model that calls gate_up_proj something else.
  const Stack& stack_names() const { return stack.names[0].empty() ? *set->stack : stack; }
  // Empty without a set, so loops over it need no case.
  std::span<const CheckpointTensor> tensors(Projection p = Projection::up) const {
    if (set == nullptr) return {};
    return p == Projection::down && !set->down.empty() ? set->down : set->tensors;
  }
  constexpr Extras extras() const { return {has_bias ? Need::required : Need::absent, zeros, g_idx, input_scale}; }
};

// The field of a word of AWQ that holds row or column c of the word's 32 / bits.
// The order is that of AWQ's GPU kernel: of eight columns the even ones are the four low fields,
// the odd ones the four high fields.
constexpr int awq_field(int bits, int c) {
  constexpr std::array<int, 8> k4 = {0, 4, 1, 5, 2, 6, 3, 7};
  constexpr std::array<int, 4> k8 = {0, 2, 1, 3};
  switch (code_width(bits)) {
    case CodeWidth::nibble:
      return k4[usize(c)];
    case CodeWidth::byte:
      return k8[usize(c)];
  }
  return c;
}

// The difference between foreign and unknown_of_ours decides whether a name is an error: a file has
// thousands of names of attention and norms, but one among the experts that no row knows is
// probably a config that does not fit.
enum class NameMatch : std::uint8_t {
  foreign,          // another part of the model
  unknown_of_ours,  // under <module>.<e>.<projection>. but without a place: unexpected_weight
  known
};

struct ParsedName {
  NameMatch match = NameMatch::foreign;
  std::int64_t expert = 0;                   // of a stack: none
  Projection projection = Projection::gate;  // of a stack: up for w13
  bool joined = false;                       // gate and up of one expert in a tensor, in the config's row order
  const CheckpointTensor* tensor = nullptr;  // known only
  const CheckpointTensor* absent = nullptr;  // unknown_of_ours: one for which the config has no place
  std::string_view why;                      // unknown_of_ours: what is wrong, a fragment of a sentence
};

// Strict about numbers ("03" and "+3" are no experts): two spellings of one expert would overwrite
// one another in silence.
ParsedName parse_tensor_name(std::string_view name, const ExpertModule& module);
// Whether it is below the module as experts' tensors are, whatever it is called there: behind an expert's number, or
// anything in a module of experts alone.
// For reports: a name among the experts that was not taken is worth a word, one of another module
// is not.
bool lies_among_experts(std::string_view name, const ExpertModule& module);
// The way back, for messages and moe_describe; of a stack the expert does not count.
std::string tensor_name(const ExpertModule& module, std::int64_t expert, Projection projection,
                        const CheckpointTensor& tensor);

// gate, up: I x H; down: H x I. `intermediate` is the whole width, `numbers` has the rest.
MatrixSize projection_size(Projection p, std::int64_t hidden, std::int64_t intermediate, const MatrixSize& numbers);
// What callers name the tensors of a projection by.
struct KindRoles {
  TensorKind kind;
  Role w13, w2;
};
std::span<const KindRoles> kind_roles();
// nullopt for what is dropped.
std::optional<Role> role_of(Projection p, TensorKind kind);
// gate: w1; up: w3, or the whole of an ungated w13; down: whole.
// w1 and w3 are vLLM's names of the shards.
Half half_of(Projection p, bool gated);

}  // namespace moe
