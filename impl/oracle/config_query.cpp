// From a layer's config to the question of its oracle: which oracle, which keys (checkpoints.md 4,
// wna16.md 1.5a, w4a8_int8.md 2.2). See query.h.
#include <array>

#include "base/index.h"
#include "base/text.h"
#include "oracle/backend.h"
#include "oracle/query.h"

namespace moe::oracle {
namespace {

bool is(const QuantArgs& a, int bits, NumType type) { return a.num_bits == bits && a.type == type; }
bool has_group(const QuantArgs& a, std::int64_t g) { return a.group_size && *a.group_size == g; }

// First match, in the order in which vLLM's compressed-tensors method tries its schemes.
struct OracleRow {
  OracleId id;
  bool (*matches)(const QuantArgs& w, const std::optional<QuantArgs>& a);
};
constexpr std::array kOracleRows = {
    OracleRow{OracleId::mxfp4,
              [](const QuantArgs& w, const std::optional<QuantArgs>&) {
                return is(w, 4, NumType::floating) && w.strategy == Strategy::group && has_group(w, 32);
              }},
    OracleRow{OracleId::mxfp8,
              [](const QuantArgs& w, const std::optional<QuantArgs>&) {
                return is(w, 8, NumType::floating) && w.strategy == Strategy::group && has_group(w, 32);
              }},
    OracleRow{OracleId::int_wna16,
              [](const QuantArgs& w, const std::optional<QuantArgs>& a) {
                return w.type == NumType::integer && !a && w.dynamic == Dynamic::no &&
                       (w.strategy == Strategy::group || w.strategy == Strategy::channel);
              }},
    OracleRow{OracleId::nvfp4,
              [](const QuantArgs& w, const std::optional<QuantArgs>&) {
                return is(w, 4, NumType::floating) && w.strategy == Strategy::tensor_group;
              }},
    OracleRow{OracleId::fp8,
              [](const QuantArgs& w, const std::optional<QuantArgs>&) { return is(w, 8, NumType::floating); }},
    OracleRow{OracleId::int8,
              [](const QuantArgs& w, const std::optional<QuantArgs>& a) {
                return is(w, 8, NumType::integer) && a && is(*a, 8, NumType::integer);
              }},
    OracleRow{OracleId::w4a8_fp8,
              [](const QuantArgs& w, const std::optional<QuantArgs>& a) {
                return is(w, 4, NumType::integer) && w.symmetric && w.dynamic == Dynamic::no &&
                       (w.strategy == Strategy::group || w.strategy == Strategy::channel) && a &&
                       is(*a, 8, NumType::floating) && a->strategy == Strategy::token && a->dynamic == Dynamic::yes;
              }},
};

// The spelling of the canonical document.
std::string document_dtype(DType t) {
  switch (t) {
    case DType::f32:
      return "float32";
    case DType::f16:
      return "float16";
    case DType::bf16:
      return "bfloat16";
    default:
      return dtype_name(t);
  }
}

std::string number_word(const QuantArgs& a) { return cat(a.type == NumType::integer ? "int" : "fp", a.num_bits); }

std::string strategy_word(const QuantArgs& a) {
  if (a.group_size && *a.group_size > 0) return cat("g", *a.group_size);
  return std::string(at(kStrategyNames, a.strategy));
}

}  // namespace

OracleId oracle_of(const Quantization& q) {
  if (!q.weights) return OracleId::unquantized;
  for (const OracleRow& row : kOracleRows)
    if (row.matches(*q.weights, q.input_activations)) return row.id;
  return q.is_w4a8_int8() ? OracleId::w4a8_int8 : OracleId::no_oracle;
}

Query query_of(const Config& config, const Platform& platform) {
  Query q;
  q.oracle = oracle_of(config.quantization);
  q.policy = config.selection_policy;
  q.platform = platform;
  q.moe.moe_backend = config.moe_backend;
  q.moe.activation = config.activation;
  q.moe.is_act_and_mul = is_gated(config.activation);
  q.moe.routing_method = config.routing.method;
  q.moe.router_logits_dtype = document_dtype(config.router_logits_dtype);
  q.moe.in_dtype = document_dtype(config.in_dtype);
  q.moe.hidden_dim = config.hidden_dim;
  q.moe.num_experts = config.num_physical_experts;
  q.moe.experts_per_token = config.top_k;
  q.moe.intermediate_size_per_partition = config.intermediate_size_per_partition;
  q.moe.num_local_experts = config.num_local_experts;
  q.moe.has_bias = config.has_bias;
  q.moe.has_hash_routing = config.routing.hash_routing;
  const ParallelConfig& p = config.parallel;
  q.moe.parallel = {.tp_size = p.tp_size,
                    .dp_size = p.dp_size,
                    .pcp_size = p.pcp_size,
                    .ep_size = p.ep_size,
                    .sp_size = p.sp_size,
                    .use_ep = p.use_ep,
                    .enable_eplb = p.enable_eplb,
                    .all2all_backend = p.all2all_backend,
                    .use_batched_activation_format = std::nullopt};
  q.env = config.vllm_env;
  q.layer = &config;
  if (const Family& family = family_of(q.oracle); family.set_keys != nullptr) family.set_keys(q, config);
  return q;
}

std::optional<Element> weight_element(const Config& config) {
  if (config.quantization.weights) {
    const QuantArgs& w = *config.quantization.weights;
    return element_of(w.type, w.num_bits);
  }
  return config.in_dtype == DType::bf16 ? Element::bf16 : config.in_dtype == DType::f16 ? Element::f16 : Element::f32;
}

std::string weight_scheme_word(const Quantization& q) {
  if (!q.weights) return "none";
  return cat(number_word(*q.weights), "_", strategy_word(*q.weights), q.weights->symmetric ? "_sym" : "_asym");
}

std::string activation_scheme_word(const Quantization& q) {
  if (!q.input_activations) return "none";
  const QuantArgs& a = *q.input_activations;
  return cat(number_word(a), "_", strategy_word(a), a.dynamic == Dynamic::no ? "_static" : "_dynamic");
}

}  // namespace moe::oracle
