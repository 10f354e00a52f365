// The keys of a row. A key that is read by a function and stands in no row is listed here with what reads it.
#include <algorithm>
#include <iterator>

#include "hf/architecture.h"
#include "hf/keys.h"

namespace moe::hf {
namespace {

class Collected {
 public:
  void add(std::string_view key) {
    if (!key.empty()) all.push_back(key);
  }
  void add(const SizeKey& key) {
    for (const std::string_view k : key.keys) add(k);
  }
  void add(const BoolKey& key) {
    add(key.key);
    add(key.alias);
  }
  void add(const NumberKey& key) {
    add(key.key);
    add(key.alias);
  }
  void add(std::initializer_list<std::string_view> keys) {
    for (const std::string_view k : keys) add(k);
  }

  std::vector<std::string_view> all;
};

void add_layers(const LayerKeys& where, Collected& keys) {
  keys.add(where.count);
  keys.add(where.count_alias);
  if (where.predicting) keys.add("num_nextn_predict_layers");
  if (where.enabled_by_enable_moe_block) keys.add("enable_moe_block");
  switch (where.rule) {
    case Layers::all:
      return;
    case Layers::words:
      keys.add(where.list);
      keys.add(where.numbers);
      [[fallthrough]];
    case Layers::from:
      keys.add(where.first);
      keys.add(where.step);
      return;
    case Layers::qwen:
      keys.add(where.step);
      return keys.add("mlp_only_layers");
    case Layers::jamba:
      return keys.add({"expert_layer_period", "expert_layer_offset"});
    case Layers::ernie:
      return keys.add({"moe_layer_interval", "moe_layer_start_index", "moe_layer_end_index"});
    case Layers::llama4:
      return keys.add({"moe_layers", "interleave_moe_layer_step"});
    case Layers::nemotron:
      return keys.add({"layers_block_type", "layer_types", "hybrid_override_pattern"});
  }
}

void add_routing(const Routing& r, Collected& keys) {
  keys.add(r.scoring_key);
  keys.add(r.renormalize);
  if (r.vllm_renormalize) keys.add(*r.vllm_renormalize);  // the policy says whose class counts
  keys.add(r.renormalize_min);
  keys.add(r.bias);
  if (r.groups != GroupKeys::none) {
    keys.add(r.n_group);
    keys.add(r.topk_group);
  }
  if (r.groups == GroupKeys::unless_greedy) keys.add("topk_method");
  if (r.factor != Factor::none) keys.add(r.factor_key);
  if (r.hash_layers) keys.add({"num_hash_layers", "mlp_layer_types"});
  keys.add(r.zero_experts);
  keys.add(r.shared_logits);
  keys.add(r.p_norm);
  if (r.method == "sparsemixer") keys.add("router_jitter_noise");
}

void add_activation(const ActivationKeys& act, Collected& keys) {
  keys.add(act.key);
  keys.add(act.limits);
  for (const NumberKey* key : {&act.limit, &act.alpha, &act.beta, &act.gate_cap, &act.up_cap}) keys.add(*key);
}

}  // namespace

std::vector<std::string_view> keys_of_model(const Architecture& row) {
  Collected keys;
  add_layers(row.where, keys);
  keys.add({"text_config", "dtype", "torch_dtype", "quantization_config", "per_layer_config"});
  return std::move(keys.all);
}

std::vector<std::string_view> keys_read(const Architecture& row) {
  Collected keys;
  for (const SizeKey* size : {&row.experts, &row.top_k, &row.width, &row.hidden}) keys.add(*size);
  keys.add(row.width_is_dense_beside);
  add_layers(row.where, keys);
  add_activation(row.activation, keys);
  add_routing(row.routing, keys);
  keys.add(row.expert_norm_eps);
  keys.add({"architectures", "model_type", "text_config", "dtype", "torch_dtype", "quantization_config",
            "per_layer_config", "expert_dtype"});
  return std::move(keys.all);
}

}  // namespace moe::hf
