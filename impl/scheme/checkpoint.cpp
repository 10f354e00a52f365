// Rows of the checkpoint formats, and tensor names. See checkpoint.h.
#include "scheme/checkpoint.h"

#include <charconv>

#include "base/checked.h"

namespace moe {
namespace {

TensorShape matrix(const MatrixSize& m) { return {{m.n, m.k}, 2}; }
TensorShape packed_rows(const MatrixSize& m) {  // 32 / num_bits codes in a word
  const std::int64_t codes = 32 / m.num_bits;
  return {{m.n, m.k / codes + (m.k % codes != 0 ? 1 : 0)}, 2};
}
TensorShape row_groups(const MatrixSize& m) { return {{m.n, m.groups()}, 2}; }
TensorShape per_row(const MatrixSize& m) { return {{m.n, 0}, 1}; }
TensorShape two_numbers(const MatrixSize&) { return {{2, 0}, 1}; }

constexpr std::array kFloats = {DType::f32, DType::f16, DType::bf16};
constexpr std::array kI8 = {DType::i8, DType::invalid, DType::invalid};
constexpr std::array kI32 = {DType::i32, DType::invalid, DType::invalid};
constexpr std::array kI64 = {DType::i64, DType::invalid, DType::invalid};

// clang-format off
constexpr std::array kIntQuantized = {
    CheckpointTensor{"weight",        TensorKind::weight, Presence::required,  kI8,     matrix},
    CheckpointTensor{"weight_scale",  TensorKind::scale,  Presence::required,  kFloats, row_groups},
    CheckpointTensor{"bias",          TensorKind::bias,   Presence::with_bias, kFloats, per_row},
};
constexpr std::array kUnquantized = {
    CheckpointTensor{"weight",        TensorKind::weight, Presence::required,  kFloats, matrix},
    CheckpointTensor{"bias",          TensorKind::bias,   Presence::with_bias, kFloats, per_row},
};
constexpr std::array kPackQuantized = {
    CheckpointTensor{"weight_packed", TensorKind::weight, Presence::required,  kI32,    packed_rows},
    CheckpointTensor{"weight_scale",  TensorKind::scale,  Presence::required,  kFloats, row_groups},
    CheckpointTensor{"weight_shape",  TensorKind::shape,  Presence::optional,  kI64,    two_numbers},
    CheckpointTensor{"bias",          TensorKind::bias,   Presence::with_bias, kFloats, per_row},
};
// clang-format on

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

ParsedName unknown(ParsedName p, std::string_view why) {
  p.match = NameMatch::unknown_of_ours;
  p.why = why;
  return p;
}

}  // namespace

std::string CheckpointTensor::dtypes_text() const {
  std::string s;
  for (std::size_t i = 0; i < dtypes.size() && dtypes[i] != DType::invalid; ++i) {
    const bool last = i + 1 == dtypes.size() || dtypes[i + 1] == DType::invalid;
    if (i > 0) s += last ? " or " : ", ";
    s += dtype_name(dtypes[i]);
  }
  return s;
}

std::span<const CheckpointTensor> checkpoint_tensors(Format format) {
  switch (format) {
    case Format::none:
      return kUnquantized;
    case Format::int_quantized:
      return kIntQuantized;
    case Format::pack_quantized:
      return kPackQuantized;
    default:
      return {};
  }
}

bool is_checkpoint_readable(const Quantization& q) {
  if (!q.weights) return q.format == Format::none;
  const QuantArgs& w = *q.weights;
  const bool known = q.is_w4a8_int8() || q.is_w8a8_int8() || (q.is_wna16() && q.format == Format::pack_quantized);
  return !checkpoint_tensors(q.format).empty() && known && w.symmetric && w.actorder != ActOrder::group &&
         !q.is_transposed.value_or(false);
}

ParsedName parse_tensor_name(std::string_view name, const ExpertModule& module) {
  ParsedName p;
  if (!module.prefix.empty()) {
    if (!name.starts_with(module.prefix)) return p;
    name.remove_prefix(module.prefix.size());
    if (!name.starts_with('.')) return p;
    name.remove_prefix(1);
  }
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
  if (!expert) return unknown(p, "the expert number is not below num_experts or not plainly decimal");
  p.expert = *expert;
  if (p.projection == Projection::gate && !module.gated) return unknown(p, "an ungated layer has no gate projection");
  for (const CheckpointTensor& row : checkpoint_tensors(module.format)) {
    if (row.suffix != suffix) continue;
    if (row.presence == Presence::with_bias && !module.has_bias) return unknown(p, "the config has no bias");
    p.match = NameMatch::known;
    p.tensor = &row;
    return p;
  }
  return unknown(p, "the format has no tensor of this name");
}

std::string tensor_name(const ExpertModule& module, std::int64_t expert, Projection projection,
                        const CheckpointTensor& tensor) {
  std::string s(module.prefix);
  if (!s.empty()) s += '.';
  s += std::to_string(expert);
  s += '.';
  s += module.projections[static_cast<std::size_t>(projection)];
  s += '.';
  s += tensor.suffix;
  return s;
}

MatrixSize projection_size(Projection p, std::int64_t hidden, std::int64_t intermediate, std::int64_t group,
                           int num_bits) {
  if (p == Projection::down) return {.n = hidden, .k = intermediate, .group = group, .num_bits = num_bits};
  return {.n = intermediate, .k = hidden, .group = group, .num_bits = num_bits};
}

std::optional<Role> role_of(Projection p, TensorKind kind) {
  const bool down = p == Projection::down;
  switch (kind) {
    case TensorKind::weight:
      return down ? Role::w2_weight : Role::w13_weight;
    case TensorKind::scale:
      return down ? Role::w2_scale : Role::w13_scale;
    case TensorKind::bias:
      return down ? Role::w2_bias : Role::w13_bias;
    case TensorKind::shape:
      break;
  }
  return std::nullopt;
}

Shard shard_of(Projection p, bool gated) {
  if (!gated || p == Projection::down) return Shard::whole;
  return p == Projection::gate ? Shard::w1 : Shard::w3;
}

}  // namespace moe
