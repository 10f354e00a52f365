// A config made ready for routing: rule, score, groups, factor, and the one correction bias. See route.h.
#include <algorithm>
#include <string>

#include "base/index.h"
#include "base/text.h"
#include "run/route/plan.h"
#include "run/route/route.h"

namespace moe::run {
namespace {

RouteRule rule_of(const Config& c) {
  const RoutingConfig& r = c.routing;
  if (r.hash_routing) return RouteRule::hash;
  if (r.method == RoutingMethod::custom) return RouteRule::caller;
  if (r.method == RoutingMethod::sparse_mixer) return RouteRule::sparse_mixer;
  if (r.method == RoutingMethod::simulated)
    return r.simulation_strategy == "uniform_random" ? RouteRule::uniform_random : RouteRule::normal_routing;
  // vLLM's CPU_INT4 experts route by softmax alone, without groups in the logits' dtype and without bias; with
  // groups as everyone. Models that they cannot run right are routed as written in their config.
  const bool foreign = r.num_zero_experts > 0 || r.bias_on_logits || r.expert_scale.wanted() || r.renormalize_eps > 0 ||
                       r.renormalize_min > 0;
  const bool as_vllm = c.bit_compat == Policy::vllm && c.quantization.is_w4a8_int8() &&
                       r.method != RoutingMethod::topk && r.scoring == Scoring::softmax &&
                       !r.num_expert_group.has_value() && !foreign;
  return as_vllm ? RouteRule::vllm : RouteRule::scores;
}

RouteScore score_of(const RoutingConfig& r) {
  if (r.method == RoutingMethod::topk) return RouteScore::logit;
  constexpr RouteScore kScores[] = {RouteScore::softmax, RouteScore::sigmoid, RouteScore::sqrtsoftplus};
  return at(kScores, r.scoring);
}

Error two_sources(const char* what, const char* first, const char* second) {
  return fail(Code::unexpected_weight, what,
              cat(what, ": given by ", first, " and by ", second, "; there is one source"));
}

// Inline values, the option, or what the loader found; empty: none was given.
Result<std::span<const float>> one_bias(const RoutingConfig& r, const RouterSources& from) {
  if (!r.has_bias) {
    if (!from.option.empty())
      return fail(Code::unexpected_weight, "correction_bias",
                  "correction_bias: routing.e_score_correction_bias is false in this config");
    return std::span<const float>();  // a loaded one: of a config that wanted it
  }
  if (!r.bias.empty()) {
    if (!from.option.empty()) return two_sources("correction_bias", "the config", "the option");
    if (!from.loaded.empty()) return two_sources("correction_bias", "the config", "the checkpoint");
    return std::span<const float>(r.bias);
  }
  if (from.option.empty()) return from.loaded;
  const bool repeats = std::equal(from.option.begin(), from.option.end(), from.loaded.begin(), from.loaded.end());
  if (!from.loaded.empty() && !repeats)
    return two_sources("correction_bias", "the option", "the checkpoint, with other values,");
  return from.option;
}

// The config's own, or what the loader found.
Check set_expert_scale(const RoutingConfig& c, std::span<const float> loaded, Router& r) {
  if (!c.expert_scale.wanted()) return ok();
  if (!c.expert_scale.values.empty() && !loaded.empty())
    return two_sources("expert_scale", "the config", "the checkpoint");
  const std::span<const float> values = loaded.empty() ? c.expert_scale.values : loaded;
  r.lacks_scale = values.empty();
  if (values.empty()) return ok();
  if (values.size() != 1 && values.size() != r.experts)
    return fail(Code::config_mismatch, "expert_scale",
                cat("expert_scale: ", values.size(), " values, the config has ", r.experts, " experts"));
  r.expert_scale.assign(r.experts, values[0]);
  if (values.size() > 1) std::copy(values.begin(), values.end(), r.expert_scale.begin());
  return ok();
}

}  // namespace

Result<Router> make_router(const Config& config, const RouteKernel& kernel, const RouterSources& sources) {
  const RoutingConfig& c = config.routing;
  Router r;
  r.rule = rule_of(config);
  r.score = score_of(c);
  r.kernel = &kernel;
  r.experts = usize(config.num_experts);
  r.columns = usize(config.router_columns());
  r.k = usize(config.top_k);
  r.shared = usize(c.num_fused_shared_experts);
  if (c.num_expert_group && *c.num_expert_group != *c.topk_group) {
    r.groups = usize(*c.num_expert_group);
    r.kept = usize(*c.topk_group);
  }
  r.shared_logits = usize(c.num_shared_logits);
  r.group_score = c.sums_two_of_group() ? GroupScore::two_largest : GroupScore::largest;
  r.zero_masked = c.masked_groups == MaskedGroups::zero;
  r.bias_on_logits = c.bias_on_logits;
  r.renormalize_eps = static_cast<float>(c.renormalize_eps);
  r.renormalize_min = static_cast<float>(c.renormalize_min);
  r.renormalize = c.renormalize && r.score != RouteScore::logit;
  const bool weighed = r.rule == RouteRule::scores || r.rule == RouteRule::hash;
  const bool drawn = r.rule == RouteRule::uniform_random || r.rule == RouteRule::normal_routing;
  if (!drawn) MOE_CHECK(set_expert_scale(c, sources.scale, r));
  if (weighed && !c.scales_output()) r.factor = static_cast<float>(c.routed_scaling_factor);
  if (config.apply_router_weight_on_input) r.weights_dtype = config.in_dtype;
  r.jitter_eps = static_cast<float>(c.jitter_eps.value_or(0.0));
  r.seed = static_cast<std::uint64_t>(c.seed.value_or(0));
  MOE_TRY(const std::span<const float> bias, one_bias(c, sources));
  if (!c.has_bias || r.rule != RouteRule::scores) return r;  // chosen without one
  r.lacks_bias = bias.empty();
  if (bias.empty()) return r;
  if (bias.size() != r.columns)
    return fail(Code::config_mismatch, "correction_bias",
                cat("correction_bias: ", bias.size(), " values, the config has ", r.columns,
                    " experts, zero experts included"));
  r.bias.assign(route_row_floats(r.columns), 0.0f);
  std::copy(bias.begin(), bias.end(), r.bias.begin());
  return r;
}

Check check_router(const Router& router) {
  if (router.rule == RouteRule::caller)
    return fail(Code::unsupported, "/routing/method",
                "/routing/method: with custom routing the caller gives ids and weights (mode TOPK)");
  if (router.lacks_scale)
    return fail(Code::missing_weight, "expert_scale",
                cat("expert_scale: the config names a tensor of the layer, and ", router.experts,
                    " values were given neither in the config nor with the weights"));
  if (router.lacks_bias)
    return fail(Code::missing_weight, "correction_bias",
                cat("correction_bias: routing.e_score_correction_bias is true, and ", router.columns,
                    " values were given neither in the config nor as a tensor nor with the weights"));
  return ok();
}

Check check_hash_ids(const Router& router, const TensorView& ids, const char* name, const Parallel& parallel) {
  MOE_TRY(const std::optional<BadId> bad,
          find_bad_id(ids, static_cast<std::int64_t>(router.k),
                      {.lowest = 0, .end = static_cast<std::int64_t>(router.columns)}, parallel));
  if (!bad) return ok();
  const std::string place = cat(name, "[", bad->t, ",", bad->j, "]");
  return fail(Code::invalid_argument, place,
              cat(place, ": expert id ", bad->id, " is not in [0, ", router.columns, ")"));
}

}  // namespace moe::run
