// Lists of modules in other programs' quantization objects, over the names of a layer's experts (checkpoints.md 6).
#include <algorithm>

#include "base/index.h"
#include "base/text.h"
#include "config/quantization/foreign.h"

namespace moe::config {
namespace {

using Pointers = std::function<std::string(std::size_t rule)>;

// A name as files write it, in which a dot is the only character that a pattern would read another way.
bool is_plain(std::string_view entry) {
  return std::all_of(entry.begin(), entry.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' || c == '-' ||
           c == '.';
  });
}

// What is left of an entry behind the end of a module's name that it begins with, or behind a longer name that ends in
// the module's. nullopt: it is about other modules.
std::optional<std::string_view> behind_module(std::string_view entry, std::string_view module) {
  const auto is_end = [](std::string_view end, std::string_view name) {
    return name.ends_with(end) && (name.size() == end.size() || name[name.size() - end.size() - 1] == '.');
  };
  for (std::size_t dot = entry.size();; dot = entry.rfind('.', dot - 1)) {
    const std::string_view begin = entry.substr(0, dot);
    if (is_end(begin, module) || is_end(module, begin)) return entry.substr(std::min(dot + 1, entry.size()));
    if (dot == 0 || entry.rfind('.', dot - 1) == std::string_view::npos) return std::nullopt;
  }
}

// The names that begin with `rest` behind the module: an expert, or one of its projections.
void add_expert(std::string_view rest, std::size_t rule, const LayerNames& layer, RuleOfNames& names) {
  const std::string whole = cat(layer.module, ".", rest);
  const std::size_t projections = layer.projections.size();
  const std::optional<std::size_t> expert = layer.expert_of(whole);
  if (!expert) return;
  if (const auto name = layer.find(whole))
    names.add(rule, *name, 1);
  else if (rest.find('.') == std::string_view::npos)
    names.add(rule, *expert * projections, projections);
}

// Python's re.match of a plain name up to a dot or the end.
bool begins_with(std::string_view text, std::string_view entry) {
  if (entry.size() > text.size()) return false;
  for (std::size_t i = 0; i < entry.size(); ++i)
    if (entry[i] != '.' && entry[i] != text[i]) return false;
  const std::size_t end = entry.size();
  return end == text.size() || text[end] == '.' || (end > 0 && text[end - 1] == '.');
}

}  // namespace

Result<bool> covers_experts(const RuleOfNames& names, RuleOfNames::Among among, const Pointers& pointer) {
  const auto same = [](std::size_t a, std::size_t b) { return (a == RuleOfNames::kNone) == (b == RuleOfNames::kNone); };
  if (const auto odd = names.find_odd(among, same)) return names.fault(*odd, pointer(odd->rule));
  return names.complete();
}

// transformers asks for the module of all experts. Files that had each expert as a module name those, too: an entry
// that speaks of experts is about them where it is not about that module.
Result<bool> skips_experts(const Foreign& h, std::string_view list, const LayerNames& layer) {
  MOE_TRY(const auto entries, h.texts(list));
  Matcher matcher;
  RuleOfNames names(layer);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::string_view entry = entries[i];
    if (layer.module.ends_with(entry) || begins_with(layer.module, entry)) return true;
    const bool of_experts = entry.find("experts") != std::string_view::npos;
    if (is_plain(entry)) {
      const auto rest = of_experts ? behind_module(entry, layer.module) : std::nullopt;
      if (!rest) continue;
      const bool is_number = !rest->empty() && (*rest)[0] >= '0' && (*rest)[0] <= '9';
      if (!is_number) return true;  // the whole module under a longer name, or a tensor of all experts
      add_expert(rest->substr(0, rest->find('.')), i, layer, names);  // a projection stands for its expert
      continue;
    }
    const std::string pointer = cat(h.at(list), "/", i);
    MOE_TRY(const bool whole, matcher.regex(entry, layer.module, pointer, MatchEnd::module));
    if (whole) return true;
    if (!of_experts) continue;
    MOE_TRY(const Hits hits, matcher.names(entry, layer, pointer, {.end = MatchEnd::module}));
    names.add(i, hits);
  }
  return covers_experts(names, RuleOfNames::Among::all, [&](std::size_t rule) { return cat(h.at(list), "/", rule); });
}

// [["self_attn.k_proj", ..], ["mlp.experts.0.gate_proj", ..]], or one list: names within a layer, whole or their parts.
// An empty list says nothing.
Result<bool> quantizes_experts(const Foreign& h, const LayerNames& layer) {
  constexpr std::string_view kList = "modules_in_block_to_quantize";
  const json::Value* value = h.get(kList);
  if (value == nullptr) return true;
  const std::string at = h.at(kList), expected = "an array of strings or of such arrays";
  if (value->array() == nullptr) return fields::unexpected(at, *value, expected);
  RuleOfNames names(layer);
  const std::size_t projections = layer.projections.size();
  const std::string inside = cat(".", layer.module, ".");
  std::vector<bool> given(projections);  // in all experts, which once is enough
  std::size_t rule = 0;                  // counts the names of the list
  const auto add = [&](std::string_view text) {
    if (inside.find(cat(".", text, ".")) != std::string::npos) names.add_rest(rule);
    for (std::size_t p = 0; p < projections; ++p) {
      if (given[p] || text != layer.projections[p]) continue;
      given[p] = true;
      for (std::size_t e = 0; e < usize(layer.experts); ++e) names.add(rule, e * projections + p, 1);
    }
    const auto rest = behind_module(text, layer.module);
    add_expert(rest ? *rest : text, rule, layer, names);
    ++rule;
  };
  const json::Array& list = *value->array();
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i].string() != nullptr) {
      add(*list[i].string());
      continue;
    }
    if (list[i].array() == nullptr) return fields::unexpected(cat(at, "/", i), list[i], expected);
    const json::Array& names_of = *list[i].array();
    for (std::size_t j = 0; j < names_of.size(); ++j) {
      if (names_of[j].string() == nullptr) return fields::unexpected(cat(at, "/", i, "/", j), names_of[j], expected);
      add(*names_of[j].string());
    }
  }
  if (rule == 0) return true;
  return covers_experts(names, RuleOfNames::Among::all, [&](std::size_t r) {
    std::size_t i = 0;
    for (; list[i].array() != nullptr ? r >= list[i].array()->size() : r > 0; ++i)
      r -= list[i].array() != nullptr ? list[i].array()->size() : 1;
    return list[i].array() != nullptr ? cat(at, "/", i, "/", r) : cat(at, "/", i);
  });
}

}  // namespace moe::config
