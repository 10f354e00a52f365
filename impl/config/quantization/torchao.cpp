// torchao's objects (checkpoints.md 6): the class of a config, with what it was made with, for the model or by name.
// The objects do not say which modules are quantized, as that is the writer's: transformers 5 leaves experts as they
// are unless their names are given.
#include <array>

#include "base/text.h"
#include "config/quantization/tools.h"

namespace moe::config {
namespace {

constexpr std::string_view kType = "_type", kData = "_data", kPlain = "_default";

Resolved int8(std::int64_t group) {
  return resolved(integer_weights(8, group, true), std::nullopt, Format::int_quantized,
                  {"_weight_qdata", "_weight_scale", "_weight_zero_point"});
}
Resolved fp8() {
  return resolved(quant_args(8, NumType::floating, Strategy::channel), std::nullopt, Format::float_quantized,
                  {"_weight_qdata", "_weight_scale"});
}

// Columns that have a scale in common: -1 is a row (no granularity, PerRow, PerAxis(0)). nullopt: another granularity.
std::optional<std::int64_t> group_of(const json::Value& granularity) {
  const json::Value *type = granularity.find(kType), *data = granularity.find(kData);
  if (type == nullptr || type->string() == nullptr) return std::nullopt;
  const auto number = [&](std::string_view key) -> std::optional<std::int64_t> {
    const json::Value* value = data == nullptr ? nullptr : data->find(key);
    return value == nullptr ? std::nullopt : fields::as_integer(*value);
  };
  if (*type->string() == "PerRow" || (*type->string() == "PerAxis" && number("axis") == 0)) return -1;
  const std::optional<std::int64_t> group = *type->string() == "PerGroup" ? number("group_size") : std::nullopt;
  return group && *group > 0 && *group <= kGroupRange.high ? group : std::nullopt;
}
// A list is of activations and weights, which are alike in what is read.
std::optional<std::int64_t> group_in(const Foreign& data) {
  const json::Value* given = data.get("granularity");
  if (given == nullptr) return -1;
  if (given->array() == nullptr) return group_of(*given);
  std::optional<std::int64_t> group;
  for (const json::Value& one : *given->array()) {
    const std::optional<std::int64_t> here = group_of(one);
    if (!here || (group && group != here)) return std::nullopt;
    group = here;
  }
  return group;
}

// What is said of activations is left out: they stay in 16 bits.
struct Kind {
  std::string_view type;
  bool is_float;
};
constexpr std::array kKinds = {
    Kind{"Int8WeightOnlyConfig", false},
    Kind{"Int8DynamicActivationInt8WeightConfig", false},
    Kind{"Float8WeightOnlyConfig", true},
    Kind{"Float8DynamicActivationFloat8WeightConfig", true},
};

Resolved scheme_of(const Foreign& config) {
  MOE_TRY(const std::string_view type, config.need_text(kType));
  MOE_TRY(const auto data, config.object(kData));
  for (const Kind& kind : kKinds) {
    if (kind.type != type) continue;
    if (!data) return kind.is_float ? fp8() : int8(-1);
    const std::optional<std::int64_t> by = group_in(*data);
    if (!by || (*by > 0 && kind.is_float))
      return unread(data->at("granularity"),
                    cat("found ", fields::brief(*data->get("granularity")), ", read is a scale for each row (PerRow)",
                        kind.is_float ? "" : " or for some columns of one (PerGroup)"));
    MOE_TRY(const auto group, data->integer("group_size", {1, 65536}));
    if (group && kind.is_float)
      return unread(data->at("group_size"), cat("found ", *group, " for 8-bit floats, read is null"));
    if (group && *by > 0 && *by != *group)
      return fields::fault(data->at("group_size"), cat("found ", *group, ", granularity says ", *by));
    return kind.is_float ? fp8() : int8(group.value_or(*by));
  }
  std::string read;
  for (const Kind& kind : kKinds) read += cat(read.empty() ? "" : ", ", kind.type);
  return unread(config.at(kType),
                cat("torchao's ", type, " is not read, read are ", read,
                    R"(; experts that it left plain are read with overrides {"quantization": null})"));
}

// A name wins over patterns, the first of which counts, and those over `_default`. Tensors of all experts have names of
// their own.
Resolved by_name(const Foreign& rules, const LayerNames& layer) {
  const std::string gate_up = cat(layer.module, ".gate_up_proj"), down = cat(layer.module, ".down_proj");
  RuleOfNames names(layer);
  std::vector<std::optional<Foreign>> found;
  const auto is_down = [&](std::size_t p) { return p + 1 == layer.projections.size(); };
  const auto add = [&](bool stacked_up, bool stacked_down, const Hits& hits) {
    const std::size_t rule = found.size();
    names.add(rule, hits);
    for (std::size_t i = 0; i < layer.count(); ++i)
      if (is_down(i % layer.projections.size()) ? stacked_down : stacked_up) names.add(rule, i, 1);
  };
  const auto push = [&](std::string_view key, const json::Value& value) -> Result<bool> {
    found.emplace_back();
    if (value.is_null()) return true;
    MOE_TRY(Foreign config, Foreign::open(value, rules.at(key)));
    found.back() = std::move(config);
    return true;
  };
  constexpr std::string_view kWeight = ".weight", kRegex = "re:";
  for (const auto& [key, value] : rules.members()) {
    std::string_view name = key;
    if (name.ends_with(kWeight)) name.remove_suffix(kWeight.size());
    const auto one = layer.find(name);
    if (!one && name != gate_up && name != down) continue;
    if (one) names.add(found.size(), *one, 1);
    add(name == gate_up, name == down, {});
    MOE_TRY([[maybe_unused]] const bool pushed, push(key, value));
  }
  Matcher matcher;
  std::vector<std::string> of_weights;  // patterns are of a module's name, or of its parameter's
  for (const std::string& projection : layer.projections) of_weights.push_back(cat(projection, kWeight));
  const LayerNames weights{layer.module, of_weights, layer.experts};
  for (const auto& [key, value] : rules.members()) {
    if (!key.starts_with(kRegex) || names.complete()) continue;
    const std::string pointer = rules.at(key), pattern = cat("(?:", key.substr(kRegex.size()), ")$");
    MOE_TRY(const bool up, matcher.regex(pattern, gate_up, pointer));
    MOE_TRY(const bool low, matcher.regex(pattern, down, pointer));
    MOE_TRY(const Hits hits, matcher.names(pattern, layer, pointer));
    MOE_TRY(const Hits parameters, matcher.names(pattern, weights, pointer));
    names.add(found.size(), parameters);
    add(up, low, hits);
    MOE_TRY([[maybe_unused]] const bool pushed, push(key, value));
  }
  std::optional<Foreign> otherwise;
  if (rules.has(kPlain)) {
    MOE_TRY(otherwise, rules.object(kPlain));
  }
  return one_scheme(
      names,
      [&](std::size_t rule) -> Resolved {
        const std::optional<Foreign>& config = rule < found.size() ? found[rule] : otherwise;
        return config ? scheme_of(*config) : unquantized();
      },
      [&](const RuleOfNames::Odd& odd) { return names.fault(odd, rules.pointer()); });
}

}  // namespace

Resolved resolve_torchao(const Foreign& h, const LayerNames& layer) {
  MOE_TRY(const auto skipped, skips_experts(h, "modules_to_not_convert", layer));
  if (skipped) return unquantized();
  MOE_TRY(const auto types, h.object("quant_type"));
  if (!types) return lacks_member(h, "torchao", "quant_type");
  MOE_TRY(const auto config, types->object("default"));
  if (!config) return lacks_member(h, "torchao", "quant_type.default");
  MOE_TRY(const auto data, config->object(kData));
  if (data)
    for (const std::string_view key : {"fqn_to_config", "module_fqn_to_config"}) {
      MOE_TRY(const auto rules, data->object(key));
      if (rules) return by_name(*rules, layer);
    }
  return scheme_of(*config);
}

}  // namespace moe::config
