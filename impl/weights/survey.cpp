// Names of one layer's tensors. See survey.h.
#include "weights/survey.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/text.h"
#include "weights/expert_places.h"
#include "weights/layer_facts.h"

namespace moe::weights {
namespace {

constexpr std::size_t kMostNames = 32;
constexpr auto kRouters = std::to_array<std::string_view>({"gate", "router", "wg", "gate_network"});
constexpr std::string_view kShared = "shared";

bool is_float(DType type) { return type == DType::bf16 || type == DType::f16 || type == DType::f32; }

// Calls `see` with each part of a name between dots.
template <class See>
void each_part(std::string_view name, const See& see) {
  while (true) {
    const std::size_t dot = name.find('.');
    see(name.substr(0, dot));
    if (dot == std::string_view::npos) return;
    name.remove_prefix(dot + 1);
  }
}

// What lies beside the experts of a layer.
void look_beside(io::SortedEntries layer, const ExpertModule& experts, Survey& out) {
  for (const io::CheckpointEntry& e : layer) {
    const std::string& name = e.entry->name;
    if (parse_tensor_name(name, experts).match != NameMatch::foreign) continue;
    bool router = false, shared = false, attention = false;
    each_part(name, [&](std::string_view part) {
      router = router || std::find(kRouters.begin(), kRouters.end(), part) != kRouters.end();
      shared = shared || part.find(kShared) != std::string_view::npos;
      attention = attention || part.find("attn") != std::string_view::npos || part == "attention";
    });
    if (attention) continue;
    std::vector<std::string>& names = shared ? out.shared_experts : out.routers;
    if ((shared || router) && names.size() < kMostNames) names.push_back(name);
  }
}

// Of the names that experts at a prefix may have, those that most tensors do have.
std::vector<std::string> projections_there(const LayerFacts& facts, std::span<const ExpertPlace> places,
                                           const std::string& prefix, io::SortedEntries below) {
  const ExpertPlace* best = nullptr;
  std::ptrdiff_t most = -1;
  for (const ExpertPlace& place : places) {
    if (place.prefix != prefix) continue;
    const ExpertModule module = module_at(facts, place);
    const std::ptrdiff_t found = std::count_if(below.begin(), below.end(), [&](const io::CheckpointEntry& e) {
      return parse_tensor_name(e.entry->name, module).match == NameMatch::known;
    });
    if (found > most) best = &place;
    most = std::max(most, found);
  }
  if (best == nullptr || best->projections[0].empty()) return {};  // gate and up are one tensor
  return {best->projections.begin(), best->projections.end()};
}

}  // namespace

Survey survey_layer(std::shared_ptr<const Config> config, io::SortedEntries entries) {
  Survey out;
  const LayerFacts facts(std::move(config));
  const std::vector<ExpertPlace> places = expert_places(facts, nullptr);
  const ExpertPlace* here = nullptr;
  for (const ExpertPlace& place : places) {
    if (here != nullptr && place.prefix != here->prefix) continue;
    const ExpertModule module = module_at(facts, place);
    Survey found;
    found.only_floats = true;
    const io::SortedEntries below = place.prefix.empty() ? entries : entries_below(entries, place.prefix + ".");
    for (const io::CheckpointEntry& e : below) {
      const std::string& name = e.entry->name;
      if (parse_tensor_name(name, module).match == NameMatch::foreign && !lies_among_experts(name, module)) continue;
      ++found.tensors;
      found.bytes += e.entry->bytes;
      found.only_floats = found.only_floats && is_float(e.entry->dtype);
    }
    if (found.tensors <= out.tensors) continue;
    here = &place;
    out = std::move(found);
    out.prefix = place.prefix;
    const bool own_module = place.prefix.ends_with("experts");
    if (own_module) break;  // every name set finds the same tensors there
  }
  if (here != nullptr)
    out.projections = projections_there(facts, places, out.prefix,
                                        out.prefix.empty() ? entries : entries_below(entries, out.prefix + "."));
  const ExpertPlace& near = here != nullptr ? *here : places.front();
  if (!near.layer.empty()) look_beside(entries_below(entries, near.layer), module_at(facts, near), out);
  return out;
}

}  // namespace moe::weights
