// Tensors by their checkpoint names, whole: from the caller (set_named) and from files. This rank's part
// of each is found here; a file's bytes are not read yet.
#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <tuple>

#include "base/index.h"
#include "base/text.h"
#include "scheme/tensor_check.h"
#include "weights/expert_places.h"
#include "weights/found_instead.h"
#include "weights/side_tensors.h"
#include "weights/state.h"

namespace moe::weights {
namespace {

// The two numbers of a weight_shape must be those of the real shape.
Check check_weight_shape(std::span<const std::byte> first, std::span<const std::byte> second, const MatrixSize& m,
                         const std::string& name) {
  std::array<std::int64_t, 2> got{};
  std::memcpy(&got[0], first.data(), 8);
  std::memcpy(&got[1], second.data(), 8);
  const std::array want{m.n, m.k};
  if (got == want) return ok();
  return fail(Code::shape, name, cat(name, ": says ", shape_text(got), ", the projection has ", shape_text(want)));
}

// What a name of this layer stands for; not ours: a name elsewhere.
struct Named {
  ParsedName parsed;
  bool ours = false;
};

Result<Named> parse_named(const LayerFacts& facts, std::string_view name, const ExpertModule& module) {
  Named n;
  n.parsed = parse_tensor_name(name, module);
  if (n.parsed.match == NameMatch::foreign) return n;
  if (tensor_set(facts.config().quantization) == nullptr) return facts.tensor_of(Role::w13_weight).error();
  if (n.parsed.match == NameMatch::unknown_of_ours)
    return fail(Code::unexpected_weight, std::string(name), cat(name, ": ", n.parsed.why));
  n.ours = true;
  return n;
}

// Where this rank's part of a tensor goes; no places: nowhere here.
struct Target {
  Role role;
  Half half;
  Part part;
  std::vector<std::int64_t> places;  // local experts: more than one when there are redundant copies
  std::int64_t expert = 0;           // the model's number
};

// Of a stack: for each expert and half of it.
Result<std::vector<Target>> targets_of(const LayerFacts& facts, const ParsedName& p, const ExpertModule& module,
                                       std::string_view name) {
  const Role role = *role_of(p.projection, p.tensor->kind);
  std::vector<Target> targets;
  if (!module.is_stacked()) {
    MOE_TRY(const Part part, facts.part(p.projection, *p.tensor, name));
    targets.push_back({role, half_of(p.projection, facts.gated()), part, facts.places_of(p.expert), p.expert});
    return targets;
  }
  MOE_TRY(const std::vector<StackPart> parts, facts.stack_parts(p.projection, *p.tensor, module, name));
  const std::int64_t rows = facts.stack_rows(p.projection, *p.tensor, module);
  for (std::int64_t e = 0; e < module.num_experts; ++e)
    for (const StackPart& part : parts) {
      targets.push_back({role, part.half, part.part, facts.places_of(e), e});
      targets.back().part.row0 += e * rows;
    }
  return targets;
}

// The shape that a checkpoint's tensor has.
Dims shape_in_file(const LayerFacts& facts, const ParsedName& p, const ExpertModule& module) {
  if (module.is_stacked()) return facts.stack_shape(p.projection, *p.tensor, module);
  const TensorShape one = p.tensor->shape(facts.whole(p.projection));
  Dims d;
  d.ndim = one.ndim;
  std::copy_n(one.dims.begin(), one.dims.size(), d.d.begin());
  return d;
}

// Whether the file has columns first where the role has rows.
bool is_turned(const LayerFacts& facts, const ParsedName& p) {
  return p.tensor->k_first() && !tensor_set(facts.config().quantization)->tensor(p.tensor->kind)->k_first();
}

Check check_places(const std::array<RoleSlots, kRoleCount>& roles, const Target& t, const std::string& name) {
  for (const std::int64_t local : t.places) {
    MOE_CHECK(check_place(at(roles, t.role), t.role, local, t.expert, t.half));
    MOE_CHECK(check_form(roles, t.role, local, name));
  }
  return ok();
}

void fill(RoleSlots& slots, const Target& t, const Slot& slot) {
  for (const std::int64_t local : t.places) at(at(slots.experts, local), t.half) = slot;
}

// A part of a stack, whose rows count through all experts.
TensorView cut_stack(const TensorView& stack, const Target& t, const ExpertModule& module) {
  Part part = t.part;
  if (module.is_flat()) return cut(stack, part);
  part.row0 -= t.expert * stack.shape[1];
  return cut(slice0(stack, t.expert), part);
}

struct FileTensor {
  Target target;
  Slot slot;
};

// One tensor of a file; none: not of this layer, or checked and dropped (weight_shape).
Result<std::vector<FileTensor>> accept_entry(const LayerFacts& facts, const CheckpointEntry& from,
                                             const ExpertModule& module) {
  const SafetensorsEntry& e = *from.entry;
  MOE_TRY(const Named n, parse_named(facts, e.name, module));
  std::vector<FileTensor> accepted;
  if (!n.ours) return accepted;
  const ParsedName& p = n.parsed;
  const Dims want = shape_in_file(facts, p, module);
  const auto got = e.shape();
  if (!p.tensor->allows(e.dtype))
    return fail(Code::dtype, e.name,
                cat(e.name, ": expected ", p.tensor->dtypes_text(), ", got ", dtype_name(e.dtype)));
  const bool scalar = p.tensor->is_shared() && got.empty();  // as good as [1]
  if (!scalar && !has_shape(got, *p.tensor, want.span()))
    return fail(Code::shape, e.name,
                cat(e.name, ": expected shape ", shape_text(want.span()), ", got ", shape_text(got)));
  if (p.tensor->kind == TensorKind::shape) {
    std::array<std::byte, 16> bytes{};
    MOE_CHECK(from.file->read(e, 0, bytes));
    MOE_CHECK(
        check_weight_shape(std::span(bytes).first(8), std::span(bytes).last(8), facts.whole(p.projection), e.name));
    return accepted;
  }
  MOE_TRY(std::vector<Target> targets, targets_of(facts, p, module, e.name));
  for (Target& target : targets) {
    if (target.places.empty()) continue;
    Slot slot;
    slot.kind = Slot::Kind::file;
    slot.file = {from, target.part, is_turned(facts, p)};
    accepted.push_back({std::move(target), std::move(slot)});
  }
  return accepted;
}

// The second of two tensors for one place; nullptr: there are none. (A tensor may have two names, or two forms.)
const FileTensor* find_doubled(const std::vector<FileTensor>& accepted) {
  std::set<std::tuple<Role, Half, std::int64_t>> seen;
  std::set<std::tuple<Role, std::int64_t>> forms;
  for (const FileTensor& t : accepted) {
    const std::int64_t local = t.target.places[0];
    const std::optional<Role> other = other_form(t.target.role);
    if (!seen.insert({t.target.role, t.target.half, local}).second) return &t;
    if (other && forms.contains({*other, local})) return &t;
    forms.insert({t.target.role, local});
  }
  return nullptr;
}

// A refused tensor may be of a checkpoint that is quantized in another way than the config says.
Error with_hint(const LayerFacts& facts, std::string_view name, DType dtype, Error error) {
  if (error.code == Code::unexpected_weight || error.code == Code::dtype)
    error.message += quantization_hint(facts, name, dtype);
  return error;
}

Error in_file(const CheckpointEntry& e, Error error) {
  if (error.subject != e.file->path()) error.message += ", in " + e.file->path();
  return error;
}

// The routers of places, each once: beside the experts' module, in it where it has more than experts, or in the layer.
std::vector<RouterPlace> routers_of(std::span<const ExpertPlace> places) {
  std::set<RouterPlace> all;
  for (const ExpertPlace& p : places) {
    all.insert({router_prefix(p.prefix), p.layer});
    if (p.prefix.find("experts") == std::string::npos) all.insert({p.prefix + ".", p.layer});
    if (!p.layer.empty()) all.insert({p.layer, p.layer});
  }
  return {all.begin(), all.end()};
}

// A vector beside the experts: checked and read into `out`. false: it is none.
Result<bool> take_side(const Config& config, const CheckpointEntry& e, std::span<const RouterPlace> routers,
                       SideVectors& out) {
  std::optional<Side> side;
  for (const RouterPlace& at : routers)
    if (!side) side = side_of(config, e.entry->name, at.router, at.layer);
  if (!side) return false;
  MOE_TRY(const bool wanted, is_wanted(config, *side, e.entry->name));
  if (!wanted) return true;
  std::vector<float>& values = *side == Side::correction_bias ? out.correction_bias
                               : *side == Side::expert_scale  ? out.expert_scale
                                                              : out.expert_norm;
  MOE_TRY(std::vector<float> read, read_side(e, config, *side));
  if (!values.empty())
    return fail(
        Code::unexpected_weight, e.entry->name,
        cat(e.entry->name, ": a second ", *side == Side::correction_bias ? "correction bias" : "tensor of its kind"));
  values = std::move(read);
  return true;
}

// What is not the experts' and not known beside them: unexpected_weight where it would change what the layer does.
Check check_left_out(const LayerFacts& facts, const CheckpointEntry& e, const ExpertModule& module,
                     std::span<const RouterPlace> routers) {
  const std::string& name = e.entry->name;
  if (parse_tensor_name(name, module).match != NameMatch::foreign) return ok();
  if (lies_among_experts(name, module))
    return fail(Code::unexpected_weight, name,
                cat(name,
                    ": the experts have no tensor of this name: it would be left out; ignored_tensors of the "
                    "config says that it may"));
  for (const RouterPlace& at : routers) MOE_CHECK(check_known_vector(facts.config(), *e.entry, at));
  return ok();
}

}  // namespace

Result<bool> WeightSet::set_named(std::string_view name, const TensorView& given, Owner owner) {
  MOE_CHECK(check_settable(state_->source.get()));
  const LayerFacts& facts = state_->facts;
  Named n;
  ExpertModule module;
  if (state_->places.empty()) state_->places = expert_places(facts, nullptr);
  for (const ExpertPlace& place : state_->places) {
    module = module_at(facts, place);
    auto named = parse_named(facts, name, module);
    if (!named) return with_hint(facts, name, given.dtype, std::move(named.error()));
    n = *named;
    if (n.ours) break;
  }
  if (!n.ours) return false;
  const ParsedName& p = n.parsed;
  const Dims want = shape_in_file(facts, p, module);
  const TensorView tensor = in_shape(given, *p.tensor, want.span());
  if (Check fits = check_tensor(tensor, *p.tensor, want.span(), name); !fits)
    return with_hint(facts, name, given.dtype, std::move(fits.error()));
  if (p.tensor->kind == TensorKind::shape) {
    const std::span<const std::byte> bytes(tensor.data, tensor.nbytes);
    MOE_CHECK(check_weight_shape(bytes, bytes.subspan(usize(tensor.strides[0]) * 8), facts.whole(p.projection),
                                 std::string(name)));
    return true;
  }
  MOE_TRY(std::vector<Target> targets, targets_of(facts, p, module, name));
  std::erase_if(targets, [](const Target& t) { return t.places.empty(); });
  if (targets.empty()) return true;  // another rank's: released at once
  for (const Target& target : targets) MOE_CHECK(check_places(state_->roles, target, std::string(name)));
  RoleSlots& slots = state_->role(targets[0].role);
  if (slots.experts.empty()) slots.experts.resize(facts.experts().size());
  Slot slot = view_slot(tensor, std::move(owner));
  for (const Target& target : targets) {
    slot.view = module.is_stacked() ? cut_stack(tensor, target, module) : cut(tensor, target.part);
    if (is_turned(facts, p)) slot.view = swap_last_two(slot.view);
    fill(slots, target, slot);
  }
  return true;
}

Check WeightSet::load_safetensors(const char* path, const char* module) {
  MOE_CHECK(check_settable(state_->source.get()));
  const LayerFacts& facts = state_->facts;
  const std::vector<ExpertPlace> places = expert_places(facts, module);
  MOE_TRY(const auto entries, open_checkpoint(path, layer_filter(facts, module)));
  MOE_TRY(const ExpertPlace* place, place_of_experts(facts, places, entries));
  const ExpertModule module_here = module_at(facts, place != nullptr ? *place : places.front());
  const std::vector<RouterPlace> routers = routers_of(places);
  const std::vector<RouterPlace> near = place != nullptr ? routers_of(std::span(place, 1)) : routers;
  std::vector<FileTensor> accepted;  // everything is checked before the first slot changes
  SideVectors beside;
  for (const CheckpointEntry& e : entries) {
    auto is_side = take_side(facts.config(), e, routers, beside);
    if (!is_side) return in_file(e, std::move(is_side.error()));
    if (*is_side) continue;
    auto tensors = accept_entry(facts, e, module_here);
    if (!tensors) return in_file(e, with_hint(facts, e.entry->name, e.entry->dtype, std::move(tensors.error())));
    if (const Check known = check_left_out(facts, e, module_here, near); !known) return in_file(e, known.error());
    for (FileTensor& tensor : *tensors) {
      MOE_CHECK(check_places(state_->roles, tensor.target, e.entry->name));
      accepted.push_back(std::move(tensor));
    }
  }
  if (const FileTensor* second = find_doubled(accepted))
    return in_file(second->slot.file.from, fail(Code::unexpected_weight, second->slot.file.from.entry->name,
                                                cat(second->slot.file.from.entry->name,
                                                    ": the checkpoint has this tensor under another name or in another "
                                                    "form, too")));
  for (const FileTensor& t : accepted)
    if (auto& experts = state_->role(t.target.role).experts; experts.empty()) experts.resize(facts.experts().size());
  for (const FileTensor& t : accepted) fill(state_->role(t.target.role), t.target, t.slot);
  const auto keep = [](std::vector<float>& from, std::vector<float>& to) {
    if (!from.empty()) to = std::move(from);
  };
  keep(beside.correction_bias, state_->loaded.correction_bias);
  keep(beside.expert_scale, state_->loaded.expert_scale);
  keep(beside.expert_norm, state_->loaded.expert_norm);
  if (place == nullptr) state_->unfound = {path, module != nullptr ? std::optional<std::string>(module) : std::nullopt};
  return ok();
}

}  // namespace moe::weights
