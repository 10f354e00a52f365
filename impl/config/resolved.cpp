// The canonical document of a configuration (config.md 16): every default written out, effective
// values, derived members. An answer, not an input: what moe_config_to_json gives and getters read.
#include <array>

#include "config/sections.h"

namespace moe {
namespace {

using json::Value;

template <class T>
Value or_null(const std::optional<T>& v) {
  return v ? Value(*v) : Value();
}
template <class E, std::size_t n>
Value name(const std::array<std::string_view, n>& names, E e) {
  return Value(names[static_cast<std::size_t>(e)]);
}

Value dtype(DType t) {
  if (t == DType::f32) return Value("float32");
  return Value(t == DType::f16 ? "float16" : "bfloat16");
}

Value parallel(const ParallelConfig& p) {
  json::Object members = parallel_members(p);
  members.emplace_back("num_redundant_experts", p.num_redundant_experts);
  members.emplace_back("expert_placement_strategy", name(kPlacementNames, p.expert_placement_strategy));
  return members;
}

Value routing(const RoutingConfig& r) {
  Value v = json::Object{{"method", Value(routing_method_name(r.method))},
                         {"method_id", Value(static_cast<std::int64_t>(r.method))},
                         {"scoring_func", name(kScoringNames, r.scoring)},
                         {"renormalize", r.renormalize},
                         {"num_expert_group", or_null(r.num_expert_group)},
                         {"topk_group", or_null(r.topk_group)},
                         {"routed_scaling_factor", r.routed_scaling_factor},
                         {"apply_routed_scale_to_output", r.apply_routed_scale_to_output},
                         {"has_bias", r.has_bias},
                         {"jitter_eps", or_null(r.jitter_eps)},
                         {"simulation_strategy", or_null(r.simulation_strategy)},
                         {"seed", or_null(r.seed)},
                         {"num_fused_shared_experts", r.num_fused_shared_experts},
                         {"num_zero_experts", r.num_zero_experts},
                         {"hash_routing", r.hash_routing}};
  if (r.topk_weights_hold_factor) v.set("topk_weights_hold_factor", *r.topk_weights_hold_factor);
  if (r.skip_id) v.set("skip_id", *r.skip_id);
  return v;
}

Value quant_args(const std::optional<QuantArgs>& given) {
  if (!given) return {};
  const QuantArgs& a = *given;
  Value block, actorder;
  if (a.block_structure) block = json::Array{(*a.block_structure)[0], (*a.block_structure)[1]};
  if (a.actorder != ActOrder::none) actorder = Value(a.actorder == ActOrder::group ? "group" : "weight");
  return json::Object{{"num_bits", Value(a.num_bits)},
                      {"type", name(kNumTypeNames, a.type)},
                      {"strategy", name(kStrategyNames, a.strategy)},
                      {"group_size", or_null(a.group_size)},
                      {"block_structure", std::move(block)},
                      {"symmetric", a.symmetric},
                      {"dynamic", a.dynamic == Dynamic::local ? Value("local") : Value(a.dynamic == Dynamic::yes)},
                      {"actorder", std::move(actorder)}};
}

Value quantization(const Quantization& q) {
  static constexpr std::array<std::string_view, 2> kZeroPoints = {"as_stored", "plus_one"};
  Value v = json::Object{
      {"weights", quant_args(q.weights)},
      {"input_activations", quant_args(q.input_activations)},
      {"format", name(kFormatNames, q.format)},
      {"zero_point_convention", q.zero_point_convention ? name(kZeroPoints, *q.zero_point_convention) : Value()},
      {"is_transposed", or_null(q.is_transposed)}};
  if (q.hf) v.set("hf", *q.hf);
  return v;
}

// `given`: the document's member, for the lists whose order is its own.
Value platform(const Config& c, const json::Value* given) {
  const Platform& facts = c.platform_facts;
  Value v = json::Object{{"type", name(kDeviceNames, c.platform_type)},
                         {"arch", name(kArchNames, c.platform_arch)},
                         {"features", Value()},
                         {"num_threads", facts.num_threads},
                         {"numa_node", facts.numa_node}};
  if (given == nullptr) return v;
  for (const char* key : {"features", "libs"})
    if (const json::Value* member = given->find(key)) v.set(key, *member);
  if (facts.capability) v.set("capability", json::Array{Value((*facts.capability)[0]), Value((*facts.capability)[1])});
  if (facts.gfx) v.set("gfx", *facts.gfx);
  if (facts.cuda_version) v.set("cuda_version", *facts.cuda_version);
  if (facts.multiprocessor_count) v.set("multiprocessor_count", *facts.multiprocessor_count);
  return v;
}

Value environment(const Config& c) {
  json::Object o;
  for (const auto& [key, value] : c.vllm_env) o.emplace_back(key, Value(value));
  return o;
}

}  // namespace

json::Value resolved_document(const Config& c, const json::Value& document) {
  json::Array projections(c.projection_names.begin(), c.projection_names.end());
  return json::Object{
      {"version", Value(1)},
      {"name", c.name},
      {"projection_names", std::move(projections)},
      {"num_experts", c.num_experts},
      {"top_k", c.top_k},
      {"hidden_dim", c.hidden_dim},
      {"intermediate_size_per_partition", c.intermediate_size_per_partition},
      {"activation", name(kActivationNames, c.activation)},
      {"is_gated", is_gated(c.activation)},
      {"activation_params",
       json::Object{{"alpha", or_null(c.alpha)}, {"beta", or_null(c.beta)}, {"limit", or_null(c.limit)}}},
      {"w13_layout", c.w13_layout ? name(kW13LayoutNames, *c.w13_layout) : Value()},
      {"has_bias", c.has_bias},
      {"in_dtype", dtype(c.in_dtype)},
      {"out_dtype", dtype(c.out_dtype)},
      {"router_logits_dtype", dtype(c.router_logits_dtype)},
      {"moe_backend", c.moe_backend},
      {"max_num_tokens", c.max_num_tokens},
      {"apply_router_weight_on_input", c.apply_router_weight_on_input},
      {"disable_inplace", c.disable_inplace},
      {"compute", name(kComputeNames, c.compute)},
      {"activation_quant", name(kActivationQuantNames, c.activation_quant)},
      {"marlin_input_dtype", name(kMarlinInputNames, c.marlin_input_dtype)},
      {"emulation_layout", name(kEmulationNames, c.emulation_layout)},
      {"parallel", parallel(c.parallel)},
      {"num_logical_experts", c.num_experts},
      {"num_physical_experts", c.num_physical_experts},
      {"num_local_experts", c.num_local_experts},
      {"routing", routing(c.routing)},
      {"quantization", quantization(c.quantization)},
      {"platform", platform(c, document.find("platform"))},
      {"vllm_env", environment(c)},
      {"selection_policy", name(kPolicyNames, c.selection_policy)},
      {"bit_compat", name(kPolicyNames, c.bit_compat)}};
}

}  // namespace moe
