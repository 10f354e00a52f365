// Places of tensors. See placing.h.
#include "weights/placing.h"

#include <algorithm>
#include <string>

#include "base/index.h"
#include "base/text.h"
#include "scheme/tensor_check.h"

namespace moe::weights {
namespace {

// One of a tensor's numbers, counted through its dimensions.
TensorView number_at(const TensorView& t, std::int64_t index) {
  TensorView v = t;
  std::int64_t offset = 0;
  for (int d = t.ndim; d-- > 0; index /= at(t.shape, d)) offset += index % at(t.shape, d) * at(t.strides, d);
  const std::size_t skip = usize(offset * dtype_bits(t.dtype) / 8);
  v.data += skip;
  v.nbytes -= skip;
  v.ndim = 1;
  v.shape[0] = v.strides[0] = 1;
  return v;
}

// Whether the file has columns first where the role has rows.
bool is_turned(const LayerFacts& facts, const ParsedName& p) {
  return p.tensor->k_first() && !tensor_set(facts.config().quantization)->tensor(p.tensor->kind)->k_first();
}

}  // namespace

bool is_stacked_number(const ParsedName& p, const ExpertModule& module) {
  return (module.is_stacked() || p.joined) && p.tensor->axes[0] == Axis::halves;
}

Result<std::vector<Target>> targets_of(const LayerFacts& facts, const ParsedName& p, const ExpertModule& module,
                                       std::span<const std::int64_t> extents, std::string_view name) {
  const Role role = *role_of(p.projection, p.tensor->kind);
  std::vector<Target> targets;
  if (p.joined) {
    std::vector<StackPart> parts;
    if (is_stacked_number(p, module)) {
      parts = *facts.joined_numbers(extents);
    } else {
      MOE_TRY(parts, facts.stack_parts(p.projection, *p.tensor, module, name));
    }
    for (const StackPart& part : parts)
      targets.push_back({role, part.half, part.part, facts.places_of(p.expert), p.expert});
  } else if (!module.is_stacked()) {
    MOE_TRY(const Part part, facts.part(p.projection, *p.tensor, name));
    targets.push_back({role, half_of(p.projection, facts.gated()), part, facts.places_of(p.expert), p.expert});
  } else if (is_stacked_number(p, module)) {
    for (std::int64_t e = 0; e < module.num_experts; ++e) {
      const auto parts = facts.stack_numbers(p.projection, extents, e, module);
      for (const StackPart& part : *parts) targets.push_back({role, part.half, part.part, facts.places_of(e), e});
    }
  } else {
    MOE_TRY(const std::vector<StackPart> parts, facts.stack_parts(p.projection, *p.tensor, module, name));
    const std::int64_t rows = facts.stack_rows(p.projection, *p.tensor, module);
    for (std::int64_t e = 0; e < module.num_experts; ++e)
      for (const StackPart& part : parts) {
        targets.push_back({role, part.half, part.part, facts.places_of(e), e});
        targets.back().part.row0 += e * rows;
      }
  }
  std::erase_if(targets, [](const Target& t) { return t.places.empty(); });
  return targets;
}

Dims shape_in_file(const LayerFacts& facts, const ParsedName& p, const ExpertModule& module) {
  if (module.is_stacked()) return facts.stack_shape(p.projection, *p.tensor, module);
  const TensorShape one = p.joined ? facts.joined_shape(*p.tensor, module) : p.tensor->shape(facts.whole(p.projection));
  Dims d;
  d.ndim = one.ndim;
  std::copy_n(one.dims.begin(), one.dims.size(), d.d.begin());
  return d;
}

bool fits(const LayerFacts& facts, const ParsedName& p, const ExpertModule& module,
          std::span<const std::int64_t> extents) {
  if (p.joined && is_stacked_number(p, module)) return facts.joined_numbers(extents).has_value();
  if (is_stacked_number(p, module)) return facts.stack_numbers(p.projection, extents, 0, module).has_value();
  const bool scalar = p.tensor->is_shared() && extents.empty();  // as good as [1]
  return scalar || has_shape(extents, *p.tensor, shape_in_file(facts, p, module).span());
}

Slot part_of(const LayerFacts& facts, const Slot& whole, const Target& t, const ParsedName& p,
             const ExpertModule& module) {
  Slot slot = whole;
  if (slot.kind == Slot::Kind::file) {
    slot.file.part = t.part;
    slot.file.transposed = is_turned(facts, p);
    return slot;
  }
  const TensorView& tensor = whole.view;
  if (is_stacked_number(p, module)) {
    slot.view = number_at(tensor, t.part.row0);
  } else if (module.is_stacked() && !module.is_flat()) {
    Part part = t.part;
    part.row0 -= t.expert * tensor.shape[1];  // rows of a stack count through all experts
    slot.view = cut(slice0(tensor, t.expert), part);
  } else {
    slot.view = cut(tensor, t.part);
  }
  if (is_turned(facts, p)) slot.view = swap_last_two(slot.view);
  return slot;
}

ShownOrder shown_order(const LayerFacts& facts, std::string_view name, DType dtype,
                       std::span<const std::int64_t> extents, const ExpertModule& module) {
  const Quantization& q = facts.config().quantization;
  const TensorSet* other = module.is_stacked() ? turned(q, *module.set) : nullptr;
  if (other == nullptr) return {};
  const auto is_right = [&](const TensorSet* set) {
    ExpertModule m = module;
    m.set = set;
    const ParsedName p = parse_tensor_name(name, m);
    return p.match == NameMatch::known && p.tensor->is_matrix() &&
           fits(facts, p, m, stored_tensor(dtype, extents, *p.tensor).extents);
  };
  const bool here = is_right(module.set), there = is_right(other);
  if (here == there) return {.order = {}, .open = here};
  return {.order = here ? module.set->stacked : other->stacked};
}

ExpertModule in_order(const LayerFacts& facts, ExpertModule module, std::optional<StackedWeights> order) {
  if (!order || !module.is_stacked() || module.set->stacked == *order) return module;
  if (const TensorSet* other = turned(facts.config().quantization, *module.set)) module.set = other;
  return module;
}

Check check_order(const std::optional<StackedWeights>& known, const ShownOrder& shown, std::string_view name,
                  std::span<const std::int64_t> extents) {
  if (!known || !shown.order || *known == *shown.order) return ok();
  const auto first = [](StackedWeights order) { return order == StackedWeights::rows_first ? "rows" : "columns"; };
  return fail(Code::shape, std::string(name),
              cat(name, ": shape ", shape_text(extents), " has ", first(*shown.order),
                  " first, other tensors of this layer's experts have ", first(*known), " first"));
}

namespace {

Error never_told(std::string_view name) {
  return fail(Code::shape, std::string(name),
              cat(name,
                  ": its shape is the same with rows and with columns first; stacked_weights (in overrides) says "
                  "which, rows_first or columns_first"));
}

}  // namespace

Check WeightSet::State::check_open_stacks() const {
  if (open_stacks.empty() || facts.config().stacked_weights != StackedWeights::by_shape) return ok();
  return never_told(open_stacks.front().name);
}

Check check_open(const LayerFacts& facts, const ShownOrder& shown, std::string_view name, const ExpertModule& module) {
  const Config& c = facts.config();
  const bool tells_nothing =
      module.is_stacked() && module.stack_names().is_apart() && c.hidden_dim == c.intermediate_size;
  if (!shown.open || !tells_nothing || c.stacked_weights != StackedWeights::by_shape) return ok();
  return never_told(name);
}

Check WeightSet::State::learn(const std::optional<StackedWeights>& told) {
  if (order || !told) return ok();
  std::vector<std::pair<Target, Slot>> placed;
  for (const StackTensor& t : open_stacks) {
    const ExpertModule module = in_order(facts, module_at(facts, t.place), told);
    const ParsedName p = parse_tensor_name(t.name, module);
    MOE_TRY(std::vector<Target> targets, targets_of(facts, p, module, t.extents, t.name));
    for (Target& target : targets) {
      Slot slot = part_of(facts, t.whole, target, p, module);
      placed.emplace_back(std::move(target), std::move(slot));
    }
  }
  for (auto& [target, slot] : placed)
    for (const std::int64_t local : target.places) {
      std::vector<ExpertSlots>& experts = role(target.role).experts;
      if (experts.empty()) continue;
      Slot& there = at(at(experts, local), target.half);
      const bool same =
          there.kind == slot.kind && there.owner == slot.owner && there.file.from.entry == slot.file.from.entry;
      if (same) there = slot;  // else another tensor has come since
    }
  open_stacks.clear();
  order = told;
  return ok();
}

}  // namespace moe::weights
