// AutoRound's objects (checkpoints.md 6). Its containers are those of other tools; packing_format and data_type say
// whose. extra_config has what differs for single modules.
#include <algorithm>
#include <array>

#include "base/text.h"
#include "config/quantization/tools.h"

namespace moe::config {
namespace {

constexpr std::string_view kPacking = "packing_format", kBits = "bits", kBackend = "backend", kType = "data_type",
                           kGroup = "group_size", kSymmetric = "sym", kExtra = "extra_config",
                           kBlocks = "block_name_to_quantize";
constexpr std::string_view kAutoRound = "AutoRound";
constexpr std::int64_t kPlainBits = 16;  // and more: not quantized

// What a module has: the object with a rule of extra_config over it.
struct Module {
  Overlaid source;
  std::int64_t bits = 0, activation_bits = kPlainBits;

  Result<std::int64_t> group() const {
    const Foreign& of = source.of(kGroup);
    MOE_TRY(const std::int64_t given, of.need_integer(kGroup, kGroupRange));
    return check_group(given, of.at(kGroup));
  }
  bool quantizes_activations() const { return activation_bits < kPlainBits; }
};

Resolved integers(const Module& m, Format format, ZeroPoints zeros) {
  for (const std::string_view key : {kGroup, kSymmetric})
    if (!m.source.of(key).has(key)) return lacks_member(m.source.whole, kAutoRound, key);
  MOE_TRY(const std::int64_t group, m.group());
  MOE_TRY(const bool symmetric, m.source.of(kSymmetric).need_boolean(kSymmetric));
  std::vector<std::string> suffixes = {"qweight", "scales", "qzeros"};
  if (format == Format::pack_quantized) {
    suffixes = {"weight_packed", "weight_scale", "weight_shape"};
    if (!symmetric) suffixes.emplace_back("weight_zero_point");
  }
  return resolved(integer_weights(static_cast<int>(m.bits), group, symmetric), std::nullopt, format,
                  std::move(suffixes), zeros);
}
Resolved as_gptq(const Module& m) { return integers(m, Format::gptq, ZeroPoints::plus_one); }
// Where the object says no more than "auto_round": GPTQ's words, with zero points as they are (gptq_v2).
Resolved as_gptq_v2(const Module& m) { return integers(m, Format::gptq, ZeroPoints::as_stored); }
Resolved as_awq(const Module& m) { return integers(m, Format::awq, ZeroPoints::as_stored); }
Resolved as_packed(const Module& m) { return integers(m, Format::pack_quantized, ZeroPoints::as_stored); }
Resolved as_mxfp4(const Module& m) {
  return resolved(m.quantizes_activations() ? "MXFP4" : "MXFP4A16", {"weight_packed", "weight_scale"});
}
Resolved as_mxfp8(const Module& m) {
  return resolved(m.quantizes_activations() ? "MXFP8" : "MXFP8A16", {"weight", "weight_scale"});
}
Resolved as_nvfp4(const Module& m) {
  std::vector<std::string> suffixes = {"weight_packed", "weight_scale", "weight_global_scale"};
  if (m.quantizes_activations()) suffixes.emplace_back("input_global_scale");
  return resolved(m.quantizes_activations() ? "NVFP4" : "NVFP4A16", std::move(suffixes));
}
// A scale for each row, and one for the activations of the projection.
Resolved as_fp8_static(const Module&) {
  const QuantArgs weights = quant_args(8, NumType::floating, Strategy::channel);
  return resolved(weights, quant_args(8, NumType::floating, Strategy::tensor), Format::float_quantized,
                  {"weight", "weight_scale", "input_scale"});
}
Resolved as_fp8_blocks(const Module& m) {
  const std::string_view key = m.source.of("weight_block_size").has("weight_block_size") ? "weight_block_size" : kGroup;
  const Foreign& of = m.source.of(key);
  MOE_TRY(const auto block, of.integers(key, {1, 65536}));
  if (block.size() != 2)
    return block.empty() ? fields::missing(of.at(key), "[rows, columns]")
                         : fields::unexpected(of.at(key), *of.get(key), "[rows, columns]");
  QuantArgs weights = quant_args(8, NumType::floating, Strategy::block);
  weights.block_structure = {{block[0], block[1]}};
  QuantArgs activations = quant_args(8, NumType::floating, Strategy::group);
  activations.group_size = block[1];
  activations.dynamic = Dynamic::yes;
  return resolved(weights, activations, Format::float_quantized, {"weight", "weight_scale_inv"});
}
Resolved as_fp8_tensor(const Module& m) {
  const Foreign& of = m.source.of(kGroup);
  MOE_TRY(const auto group, of.integer(kGroup, kGroupRange));
  if (group.value_or(0) > 0) return unread(of.at(kGroup), cat("found ", *group, " of 8-bit floats, read is 0 or -1"));
  const Strategy strategy = group == -1 ? Strategy::channel : Strategy::tensor;
  return resolved(quant_args(8, NumType::floating, strategy), std::nullopt, Format::float_quantized,
                  {"weight", "weight_scale"});
}

// A row for each container. packing: behind "auto_round" and its colon. types: words of data_type, the usual one first.
// group: the only size that a group can have; 0: the object says it.
struct Container {
  std::string_view packing;
  std::array<std::string_view, 3> types;
  std::array<std::int64_t, 2> bits;
  std::int64_t group;
  Resolved (*resolve)(const Module&);
};
constexpr std::array kContainers = {
    Container{"auto_gptq", {"int"}, {4, 8}, 0, as_gptq},
    Container{"auto_awq", {"int"}, {4}, 0, as_awq},
    Container{"", {"int"}, {4, 8}, 0, as_gptq_v2},
    Container{"llm_compressor", {"int"}, {4, 8}, 0, as_packed},
    Container{"llm_compressor", {"mx_fp", "mx_fp4", "mx_fp4e2m1"}, {4}, 32, as_mxfp4},
    Container{"llm_compressor", {"mx_fp", "mx_fp8", "mx_fp8e4m3"}, {8}, 32, as_mxfp8},
    Container{"llm_compressor", {"nv_fp", "nv_fp4", "nv_fp4_with_static_gs"}, {4}, 16, as_nvfp4},
    Container{"fp8_static", {"fp", "fp8", "fp8_e4m3"}, {8}, 0, as_fp8_static},
    Container{"fp8", {"fp", "fp8", "fp8_e4m3"}, {8}, 0, as_fp8_blocks},
    Container{"", {"fp", "fp8", "fp8_e4m3"}, {8}, 0, as_fp8_tensor},
};
constexpr bool has(const auto& values, const auto& one) {
  return std::find(values.begin(), values.end(), one) != values.end();
}

// What the table leaves out, by the name that AutoRound gives it; else the words that were found.
std::string name_of(std::string_view type, std::int64_t bits) {
  if (type.starts_with("mx_int")) return cat("MXINT", bits);
  if (type.starts_with("nvfp4_v2")) return "NVFP4_E5M3";
  return cat(bits, "-bit ", type);
}

// What stands behind "auto_round" and its colon. Older files say it as `backend`, where the names of kernels follow
// that of the container; integers of files that say nothing are GPTQ's.
struct Packing {
  std::string_view key = kPacking;
  std::string given, container;
};
Result<Packing> packing_of(const Foreign& h, bool integers) {
  Packing p;
  MOE_TRY(const auto packing, h.text(kPacking));
  MOE_TRY(const auto backend, h.text(kBackend));
  const bool older = integers && !packing && backend && *backend != "auto";
  if (older) p.key = kBackend;
  p.given = older ? *backend : packing.value_or(integers ? "auto_round:auto_gptq" : "auto_round");
  p.container = fields::lower_ascii(p.given);
  if (p.container.starts_with("auto_round")) p.container.erase(0, std::string_view("auto_round").size());
  if (p.container.starts_with(':')) p.container.erase(0, 1);
  struct Word {
    std::string_view begin, container;
  };
  constexpr std::array kWords = {Word{"auto_gptq", "auto_gptq"}, Word{"gptq", "auto_gptq"},
                                 Word{"auto_awq", "auto_awq"},   Word{"awq", "auto_awq"},
                                 Word{"exllamav2", ""},          Word{"triton", ""}};
  for (const Word& w : kWords)
    if (p.container == w.begin || (p.container.starts_with(w.begin) && p.container[w.begin.size()] == ':')) {
      p.container = w.container;
      break;
    }
  if (p.container == "auto") p.container = "auto_gptq";
  return p;
}

Resolved scheme_of(const Foreign& h, const Foreign* rule) {
  Module m{.source = {h, rule}};
  if (!m.source.of(kBits).has(kBits)) return lacks_member(h, kAutoRound, kBits);
  MOE_TRY(m.bits, m.source.of(kBits).need_integer(kBits, {1, 64}));
  if (m.bits >= kPlainBits) return unquantized();
  MOE_TRY(const auto activation_bits, m.source.of("act_bits").integer("act_bits", {1, 64}));
  m.activation_bits = activation_bits.value_or(kPlainBits);
  MOE_TRY(const auto given_type, m.source.of(kType).text(kType));
  std::string type = fields::lower_ascii(given_type.value_or("int"));
  constexpr std::string_view kRounding = "_rceil";  // of scales, when they were made
  if (type.starts_with("mx_fp") && type.ends_with(kRounding)) type.resize(type.size() - kRounding.size());
  MOE_TRY(const Packing given, packing_of(h, type == "int"));
  const std::string& packing = given.container;
  for (const Container& c : kContainers) {
    if (c.packing != packing || type.empty() || !has(c.types, type) || !has(c.bits, m.bits)) continue;
    const Foreign& of = m.source.of(kGroup);
    if (c.group != 0 && of.has(kGroup)) {
      MOE_TRY(const std::int64_t group, of.need_integer(kGroup, kGroupRange));
      if (group != c.group)
        return fields::fault(of.at(kGroup), cat("found ", group, ", groups of ", type, " have ", c.group, " columns"));
    }
    return c.resolve(m);
  }
  const auto some = [&](auto&& is) { return std::any_of(kContainers.begin(), kContainers.end(), is); };
  const bool known = some([&](const Container& c) { return c.packing == packing; });
  const bool known_type = some([&](const Container& c) { return c.packing == packing && has(c.types, type); });
  const std::string_view odd = known_type ? kBits : kType;
  std::string read;
  for (const Container& c : kContainers)
    if (!known || c.packing == packing)
      read += cat(read.empty() ? "" : ", ", c.bits[0], c.bits[1] != 0 ? cat(" or ", c.bits[1]) : "", " bits of ",
                  c.types[0], " in auto_round", c.packing.empty() ? "" : ":", c.packing);
  return unread(
      known ? m.source.of(odd).at(odd) : h.at(given.key),
      cat("AutoRound's ", name_of(type, m.bits), " weights in ", given.given, " are not read, read are ", read));
}

// A name is for the module of that name; what has a character of a pattern is found anywhere in a name, as re.search.
bool is_pattern(std::string_view key) { return key.find_first_of("*+?^$()[]{}|\\") != std::string_view::npos; }

Result<std::vector<Foreign>> rules_of(const Foreign& h, const LayerNames& layer, RuleOfNames& names) {
  std::vector<Foreign> rules;
  MOE_TRY(const auto extra, h.object(kExtra));
  if (!extra) return rules;
  const auto add = [&](const std::string& key, const json::Value& value) -> Result<bool> {
    MOE_TRY(Foreign rule, Foreign::open(value, extra->at(key)));
    rules.push_back(std::move(rule));
    return true;
  };
  for (const auto& [key, value] : extra->members()) {  // names win over patterns
    if (is_pattern(key) || !layer.expert_of(key)) continue;
    if (const auto expert = layer.expert_of(key); layer.find(key))
      names.add_named(rules.size(), key);
    else
      names.add(rules.size(), *expert * layer.projections.size(), layer.projections.size());
    MOE_TRY([[maybe_unused]] const bool added, add(key, value));
  }
  if (const json::Value* of_all = extra->get(layer.module)) {  // single ones win over the module
    names.add_rest(rules.size());
    MOE_TRY([[maybe_unused]] const bool added, add(std::string(layer.module), *of_all));
  }
  Matcher matcher;
  for (const auto& [key, value] : extra->members()) {
    if (!is_pattern(key) || names.complete()) continue;
    const std::string pattern = key.starts_with(".*") && key.find('|') == key.npos ? key : cat(".*(?:", key, ")");
    MOE_TRY(const Hits hits, matcher.names(pattern, layer, extra->at(key), {.module_too = true}));
    if (std::find(hits.begin(), hits.end(), true) == hits.end()) continue;
    names.add(rules.size(), hits);
    MOE_TRY([[maybe_unused]] const bool added, add(key, value));
  }
  return rules;
}

// A list, which may be of lists, or one text with commas: the beginnings of names. What is in none of them is not
// quantized.
Result<bool> is_in_a_block(const Foreign& h, const LayerNames& layer) {
  const json::Value* value = h.get(kBlocks);
  if (value == nullptr) return true;
  std::vector<std::string> blocks;
  if (const std::string* text = value->string()) {
    for (std::size_t at = 0; at <= text->size();) {
      const std::size_t comma = std::min(text->find(',', at), text->size());
      blocks.push_back(text->substr(at, comma - at));
      at = comma + 1;
    }
  } else {
    const std::string expected = "a text, an array of texts, or one of such arrays";
    if (value->array() == nullptr) return fields::unexpected(h.at(kBlocks), *value, expected);
    for (const json::Value& one : *value->array())
      for (const json::Value& block : one.array() != nullptr ? *one.array() : json::Array{one}) {
        if (block.string() == nullptr) return fields::unexpected(h.at(kBlocks), block, expected);
        blocks.emplace_back(*block.string());
      }
  }
  for (std::string_view block : blocks) {
    while (block.starts_with(' ')) block.remove_prefix(1);
    while (block.ends_with(' ')) block.remove_suffix(1);
    if (!block.empty() && layer.module.starts_with(block) &&
        (layer.module.size() == block.size() || layer.module[block.size()] == '.'))
      return true;
  }
  return blocks.empty();
}

}  // namespace

Resolved resolve_auto_round(const Foreign& h, const LayerNames& layer) {
  for (const std::string_view key : {"rotation_config", "spinquant_config"})
    if (h.has(key)) return unread(h.at(key), "weights that are rotated need their inputs rotated, too: not read");
  MOE_TRY(const bool quantized, is_in_a_block(h, layer));
  if (!quantized) return unquantized();
  RuleOfNames names(layer);
  MOE_TRY(const std::vector<Foreign> rules, rules_of(h, layer, names));
  return one_scheme(
      names, [&](std::size_t rule) { return scheme_of(h, rule < rules.size() ? &rules[rule] : nullptr); },
      [&](const RuleOfNames::Odd& odd) { return names.fault(odd, rules[odd.rule].pointer()); });
}

}  // namespace moe::config
