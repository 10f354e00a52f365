// A checkpoint's own quantization object -> the strict form (checkpoints.md 4 and 6). One function per
// quant_method; compressed-tensors has its own file. Pointers begin with /hf_quantization_config.
#include <algorithm>
#include <array>

#include "base/text.h"
#include "config/foreign.h"
#include "config/quantization.h"
#include "config/sections.h"

namespace moe::config {
namespace {

constexpr std::string_view kBase = "/hf_quantization_config";
constexpr fields::Range kGroupRange = {-1, 65536};

Resolved unquantized() { return std::optional<HfQuantization>(); }

// The strict form with its storage filled in; `suffixes`: tensors of a projection.
Resolved resolved(QuantArgs weights, std::optional<QuantArgs> activations, Format format,
                  std::vector<std::string> suffixes, std::optional<ZeroPoints> zero_points = std::nullopt) {
  HfQuantization r;
  r.quantization.weights = weights;
  r.quantization.input_activations = activations;
  r.quantization.format = format;
  fill_storage(r.quantization, zero_points, std::nullopt);
  r.suffixes = std::move(suffixes);
  return std::optional(std::move(r));
}

QuantArgs args(int bits, NumType type, Strategy strategy) {
  QuantArgs a;
  a.num_bits = bits;
  a.type = type;
  a.strategy = strategy;
  return a;
}

QuantArgs integer_weights(int bits, std::int64_t group, bool symmetric) {
  QuantArgs w = args(bits, NumType::integer, group == -1 ? Strategy::channel : Strategy::group);
  if (group != -1) w.group_size = group;
  w.symmetric = symmetric;
  return w;
}

// What its tool may well write: no fault of the file.
Error unread(const std::string& pointer, const std::string& what) {
  return fail(Code::unsupported, pointer, cat(pointer, ": ", what));
}

Result<std::int64_t> check_group(std::int64_t group, const std::string& pointer) {
  if (group == 0) return fields::fault(pointer, "found 0, expected -1 (the whole column) or a positive group size");
  return group;
}

// --- gptq ------------------------------------------------------------------------------------------

struct Override {
  std::string pointer;
  bool skips;                      // a "-:" rule
  std::optional<Foreign> members;  // of the others
};

// A rule is for a layer when it matches its name, or those of its experts' projections.
Result<std::vector<Override>> gptq_overrides(const Foreign& h, const Layer& layer, RuleOfNames& names) {
  std::vector<Override> rules;
  MOE_TRY(const auto dynamic, h.object("dynamic"));
  if (!dynamic) return rules;
  Matcher matcher;
  for (const auto& [key, value] : dynamic->members()) {
    Override rule{dynamic->at(key), key.starts_with("-:"), {}};
    const std::string_view pattern = std::string_view(key).substr(rule.skips || key.starts_with("+:") ? 2 : 0);
    MOE_TRY(const Hits hits, matcher.module_or_names(pattern, layer, rule.pointer));
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
  const auto source = [&](std::string_view key) -> const Foreign& {
    return over != nullptr && over->members->has(key) ? *over->members : h;
  };
  for (const std::string_view key : {"bits", "group_size", "desc_act", "sym"})  // required even when overridden
    if (!h.has(key)) return fields::missing(h.at(key), "a member that gptq always has");
  MOE_TRY(const std::int64_t bits, source("bits").need_integer("bits", {1, 64}));
  if (bits != 4 && bits != 8) return unread(source("bits").at("bits"), cat("found ", bits, ", expected 4 or 8"));
  MOE_TRY(const std::int64_t given, source("group_size").need_integer("group_size", kGroupRange));
  MOE_TRY(const std::int64_t group, check_group(given, source("group_size").at("group_size")));
  MOE_TRY(const bool desc_act, source("desc_act").need_boolean("desc_act"));
  MOE_TRY(const bool sym, source("sym").need_boolean("sym"));
  MOE_TRY(const auto format, h.text("checkpoint_format"));
  if (format && *format != "gptq" && *format != "gptq_v2")
    return unread(h.at("checkpoint_format"),
                  cat("found ", fields::brief(*h.get("checkpoint_format")), ", expected gptq or gptq_v2"));

  QuantArgs w = integer_weights(static_cast<int>(bits), group, sym);
  if (desc_act && group != -1) w.actorder = ActOrder::group;
  return resolved(w, std::nullopt, Format::gptq, {"qweight", "scales", "qzeros", "g_idx"},
                  format == "gptq_v2" ? ZeroPoints::as_stored : ZeroPoints::plus_one);
}

Resolved gptq(const Foreign& h, const Layer& layer) {
  if (h.has("rotation"))
    return fail(Code::unsupported, h.at("rotation"),
                cat(h.at("rotation"), ": found ", fields::brief(*h.get("rotation")),
                    ", weights that are rotated need the model's other layers rotated, too: not read"));
  RuleOfNames names(layer);
  MOE_TRY(const std::vector<Override> rules, gptq_overrides(h, layer, names));
  return one_scheme(
      names, [&](std::size_t rule) { return gptq_scheme(h, rule < rules.size() ? &rules[rule] : nullptr); },
      [&](const RuleOfNames::Odd& odd) { return names.fault(odd, rules[odd.rule].pointer); });
}

// Whether a list leaves out the layer: all experts, none, or it is refused.
Result<bool> leaves_out(const RuleOfNames& names, const std::string& list, RuleOfNames::Among among) {
  const auto same = [](std::size_t a, std::size_t b) { return (a == RuleOfNames::kNone) == (b == RuleOfNames::kNone); };
  if (const auto odd = names.find_odd(among, same)) return names.fault(*odd, cat(list, "/", odd->rule));
  return names.complete();
}

// --- awq, fp8, mxfp4 -------------------------------------------------------------------------------

// An entry skips the modules that have it in their names. One without a number treats all experts alike, and then the
// layer's own name counts: "gate" is the router, not gate_proj.
Result<bool> awq_skips(const Foreign& h, const Layer& layer) {
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
  return leaves_out(names, h.at(kList), RuleOfNames::Among::projection);
}

Resolved awq(const Foreign& h, const Layer& layer) {
  MOE_TRY(const bool skipped, awq_skips(h, layer));
  if (skipped) return unquantized();
  const std::string* version = h.has("version") ? h.get("version")->string() : nullptr;  // vLLM does not read it
  const std::string written = version == nullptr ? "gemm" : fields::lower_ascii(*version);
  if (written.starts_with("gemv") || written == "marlin")
    return fail(Code::unsupported, h.at("version"),
                cat(h.at("version"), ": found ", fields::brief(*h.get("version")), ", read is the layout of gemm"));
  const std::string_view bits_key = h.has("w_bit") ? "w_bit" : "bits";
  const std::string_view group_key = h.has("q_group_size") ? "q_group_size" : "group_size";
  MOE_TRY(const std::int64_t bits, h.need_integer(bits_key, {1, 64}));
  if (bits != 4) return unread(h.at(bits_key), cat("found ", bits, ", read is awq with 4 bits"));
  MOE_TRY(const std::int64_t given, h.need_integer(group_key, kGroupRange));
  MOE_TRY(const std::int64_t group, check_group(given, h.at(group_key)));
  MOE_TRY(const bool zero_point, h.need_boolean("zero_point"));
  return resolved(integer_weights(4, group, !zero_point), std::nullopt, Format::awq, {"qweight", "scales", "qzeros"});
}

// Lists of fp8 and mxfp4 files: an entry about experts that contains the layer's name skips it, or one expert.
Result<bool> skips_experts(const Foreign& h, std::string_view list, const Layer& layer) {
  MOE_TRY(const auto entries, h.texts(list));
  RuleOfNames names(layer);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::size_t at = entries[i].find(layer.module);
    if (entries[i].find("experts") == std::string_view::npos || at == std::string_view::npos) continue;
    const std::size_t projections = layer.projections.size();
    if (const auto expert = layer.expert_of(entries[i].substr(at)))
      names.add(i, *expert * projections, projections);
    else
      names.add_rest(i);
  }
  return leaves_out(names, h.at(list), RuleOfNames::Among::all);
}

Resolved fp8(const Foreign& h, const Layer& layer) {
  MOE_TRY(const auto ignored, h.texts("ignored_layers"));
  MOE_TRY(const bool skipped, skips_experts(h, ignored.empty() ? "modules_to_not_convert" : "ignored_layers", layer));
  if (skipped) return unquantized();
  MOE_TRY(const std::string_view scheme, h.need_text("activation_scheme"));
  const bool is_static = scheme == "static";
  if (!is_static && scheme != "dynamic")
    return fields::unexpected(h.at("activation_scheme"), *h.get("activation_scheme"), "dynamic or static");

  MOE_TRY(const auto fmt, h.text("fmt"));
  if (fmt && *fmt != "e4m3")
    return fail(Code::unsupported, h.at("fmt"),
                cat(h.at("fmt"), ": weights of ", fields::brief(*h.get("fmt")), " are not read, expected e4m3"));

  QuantArgs w = args(8, NumType::floating, Strategy::tensor), a = w;
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
  return resolved(w, a, Format::float_quantized, {"weight", "weight_scale_inv"});
}

Resolved mxfp4(const Foreign& h, const Layer& layer) {
  MOE_TRY(const bool skipped, skips_experts(h, "modules_to_not_convert", layer));
  if (skipped) return unquantized();
  QuantArgs w = args(4, NumType::floating, Strategy::group);
  w.group_size = 32;
  return resolved(w, std::nullopt, Format::mxfp4_gpt_oss, {"_blocks", "_scales", "_bias"});
}

// --- modelopt --------------------------------------------------------------------------------------

struct ModelOptAlgorithm {
  std::string_view name, preset;
  std::array<std::string_view, 4> suffixes;  // "" where there are fewer
};

constexpr std::array kModelOpt = {
    ModelOptAlgorithm{"FP8", "FP8", {"weight", "weight_scale", "input_scale"}},
    ModelOptAlgorithm{"FP8_PER_CHANNEL_PER_TOKEN", "FP8_DYNAMIC", {"weight", "weight_scale"}},
    ModelOptAlgorithm{"FP8_PB_WO", "FP8_BLOCK", {"weight", "weight_scale"}},
    ModelOptAlgorithm{"NVFP4", "NVFP4", {"weight", "weight_scale", "weight_scale_2", "input_scale"}},
    ModelOptAlgorithm{"W4A16_NVFP4", "NVFP4A16", {"weight", "weight_scale", "weight_scale_2"}},
    ModelOptAlgorithm{"MXFP8", "MXFP8", {"weight", "weight_scale"}},
};

std::string upper_ascii(std::string_view s) {
  std::string out(s);
  for (char& c : out)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return out;
}

// From the number of the layer on: what stands before it may differ from writer to writer.
std::string_view below_layers(std::string_view module) {
  return module.substr(std::min(module.rfind("layers."), module.size()));
}

// Of MIXED_PRECISION: what quantized_layers says of this layer, as the option that reads it so.
std::string entry_hint(const Foreign& q, std::string_view module) {
  const json::Value* layers = q.get("quantized_layers");
  const json::Value* entry = nullptr;
  if (layers != nullptr && layers->object() != nullptr)
    for (const auto& [name, value] : *layers->object()) {
      const bool ours = name == module || (!below_layers(name).empty() &&
                                           cat(below_layers(name), ".").starts_with(cat(below_layers(module), ".")));
      if (ours && entry == nullptr) entry = &value;
    }
  const json::Value* algorithm = entry == nullptr ? nullptr : entry->find("quant_algo");
  if (algorithm == nullptr || algorithm->string() == nullptr)
    return cat("; quantized_layers does not list ", module,
               R"(: experts that are plain are read with overrides {"quantization": null}, others with the option )"
               R"(quantization_config {"quant_method": "modelopt", "quant_algo": ..})");
  return cat("; quantized_layers says ", fields::brief(*algorithm), " of ", module,
             R"(: the option quantization_config {"quant_method": "modelopt", "quant_algo": )",
             fields::brief(*algorithm), "} reads the layer so");
}

Resolved modelopt(const Foreign& h, const Layer& layer) {
  MOE_TRY(const auto nested, h.object("quantization"));
  const Foreign& q = nested ? *nested : h;
  const std::string_view list = nested ? "exclude_modules" : "ignore";
  MOE_TRY(const auto excluded, q.texts(list));
  Matcher matcher;
  RuleOfNames names(layer);
  for (std::size_t i = 0; i < excluded.size() && !names.complete(); ++i) {
    if (!has_wildcard(excluded[i])) {
      names.add_named(i, excluded[i]);
      continue;
    }
    MOE_TRY(const Hits hits, matcher.module_or_names(wildcard_pattern(excluded[i]), layer, cat(q.at(list), "/", i)));
    names.add(i, hits);
  }
  MOE_TRY(const bool skipped, leaves_out(names, q.at(list), RuleOfNames::Among::all));
  if (skipped) return unquantized();
  MOE_TRY(const std::string_view given, q.need_text("quant_algo"));
  const std::string algorithm = upper_ascii(given);
  for (const ModelOptAlgorithm& row : kModelOpt) {
    if (row.name != algorithm) continue;
    const Preset& p = *find_preset(row.preset);
    std::vector<std::string> suffixes;
    for (const std::string_view suffix : row.suffixes)
      if (!suffix.empty()) suffixes.emplace_back(suffix);
    return resolved(*p.weights, p.input_activations, p.format, std::move(suffixes));
  }
  std::string known;
  for (const ModelOptAlgorithm& row : kModelOpt) known += cat(known.empty() ? "" : ", ", row.name);
  return unread(q.at("quant_algo"),
                cat("the algorithm ", fields::brief(*q.get("quant_algo")), " is not read",
                    algorithm == "MIXED_PRECISION" ? entry_hint(q, layer.module) : cat(", read are ", known)));
}

// --- the methods -----------------------------------------------------------------------------------

struct Method {
  std::string_view name;
  Resolved (*resolve)(const Foreign&, const Layer&);
};

constexpr std::array kMethods = {
    Method{"compressed-tensors", resolve_compressed_tensors},
    Method{"gptq", gptq},
    Method{"awq", awq},
    Method{"fp8", fp8},
    Method{"mxfp4", mxfp4},
    Method{"modelopt", modelopt},
    Method{"modelopt_fp4", modelopt},
};

// Objects of tools whose tensors are not read: by the word in quant_method, whose they are and what helps.
struct OtherTool {
  std::string_view method, whose, cure = "the model that it was made from is";
};
constexpr std::string_view kDequantize = "what transformers' dequantize and save_pretrained make of them is";
constexpr std::array kOtherTools = {
    OtherTool{"auto-round", "AutoRound", ""},
    OtherTool{"auto_round", "AutoRound", ""},
    OtherTool{"intel/auto-round", "AutoRound", ""},
    OtherTool{"bitsandbytes", "bitsandbytes", kDequantize},
    OtherTool{"torchao", "torchao"},
    OtherTool{"hqq", "HQQ"},
    OtherTool{"quark", "AMD Quark", "what it exports in its mode fp8 is"},
    OtherTool{"mlx", "MLX", "what mlx_lm.convert --dequantize makes of them is"},
    OtherTool{"quanto", "Quanto"},
    OtherTool{"eetq", "EETQ"},
    OtherTool{"fbgemm_fp8", "FBGEMM"},
    OtherTool{"higgs", "HIGGS", kDequantize},
    OtherTool{"aqlm", "AQLM"},
    OtherTool{"vptq", "VPTQ"},
    OtherTool{"spqr", "SpQR"},
    OtherTool{"bitnet", "BitNet"},
    OtherTool{"fp_quant", "FP-Quant"},
    OtherTool{"sinq", "SINQ"},
    OtherTool{"exl2", "ExLlamaV2"},
    OtherTool{"exl3", "ExLlamaV3"},
    OtherTool{"fouroversix", "Four Over Six"},
    OtherTool{"metal", "transformers' Metal kernels"},
    OtherTool{"gguf", "GGUF", kDequantize},
};

// AutoRound's containers are those of other tools.
std::string auto_round_cure(const Foreign& h) {
  struct Packing {
    std::string_view ends, whose, object;
  };
  constexpr std::array kPackings = {
      Packing{":auto_gptq", "GPTQ",
              R"({"quant_method": "gptq", "bits": .., "group_size": .., "desc_act": false, "sym": ..})"},
      Packing{":auto_awq", "AWQ",
              R"({"quant_method": "awq", "bits": 4, "group_size": .., "zero_point": true, "version": "gemm"})"},
      Packing{":llm_compressor", "compressed-tensors",
              R"({"quant_method": "compressed-tensors", "config_groups": ..})"},
      Packing{":fp8", "FP8 in blocks",
              R"({"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": ..})"},
  };
  const json::Value* packing = h.get("packing_format");
  if (packing != nullptr && packing->string() != nullptr)
    for (const Packing& p : kPackings)
      if (packing->string()->ends_with(p.ends))
        return cat("packing_format ", fields::brief(*packing), " is that of ", p.whose,
                   ", which the option quantization_config reads with ", p.object);
  return "of its packing_format those of GPTQ (auto_gptq), AWQ (auto_awq) and compressed-tensors (llm_compressor) are, "
         "with the object of these as option quantization_config";
}

Error of_other_tool(const Foreign& h, const std::string& pointer, const OtherTool& tool) {
  return unread(pointer,
                cat("an object of ", tool.whose, " (", tool.method, "), whose quantized tensors are not read: ",
                    tool.cure.empty() ? auto_round_cure(h) : std::string(tool.cure),
                    R"(; experts that it left plain are read with overrides {"quantization": null})"));
}

const OtherTool* other_tool(std::string_view method) {
  const auto it = std::find_if(kOtherTools.begin(), kOtherTools.end(),
                               [&](const OtherTool& tool) { return tool.method == method; });
  return it == kOtherTools.end() ? nullptr : &*it;
}

// Objects without a quant_method.
Error no_method(const Foreign& h) {
  const std::string pointer = h.at("quant_method");
  const auto has = [&](std::string_view key) { return h.has(key); };
  if (has("desc_act") || has("sym")) return fields::missing(pointer, "\"gptq\", as the other members are GPTQ's");
  if (has("w_bit") || has("q_group_size") || has("zero_point"))
    return fields::missing(pointer, "\"awq\", as the other members are AWQ's");
  if (has("bits") && has("group_size")) return of_other_tool(h, pointer, *other_tool("mlx"));
  return fields::missing(pointer, "a string");
}

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

Result<std::optional<HfQuantization>> resolve_hf_quantization(const json::Value& object, std::string_view module,
                                                              const std::vector<std::string>& projections,
                                                              std::int64_t experts) {
  MOE_TRY(const Foreign h, Foreign::open(object, std::string(kBase)));
  MOE_TRY(const std::string_view name, method_of(h));
  for (const Method& method : kMethods) {
    if (method.name != name) continue;
    MOE_TRY(auto result, method.resolve(h, {.module = module, .projections = projections, .experts = experts}));
    if (result) result->quantization.hf = result->quantization.file_method = std::string(name);
    return result;
  }
  if (const OtherTool* tool = other_tool(name)) return of_other_tool(h, h.at("quant_method"), *tool);
  std::string known;
  for (const Method& method : kMethods) known += cat(known.empty() ? "" : ", ", method.name);
  return fields::unexpected(h.at("quant_method"), *h.get("quant_method"), "one of " + known);
}

}  // namespace moe::config
