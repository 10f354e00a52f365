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

// A scale for each row: granularity absent or PerRow. nullopt: another one, which is not read.
Result<bool> is_by_row(const Foreign& data) {
  const json::Value* granularity = data.get("granularity");
  if (granularity == nullptr) return true;
  const auto row = [](const json::Value& one) {
    const json::Value* type = one.find(kType);
    if (type == nullptr || type->string() == nullptr) return false;
    const json::Value* members = one.find(kData);
    const json::Value* axis = members == nullptr ? nullptr : members->find("axis");
    return *type->string() == "PerRow" || (*type->string() == "PerAxis" && axis != nullptr && *axis == json::Value(0));
  };
  if (granularity->array() == nullptr) return row(*granularity);
  for (const json::Value& one : *granularity->array())
    if (!row(one)) return false;
  return true;
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
    MOE_TRY(const bool by_row, is_by_row(*data));
    if (!by_row)
      return unread(data->at("granularity"),
                    cat("found ", fields::brief(*data->get("granularity")), ", read is a scale for each row (PerRow)"));
    MOE_TRY(const auto group, data->integer("group_size", {1, 65536}));
    if (group && kind.is_float)
      return unread(data->at("group_size"), cat("found ", *group, " for 8-bit floats, read is null"));
    return kind.is_float ? fp8() : int8(group.value_or(-1));
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
