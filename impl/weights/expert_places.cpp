// Places of experts. See expert_places.h.
#include "weights/expert_places.h"

#include <algorithm>
#include <array>
#include <set>

#include "base/index.h"
#include "base/text.h"

namespace moe::weights {
namespace {

// Before the number of a layer. Multimodal models put the language model below one of their own, and files of a base
// model lack "model.".
constexpr auto kLayers = std::to_array<std::string_view>(
    {"model.layers", "layers", "language_model.model.layers", "model.language_model.layers", "language_model.layers",
     "model.language_model.model.layers", "model.llm.layers", "thinker.model.layers",
     "thinker.model.language_model.layers", "model.model.layers", "model.decoder.layers", "decoder.layers",
     "backbone.layers", "transformer.blocks", "blocks"});
// Between that number and the experts' tensors.
constexpr auto kBlocks =
    std::to_array<std::string_view>({"mlp.experts", "block_sparse_moe.experts", "feed_forward.experts", "ffn.experts",
                                     "moe.experts", "mixer.experts", "experts"});
using Projections = std::array<std::string_view, 3>;
constexpr std::array<Projections, 2> kProjections = {{{"gate_proj", "up_proj", "down_proj"}, {"w1", "w3", "w2"}}};
constexpr Stack kNative = {{"gate_up_proj", "down_proj"}};

bool is_number(std::string_view s) {
  return !s.empty() && std::all_of(s.begin(), s.end(), [](char c) { return c >= '0' && c <= '9'; });
}

Stack own_stack(const Config& c) {
  Stack s;
  for (std::size_t i = 0; i < c.stacked_names.size(); ++i) s.names[i] = c.stacked_names[i];
  return s;
}

// Names of experts below one prefix.
void add_names(const LayerFacts& facts, const std::string& prefix, const std::string& layer, bool any,
               std::vector<ExpertPlace>& out) {
  const Config& c = facts.config();
  const ExpertModule own = facts.module(prefix);
  if (own.is_stacked()) {
    out.push_back({prefix, own.projections, own.set, {}, layer});
    return;
  }
  out.push_back({prefix, own.projections, own.set, {}, layer});
  for (const Projections& p : kProjections)
    if (any && p != own.projections) out.push_back({prefix, p, own.set, {}, layer});
  for (const TensorSet* set : file_sets(c.quantization, c.stacked_weights)) {
    if (set->stack == nullptr) continue;
    const Stack stack = own_stack(c);
    out.push_back({prefix, own.projections, set, stack, layer});
    // The names that transformers itself has for stacks; there gate and up are halves.
    const bool halves = c.w13_layout != W13Layout::interleaved && set->stacked != StackedWeights::flat;
    if (any && stack != kNative && halves && prefix.ends_with("experts"))
      out.push_back({prefix, own.projections, set, kNative, layer});
  }
}

std::string quoted_list(const std::vector<std::string>& names) {
  std::string s;
  for (const std::string& name : names) s += cat(s.empty() ? "" : ", ", name);
  return s;
}

// Tensors of experts in this layer that no place has: what they are called, without the experts' numbers.
std::vector<std::string> foreign_experts(std::span<const io::CheckpointEntry> entries, std::string_view number) {
  constexpr std::size_t kMost = 6;
  const std::string layer = cat(".", number, ".");
  std::set<std::string> shapes;
  for (const io::CheckpointEntry& e : entries) {
    const std::string name = cat(".", e.entry->name);
    const std::size_t at = name.find(layer), experts = name.find(".experts.", at == std::string::npos ? 0 : at);
    if (at == std::string::npos || experts == std::string::npos) continue;
    if (name.find("norm", experts) != std::string::npos || name.ends_with("correction_bias")) continue;  // beside them
    std::string shape;
    for (std::size_t i = 1; i < name.size(); ++i) {
      const bool digit = name[i] >= '0' && name[i] <= '9';
      if (i > at + layer.size() && digit && (name[i - 1] == '.' || shape.ends_with('*'))) {
        if (!shape.ends_with('*')) shape += '*';
      } else {
        shape += name[i];
      }
    }
    if (shapes.size() < kMost) shapes.insert(std::move(shape));
  }
  return {shapes.begin(), shapes.end()};
}

// The whole name, or its end behind a dot.
bool is_among(const std::vector<std::string>& ends, std::string_view name) {
  return std::any_of(ends.begin(), ends.end(), [&](const std::string& end) {
    return name == end ||
           (name.ends_with(end) && name.size() > end.size() && name[name.size() - end.size() - 1] == '.');
  });
}

}  // namespace

std::optional<LayerPath> layer_path(std::string_view module) {
  for (const std::string_view word : {std::string_view("layers."), std::string_view("blocks.")}) {
    const std::size_t at = module.starts_with(word) ? 0 : module.find(cat(".", word));
    if (at == std::string_view::npos) continue;
    const std::size_t begin = at + word.size() + (at == 0 && module.starts_with(word) ? 0 : 1);
    const std::size_t end = std::min(module.find('.', begin), module.size());
    if (!is_number(module.substr(begin, end - begin))) continue;
    return LayerPath{module.substr(0, begin - 1), module.substr(begin, end - begin),
                     end < module.size() ? module.substr(end + 1) : std::string_view()};
  }
  return std::nullopt;
}

ExpertModule module_at(const LayerFacts& facts, const ExpertPlace& place) {
  ExpertModule m = facts.module(place.prefix);
  m.projections = place.projections;
  m.set = place.set;
  m.stack = place.stack;
  return m;
}

std::vector<ExpertPlace> expert_places(const LayerFacts& facts, const char* module) {
  std::vector<ExpertPlace> places;
  const std::string own = module != nullptr ? module : facts.config().name;
  const std::optional<LayerPath> path = layer_path(own);
  const auto layer_at = [&](std::string_view layers) { return cat(layers, ".", path->number, "."); };
  add_names(facts, own, path ? layer_at(path->layers) : "", true, places);
  if (module != nullptr || !path) return places;
  std::vector<std::string_view> layers = {path->layers}, blocks = {path->block};
  const auto add = [](std::vector<std::string_view>& to, std::string_view s) {
    if (std::find(to.begin(), to.end(), s) == to.end()) to.push_back(s);
  };
  for (const std::string_view s : kLayers) add(layers, s);
  for (const std::string_view s : kBlocks) add(blocks, s);
  for (const std::string_view l : layers)
    for (const std::string_view b : blocks) {
      const std::string prefix = layer_at(l).append(b);
      if (prefix != own) add_names(facts, prefix, layer_at(l), true, places);
    }
  return places;
}

io::NameFilter layer_filter(const LayerFacts& facts, const char* module) {
  const std::string own = module != nullptr ? module : facts.config().name;
  const std::optional<LayerPath> path = layer_path(own);
  const std::vector<std::string>& ignored = facts.config().ignored_tensors;
  if (!path) {
    std::string begin = own.empty() ? "" : own + ".";
    if (const std::size_t dot = own.rfind('.'); dot != std::string::npos) begin = own.substr(0, dot + 1);
    return io::NameFilter(
        [begin, ignored](std::string_view name) { return name.starts_with(begin) && !is_among(ignored, name); });
  }
  std::vector<std::string> layers;
  for (const std::string_view word : {std::string_view("layers."), std::string_view("blocks.")})
    layers.push_back(cat(word, path->number, "."));
  return io::NameFilter([layers, ignored](std::string_view name) {
    return !is_among(ignored, name) && std::any_of(layers.begin(), layers.end(), [&](const std::string& layer) {
      const std::size_t at = name.find(layer);
      return at != std::string_view::npos && (at == 0 || name[at - 1] == '.');
    });
  });
}

Result<const ExpertPlace*> place_of_experts(const LayerFacts& facts, std::span<const ExpertPlace> places,
                                            std::span<const io::CheckpointEntry> entries, const char* module) {
  const ExpertPlace* found = nullptr;
  const io::CheckpointEntry* first = nullptr;
  // Of the prefixes that are looked at only those that some name begins with.
  std::set<std::string_view> used;
  for (const io::CheckpointEntry& e : entries)
    for (std::size_t dot = e.entry->name.find('.'); dot != std::string::npos; dot = e.entry->name.find('.', dot + 1))
      used.insert(std::string_view(e.entry->name).substr(0, dot));
  for (const ExpertPlace& place : places) {
    if (!place.prefix.empty() && !used.contains(place.prefix)) continue;
    const ExpertModule here = module_at(facts, place);
    const auto ours = std::find_if(entries.begin(), entries.end(), [&](const io::CheckpointEntry& e) {
      return parse_tensor_name(e.entry->name, here).match != NameMatch::foreign;
    });
    if (ours == entries.end()) continue;
    if (found != nullptr)
      return fail(Code::unexpected_weight, ours->entry->name,
                  cat(ours->entry->name, ": the experts of this layer are also at ", first->entry->name, ", in ",
                      ours->file->path()));
    found = &place;
    first = &*ours;
  }
  if (found != nullptr) return found;
  const std::optional<LayerPath> path = layer_path(places.front().prefix);
  const std::vector<std::string> others = path ? foreign_experts(entries, path->number) : std::vector<std::string>();
  if (others.empty() || module != nullptr) return &places.front();
  const ExpertModule own = module_at(facts, places.front());
  return fail(Code::unexpected_weight, others.front(),
              cat("the checkpoint has experts of layer ", path->number, " under names that are not known: ",
                  quoted_list(others), "; looked for ", tensor_name(own, 0, Projection::up, own.tensors().front()),
                  " and the like. The options module, projection_names, stacked_names and stacked_weights (in "
                  "overrides), or architecture, say what the names are"));
}

}  // namespace moe::weights
