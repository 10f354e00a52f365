// The question an oracle answers, at the level of vLLM's own arguments (describe.md 2).
//
// moe_describe reads it from JSON; select_backend builds the same value from a Config, which then also
// hangs on it (`layer`) for the rules about what conversion and kernels need. Nothing here is detected.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/platform.h"
#include "base/result.h"
#include "config/config.h"
#include "layouts/layout.h"
#include "scheme/scheme.h"
#include "vllm/keys.h"
#include "vllm/profile.h"

namespace moe::oracle {

enum class OracleId : std::uint8_t {
#define MOE_FAMILY(id_) id_,
#define MOE_OWN_FAMILY(id_) id_,
#include "oracle/families.inc"
  no_oracle  // weights and activations that no oracle of vLLM is asked about
};

// FusedMoEParallelConfig members as given: no flattening.
struct ParallelQuery {
  std::int64_t tp_size = 1, dp_size = 1, pcp_size = 1, ep_size = 1, sp_size = 1;
  bool use_ep = false, enable_eplb = false;
  std::string all2all_backend = "allgather_reducescatter";
  std::optional<bool> use_batched_activation_format;  // nullopt: derived

  bool any_split = false;  // november_2026: other splits of the batch also bring all-to-all kernels

  bool uses_all2all() const { return use_ep && (dp_size > 1 || (any_split && (pcp_size > 1 || sp_size > 1))); }
  bool batched() const {
    if (use_batched_activation_format) return *use_batched_activation_format;
    return uses_all2all() && (all2all_backend == "deepep_low_latency" || all2all_backend == "nixl_ep");
  }
};

// FusedMoEConfig members.
struct MoeQuery {
  std::string moe_backend = "auto";
  Activation activation = Activation::silu;
  bool is_act_and_mul = true;
  RoutingMethod routing_method = RoutingMethod::default_;
  std::string router_logits_dtype = "bfloat16", in_dtype = "bfloat16";
  std::int64_t hidden_dim = 0, num_experts = 0, experts_per_token = 0, intermediate_size_per_partition = 0,
               num_local_experts = 0;
  bool has_bias = false, is_lora_enabled = false, batch_invariant = false, has_hash_routing = false;
  ParallelQuery parallel;
};

struct Query {
  OracleId oracle = OracleId::no_oracle;
  Policy policy = Policy::vllm;
  Profile profile = Profile::may_2026;
  Platform platform;
  MoeQuery moe;
  std::optional<QuantKey> weight_key, activation_key, user_activation;
  std::vector<std::pair<std::string, std::string>> env;
  bool allow_vllm_cutlass = false;
  const Config* layer = nullptr;  // nullptr: the pure question of moe_describe

  std::string_view env_value(std::string_view name) const;  // "" when not set
  bool env_has(std::string_view name) const;
  // "1" and "true" in any case are on, other values off.
  bool env_flag(std::string_view name, bool when_unset) const;
  bool batch_invariant() const { return moe.batch_invariant || env_flag("VLLM_BATCH_INVARIANT", false); }
};

std::optional<OracleId> oracle_from_name(std::string_view name);
std::string_view oracle_name(OracleId id);  // "none" for no_oracle

// A describe query. Fails with invalid_config and a pointer into the query.
Result<Query> parse_query(const json::Value& value);

// --- from a config ------------------------------------------------------------------------------------
OracleId oracle_of(const Quantization& q);
// The config must outlive the query.
Query query_of(const Config& config, const Platform& platform);
// w4a8_int8.md 1.2: the key that a group size makes.
constexpr QuantKey w4a8_weight_key(Groups groups) {
  if (groups.is_whole()) return key_named("kInt4W4A8StaticChannelSym");
  return key_rows::fixed(KeyType::int8, KeyType::bf16, {1, groups.as_written()});
}
// w4a8_int8.md 2.3, first rule: channel-wise, or no group is cut.
constexpr bool groups_fit(Groups groups, std::int64_t hidden, std::int64_t intermediate) {
  const std::int64_t g = groups.as_written();
  return groups.is_whole() || (g > 0 && hidden % g == 0 && intermediate % g == 0);
}
// What a packed layout of ours would hold; nullopt: none can hold these weights. Unquantized weights are in_dtype.
std::optional<Element> weight_element(const Config& config);
// "int4_g32_sym", "int4_channel_sym", "fp8_block_sym"; "none" when not quantized.
std::string weight_scheme_word(const Quantization& q);
// "int8_token_dynamic", "fp8_tensor_static"; "none".
std::string activation_scheme_word(const Quantization& q);

}  // namespace moe::oracle
