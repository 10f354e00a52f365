// See architecture_list.h.
#include "hf/architecture_list.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "base/index.h"
#include "base/json.h"
#include "base/text.h"
#include "config/config.h"
#include "hf/architecture.h"

namespace moe::hf {
namespace {

std::vector<std::string_view> given(const ProjectionNames& names) {
  std::vector<std::string_view> all;
  std::copy_if(names.begin(), names.end(), std::back_inserter(all), [](std::string_view n) { return !n.empty(); });
  return all;
}

// {"key": .., "otherwise": ..}: what a file says, and what the class does where it says nothing. A fixed value has no
// key.
template <class T>
void keyed(json::Writer& w, std::string_view member, std::string_view key, const T& otherwise) {
  w.key(member).begin_object();
  if (!key.empty()) w.member("key", key);
  w.member("otherwise", otherwise).end_object();
}
void keyed(json::Writer& w, std::string_view member, const SizeKey& size) {
  keyed(w, member, size.keys[0], size.otherwise);
}

void write_routing(json::Writer& w, const Routing& r) {
  w.begin_object();
  keyed(w, "scoring_func", r.scoring_key, at(kScoringNames, r.scoring));
  if (r.p_norm.empty()) {
    keyed(w, "renormalize", r.renormalize.key, r.renormalize.otherwise);
  } else {
    keyed(w, "renormalize", r.p_norm, true);
  }
  if (r.vllm_renormalize) keyed(w, "vllm_renormalize", r.vllm_renormalize->key, r.vllm_renormalize->otherwise);
  if (r.renormalize_eps > 0) w.member("renormalize_eps", r.renormalize_eps);
  if (r.vllm_renormalize_eps > 0) w.member("vllm_renormalize_eps", r.vllm_renormalize_eps);
  if (!r.bias.key.empty() || r.bias.otherwise) keyed(w, "e_score_correction_bias", r.bias.key, r.bias.otherwise);
  if (!r.bias_name.empty()) w.member("correction_bias_name", r.bias_name);
  if (r.groups != GroupKeys::none) {
    keyed(w, "num_expert_group", r.n_group);
    keyed(w, "topk_group", r.topk_group);
    if (r.groups == GroupKeys::unless_greedy) w.member("groups_unless", "topk_method greedy");
  }
  if (r.factor != Factor::none) {
    keyed(w, "routed_scaling_factor", r.factor_key.key, r.factor_key.otherwise);
    w.member("apply_routed_scale_to_output", r.factor == Factor::output);
  }
  if (!r.method.empty()) w.member("method", r.method);
  if (!r.group_score.empty()) w.member("group_score", r.group_score);
  if (r.masked_zero) w.member("masked_groups", "zero");
  if (r.hash_layers) w.member("hash_layers", *r.hash_layers);
  if (r.bias_on_logits) w.member("bias_on_logits", true);
  if (r.on_input) w.member("apply_router_weight_on_input", true);
  if (!r.expert_scale.empty()) w.member("expert_scale", r.expert_scale);
  if (r.zero_experts.otherwise) {
    keyed(w, "num_zero_experts", r.zero_experts);
    w.member("zero_experts", r.zero_experts_give_nothing ? "nothing" : "identity");
  }
  if (r.shared_logits.otherwise) keyed(w, "num_shared_logits", r.shared_logits);
  w.end_object();
}

// What holds without those keys.
void write_sizes(json::Writer& w, const Architecture& a) {
  w.begin_object();
  const auto size = [&](std::string_view member, const std::optional<std::int64_t>& otherwise) {
    if (otherwise) w.member(member, *otherwise);
  };
  size("num_experts", a.experts.otherwise);
  size("top_k", a.top_k.otherwise);
  size("hidden_dim", a.hidden.otherwise);
  size("intermediate_size", a.width.otherwise);
  size("num_layers", a.where.layers);
  w.end_object();
}

void write_row(json::Writer& w, const Architecture& a) {
  w.begin_object().member("name", a.name);
  w.member("module", cat(a.layers_at, ".{layer}.", a.block));
  if (!a.holder.empty()) w.member("holder", a.holder);
  w.key("projections").array(a.projections);
  w.member("gated", !a.activation.ungated);
  w.member("stacked", at(config::kStackedWeightsNames, a.stacked)).key("stacked_names").array(given(a.stack));
  w.member("writes_stacks", a.stacks).member("interleaved", a.interleaved).member("has_bias", a.has_bias);
  if (!a.expert_norm.empty()) w.member("expert_norm", a.expert_norm);
  w.member("activation", a.activation.otherwise);
  w.key("keys").begin_object().key("num_experts").array(given(a.experts.keys));
  w.key("top_k").array(given(a.top_k.keys)).key("hidden_dim").array(given(a.hidden.keys));
  w.key("intermediate_size").array(given(a.width.keys));
  if (!a.activation.key.empty()) w.member("activation", a.activation.key);
  w.member("num_layers", a.where.count).end_object();
  write_sizes(w.key("sizes"), a);
  write_routing(w.key("routing"), a.routing);
  w.end_object();
}

}  // namespace

std::string architecture_list() {
  json::Writer w;
  w.begin_object().key("architectures").begin_array();
  for (const Architecture& a : architectures()) write_row(w, a);
  w.end_array().key("unread").begin_array();
  for (const Unread& u : unread_architectures())
    w.begin_object().member("name", u.name).member("why", u.why).end_object();
  return w.end_array().end_object().take();
}

}  // namespace moe::hf
