// A selection as JSON: what moe_selection_to_json promises in moe.h, and what is really run beside what was asked for:
// the quantization config (describe.md 3), the routing method, the types inside the kernel, the shard and the experts
// of this rank, platform and config. A fallback that is not in here does not exist.
#include <algorithm>
#include <array>

#include "oracle/backend.h"
#include "oracle/selection.h"
#include "vllm/describe.h"

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

json::Value placement_json(const Config& c) {
  const Placement strategy = effective_placement(c);
  json::Array held;
  for (const std::int64_t e : local_experts(c)) held.emplace_back(e);
  const auto word = [](Placement p) { return p == Placement::linear ? "linear" : "round_robin"; };
  json::Value v;
  v.set("strategy", word(strategy));
  v.set("requested", word(c.parallel.expert_placement_strategy));
  v.set("ep_size", c.parallel.ep_size);
  v.set("ep_rank", c.parallel.ep_rank);
  v.set("experts", std::move(held));
  return v;
}

// This rank's part of the experts' width: rows of w13 halves, columns of w2.
json::Value shard_json(const Config& c) {
  const std::int64_t width = c.intermediate_size_per_partition, begin = c.parallel.tp_rank * width;
  return json::Object{{"tp_size", c.parallel.tp_size},
                      {"tp_rank", c.parallel.tp_rank},
                      {"intermediate_begin", begin},
                      {"intermediate_end", begin + width}};
}

// By ActFormat.
constexpr std::array<std::string_view, 6> kActWords = {"int8_per_token", "int8_block32", "int16_block128",
                                                       "bfloat16",       "float16",      "float32"};
static_assert(static_cast<std::size_t>(ActFormat::f32) + 1 == kActWords.size());

// The types that the kernel multiplies; null where this library runs nothing.
json::Value runs_as_json(const Selection& s) {
  if (!s.kernel) return {};
  const KernelId& k = kKernelIds[*s.kernel];
  return json::Object{{"weights", row_of(s.layout.w13.element).word},
                      {"activations", kActWords[static_cast<std::size_t>(k.act)]}};
}

// The quantization config of the oracle; null where vLLM makes none.
json::Value quant_config_json(const Selection& s) {
  const Family& family = family_named(s.oracle);
  if (family.quant_config == nullptr) return {};
  const Result<QuantConfig> q = family.quant_config(*s.config, s.backend_name());
  return q ? quant_config_value(*q) : json::Value();
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
  v.set("runs_as", runs_as_json(s));
  v.set("quant_config", quant_config_json(s));
  v.set("routing_method", routing_method_name(s.config->routing.method));
  v.set("activation_format", s.batched ? "batched" : "standard");
  v.set("warning", s.warning);
  v.set("shard", shard_json(*s.config));
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
