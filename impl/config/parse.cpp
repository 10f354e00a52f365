// Text -> Config (config.md 12 and 13): the top-level members here, the sections in their own files.
//
//   text --json::parse--> document --read_* in the order of the rules--> Config
//                            |                                             |
//                            +-- aliases renamed --> input (for merge)     +--> resolved, canonical
//
// The order of the checks is part of the contract: one fault is reported, the first.
#include <algorithm>
#include <array>
#include <utility>

#include "base/text.h"
#include "config/fields.h"
#include "config/sections.h"
#include "scheme/activation.h"

namespace moe {
namespace {

using fields::Members;

// clang-format off
constexpr std::array<std::string_view, 36> kMembers = {
    "$schema", "version", "name", "projection_names", "num_experts", "top_k", "experts_per_token",
    "num_experts_per_tok", "hidden_dim", "hidden_size", "intermediate_size", "moe_intermediate_size",
    "intermediate_size_per_partition", "activation", "activation_params", "w13_layout", "has_bias", "in_dtype",
    "out_dtype", "router_logits_dtype", "moe_backend", "max_num_tokens", "apply_router_weight_on_input",
    "disable_inplace", "quantization", "hf_quantization_config", "parallel", "routing", "platform",
    "selection_policy", "bit_compat", "compute", "activation_quant", "marlin_input_dtype", "emulation_layout", "vllm_env"};

constexpr std::array<std::string_view, 15> kBackends = {
    "auto", "cpu", "b12x", "triton", "deep_gemm", "deep_gemm_mega_moe", "cutlass", "flashinfer_trtllm",
    "flashinfer_cutlass", "flashinfer_cutedsl", "marlin", "humming", "triton_unfused", "aiter", "emulation"};

constexpr std::array<std::string_view, 16> kVllmEnv = {
    "VLLM_BATCH_INVARIANT", "VLLM_FLASHINFER_MOE_BACKEND", "VLLM_HUMMING_MOE_GEMM_TYPE", "VLLM_MOE_USE_DEEP_GEMM",
    "VLLM_MXFP4_USE_MARLIN", "VLLM_ROCM_USE_AITER", "VLLM_ROCM_USE_AITER_MOE", "VLLM_TEST_FORCE_FP8_MARLIN",
    "VLLM_USE_DEEP_GEMM", "VLLM_USE_FLASHINFER_MOE_FP16", "VLLM_USE_FLASHINFER_MOE_FP4", "VLLM_USE_FLASHINFER_MOE_FP8",
    "VLLM_USE_FLASHINFER_MOE_INT4", "VLLM_USE_FLASHINFER_MOE_MXFP4_BF16", "VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8",
    "VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8_CUTLASS"};
// clang-format on

// One setting under several names.
constexpr std::array<std::string_view, 3> kTopKNames = {"top_k", "experts_per_token", "num_experts_per_tok"};
constexpr std::array<std::string_view, 2> kHiddenNames = {"hidden_dim", "hidden_size"};
constexpr std::array<std::string_view, 3> kWidthNames = {"intermediate_size", "moe_intermediate_size",
                                                         "intermediate_size_per_partition"};
constexpr fields::Range kSize = {1, std::int64_t{1} << 20};

struct Named {
  std::int64_t value;
  std::string_view name;
};

// The one of `names` that is given; two of them are a fault of the second.
Result<Named> one_of(const Members& members, fields::Words names, fields::Range range) {
  std::string_view given;
  for (const std::string_view name : names) {
    if (!members.has(name)) continue;
    if (!given.empty()) {
      return fields::fault(members.at(name),
                           "the same setting as /" + std::string(given) + ", expected only one of them");
    }
    given = name;
  }
  if (given.empty()) return fields::missing(members.at(names[0]), "one of " + fields::join(names));
  MOE_TRY(const std::int64_t value, members.integer(given, range, 0));
  return Named{value, given};
}

Check read_names(const Members& members, Config& config) {
  MOE_CHECK(members.integer("version", {1, 1}));
  MOE_TRY(std::optional<std::string> name, members.text("name", 512));
  if (name) config.name = std::move(*name);
  MOE_CHECK(members.text("$schema", 2048));
  const json::Value* names = members.get("projection_names");
  if (names == nullptr) return ok();
  const json::Array* list = names->array();
  if (list == nullptr || list->size() != 3) {
    return fields::unexpected(members.at("projection_names"), *names, "an array with the names of gate, up and down");
  }
  config.projection_names.clear();
  for (std::size_t i = 0; i < list->size(); ++i) {
    const std::string pointer = members.at("projection_names") + "/" + std::to_string(i);
    const std::string* s = (*list)[i].string();
    if (s == nullptr || s->empty() || character_count(*s) > 64) {
      return fields::unexpected(pointer, (*list)[i], "a string of 1 to 64 characters");
    }
    if (std::find(config.projection_names.begin(), config.projection_names.end(), *s) !=
        config.projection_names.end()) {
      return fields::fault(
          pointer, "the name " + fields::brief((*list)[i]) + " is listed twice, expected three different names");
    }
    config.projection_names.push_back(*s);
  }
  return ok();
}

Check read_sizes(const Members& members, Draft& draft) {
  Config& c = draft.config;
  if (!members.has("num_experts")) return fields::missing("/num_experts", "an integer in [1, 65536]");
  MOE_TRY(c.num_experts, members.integer("num_experts", {1, 65536}, 0));
  MOE_TRY(const Named top_k, one_of(members, kTopKNames, {1, 65536}));
  if (top_k.value > c.num_experts) {
    return fields::fault(
        members.at(top_k.name),
        "found " + std::to_string(top_k.value) + ", expected at most num_experts = " + std::to_string(c.num_experts));
  }
  c.top_k = top_k.value;
  draft.top_k_name = top_k.name;
  MOE_TRY(const Named hidden, one_of(members, kHiddenNames, kSize));
  c.hidden_dim = hidden.value;
  MOE_TRY(const Named width, one_of(members, kWidthNames, kSize));
  draft.width = width.value;
  draft.width_name = width.name;
  return ok();
}

Check read_activation_params(const Members& members, Config& c) {
  static constexpr std::array<std::string_view, 3> kParams = {"alpha", "beta", "limit"};
  MOE_TRY(const Members params, Members::open(members.get("activation_params"), "/activation_params", kParams));
  MOE_TRY(c.alpha, params.number("alpha", {-1e6, 1e6}));
  MOE_TRY(c.beta, params.number("beta", {-1e6, 1e6}));
  MOE_TRY(c.limit, params.number("limit", {0, 1e30, true}));
  const ActivationParams use = activation_params(c.activation);
  const std::array<bool, 3> used = {use.alpha_beta, use.alpha_beta, use.limit};
  for (std::size_t i = 0; i < kParams.size(); ++i) {
    if (params.has(kParams[i]) && !used[i]) {
      return fields::fault(params.at(kParams[i]), "found " + fields::brief(*params.get(kParams[i])) +
                                                      ", but activation " + std::string(activation_name(c.activation)) +
                                                      " has no such parameter");
    }
  }
  if (!c.alpha) c.alpha = use.default_alpha;
  if (!c.beta) c.beta = use.default_beta;
  if (!c.limit) c.limit = use.default_limit;
  return ok();
}

Check read_w13_layout(const Members& members, Config& c) {
  MOE_TRY(const std::optional<std::size_t> given, members.word("w13_layout", kW13LayoutNames));
  const bool interleaved = given && static_cast<W13Layout>(*given) == W13Layout::interleaved;
  const auto refuse = [&](const char* why) {
    return fields::fault("/w13_layout", "found " + fields::brief(*members.get("w13_layout")) + ", but " + why);
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

Check read_activation(const Members& members, Config& c) {
  if (const json::Value* v = members.get("activation")) {
    const std::string* name = v->string();
    const std::optional<Activation> a = name == nullptr ? std::nullopt : activation_from_name(*name);
    if (!a) return fields::unexpected(members.at("activation"), *v, "one of " + activation_words());
    c.activation = *a;
  }
  MOE_CHECK(read_activation_params(members, c));
  return read_w13_layout(members, c);
}

Result<DType> dtype_member(const Members& members, std::string_view key, DType fallback) {
  static constexpr std::array<std::string_view, 3> kWords = {"float32", "float16", "bfloat16"};
  static constexpr std::array<DType, 3> kTypes = {DType::f32, DType::f16, DType::bf16};
  MOE_TRY(const std::optional<std::size_t> i, members.word(key, kWords));
  return i ? kTypes[*i] : fallback;
}

Result<std::string> backend_member(const Members& members) {
  const json::Value* v = members.get("moe_backend");
  if (v == nullptr) return std::string("auto");
  const std::string* s = v->string();
  std::string word = s == nullptr ? std::string() : fields::lower_ascii(*s);
  std::replace(word.begin(), word.end(), '-', '_');
  if (!fields::index_of(kBackends, word)) return fields::unexpected("/moe_backend", *v, fields::join(kBackends));
  return word;
}

Check read_layer(const Members& members, Config& c) {
  MOE_TRY(c.has_bias, members.boolean("has_bias", false));
  MOE_TRY(c.in_dtype, dtype_member(members, "in_dtype", DType::bf16));
  MOE_TRY(c.out_dtype, dtype_member(members, "out_dtype", c.in_dtype));
  MOE_TRY(c.router_logits_dtype, dtype_member(members, "router_logits_dtype", c.in_dtype));
  MOE_TRY(c.moe_backend, backend_member(members));
  MOE_TRY(c.max_num_tokens, members.integer("max_num_tokens", {1, std::int64_t{1} << 24}, 256));
  MOE_TRY(c.apply_router_weight_on_input, members.boolean("apply_router_weight_on_input", false));
  MOE_TRY(c.disable_inplace, members.boolean("disable_inplace", true));
  MOE_TRY(c.compute, members.word("compute", kComputeNames, Compute::automatic));
  MOE_TRY(c.activation_quant, members.word("activation_quant", kActivationQuantNames, ActivationQuant::automatic));
  MOE_TRY(c.marlin_input_dtype, members.word("marlin_input_dtype", kMarlinInputNames, MarlinInput::none));
  MOE_TRY(c.emulation_layout, members.word("emulation_layout", kEmulationNames, EmulationLayout::on_the_fly));
  return ok();
}

// compute, activation_quant and marlin_input_dtype against the quantization (config.md 13, last row).
Check check_arithmetic(const Members& members, const Config& c) {
  const std::optional<QuantArgs>&w = c.quantization.weights, &a = c.quantization.input_activations;
  const bool int_weights = w && w->type == NumType::integer;
  const bool int8_activations = a && a->type == NumType::integer && a->num_bits == 8;
  const auto refuse = [&](std::string_view key, const char* expected) {
    return fields::fault(members.at(key), "found " + fields::brief(*members.get(key)) + ", which needs " + expected);
  };
  if (c.compute == Compute::a8 && !(int_weights && (!a || int8_activations))) {
    return refuse("compute", "integer weights, and input_activations that are int8 or absent");
  }
  if (c.compute == Compute::a16 && a) return refuse("compute", "a checkpoint without input_activations");
  if (c.activation_quant != ActivationQuant::automatic && !int8_activations && c.compute != Compute::a8) {
    return refuse("activation_quant", "int8 input_activations or compute a8");
  }
  if (c.marlin_input_dtype == MarlinInput::none) return ok();
  if (!int_weights || a) return refuse("marlin_input_dtype", "integer weights without input_activations");
  if (w->actorder == ActOrder::group) return refuse("marlin_input_dtype", "weights without activation order");
  if (c.marlin_input_dtype == MarlinInput::fp8 && w->num_bits != 4)
    return refuse("marlin_input_dtype", "4-bit weights");
  return ok();
}

Check read_platform(const Members& members, Config& c) {
  const json::Value* given = members.get("platform");
  if (given == nullptr) return ok();
  MOE_TRY(PlatformMember p, parse_platform(*given, "/platform", PlatformUse::config));
  c.platform_type = p.type;
  c.platform_arch = p.arch;
  c.platform_features = p.features;
  c.platform_facts = std::move(p.facts);
  return ok();
}

Check read_policies(const Members& members, Config& c) {
  const json::Value* given = members.get("vllm_env");
  MOE_TRY(const Members env, Members::open(given, "/vllm_env", kVllmEnv));
  if (given != nullptr) {
    for (const auto& [key, value] : *given->object()) {
      MOE_TRY(std::optional<std::string> text, env.text(key, 64));
      c.vllm_env.emplace_back(key, std::move(*text));
    }
  }
  MOE_TRY(c.selection_policy, members.word("selection_policy", kPolicyNames, Policy::libmoe));
  MOE_TRY(c.bit_compat, members.word("bit_compat", kPolicyNames, Policy::libmoe));
  return ok();
}

}  // namespace

Result<Config> config_from_document(json::Value document) {
  MOE_TRY(const Members members, Members::open(&document, "", kMembers));
  Draft draft;
  Config& c = draft.config;
  MOE_CHECK(read_names(members, c));
  MOE_CHECK(read_sizes(members, draft));
  MOE_CHECK(read_activation(members, c));
  MOE_CHECK(read_layer(members, c));
  MOE_CHECK(read_parallel(document, draft));
  MOE_CHECK(read_routing(document, draft));
  MOE_CHECK(read_quantization(document, draft));
  MOE_CHECK(check_arithmetic(members, c));
  MOE_CHECK(read_platform(members, c));
  MOE_CHECK(read_policies(members, c));
  c.resolved = resolved_document(c, document);
  c.canonical = json::write(c.resolved, json::Order::sorted);
  rename_aliases(document);
  c.input = std::move(document);
  return std::move(c);
}

Result<Config> parse_config(std::string_view text) {
  MOE_TRY(json::Value document, json::parse(text));
  return config_from_document(std::move(document));
}

}  // namespace moe
