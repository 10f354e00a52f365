// A selection as JSON: the shape of c_api.md 4, with platform, config and expert placement beside it.
#include <algorithm>

#include "oracle/selection.h"

namespace moe {
namespace {

json::Value candidate_json(const Candidate& c) {
  json::Value v;
  v.set("backend", c.backend);
  v.set("kernel", c.kernel);
  v.set("experts", c.experts);
  v.set("priority", static_cast<std::int64_t>(c.priority));
  v.set("accepted", c.reason == Reject::none);
  v.set("chosen", c.chosen);
  v.set("reason", reject_name(c.reason));
  v.set("reason_code", static_cast<std::int64_t>(c.reason));
  v.set("subject", c.subject);
  v.set("detail", c.detail);
  return v;
}

// routing.md 9: vLLM takes round_robin back in these cases; libmoe does what was asked for.
Placement effective_placement(const Config& c) {
  const ParallelConfig& p = c.parallel;
  if (c.selection_policy == Policy::libmoe || p.expert_placement_strategy == Placement::linear)
    return p.expert_placement_strategy;
  const bool all2all = p.dp_size > 1 && p.use_ep;
  const bool low_latency = p.all2all_backend == "deepep_low_latency" || p.all2all_backend == "nixl_ep";
  const bool falls_back = p.ep_size == 1 || c.routing.num_expert_group.value_or(0) <= 1 ||
                          p.num_redundant_experts != 0 || p.enable_eplb || (all2all && !low_latency);
  return falls_back ? Placement::linear : Placement::round_robin;
}

json::Value placement_json(const Config& c) {
  const Placement strategy = effective_placement(c);
  json::Array held;
  for (const std::int64_t e : experts_of_rank(c.num_physical_experts, c.parallel.ep_size, c.parallel.ep_rank, strategy))
    held.emplace_back(e);
  json::Value v;
  v.set("strategy", strategy == Placement::linear ? "linear" : "round_robin");
  v.set("ep_size", c.parallel.ep_size);
  v.set("ep_rank", c.parallel.ep_rank);
  v.set("experts", std::move(held));
  return v;
}

}  // namespace

std::string candidates_to_json(const std::vector<Candidate>& candidates) {
  json::Array list;
  for (const Candidate& c : candidates) list.push_back(candidate_json(c));
  return json::write(list);
}

std::string selection_to_json(const Selection& s) {
  const Candidate none;
  const Candidate& won = s.winner ? s.candidates[*s.winner] : none;
  json::Value v;
  v.set("oracle", s.oracle);
  v.set("selection_policy", s.config->selection_policy == Policy::vllm ? "vllm" : "libmoe");
  v.set("backend", won.backend);
  v.set("kernel", won.kernel);
  v.set("experts", won.experts);
  v.set("layout", s.layout_id);
  v.set("weight_scheme", s.weight_scheme);
  v.set("activation_scheme", s.activation_scheme);
  v.set("warning", s.warning);
  v.set("expert_placement", placement_json(*s.config));
  std::string text = json::write(v);
  text.pop_back();
  // These are JSON texts already.
  text += ",\"candidates\":" + candidates_to_json(s.candidates);
  text += ",\"platform\":" + platform_to_json(s.platform);
  text += ",\"config\":" + s.config->canonical + "}";
  return text;
}

}  // namespace moe
