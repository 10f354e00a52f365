// What the numbers of a layer mean: quantization arguments as compressed-tensors writes them, on-disk
// formats, activation functions, routing methods. Values only; no parsing, no rules.
//
// Every room above base may include this one, so what stands here holds for all of them: config
// gives the words their places in a document, hf reads them from models, oracle asks about them,
// weights and convert act on them. A rule of one backend belongs to the oracle.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/dtype.h"
#include "base/index.h"

namespace moe {

// The words and their order are those of compressed-tensors, whose config is the widest of all
// formats: quant_method gptq, awq, fp8 and mxfp4 are translated into it and need nothing else.
enum class NumType : std::uint8_t { integer, floating };
// What shares a scale. token is for activations, tensor_group is NVFP4's: groups, and a number for
// all.
enum class Strategy : std::uint8_t { tensor, channel, group, block, token, tensor_group };
// local: the group scales of activations are computed per call, the number for all is in the file.
enum class Dynamic : std::uint8_t { no, yes, local };
// weight changes only the order in which the tool quantizes: the columns of a group lie together,
// and loading needs no g_idx. group leaves them wherever they are.
enum class ActOrder : std::uint8_t { none, group, weight };

// What the scales of dynamic groups of 8-bit float activations are rounded up to.
enum class ScaleFormat : std::uint8_t { float32, ue8m0 };  // nothing; a power of two

// In the order of the enums, which index these arrays.
constexpr std::array<std::string_view, 2> kScaleFormatNames = {"float32", "ue8m0"};
constexpr std::array<std::string_view, 2> kNumTypeNames = {"int", "float"};
constexpr std::array<std::string_view, 6> kStrategyNames = {"tensor", "channel", "group",
                                                            "block",  "token",   "tensor_group"};

// QuantizationArgs of compressed-tensors.
// The same struct describes weights and activations, as in the file.
struct QuantArgs {
  int num_bits = 8;
  NumType type = NumType::integer;
  Strategy strategy = Strategy::tensor;
  // As the config has it. Code that needs columns asks a Groups (scheme/groups.h).
  std::optional<std::int64_t> group_size;
  // Rows and columns, as DeepSeek's weight_block_size has them.
  std::optional<std::array<std::int64_t, 2>> block_structure;
  bool symmetric = true;
  Dynamic dynamic = Dynamic::no;
  ActOrder actorder = ActOrder::none;
  ScaleFormat scale_format = ScaleFormat::float32;  // of activations

