// Places of experts. See expert_places.h.
#include "weights/expert_places.h"

#include <algorithm>
#include <array>
#include <set>

#include "base/index.h"
#include "base/text.h"

namespace moe::weights {
namespace {

// Before the number of a layer of the text model: one model under all of these. Multimodal models put the language
// model below one of their own, and files of a base model lack "model.".
constexpr auto kLayers = std::to_array<std::string_view>(
    {"model.layers", "layers", "language_model.model.layers", "model.language_model.layers", "language_model.layers",
     "model.language_model.model.layers", "model.llm.layers", "model.model.layers", "model.decoder.layers",
     "decoder.layers", "backbone.layers", "transformer.layers", "transformer.blocks", "blocks",
     "language_model.backbone.layers", "language_model.blocks", "language_model.model.blocks"});
// Models that have their experts beside those of another in one checkpoint: the one's are never the other's. Their
// names begin with `prefix` there, not in files of their own, and a class with `word` in its name reads such a model.
struct Tower {
  std::string_view prefix, word;
};
constexpr auto kTowers = std::to_array<Tower>({{"thinker.", "Thinker"}, {"talker.", "Talker"}});
// Between that number and the experts' tensors.
constexpr auto kBlocks =
    std::to_array<std::string_view>({"mlp.experts", "block_sparse_moe.experts", "feed_forward.experts", "ffn.experts",
                                     "moe.experts", "mixer.experts", "experts"});
// What a layer's number stands behind. Layers of multi-token prediction have their own count from 0 in some files: the
// layer of that number in the text model is another.
constexpr auto kWords = std::to_array<std::string_view>({"layers.", "blocks.", "mtp."});
constexpr auto kPredicting = std::to_array<std::string_view>({"mtp", "model.mtp"});
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

// Quantized files of any class may have stacks, whose shapes tell their order; plain ones as the config says.
StackedWeights order_of_stacks(const Config& c) {
  const bool may = c.stacked_weights == StackedWeights::none && c.quantization.weights.has_value();
  return may ? StackedWeights::rows_first : c.stacked_weights;
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
  for (const TensorSet* set : file_sets(c.quantization, order_of_stacks(c))) {
    if (set->stack == nullptr) continue;
    const Stack stack = set->stacked == StackedWeights::none ? Stack() : own_stack(c);  // a name of the format's own
    out.push_back({prefix, own.projections, set, stack, layer});
    // The names that transformers itself has for stacks; there gate and up are halves.
    const bool halves = c.w13_layout != W13Layout::interleaved && set->stacked != StackedWeights::flat;
    if (any && set->stacked != StackedWeights::none && stack != kNative && halves && prefix.ends_with("experts"))
      out.push_back({prefix, own.projections, set, kNative, layer});
  }
}

template <class List>
bool has(const List& list, std::string_view s) {
  return std::find(list.begin(), list.end(), s) != list.end();
}
bool is_usual(const LayerPath& path) { return has(kLayers, path.layers) && has(kBlocks, path.block); }

// Where else the layers may be that begin with `path`. A name that the caller gave is used as it is, unless it is the
// usual one of a text model; a class's own is a guess, within its tower.
std::vector<std::string> other_layers(const Config& c, const LayerPath& path) {
  const bool guessed = !c.named_by_class.empty();
  if (has(kPredicting, path.layers)) return {kPredicting.begin(), kPredicting.end()};
  if (!guessed && !is_usual(path)) return {};
  std::vector<std::string> layers;
  for (const Tower& t : kTowers)
    if (guessed && (path.layers.starts_with(t.prefix) || c.named_by_class.find(t.word) != std::string::npos))
      for (const std::string_view l : kLayers) layers.push_back(cat(t.prefix, l));
  layers.insert(layers.end(), kLayers.begin(), kLayers.end());
  return layers;
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
  for (const std::string_view word : kWords) {
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

namespace {

// Which model of a checkpoint a name is of, where it says so. Layers of multi-token prediction are counted apart.
std::string_view model_of(std::string_view name) {
  if (name.starts_with("mtp.") || name.find(".mtp.") != std::string_view::npos) return "mtp";
  for (const Tower& t : kTowers)
    if (name.starts_with(t.prefix)) return t.word;
  return "";
}

}  // namespace

bool may_be_one_layer(std::string_view a, std::string_view b, bool guessed) {
  if (a == b) return true;
  const std::string_view model_a = model_of(a), model_b = model_of(b);
  const bool apart = model_a == "mtp" || model_b == "mtp" || (!model_a.empty() && !model_b.empty());
  if (apart && model_a != model_b) return false;
  const std::optional<LayerPath> path_a = layer_path(a), path_b = layer_path(b);
  const bool numbered = path_a && path_b;
  if (numbered && path_a->number != path_b->number) return false;
  return guessed || (numbered && is_usual(*path_a) && is_usual(*path_b));
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
  const auto layer_at = [](std::string_view layers, const LayerPath& p) { return cat(layers, ".", p.number, "."); };
  add_names(facts, own, path ? layer_at(path->layers, *path) : "", true, places);
  if (module != nullptr || !path) return places;
  std::set<std::string> seen = {own};
  const auto add_all = [&](const LayerPath& p, std::vector<std::string> layers) {
    if (layers.empty()) return;
    layers.insert(layers.begin(), std::string(p.layers));
    std::vector<std::string_view> blocks = {p.block};
    blocks.insert(blocks.end(), kBlocks.begin(), kBlocks.end());
    for (const std::string& l : layers)
      for (const std::string_view block : blocks) {
        const std::string prefix = layer_at(l, p).append(block);
        if (seen.insert(prefix).second) add_names(facts, prefix, layer_at(l, p), true, places);
      }
  };
  add_all(*path, other_layers(facts.config(), *path));
  if (const auto other = layer_path(facts.config().other_name)) add_all(*other, other_layers(facts.config(), *other));
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
  for (const std::optional<LayerPath>& p :
       {path, module == nullptr ? layer_path(facts.config().other_name) : std::nullopt})
    for (const std::string_view word : kWords)
      if (p && (word == kWords.back()) == p->layers.ends_with("mtp")) layers.push_back(cat(word, p->number, "."));
  return io::NameFilter([layers, ignored](std::string_view name) {
    return !is_among(ignored, name) && std::any_of(layers.begin(), layers.end(), [&](const std::string& layer) {
      const std::size_t at = name.find(layer);
      return at != std::string_view::npos && (at == 0 || name[at - 1] == '.');
    });
  });
}

}  // namespace moe::weights
