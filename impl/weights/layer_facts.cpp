// Shapes, parts and names of one rank's share of a layer. See layer_facts.h.
#include "weights/layer_facts.h"

#include <algorithm>

#include "base/index.h"
#include "base/text.h"
#include "scheme/tensor_check.h"

namespace moe::weights {
namespace {

std::optional<TensorKind> find_kind(Role role) {
  if (role == Role::w13_weight_shape || role == Role::w2_weight_shape) return TensorKind::shape;
  if (role == Role::w13_g_idx_sort_indices || role == Role::w2_g_idx_sort_indices) return TensorKind::g_idx;
  for (const KindRoles& row : kind_roles())
    if (row.w13 == role || row.w2 == role) return row.kind;
  return std::nullopt;
}

Dims dims_of(const TensorShape& s) {
  Dims d;
  d.ndim = s.ndim;
  std::copy_n(s.dims.begin(), s.dims.size(), d.d.begin());
  return d;
}

}  // namespace

TensorKind kind_of(Role role) { return find_kind(role).value_or(TensorKind::weight); }

const char* half_name(Half half) {
  constexpr std::array kNames = {"whole", "w1", "w3"};
  return at(kNames, half);
}

std::string place_name(const NamedRole& role, std::int64_t expert, Half half) {
  std::string s = role.name;
  s += "[";
  s += std::to_string(expert);
  s += "]";
  if (half != Half::whole) {
    s += ".";
    s += half_name(half);
  }
  return s;
}

LayerFacts::LayerFacts(std::shared_ptr<const Config> config)
    : config_(std::move(config)), experts_(local_experts(*config_)), gated_(is_gated(config_->activation)) {
  const Extras extras = extras_of(config_->quantization, config_->has_bias);
  for (const KindRoles& kind : kind_roles())
    for (const Role role : {kind.w13, kind.w2})
      if (const auto row = tensor_of(role); row && (*row)->need(extras) == Need::required && !ignored_here(role))
        required_.push_back(role);
  local_of_.assign(usize(config_->num_weight_experts()), -1);
  for (std::size_t i = 0; i < experts_.size(); ++i) local_of_[usize(experts_[i])] = static_cast<std::int64_t>(i);
}

std::optional<std::int64_t> LayerFacts::local(std::int64_t expert) const {
  const std::vector<std::int64_t> places = places_of(expert);
  return places.empty() ? std::nullopt : std::optional(places[0]);
}

std::vector<std::int64_t> LayerFacts::places_of(std::int64_t expert) const {
  std::vector<std::int64_t> places;
  const ExpertCopies copies = expert_copies(*config_);
  for (std::int64_t copy = expert; copy >= 0 && copy < copies.physical; copy += copies.logical) {
    if (const std::int64_t local = at(local_of_, copy); local >= 0) places.push_back(local);
    if (expert >= copies.logical) break;
  }
  return places;
}

Result<const CheckpointTensor*> LayerFacts::tensor_of(const NamedRole& role) const {
  const TensorSet* set = tensor_set(config_->quantization);
  if (set == nullptr)
    return fail(Code::unsupported, "/quantization",
                cat("this build does not read weights of this quantization (format '",
                    at(kFormatNames, config_->quantization.format), "')"));
  const auto kind = find_kind(role.role);
  const CheckpointTensor* row = kind ? set->tensor(*kind) : nullptr;
  const char* name = role.name;
  if (row == nullptr)
    return fail(Code::unexpected_weight, name,
                cat(name, ": the format '", at(kFormatNames, config_->quantization.format),
                    "' of this config has no such tensor"));
  if (row->need(extras_of(config_->quantization, config_->has_bias)) == Need::absent)
    return fail(Code::unexpected_weight, name,
                cat(name, row->kind == TensorKind::bias ? ": has_bias is false in this config"
                          : row->kind == TensorKind::zero_point
                              ? ": the weights of this config are symmetric, without zero points"
                          : is_number(row->kind) ? ": the activations of this config have no static scale"
                                                 : ": the weights of this config have no activation order"));
  return row;
}

Dims LayerFacts::shape(Role role, Half half) const {
  const Config& c = *config_;
  const std::int64_t inter = c.intermediate_size_per_partition;
  MatrixSize m =
      projection_size(is_w13(role) ? Projection::up : Projection::down, c.hidden_dim, inter, c.stored_numbers());
  if (is_w13(role) && gated_ && half == Half::whole) m.n *= m.halves = 2;
  if (!is_w13(role) && keeps_groups()) m.groups = Groups::uneven(whole(Projection::down).group_count());
  return dims_of(tensor_set(c.quantization)->tensor(kind_of(role))->role_shape(m));
}

Dims LayerFacts::stacked_shape(Role role) const {
  const Dims one = shape(role, Half::whole);
  Dims all;
  all.ndim = one.ndim + 1;
  all.d[0] = static_cast<std::int64_t>(experts_.size());
  std::copy_n(one.d.begin(), one.ndim, all.d.begin() + 1);
  return all;
}

Dims LayerFacts::told_shape(Role role) const {
  Dims all = stacked_shape(role);
  const bool by_half = tensor_set(config_->quantization)->tensor(kind_of(role))->axes[0] == Axis::halves;
  if (by_half && !is_w13(role)) all.d[usize(--all.ndim)] = 0;
  if (stacks_transposed() && all.ndim == 3) std::swap(all.d[1], all.d[2]);
  return all;
}

bool LayerFacts::keeps_groups() const {
  const auto& weights = config_->quantization.weights;
  return config_->parallel.tp_size > 1 && weights && weights->actorder == ActOrder::group;
}

MatrixSize LayerFacts::whole(Projection p) const {
  return projection_size(p, config_->hidden_dim, config_->intermediate_size, config_->stored_numbers());
}

Result<Part> LayerFacts::part(Projection p, const CheckpointTensor& row, std::string_view subject) const {
  const Config& c = *config_;
  const MatrixSize m = whole(p);
  if (row.is_shared()) {
    const std::int64_t rows = p == Projection::down ? c.hidden_dim : c.intermediate_size_per_partition;
    return Part{.rows = rows, .cols = 1, .repeats = true};
  }
  const TensorShape all = row.shape(m);
  const std::int64_t columns = all.ndim == 2 ? all.dims[1] : 1;
  Part part{.rows = all.dims[0], .cols = columns, .whole_cols = columns, .ndim = all.ndim};
  if (c.parallel.tp_size == 1) return part;
  const std::int64_t inter = c.intermediate_size_per_partition, first = c.parallel.tp_rank * inter;
  for (std::size_t i = 0; i < 2; ++i) {
    const Axis axis = row.axes[i];
    const bool along_n = runs_along_n(axis) && axis != Axis::halves;
    const bool along_k = runs_along_k(axis) && (axis != Axis::groups || (m.group_count() > 1 && !keeps_groups()));
    if (p == Projection::down ? !along_k : !along_n) continue;
    const AxisStep step = step_of(axis, m);
    if (first % step.lines != 0 || inter % step.lines != 0)
      return fail(Code::unsupported, std::string(subject),
                  cat(subject, ": this rank's ", along_n ? "rows [" : "columns [", first, ", ", first + inter,
                      ") do not begin and end at a multiple of ", step.lines, ", where ", step.begins, " begins",
                      c.cut_hint(step.lines)));
    (i == 0 ? part.row0 : part.col0) = first / step.lines * step.elements;
    (i == 0 ? part.rows : part.cols) = inter / step.lines * step.elements;
  }
  return part;
}

TensorShape LayerFacts::stacked_one(Projection p, const CheckpointTensor& row, const ExpertModule& module) const {
  MatrixSize m = whole(p);
  m.halves = joined(p, module);
  m.n *= m.halves;
  return row.shape(m);
}

std::int64_t LayerFacts::stack_rows(Projection p, const CheckpointTensor& row, const ExpertModule& module) const {
  return stacked_one(p, row, module).dims[0];
}

Dims LayerFacts::stack_shape(Projection p, const CheckpointTensor& row, const ExpertModule& module) const {
  const TensorShape one = stacked_one(p, row, module);
  Dims all;
  if (module.is_flat()) {
    all = dims_of(one);
    all.d[0] *= config_->num_experts;
    return all;
  }
  all.ndim = one.ndim + 1;
  all.d[0] = config_->num_experts;
  std::copy_n(one.dims.begin(), one.ndim, all.d.begin() + 1);
  return all;
}

std::optional<std::vector<StackPart>> LayerFacts::stack_numbers(Projection p, std::span<const std::int64_t> extents,
                                                                std::int64_t expert, const ExpertModule& module) const {
  const std::int64_t halves = joined(p, module);
  std::vector<std::int64_t> want = {config_->num_experts, halves};
  while (!extents.empty() && extents.back() == 1) extents = extents.first(extents.size() - 1);
  while (!want.empty() && want.back() == 1) want.pop_back();
  const bool by_half = halves == 2 && std::equal(extents.begin(), extents.end(), want.begin(), want.end());
  const bool by_expert = by_half || (extents.size() == 1 && extents[0] == config_->num_experts);
  if (!by_expert && !extents.empty()) return std::nullopt;
  const std::int64_t first = by_expert ? expert * (by_half ? halves : 1) : 0;
  if (halves == 1) {
    const Half half = module.stack_names().is_apart() ? half_of(p, gated_) : Half::whole;
    return std::vector<StackPart>{{half, {.row0 = first, .rows = 1, .cols = 1, .ndim = 1}}};
  }
  return half_numbers(first, by_half);
}

std::vector<StackPart> LayerFacts::half_numbers(std::int64_t first, bool by_half) const {
  const bool up_first = w13_layout() == W13Layout::up_gate;
  std::vector<StackPart> parts;
  for (const Half half : {Half::w1, Half::w3}) {
    const std::int64_t second = by_half && (half == Half::w3) != up_first ? 1 : 0;
    parts.push_back({half, {.row0 = first + second, .rows = 1, .cols = 1, .ndim = 1}});
  }
  return parts;
}

std::optional<std::vector<StackPart>> LayerFacts::joined_numbers(std::span<const std::int64_t> extents) const {
  while (!extents.empty() && extents.back() == 1) extents = extents.first(extents.size() - 1);
  const bool by_half = extents.size() == 1 && extents[0] == 2;
  if (!by_half && !extents.empty()) return std::nullopt;
  return half_numbers(0, by_half);
}

TensorShape LayerFacts::joined_shape(const CheckpointTensor& row, const ExpertModule& module) const {
  return stacked_one(Projection::up, row, module);
}

Result<std::vector<StackPart>> LayerFacts::stack_parts(Projection p, const CheckpointTensor& row,
                                                       const ExpertModule& module, std::string_view subject) const {
  MOE_TRY(const Part one, part(p, row, subject));
  if (joined(p, module) == 1)
    return std::vector<StackPart>{{module.stack_names().is_apart() ? half_of(p, gated_) : Half::whole, one}};
  const int axis = row.n_axis();
  const bool blocks = axis >= 0 && row.axes[usize(axis)] == Axis::n_blocks;
  if (blocks && w13_layout() == W13Layout::interleaved)
    return fail(Code::unsupported, std::string(subject),
                cat(subject, ": blocks hold rows of gate and of up, which alternate, with one scale"));
  // Of what rows share, each half must have whole ones.
  constexpr std::array kRows = {Axis::n, Axis::n_words, Axis::n_pairs};
  const bool cuts = axis >= 0 && std::find(kRows.begin(), kRows.end(), row.axes[usize(axis)]) != kRows.end();
  if (!blocks && !cuts)
    return fail(Code::unsupported, std::string(subject),
                cat(subject, ": this build does not cut gate and up out of a tensor of this kind"));
  if (const AxisStep step = step_of(row.axes[usize(axis)], whole(p)); !blocks && whole(p).n % step.lines != 0)
    return fail(Code::unsupported, std::string(subject),
                cat(subject, ": the ", whole(p).n, " rows of gate end inside ", step.begins, " of ", step.lines,
                    " rows, which up's rows share; an export with gate and up apart is read"));
  const bool by_columns = axis == 1;
  const std::int64_t rows = row.shape(whole(p)).dims[usize(axis)];  // of either half
  const auto joined_part = [&](std::int64_t times, std::int64_t first) {
    Part both = one;
    std::int64_t& begin = by_columns ? both.col0 : both.row0;
    begin = begin * times + first;
    (by_columns ? both.cols : both.rows) *= times;
    if (by_columns) both.whole_cols *= 2;
    return both;
  };
  if (w13_layout() == W13Layout::interleaved) return std::vector<StackPart>{{Half::whole, joined_part(2, 0)}};
  const bool up_first = w13_layout() == W13Layout::up_gate;
  return std::vector<StackPart>{{Half::w1, joined_part(1, up_first ? rows : 0)},
                                {Half::w3, joined_part(1, up_first ? 0 : rows)}};
}

ExpertModule LayerFacts::module(std::string_view prefix) const {
  const Config& c = *config_;
  ExpertModule m;
  m.prefix = prefix;
  for (std::size_t i = 0; i < m.projections.size() && i < c.projection_names.size(); ++i)
    m.projections[i] = c.projection_names[i];
  m.num_experts = c.num_experts;
  m.zero_experts = c.routing.num_zero_experts;
  m.set = tensor_set(c.quantization);
  m.gated = gated_;
  m.has_bias = c.has_bias;
  const Extras extras = extras_of(c.quantization, c.has_bias);
  m.zeros = extras.zeros;
  m.g_idx = extras.g_idx;
  m.input_scale = extras.input_scale;
  return m;
}

}  // namespace moe::weights
