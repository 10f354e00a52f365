// What a set has and lacks, and whole tensors for the caller. See weight_set.h.
#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/index.h"
#include "base/json.h"
#include "base/text.h"
#include "weights/found_instead.h"
#include "weights/state.h"
#include "weights/told_twice.h"

namespace moe::weights {
namespace {

using Names = std::vector<std::string>;

// The type of what is set of a role first.
DType first_dtype(const RoleSlots& slots) {
  if (!slots.stacked.empty()) return slots.stacked.dtype();
  for (const ExpertSlots& e : slots.experts)
    for (const Slot& s : e)
      if (!s.empty()) return s.dtype();
  return DType::invalid;
}

void write_tensor(json::Writer& w, const LayerFacts& facts, Role role, DType dtype) {
  const Config& c = facts.config();
  const std::int64_t inter = c.intermediate_size_per_partition, first = c.parallel.tp_rank * inter;
  const bool w13 = is_w13(role);
  // Of the whole matrix of each expert; of w13 the rows of gate and of up alike.
  w.begin_object().member("role", role_name(role)).member("dtype", dtype_name(dtype));
  w.key("shape").array(facts.told_shape(role).span()).key("part").begin_object();
  w.member("row0", w13 ? first : 0).member("rows", w13 ? inter : c.hidden_dim);
  w.member("col0", w13 ? 0 : first).member("cols", w13 ? c.hidden_dim : inter);
  w.end_object().end_object();
}

Error types_differ(Role role, DType a, DType b) {
  const char* name = role_name(role);
  return fail(Code::dtype, name,
              cat(name, ": parts of the types ", dtype_name(a), " and ", dtype_name(b), " cannot be joined"));
}

// A tensor of columns, which gate and up have in common.
Result<TensorLease> one_of_both(const WeightSet& set, Role role, std::int64_t expert, const TensorView& gate,
                                const TensorView& up) {
  for (std::int64_t k = 0; k < gate.shape[0]; ++k)
    if (std::memcmp(gate.data + k * gate.strides[0] * 4, up.data + k * up.strides[0] * 4, 4) != 0) {
      const std::string place = cat(role_name(role), "[", expert, ",", k, "]");
      return fail(Code::invalid_argument, place, place + ": gate and up differ");
    }
  return set.get({role, expert, Half::w1});
}

// One expert, w13 as one tensor in the row order of the config.
Result<TensorLease> one_expert(const WeightSet& set, const LayerFacts& facts, Role role, std::int64_t expert) {
  auto whole = set.get({role, expert, Half::whole});
  if (whole || whole.error().code != Code::missing_weight || !is_w13(role) || !facts.gated()) return whole;
  const auto gate = set.get({role, expert, Half::w1}), up = set.get({role, expert, Half::w3});
  const auto lacks = [](const Result<TensorLease>& r) { return !r && r.error().code == Code::missing_weight; };
  if (lacks(gate) && lacks(up)) return whole;
  if (!gate) return gate.error();
  if (!up) return up.error();
  if (gate->view.dtype != up->view.dtype) return types_differ(role, gate->view.dtype, up->view.dtype);
  MOE_TRY(const CheckpointTensor* row, facts.tensor_of(role));
  if (row->n_axis() < 0) return one_of_both(set, role, expert, gate->view, up->view);
  const std::int64_t inter = facts.config().intermediate_size_per_partition;
  if (row->shares_words() &&
      (facts.w13_layout() == W13Layout::interleaved ||
       inter % step_of(row->axes[usize(row->n_axis())], facts.config().stored_numbers()).lines != 0))
    return fail(Code::unsupported, role_name(role),
                cat(role_name(role), ": words that gate and up would share cannot be joined"));
  if (row->axes[usize(row->n_axis())] == Axis::n_blocks && facts.w13_layout() == W13Layout::interleaved)
    return fail(
        Code::unsupported, role_name(role),
        cat(role_name(role), ": scales of blocks of gate's and up's rows cannot be joined where rows are in turn"));
  return join_halves(gate->view, up->view, facts.w13_layout(), row->n_axis());
}

Result<TensorLease> all_experts(const WeightSet& set, const LayerFacts& facts, Role role, DType dtype_of_none) {
  const Dims shape = facts.stacked_shape(role);
  Buffer buffer;
  DType dtype = dtype_of_none;
  std::size_t each = 0;
  for (std::size_t i = 0; i < facts.experts().size(); ++i) {
    MOE_TRY(const TensorLease one, one_expert(set, facts, role, facts.experts()[i]));
    if (i == 0) {
      dtype = one.view.dtype;
      each = usize(one.view.numel() * dtype_bits(dtype) / 8);
      MOE_TRY(buffer, Buffer::create(each * facts.experts().size()));
    }
    if (one.view.dtype != dtype) return types_differ(role, dtype, one.view.dtype);
    copy_dense(one.view, buffer.data() + i * each);
  }
  if (!buffer) {
    MOE_TRY(buffer, Buffer::create(0));
  }
  const TensorView view = dense_view(dtype, shape.span(), buffer);
  return TensorLease(view, std::move(buffer));
}

// What is not set of a local expert.
std::optional<Half> gap_at(const RoleSlots& slots, std::int64_t local) {
  if (slots.find(local, Half::whole) != nullptr) return std::nullopt;
  const bool gate = slots.find(local, Half::w1) != nullptr, up = slots.find(local, Half::w3) != nullptr;
  if (gate && up) return std::nullopt;
  return gate ? Half::w3 : up ? Half::w1 : Half::whole;
}

// The same of a role in either of its forms.
std::optional<std::pair<Role, Half>> gap_in_forms(const std::array<RoleSlots, kRoleCount>& roles, Role role,
                                                  std::int64_t local) {
  const auto gap = gap_at(at(roles, role), local);
  const std::optional<Role> other = other_form(role);
  if (!gap || !other) return gap ? std::optional(std::pair(role, *gap)) : std::nullopt;
  const RoleSlots& slots = at(roles, *other);
  const auto rest = slots.stacked.empty() ? gap_at(slots, local) : std::nullopt;
  if (!rest) return std::nullopt;
  return std::pair(*rest == Half::whole ? role : *other, *rest == Half::whole ? *gap : *rest);
}

// The lists of sorted columns, in whichever order they and their groups were set.
Check check_lists(const WeightSet& set, const LayerFacts& facts, const std::array<RoleSlots, kRoleCount>& roles) {
  constexpr std::array kLists = {std::pair(Role::w13_g_idx_sort_indices, Role::w13_g_idx),
                                 std::pair(Role::w2_g_idx_sort_indices, Role::w2_g_idx)};
  for (const auto& [list, groups] : kLists) {
    const char* name = first_name(at(roles, list));
    if (name == nullptr) continue;
    for (const std::int64_t expert : facts.experts()) MOE_CHECK(check_sorted(set, facts, {list, groups, expert, name}));
  }
  return ok();
}

}  // namespace

Names WeightSet::missing(std::size_t limit) const {
  Names names;
  const LayerFacts& facts = state_->facts;
  // Only a checkpoint's file gives one, no source of tensors.
  if (!facts.config().expert_norm.name.empty() && state_->loaded.expert_norm.empty() && limit > 0)
    names.emplace_back("expert_norm");
  if (state_->source != nullptr) return names;
  for (const Role role : facts.required()) {
    if (!state_->role(role).stacked.empty()) continue;
    for (std::size_t i = 0; i < facts.experts().size() && names.size() < limit; ++i) {
      const std::int64_t expert = facts.source_expert(facts.experts()[i]);
      const std::vector<std::int64_t> places = facts.places_of(expert);
      if (places[0] != static_cast<std::int64_t>(i)) continue;  // a further copy, told with the first
      for (const std::int64_t local : places)
        if (const auto gap = gap_in_forms(state_->roles, role, local)) {
          names.push_back(place_name(gap->first, expert, gap->second));
          break;
        }
    }
  }
  return names;
}

namespace {

// Bytes of names in a message; its details have all of them.
constexpr std::size_t kMostNamed = 1024;

// Names of one tensor of experts that follow each other: "w13_weight[4-127]".
struct Run {
  std::string head, tail;
  std::int64_t first = -1, last = -1;  // -1: the head is all
  std::size_t names = 1;

