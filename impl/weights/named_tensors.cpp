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
#include "weights/correction_bias.h"
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
};

Result<Target> target_of(const LayerFacts& facts, const ParsedName& p, std::string_view name) {
  MOE_TRY(const Part part, facts.part(p.projection, *p.tensor, name));
  return Target{*role_of(p.projection, p.tensor->kind), half_of(p.projection, facts.gated()), part,
                facts.places_of(p.expert)};
}

Check check_places(const RoleSlots& slots, const Target& t, std::int64_t expert) {
  for (const std::int64_t local : t.places) MOE_CHECK(check_place(slots, t.role, local, expert, t.half));
  return ok();
}

void fill(RoleSlots& slots, const Target& t, const Slot& slot) {
  for (const std::int64_t local : t.places) at(at(slots.experts, local), t.half) = slot;
}

struct FileTensor {
  Target target;
  Slot slot;
};

// One tensor of a file; nullopt: not of this layer, or checked and dropped (weight_shape).
Result<std::optional<FileTensor>> accept_entry(const LayerFacts& facts, const CheckpointEntry& from,
                                               const ExpertModule& module) {
  const SafetensorsEntry& e = *from.entry;
  MOE_TRY(const Named n, parse_named(facts, e.name, module));
  if (!n.ours) return std::optional<FileTensor>();
  const ParsedName& p = n.parsed;
  const MatrixSize whole = facts.whole(p.projection);
  const TensorShape want = p.tensor->shape(whole);
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
    MOE_CHECK(check_weight_shape(std::span(bytes).first(8), std::span(bytes).last(8), whole, e.name));
    return std::optional<FileTensor>();
  }
  MOE_TRY(Target target, target_of(facts, p, e.name));
  Slot slot;
  slot.kind = Slot::Kind::file;
  slot.file = {from, target.part};
  return std::optional<FileTensor>(FileTensor{std::move(target), std::move(slot)});
}

// The second of two tensors for one place; nullptr: there are none. (A tensor may have two names.)
const FileTensor* find_doubled(const std::vector<FileTensor>& accepted) {
  std::set<std::tuple<Role, Half, std::int64_t>> seen;
  for (const FileTensor& t : accepted)
    if (!seen.insert({t.target.role, t.target.half, t.target.places[0]}).second) return &t;
  return nullptr;
}

Error in_file(const CheckpointEntry& e, Error error) {
  if (error.subject != e.file->path()) error.message += ", in " + e.file->path();
  return error;
}

// The places where the experts may be. `module`: the caller's prefix, nullptr: the config's.
std::vector<ExpertNames> names_of(const LayerFacts& facts, const char* module) {
  const std::string own = module != nullptr ? module : facts.config().name;
  return expert_names(facts.module(own), module == nullptr);
}

ExpertModule module_at(const LayerFacts& facts, const ExpertNames& names) {
  ExpertModule m = facts.module(names.prefix);
  m.projections = names.projections;
  return m;
}

// The one place whose names a checkpoint uses, the config's own when it uses none.
Result<const ExpertNames*> place_of_experts(const LayerFacts& facts, std::span<const ExpertNames> places,
                                            std::span<const CheckpointEntry> entries) {
  const ExpertNames* found = nullptr;
  const CheckpointEntry* first = nullptr;
  for (const ExpertNames& place : places) {
    const ExpertModule module = module_at(facts, place);
    const auto ours = std::find_if(entries.begin(), entries.end(), [&](const CheckpointEntry& e) {
      return parse_tensor_name(e.entry->name, module).match != NameMatch::foreign;
    });
    if (ours == entries.end()) continue;
    if (found != nullptr)
      return in_file(*ours,
                     fail(Code::unexpected_weight, ours->entry->name,
                          cat(ours->entry->name, ": the experts of this layer are also at ", first->entry->name)));
    found = &place;
    first = &*ours;
  }
  return found != nullptr ? found : &places.front();
}

// Routing by the config's own scores would leave a correction bias out.
bool ignores_bias(const RoutingConfig& r) {
  return !r.has_bias && !r.hash_routing && r.method != RoutingMethod::custom && r.method != RoutingMethod::simulated;
}

Error unused_bias(const std::string& name) {
  return fail(Code::unexpected_weight, name,
              name +
                  ": the checkpoint has a correction bias, and routing.e_score_correction_bias of the config is "
                  "false: routing would leave it out",
              R"("member":"/routing/e_score_correction_bias")");
}

}  // namespace