  friend bool operator==(const QuantArgs&, const QuantArgs&) = default;
};

// The word that says how files lie, apart from what the numbers mean: the same Quantization may
// come as pack_quantized or as gptq, and the packed layout does not tell them apart.
enum class Format : std::uint8_t {
  none,
  pack_quantized,
  int_quantized,
  float_quantized,
  naive_quantized,
  nvfp4_pack_quantized,
  mxfp4_pack_quantized,
  mxfp8_quantized,
  gptq,
  awq,
  mxfp4_gpt_oss,
  quark_reorder,
  quark_order,
  quark_int8,
  modelopt_int4,
  bitsandbytes_int8,
  nvfp4_pairs,
  pack_quantized_w2,
  pack_quantized_w3,
  pack_quantized_w5,
  pack_quantized_w6,
  pack_quantized_w7,
  mxfp6_pack_quantized
};
// Bits of an integer's code in a checkpoint. Readers of codes switch over these, so that the compiler names each
// place that a new width has to be taught to.
// GPTQ files of 2 and 3 bits exist; they are refused when the config is read.
enum class CodeWidth : std::uint8_t { nibble = 4, byte = 8 };
inline constexpr std::array kCodeWidths = {CodeWidth::nibble, CodeWidth::byte};
constexpr bool is_code_width(int bits) {
  for (const CodeWidth w : kCodeWidths)
    if (static_cast<int>(w) == bits) return true;
  return false;
}
// Only for numbers that is_code_width() has accepted: a cast checks nothing.
constexpr CodeWidth code_width(int bits) { return static_cast<CodeWidth>(bits); }

// A format's word, and what it holds: number type, bits and group size, 0 = any (bits: of a code's widths). Without
// `holds`: none holds nothing quantized, and naive-quantized holds anything.
// A config that says a format and other bits is refused with the sentence fragment `holds`, so that
// the message names what the format can hold.
// A narrow format has codes of fewer bits in its files, each of which is exactly a number of `bits`: they are read as
// those of the format `read_as`, and everything behind the reader knows only that one.
struct FormatRow {
  std::string_view name;
  NumType type = NumType::integer;
  int bits = 0;
  std::int64_t group = 0;
  std::string_view holds = {};
  bool compressed_tensors = false;  // a word of its files
  int stored_bits = 0;              // of a code in files; 0: as many as the weights have
  Format read_as = Format::none;    // of a narrow format
};

// By Format.
// Rows and enumerators are in one order; the assertion behind the table finds a missing row.
inline constexpr std::array kFormats = {
    FormatRow{"none"},
    FormatRow{"pack-quantized", NumType::integer, 0, 0, "integer weights", true},
    FormatRow{"int-quantized", NumType::integer, 0, 0, "integer weights", true},
    FormatRow{"float-quantized", NumType::floating, 8, 0, "8-bit float weights", true},
    FormatRow{.name = "naive-quantized", .compressed_tensors = true},
    FormatRow{"nvfp4-pack-quantized", NumType::floating, 4, 16, "4-bit float weights with group_size 16", true},
    FormatRow{"mxfp4-pack-quantized", NumType::floating, 4, 32, "4-bit float weights with group_size 32", true},
    FormatRow{"mxfp8-quantized", NumType::floating, 8, 32, "8-bit float weights with group_size 32", true},
    FormatRow{"gptq", NumType::integer, 0, 0, "integer weights"},
    FormatRow{"awq", NumType::integer, 4, 0, "4-bit integer weights"},
    FormatRow{"mxfp4-gpt-oss", NumType::floating, 4, 32, "4-bit float weights with group_size 32"},
    FormatRow{"quark-reorder", NumType::integer, 4, 0, "4-bit integer weights"},
    FormatRow{"quark-order", NumType::integer, 4, 0, "4-bit integer weights"},
    FormatRow{"quark-int8", NumType::integer, 8, 0, "8-bit integer weights"},
    FormatRow{"modelopt-int4", NumType::integer, 4, 0, "4-bit integer weights"},
    FormatRow{"bitsandbytes-int8", NumType::integer, 8, 0, "8-bit integer weights"},
    FormatRow{"nvfp4-group-32", NumType::floating, 4, 16, "4-bit float weights with group_size 16"},
    FormatRow{"pack-quantized-w2", NumType::integer, 4, 0, "4-bit integer weights", false, 2, Format::pack_quantized},
    FormatRow{"pack-quantized-w3", NumType::integer, 4, 0, "4-bit integer weights", false, 3, Format::pack_quantized},
    FormatRow{"pack-quantized-w5", NumType::integer, 8, 0, "8-bit integer weights", false, 5, Format::pack_quantized},
    FormatRow{"pack-quantized-w6", NumType::integer, 8, 0, "8-bit integer weights", false, 6, Format::pack_quantized},
    FormatRow{"pack-quantized-w7", NumType::integer, 8, 0, "8-bit integer weights", false, 7, Format::pack_quantized},
    FormatRow{"mxfp6-pack-quantized", NumType::floating, 8, 32, "8-bit float weights with group_size 32", true, 6,
              Format::mxfp8_quantized},
};
static_assert(usize(Format::mxfp6_pack_quantized) + 1 == kFormats.size());
// The format whose weights a layer has once it is read.
constexpr Format read_as(Format f) {
  const Format wider = at(kFormats, f).read_as;
  return wider == Format::none ? f : wider;
}
constexpr bool is_narrow(Format f) { return at(kFormats, f).stored_bits != 0; }
// Of a code in the files of weights of so many bits.
constexpr int stored_bits(Format f, int bits) { return is_narrow(f) ? at(kFormats, f).stored_bits : bits; }
// True if some format holds weights of this type and number of bits.
// The config asks it before it knows the format, and the schema lists what passes.
constexpr bool has_bits(NumType type, int bits) {
  for (const FormatRow& f : kFormats)
    if (!f.holds.empty() && f.type == type && (f.bits != 0 ? f.bits == bits : is_code_width(bits))) return true;
  return false;
}
// Derived, so that a word stands once.
inline constexpr auto kFormatNames = [] {
  std::array<std::string_view, kFormats.size()> names;
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = kFormats[i].name;
  return names;
}();

// GPTQ's first format stores zero - 1 in its words, gptq_v2 the number itself. Tensors do not show
// which it is: the config says it, or the format's usual one counts. twos_complement: codes and zero points have a sign
// (Quark's int4); elsewhere the middle code is 0.
enum class ZeroPoints : std::uint8_t { as_stored, plus_one, twos_complement };
// Type of the activations that Marlin multiplies; none: as they come.
// Numbers are stored; never renumber.
// int8 and fp8 change the bytes of the weights, too, which is why a packed file needs it.
enum class MarlinInput : std::uint8_t { none = 0, int8 = 1, fp8 = 2 };

// The resolved quantization of a layer's experts.
// "Resolved": one answer for this layer, after targets, ignore lists and overrides of the config
// were applied. No weights means unquantized.
struct Quantization {
  std::optional<std::string> hf;  // quant_method when it came from hf_quantization_config
  // quant_method of the model whose file it is, also where a model's config.json became a document in the strict form.
  std::optional<std::string> file_method = {};
  std::optional<QuantArgs> weights;
  std::optional<QuantArgs> input_activations;
  Format format = Format::none;
  // Set whenever weights are integers (fill_storage in config), so readers need no default.
  std::optional<ZeroPoints> zero_point_convention;
  // Columns come first, as GPTQ and AWQ have them always. Some backends take only rows first, and
  // their rules ask this.
  std::optional<bool> is_transposed;