  std::string text() const {
    if (first < 0) return head;
    return cat(head, "[", first, first == last ? "" : cat("-", last), "]", tail);
  }
};

Run run_of(const std::string& name) {
  const std::size_t open = name.find('['), close = name.find(']');
  if (open == std::string::npos || close == std::string::npos) return {.head = name, .tail = ""};
  std::int64_t expert = 0;
  std::from_chars(name.data() + open + 1, name.data() + close, expert);
  return {.head = name.substr(0, open), .tail = name.substr(close + 1), .first = expert, .last = expert};
}

std::vector<Run> runs_of(const Names& names) {
  std::vector<Run> runs;
  for (const std::string& name : names) {
    const Run next = run_of(name);
    Run* last = runs.empty() ? nullptr : &runs.back();
    if (last != nullptr && next.first >= 0 && last->head == next.head && last->tail == next.tail &&
        last->last + 1 == next.first)
      ++last->last, ++last->names;
    else
      runs.push_back(next);
  }
  return runs;
}

// Whose they are, where all are of the same experts.
std::string experts_of(const std::vector<Run>& runs, const LayerFacts& facts) {
  const Config& config = facts.config();
  const Run& one = runs.front();
  if (one.first < 0 || one.first == one.last || (one.first == 0 && one.last == config.num_experts - 1)) return "";
  for (const Run& r : runs)
    if (r.first != one.first || r.last != one.last) return "";
  const std::int64_t experts = config.num_experts;
  std::string s = cat("; they are of experts ", one.first, " to ", one.last, " of ", experts);
  if (facts.experts().front() != 0 || one.first == 0 || one.last != experts - 1) return s;
  s += cat("; the weights are those of ", one.first, one.first == 1 ? " expert" : " experts", ", and num_experts is ",
           experts);
  return config.named_by_class.empty() ? s : s + ", which a class gives by default where config.json does not say it";
}

}  // namespace

Check WeightSet::check_complete() const {
  if (state_->facts.required().empty()) return state_->facts.tensor_of(Role::w13_weight).error();
  const Names names = missing();
  if (names.empty()) {
    MOE_CHECK(state_->check_open_stacks());
    return check_lists(*this, state_->facts, state_->roles);
  }
  const auto is_set = [](const RoleSlots& slots) { return first_dtype(slots) != DType::invalid; };
  std::string what;
  if (const auto& u = state_->unfound; u && std::none_of(state_->roles.begin(), state_->roles.end(), is_set))
    what = found_instead(state_->facts, u->path, u->module ? u->module->c_str() : nullptr);
  const bool instead = !what.empty();
  const std::vector<Run> runs = runs_of(names);
  std::size_t told = 0;
  for (std::size_t i = 0; i < runs.size() && !instead; ++i) {
    const std::string text = runs[i].text();
    if (what.size() + text.size() > kMostNamed) {
      what += cat(", and ", names.size() - told, " more");
      break;
    }
    what += cat(what.empty() ? "" : ", ", text);
    told += runs[i].names;
  }
  if (!instead) what += experts_of(runs, state_->facts);
  return fail(Code::missing_weight, names[0], cat(names.size(), " weights were never set: ", what),
              json::Writer().key("missing").array(names).take());
}

std::string WeightSet::to_json() const {
  const LayerFacts& facts = state_->facts;
  const Names names = missing();
  const bool complete = names.empty() && !facts.required().empty();
  json::Writer w;
  w.begin_object().member("complete", complete).key("missing").array(names);
  w.key("unexpected").begin_array().end_array().key("experts").array(facts.experts());
  w.key("tensors").begin_array();
  for (int r = 0; r < kRoleCount; ++r) {
    const auto role = static_cast<Role>(r);
    const DType dtype = first_dtype(state_->role(role));
    if (dtype != DType::invalid) write_tensor(w, facts, role, dtype);
  }
  return w.end_array().end_object().take();
}

Result<TensorLease> WeightSet::tensor(Role role, std::int64_t expert) const {
  MOE_TRY(const CheckpointTensor* row, state_->facts.tensor_of(role));
  if (row->kind == TensorKind::shape)
    return fail(Code::missing_weight, role_name(role),
                cat(role_name(role), ": is checked when it is set, and not kept"));
  if (expert != -1) return one_expert(*this, state_->facts, role, expert);
  const Slot& stacked = state_->role(role).stacked;
  const bool set_so = !stacked.empty() && !state_->facts.ignored_here(role);
  MOE_TRY(TensorLease all, set_so ? Result<TensorLease>(TensorLease(stacked.view))
                                  : all_experts(*this, state_->facts, role, row->dtypes[0]));
  if (state_->facts.stacks_transposed() && all.view.ndim == 3) all.view = swap_last_two(all.view);
  if (const int last = state_->facts.told_shape(role).ndim; last < all.view.ndim)
    all.view.ndim = last, at(all.view.shape, last) = at(all.view.strides, last) = 0;
  return all;
}

}  // namespace moe::weights