Result<bool> WeightSet::set_named(std::string_view name, const TensorView& given, Owner owner) {
  MOE_CHECK(check_settable(state_->source.get()));
  const LayerFacts& facts = state_->facts;
  Named n;
  for (const ExpertNames& names : names_of(facts, nullptr)) {
    MOE_TRY(n, parse_named(facts, name, module_at(facts, names)));
    if (n.ours) break;
  }
  if (!n.ours) return false;
  const ParsedName& p = n.parsed;
  const MatrixSize whole = facts.whole(p.projection);
  const TensorShape want = p.tensor->shape(whole);
  const TensorView tensor = in_shape(given, *p.tensor, want.span());
  MOE_CHECK(check_tensor(tensor, *p.tensor, want.span(), name));
  if (p.tensor->kind == TensorKind::shape) {
    const std::span<const std::byte> bytes(tensor.data, tensor.nbytes);
    MOE_CHECK(check_weight_shape(bytes, bytes.subspan(usize(tensor.strides[0]) * 8), whole, std::string(name)));
    return true;
  }
  MOE_TRY(const Target target, target_of(facts, p, name));
  if (target.places.empty()) return true;  // another rank's: released at once
  RoleSlots& slots = state_->role(target.role);
  MOE_CHECK(check_places(slots, target, p.expert));
  const Slot slot = view_slot(cut(tensor, target.part), std::move(owner));
  if (slots.experts.empty()) slots.experts.resize(facts.experts().size());
  fill(slots, target, slot);
  return true;
}

Check WeightSet::load_safetensors(const char* path, const char* module) {
  MOE_CHECK(check_settable(state_->source.get()));
  const LayerFacts& facts = state_->facts;
  const std::vector<ExpertNames> places = names_of(facts, module);
  std::vector<std::string> prefixes;  // of experts, and of routers
  for (const ExpertNames& p : places) {
    prefixes.push_back(p.prefix.empty() ? "" : p.prefix + ".");
    for (std::string& name : correction_bias_names(router_prefix(p.prefix))) prefixes.push_back(std::move(name));
  }
  MOE_TRY(const auto entries, open_checkpoint(path, std::move(prefixes)));
  MOE_TRY(const ExpertNames* place, place_of_experts(facts, places, entries));
  const ExpertModule module_here = module_at(facts, *place);
  const RoutingConfig& routing = facts.config().routing;
  std::vector<FileTensor> accepted;  // everything is checked before the first slot changes
  std::vector<float> bias;
  for (const CheckpointEntry& e : entries) {
    const bool is_bias = std::any_of(places.begin(), places.end(), [&](const ExpertNames& p) {
      return is_correction_bias(e.entry->name, router_prefix(p.prefix));
    });
    if (is_bias && ignores_bias(routing)) return in_file(e, unused_bias(e.entry->name));
    if (is_bias && routing.has_bias) {
      const bool second = !bias.empty();
      auto values = read_correction_bias(e, facts.config());
      if (!values) return in_file(e, std::move(values.error()));
      if (second)
        return in_file(e, fail(Code::unexpected_weight, e.entry->name, e.entry->name + ": a second correction bias"));
      bias = std::move(*values);
      continue;
    }
    auto tensor = accept_entry(facts, e, module_here);
    if (!tensor) return in_file(e, std::move(tensor.error()));
    if (!*tensor || (*tensor)->target.places.empty()) continue;
    const Target& target = (*tensor)->target;
    MOE_CHECK(check_places(state_->role(target.role), target, at(facts.experts(), target.places[0])));
    accepted.push_back(std::move(**tensor));
  }
  if (const FileTensor* second = find_doubled(accepted))
    return in_file(second->slot.file.from, fail(Code::unexpected_weight, second->slot.file.from.entry->name,
                                                cat(second->slot.file.from.entry->name,
                                                    ": the checkpoint has this tensor under another name, too")));
  for (const FileTensor& t : accepted)
    if (auto& experts = state_->role(t.target.role).experts; experts.empty()) experts.resize(facts.experts().size());
  for (const FileTensor& t : accepted) fill(state_->role(t.target.role), t.target, t.slot);
  if (!bias.empty()) state_->correction_bias = std::move(bias);
  return ok();
}

}  // namespace moe::weights
