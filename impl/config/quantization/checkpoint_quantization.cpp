// A checkpoint's own quantization object -> the strict form (checkpoints.md 4 and 6). One function per
// quant_method; compressed-tensors has its own file. Pointers begin with /hf_quantization_config.
#include <algorithm>
#include <array>

#include "base/text.h"
#include "config/quantization/foreign.h"
#include "config/quantization/quantization.h"
#include "config/quantization/tools.h"
#include "config/sections.h"

namespace moe::config {
namespace {

constexpr std::string_view kBase = "/hf_quantization_config";

// --- gptq ------------------------------------------------------------------------------------------

struct Override {
  std::string pointer;
  bool skips;                      // a "-:" rule
  std::optional<Foreign> members;  // of the others
};

// A rule is for a layer when it matches its name, or those of its experts' projections.
Result<std::vector<Override>> gptq_overrides(const Foreign& h, const LayerNames& layer, RuleOfNames& names) {
  std::vector<Override> rules;
  MOE_TRY(const auto dynamic, h.object("dynamic"));
  if (!dynamic) return rules;
  Matcher matcher;
  for (const auto& [key, value] : dynamic->members()) {
    Override rule{dynamic->at(key), key.starts_with("-:"), {}};
    const std::string_view pattern = std::string_view(key).substr(rule.skips || key.starts_with("+:") ? 2 : 0);
    MOE_TRY(const Hits hits, matcher.names(pattern, layer, rule.pointer, {.module_too = true}));
    if (std::find(hits.begin(), hits.end(), true) == hits.end()) continue;
    if (!rule.skips) {
      MOE_TRY(Foreign members, Foreign::open(value, rule.pointer));
      rule.members = std::move(members);
    }
    names.add(rules.size(), hits);
    rules.push_back(std::move(rule));
    if (names.complete()) break;
  }
  return rules;
}

Resolved gptq_scheme(const Foreign& h, const Override* over) {
  if (over != nullptr && over->skips) return unquantized();
  const Overlaid source{h, over == nullptr ? nullptr : &*over->members};
  for (const std::string_view key : {"bits", "group_size", "desc_act", "sym"})  // required even when overridden
    if (!h.has(key)) return fields::missing(h.at(key), "a member that gptq always has");
  MOE_TRY(const std::int64_t bits, source.of("bits").need_integer("bits", {1, 64}));
  if (bits != 4 && bits != 8) return unread(source.of("bits").at("bits"), cat("found ", bits, ", expected 4 or 8"));
  MOE_TRY(const std::int64_t given, source.of("group_size").need_integer("group_size", kGroupRange));
  MOE_TRY(const std::int64_t group, check_group(given, source.of("group_size").at("group_size")));
  MOE_TRY(const bool desc_act, source.of("desc_act").need_boolean("desc_act"));
  MOE_TRY(const bool sym, source.of("sym").need_boolean("sym"));
  const std::string_view format_key = h.has("checkpoint_format") ? "checkpoint_format" : "format";
  MOE_TRY(const auto format_word, h.text(format_key));
  const std::string format = fields::lower_ascii(format_word.value_or("gptq"));
  if (format != "gptq" && format != "gptq_v2")
    return unread(h.at(format_key), cat("found ", fields::brief(*h.get(format_key)), ", expected gptq or gptq_v2"));

  QuantArgs w = integer_weights(static_cast<int>(bits), group, sym);
  if (desc_act && group != -1) w.actorder = ActOrder::group;
  return resolved(w, std::nullopt, Format::gptq, {"qweight", "scales", "qzeros", "g_idx"},
                  format == "gptq_v2" ? ZeroPoints::as_stored : ZeroPoints::plus_one);
}

Resolved gptq(const Foreign& h, const LayerNames& layer) {
  if (h.has("rotation"))
    return fail(Code::unsupported, h.at("rotation"),
                cat(h.at("rotation"), ": found ", fields::brief(*h.get("rotation")),
                    ", weights that are rotated need the model's other layers rotated, too: not read"));
  MOE_TRY(const bool quantized, quantizes_experts(h, layer));
  if (!quantized) return unquantized();
  RuleOfNames names(layer);
  MOE_TRY(const std::vector<Override> rules, gptq_overrides(h, layer, names));
  return one_scheme(
      names, [&](std::size_t rule) { return gptq_scheme(h, rule < rules.size() ? &rules[rule] : nullptr); },
      [&](const RuleOfNames::Odd& odd) { return names.fault(odd, rules[odd.rule].pointer); });
}

// --- awq, mxfp4 ------------------------------------------------------------------------------------

// An entry skips the modules that have it in their names. One without a number treats all experts alike, and then the
// layer's own name counts: "gate" is the router, not gate_proj.
Result<bool> awq_skips(const Foreign& h, const LayerNames& layer) {
  constexpr std::string_view kList = "modules_to_not_convert";
  MOE_TRY(const auto entries, h.texts(kList));
  if (std::any_of(entries.begin(), entries.end(),
                  [&](std::string_view e) { return layer.module.find(e) != std::string_view::npos; }))
    return true;
  RuleOfNames names(layer);
  Matcher matcher;
  for (std::size_t i = 0; i < entries.size() && !names.complete(); ++i) {
    if (entries[i].find_first_of("0123456789") == std::string_view::npos) continue;
    MOE_TRY(const Hits hits, matcher.names(substring_pattern(entries[i]), layer, cat(h.at(kList), "/", i)));
    names.add(i, hits);
  }
  return covers_experts(names, RuleOfNames::Among::projection,
                        [&](std::size_t rule) { return cat(h.at(kList), "/", rule); });
}

Resolved awq(const Foreign& h, const LayerNames& layer) {
  MOE_TRY(const bool skipped, awq_skips(h, layer));
  if (skipped) return unquantized();
  // vLLM does not read them; transformers takes `format` where there is no version.
  const std::string_view layout_key = h.has("version") ? "version" : "format";
  const std::string* version = h.has(layout_key) ? h.get(layout_key)->string() : nullptr;
  const std::string written = version == nullptr ? "gemm" : fields::lower_ascii(*version);
  if (written.starts_with("gemv") || written == "marlin" || written == "llm-awq")
    return unread(h.at(layout_key), cat("found ", fields::brief(*h.get(layout_key)), ", read is the layout of gemm"));
  const std::string_view bits_key = h.has("w_bit") ? "w_bit" : "bits";
  const std::string_view group_key = h.has("q_group_size") ? "q_group_size" : "group_size";
  MOE_TRY(const std::int64_t bits, h.need_integer(bits_key, {1, 64}));
  if (bits != 4) return unread(h.at(bits_key), cat("found ", bits, ", read is awq with 4 bits"));
  MOE_TRY(const std::int64_t given, h.need_integer(group_key, kGroupRange));
  MOE_TRY(const std::int64_t group, check_group(given, h.at(group_key)));
  MOE_TRY(const bool zero_point, h.need_boolean("zero_point"));
  return resolved(integer_weights(4, group, !zero_point), std::nullopt, Format::awq, {"qweight", "scales", "qzeros"});
}

Resolved mxfp4(const Foreign& h, const LayerNames& layer) {
  MOE_TRY(const bool skipped, skips_experts(h, "modules_to_not_convert", layer));
  if (skipped) return unquantized();
  QuantArgs w = quant_args(4, NumType::floating, Strategy::group);
  w.group_size = 32;
  return resolved(w, std::nullopt, Format::mxfp4_gpt_oss, {"_blocks", "_scales", "_bias"});
}

// --- fp8 -------------------------------------------------------------------------------------------

// The words of its tools, and torch's and our own for the same type; those of other 8-bit floats say more than "e4m3".
bool is_e4m3(std::string_view word) {
  const std::string lower = fields::lower_ascii(word);
  return lower == "e4m3" || lower == "e4m3fn" || lower == "fp8_e4m3" || dtype_from_name(word) == DType::f8_e4m3fn ||
         dtype_from_name(lower) == DType::f8_e4m3fn;
}

Resolved fp8(const Foreign& h, const LayerNames& layer) {
  MOE_TRY(auto requantized, requantized_experts(h, layer));
  if (requantized) return *std::move(requantized);
  MOE_TRY(const auto ignored, h.texts("ignored_layers"));
  MOE_TRY(const bool skipped, skips_experts(h, ignored.empty() ? "modules_to_not_convert" : "ignored_layers", layer));
  if (skipped) return unquantized();
  MOE_TRY(const auto dtype, h.text(kExpertDtype));
  if (dtype && !expert_dtype(*dtype))
    return fields::unexpected(h.at(kExpertDtype), *h.get(kExpertDtype), kExpertDtypes);
  if (dtype && *expert_dtype(*dtype) == DType::f4_e2m1fn) return resolved("MXFP4A16", {"weight", "scale"});
  MOE_TRY(const std::string_view scheme, h.need_text("activation_scheme"));
  const std::string word = fields::lower_ascii(scheme);  // as transformers
  const bool is_static = word == "static";
  if (!is_static && word != "dynamic")
    return fields::unexpected(h.at("activation_scheme"), *h.get("activation_scheme"), "dynamic or static");

  MOE_TRY(const auto fmt, h.text("fmt"));
  if (fmt && !is_e4m3(*fmt))
    return fail(Code::unsupported, h.at("fmt"),
                cat(h.at("fmt"), ": weights of ", fields::brief(*h.get("fmt")), " are not read, expected e4m3"));

  QuantArgs w = quant_args(8, NumType::floating, Strategy::tensor), a = w;
  a.dynamic = is_static ? Dynamic::no : Dynamic::yes;
  if (!h.has("weight_block_size")) {
    std::vector<std::string> suffixes = {"weight", "weight_scale"};
    if (is_static) suffixes.emplace_back("input_scale");
    return resolved(w, a, Format::float_quantized, std::move(suffixes));
  }
  MOE_TRY(const auto block, h.integers("weight_block_size", {1, 65536}));
  if (block.size() != 2)
    return fields::unexpected(h.at("weight_block_size"), *h.get("weight_block_size"), "[rows, columns]");
  if (is_static)
    return fields::unexpected(h.at("activation_scheme"), *h.get("activation_scheme"),
                              "dynamic, as weights have blocks");
  w.strategy = Strategy::block;
  w.block_structure = {block[0], block[1]};
  a.strategy = Strategy::group;
  a.group_size = block[1];
  MOE_TRY(const auto scale_fmt, h.text("scale_fmt"));
  if (scale_fmt && fields::lower_ascii(*scale_fmt) == "ue8m0") a.scale_format = ScaleFormat::ue8m0;
  return resolved(w, a, Format::float_quantized, {"weight", "weight_scale_inv"});
}

// --- the methods -----------------------------------------------------------------------------------

struct Method {
  std::string_view name;
  Resolved (*resolve)(const Foreign&, const LayerNames&);
};

constexpr std::array kMethods = {
    Method{"compressed-tensors", resolve_compressed_tensors},
    Method{"gptq", gptq},
    Method{"awq", awq},
    Method{"fp8", fp8},
    Method{"mxfp4", mxfp4},
    Method{"modelopt", resolve_modelopt},
    Method{"modelopt_fp4", resolve_modelopt},
    Method{"auto-round", resolve_auto_round},
    Method{"auto_round", resolve_auto_round},
    Method{"intel/auto-round", resolve_auto_round},
    Method{"quark", resolve_quark},
    Method{"torchao", resolve_torchao},
    Method{"bitsandbytes", resolve_bitsandbytes},
};

// hf_quant_config.json says who wrote it instead.
Result<std::string_view> method_of(const Foreign& h) {
  constexpr std::string_view kModelOptName = "modelopt";
  if (!h.has("quant_method") && h.has("quantization")) {
    MOE_TRY(const auto producer, h.object("producer"));
    if (producer) {
      MOE_TRY(const auto name, producer->text("name"));
      if (name == kModelOptName) return kModelOptName;
    }
  }
  if (!h.has("quant_method")) return no_method(h);
  return h.need_text("quant_method");
}

}  // namespace

std::optional<DType> expert_dtype(std::string_view word) {
  const std::string lower = fields::lower_ascii(word);
  if (lower == "fp8" || is_e4m3(lower)) return DType::f8_e4m3fn;
  if (lower == "fp4" || lower == "mxfp4" || dtype_from_name(lower) == DType::f4_e2m1fn) return DType::f4_e2m1fn;
  return std::nullopt;
}

Result<std::optional<HfQuantization>> resolve_hf_quantization(const json::Value& object, std::string_view module,
                                                              const std::vector<std::string>& projections,
                                                              std::int64_t experts) {
  MOE_TRY(const Foreign h, Foreign::open(object, std::string(kBase)));
  MOE_TRY(const std::string_view name, method_of(h));
  for (const Method& method : kMethods) {
    if (method.name != fields::lower_ascii(name)) continue;
    MOE_TRY(auto result, method.resolve(h, {.module = module, .projections = projections, .experts = experts}));
    if (result) result->quantization.hf = result->quantization.file_method = std::string(method.name);
    return result;
  }
  if (auto theirs = of_other_tool(name, h.at("quant_method"))) return *std::move(theirs);
  std::string known;
  for (const Method& method : kMethods) known += cat(known.empty() ? "" : ", ", method.name);
  return fields::unexpected(h.at("quant_method"), *h.get("quant_method"), "one of " + known);
}

}  // namespace moe::config
