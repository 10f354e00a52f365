// AMD Quark's objects (checkpoints.md 6): a specification of weights and one of activations for the model, others for
// the modules of a pattern.
#include <algorithm>
#include <array>

#include "base/text.h"
#include "config/quantization/tools.h"

namespace moe::config {
namespace {

constexpr std::string_view kWeight = "weight", kInput = "input_tensors", kGlobal = "global_quant_config",
                           kOfLayers = "layer_quant_config", kOfTypes = "layer_type_quant_config", kExport = "export",
                           kAxis = "ch_axis";

// The members of a specification that decide what the tensors are.
struct Spec {
  Foreign object;
  std::string dtype, scheme;
  std::optional<std::int64_t> group, axis;
  bool is_dynamic = false, of_scales = true;
};

Result<Spec> read_spec(const Foreign& object) {
  MOE_TRY(const std::string_view dtype, object.need_text("dtype"));
  MOE_TRY(const std::string_view scheme, object.need_text("qscheme"));
  MOE_TRY(const auto group, object.integer("group_size", {1, 65536}));
  MOE_TRY(const auto axis, object.integer(kAxis, {-8, 8}));
  MOE_TRY(const auto is_dynamic, object.boolean("is_dynamic"));
  MOE_TRY(const auto of_scales, object.boolean("is_scale_quant"));
  return Spec{.object = object,
              .dtype = fields::lower_ascii(dtype),
              .scheme = fields::lower_ascii(scheme),
              .group = group,
              .axis = axis,
              .is_dynamic = is_dynamic.value_or(false),
              .of_scales = of_scales.value_or(true)};
}

// A specification, or a list of two: the weights', and that of their scales. Empty when absent.
Result<std::vector<Spec>> read_specs(const Foreign& config, std::string_view key) {
  std::vector<Spec> specs;
  const json::Value* value = config.get(key);
  if (value == nullptr) return specs;
  if (value->array() == nullptr) {
    MOE_TRY(const Foreign one, Foreign::open(*value, config.at(key)));
    MOE_TRY(Spec spec, read_spec(one));
    specs.push_back(std::move(spec));
    return specs;
  }
  for (std::size_t i = 0; i < value->array()->size(); ++i) {
    MOE_TRY(const Foreign one, Foreign::open((*value->array())[i], cat(config.at(key), "/", i)));
    MOE_TRY(Spec spec, read_spec(one));
    specs.push_back(std::move(spec));
  }
  if (specs.empty()) return fields::fault(config.at(key), "found [], expected a specification or null");
  return specs;
}

std::string words(const std::vector<Spec>& specs) {
  std::string text;
  for (const Spec& s : specs)
    text += cat(text.empty() ? "" : " of ", s.dtype, " ", s.scheme, s.group ? cat(" ", *s.group) : "");
  return text;
}

// 8-bit floats: a scale for each token, or one for the tensor. Others are not imitated: 16 bits.
std::optional<QuantArgs> fp8_activations(const std::vector<Spec>& input) {
  if (input.size() != 1 || input[0].dtype != "fp8_e4m3") return std::nullopt;
  const bool tensor = input[0].scheme == "per_tensor";
  if (!tensor && !(input[0].scheme == "per_channel" && input[0].is_dynamic)) return std::nullopt;
  QuantArgs a = quant_args(8, NumType::floating, tensor ? Strategy::tensor : Strategy::token);
  a.dynamic = input[0].is_dynamic ? Dynamic::yes : Dynamic::no;
  return a;
}

struct Weights {
  const Foreign& whole;  // the object, for what the export says
  const std::vector<Spec>& weight;
  const std::vector<Spec>& input;

