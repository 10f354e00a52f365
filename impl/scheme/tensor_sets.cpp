// The rows of the checkpoint formats: which tensors hold weights of which quantization. See checkpoint.h.
#include <algorithm>
#include <initializer_list>

#include "scheme/checkpoint.h"

namespace moe {
namespace {

constexpr std::array<DType, 4> types(DType a, DType b = {}, DType c = {}, DType d = {}) { return {a, b, c, d}; }
constexpr std::array kFloats = types(DType::f32, DType::f16, DType::bf16);
constexpr std::array kI8 = types(DType::i8), kI32 = types(DType::i32), kI64 = types(DType::i64), kU8 = types(DType::u8);
constexpr std::array kF32 = types(DType::f32), kBytes = types(DType::u8, DType::i8);
constexpr std::array kE4m3Codes = types(DType::f8_e4m3fn), kE8m0s = types(DType::u8, DType::f8_e8m0fnu);
constexpr std::array kFp8Scales = types(DType::f32, DType::f16, DType::bf16, DType::f8_e8m0fnu);

constexpr std::array kMatrix = {Axis::n, Axis::k}, kPackedRows = {Axis::n, Axis::k_words};
constexpr std::array kRowGroups = {Axis::n, Axis::groups}, kWordGroups = {Axis::n_words, Axis::groups};
constexpr std::array kGroupRows = {Axis::groups, Axis::n}, kGroupWords = {Axis::groups, Axis::n_words};
constexpr std::array kPackedColumns = {Axis::k_words, Axis::n}, kColumnWords = {Axis::k, Axis::n_words};
constexpr std::array kPerRow = {Axis::n, Axis::none}, kPerColumn = {Axis::k, Axis::none};
constexpr std::array kTwoNumbers = {Axis::two, Axis::none}, kOne = {Axis::one, Axis::none};
constexpr std::array kPackedBytes = {Axis::n, Axis::k_bytes}, kColumns = {Axis::k, Axis::n};
constexpr std::array kBlockScales = {Axis::n_blocks, Axis::k_blocks}, kBlockColumns = {Axis::k_blocks, Axis::n_blocks};
constexpr std::array kPerHalf = {Axis::halves, Axis::none}, kRowPairs = {Axis::n_pairs, Axis::k};
constexpr std::array kByteColumns = {Axis::k_bytes, Axis::n}, kRowGroupPairs = {Axis::n, Axis::group_pairs};

// clang-format off
constexpr std::array kIntQuantized = {
    CheckpointTensor{"weight",            TensorKind::weight,     Presence::required,   kI8,     kMatrix},
    CheckpointTensor{"weight_scale",      TensorKind::scale,      Presence::required,   kFloats, kRowGroups, ShapeKind::vector},
    CheckpointTensor{"bias",              TensorKind::bias,       Presence::with_bias,  kFloats, kPerRow},
};
constexpr std::array kIntQuantizedWhole = {
    CheckpointTensor{"weight",            TensorKind::weight,     Presence::required,   kI8,     kMatrix},
    CheckpointTensor{"weight_scale",      TensorKind::scale,      Presence::required,   kFloats, kOne},
    CheckpointTensor{"bias",              TensorKind::bias,       Presence::with_bias,  kFloats, kPerRow},
};
// Beside 16-bit activations: what tools write about zero points and activations that are not quantized here.
constexpr std::array<CheckpointTensor, 7> int8_alone(const std::array<Axis, 2>& scales, ShapeKind shape) {
  return {{
    {"weight",            TensorKind::weight,     Presence::required,   kI8,     kMatrix,  ShapeKind::axes,   {"_weight_qdata"}},
    {"weight_scale",      TensorKind::scale,      Presence::required,   kFloats, scales,   shape,             {"_weight_scale"}},
    {"weight_zero_point", TensorKind::no_zeros,   Presence::optional,   kI8,     scales,   shape,             {"_weight_zero_point"}},
    {"input_scale",       TensorKind::beside,     Presence::optional,   kFloats, kPerHalf, ShapeKind::scalar},
    {"input_zero_point",  TensorKind::beside,     Presence::optional,   kI8,     kPerHalf, ShapeKind::scalar},
    {"pre_quant_scale",   TensorKind::input_columns, Presence::optional,kFloats, kPerColumn},
    {"bias",              TensorKind::bias,       Presence::with_bias,  kFloats, kPerRow},
  }};
}
constexpr std::array kBitsandbytesInt8 = {
    CheckpointTensor{"weight",            TensorKind::weight,     Presence::required,   kI8,     kMatrix},
    CheckpointTensor{"SCB",               TensorKind::scale,      Presence::required,   kF32,    kRowGroups, ShapeKind::vector},
    CheckpointTensor{"weight_format",     TensorKind::no_zeros,   Presence::optional,   kU8,     kOne},
    CheckpointTensor{"bias",              TensorKind::bias,       Presence::with_bias,  kFloats, kPerRow},
};
constexpr std::array kInt8Rows = int8_alone(kRowGroups, ShapeKind::vector);
// Of Quark's int8 per tensor: a scale for each projection, whose rows are a channel each here.
constexpr std::array kInt8Whole = int8_alone(kPerHalf, ShapeKind::scalar);
constexpr std::array kUnquantized = {
    CheckpointTensor{"weight",            TensorKind::weight,     Presence::required,   kFloats, kMatrix},
    CheckpointTensor{"bias",              TensorKind::bias,       Presence::with_bias,  kFloats, kPerRow},
};
constexpr std::array kPackQuantized = {
    CheckpointTensor{"weight_packed",     TensorKind::weight,     Presence::required,   kI32,    kPackedRows},
    CheckpointTensor{"weight_scale",      TensorKind::scale,      Presence::required,   kFloats, kRowGroups, ShapeKind::vector},
    CheckpointTensor{"weight_zero_point", TensorKind::zero_point, Presence::with_zeros, kI32,    kWordGroups, ShapeKind::vector},
    CheckpointTensor{"weight_g_idx",      TensorKind::g_idx,      Presence::with_g_idx, kI32,    kPerColumn},
    CheckpointTensor{"weight_shape",      TensorKind::shape,      Presence::optional,   kI64,    kTwoNumbers},
    CheckpointTensor{"bias",              TensorKind::bias,       Presence::with_bias,  kFloats, kPerRow},
};
// Codes of fewer bits. The tools that write them have no activation order.
constexpr std::array kPackNarrow = {
    CheckpointTensor{"weight_packed",     TensorKind::weight,     Presence::required,   kI32,    kPackedRows},
    CheckpointTensor{"weight_scale",      TensorKind::scale,      Presence::required,   kFloats, kRowGroups, ShapeKind::vector},
    CheckpointTensor{"weight_zero_point", TensorKind::zero_point, Presence::with_zeros, kI32,    kWordGroups, ShapeKind::vector},
    CheckpointTensor{"weight_shape",      TensorKind::shape,      Presence::optional,   kI64,    kTwoNumbers},
    CheckpointTensor{"bias",              TensorKind::bias,       Presence::with_bias,  kFloats, kPerRow},
};
constexpr std::array kPackQuantizedWhole = {
    CheckpointTensor{"weight_packed",     TensorKind::weight,     Presence::required,   kI32,    kPackedRows},
    CheckpointTensor{"weight_scale",      TensorKind::scale,      Presence::required,   kFloats, kOne},
    CheckpointTensor{"weight_zero_point", TensorKind::zero_point, Presence::with_zeros, kI32,    kWordGroups, ShapeKind::vector},
    CheckpointTensor{"weight_g_idx",      TensorKind::g_idx,      Presence::with_g_idx, kI32,    kPerColumn},
    CheckpointTensor{"weight_shape",      TensorKind::shape,      Presence::optional,   kI64,    kTwoNumbers},
    CheckpointTensor{"bias",              TensorKind::bias,       Presence::with_bias,  kFloats, kPerRow},
};
constexpr std::array kGptq = {
    CheckpointTensor{"qweight",           TensorKind::weight,     Presence::required,   kI32,    kPackedColumns},
    CheckpointTensor{"scales",            TensorKind::scale,      Presence::required,   kFloats, kGroupRows, ShapeKind::vector},
    CheckpointTensor{"qzeros",            TensorKind::zero_point, Presence::with_zeros, kI32,    kGroupWords, ShapeKind::vector},
    CheckpointTensor{"g_idx",             TensorKind::g_idx,      Presence::with_g_idx, kI32,    kPerColumn},
    CheckpointTensor{"bias",              TensorKind::bias,       Presence::with_bias,  kFloats, kPerRow},
};
constexpr std::array kAwq = {
    CheckpointTensor{"qweight",           TensorKind::weight,     Presence::required,   kI32,    kColumnWords},
    CheckpointTensor{"scales",            TensorKind::scale,      Presence::required,   kFloats, kGroupRows, ShapeKind::vector},
    CheckpointTensor{"qzeros",            TensorKind::zero_point, Presence::with_zeros, kI32,    kGroupWords, ShapeKind::vector},
    CheckpointTensor{"bias",              TensorKind::bias,       Presence::with_bias,  kFloats, kPerRow},
};
constexpr std::array kQuarkGroups = {
    CheckpointTensor{"weight",            TensorKind::weight,     Presence::required,   kI32,    kColumnWords},
    CheckpointTensor{"weight_scale",      TensorKind::scale,      Presence::required,   kFloats, kGroupRows, ShapeKind::vector},
    CheckpointTensor{"weight_zero_point", TensorKind::zero_point, Presence::with_zeros, kI32,    kGroupWords, ShapeKind::vector},
    CheckpointTensor{"bias",              TensorKind::bias,       Presence::with_bias,  kFloats, kPerRow},
};
constexpr std::array kQuarkRows = {
    CheckpointTensor{"weight",            TensorKind::weight,     Presence::required,   kI32,    kPackedRows},
    CheckpointTensor{"weight_scale",      TensorKind::scale,      Presence::required,   kFloats, kRowGroups, ShapeKind::vector},
    CheckpointTensor{"weight_zero_point", TensorKind::zero_point, Presence::with_zeros, kI32,    kWordGroups, ShapeKind::vector},
    CheckpointTensor{"bias",              TensorKind::bias,       Presence::with_bias,  kFloats, kPerRow},
};
constexpr std::array kModelOptInt4 = {
    CheckpointTensor{"weight",            TensorKind::weight,     Presence::required,   kU8,     kRowPairs},
    CheckpointTensor{"weight_scale",      TensorKind::scale,      Presence::required,   kFloats, kRowGroups, ShapeKind::vector},
    CheckpointTensor{"pre_quant_scale",   TensorKind::input_columns, Presence::optional, kFloats, kPerColumn},
    CheckpointTensor{"bias",              TensorKind::bias,       Presence::with_bias,  kFloats, kPerRow},
};
// Formats of 8-bit floats differ in their scales alone: the first of kScales is what a format's own tools write.
struct Fp8Scale {
  std::string_view suffix;
  std::array<DType, 4> dtypes;
  std::array<Axis, 2> axes;
  ShapeKind shape_kind = ShapeKind::axes;
};
constexpr std::string_view kScale = "weight_scale", kInverse = "weight_scale_inv";
constexpr Aliases kScales = {kScale, kInverse, "scale", "qscale_weight", "_weight_scale"}, kInputScales = {"activation_scale", "qscale_act"};
constexpr std::array<CheckpointTensor, 4> fp8(const Fp8Scale& s) {
  return {{
    {"weight",            TensorKind::weight,      Presence::required,         kE4m3Codes, kMatrix,  ShapeKind::axes,   {"_weight_qdata"}},
    {s.suffix,            TensorKind::scale,       Presence::required,         s.dtypes,   s.axes,   s.shape_kind,      kScales},
    {"input_scale",       TensorKind::input_scale, Presence::with_input_scale, kFloats,    kPerHalf, ShapeKind::scalar, kInputScales},
    {"bias",              TensorKind::bias,        Presence::with_bias,        kFloats,    kPerRow},
  }};
}
constexpr std::array kFp8Tensor         = fp8({kScale,   kFp8Scales, kPerHalf, ShapeKind::scalar});
constexpr std::array kFp8Rows           = fp8({kScale,   kFp8Scales, kRowGroups, ShapeKind::vector});
constexpr std::array kFp8Blocks         = fp8({kScale,   kFp8Scales, kBlockScales, ShapeKind::spread});
constexpr std::array kFp8BlocksDeepSeek = fp8({kInverse, kFp8Scales, kBlockScales, ShapeKind::spread});
constexpr std::array kMxfp8             = fp8({kScale,   kE8m0s,     kRowGroups});
// compressed-tensors and DeepSeek-V4.
constexpr std::array kMxfp4 = {
    CheckpointTensor{"weight_packed",       TensorKind::weight,             Presence::required,         kBytes,     kPackedBytes, ShapeKind::blocks, {"weight"}},
    CheckpointTensor{"weight_scale",        TensorKind::scale,              Presence::required,         kE8m0s,     kRowGroups,   ShapeKind::axes,   {"scale"}},
    CheckpointTensor{"input_scale",         TensorKind::beside,             Presence::optional,         kFloats,    kPerHalf,     ShapeKind::scalar},
    CheckpointTensor{"bias",                TensorKind::bias,               Presence::with_bias,        kFloats,    kPerRow},
};
// compressed-tensors: four codes of e2m3 in three bytes.
constexpr std::array kMxfp6 = {
    CheckpointTensor{"weight_packed",       TensorKind::weight,             Presence::required,         kU8,        kPackedBytes},
    CheckpointTensor{"weight_scale",        TensorKind::scale,              Presence::required,         kE8m0s,     kRowGroups},
    CheckpointTensor{"bias",                TensorKind::bias,               Presence::with_bias,        kFloats,    kPerRow},
};
constexpr std::array kGptOss = {
    CheckpointTensor{"_blocks",             TensorKind::weight,             Presence::required,         kBytes,     kPackedBytes, ShapeKind::blocks},
    CheckpointTensor{"_scales",             TensorKind::scale,              Presence::required,         kE8m0s,     kRowGroups},
    CheckpointTensor{"_bias",               TensorKind::bias,               Presence::with_bias,        kFloats,    kPerRow},
};
// compressed-tensors and ModelOpt, which says the same in factors.
constexpr std::array kNvfp4 = {
    CheckpointTensor{"weight_packed",       TensorKind::weight,             Presence::required,         kBytes,     kPackedBytes, ShapeKind::axes,   {"weight"}},
    CheckpointTensor{"weight_scale",        TensorKind::scale,              Presence::required,         kE4m3Codes, kRowGroups},
    CheckpointTensor{"weight_scale_2",      TensorKind::scale_2,            Presence::required,         kF32,       kPerHalf,     ShapeKind::scalar},
    CheckpointTensor{"weight_global_scale", TensorKind::global_scale,       Presence::optional,         kF32,       kPerHalf,     ShapeKind::scalar},
    CheckpointTensor{"input_scale",         TensorKind::input_scale,        Presence::with_input_scale, kF32,       kPerHalf,     ShapeKind::scalar, {"input_scale_2"}},
    CheckpointTensor{"input_global_scale",  TensorKind::input_global_scale, Presence::with_input_scale, kF32,       kPerHalf,     ShapeKind::scalar},
    CheckpointTensor{"bias",                TensorKind::bias,               Presence::with_bias,        kFloats,    kPerRow},
};
// ModelOpt's W4A8_NVFP4_FP8.
constexpr std::array kNvfp4Pairs = {
    CheckpointTensor{"weight",              TensorKind::weight,             Presence::required,         kBytes,     kPackedBytes},
    CheckpointTensor{"weight_scale",        TensorKind::scale,              Presence::required,         kE4m3Codes, kRowGroupPairs},
    CheckpointTensor{"weight_scale_2",      TensorKind::scale_2,            Presence::required,         kF32,       kPerHalf,     ShapeKind::scalar},
    CheckpointTensor{"input_scale",         TensorKind::beside,             Presence::optional,         kF32,       kPerHalf,     ShapeKind::scalar},
    CheckpointTensor{"bias",                TensorKind::bias,               Presence::with_bias,        kFloats,    kPerRow},
};
// Unquantized weights of all experts.
constexpr std::array kStackedRows = {
    CheckpointTensor{"",                    TensorKind::weight,             Presence::required,         kFloats,    kMatrix,  ShapeKind::axes, {".weight"}},
    CheckpointTensor{"_bias",               TensorKind::bias,               Presence::with_bias,        kFloats,    kPerRow},
};
constexpr std::array kStackedColumns = {
    CheckpointTensor{"",                    TensorKind::weight,             Presence::required,         kFloats,    kColumns, ShapeKind::axes, {".weight"}},
    CheckpointTensor{"_bias",               TensorKind::bias,               Presence::with_bias,        kFloats,    kPerRow},
};
// FP8 as transformers has it in memory and writes it where the class writes stacks, as Step-3.7's files and ModelOpt's.
constexpr Aliases kStackScales = {"_scale", "_weight_scale", ".weight_scale_inv", ".weight_scale", "_scales_inv"};
constexpr Aliases kStackInputScales = {"_input_scale", ".activation_scale", ".input_scale"};
struct Fp8Stack {
  std::array<Axis, 2> weights, scales;
  ShapeKind shape_kind = ShapeKind::axes;
};
constexpr std::array<CheckpointTensor, 4> fp8_stack(const Fp8Stack& s) {
  return {{
    {"",                                    TensorKind::weight,             Presence::required,         kE4m3Codes, s.weights,    ShapeKind::axes,   {".weight"}},
    {"_scale_inv",                          TensorKind::scale,              Presence::required,         kFp8Scales, s.scales,     s.shape_kind,      kStackScales},
    {"_activation_scale",                   TensorKind::input_scale,        Presence::with_input_scale, kFloats,    kPerHalf,     ShapeKind::scalar, kStackInputScales},
    {"_bias",                               TensorKind::bias,               Presence::with_bias,        kFloats,    kPerRow},
  }};
}
constexpr std::array kFp8StackedBlocks       = fp8_stack({kMatrix,  kBlockScales});
constexpr std::array kFp8StackedBlockColumns = fp8_stack({kColumns, kBlockColumns});
constexpr std::array kFp8StackedChannels     = fp8_stack({kMatrix,  kRowGroups, ShapeKind::vector});
constexpr std::array kFp8StackedTensor       = fp8_stack({kMatrix,  kPerHalf, ShapeKind::scalar});
constexpr std::array kFp8StackedColumns      = fp8_stack({kColumns, kPerHalf, ShapeKind::scalar});
// Small floats with scales of groups, as ModelOpt and compressed-tensors name them.
constexpr Aliases kStackWeights = {".weight", "_packed", ".weight_packed"};
struct StackAxes {
  std::array<Axis, 2> weights, scales;
};
constexpr StackAxes kRowsFirst = {kPackedBytes, kRowGroups}, kColumnsFirst = {kByteColumns, kGroupRows};
constexpr std::array<CheckpointTensor, 7> nvfp4_stack(const StackAxes& s) {
  return {{
    {"",                    TensorKind::weight,             Presence::required,         kBytes,     s.weights, ShapeKind::axes,   kStackWeights},
    {"_weight_scale",       TensorKind::scale,              Presence::required,         kE4m3Codes, s.scales,  ShapeKind::axes,   {"_scale", ".weight_scale"}},
    {"_weight_scale_2",     TensorKind::scale_2,            Presence::required,         kF32,       kPerHalf,  ShapeKind::scalar, {"_scale_2", ".weight_scale_2"}},
    {"_global_scale",       TensorKind::global_scale,       Presence::optional,         kF32,       kPerHalf,  ShapeKind::scalar, {"_weight_global_scale", ".weight_global_scale"}},
    {"_input_scale",        TensorKind::input_scale,        Presence::with_input_scale, kF32,       kPerHalf,  ShapeKind::scalar, {".input_scale"}},
    {"_input_global_scale", TensorKind::input_global_scale, Presence::with_input_scale, kF32,       kPerHalf,  ShapeKind::scalar, {".input_global_scale"}},
    {"_bias",               TensorKind::bias,               Presence::with_bias,        kFloats,    kPerRow,   ShapeKind::axes,   {".bias"}},
  }};
}
constexpr std::array<CheckpointTensor, 3> mx_stack(const StackAxes& s, const std::array<DType, 4>& codes) {
  return {{
    {"",                    TensorKind::weight,             Presence::required,         codes,      s.weights, ShapeKind::axes,   kStackWeights},
    {"_weight_scale",       TensorKind::scale,              Presence::required,         kE8m0s,     s.scales,  ShapeKind::axes,   {"_scale", ".weight_scale", "_scale_inv"}},
    {"_bias",               TensorKind::bias,               Presence::with_bias,        kFloats,    kPerRow,   ShapeKind::axes,   {".bias"}},
  }};
}
constexpr std::array kNvfp4StackRows = nvfp4_stack(kRowsFirst), kNvfp4StackColumns = nvfp4_stack(kColumnsFirst);
constexpr std::array kMxfp4StackRows = mx_stack(kRowsFirst, kBytes), kMxfp4StackColumns = mx_stack(kColumnsFirst, kBytes);
constexpr std::array kMxfp8StackRows = mx_stack({kMatrix, kRowGroups}, kE4m3Codes);
constexpr std::array kMxfp8StackColumns = mx_stack({kColumns, kGroupRows}, kE4m3Codes);
constexpr std::array<CheckpointTensor, 4> int8_stack(std::string_view weight) {
  return {{
    {weight,                TensorKind::weight,             Presence::required,         kI8,        kMatrix,    ShapeKind::axes,   {".weight"}},
    {"_scale",              TensorKind::scale,              Presence::required,         kFloats,    kRowGroups, ShapeKind::vector, {"_weight_scale", ".weight_scale"}},
    {"_zero_point",         TensorKind::no_zeros,           Presence::optional,         kI8,        kRowGroups, ShapeKind::vector, {".weight_zero_point"}},
    {"_bias",               TensorKind::bias,               Presence::with_bias,        kFloats,    kPerRow},
  }};
}
constexpr std::array kInt8StackRows = int8_stack(""), kTorchaoStackRows = int8_stack("_qdata");
constexpr std::array kTorchaoFp8StackRows = {
    CheckpointTensor{"_qdata",              TensorKind::weight,             Presence::required,         kE4m3Codes, kMatrix},
    CheckpointTensor{"_scale",              TensorKind::scale,              Presence::required,         kFloats,    kRowGroups, ShapeKind::vector},
    CheckpointTensor{"_bias",               TensorKind::bias,               Presence::with_bias,        kFloats,    kPerRow},
};
constexpr Stack kGateUpDown = {{"gate_up_proj", "down_proj"}};
constexpr Stack kTorchao = {{"_gate_up_proj", "_down_proj"}};  // of the subclass's members, whose names begin so
// clang-format on

bool is_unquantized(const Quantization& q) { return !q.weights; }
bool is_mxfp4(const Quantization& q) { return q.is_mxfp4(); }
bool is_nvfp4(const Quantization& q) { return q.is_nvfp4(); }
bool has_int8_activations(const Quantization& q) {
  return (q.is_w4a8_int8() || q.is_w8a8_int8()) && q.weights->symmetric && q.weights->actorder != ActOrder::group &&
         !q.is_transposed.value_or(false);
}

bool is_int8_by_row(const Quantization& q) { return has_int8_activations(q) && !q.has_one_scale(); }
bool is_int8_whole(const Quantization& q) { return has_int8_activations(q) && q.has_one_scale(); }

bool is_wna16_groups(const Quantization& q) { return q.is_wna16() && q.weights->strategy == Strategy::group; }
bool is_wna16_rows(const Quantization& q) { return q.is_wna16() && q.weights->strategy == Strategy::channel; }
bool is_int8_alone(const Quantization& q) {
  return q.is_wna16() && q.weights->num_bits == 8 && q.weights->symmetric && q.weights->actorder != ActOrder::group;
}
bool is_int8_rows(const Quantization& q) { return is_int8_alone(q) && q.weights->strategy == Strategy::channel; }
bool is_wna16_or_int8(const Quantization& q) { return q.is_wna16() || is_int8_by_row(q) || q.is_w4a8_fp8(); }

bool is_fp8(const Quantization& q, std::initializer_list<Strategy> strategies) {
  return q.is_fp8() && std::find(strategies.begin(), strategies.end(), q.weights->strategy) != strategies.end();
}
bool is_fp8_tensor(const Quantization& q) { return is_fp8(q, {Strategy::tensor}); }
bool is_fp8_rows(const Quantization& q) { return is_fp8(q, {Strategy::channel, Strategy::group}); }
bool is_fp8_channels(const Quantization& q) { return is_fp8(q, {Strategy::channel}); }
bool is_fp8_groups(const Quantization& q) { return is_fp8(q, {Strategy::group}); }
bool is_fp8_blocks(const Quantization& q) { return is_fp8(q, {Strategy::block}); }
// Of a turned matrix only square blocks lie the same way for every writer.
bool is_fp8_squares(const Quantization& q) {
  return is_fp8_blocks(q) && q.weights->block_structure &&
         (*q.weights->block_structure)[0] == (*q.weights->block_structure)[1];
}

}  // namespace

std::span<const TensorSet> tensor_sets() {
  static constexpr std::array kSets = {
      TensorSet{Format::none, Codes::values, kUnquantized, is_unquantized},
      TensorSet{Format::int_quantized, Codes::bytes, kIntQuantized,
                [](const Quantization& q) { return is_int8_by_row(q) || q.is_w4a8_fp8(); }},
      TensorSet{Format::int_quantized, Codes::bytes, kIntQuantizedWhole, is_int8_whole},
      TensorSet{Format::int_quantized, Codes::bytes, kInt8Rows, is_int8_alone},
      TensorSet{Format::quark_int8, Codes::bytes, kInt8Whole, is_int8_rows},
      TensorSet{Format::pack_quantized, Codes::words, kPackQuantized, is_wna16_or_int8},
      TensorSet{Format::pack_quantized, Codes::words, kPackQuantizedWhole, is_int8_whole},
      TensorSet{Format::pack_quantized_w2, Codes::words, kPackNarrow, is_wna16_or_int8},
      TensorSet{Format::pack_quantized_w3, Codes::words, kPackNarrow, is_wna16_or_int8},
      TensorSet{Format::pack_quantized_w5, Codes::words, kPackNarrow, is_wna16_or_int8},
      TensorSet{Format::pack_quantized_w6, Codes::words, kPackNarrow, is_wna16_or_int8},
      TensorSet{Format::pack_quantized_w7, Codes::words, kPackNarrow, is_wna16_or_int8},
      TensorSet{Format::gptq, Codes::words, kGptq, [](const Quantization& q) { return q.is_wna16(); }},
      TensorSet{Format::awq,
                Codes::row_words,
                kAwq,
                [](const Quantization& q) { return q.is_wna16(); },
                nullptr,
                StackedWeights::none,
                {},
                FieldOrder::awq},
      TensorSet{Format::quark_reorder,
                Codes::row_words,
                kQuarkGroups,
                is_wna16_groups,
                nullptr,
                StackedWeights::none,
                {},
                FieldOrder::awq},
      TensorSet{Format::quark_reorder,
                Codes::words,
                kQuarkRows,
                is_wna16_rows,
                nullptr,
                StackedWeights::none,
                {},
                FieldOrder::awq},
      TensorSet{Format::quark_order, Codes::row_words, kQuarkGroups, is_wna16_groups},
      TensorSet{Format::quark_order, Codes::words, kQuarkRows, is_wna16_rows},
      TensorSet{Format::modelopt_int4, Codes::row_pairs, kModelOptInt4,
                [](const Quantization& q) { return q.is_wna16() && q.weights->symmetric; }},
      TensorSet{Format::bitsandbytes_int8,
                Codes::bytes,
                kBitsandbytesInt8,
                is_int8_rows,
                nullptr,
                StackedWeights::none,
                {},
                FieldOrder::plain,
                127},
      TensorSet{Format::float_quantized, Codes::bits, kFp8BlocksDeepSeek,
                [](const Quantization& q) { return is_fp8_blocks(q) && q.file_method == "fp8"; }},
      TensorSet{Format::float_quantized, Codes::bits, kFp8Tensor, is_fp8_tensor},
      TensorSet{Format::float_quantized, Codes::bits, kFp8Rows, is_fp8_rows},
      TensorSet{Format::float_quantized, Codes::bits, kFp8Blocks, is_fp8_blocks},
      TensorSet{Format::naive_quantized, Codes::bits, kFp8Tensor, is_fp8_tensor},
      TensorSet{Format::naive_quantized, Codes::bits, kFp8Rows, is_fp8_rows},
      TensorSet{Format::naive_quantized, Codes::bits, kFp8Blocks, is_fp8_blocks},
      TensorSet{Format::mxfp8_quantized, Codes::bits, kMxfp8, is_fp8_groups},
      TensorSet{Format::mxfp6_pack_quantized, Codes::bits, kMxfp6, is_fp8_groups},
      TensorSet{Format::mxfp4_pack_quantized, Codes::bits, kMxfp4, is_mxfp4},
      TensorSet{Format::mxfp4_gpt_oss, Codes::bits, kGptOss, is_mxfp4, &kGateUpDown},
      TensorSet{Format::nvfp4_pack_quantized, Codes::bits, kNvfp4, is_nvfp4},
      TensorSet{Format::nvfp4_pairs, Codes::bits, kNvfp4Pairs, is_nvfp4},
      TensorSet{Format::float_quantized, Codes::bits, kFp8StackedBlocks, is_fp8_blocks, &kGateUpDown,
                StackedWeights::rows_first},
      TensorSet{Format::float_quantized, Codes::bits, kFp8StackedBlockColumns, is_fp8_squares, &kGateUpDown,
                StackedWeights::columns_first},
      TensorSet{Format::float_quantized, Codes::bits, kFp8StackedChannels, is_fp8_channels, &kGateUpDown,
                StackedWeights::rows_first},
      TensorSet{Format::float_quantized, Codes::bits, kFp8StackedTensor, is_fp8_tensor, &kGateUpDown,
                StackedWeights::rows_first},
      TensorSet{Format::float_quantized, Codes::bits, kFp8StackedColumns, is_fp8_tensor, &kGateUpDown,
                StackedWeights::columns_first},
      TensorSet{Format::mxfp8_quantized, Codes::bits, kMxfp8StackRows, is_fp8_groups, &kGateUpDown,
                StackedWeights::rows_first},
      TensorSet{Format::mxfp8_quantized, Codes::bits, kMxfp8StackColumns, is_fp8_groups, &kGateUpDown,
                StackedWeights::columns_first},
      TensorSet{Format::mxfp4_pack_quantized, Codes::bits, kMxfp4StackRows, is_mxfp4, &kGateUpDown,
                StackedWeights::rows_first},
      TensorSet{Format::mxfp4_pack_quantized, Codes::bits, kMxfp4StackColumns, is_mxfp4, &kGateUpDown,
                StackedWeights::columns_first},
      TensorSet{Format::nvfp4_pack_quantized, Codes::bits, kNvfp4StackRows, is_nvfp4, &kGateUpDown,
                StackedWeights::rows_first},
      TensorSet{Format::nvfp4_pack_quantized, Codes::bits, kNvfp4StackColumns, is_nvfp4, &kGateUpDown,
                StackedWeights::columns_first},
      TensorSet{Format::int_quantized, Codes::bytes, kTorchaoStackRows, is_int8_alone, &kTorchao},
      TensorSet{Format::float_quantized, Codes::bits, kTorchaoFp8StackRows, is_fp8_channels, &kTorchao},
      TensorSet{Format::int_quantized, Codes::bytes, kInt8StackRows, is_int8_alone, &kGateUpDown,
                StackedWeights::rows_first},
      TensorSet{Format::none, Codes::values, kStackedRows, is_unquantized, &kGateUpDown, StackedWeights::rows_first},
      TensorSet{Format::none, Codes::values, kStackedColumns, is_unquantized, &kGateUpDown,
                StackedWeights::columns_first},
      TensorSet{Format::none, Codes::values, kStackedRows, is_unquantized, &kGateUpDown, StackedWeights::flat,
                kStackedColumns},
  };
  return kSets;
}

const TensorSet* tensor_set(const Quantization& q) {
  for (const TensorSet& set : tensor_sets())
    if (set.format == q.format && set.holds(q)) return &set;
  return nullptr;
}

std::vector<const TensorSet*> file_sets(const Quantization& q, StackedWeights stacked) {
  if (stacked == StackedWeights::by_shape) stacked = StackedWeights::rows_first;  // until a tensor tells otherwise
  std::vector<const TensorSet*> sets;
  const TensorSet* first = tensor_set(q);
  if (first == nullptr) return sets;
  sets.push_back(first);
  for (const TensorSet& set : tensor_sets())
    if (&set != first && set.format == q.format && set.holds(q) && set.stack != nullptr &&
        (set.stacked == StackedWeights::none || set.stacked == stacked))
      sets.push_back(&set);
  return sets;
}

const TensorSet* turned(const Quantization& q, const TensorSet& set) {
  using enum StackedWeights;
  if (set.stacked != rows_first && set.stacked != columns_first) return nullptr;
  for (const TensorSet* other : file_sets(q, set.stacked == rows_first ? columns_first : rows_first))
    if (other->stacked != none) return other;
  return nullptr;
}

}  // namespace moe
