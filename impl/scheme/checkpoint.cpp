// Rows of the checkpoint formats, and tensor names. See checkpoint.h.
#include "scheme/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <numeric>

#include "base/checked.h"
#include "base/index.h"
#include "base/text.h"

namespace moe {
namespace {

std::int64_t extent(Axis axis, const MatrixSize& m) {
  const std::int64_t codes = 32 / m.num_bits;  // in a word
  switch (axis) {
    case Axis::n:
      return m.n;
    case Axis::n_words:
      return ceil_div(m.n, codes);
    case Axis::n_blocks:
      return ceil_div(m.n, m.block[0]);
    case Axis::halves:
      return m.halves;
    case Axis::k:
      return m.k;
    case Axis::k_words:
      return ceil_div(m.k, codes);
    case Axis::k_bytes:
      return ceil_div(m.k * m.num_bits, std::int64_t{8});
    case Axis::k_blocks:
      return ceil_div(m.k, m.block[1]);
    case Axis::groups:
      return m.group_count();
    case Axis::one:
      return 1;
    case Axis::two:
      return 2;
    case Axis::none:
      break;
  }
  return 0;
}

constexpr std::array<DType, 4> types(DType a, DType b = {}, DType c = {}, DType d = {}) { return {a, b, c, d}; }
constexpr std::array kFloats = types(DType::f32, DType::f16, DType::bf16);
constexpr std::array kI8 = types(DType::i8), kI32 = types(DType::i32), kI64 = types(DType::i64);
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
constexpr std::array kBlockScales = {Axis::n_blocks, Axis::k_blocks}, kPerHalf = {Axis::halves, Axis::none};

// clang-format off
constexpr std::array kIntQuantized = {
    CheckpointTensor{"weight",            TensorKind::weight,     Presence::required,   kI8,     kMatrix},
    CheckpointTensor{"weight_scale",      TensorKind::scale,      Presence::required,   kFloats, kRowGroups},
    CheckpointTensor{"bias",              TensorKind::bias,       Presence::with_bias,  kFloats, kPerRow},
};
constexpr std::array kIntQuantizedWhole = {
    CheckpointTensor{"weight",            TensorKind::weight,     Presence::required,   kI8,     kMatrix},
    CheckpointTensor{"weight_scale",      TensorKind::scale,      Presence::required,   kFloats, kOne},
    CheckpointTensor{"bias",              TensorKind::bias,       Presence::with_bias,  kFloats, kPerRow},
};
constexpr std::array kUnquantized = {
    CheckpointTensor{"weight",            TensorKind::weight,     Presence::required,   kFloats, kMatrix},
    CheckpointTensor{"bias",              TensorKind::bias,       Presence::with_bias,  kFloats, kPerRow},
};
constexpr std::array kPackQuantized = {
    CheckpointTensor{"weight_packed",     TensorKind::weight,     Presence::required,   kI32,    kPackedRows},
    CheckpointTensor{"weight_scale",      TensorKind::scale,      Presence::required,   kFloats, kRowGroups},
    CheckpointTensor{"weight_zero_point", TensorKind::zero_point, Presence::with_zeros, kI32,    kWordGroups},
    CheckpointTensor{"weight_g_idx",      TensorKind::g_idx,      Presence::with_g_idx, kI32,    kPerColumn},
    CheckpointTensor{"weight_shape",      TensorKind::shape,      Presence::optional,   kI64,    kTwoNumbers},
    CheckpointTensor{"bias",              TensorKind::bias,       Presence::with_bias,  kFloats, kPerRow},
};
constexpr std::array kPackQuantizedWhole = {
    CheckpointTensor{"weight_packed",     TensorKind::weight,     Presence::required,   kI32,    kPackedRows},
    CheckpointTensor{"weight_scale",      TensorKind::scale,      Presence::required,   kFloats, kOne},
    CheckpointTensor{"weight_zero_point", TensorKind::zero_point, Presence::with_zeros, kI32,    kWordGroups},
    CheckpointTensor{"weight_g_idx",      TensorKind::g_idx,      Presence::with_g_idx, kI32,    kPerColumn},
    CheckpointTensor{"weight_shape",      TensorKind::shape,      Presence::optional,   kI64,    kTwoNumbers},
    CheckpointTensor{"bias",              TensorKind::bias,       Presence::with_bias,  kFloats, kPerRow},
};
constexpr std::array kGptq = {
    CheckpointTensor{"qweight",           TensorKind::weight,     Presence::required,   kI32,    kPackedColumns},
    CheckpointTensor{"scales",            TensorKind::scale,      Presence::required,   kFloats, kGroupRows},
    CheckpointTensor{"qzeros",            TensorKind::zero_point, Presence::with_zeros, kI32,    kGroupWords},
    CheckpointTensor{"g_idx",             TensorKind::g_idx,      Presence::with_g_idx, kI32,    kPerColumn},
    CheckpointTensor{"bias",              TensorKind::bias,       Presence::with_bias,  kFloats, kPerRow},
};
constexpr std::array kAwq = {
    CheckpointTensor{"qweight",           TensorKind::weight,     Presence::required,   kI32,    kColumnWords},
    CheckpointTensor{"scales",            TensorKind::scale,      Presence::required,   kFloats, kGroupRows},
    CheckpointTensor{"qzeros",            TensorKind::zero_point, Presence::with_zeros, kI32,    kGroupWords},
    CheckpointTensor{"bias",              TensorKind::bias,       Presence::with_bias,  kFloats, kPerRow},
};
// Formats of 8-bit floats differ in their scales alone.
struct Fp8Scale {
  std::string_view suffix;
  std::array<DType, 4> dtypes;
  std::array<Axis, 2> axes;
  Form form = Form::axes;
  std::string_view alias = {};
};
constexpr std::array<CheckpointTensor, 4> fp8(const Fp8Scale& s) {
  return {{
    {"weight",            TensorKind::weight,      Presence::required,         kE4m3Codes, kMatrix},
    {s.suffix,            TensorKind::scale,       Presence::required,         s.dtypes,   s.axes, s.form, s.alias},
    {"input_scale",       TensorKind::input_scale, Presence::with_input_scale, kFloats,    kPerHalf, Form::scalar},
    {"bias",              TensorKind::bias,        Presence::with_bias,        kFloats,    kPerRow},
  }};
}
constexpr std::string_view kScale = "weight_scale", kInverse = "weight_scale_inv";
constexpr std::array kFp8Tensor         = fp8({kScale,   kFp8Scales, kPerHalf, Form::scalar});
constexpr std::array kFp8Rows           = fp8({kScale,   kFp8Scales, kRowGroups, Form::vector});
constexpr std::array kFp8Blocks         = fp8({kScale,   kFp8Scales, kBlockScales, Form::spread, kInverse});
constexpr std::array kFp8BlocksDeepSeek = fp8({kInverse, kFp8Scales, kBlockScales});
constexpr std::array kMxfp8             = fp8({kScale,   kE8m0s,     kRowGroups});
// compressed-tensors and DeepSeek-V4.
constexpr std::array kMxfp4 = {
    CheckpointTensor{"weight_packed",       TensorKind::weight,             Presence::required,         kBytes,     kPackedBytes, Form::blocks, "weight"},
    CheckpointTensor{"weight_scale",        TensorKind::scale,              Presence::required,         kE8m0s,     kRowGroups,   Form::axes,   "scale"},
    CheckpointTensor{"bias",                TensorKind::bias,               Presence::with_bias,        kFloats,    kPerRow},
};
constexpr std::array kGptOss = {
    CheckpointTensor{"_blocks",             TensorKind::weight,             Presence::required,         kBytes,     kPackedBytes, Form::blocks},
    CheckpointTensor{"_scales",             TensorKind::scale,              Presence::required,         kE8m0s,     kRowGroups},
    CheckpointTensor{"_bias",               TensorKind::bias,               Presence::with_bias,        kFloats,    kPerRow},
};
// compressed-tensors and ModelOpt, which says the same in factors.
constexpr std::array kNvfp4 = {
    CheckpointTensor{"weight_packed",       TensorKind::weight,             Presence::required,         kBytes,     kPackedBytes, Form::axes,   "weight"},
    CheckpointTensor{"weight_scale",        TensorKind::scale,              Presence::required,         kE4m3Codes, kRowGroups},
    CheckpointTensor{"weight_scale_2",      TensorKind::scale_2,            Presence::required,         kF32,       kPerHalf,     Form::scalar},
    CheckpointTensor{"weight_global_scale", TensorKind::global_scale,       Presence::optional,         kF32,       kPerHalf,     Form::scalar},
    CheckpointTensor{"input_scale",         TensorKind::input_scale,        Presence::with_input_scale, kF32,       kPerHalf,     Form::scalar},
    CheckpointTensor{"input_global_scale",  TensorKind::input_global_scale, Presence::with_input_scale, kF32,       kPerHalf,     Form::scalar},
    CheckpointTensor{"bias",                TensorKind::bias,               Presence::with_bias,        kFloats,    kPerRow},
};
// Unquantized weights of all experts.
constexpr std::array kStackedRows = {
    CheckpointTensor{"",                    TensorKind::weight,             Presence::required,         kFloats,    kMatrix,  Form::axes, ".weight"},
    CheckpointTensor{"_bias",               TensorKind::bias,               Presence::with_bias,        kFloats,    kPerRow},
};
constexpr std::array kStackedColumns = {
    CheckpointTensor{"",                    TensorKind::weight,             Presence::required,         kFloats,    kColumns, Form::axes, ".weight"},
    CheckpointTensor{"_bias",               TensorKind::bias,               Presence::with_bias,        kFloats,    kPerRow},
};
// FP8 in blocks as transformers has it in memory and writes it where the class writes stacks, and Step-3.7's files.
constexpr std::array kFp8StackedBlocks = {
    CheckpointTensor{"",                    TensorKind::weight,             Presence::required,         kE4m3Codes, kMatrix,     Form::axes, ".weight"},
    CheckpointTensor{"_scale_inv",          TensorKind::scale,              Presence::required,         kFp8Scales, kBlockScales, Form::axes, ".weight_scale_inv"},
    CheckpointTensor{"_bias",               TensorKind::bias,               Presence::with_bias,        kFloats,    kPerRow},
};
constexpr Stack kGateUpDown = {{"gate_up_proj", "down_proj"}};
// clang-format on

bool is_unquantized(const Quantization& q) { return !q.weights; }
bool is_mxfp4(const Quantization& q) { return q.is_mxfp4(); }
bool has_int8_activations(const Quantization& q) {
  return (q.is_w4a8_int8() || q.is_w8a8_int8()) && q.weights->symmetric && q.weights->actorder != ActOrder::group &&
         !q.is_transposed.value_or(false);
}

bool is_int8_by_row(const Quantization& q) { return has_int8_activations(q) && !q.has_one_scale(); }
bool is_int8_whole(const Quantization& q) { return has_int8_activations(q) && q.has_one_scale(); }

bool is_wna16_or_int8(const Quantization& q) { return q.is_wna16() || is_int8_by_row(q) || q.is_w4a8_fp8(); }

bool is_fp8(const Quantization& q, std::initializer_list<Strategy> strategies) {
  return q.is_fp8() && std::find(strategies.begin(), strategies.end(), q.weights->strategy) != strategies.end();
}
bool is_fp8_tensor(const Quantization& q) { return is_fp8(q, {Strategy::tensor}); }
bool is_fp8_rows(const Quantization& q) { return is_fp8(q, {Strategy::channel, Strategy::group}); }
bool is_fp8_blocks(const Quantization& q) { return is_fp8(q, {Strategy::block}); }

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Digits, perhaps behind a sign: somebody's expert number, well-formed or not.
bool looks_like_number(std::string_view s) {
  if (!s.empty() && (s[0] == '-' || s[0] == '+')) s.remove_prefix(1);
  if (s.empty()) return false;
  for (char c : s)
    if (!is_digit(c)) return false;
  return true;
}

// Decimal without sign or leading zeros, below `limit`.
std::optional<std::int64_t> expert_number(std::string_view s, std::int64_t limit) {
  if (s.empty() || !is_digit(s[0]) || (s[0] == '0' && s.size() > 1)) return std::nullopt;
  std::int64_t value = 0;
  const auto [end, ec] = std::from_chars(s.data(), s.data() + s.size(), value);
  if (ec != std::errc() || end != s.data() + s.size() || value >= limit) return std::nullopt;
  return value;
}

constexpr std::string_view kNoSuchName = "the format has no tensor of this name";

ParsedName unknown(ParsedName p, std::string_view why) {
  p.match = NameMatch::unknown_of_ours;
  p.why = why;
  return p;
}

}  // namespace

std::string_view absence_of(TensorKind kind) {
  switch (kind) {
    case TensorKind::bias:
      return "the config has no bias";
    case TensorKind::zero_point:
      return "the config's weights have no zero points";
    case TensorKind::input_scale:
    case TensorKind::input_global_scale:
      return "the config's activations have no static scale";
    default:
      return "the config's weights have no activation order";
  }
}

std::string CheckpointTensor::dtypes_text() const {
  std::string s;
  for (std::size_t i = 0; i < dtypes.size() && dtypes[i] != DType::invalid; ++i) {
    const bool last = i + 1 == dtypes.size() || dtypes[i + 1] == DType::invalid;
    if (i > 0) s += last ? " or " : ", ";
    s += dtype_name(dtypes[i]);
  }
  return s;
}

AxisStep step_of(Axis axis, const MatrixSize& m) {
  const std::int64_t bits = m.num_bits, shared = std::gcd(bits, std::int64_t{8});
  switch (axis) {
    case Axis::n_words:
    case Axis::k_words:
      return {32 / bits, 1, "a packed word"};
    case Axis::k_bytes:
      return {8 / shared, bits / shared, "a byte"};
    case Axis::n_blocks:
      return {m.block[0], 1, "a block"};
    case Axis::k_blocks:
      return {m.block[1], 1, "a block"};
    case Axis::groups:
      return {m.groups.size_in(m.k), 1, "a group"};
    default:
      return {1, 1, "an element"};
  }
}

std::span<const TensorSet> tensor_sets() {
  static constexpr std::array kSets = {
      TensorSet{Format::none, Codes::values, kUnquantized, is_unquantized},
      TensorSet{Format::int_quantized, Codes::bytes, kIntQuantized,
                [](const Quantization& q) { return is_int8_by_row(q) || q.is_w4a8_fp8(); }},
      TensorSet{Format::int_quantized, Codes::bytes, kIntQuantizedWhole, is_int8_whole},
      TensorSet{Format::pack_quantized, Codes::words, kPackQuantized, is_wna16_or_int8},
      TensorSet{Format::pack_quantized, Codes::words, kPackQuantizedWhole, is_int8_whole},
      TensorSet{Format::gptq, Codes::words, kGptq, [](const Quantization& q) { return q.is_wna16(); }},
      TensorSet{Format::awq, Codes::awq_words, kAwq, [](const Quantization& q) { return q.is_wna16(); }},
      TensorSet{Format::float_quantized, Codes::bits, kFp8BlocksDeepSeek,
                [](const Quantization& q) { return is_fp8_blocks(q) && q.file_method == "fp8"; }},
      TensorSet{Format::float_quantized, Codes::bits, kFp8Tensor, is_fp8_tensor},
      TensorSet{Format::float_quantized, Codes::bits, kFp8Rows, is_fp8_rows},
      TensorSet{Format::float_quantized, Codes::bits, kFp8Blocks, is_fp8_blocks},
      TensorSet{Format::naive_quantized, Codes::bits, kFp8Tensor, is_fp8_tensor},
      TensorSet{Format::naive_quantized, Codes::bits, kFp8Rows, is_fp8_rows},
      TensorSet{Format::naive_quantized, Codes::bits, kFp8Blocks, is_fp8_blocks},
      TensorSet{Format::mxfp8_quantized, Codes::bits, kMxfp8,
                [](const Quantization& q) { return is_fp8(q, {Strategy::group}); }},
      TensorSet{Format::mxfp4_pack_quantized, Codes::bits, kMxfp4, is_mxfp4},
      TensorSet{Format::mxfp4_gpt_oss, Codes::bits, kGptOss, is_mxfp4, &kGateUpDown},
      TensorSet{Format::nvfp4_pack_quantized, Codes::bits, kNvfp4, [](const Quantization& q) { return q.is_nvfp4(); }},
      TensorSet{Format::float_quantized, Codes::bits, kFp8StackedBlocks, is_fp8_blocks, &kGateUpDown,
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
  std::vector<const TensorSet*> sets;
  const TensorSet* first = tensor_set(q);
  if (first == nullptr) return sets;
  sets.push_back(first);
  for (const TensorSet& set : tensor_sets())
    if (set.format == q.format && set.holds(q) && set.stacked != StackedWeights::none && set.stacked == stacked)
      sets.push_back(&set);
  return sets;
}

TensorShape CheckpointTensor::shape(const MatrixSize& m) const {
  return {{extent(axes[0], m), extent(axes[1], m)}, axes[1] == Axis::none ? 1 : 2};
}

std::int64_t CheckpointTensor::rows_of_element(const MatrixSize& m, std::int64_t half_rows) const {
  const int axis = n_axis();
  if (axis < 0) return 1;
  if (axes[usize(axis)] == Axis::halves) return half_rows;
  const AxisStep step = step_of(axes[usize(axis)], m);
  return step.lines / step.elements;
}

TensorShape CheckpointTensor::role_shape(const MatrixSize& m) const {
  return is_shared() ? TensorShape{{m.n, 1}, 2} : shape(m);
}

Need CheckpointTensor::need(const Extras& extras) const {
  switch (presence) {
    case Presence::with_bias:
      return extras.bias;
    case Presence::with_zeros:
      return extras.zeros;
    case Presence::with_g_idx:
      return extras.g_idx;
    case Presence::with_input_scale:
      return extras.input_scale;
    case Presence::optional:
      return Need::optional;
    case Presence::required:
      break;
  }
  return Need::required;
}

Extras extras_of(const Quantization& q, bool has_bias) {
  Extras e;
  e.bias = has_bias ? Need::required : Need::absent;
  if (q.is_fp8() && q.input_activations && q.input_activations->dynamic == Dynamic::no) e.input_scale = Need::optional;
  if (q.is_nvfp4() && q.input_activations) e.input_scale = Need::optional;
  if (!q.is_wna16()) return e;
  if (!q.weights->symmetric) e.zeros = Need::required;
  if (q.weights->symmetric && (q.format == Format::gptq || q.format == Format::awq)) e.zeros = Need::optional;
  e.g_idx = q.weights->actorder == ActOrder::group ? Need::required : Need::optional;
  return e;
}

namespace {

ParsedName known(ParsedName p, const CheckpointTensor& row, const ExpertModule& module) {
  if (row.need(module.extras()) == Need::absent) return unknown(p, absence_of(row.kind));
  p.match = NameMatch::known;
  p.tensor = &row;
  return p;
}

// "x" of "x.weight", whose tensor may be named either way.
std::string_view without_weight(std::string_view name) {
  constexpr std::string_view kWeight = ".weight";
  return name.ends_with(kWeight) ? name.substr(0, name.size() - kWeight.size()) : name;
}

// Of a stack: <name><suffix>.
ParsedName parse_stacked(std::string_view name, const ExpertModule& module) {
  ParsedName p;
  const Stack& stack = module.stack_names();
  for (const Projection projection : {Projection::gate, Projection::up, Projection::down}) {
    if (projection == Projection::gate && (!stack.is_apart() || !module.gated)) continue;
    const std::string_view begin = without_weight(stack.name(projection));
    if (!name.starts_with(begin)) continue;
    const std::string_view suffix = name.substr(begin.size());
    if (!suffix.empty() && !suffix.starts_with('_') && !suffix.starts_with('.')) continue;
    p.projection = projection;
    for (const CheckpointTensor& row : module.tensors(projection))
      if (row.suffix == suffix || (!row.alias.empty() && row.alias == suffix)) return known(p, row, module);
    return unknown(p, kNoSuchName);
  }
  return p;
}

}  // namespace

ParsedName parse_tensor_name(std::string_view name, const ExpertModule& module) {
  ParsedName p;
  if (!module.prefix.empty()) {
    if (!name.starts_with(module.prefix)) return p;
    name.remove_prefix(module.prefix.size());
    if (!name.starts_with('.')) return p;
    name.remove_prefix(1);
  }
  if (module.is_stacked()) return parse_stacked(name, module);
  const std::size_t dot = name.find('.');
  if (dot == std::string_view::npos) return p;
  const std::string_view number = name.substr(0, dot), rest = name.substr(dot + 1);
  if (!looks_like_number(number)) return p;
  std::size_t which = 0;
  for (; which < module.projections.size(); ++which) {
    const std::string_view projection = module.projections[which];
    if (rest.size() > projection.size() && rest.starts_with(projection) && rest[projection.size()] == '.') break;
  }
  if (which == module.projections.size()) return p;
  p.projection = static_cast<Projection>(which);
  const std::string_view suffix = rest.substr(module.projections[which].size() + 1);

  const auto expert = expert_number(number, module.num_experts);
  if (!expert && expert_number(number, module.num_experts + module.zero_experts)) return ParsedName();
  if (!expert) return unknown(p, "the expert number is not below num_experts or not plainly decimal");
  p.expert = *expert;
  if (p.projection == Projection::gate && !module.gated) return unknown(p, "an ungated layer has no gate projection");
  for (const CheckpointTensor& row : module.tensors()) {
    if (row.suffix != suffix && (row.alias.empty() || row.alias != suffix)) continue;
    return known(p, row, module);
  }
  return unknown(p, kNoSuchName);
}

std::string tensor_name(const ExpertModule& module, std::int64_t expert, Projection projection,
                        const CheckpointTensor& tensor) {
  if (module.is_stacked()) {
    return cat(module.prefix, module.prefix.empty() ? "" : ".", module.stack_names().name(projection), tensor.suffix);
  }
  return cat(module.prefix, module.prefix.empty() ? "" : ".", expert, ".", module.projections[usize(projection)], ".",
             tensor.suffix);
}

MatrixSize projection_size(Projection p, std::int64_t hidden, std::int64_t intermediate, const MatrixSize& numbers) {
  MatrixSize m = numbers;
  m.n = p == Projection::down ? hidden : intermediate;
  m.k = p == Projection::down ? intermediate : hidden;
  return m;
}

std::span<const KindRoles> kind_roles() {
  static constexpr std::array kRoles = {
      KindRoles{TensorKind::weight, Role::w13_weight, Role::w2_weight},
      KindRoles{TensorKind::scale, Role::w13_scale, Role::w2_scale},
      KindRoles{TensorKind::zero_point, Role::w13_zero_point, Role::w2_zero_point},
      KindRoles{TensorKind::g_idx, Role::w13_g_idx, Role::w2_g_idx},
      KindRoles{TensorKind::bias, Role::w13_bias, Role::w2_bias},
      KindRoles{TensorKind::input_scale, Role::w13_input_scale, Role::w2_input_scale},
      KindRoles{TensorKind::scale_2, Role::w13_scale_2, Role::w2_scale_2},
      KindRoles{TensorKind::global_scale, Role::w13_global_scale, Role::w2_global_scale},
      KindRoles{TensorKind::input_global_scale, Role::w13_input_global_scale, Role::w2_input_global_scale},
  };
  return kRoles;
}

std::optional<Role> role_of(Projection p, TensorKind kind) {
  for (const KindRoles& row : kind_roles())
    if (row.kind == kind) return p == Projection::down ? row.w2 : row.w13;
  return std::nullopt;
}

Half half_of(Projection p, bool gated) {
  if (!gated || p == Projection::down) return Half::whole;
  return p == Projection::gate ? Half::w1 : Half::w3;
}

}  // namespace moe