  const Spec& first() const { return weight.front(); }
  bool inputs_are(std::string_view dtype) const { return !input.empty() && input.front().dtype == dtype; }
};

Resolved as_mxfp4(const Weights& w) {
  return resolved(w.inputs_are("fp4") ? "MXFP4" : "MXFP4A16", {"weight", "weight_scale"});
}
Resolved as_nvfp4(const Weights& w) {
  std::vector<std::string> suffixes = {"weight", "weight_scale", "weight_scale_2"};
  if (w.inputs_are("fp4")) suffixes.emplace_back("input_scale_2");
  return resolved(w.inputs_are("fp4") ? "NVFP4" : "NVFP4A16", std::move(suffixes));
}
Resolved as_fp8(const Weights& w) {
  const Strategy strategy = w.first().scheme == "per_tensor" ? Strategy::tensor : Strategy::channel;
  const std::optional<QuantArgs> activations = fp8_activations(w.input);
  std::vector<std::string> suffixes = {"weight", "weight_scale"};
  if (activations && activations->dynamic == Dynamic::no) suffixes.emplace_back("input_scale");
  return resolved(quant_args(8, NumType::floating, strategy), activations, Format::float_quantized,
                  std::move(suffixes));
}
Resolved as_int8(const Weights& w) {
  const bool whole = w.first().scheme == "per_tensor";
  return resolved(integer_weights(8, -1, true), std::nullopt, whole ? Format::quark_int8 : Format::int_quantized,
                  {"weight", "weight_scale", "weight_zero_point"});
}
// Eight codes in a word, in AWQ's order or one after another; int4's are in two's complement, and so are its zero
// points.
Resolved as_words(const Weights& w) {
  MOE_TRY(const auto exported, w.whole.object(kExport));
  MOE_TRY(const auto method, exported ? exported->text("pack_method") : std::optional<std::string_view>());
  const std::string pack = fields::lower_ascii(method.value_or("reorder"));
  if (pack != "reorder" && pack != "order")
    return unread(exported->at("pack_method"), cat("found ", json::quote(pack), ", expected reorder or order"));
  const bool is_signed = w.first().dtype == "int4";
  MOE_TRY(const auto symmetric, w.first().object.boolean("symmetric"));
  const bool by_group = w.first().scheme == "per_group";
  if (by_group && !w.first().group) return fields::missing(w.first().object.at("group_size"), "a group size");
  return resolved(integer_weights(4, by_group ? *w.first().group : -1, symmetric.value_or(is_signed)), std::nullopt,
                  pack == "reorder" ? Format::quark_reorder : Format::quark_order,
                  {"weight", "weight_scale", "weight_zero_point"},
                  is_signed ? ZeroPoints::twos_complement : ZeroPoints::as_stored);
}

// A row for each kind of weights; group 0: any. scale: the format of the scales, or the type of a second specification.
struct Kind {
  std::string_view dtype, scheme;
  std::int64_t group;
  std::string_view scale, second;
  Resolved (*resolve)(const Weights&);
};
constexpr std::array kKinds = {
    Kind{"fp4", "per_group", 32, "e8m0", "", as_mxfp4}, Kind{"fp4", "per_group", 16, "", "fp8_e4m3", as_nvfp4},
    Kind{"fp8_e4m3", "per_tensor", 0, "", "", as_fp8},  Kind{"fp8_e4m3", "per_channel", 0, "", "", as_fp8},
    Kind{"int4", "per_group", 0, "", "", as_words},     Kind{"uint4", "per_group", 0, "", "", as_words},
    Kind{"int4", "per_channel", 0, "", "", as_words},   Kind{"uint4", "per_channel", 0, "", "", as_words},
    Kind{"int8", "per_tensor", 0, "", "", as_int8},     Kind{"int8", "per_channel", 0, "", "", as_int8},
};

bool is_of(const Kind& kind, const std::vector<Spec>& weight, std::string_view scale) {
  const Spec& s = weight.front();
  if (kind.dtype != s.dtype || kind.scheme != s.scheme || (kind.group != 0 && kind.group != s.group)) return false;
  if (!kind.scale.empty() && kind.scale != scale) return false;
  if (kind.second.empty()) return weight.size() == 1;
  return weight.size() == 2 && weight[1].dtype == kind.second && weight[1].scheme == "per_tensor" &&
         weight[1].of_scales;
}

// A scale is a row's, or that of some columns of a row; the other way round would be other weights.
Check check_axis(const Spec& s) {
  if (!s.axis || s.scheme == "per_tensor") return ok();
  const bool by_row = s.scheme == "per_channel";
  if (by_row ? *s.axis == 0 : *s.axis != 0) return ok();
  return unread(s.object.at(kAxis), cat("found ", *s.axis, " of ", s.scheme, ", read is ", by_row ? "0" : "-1 or 1"));
}

Resolved scheme_of(const Foreign& h, const Foreign& config) {
  MOE_TRY(const std::vector<Spec> weight, read_specs(config, kWeight));
  if (weight.empty()) return unquantized();
  MOE_TRY(const std::vector<Spec> input, read_specs(config, kInput));
  MOE_TRY(const auto scale, weight.front().object.text("scale_format"));
  for (const Kind& kind : kKinds)
    if (is_of(kind, weight, fields::lower_ascii(scale.value_or("")))) {
      MOE_CHECK(check_axis(weight.front()));
      return kind.resolve({h, weight, input});
    }
  return unread(config.at(kWeight), cat("Quark's weights of ", words(weight),
                                        " are not read, read are fp4 in groups of 32 with e8m0 scales or of 16 with "
                                        "fp8_e4m3 scales, fp8_e4m3 and int8 per tensor or channel, int4 and uint4"));
}

// `weight_format` fake_quantized: dense weights, beside scales that they have in them already.
Check check_export(const Foreign& h) {
  MOE_TRY(const auto exported, h.object(kExport));
  if (!exported) return ok();
  MOE_TRY(const auto format, exported->text("weight_format"));
  if (!format || fields::lower_ascii(*format) == "real_quantized") return ok();
  return unread(exported->at("weight_format"),
                cat("found ", json::quote(*format), ", read is real_quantized; dense weights, such as fake_quantized ",
                    R"(ones, are read with overrides {"quantization": null})"));
}

// Algorithms that only change weights need nothing more; rotations change what the layer's inputs must be.
Check check_algorithms(const Foreign& h) {
  constexpr std::string_view kAlgorithms = "algo_config";
  const json::Value* given = h.get(kAlgorithms);
  if (given == nullptr) return ok();
  const auto is_rotation = [](const json::Value& one) {
    const json::Value* name = one.find("name");
    if (name == nullptr || name->string() == nullptr) return true;  // not understood
    const std::string word = fields::lower_ascii(*name->string());
    return word.find("rotat") != std::string::npos || word.find("quarot") != std::string::npos;
  };
  const std::string at = h.at(kAlgorithms);
  if (given->array() == nullptr)
    return is_rotation(*given) ? Check(unread(at, "an algorithm that may rotate inputs is not read")) : ok();
  for (std::size_t i = 0; i < given->array()->size(); ++i)
    if (is_rotation((*given->array())[i]))
      return unread(cat(at, "/", i), "an algorithm that may rotate inputs is not read");
  return ok();
}

}  // namespace

Resolved resolve_quark(const Foreign& h, const LayerNames& layer) {
  MOE_CHECK(check_export(h));
  MOE_CHECK(check_algorithms(h));
  MOE_TRY(const auto types, h.object(kOfTypes));
  if (types && !types->members().empty())
    return unread(h.at(kOfTypes), "schemes by a layer's class are not read, expected {}");
  MOE_TRY(const auto excluded, h.texts("exclude"));
  MOE_TRY(const auto by_layer, h.object(kOfLayers));
  MOE_TRY(const auto global, h.object(kGlobal));
  if (!global) return lacks_member(h, "AMD Quark", kGlobal);

  // Patterns are of whole names, as fnmatch; a parent does not stand for its children.
  struct Rule {
    std::string pointer;
    std::optional<Foreign> config;  // of a pattern that excludes: none
  };
  std::vector<Rule> rules;
  RuleOfNames names(layer);
  Matcher matcher;
  const auto add = [&](const std::string& pattern, const std::string& pointer) -> Result<bool> {
    if (!has_wildcard(pattern)) {
      const auto one = layer.find(pattern);
      if (one) names.add(rules.size(), *one, 1);
      return one.has_value();
    }
    MOE_TRY(const Hits hits, matcher.names(wildcard_pattern(pattern), layer, pointer));
    if (std::find(hits.begin(), hits.end(), true) == hits.end()) return false;
    names.add(rules.size(), hits);
    return true;
  };
  for (std::size_t i = 0; i < excluded.size() && !names.complete(); ++i) {
    const std::string pointer = cat(h.at("exclude"), "/", i);
    MOE_TRY(const bool ours, add(std::string(excluded[i]), pointer));
    if (ours) rules.push_back({pointer, {}});
  }
  const json::Object none;
  for (const bool patterns : {false, true})  // names win over patterns
    for (const auto& [pattern, value] : by_layer ? by_layer->members() : none) {
      if (has_wildcard(pattern) != patterns) continue;
      MOE_TRY(const bool ours, add(pattern, by_layer->at(pattern)));
      if (!ours) continue;
      MOE_TRY(Foreign config, Foreign::open(value, by_layer->at(pattern)));
      rules.push_back({by_layer->at(pattern), std::move(config)});
    }
  return one_scheme(
      names,
      [&](std::size_t rule) -> Resolved {
        if (rule >= rules.size()) return scheme_of(h, *global);
        return rules[rule].config ? scheme_of(h, *rules[rule].config) : unquantized();
      },
      [&](const RuleOfNames::Odd& odd) { return names.fault(odd, rules[odd.rule].pointer); });
}

}  // namespace moe::config
