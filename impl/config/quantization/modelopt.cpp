// ModelOpt's objects: quant_algo and its lists, in config.json and in hf_quant_config.json (checkpoints.md 6).
#include <algorithm>
#include <array>

#include "base/text.h"
#include "config/quantization/tools.h"

namespace moe::config {
namespace {

// preset "": integers that compressed-tensors has no named scheme for.
struct ModelOptAlgorithm {
  std::string_view name, preset;
  std::array<std::string_view, 4> suffixes;  // "" where there are fewer
  Format format = Format::none;              // instead of the preset's
};
constexpr std::int64_t kAwqGroup = 128;  // where no group_size is given

// What is said of activations beside 4-bit and integer weights is left out: activations stay in 16 bits.
constexpr std::array kModelOpt = {
    ModelOptAlgorithm{"FP8", "FP8", {"weight", "weight_scale", "input_scale"}},
    ModelOptAlgorithm{"FP8_PER_CHANNEL_PER_TOKEN", "FP8_DYNAMIC", {"weight", "weight_scale"}},
    ModelOptAlgorithm{"FP8_PB_WO", "FP8_BLOCK", {"weight", "weight_scale"}},
    ModelOptAlgorithm{"FP8_BLOCK_SCALES", "FP8_BLOCK", {"weight", "weight_scale"}},  // an older word for the same
    ModelOptAlgorithm{"NVFP4", "NVFP4", {"weight", "weight_scale", "weight_scale_2", "input_scale"}},
    ModelOptAlgorithm{"W4A16_NVFP4", "NVFP4A16", {"weight", "weight_scale", "weight_scale_2"}},
    ModelOptAlgorithm{"MXFP8", "MXFP8", {"weight", "weight_scale"}},
    ModelOptAlgorithm{"MXFP4", "MXFP4A16", {"weight", "weight_scale"}},
    ModelOptAlgorithm{"W4A8_MXFP4_FP8", "MXFP4A16", {"weight", "weight_scale"}},
    ModelOptAlgorithm{"W4A8_NVFP4_FP8", "NVFP4A16", {"weight", "weight_scale", "weight_scale_2"}, Format::nvfp4_pairs},
    ModelOptAlgorithm{"W8A16", "", {"weight", "weight_scale"}, Format::int_quantized},
    ModelOptAlgorithm{"W8A8_SQ_PER_CHANNEL", "", {"weight", "weight_scale", "input_scale"}, Format::int_quantized},
    ModelOptAlgorithm{"W4A16_AWQ", "", {"weight", "weight_scale"}, Format::modelopt_int4},
};

std::string upper_ascii(std::string_view s) {
  std::string out(s);
  for (char& c : out)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return out;
}

// Shell wildcards over the module and the names of its experts.
Result<bool> excludes_experts(const Foreign& q, std::string_view list, const LayerNames& layer) {
  MOE_TRY(const auto excluded, q.texts(list));
  Matcher matcher;
  RuleOfNames names(layer);
  for (std::size_t i = 0; i < excluded.size() && !names.complete(); ++i) {
    if (!has_wildcard(excluded[i])) {
      names.add_named(i, excluded[i]);
      continue;
    }
    MOE_TRY(const Hits hits,
            matcher.names(wildcard_pattern(excluded[i]), layer, cat(q.at(list), "/", i), {.module_too = true}));
    names.add(i, hits);
  }
  return covers_experts(names, RuleOfNames::Among::all, [&](std::size_t rule) { return cat(q.at(list), "/", rule); });
}

constexpr std::string_view kMixed = "MIXED_PRECISION", kLayers = "quantized_layers", kOne = "quant_algo";

// The algorithm that a member names.
Resolved modelopt_algorithm(const Foreign& q, std::string_view member) {
  MOE_TRY(const std::string_view given, q.need_text(member));
  const std::string algorithm = upper_ascii(given);
  for (const ModelOptAlgorithm& row : kModelOpt) {
    if (row.name != algorithm) continue;
    std::vector<std::string> suffixes;
    for (const std::string_view suffix : row.suffixes)
      if (!suffix.empty()) suffixes.emplace_back(suffix);
    if (row.format == Format::int_quantized)
      return resolved(integer_weights(8, -1, true), std::nullopt, row.format, std::move(suffixes));
    if (row.format == Format::modelopt_int4) {
      MOE_TRY(const auto group, q.integer("group_size", {1, 65536}));
      return resolved(integer_weights(4, group.value_or(kAwqGroup), true), std::nullopt, row.format,
                      std::move(suffixes));
    }
    Resolved named = resolved(row.preset, std::move(suffixes));
    if (row.format != Format::none) (*named)->quantization.format = row.format;
    return named;
  }
  std::string known;
  for (const ModelOptAlgorithm& row : kModelOpt) known += cat(known.empty() ? "" : ", ", row.name);
  return unread(q.at(member), cat("the algorithm ", fields::brief(*q.get(member)), " is not read, read are ", known,
                                  " and ", kMixed));
}

// From the number of the layer on: what stands before it differs from writer to writer, but for layers of multi-token
// prediction, which have a count of their own.
std::string_view below_layers(std::string_view name) {
  return name.substr(std::min(name.rfind("layers."), name.size()));
}
bool predicts(std::string_view name) { return name.find("mtp") != std::string_view::npos; }

// What an entry is about: all of the layer's experts, whatever stands before the layer, or what is below them, as the
// name that the layer has for it. Empty: another module.
std::string our_name(std::string_view key, const LayerNames& layer) {
  if (key == layer.module) return std::string(key);
  const std::string_view theirs = below_layers(key), ours = below_layers(layer.module);
  if (ours.empty()) return key.ends_with(cat(".", layer.module)) ? std::string(layer.module) : "";
  if (!theirs.starts_with(ours) || predicts(key) != predicts(layer.module)) return "";
  const std::string_view rest = theirs.substr(ours.size());
  if (!rest.empty() && rest.front() != '.') return "";
  return cat(layer.module, rest);
}

// An entry that our_name has a name for: the experts, one of them, or a projection.
Check check_entry(const Foreign& layers, const std::string& key, const std::string& name, const LayerNames& layer) {
  if (name == layer.module || layer.find(name)) return ok();
  if (const auto expert = layer.expert_of(name); expert && name == cat(layer.module, ".", *expert)) return ok();
  return unread(layers.at(key), cat("an entry of a part of the experts that is not known, read are ", layer.module,
                                    " and ", layer.name(0)));
}

// MIXED_PRECISION: each module by the entry that has its name; one without an entry is not quantized.
Resolved mixed_precision(const Foreign& q, const LayerNames& layer) {
  MOE_TRY(const auto layers, q.object(kLayers));
  if (!layers)
    return unread(q.at(kOne), cat("ModelOpt's ", kMixed, " without ", kLayers,
                                  ", which says what each layer is: the option quantization_config "
                                  R"({"quant_method": "modelopt", "quant_algo": ..}) does, too)"));
  std::vector<Foreign> entries;
  RuleOfNames names(layer);
  Matcher matcher;
  std::vector<std::size_t> of_all;  // single ones win over the module
  for (const auto& [key, value] : layers->members()) {
    if (has_wildcard(key)) {
      MOE_TRY(const Hits hits, matcher.names(wildcard_pattern(key), layer, layers->at(key), {.module_too = true}));
      if (std::find(hits.begin(), hits.end(), true) != hits.end())
        return unread(layers->at(key), "entries are of names, and this is a pattern");
      continue;
    }
    const std::string name = our_name(key, layer);
    if (name.empty()) continue;
    MOE_CHECK(check_entry(*layers, key, name, layer));
    MOE_TRY(Foreign entry, Foreign::open(value, layers->at(key)));
    if (name == layer.module)
      of_all.push_back(entries.size());
    else if (const auto one = layer.find(name))
      names.add(entries.size(), *one, 1);
    else
      names.add(entries.size(), *layer.expert_of(name) * layer.projections.size(), layer.projections.size());
    entries.push_back(std::move(entry));
  }
  for (const std::size_t entry : of_all) names.add_rest(entry);
  return one_scheme(
      names,
      [&](std::size_t rule) { return rule < entries.size() ? modelopt_algorithm(entries[rule], kOne) : unquantized(); },
      [&](const RuleOfNames::Odd& odd) { return names.fault(odd, entries[odd.rule].pointer()); });
}

}  // namespace

Resolved resolve_modelopt(const Foreign& h, const LayerNames& layer) {
  MOE_TRY(const auto nested, h.object("quantization"));
  const Foreign& q = nested ? *nested : h;
  MOE_TRY(const bool skipped, excludes_experts(q, nested ? "exclude_modules" : "ignore", layer));
  if (skipped) return unquantized();
  MOE_TRY(const std::string_view algorithm, q.need_text(kOne));
  return upper_ascii(algorithm) == kMixed ? mixed_precision(q, layer) : modelopt_algorithm(q, kOne);
}

Result<std::optional<Resolved>> requantized_experts(const Foreign& h, const LayerNames& layer) {
  constexpr std::string_view kAll = "moe_quant_algo";
  const std::optional<Resolved> none;
  MOE_TRY(const auto of_all, h.text(kAll));
  MOE_TRY(const auto layers, h.object(kLayers));
  if (!layers) {
    if (!of_all) return none;
    MOE_TRY(const bool skipped, excludes_experts(h, "ignore", layer));
    return skipped ? none : std::optional(modelopt_algorithm(h, kAll));
  }
  for (const auto& [key, value] : layers->members()) {
    const std::string name = our_name(key, layer);
    if (name.empty()) continue;
    MOE_CHECK(check_entry(*layers, key, name, layer));
    if (layer.expert_of(name))
      return fail(Code::unsupported, layers->at(key),
                  cat(layers->at(key), ": an algorithm of single experts, read are those of all experts of a layer"));
    MOE_TRY(Foreign entry, Foreign::open(value, layers->at(key)));
    MOE_TRY(const std::string_view algorithm, entry.need_text(kOne));
    if (of_all && upper_ascii(*of_all) != upper_ascii(algorithm))
      return fields::fault(entry.at(kOne),
                           cat("found ", json::quote(algorithm), ", but ", kAll, " is ", json::quote(*of_all)));
    return std::optional(modelopt_algorithm(entry, kOne));
  }
  return none;
}

}  // namespace moe::config
