// Names of a checkpoint in which no expert was found. See found_instead.h.
#include "weights/found_instead.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <set>
#include <vector>

#include "base/text.h"

namespace moe::weights {
namespace {

constexpr std::string_view kCures =
    "The options layer_index, module, projection_names, stacked_names and stacked_weights (in overrides), or "
    "architecture, say where and what they are";

std::string listed(const std::set<std::string>& names) {
  std::string s;
  for (const std::string& name : names) s += cat(s.empty() ? "" : ", ", name);
  return s;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// A name without the experts' numbers: those behind the first, which is the layer's.
struct Shape {
  std::string text;
  std::string_view layer;
  int numbers = 0;
};
Shape shape_of(std::string_view name) {
  Shape s;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view word = name.substr(begin, end - begin);
    const bool number = !word.empty() && std::all_of(word.begin(), word.end(), is_digit);
    s.text += cat(begin > 0 ? "." : "", number && s.numbers > 0 ? "*" : word);
    if (number && ++s.numbers == 1) s.layer = word;
    begin = end + 1;
  }
  return s;
}

std::string sought(const LayerFacts& facts, const ExpertPlace& place) {
  const ExpertModule own = module_at(facts, place);
  return own.tensors().empty() ? own.prefix.empty() ? "experts" : std::string(own.prefix)
                               : tensor_name(own, 0, Projection::up, own.tensors().front());
}

// Of an expert, not of those that every token takes.
bool is_of_expert(std::string_view name) {
  for (std::size_t at = name.find("expert"); at != std::string_view::npos; at = name.find("expert", at + 1))
    if (!name.substr(0, at).ends_with("shared_")) return true;
  return false;
}

// "1, 2, 3 .. 60"
std::string layers_text(const std::set<std::int64_t>& layers) {
  constexpr std::size_t kMost = 3;
  std::string s;
  std::size_t count = 0;
  for (const std::int64_t layer : layers)
    if (++count <= kMost) s += cat(count == 1 ? "" : ", ", layer);
  if (count > kMost) s += cat(count == kMost + 1 ? ", " : " .. ", *layers.rbegin());
  return s;
}

// By its name: what is quantized, in no format's form. Stacks have the names of projections.
bool is_plain_matrix(std::string_view name) {
  const std::string_view end = name.substr(name.rfind('.') + 1);
  constexpr std::array<std::string_view, 9> kMatrices = {"weight", "w1", "w2", "w3", "w13", "wi", "wo", "v1", "kernel"};
  return std::find(kMatrices.begin(), kMatrices.end(), end) != kMatrices.end() || end.ends_with("proj") ||
         end.ends_with("linear");
}

}  // namespace

std::string quantization_hint(const LayerFacts& facts, std::string_view name, DType dtype) {
  const Quantization& q = facts.config().quantization;
  const bool number = dtype == DType::f64 || dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
  const bool plain = number && is_plain_matrix(name);
  if (name.ends_with("bias")) return "";
  if (!q.weights && !plain)
    return "; the experts are quantized, and the config does not say how: option quantization_config takes the object "
           "that does, or the whole of an hf_quant_config.json";
  if (q.weights && plain)
    return cat("; the experts are plain (", dtype_name(dtype), ", not quantized), and the config says ",
               at(kFormatNames, q.format), R"(: overrides {"quantization": null} reads them)");
  return "";
}

Check check_no_foreign(const LayerFacts& facts, std::span<const ExpertPlace> places,
                       std::span<const io::CheckpointEntry> entries) {
  constexpr std::size_t kMost = 6;
  const ExpertPlace& own = places.front();
  std::set<std::string> layers;  // where the places are more than one module
  if (places.back().prefix != own.prefix)
    for (const ExpertPlace& p : places) layers.insert(p.layer);
  std::set<std::string> found;
  std::string hint;
  bool stacks = true;
  for (const io::CheckpointEntry& e : entries) {
    const std::string& name = e.entry->name;
    bool here = lies_among_experts(name, module_at(facts, own));
    for (const std::string& layer : layers)
      here = here || (name.starts_with(layer) &&
                      cat(".", std::string_view(name).substr(layer.size())).find(".experts.") != std::string::npos);
    if (!here) continue;
    if (name.find("norm", name.find("expert")) != std::string::npos || name.ends_with("correction_bias")) continue;
    const Shape shape = shape_of(name);
    stacks = stacks && shape.numbers < 2;
    if (hint.empty()) hint = quantization_hint(facts, name, e.entry->dtype);
    if (found.size() < kMost) found.insert(shape.text);
  }
  if (found.empty()) return ok();
  const Quantization& q = facts.config().quantization;
  const auto sets = file_sets(q, StackedWeights::rows_first);
  const bool has_stacks = std::any_of(sets.begin(), sets.end(), [](const TensorSet* s) { return s->stack != nullptr; });
  const bool no_cure = hint.empty() && stacks && q.weights && !has_stacks;
  if (hint.empty() && stacks && q.weights)
    hint = cat("; tensors of all experts in one (stacks) are not read of ", at(kFormatNames, q.format),
               " in this form: an export with each expert by itself is");
  const std::optional<LayerPath> path = layer_path(own.prefix);
  return fail(Code::unexpected_weight, *found.begin(),
              cat("the checkpoint has experts", path ? cat(" of layer ", path->number) : "",
                  " under names that are not known: ", listed(found), "; looked for ", sought(facts, own),
                  " and the like", hint, no_cure ? "" : cat(". ", kCures)));
}

std::string found_instead(const LayerFacts& facts, const std::string& path, const char* module) {
  constexpr std::size_t kMost = 3;
  const auto entries = io::open_checkpoint(path, io::NameFilter(""));
  if (!entries) return "";
  const std::vector<ExpertPlace> places = expert_places(facts, module);
  const std::string own = places.front().prefix;
  const std::string_view layer = shape_of(own).layer;
  std::set<std::string> experts, repeated, others, any;  // of this layer, the likeliest first
  std::set<std::int64_t> layers;
  const auto add = [](std::set<std::string>& to, const std::string& name) {
    if (to.size() < kMost) to.insert(name);
  };
  for (const io::CheckpointEntry& e : *entries) {
    const Shape s = shape_of(e.entry->name);
    const bool expert = is_of_expert(e.entry->name);
    std::int64_t number = -1;
    std::from_chars(s.layer.data(), s.layer.data() + s.layer.size(), number);
    if (expert && number >= 0) layers.insert(number);
    add(any, s.text);
    if (s.layer.empty() || (!layer.empty() && s.layer != layer)) continue;
    add(expert ? experts : s.numbers > 1 ? repeated : others, s.text);
  }
  std::string there;
  const std::string here = layer.empty() ? "" : cat("of layer ", layer, " ");
  if (!experts.empty() || !repeated.empty())
    there = cat(here, "it has ", listed(experts.empty() ? repeated : experts));
  else if (!layers.empty())
    there = cat("it has experts of layer", layers.size() > 1 ? "s " : " ", layers_text(layers));
  else if (!others.empty())
    there = cat("it has no experts, ", here, listed(others));
  else
    there = any.empty() ? "it has no tensors" : cat("it has no experts, but ", listed(any));
  return cat(path, " has none of them: looked for ", sought(facts, places.front()), " and the like; ", there, ". ",
             kCures);
}

}  // namespace moe::weights
