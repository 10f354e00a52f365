// Text -> Config (config.md 12 and 13): the rows of the layer here, the sections in their own files.
//
//   text --json::parse--> document --read_fields--> Config --write_fields--> resolved, canonical
//                            |
//                            +-- aliases renamed --> input (for merge)
//
// The order of the checks is part of the contract: one fault is reported, the first.
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/index.h"
#include "base/text.h"
#include "config/field_rows.h"
#include "config/quantization/float_acts.h"
#include "config/quantization/foreign.h"
#include "config/sections.h"
#include "config/settings.h"
#include "scheme/activation.h"

namespace moe::config {
namespace {

using fields::Members;

struct Named {
  std::int64_t value;
  std::string_view name;
};

// The one of `names` that is given; two of them are a fault of the second.
Result<Named> one_of(const Members& members, fields::Words names, fields::IntegerRange range) {
  std::string_view given;
  for (const std::string_view name : names) {
    if (!members.has(name)) continue;
    if (!given.empty()) {
      return fields::fault(members.at(name), cat("the same setting as /", given, ", expected only one of them"));
    }
    given = name;
  }
  if (given.empty()) {
    return fields::missing(members.at(names[0]),
                           names.size() == 1 ? fields::range_text(range) : "one of " + fields::join(names));
  }
  MOE_TRY(const std::int64_t value, members.integer(given, range, 0));
  return Named{value, given};
}

using Then = Check (*)(const Members&, const Named&, Draft&);
Check read_size(const Members& members, std::string_view first, fields::IntegerRange range, std::int64_t& out,
                Then then, Draft& draft) {
  MOE_TRY(const Named named, one_of(members, kSettings.find(first)->names(), range));
  out = named.value;
  return then == nullptr ? ok() : then(members, named, draft);
}

Check check_top_k(const Members& members, const Named& top_k, Draft& draft) {
  draft.top_k_name = top_k.name;
  const std::int64_t experts = draft.config.num_experts;
  if (top_k.value <= experts) return ok();
  return fields::fault(members.at(top_k.name),
                       cat("found ", top_k.value, ", expected at most num_experts = ", experts));
}

// Divided among the ranks when they are known (parallel.cpp).
Check keep_width(const Members&, const Named& width, Draft& draft) {
  draft.width = width.value;
  draft.width_name = width.name;
  return ok();
}
void write_part_width(const Draft& d, json::Object& out) {
  out.emplace_back("intermediate_size_per_partition", d.config.intermediate_size_per_partition);
}

Check read_version(const Members& members, Draft&) {
  MOE_CHECK(members.integer("version", {1, 1}));
  return ok();
}
void write_version(const Draft&, json::Object& out) { out.emplace_back("version", 1); }

Check read_schema_name(const Members& members, Draft&) {
  MOE_CHECK(members.text("$schema", 2048));
  return ok();
}

Check read_projection_names(const Members& members, Draft& draft) {
  Config& config = draft.config;
  const json::Value* names = members.get("projection_names");
  if (names == nullptr) return ok();
  const json::Array* list = names->array();
  if (list == nullptr || list->size() != 3) {
    return fields::unexpected(members.at("projection_names"), *names, "an array with the names of gate, up and down");
  }
  config.projection_names.clear();
  for (std::size_t i = 0; i < list->size(); ++i) {
    const std::string pointer = cat(members.at("projection_names"), "/", i);
    const std::string* s = (*list)[i].string();
    if (s == nullptr || s->empty() || character_count(*s) > 64) {
      return fields::unexpected(pointer, (*list)[i], "a string of 1 to 64 characters");
    }
    if (std::find(config.projection_names.begin(), config.projection_names.end(), *s) !=
        config.projection_names.end()) {
      return fields::fault(
          pointer, cat("the name ", fields::brief((*list)[i]), " is listed twice, expected three different names"));
    }
    config.projection_names.push_back(*s);
  }
  return ok();
}

void write_projection_names(const Draft& d, json::Object& out) {
  out.emplace_back("projection_names", json::Array(d.config.projection_names.begin(), d.config.projection_names.end()));
}

// A list of different names, if it is there.
struct NameList {
  std::string_view member;
  std::size_t least, most, characters;
  const char* expected;
};
Check read_names(const Members& members, const NameList& rule, std::vector<std::string>& out) {
  const json::Value* names = members.get(rule.member);
  if (names == nullptr) return ok();
  const std::string pointer = members.at(rule.member);
  const json::Array* list = names->array();
  if (list == nullptr || list->size() < rule.least || list->size() > rule.most)
    return fields::unexpected(pointer, *names, rule.expected);
  out.clear();
  for (const json::Value& entry : *list) {
    const std::string* s = entry.string();
    const std::string at = cat(pointer, "/", out.size());
    if (s == nullptr || s->empty() || character_count(*s) > rule.characters)
      return fields::unexpected(at, entry, cat("a string of 1 to ", rule.characters, " characters"));
    if (std::find(out.begin(), out.end(), *s) != out.end())
      return fields::fault(at, cat("the name ", fields::brief(entry), " is listed twice"));
    out.push_back(*s);
  }
  return ok();
}

Check read_stacked_names(const Members& members, Draft& draft) {
  constexpr NameList kRule = {"stacked_names", 2, 3, 128, "the names of w13 and w2, or of gate, up and down"};
  MOE_CHECK(read_names(members, kRule, draft.config.stacked_names));
  if (members.get("stacked_names") != nullptr && draft.config.stacked_weights == StackedWeights::none)
    return fields::fault(members.at("stacked_names"),
                         "found names, but stacked_weights is none: they would not be read");
  return ok();
}
void write_stacked_names(const Draft& d, json::Object& out) {
  const std::vector<std::string>& names = d.config.stacked_names;
  if (names != Config().stacked_names) out.emplace_back("stacked_names", json::Array(names.begin(), names.end()));
}

Check read_ignored_tensors(const Members& members, Draft& draft) {
  constexpr NameList kRule = {"ignored_tensors", 0, 64, 512, "a list of at most 64 names of tensors, or their ends"};
  return read_names(members, kRule, draft.config.ignored_tensors);
}
void write_ignored_tensors(const Draft& d, json::Object& out) {
  const std::vector<std::string>& names = d.config.ignored_tensors;
  if (!names.empty()) out.emplace_back("ignored_tensors", json::Array(names.begin(), names.end()));
}

Check read_expert_norm(const Members& members, Draft& d) {
  const Config& c = d.config;
  MOE_CHECK(read_side_tensor(members, "expert_norm", {c.hidden_dim}, d.config.expert_norm));
  if (!c.expert_norm.wanted()) return ok();
  struct Rule {
    bool allowed;
    const char* needs;
  };
  for (const Rule& rule :
       {Rule{c.parallel.tp_size == 1, "tp_size 1"},  // a rank has a part of each sum, of which no norm can be taken
        Rule{!c.apply_router_weight_on_input, "weights that come after it, not on the input"},
        Rule{c.routing.num_fused_shared_experts == 0, "no fused shared experts, which would have it, too"}})
    if (!rule.allowed) return fields::fault("/expert_norm", cat("found one, which needs ", rule.needs));
  return ok();
}
void write_expert_norm(const Draft& d, json::Object& out) {
  write_side_tensor("expert_norm", d.config.expert_norm, out);
}

Check read_activation(const Members& members, Draft& draft) {
  const json::Value* v = members.get("activation");
  if (v == nullptr) return ok();
  const std::string* name = v->string();
  const std::optional<Activation> a = name == nullptr ? std::nullopt : activation_from_name(*name);
  if (!a) return fields::unexpected(members.at("activation"), *v, "one of " + activation_words());
  draft.config.activation = *a;
  return ok();
}
void write_activation(const Draft& d, json::Object& out) {
  out.emplace_back("activation", word_value(kActivationNames, d.config.activation));
  out.emplace_back("is_gated", is_gated(d.config.activation));
}

using Owner = Draft;
// clang-format off
constexpr fields::Field<Owner> kActivationParams[] = {
#define MOE_FIELD_PLACE(draft) draft.config
#define MOE_FIELDS_ACTIVATION_PARAMS
#include "config/field_rows.inc"
};
// clang-format on

Check read_activation_params(const Members& members, Draft& draft) {
  Config& c = draft.config;
  static constexpr std::array<std::string_view, 5> kParams = {"alpha", "beta", "limit", "gate_cap", "up_cap"};
  MOE_TRY(const Members params,
          fields::open_fields(members.get("activation_params"), "/activation_params", kActivationParams));
  MOE_CHECK(fields::read_fields(params, kActivationParams, draft));
  const ActivationParams use = activation_params(c.activation);
  const std::array<bool, 5> used = {use.alpha_beta, use.alpha_beta, use.limit, use.caps, use.caps};
  for (std::size_t i = 0; i < kParams.size(); ++i) {
    if (params.has(kParams[i]) && !used[i]) {
      return fields::fault(params.at(kParams[i]),
                           cat("found ", fields::brief(*params.get(kParams[i])), ", but activation ",
                               activation_name(c.activation), " has no such parameter"));
    }
  }
  if (!c.alpha) c.alpha = use.default_alpha;
  if (!c.beta) c.beta = use.default_beta;
  if (!c.limit) c.limit = use.default_limit;
  if (!c.gate_cap) c.gate_cap = use.default_gate_cap;
  if (!c.up_cap) c.up_cap = use.default_up_cap;
  return ok();
}

void write_activation_params(const Draft& d, json::Object& out) {
  out.emplace_back("activation_params", fields::write_fields(kActivationParams, d));
}

Check read_w13_layout(const Members& members, Draft& draft) {
  Config& c = draft.config;
  MOE_TRY(const std::optional<std::size_t> given, members.word("w13_layout", kW13LayoutNames));
  const bool interleaved = given && static_cast<W13Layout>(*given) == W13Layout::interleaved;
  const auto refuse = [&](const char* why) {
    return fields::fault("/w13_layout", cat("found ", fields::brief(*members.get("w13_layout")), ", but ", why));
  };
  if (given && !is_gated(c.activation)) return refuse("an activation without a gate has no order of gate and up rows");
  if (given && c.activation == Activation::swigluoai && !interleaved) {
    return refuse("swigluoai expects interleaved rows; for concatenated ones there is swigluoai_uninterleave");
  }
  if (interleaved && c.activation == Activation::swigluoai_uninterleave) {
    return refuse("swigluoai_uninterleave expects concatenated rows; for interleaved ones there is swigluoai");
  }
  c.w13_layout = given ? static_cast<W13Layout>(*given) : usual_w13_layout(c.activation);
  return ok();
}

void write_w13_layout(const Draft& d, json::Object& out) {
  const std::optional<W13Layout>& layout = d.config.w13_layout;
  out.emplace_back("w13_layout", layout ? word_value(kW13LayoutNames, *layout) : json::Value());
}

constexpr std::array<DType, 3> kDTypes = {DType::f32, DType::f16, DType::bf16};  // of kDTypeNames

Check read_dtype(const Members& members, std::string_view key, DType fallback, DType& out) {
  MOE_TRY(const std::optional<std::size_t> i, members.word(key, kDTypeNames));
  out = i ? kDTypes[*i] : fallback;
  return ok();
}
Check read_in_dtype(const Members& members, Draft& d) {
  return read_dtype(members, "in_dtype", DType::bf16, d.config.in_dtype);
}
Check read_out_dtype(const Members& members, Draft& d) {
  return read_dtype(members, "out_dtype", d.config.in_dtype, d.config.out_dtype);
}
Check read_logits_dtype(const Members& members, Draft& d) {
  return read_dtype(members, "router_logits_dtype", d.config.in_dtype, d.config.router_logits_dtype);
}

json::Value dtype_value(DType t) {
  return json::Value(at(kDTypeNames, std::find(kDTypes.begin(), kDTypes.end(), t) - kDTypes.begin()));
}
void write_in_dtype(const Draft& d, json::Object& out) { out.emplace_back("in_dtype", dtype_value(d.config.in_dtype)); }
void write_out_dtype(const Draft& d, json::Object& out) {
  out.emplace_back("out_dtype", dtype_value(d.config.out_dtype));
}
void write_logits_dtype(const Draft& d, json::Object& out) {
  out.emplace_back("router_logits_dtype", dtype_value(d.config.router_logits_dtype));
}

Check read_backend(const Members& members, Draft& draft) {
  const json::Value* v = members.get("moe_backend");
  if (v == nullptr) return ok();
  const std::string* s = v->string();
  std::string word = s == nullptr ? std::string() : fields::lower_ascii(*s);
  std::replace(word.begin(), word.end(), '-', '_');
  if (!fields::index_of(kBackendNames, word))
    return fields::unexpected("/moe_backend", *v, fields::join(kBackendNames));
  draft.config.moe_backend = std::move(word);
  return ok();
}

void write_backend(const Draft& d, json::Object& out) { out.emplace_back("moe_backend", d.config.moe_backend); }

Check read_vllm_env(const Members& members, Draft& draft) {
  const json::Value* given = members.get("vllm_env");
  MOE_TRY(const Members env, Members::open(given, "/vllm_env", kVllmEnvNames));
  if (given == nullptr) return ok();
  for (const auto& [key, value] : *given->object()) {
    MOE_TRY(std::optional<std::string> text, env.text(key, 64));
    draft.config.vllm_env.emplace_back(key, std::move(*text));
  }
  return ok();
}
void write_vllm_env(const Draft& d, json::Object& out) {
  json::Object env;
  for (const auto& [key, value] : d.config.vllm_env) env.emplace_back(key, json::Value(value));
  out.emplace_back("vllm_env", std::move(env));
}

// clang-format off
constexpr fields::Field<Owner> kLayer[] = {
#define MOE_FIELD_PLACE(draft) draft.config
#define MOE_FIELDS_LAYER
#include "config/field_rows.inc"
};
// clang-format on

// A member of a section that stands outside of it.
Check check_sections(const json::Value& document) {
  if (document.object() == nullptr) return ok();
  const std::vector<std::string_view> known = fields::names_of(kLayer);
  for (const auto& [key, value] : *document.object()) {
    if (fields::index_of(known, key)) continue;
    const char* section = is_parallel_member(key) ? "parallel" : is_routing_member(key) ? "routing" : nullptr;
    if (section == nullptr) return ok();  // open_fields refuses it
    return fields::fault(fields::child("", key), cat("unknown member ", fields::brief(json::Value(key)),
                                                     " (did you mean {\"", section, "\": {\"", key, "\": ..}}?)"));
  }
  return ok();
}

}  // namespace

Result<Config> config_from_document(json::Value document) {
  MOE_CHECK(check_sections(document));
  MOE_TRY(const Members members, fields::open_fields(&document, "", kLayer));
  Draft draft;
  draft.platform = members.get("platform");
  MOE_CHECK(fields::read_fields(members, kLayer, draft));
  Config& c = draft.config;
  const bool for_a_cpu = c.platform_type == DeviceType::automatic || c.platform_type == DeviceType::cpu;
  if (for_a_cpu && c.scales_whole_batches()) return whole_batches_unsupported();
  c.resolved = fields::write_fields(kLayer, draft);
  c.canonical = json::write(c.resolved, json::MemberOrder::sorted);
  rename_aliases(document);
  c.input = std::move(document);
  return std::move(c);
}

Result<json::Value> parse_document(std::string_view text) {
  MOE_TRY(json::Value document, json::parse(text, {.max_bytes = kMostForeignBytes}));
  if (document.find("hf_quantization_config") != nullptr) return document;
  return text.size() <= json::Limits().max_bytes ? document : json::parse(text);  // refused, in its words
}

Result<Config> parse_config(std::string_view text) {
  MOE_TRY(json::Value document, parse_document(text));
  return config_from_document(std::move(document));
}

}  // namespace moe::config
