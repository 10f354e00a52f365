// The member "routing": how scores choose experts, checked (config.md 12, 13) and named (config.md 6).
// The name serves backend selection only; routing itself computes from the resolved fields.
#include <array>
#include <cmath>
#include <limits>

#include "config/fields.h"
#include "config/sections.h"

namespace moe {
namespace {

using fields::Members;

// clang-format off
constexpr std::array<std::string_view, 17> kMembers = {
    "method", "scoring_func", "renormalize", "use_grouped_topk", "num_expert_group", "topk_group",
    "routed_scaling_factor", "apply_routed_scale_to_output", "e_score_correction_bias", "jitter_eps",
    "simulation_strategy", "seed", "num_fused_shared_experts", "num_zero_experts", "hash_routing",
    "topk_weights_hold_factor", "skip_id"};
// clang-format on
enum class Method : std::uint8_t { automatic, topk, custom, simulated, sparsemixer };
constexpr std::array<std::string_view, 5> kMethods = {"auto", "topk", "custom", "simulated", "sparsemixer"};
constexpr std::array<std::string_view, 2> kStrategies = {"uniform_random", "normal_routing"};

std::string found(std::int64_t i) { return "found " + std::to_string(i); }

// What the rules speak of besides RoutingConfig.
struct Given {
  Method method = Method::automatic;
  bool grouped = false;
};

// true, false, or the values themselves: one per expert and per zero expert.
Check read_bias(const Members& members, std::int64_t count, RoutingConfig& r) {
  const json::Value* v = members.get("e_score_correction_bias");
  if (v == nullptr) return ok();
  const std::string pointer = members.at("e_score_correction_bias");
  if (const bool* b = v->boolean()) {
    r.has_bias = *b;
    return ok();
  }
  const json::Array* list = v->array();
  if (list == nullptr) return fields::unexpected(pointer, *v, "true, false or an array of numbers");
  if (static_cast<std::int64_t>(list->size()) != count) {
    return fields::unexpected(pointer, *v, std::to_string(count) + " numbers, one per expert, zero experts included");
  }
  r.has_bias = true;
  r.bias.reserve(list->size());
  for (const json::Value& element : *list) {
    const std::optional<double> d = fields::as_number(element);
    if (!d || !(std::abs(*d) <= static_cast<double>(std::numeric_limits<float>::max()))) {
      return fields::unexpected(pointer + "/" + std::to_string(r.bias.size()), element, "a finite float32 number");
    }
    r.bias.push_back(static_cast<float>(*d));
  }
  return ok();
}

Result<Given> read_members(const Members& members, std::int64_t num_experts, RoutingConfig& r) {
  Given given;
  MOE_TRY(given.method, members.word("method", kMethods, Method::automatic));
  MOE_TRY(r.scoring, members.word("scoring_func", kScoringNames, Scoring::softmax));
  MOE_TRY(r.renormalize, members.boolean("renormalize", true));
  MOE_TRY(r.num_expert_group, members.integer("num_expert_group", {1, 65536}));
  MOE_TRY(r.topk_group, members.integer("topk_group", {1, 65536}));
  MOE_TRY(given.grouped, members.boolean("use_grouped_topk", r.num_expert_group.has_value()));
  MOE_TRY(r.routed_scaling_factor, members.number("routed_scaling_factor", {0, 1e6, true}, 1.0));
  MOE_TRY(r.apply_routed_scale_to_output, members.boolean("apply_routed_scale_to_output", false));
  MOE_TRY(r.num_zero_experts, members.integer("num_zero_experts", {0, 65536}, 0));
  MOE_CHECK(read_bias(members, num_experts + r.num_zero_experts, r));
  MOE_TRY(r.jitter_eps, members.number("jitter_eps", {0, 1}));
  MOE_TRY(const std::optional<std::size_t> strategy, members.word("simulation_strategy", kStrategies));
  if (strategy) r.simulation_strategy = kStrategies[*strategy];
  MOE_TRY(r.seed, members.integer("seed", {0, std::numeric_limits<std::int64_t>::max()}));
  if (!r.seed && given.method == Method::simulated) r.seed = 0;
  MOE_TRY(r.num_fused_shared_experts, members.integer("num_fused_shared_experts", {0, 64}, 0));
  MOE_TRY(r.hash_routing, members.boolean("hash_routing", false));
  if (members.has("topk_weights_hold_factor")) {
    MOE_TRY(r.topk_weights_hold_factor, members.boolean("topk_weights_hold_factor", false));
  }
  MOE_TRY(r.skip_id, members.integer("skip_id", {0, std::numeric_limits<std::int32_t>::max()}));
  return given;
}

Check check_groups(const Members& members, const Given& given, const Config& c) {
  const RoutingConfig& r = c.routing;
  const std::string groups_at = members.at("num_expert_group"), kept_at = members.at("topk_group");
  if (given.grouped && !r.num_expert_group)
    return fields::missing(groups_at, "a number of groups with use_grouped_topk");
  if (given.grouped && !r.topk_group) return fields::missing(kept_at, "a number of groups with use_grouped_topk");
  if (!given.grouped && r.topk_group) {
    return fields::fault(kept_at, found(*r.topk_group) + ", but use_grouped_topk is not set");
  }
  if (!given.grouped) return ok();
  const std::int64_t groups = *r.num_expert_group, kept = *r.topk_group, experts = c.num_experts;
  if (experts % groups != 0) {
    return fields::fault(groups_at, found(groups) + ", expected a divisor of num_experts = " + std::to_string(experts));
  }
  if (kept > groups) {
    return fields::fault(kept_at, found(kept) + ", expected at most num_expert_group = " + std::to_string(groups));
  }
  if (r.has_bias && experts / groups < 2) {
    return fields::fault(groups_at, found(groups) + ", expected at most " + std::to_string(experts / 2) +
                                        " so that each group has two experts for a correction bias");
  }
  if (c.top_k > kept * (experts / groups)) {
    return fields::fault(kept_at, found(kept) + ", so " + std::to_string(kept * (experts / groups)) +
                                      " experts remain, expected at least top_k = " + std::to_string(c.top_k));
  }
  return ok();
}

Check check_methods(const Members& members, const Given& given, const Draft& draft) {
  const Config& c = draft.config;
  const RoutingConfig& r = c.routing;
  if (given.method == Method::sparsemixer && c.top_k != 2) {
    return fields::fault(fields::child("", draft.top_k_name),
                         found(c.top_k) + ", expected 2 with routing method sparsemixer");
  }
  if (r.jitter_eps && given.method != Method::sparsemixer) {
    return fields::fault(members.at("jitter_eps"), "found " + fields::brief(*members.get("jitter_eps")) +
                                                       ", expected none without method sparsemixer");
  }
  // It looks at the logits alone, and at all of them.
  if (given.method == Method::sparsemixer && given.grouped) {
    return fields::fault(members.at("num_expert_group"),
                         found(*r.num_expert_group) + ", expected none with method sparsemixer");
  }
  if (given.method == Method::sparsemixer && r.has_bias) {
    return fields::fault(members.at("e_score_correction_bias"), "found one, expected none with method sparsemixer");
  }
  const bool simulated = given.method == Method::simulated;
  const std::string strategy_at = members.at("simulation_strategy");
  if (simulated && !r.simulation_strategy) return fields::missing(strategy_at, fields::join(kStrategies));
  if (!simulated && r.simulation_strategy) {
    return fields::fault(strategy_at, "found " + *r.simulation_strategy + ", expected none without method simulated");
  }
  if (r.num_zero_experts > 0 && !r.has_bias) {
    return fields::fault(members.at("num_zero_experts"),
                         found(r.num_zero_experts) + ", expected 0 without e_score_correction_bias");
  }
  if (r.num_fused_shared_experts > 0 && (r.num_zero_experts > 0 || c.parallel.ep_size > 1)) {
    return fields::fault(members.at("num_fused_shared_experts"),
                         found(r.num_fused_shared_experts) + ", expected 0 with zero experts or expert parallelism");
  }
  if (r.hash_routing && (given.method != Method::automatic || given.grouped || r.num_zero_experts > 0)) {
    return fields::fault(members.at("hash_routing"),
                         "found true, expected no method, no groups and no zero experts with it");
  }
  const std::int64_t ids = c.num_experts + r.num_fused_shared_experts + r.num_zero_experts;
  if (r.skip_id && *r.skip_id < ids) {
    return fields::fault(members.at("skip_id"), found(*r.skip_id) + ", which is an expert; expected " +
                                                    std::to_string(ids) + " (the number of experts) or more");
  }
  if (c.apply_router_weight_on_input && c.top_k != 1) {
    return fields::fault("/apply_router_weight_on_input",
                         "found true with top_k = " + std::to_string(c.top_k) + ", expected top_k = 1");
  }
  return ok();
}

RoutingMethod resolved_method(Method method, const Config& c) {
  const RoutingConfig& r = c.routing;
  switch (method) {
    case Method::topk:
      return RoutingMethod::topk;
    case Method::custom:
      return RoutingMethod::custom;
    case Method::simulated:
      return RoutingMethod::simulated;
    case Method::sparsemixer:
      return RoutingMethod::sparse_mixer;
    case Method::automatic:
      break;
  }
  return named_routing_method(r.scoring, c.top_k, r.renormalize, r.num_expert_group.value_or(0), r.has_bias);
}

}  // namespace

RoutingMethod routing_method(Scoring scoring, std::int64_t top_k, bool renormalize, std::int64_t groups,
                             bool has_bias) {
  if (scoring == Scoring::sqrtsoftplus) return renormalize ? RoutingMethod::deepseek_v4 : RoutingMethod::unspecified;
  if (has_bias && scoring != Scoring::sigmoid) return RoutingMethod::unspecified;
  if (has_bias) return groups > 0 ? RoutingMethod::deepseek_v3 : RoutingMethod::minimax2;
  if (scoring == Scoring::softmax) return renormalize ? RoutingMethod::renormalize : RoutingMethod::default_;
  if (top_k == 1) return RoutingMethod::llama4;
  return renormalize ? RoutingMethod::sigmoid_renorm : RoutingMethod::unspecified;
}

RoutingMethod named_routing_method(Scoring scoring, std::int64_t top_k, bool renormalize, std::int64_t groups,
                                   bool has_bias) {
  const RoutingMethod m = routing_method(scoring, top_k, renormalize, groups, has_bias);
  const bool plain_sigmoid = scoring == Scoring::sigmoid && !has_bias;
  return m == RoutingMethod::unspecified && plain_sigmoid ? RoutingMethod::sigmoid : m;
}

Check read_routing(const json::Value& document, Draft& draft) {
  Config& c = draft.config;
  RoutingConfig& r = c.routing;
  MOE_TRY(const Members members, Members::open(document.find("routing"), "/routing", kMembers));
  MOE_TRY(const Given given, read_members(members, c.num_experts, r));
  MOE_CHECK(check_groups(members, given, c));
  MOE_CHECK(check_methods(members, given, draft));
  if (!given.grouped) r.num_expert_group = r.topk_group = std::nullopt;
  if (given.method == Method::sparsemixer && !r.jitter_eps) r.jitter_eps = 0.01;
  r.method = resolved_method(given.method, c);
  return ok();
}

}  // namespace moe
