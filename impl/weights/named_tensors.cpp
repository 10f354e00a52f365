// Tensors by their checkpoint names, whole: from the caller (set_named) and from files. This rank's part
// of each is found here; a file's bytes are not read yet.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <optional>
#include <set>
#include <tuple>

#include "base/buffer.h"
#include "base/decimal.h"
#include "base/index.h"
#include "base/number_at.h"
#include "base/text.h"
#include "scheme/tensor_check.h"
#include "weights/expert_places.h"
#include "weights/found_instead.h"
#include "weights/place_of_experts.h"
#include "weights/placing.h"
#include "weights/side_tensors.h"
#include "weights/state.h"
#include "weights/tensor_bytes.h"

namespace moe::weights {
namespace {

// The two numbers of a weight_shape must be those of the real shape.
Check check_weight_shape(std::span<const std::byte> first, std::span<const std::byte> second, const LayerFacts& facts,
                         const ParsedName& p, const std::string& name) {
  MatrixSize m = facts.whole(p.projection);
  if (p.joined) m.n *= 2;
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

Error in_file(const CheckpointEntry& e, Error error) {
  if (error.subject != e.file->path()) error.message += ", in " + e.file->path();
  return error;
}

// A tensor that does not fit may have another reason than itself: the checkpoint is quantized in another way than the
// config says, or the config had to assume something.
Error explained(const LayerFacts& facts, std::string_view name, DType dtype, Error error) {
  if (error.code == Code::unexpected_weight || error.code == Code::dtype)
    error.message += quantization_hint(facts, name, dtype);
  const Quantization& q = facts.config().quantization;
  if (error.code == Code::shape && dtype == DType::i32 && is_narrow(q.format))
    error.message += cat("; compressed-tensors before 0.18 left bits of a word without a code, where ",
                         at(kFormats, q.format).stored_bits, " do not divide 32: such files are not read");
  if (const std::string& assumed = facts.config().assumed; !assumed.empty()) error.message += cat(" (", assumed, ")");
  return error;
}

struct PlacedTensor {
  Target target;
  Slot slot;
};

Slot file_slot(const CheckpointEntry& from, DType dtype) {
  Slot s;
  s.kind = Slot::Kind::file;
  s.file = {.from = from, .part = {}, .dtype = dtype};
  return s;
}

// What the tensors of a file tell of the order of its stacks, where it is not known yet, and those that do not.
struct ShownStacks {
  std::optional<StackedWeights> order;
  std::vector<CheckpointEntry> open;
};
Result<ShownStacks> shown_stacks(const LayerFacts& facts, std::span<const CheckpointEntry> entries,
                                 const ExpertModule& module, const std::optional<StackedWeights>& known) {
  ShownStacks all{.order = known, .open = {}};
  for (const CheckpointEntry& e : entries) {
    const ShownOrder shown = shown_order(facts, e.entry->name, e.entry->dtype, e.entry->shape(), module);
    Check right = check_order(all.order, shown, e.entry->name, e.entry->shape());
    if (right) right = check_open(facts, shown, e.entry->name, module);
    if (!right) return in_file(e, std::move(right.error()));
    if (!all.order) all.order = shown.order;
    if (shown.open) all.open.push_back(e);
  }
  return all;
}

// AutoGPTQ writes a bias for each projection, of zeros where the model has none. Such a one may be left out.
bool may_be_left_out(const LayerFacts& facts, const ParsedName& p) {
  return facts.config().quantization.format == Format::gptq && p.match == NameMatch::unknown_of_ours &&
         p.absent != nullptr && p.absent->kind == TensorKind::bias;
}
bool is_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}
Result<bool> is_zero(const CheckpointEntry& from) {
  std::array<std::byte, 4096> bytes{};
  const std::uint64_t all = from.entry->bytes;
  for (std::uint64_t at = 0; at < all; at += bytes.size()) {
    const std::span part(bytes.data(), std::min<std::uint64_t>(bytes.size(), all - at));
    MOE_CHECK(from.file->read(*from.entry, at, part));
    if (!is_zero(part)) return false;
  }
  return true;
}

Check check_zeros(bool zero, const ParsedName& p, const std::string& name) {
  if (zero) return ok();
  const bool of_points = p.tensor->suffix.find("zero_point") != std::string_view::npos;
  return fail(Code::unsupported, name,
              cat(name, of_points ? ": has zero points other than 0, read are symmetric weights of this format"
                                  : ": is not 0, which says that the weights lie in another order than by rows"));
}
Check check_beside(DType dtype, const std::byte* bytes, std::uint64_t count, const std::string& name) {
  for (std::uint64_t i = 0; is_float16_or_32(dtype) && i < count; ++i)
    if (const float x = load_float(dtype, bytes + i * usize(dtype_bits(dtype) / 8)); !std::isfinite(x))
      return fail(Code::invalid_argument, name, cat(name, ": ", float_text(x), " is not a finite number"));
  return ok();
}

// What is looked at and dropped, in memory and in a file.
std::vector<float> floats_of(DType dtype, std::span<const std::byte> bytes) {
  const std::size_t size = usize(dtype_bits(dtype) / 8);
  std::vector<float> values(bytes.size() / size);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = load_float(dtype, bytes.data() + i * size);
  return values;
}

Check check_dropped(const LayerFacts& facts, const ParsedName& p, const TensorView& dense, const std::string& name,
                    InputFactors& factors) {
  const std::span bytes(dense.data, dense.nbytes);
  if (p.tensor->kind == TensorKind::input_columns) return factors.add(facts, p, floats_of(dense.dtype, bytes), name);
  if (p.tensor->kind == TensorKind::no_zeros) return check_zeros(is_zero(bytes), p, name);
  if (p.tensor->kind == TensorKind::beside)
    return check_beside(dense.dtype, dense.data, static_cast<std::uint64_t>(dense.numel()), name);
  return check_weight_shape(bytes.first(8), bytes.last(8), facts, p, name);
}
Check check_dropped(const LayerFacts& facts, const ParsedName& p, const CheckpointEntry& from, DType dtype,
                    InputFactors& factors) {
  const SafetensorsEntry& e = *from.entry;
  if (p.tensor->kind == TensorKind::input_columns) {
    MOE_TRY(const Buffer whole, Buffer::create(usize(static_cast<std::int64_t>(e.bytes))));
    MOE_CHECK(from.file->read(e, 0, whole.bytes()));
    return factors.add(facts, p, floats_of(dtype, whole.bytes()), e.name);
  }
  if (p.tensor->kind == TensorKind::no_zeros) {
    MOE_TRY(const bool zero, is_zero(from));
    return check_zeros(zero, p, e.name);
  }
  std::array<std::byte, 16> bytes{};  // two numbers at most
  MOE_CHECK(from.file->read(e, 0, std::span(bytes).first(std::min<std::size_t>(bytes.size(), e.bytes))));
  if (p.tensor->kind == TensorKind::beside)
    return check_beside(dtype, bytes.data(), e.bytes / usize(dtype_bits(dtype) / 8), e.name);
  return check_weight_shape(std::span(bytes).first(8), std::span(bytes).last(8), facts, p, e.name);
}

// One tensor of a file; none: not of this layer, or checked and dropped (weight_shape).
Result<std::vector<PlacedTensor>> accept_entry(const LayerFacts& facts, const CheckpointEntry& from,
                                               const ExpertModule& module, InputFactors& factors) {
  const SafetensorsEntry& e = *from.entry;
  std::vector<PlacedTensor> accepted;
  if (may_be_left_out(facts, parse_tensor_name(e.name, module))) {
    MOE_TRY(const bool zero, is_zero(from));
    if (zero) return accepted;
  }
  MOE_TRY(const Named n, parse_named(facts, e.name, module));
  if (!n.ours) return accepted;
  const ParsedName& p = n.parsed;
  const StoredTensor got = stored_tensor(e.dtype, e.shape(), *p.tensor);
  if (!p.tensor->allows(got.dtype))
    return fail(Code::dtype, e.name,
                cat(e.name, ": expected ", p.tensor->dtypes_text(), ", got ", dtype_name(e.dtype)));
  if (!fits(facts, p, module, got.extents))
    return fail(Code::shape, e.name,
                cat(e.name, ": expected shape ", shape_text(shape_in_file(facts, p, module).span()), ", got ",
                    shape_text(got.extents)));
  if (is_dropped(p.tensor->kind)) {
    MOE_CHECK(check_dropped(facts, p, from, got.dtype, factors));
    return accepted;
  }
  if (p.tensor->kind == TensorKind::weight) factors.weight_came(p);
  MOE_TRY(std::vector<Target> targets, targets_of(facts, p, module, got.extents, e.name));
  const Slot whole = file_slot(from, got.dtype);
  for (Target& target : targets) {
    Slot slot = part_of(facts, whole, target, p, module);
    accepted.push_back({std::move(target), std::move(slot)});
  }
  return accepted;
}

// The second of two tensors for one place; nullptr: there are none. (A tensor may have two names, or two forms.)
const PlacedTensor* find_doubled(const std::vector<PlacedTensor>& accepted) {
  std::set<std::tuple<Role, Half, std::int64_t>> seen;
  std::set<std::tuple<Role, std::int64_t>> forms;
  for (const PlacedTensor& t : accepted) {
    const std::int64_t local = t.target.places[0];
    const std::optional<Role> other = other_form(t.target.role);
    if (!seen.insert({t.target.role, t.target.half, local}).second) return &t;
    if (other && forms.contains({*other, local})) return &t;
    forms.insert({t.target.role, local});
  }
  return nullptr;
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

Result<bool> WeightSet::set_named(std::string_view name, const TensorView& given, HandedOver owner) {
  MOE_CHECK(check_settable(state_->source.get()));
  const LayerFacts& facts = state_->facts;
  Named n;
  ExpertModule module;
  if (state_->places.empty()) state_->places = expert_places(facts, nullptr);
  const ExpertPlace* at_place = nullptr;
  for (const ExpertPlace& place : state_->places) {
    at_place = &place;
    module = module_at(facts, place);
    if (may_be_left_out(facts, parse_tensor_name(name, module)) && is_row_major(given) &&
        is_zero({given.data, given.nbytes}))
      return true;
    auto parsed = parse_named(facts, name, module);
    if (!parsed) return explained(facts, name, given.dtype, std::move(parsed.error()));
    n = std::move(*parsed);
    if (n.ours) break;
  }
  if (!n.ours) return false;
  const std::span<const std::int64_t> extents(given.shape.data(), usize(given.ndim));
  const ShownOrder shown = shown_order(facts, name, given.dtype, extents, module);
  MOE_CHECK(check_order(state_->order, shown, name, extents));
  MOE_CHECK(check_open(facts, shown, name, module));
  module = in_order(facts, module, state_->order ? state_->order : shown.order);
  const ParsedName p = parse_tensor_name(name, module);
  const bool number = is_stacked_number(p, module) && fits(facts, p, module, extents);
  const Dims want = shape_in_file(facts, p, module);
  const TensorView tensor = number ? given : in_shape(given, *p.tensor, want.span());
  if (Check right = check_tensor(tensor, *p.tensor, number ? extents : want.span(), name); !right)
    return explained(facts, name, given.dtype, std::move(right.error()));
  if (is_dropped(p.tensor->kind)) {
    MOE_TRY(const TensorLease dense, dense_copy(tensor));
    InputFactors factors;
    MOE_CHECK(check_dropped(facts, p, dense.view, std::string(name), factors));
    state_->input_factors.merge(std::move(factors));
    return true;
  }
  MOE_TRY(const std::vector<Target> targets, targets_of(facts, p, module, extents, name));
  for (const Target& target : targets) MOE_CHECK(check_places(state_->roles, target, std::string(name)));
  MOE_CHECK(state_->learn(shown.order));
  if (targets.empty()) return true;  // another rank's: released at once
  RoleSlots& slots = state_->role(targets[0].role);
  if (slots.experts.empty()) slots.experts.resize(facts.experts().size());
  const Slot whole = view_slot(tensor, std::move(owner));
  if (p.tensor->kind == TensorKind::weight) {
    InputFactors factors;
    factors.weight_came(p);
    state_->input_factors.merge(std::move(factors));
  }
  for (const Target& target : targets) fill(slots, target, part_of(facts, whole, target, p, module));
  std::erase_if(state_->open_stacks, [&](const StackTensor& t) { return t.name == name; });  // replaced
  if (shown.open && !state_->order)
    state_->open_stacks.push_back({std::string(name), {extents.begin(), extents.end()}, whole, *at_place});
  return true;
}

Check WeightSet::load_safetensors(const char* path, const char* module) {
  MOE_CHECK(check_settable(state_->source.get()));
  MOE_TRY(const auto entries, open_checkpoint(path, layer_filter(state_->facts, module)));
  return place_entries(entries, path, module);
}

Check WeightSet::load_entries(SortedEntries all, const char* path, const char* module) {
  MOE_CHECK(check_settable(state_->source.get()));
  const NameFilter filter = layer_filter(state_->facts, module);
  std::vector<CheckpointEntry> entries;
  std::copy_if(all.begin(), all.end(), std::back_inserter(entries),
               [&](const CheckpointEntry& e) { return filter.wants(e.entry->name); });
  return place_entries(entries, path, module);
}

Check WeightSet::place_entries(SortedEntries entries, const char* path, const char* module) {
  const LayerFacts& facts = state_->facts;
  const std::vector<ExpertPlace> places = expert_places(facts, module);
  MOE_TRY(const ExpertPlace* place, place_of_experts(facts, places, entries));
  const ExpertPlace& here = place != nullptr ? *place : places.front();
  ExpertModule module_here = module_at(facts, here);
  MOE_TRY(const ShownStacks stacks, shown_stacks(facts, entries, module_here, state_->order));
  module_here = in_order(facts, module_here, stacks.order);
  const std::vector<RouterPlace> routers = routers_of(places);
  const std::vector<RouterPlace> near = place != nullptr ? routers_of(std::span(place, 1)) : routers;
  std::vector<PlacedTensor> accepted;  // everything is checked before the first slot changes
  SideVectors beside;
  InputFactors factors;
  for (const CheckpointEntry& e : entries) {
    auto is_side = take_side(facts.config(), e, routers, beside);
    if (!is_side) return in_file(e, std::move(is_side.error()));
    if (*is_side) continue;
    auto tensors = accept_entry(facts, e, module_here, factors);
    if (!tensors) return in_file(e, explained(facts, e.entry->name, e.entry->dtype, std::move(tensors.error())));
    if (const Check known = check_left_out(facts, e, module_here, near); !known) return in_file(e, known.error());
    for (PlacedTensor& tensor : *tensors) {
      MOE_CHECK(check_places(state_->roles, tensor.target, e.entry->name));
      accepted.push_back(std::move(tensor));
    }
  }
  if (const PlacedTensor* second = find_doubled(accepted))
    return in_file(second->slot.file.from, fail(Code::unexpected_weight, second->slot.file.from.entry->name,
                                                cat(second->slot.file.from.entry->name,
                                                    ": the checkpoint has this tensor under another name or in another "
                                                    "form, too")));
  MOE_CHECK(factors.check_alike());
  InputFactors all = state_->input_factors;
  all.merge(std::move(factors));
  MOE_CHECK(state_->learn(stacks.order));
  for (const PlacedTensor& t : accepted)
    if (auto& experts = state_->role(t.target.role).experts; experts.empty()) experts.resize(facts.experts().size());
  for (const PlacedTensor& t : accepted) fill(state_->role(t.target.role), t.target, t.slot);
  if (!state_->order)
    for (const CheckpointEntry& e : stacks.open) {
      const SafetensorsEntry& t = *e.entry;
      state_->open_stacks.push_back({t.name, {t.shape().begin(), t.shape().end()}, file_slot(e, t.dtype), here});
    }
  const auto keep = [](std::vector<float>& from, std::vector<float>& to) {
    if (!from.empty()) to = std::move(from);
  };
  keep(beside.correction_bias, state_->loaded.correction_bias);
  keep(beside.expert_scale, state_->loaded.expert_scale);
  keep(beside.expert_norm, state_->loaded.expert_norm);
  state_->input_factors = std::move(all);
  if (place == nullptr) state_->unfound = {path, module != nullptr ? std::optional<std::string>(module) : std::nullopt};
  return ok();
}

}  // namespace moe::weights
