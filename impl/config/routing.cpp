// The member "routing": how scores choose experts, checked (config.md 12, 13) and named (config.md 6).
// The name serves backend selection only; routing itself computes from the resolved fields.
#include <cmath>
#include <limits>

#include "base/text.h"
#include "config/field_rows.h"
#include "config/sections.h"

namespace moe::config {
namespace {

using fields::Members;

std::string found(std::int64_t i) { return cat("found ", i); }

// true, false, or the values: one per expert and per zero expert.
Check read_correction_bias(const Members& members, Draft& draft) {
  RoutingConfig& r = draft.config.routing;
  const std::int64_t count = draft.config.router_columns();
  const json::Value* v = members.get("e_score_correction_bias");
  if (v == nullptr) return ok();
  if (const bool* b = v->boolean()) {
    r.has_bias = *b;
    return ok();
  }
  if (v->array() == nullptr)
    return fields::unexpected(members.at("e_score_correction_bias"), *v, "true, false or an array of numbers");
  SideTensor t;
  MOE_CHECK(read_side_tensor(members, "e_score_correction_bias", {count}, t));
  r.has_bias = true;
  r.bias = std::move(t.values);
  return ok();
}

Check read_expert_scale(const Members& members, Draft& d) {
  return read_side_tensor(members, "expert_scale", {d.config.num_experts, 1}, d.config.routing.expert_scale);
}
void write_expert_scale(const Draft& d, json::Object& out) {
  write_side_tensor("expert_scale", d.config.routing.expert_scale, out);
}

void write_correction_bias(const Draft& d, json::Object& out) {
  out.emplace_back("has_bias", d.config.routing.has_bias);
}

Check read_method(const Members& members, Draft& d) {
  return fields::put(members.word("method", kRoutingChoiceNames, RoutingChoice::automatic), d.routing_choice);
}
void write_method(const Draft& d, json::Object& out) {
  out.emplace_back("method", routing_method_name(d.config.routing.method));
  out.emplace_back("method_id", static_cast<std::int64_t>(d.config.routing.method));
}

Check read_scoring(const Members& members, Draft& d) {
  return fields::put(members.word("scoring_func", kScoringNames, Scoring::softmax), d.config.routing.scoring);
}
void write_scoring(const Draft& d, json::Object& out) {
  out.emplace_back("scoring_func", word_value(kScoringNames, d.config.routing.scoring));
}

Check read_grouped(const Members& members, Draft& d) {
  return fields::put(members.boolean("use_grouped_topk", d.config.routing.num_expert_group.has_value()), d.grouped);
}

Check read_simulation(const Members& members, Draft& d) {
  MOE_TRY(const std::optional<std::size_t> i, members.word("simulation_strategy", kSimulationNames));
  if (i) d.config.routing.simulation_strategy = kSimulationNames[*i];
  return ok();
}
void write_simulation(const Draft& d, json::Object& out) {
  out.emplace_back("simulation_strategy", or_null(d.config.routing.simulation_strategy));
}

Check read_seed(const Members& members, Draft& d) {
  std::optional<std::int64_t>& seed = d.config.routing.seed;
  MOE_TRY(seed, members.integer("seed", {0, std::numeric_limits<std::int64_t>::max()}));
  if (!seed && d.routing_choice == RoutingChoice::simulated) seed = 0;
  return ok();
}
void write_seed(const Draft& d, json::Object& out) { out.emplace_back("seed", or_null(d.config.routing.seed)); }

using Owner = Draft;
// clang-format off
constexpr fields::Field<Owner> kFields[] = {
#define MOE_FIELD_PLACE(draft) draft.config.routing
#define MOE_FIELDS_ROUTING
#include "config/field_rows.inc"
};
// clang-format on

Check check_groups(const Members& members, const Draft& draft) {
  const Config& c = draft.config;
  const RoutingConfig& r = c.routing;
  const std::string groups_at = members.at("num_expert_group"), kept_at = members.at("topk_group");
  if (draft.grouped && !r.num_expert_group)
    return fields::missing(groups_at, "a number of groups with use_grouped_topk");
  if (draft.grouped && !r.topk_group) return fields::missing(kept_at, "a number of groups with use_grouped_topk");
  if (!draft.grouped && r.topk_group) {
    return fields::fault(kept_at, found(*r.topk_group) + ", but use_grouped_topk is not set");
  }
  if (!draft.grouped) return ok();
  const std::int64_t groups = *r.num_expert_group, kept = *r.topk_group, experts = c.num_experts;
  if (experts % groups != 0) {
    return fields::fault(groups_at, cat(found(groups), ", expected a divisor of num_experts = ", experts));
  }
  if (kept > groups) {
    return fields::fault(kept_at, cat(found(kept), ", expected at most num_expert_group = ", groups));
  }
  if (r.sums_two_of_group() && experts / groups < 2) {
    return fields::fault(groups_at, cat(found(groups), ", expected at most ", experts / 2,
                                        " so that each group has two experts, whose sum is its score"));
  }
  if (c.top_k > kept * (experts / groups)) {
    return fields::fault(kept_at, cat(found(kept), ", so ", kept * (experts / groups),
                                      " experts remain, expected at least top_k = ", c.top_k));
  }
  return ok();
}

// Members that some ways of routing have no use for: none of them may be left out silently. (custom and simulated use
// nothing of what the config says, so that a caller that routes can keep a model's members.)
Check check_options(const Members& members, const Draft& draft) {
  const RoutingConfig& r = draft.config.routing;
  const RoutingChoice choice = draft.routing_choice;
  const bool by_scores = (choice == RoutingChoice::automatic && !r.hash_routing) || choice == RoutingChoice::custom ||
                         choice == RoutingChoice::simulated;
  constexpr const char* kByScores = "method auto without hash_routing";
  struct Rule {
    std::string_view member;
    bool set, allowed;
    const char* needs;
  };
  for (const Rule& rule :
       {Rule{"correction_bias_name", !r.correction_bias_name.empty(), r.has_bias, "e_score_correction_bias"},
        Rule{"bias_on_logits", r.bias_on_logits, r.has_bias, "e_score_correction_bias"},
        Rule{"bias_on_logits", r.bias_on_logits, !draft.grouped, "no groups"},
        Rule{"zero_experts", r.zero_experts != ZeroExperts::identity, r.num_zero_experts > 0, "num_zero_experts"},
        Rule{"num_expert_group", draft.grouped && r.num_zero_experts > 0, r.num_expert_group == r.topk_group,
             "no zero experts, or all groups"},
        Rule{"num_shared_logits", r.num_shared_logits > 0, by_scores, kByScores},
        Rule{"num_shared_logits", r.num_shared_logits > 0,
             r.num_zero_experts == 0 && r.scoring == Scoring::sigmoid && r.renormalize,
             "scoring_func sigmoid with renormalize, and no zero experts"},
        Rule{"renormalize_eps", r.renormalize_eps > 0, by_scores || r.hash_routing, "method auto"},
        Rule{"renormalize_min", r.renormalize_min > 0, by_scores, kByScores}})
    if (rule.set && !rule.allowed)
      return fields::fault(members.at(rule.member),
                           cat("found ", fields::brief(*members.get(rule.member)), ", which needs ", rule.needs));
  return ok();
}

Check check_methods(const Members& members, const Draft& draft) {
  const Config& c = draft.config;
  const RoutingConfig& r = c.routing;
  if (draft.routing_choice == RoutingChoice::sparsemixer && c.top_k != 2) {
    return fields::fault(fields::child("", draft.top_k_name),
                         found(c.top_k) + ", expected 2 with routing method sparsemixer");
  }
  if (r.jitter_eps && draft.routing_choice != RoutingChoice::sparsemixer) {
    return fields::fault(members.at("jitter_eps"), cat("found ", fields::brief(*members.get("jitter_eps")),
                                                       ", expected none without method sparsemixer"));
  }
  // It looks at the logits alone, and at all of them.
  if (draft.routing_choice == RoutingChoice::sparsemixer && draft.grouped) {
    return fields::fault(members.at("num_expert_group"),
                         found(*r.num_expert_group) + ", expected none with method sparsemixer");
  }
  if (draft.routing_choice == RoutingChoice::sparsemixer && r.has_bias) {
    return fields::fault(members.at("e_score_correction_bias"), "found one, expected none with method sparsemixer");
  }
  const bool simulated = draft.routing_choice == RoutingChoice::simulated;
  const std::string strategy_at = members.at("simulation_strategy");
  if (simulated && !r.simulation_strategy) return fields::missing(strategy_at, fields::join(kSimulationNames));
  if (!simulated && r.simulation_strategy) {
    return fields::fault(strategy_at,
                         cat("found ", *r.simulation_strategy, ", expected none without method simulated"));
  }
  MOE_CHECK(check_options(members, draft));
  if (r.num_zero_experts > 0 && !r.has_bias) {
    return fields::fault(members.at("num_zero_experts"),
                         found(r.num_zero_experts) + ", expected 0 without e_score_correction_bias");
  }
  if (r.num_fused_shared_experts > 0 && (r.num_zero_experts > 0 || c.parallel.ep_size > 1)) {
    return fields::fault(members.at("num_fused_shared_experts"),
                         found(r.num_fused_shared_experts) + ", expected 0 with zero experts or expert parallelism");
  }
  if (r.hash_routing && (draft.routing_choice != RoutingChoice::automatic || draft.grouped || r.num_zero_experts > 0)) {
    return fields::fault(members.at("hash_routing"),
                         "found true, expected no method, no groups and no zero experts with it");
  }
  const std::int64_t ids = c.num_experts + r.num_fused_shared_experts + r.num_zero_experts;
  if (r.skip_id && *r.skip_id < ids) {
    return fields::fault(members.at("skip_id"), cat(found(*r.skip_id), ", which is an expert; expected ", ids,
                                                    " (the number of experts) or more"));
  }
  if (c.apply_router_weight_on_input && c.top_k != 1) {
    return fields::fault("/apply_router_weight_on_input",
                         cat("found true with top_k = ", c.top_k, ", expected top_k = 1"));
  }
  return ok();
}

RoutingMethod resolved_method(RoutingChoice choice, const Config& c) {
  const RoutingConfig& r = c.routing;
  switch (choice) {
    case RoutingChoice::topk:
      return RoutingMethod::topk;
    case RoutingChoice::custom:
      return RoutingMethod::custom;
    case RoutingChoice::simulated:
      return RoutingMethod::simulated;
    case RoutingChoice::sparsemixer:
      return RoutingMethod::sparse_mixer;
    case RoutingChoice::automatic:
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

bool is_routing_member(std::string_view name) { return fields::index_of(fields::names_of(kFields), name).has_value(); }

Check read_routing(const Members& layer, Draft& draft) {
  RoutingConfig& r = draft.config.routing;
  MOE_TRY(const Members members, fields::open_fields(layer.get("routing"), "/routing", kFields));
  MOE_CHECK(fields::read_fields(members, kFields, draft));
  MOE_CHECK(check_groups(members, draft));
  MOE_CHECK(check_methods(members, draft));
  if (!draft.grouped) r.num_expert_group = r.topk_group = std::nullopt;
  if (draft.routing_choice == RoutingChoice::sparsemixer && !r.jitter_eps) r.jitter_eps = 0.01;
  r.method = resolved_method(draft.routing_choice, draft.config);
  return ok();
}
void write_routing(const Draft& draft, json::Object& out) {
  out.emplace_back("routing", fields::write_fields(kFields, draft));
}

}  // namespace moe::config
