// Setting, releasing and handing out the tensors of a set. See weight_set.h; what is held: state.h.
#include "weights/weight_set.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/index.h"
#include "base/text.h"
#include "scheme/tensor_check.h"
#include "weights/state.h"
#include "weights/told_twice.h"

namespace moe::weights {
namespace {

// A bias that only the first tensor-parallel rank adds.
Result<TensorLease> zero_bias(std::int64_t n) {
  MOE_TRY(Buffer zeros, Buffer::create(usize(n) * 4));
  std::memset(zeros.data(), 0, zeros.size());
  const TensorView view = dense_view(DType::f32, std::array{n}, zeros);
  return TensorLease(view, std::move(zeros));
}

Error mixed_forms(const NamedRole& role, const char* was) {
  const char* name = role.name;
  return fail(Code::state, name,
              cat(name, ": was already set ", was, "; the stacked and the per-expert form do not mix"));
}

// [E, 0], as layers of vLLM have it without activation order.
bool is_empty_list(const LayerFacts& facts, Role role, const CheckpointTensor& row, const TensorView& t) {
  const Config& c = facts.config();
  const bool may_lack = role == Role::w13_g_idx_sort_indices || role == Role::w2_g_idx_sort_indices ||
                        row.need(extras_of(c.quantization, c.has_bias)) != Need::required;
  return row.kind == TensorKind::g_idx && may_lack && t.ndim == 2 && t.dtype == row.dtypes[0] &&
         t.shape[0] == std::ssize(facts.experts()) && t.shape[1] == 0;
}

}  // namespace

WeightSet::WeightSet(std::shared_ptr<const Config> config) : state_(std::make_unique<State>(std::move(config))) {}
WeightSet::WeightSet(std::shared_ptr<const Config> config, std::shared_ptr<const TensorSource> source)
    : state_(std::make_unique<State>(std::move(config))) {
  state_->source = std::move(source);
}
WeightSet::~WeightSet() = default;

const Config& WeightSet::config() const { return state_->facts.config(); }
std::shared_ptr<const Config> WeightSet::shared_config() const { return state_->facts.shared_config(); }
const SideVectors& WeightSet::loaded() const { return state_->loaded; }
Result<std::array<std::vector<float>, 2>> WeightSet::input_factors() const {
  return state_->input_factors.take(state_->facts);
}

TensorView swap_last_two(const TensorView& t) {
  TensorView v = t;
  const auto last = usize(t.ndim - 1);
  std::swap(v.shape[last], v.shape[last - 1]);
  std::swap(v.strides[last], v.strides[last - 1]);
  return v;
}

// --- caller tensors -----------------------------------------------------------------------------------

Slot view_slot(const TensorView& view, HandedOver owner, const char* name) {
  Slot s;
  s.kind = Slot::Kind::view;
  s.view = view;
  s.name = name;
  s.owner = std::make_shared<HandedOver>(std::move(owner));
  return s;
}

const char* first_name(const RoleSlots& slots) {
  if (!slots.stacked.empty()) return slots.stacked.name;
  for (const ExpertSlots& expert : slots.experts)
    for (const Slot& slot : expert)
      if (!slot.empty()) return slot.name;
  return nullptr;
}

Check check_place(const RoleSlots& slots, const NamedRole& role, std::int64_t local, std::int64_t expert, Half half) {
  if (!slots.stacked.empty()) return mixed_forms(role, "stacked");
  const bool whole = slots.find(local, Half::whole) != nullptr;
  const bool halves = slots.find(local, Half::w1) != nullptr || slots.find(local, Half::w3) != nullptr;
  if (half == Half::whole ? !halves : !whole) return ok();
  const std::string place = place_name(role, expert, Half::whole);
  return fail(Code::state, place,
              place + (whole ? ": was already set as a whole" : ": was already set in halves (w1, w3)"));
}

std::optional<Role> other_form(Role role) {
  const TensorKind kind = kind_of(role), other = moe::other_form(kind);
  if (other == kind) return std::nullopt;
  return role_of(is_w13(role) ? Projection::up : Projection::down, other);
}

Check check_form(const std::array<RoleSlots, kRoleCount>& roles, Role role, std::int64_t local,
                 const std::string& subject) {
  const std::optional<Role> other = other_form(role);
  if (!other) return ok();
  const RoleSlots& slots = at(roles, *other);
  bool set = !slots.stacked.empty();
  if (local == kAllExperts)
    set = set || slots.any_expert();
  else if (!slots.experts.empty())
    for (const Slot& slot : at(slots.experts, local)) set = set || !slot.empty();
  if (!set) return ok();
  return fail(Code::unexpected_weight, subject,
              cat(subject, ": ", role_name(*other), " is set, which says the same in another form"));
}

Check check_settable(const TensorSource* source) {
  if (source == nullptr) return ok();
  return fail(Code::state, "weights", "weights: all tensors of this set come from its source");
}

Check WeightSet::set(const NamedRole& as, const TensorView& given, HandedOver owner) {
  MOE_CHECK(check_settable(state_->source.get()));
  const LayerFacts& facts = state_->facts;
  const Role role = as.role;
  MOE_TRY(const CheckpointTensor* row, facts.tensor_of(as));
  if (row->kind == TensorKind::shape) return check_shapes(facts, as, given);
  if (is_empty_list(facts, role, *row, given)) {
    state_->role(role).stacked = {};
    return ok();
  }
  const Dims told = facts.told_shape(role);
  Dims shape = facts.stacked_shape(role);
  const bool swapped = facts.stacks_transposed() && shape.ndim == 3;
  if (swapped) std::swap(shape.d[1], shape.d[2]);
  if (told.ndim < shape.ndim && given.ndim == shape.ndim) MOE_CHECK(check_tensor(given, *row, told.span(), as.name));
  TensorView tensor = swapped ? given : in_shape(given, *row, shape.span());
  if (swapped && given.ndim == 2) {  // without the dimension of one group, whose place the row knows as rows first
    const TensorView whole = in_shape(given, *row, facts.stacked_shape(role).span());
    if (whole.ndim == shape.ndim) tensor = swap_last_two(whole);
  }
  MOE_CHECK(check_tensor(tensor, *row, shape.span(), as.name));
  RoleSlots& slots = state_->role(role);
  if (slots.any_expert()) return mixed_forms(as, "per expert");
  MOE_CHECK(check_form(state_->roles, role, kAllExperts, as.name));
  slots.stacked = view_slot(swapped ? swap_last_two(tensor) : tensor, std::move(owner), as.name);
  slots.released = 0;
  return ok();
}

Check WeightSet::set_expert(const NamedRole& as, std::int64_t expert, Half half, const TensorView& given,
                            HandedOver owner) {
  MOE_CHECK(check_settable(state_->source.get()));
  const LayerFacts& facts = state_->facts;
  const Role role = as.role;
  MOE_TRY(const CheckpointTensor* row, facts.tensor_of(as));
  if (expert < 0 || expert >= facts.config().num_weight_experts())
    return fail(Code::invalid_argument, "expert",
                cat("expert: ", expert, " is outside [0, ", facts.config().num_weight_experts(), ")"));
  if (half != Half::whole && (!is_w13(role) || !facts.gated()))
    return fail(Code::invalid_argument, "shard",
                cat("shard: ", as.name, " of this config has no part ", half_name(half)));
  if (row->kind == TensorKind::shape) {
    const Place one{role, expert, half};
    return check_shapes(facts, as, given, &one);
  }
  const std::string place = place_name(as, expert, half);
  const Dims shape = facts.shape(role, half);
  const TensorView tensor = in_shape(given, *row, shape.span());
  MOE_CHECK(check_tensor(tensor, *row, shape.span(), place));
  const std::vector<std::int64_t> places = facts.places_of(expert);
  if (places.empty()) return ok();  // another rank's: released at once
  RoleSlots& slots = state_->role(role);
  for (const std::int64_t local : places) {
    MOE_CHECK(check_place(slots, as, local, expert, half));
    MOE_CHECK(check_form(state_->roles, role, local, place));
  }
  const Slot slot = view_slot(tensor, std::move(owner), as.name);
  if (slots.experts.empty()) slots.experts.resize(facts.experts().size());
  for (const std::int64_t local : places) at(at(slots.experts, local), half) = slot;
  return ok();
}

// --- handing out --------------------------------------------------------------------------------------

Result<TensorLease> WeightSet::get(const Place& place) const {
  const LayerFacts& facts = state_->facts;
  MOE_TRY(const CheckpointTensor* row, facts.tensor_of(place.role));
  const std::string name = place_name(place.role, place.expert, place.half);
  const auto local = facts.local(place.expert);
  if (!local) return fail(Code::invalid_argument, "expert", cat("expert: ", place.expert, " is not held by this rank"));
  if (facts.ignored_here(place.role)) return zero_bias(facts.config().hidden_dim);
  if (state_->source != nullptr) {
    MOE_TRY(TensorLease lease, state_->source->get({place.role, facts.source_expert(place.expert), place.half}));
    const Dims shape = facts.shape(place.role, place.half);
    lease.view = in_shape(lease.view, *row, shape.span());
    MOE_CHECK(check_tensor(lease.view, *row, shape.span(), name));
    return lease;
  }
  const RoleSlots& slots = state_->role(place.role);
  if (place.half == Half::whole && !slots.stacked.empty()) return TensorLease(slice0(slots.stacked.view, *local));
  const Slot* slot = slots.find(*local, place.half);
  if (slot == nullptr) return fail(Code::missing_weight, name, name + " was never set");
  if (slot->kind == Slot::Kind::view) return TensorLease(slot->view);
  MOE_TRY(TensorLease lease, read_part(slot->file));
  if (slot->file.transposed) lease.view = swap_last_two(lease.view);
  return lease;
}

Error WeightSet::in_callers_names(Error error) const {
  for (int r = 0; r < kRoleCount; ++r) {
    const char *ours = role_name(static_cast<Role>(r)), *theirs = first_name(at(state_->roles, r));
    const std::string begin = cat(ours, "[");
    if (theirs == nullptr || !error.subject.starts_with(begin)) continue;
    for (std::string* text : {&error.subject, &error.message})
      if (text->starts_with(begin)) text->replace(0, begin.size() - 1, theirs);
    break;
  }
  return error;
}

// --- release --------------------------------------------------------------------------------------------

void WeightSet::release_expert(std::int64_t expert) {
  const auto local = state_->facts.local(expert);
  if (!local) return;
  state_->open_stacks.clear();  // what is read already has been placed
  for (RoleSlots& slots : state_->roles) {
    if (!slots.experts.empty()) at(slots.experts, *local) = {};
    if (!slots.stacked.empty() && ++slots.released == static_cast<std::int64_t>(state_->facts.experts().size()))
      slots.stacked = {};
  }
}

void WeightSet::clear() {
  for (RoleSlots& slots : state_->roles) slots = {};
  state_->loaded = {};
  state_->order.reset();
  state_->open_stacks.clear();
  state_->unfound.reset();
}

}  // namespace moe::weights
