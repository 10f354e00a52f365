// Shapes of checkpoint tensors, and their names. See checkpoint.h; the rows of the formats: tensor_sets.cpp.
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
  switch (axis) {
    case Axis::n:
      return m.n;
    case Axis::n_words:
      return ceil_div(m.n * m.num_bits, std::int64_t{32});
    case Axis::n_pairs:
      return ceil_div(m.n, std::int64_t{2});
    case Axis::n_blocks:
      return ceil_div(m.n, m.block[0]);
    case Axis::halves:
      return m.halves;
    case Axis::k:
      return m.k;
    case Axis::k_words:
      return ceil_div(m.k * m.num_bits, std::int64_t{32});
    case Axis::k_bytes:
      return ceil_div(m.k * m.num_bits, std::int64_t{8});
    case Axis::k_blocks:
      return ceil_div(m.k, m.block[1]);
    case Axis::groups:
      return m.group_count();
    case Axis::group_pairs:
      return m.group_count() / 2;
    case Axis::one:
      return 1;
    case Axis::two:
      return 2;
    case Axis::none:
      break;
  }
  return 0;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Digits, perhaps behind a sign: an expert number, well-formed or not.
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

constexpr std::string_view kGateUp = "gate_up_proj.";  // of an expert that has both in one
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
      return "the config has no bias; has_bias (in overrides) says that there is one";
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
  const std::int64_t bits = m.num_bits, in_byte = std::gcd(bits, std::int64_t{8});
  const std::int64_t in_word = std::gcd(bits, std::int64_t{32});
  switch (axis) {
    case Axis::n_words:
    case Axis::k_words:
      return {32 / in_word, bits / in_word, "a packed word"};
    case Axis::n_pairs:
      return {2, 1, "a byte"};
    case Axis::k_bytes:
      return {8 / in_byte, bits / in_byte, "a byte"};
    case Axis::n_blocks:
      return {m.block[0], 1, "a block"};
    case Axis::k_blocks:
      return {m.block[1], 1, "a block"};
    case Axis::groups:
      return {m.groups.size_in(m.k), 1, "a group"};
    case Axis::group_pairs:
      return {2 * m.groups.size_in(m.k), 1, "a group"};
    default:
      return {1, 1, "an element"};
  }
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
  constexpr std::array kWithZeros = {Format::gptq, Format::awq, Format::quark_reorder, Format::quark_order};
  if (q.weights->symmetric && std::find(kWithZeros.begin(), kWithZeros.end(), q.format) != kWithZeros.end())
    e.zeros = Need::optional;
  e.g_idx = q.weights->actorder == ActOrder::group ? Need::required : Need::optional;
  return e;
}

namespace {

ParsedName known(ParsedName p, const CheckpointTensor& row, const ExpertModule& module) {
  if (row.need(module.extras()) == Need::absent) {
    p.absent = &row;
    return unknown(p, absence_of(row.kind));
  }
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
      if (row.has_suffix(suffix)) return known(p, row, module);
    return unknown(p, kNoSuchName);
  }
  return p;
}

// The rest of a name below the module.
bool take_prefix(std::string_view& name, const ExpertModule& module) {
  if (module.prefix.empty()) return true;
  if (!name.starts_with(module.prefix)) return false;
  name.remove_prefix(module.prefix.size());
  if (!name.starts_with('.')) return false;
  name.remove_prefix(1);
  return true;
}

}  // namespace

bool lies_among_experts(std::string_view name, const ExpertModule& module) {
  if (!take_prefix(name, module)) return false;
  const std::string_view number = name.substr(0, name.find('.'));
  if (number.size() == name.size() || !looks_like_number(number))
    return module.prefix.find("experts") != std::string_view::npos;
  return expert_number(number, module.num_experts) || !expert_number(number, module.num_experts + module.zero_experts);
}

ParsedName parse_tensor_name(std::string_view name, const ExpertModule& module) {
  ParsedName p;
  if (!take_prefix(name, module)) return p;
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
  p.joined = which == module.projections.size() && module.gated && rest.starts_with(kGateUp);
  if (which == module.projections.size() && !p.joined) return p;
  p.projection = p.joined ? Projection::up : static_cast<Projection>(which);
  const std::string_view suffix = rest.substr(p.joined ? kGateUp.size() : module.projections[which].size() + 1);

  const auto expert = expert_number(number, module.num_experts);
  if (!expert && expert_number(number, module.num_experts + module.zero_experts)) return ParsedName();
  if (!expert) return unknown(p, "the expert number is not below num_experts or not plainly decimal");
  p.expert = *expert;
  if (p.projection == Projection::gate && !module.gated) return unknown(p, "an ungated layer has no gate projection");
  for (const CheckpointTensor& row : module.tensors())
    if (row.has_suffix(suffix)) return known(p, row, module);
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