  // int4 symmetric static group/channel weights with int8 dynamic per-token activations (w4a8_int8.md 2.2). vLLM's
  // test leaves the number types out, because it tries W4A8-fp8 before; here they are part of the question.
  // The is_... functions are questions about numbers and not about words: two formats that mean the
  // same give the same answer, and each oracle's key is one of them.
  bool is_w4a8_int8() const {
    if (!weights || !input_activations) return false;
    const QuantArgs &w = *weights, &a = *input_activations;
    return w.num_bits == 4 && w.type == NumType::integer &&
           (w.strategy == Strategy::group || w.strategy == Strategy::channel) && w.symmetric &&
           w.dynamic == Dynamic::no && a.num_bits == 8 && a.type == NumType::integer && a.strategy == Strategy::token &&
           a.dynamic == Dynamic::yes;
  }
  // int8 symmetric static group, channel or tensor weights with int8 dynamic per-token activations.
  // Asked as if it were int4: the two differ in bits and in that int8 may have one scale for all
  // rows.
  bool is_w8a8_int8() const {
    if (!weights || !input_activations || weights->num_bits != 8) return false;
    // A copy per question; it is asked a few times per layer and never per token.
    Quantization as_int4 = *this;
    as_int4.weights->num_bits = 4;
    if (has_one_scale()) as_int4.weights->strategy = Strategy::channel;
    return as_int4.is_w4a8_int8();
  }
  // int4 weights as above with 8-bit float activations, dynamic per token (W4AFP8).
  // act_order is excluded because the layout of CUTLASS's kernel has no place for a g_idx.
  bool is_w4a8_fp8() const {
    if (!weights || !input_activations || input_activations->type != NumType::floating) return false;
    if (weights->actorder == ActOrder::group || is_transposed.value_or(false)) return false;
    Quantization as_int8 = *this;
    as_int8.input_activations->type = NumType::integer;
    return as_int8.is_w4a8_int8();
  }
  // Static symmetric 8-bit float weights, whatever the activations.
  bool is_fp8() const {
    return weights && weights->type == NumType::floating && weights->num_bits == 8 && weights->symmetric &&
           weights->dynamic == Dynamic::no;
  }
  // Static symmetric 4-bit floats with a power of two for 32 columns, or an 8-bit float for 16 and a number for the
  // projection, whatever the activations.
  bool is_mxfp4() const { return is_fp4(Strategy::group, 32); }
  bool is_nvfp4() const { return is_fp4(Strategy::tensor_group, 16); }
  bool is_fp4(Strategy strategy, std::int64_t group) const {
    return weights && weights->type == NumType::floating && weights->num_bits == 4 && weights->symmetric &&
           weights->dynamic == Dynamic::no && weights->strategy == strategy && weights->group_size == group;
  }
  // Each projection has one scale for all of its rows.
  bool has_one_scale() const { return weights && weights->strategy == Strategy::tensor; }
  // int4 or int8 static group/channel weights alone.
  // Weight-only: WNA16 in vLLM's words, N bits with 16-bit activations. Whether activations are
  // then quantized in a kernel (blk16) is its own affair.
  bool is_wna16() const {
    if (!weights || input_activations) return false;
    const QuantArgs& w = *weights;
    return (w.num_bits == 4 || w.num_bits == 8) && w.type == NumType::integer && w.dynamic == Dynamic::no &&
           (w.strategy == Strategy::group || w.strategy == Strategy::channel);
  }
};

// The gated ones come first, so is_gated is one comparison; _no_mul are the same functions without
// the product with up. Names are vLLM's, but for swiglu_softcap, which is ours.
enum class Activation : std::uint8_t {
  silu,
  gelu,
  gelu_tanh,
  relu2,
  swigluoai,
  swigluoai_uninterleave,
  swiglustep,
  swiglu_softcap,
  situ,
  silu_no_mul,
  gelu_no_mul,
  gelu_tanh_no_mul,
  relu2_no_mul
};
constexpr auto kActivationNames = std::to_array<std::string_view>(
    {"silu", "gelu", "gelu_tanh", "relu2", "swigluoai", "swigluoai_uninterleave", "swiglustep", "swiglu_softcap",
     "situ", "silu_no_mul", "gelu_no_mul", "gelu_tanh_no_mul", "relu2_no_mul"});
constexpr bool is_gated(Activation a) { return a < Activation::silu_no_mul; }

// How a fused tensor orders its rows: halves either way, or g0 u0 g1 u1 ... (GPT-OSS). It speaks of
// source tensors only: packed layouts have an order of their own.
enum class W13Layout : std::uint8_t { gate_up, up_gate, interleaved };
constexpr std::array<std::string_view, 3> kW13LayoutNames = {"gate_up", "up_gate", "interleaved"};

enum class Scoring : std::uint8_t { softmax, sigmoid, sqrtsoftplus };
constexpr std::array<std::string_view, 3> kScoringNames = {"softmax", "sigmoid", "sqrtsoftplus"};

// Numbers of config.md 6 (libmoe's column).
// Numbers of vLLM moved between its versions, so they are never read: configs have names, and these
// numbers are libmoe's own.
enum class RoutingMethod : std::int32_t {
  default_ = 0,
  renormalize = 1,
  deepseek_v3 = 2,
  llama4 = 3,
  renormalize_naive = 4,
  topk = 5,
  custom = 6,
  simulated = 7,
  unspecified = 8,
  sigmoid_renorm = 100,
  minimax2 = 101,
  sigmoid = 102,
  deepseek_v4 = 103,
  sparse_mixer = 104
};
struct RoutingMethodName {
  RoutingMethod method;
  const char* name;
};
// A list of pairs and not an array by number: numbers have gaps.
std::span<const RoutingMethodName> routing_method_names();
const char* routing_method_name(RoutingMethod m);  // "Default", "DeepSeekV3", ...
std::optional<RoutingMethod> routing_method_from_name(std::string_view name);

}  // namespace moe
