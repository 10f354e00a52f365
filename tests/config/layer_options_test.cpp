// Members of few models: names of stacks, the norm of experts' output, caps of an activation, and how weights of
// routing are made. What each takes and refuses, where it is shown, and what stays of it in a variant.
#include <gtest/gtest.h>

#include "config/documents.h"
#include "support/rooms.h"

namespace moe::test::layer_options_test {
namespace {

using nlohmann::json;

std::vector<double> row_of(std::size_t n) {
  std::vector<double> v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = 0.25 * static_cast<double>(i);
  return v;
}

struct Row {
  json more;
  const char* pointer;
};

TEST(LayerOptions, OfTheLayer) {
  const json softcap = {{"activation", "swiglu_softcap"}};
  const auto capped = [&](const char* member, json value) {
    json d = softcap;
    d["activation_params"][member] = std::move(value);
    return d;
  };
  json norm_on_input = {{"expert_norm", "norm.weight"}, {"apply_router_weight_on_input", true}, {"top_k", 1}};
  const Row rows[] = {
      {{{"stacked_weights", "flat"}}, "accepted"},
      {{{"stacked_weights", "flats"}}, "/stacked_weights"},
      {{{"stacked_weights", "flat"}, {"stacked_names", {"w1", "v1", "w2"}}}, "accepted"},
      {{{"stacked_names", {"w1", "v1", "w2"}}}, "/stacked_names"},  // of nothing that is read
      {{{"stacked_names", {"w13"}}}, "/stacked_names"},
      {{{"stacked_names", {"a", "b", "c", "d"}}}, "/stacked_names"},
      {{{"stacked_names", "w13"}}, "/stacked_names"},
      {{{"stacked_names", {"w13", 2}}}, "/stacked_names/1"},
      {{{"stacked_names", {"w13", ""}}}, "/stacked_names/1"},
      {{{"stacked_names", {"w13", std::string(129, 'x')}}}, "/stacked_names/1"},
      {{{"stacked_names", {"w1", "v1", "w1"}}}, "/stacked_names/2"},
      {{{"ignored_tensors", {"gate.bias", "model.layers.0.mlp.expert_bias"}}}, "accepted"},
      {{{"ignored_tensors", json::array()}}, "accepted"},
      {{{"ignored_tensors", "gate.bias"}}, "/ignored_tensors"},
      {{{"ignored_tensors", std::vector<std::string>(65, "x")}}, "/ignored_tensors"},
      {{{"ignored_tensors", {"a", ""}}}, "/ignored_tensors/1"},
      {{{"ignored_tensors", {"a", std::string(513, 'x')}}}, "/ignored_tensors/1"},
      {{{"ignored_tensors", {"a", "a"}}}, "/ignored_tensors/1"},
      {{{"expert_norm", "experts.norm.weight"}}, "accepted"},
      {{{"expert_norm", row_of(256)}}, "accepted"},
      {{{"expert_norm", row_of(255)}}, "/expert_norm"},
      {{{"expert_norm", {1}}}, "/expert_norm"},
      {{{"expert_norm", ""}}, "/expert_norm"},
      {{{"expert_norm", std::string(129, 'x')}}, "/expert_norm"},
      {{{"expert_norm", true}}, "/expert_norm"},
      {norm_on_input, "/expert_norm"},
      {{{"expert_norm", "n"}, {"routing", {{"num_fused_shared_experts", 1}}}}, "/expert_norm"},
      {{{"expert_norm", "n"}, {"parallel", {{"tp_size", 2}}}}, "/expert_norm"},
      {{{"expert_norm", "n"}, {"parallel", {{"tp_size", 2}, {"enable_expert_parallel", true}}}}, "accepted"},
      {{{"expert_norm", "n"}, {"expert_norm_eps", 1e-6}}, "accepted"},
      {{{"expert_norm", "n"}, {"expert_norm_eps", 0}}, "/expert_norm_eps"},
      {{{"expert_norm", "n"}, {"expert_norm_eps", 1.5}}, "/expert_norm_eps"},
      {softcap, "accepted"},
      {capped("gate_cap", 0.001), "accepted"},
      {capped("up_cap", 1e6), "accepted"},
      {capped("gate_cap", 0), "/activation_params/gate_cap"},
      {capped("up_cap", -1), "/activation_params/up_cap"},
      {capped("up_cap", 1e7), "/activation_params/up_cap"},
      {capped("alpha", 1), "/activation_params/alpha"},
      {capped("limit", 7), "/activation_params/limit"},
      {{{"activation", "situ"}}, "accepted"},
      {{{"activation", "situ"}, {"activation_params", {{"gate_cap", 4}, {"up_cap", 2}}}}, "accepted"},
      {{{"activation", "situ"}, {"activation_params", {{"beta", 4}}}}, "/activation_params/beta"},
      {{{"activation_params", {{"gate_cap", 4}}}}, "/activation_params/gate_cap"},
      {{{"activation_params", {{"up_cap", 4}}}}, "/activation_params/up_cap"},
  };
  for (const Row& row : rows) EXPECT_EQ(fault_of(layer_document(row.more)), row.pointer) << row.more;
  json with_nan = layer_document({{"expert_norm", row_of(256)}});
  with_nan["expert_norm"][3] = 1e39;
  EXPECT_EQ(fault_of(with_nan), "/expert_norm/3");
}

TEST(LayerOptions, OfRouting) {
  const json sigmoid = {{"scoring_func", "sigmoid"}};
  const auto with = [](json routing, const json& more) {
    routing.merge_patch(more);
    return routing;
  };
  const json biased = {{"e_score_correction_bias", true}}, groups = {{"num_expert_group", 4}, {"topk_group", 2}},
             hash = {{"hash_routing", true}}, topk = {{"method", "topk"}}, custom = {{"method", "custom"}},
             simulated = {{"method", "simulated"}, {"simulation_strategy", "uniform_random"}},
             mixer = {{"method", "sparsemixer"}}, shared = with(sigmoid, {{"num_shared_logits", 2}}),
             zero = with(biased, {{"num_zero_experts", 2}});
  const Row rows[] = {
      {with(biased, {{"correction_bias_name", "router.bias"}}), "accepted"},
      {{{"correction_bias_name", "router.bias"}}, "/correction_bias_name"},
      {with(biased, {{"correction_bias_name", std::string(129, 'x')}}), "/correction_bias_name"},
      {with(biased, {{"bias_on_logits", true}}), "accepted"},
      {{{"bias_on_logits", true}}, "/bias_on_logits"},
      {with(with(biased, groups), {{"bias_on_logits", true}}), "/bias_on_logits"},
      {with(groups, {{"group_score", "two_largest"}}), "accepted"},
      {{{"group_score", "two_largest"}}, "accepted"},  // says something of groups, and there are none
      {with(groups, {{"group_score", "three"}}), "/group_score"},
      {{{"num_expert_group", 8}, {"topk_group", 8}, {"group_score", "two_largest"}}, "/num_expert_group"},
      {with(biased, {{"num_expert_group", 8}, {"topk_group", 8}, {"group_score", "largest"}}), "accepted"},
      {with(groups, {{"masked_groups", "zero"}}), "accepted"},
      {with(groups, {{"masked_groups", 0}}), "/masked_groups"},
      {with(zero, {{"zero_experts", "nothing"}}), "accepted"},
      {{{"zero_experts", "nothing"}}, "/zero_experts"},
      {with(zero, groups), "/num_expert_group"},  // its columns are no multiple of groups
      {with(zero, {{"num_expert_group", 4}, {"topk_group", 4}}), "accepted"},
      {shared, "accepted"},
      {with(shared, groups), "accepted"},
      {with(shared, {{"num_shared_logits", 65}}), "/num_shared_logits"},
      {with(shared, {{"scoring_func", "softmax"}}), "/num_shared_logits"},
      {with(shared, {{"renormalize", false}}), "/num_shared_logits"},
      {with(shared, zero), "/num_shared_logits"},
      {with(shared, hash), "/num_shared_logits"},
      {with(shared, topk), "/num_shared_logits"},
      {with(shared, mixer), "/num_shared_logits"},
      {with(shared, custom), "accepted"},
      {with(shared, simulated), "accepted"},
      {{{"renormalize_eps", 1e-20}}, "accepted"},
      {{{"renormalize_eps", 1e-20}, {"renormalize", false}}, "accepted"},
      {{{"renormalize_eps", -1e-20}}, "/renormalize_eps"},
      {with(hash, {{"renormalize_eps", 1e-20}}), "accepted"},
      {with(topk, {{"renormalize_eps", 1e-20}}), "/renormalize_eps"},
      {with(mixer, {{"renormalize_eps", 1e-20}}), "/renormalize_eps"},
      {with(custom, {{"renormalize_eps", 1e-20}}), "accepted"},
      {{{"renormalize_min", 1e-12}}, "accepted"},
      {{{"renormalize_min", 2}}, "/renormalize_min"},
      {with(hash, {{"renormalize_min", 1e-12}}), "/renormalize_min"},
      {with(topk, {{"renormalize_min", 1e-12}}), "/renormalize_min"},
      {{{"expert_scale", "per_expert_scale"}}, "accepted"},
      {{{"expert_scale", row_of(8)}}, "accepted"},
      {{{"expert_scale", {2}}}, "accepted"},
      {{{"expert_scale", row_of(9)}}, "/expert_scale"},
      {{{"expert_scale", json::array()}}, "/expert_scale"},
      {{{"expert_scale", ""}}, "/expert_scale"},
      {{{"expert_scale", 2}}, "/expert_scale"},
      {{{"expert_scale", {0, 1, 2, 3, 4, 5, "6", 7}}}, "/expert_scale/6"},
      {with(zero, {{"expert_scale", row_of(10)}}), "/expert_scale"},  // of experts with weights
  };
  for (const Row& row : rows) {
    const std::string pointer = row.pointer;
    json d = layer_document();
    d["routing"] = row.more;
    EXPECT_EQ(fault_of(d), pointer == "accepted" ? pointer : "/routing" + pointer) << row.more;
  }
}

// Documents of those who do not use them stay as they were; what is set is shown as it was given.
TEST(LayerOptions, AreShownWhereTheyAreSet) {
  const json layer = {{"stacked_weights", "flat"},
                      {"stacked_names", {"w1", "v1", "w2"}},
                      {"expert_norm", "experts.norm.weight"},
                      {"expert_norm_eps", 1e-6}};
  const json routing = {{"correction_bias_name", "router.bias"},
                        {"group_score", "largest"},
                        {"masked_groups", "zero"},
                        {"renormalize_eps", 1e-20},
                        {"renormalize_min", 1e-12},
                        {"num_shared_logits", 2},
                        {"expert_scale", {0.1f, 1, 2, 3, 4, 5, 6, 7}}};
  const json zero = {{"num_zero_experts", 2}, {"zero_experts", "nothing"}, {"bias_on_logits", true}};
  const json plain = resolved_of(layer_document());
  json d = layer_document(layer);
  d["routing"] = routing;
  d["routing"].update(
      {{"e_score_correction_bias", true}, {"scoring_func", "sigmoid"}, {"num_expert_group", 4}, {"topk_group", 2}});
  const json set = resolved_of(d);
  for (const auto& [key, value] : layer.items()) {
    EXPECT_FALSE(plain.contains(key)) << key;
    EXPECT_EQ(set[key], value) << key;
  }
  for (const auto& [key, value] : routing.items()) {
    EXPECT_FALSE(plain["routing"].contains(key)) << key;
    EXPECT_EQ(set["routing"][key], value) << key;
  }
  json z = layer_document();
  z["routing"] = zero;
  z["routing"]["e_score_correction_bias"] = true;
  const json shown = resolved_of(z)["routing"];
  for (const auto& [key, value] : zero.items()) EXPECT_EQ(shown[key], value) << key;
  EXPECT_FALSE(plain["routing"].contains("zero_experts") || plain["routing"].contains("bias_on_logits"));
  EXPECT_FALSE(plain["activation_params"].contains("gate_cap") || plain["activation_params"].contains("up_cap"));
  const json caps =
      resolved_of(layer_document({{"activation", "swiglu_softcap"}, {"activation_params", {{"up_cap", 9}}}}));
  EXPECT_EQ(caps["activation_params"]["gate_cap"], 4.0);
  EXPECT_EQ(caps["activation_params"]["up_cap"], 9.0);
  const json situ = resolved_of(layer_document({{"activation", "situ"}, {"activation_params", {{"gate_cap", 9}}}}));
  EXPECT_EQ(situ["activation_params"]["gate_cap"], 9.0);
  EXPECT_FALSE(situ["activation_params"].contains("up_cap"));
}

TEST(LayerOptions, OfAVariant) {
  json d = layer_document({{"expert_norm", row_of(256)}, {"activation", "swiglu_softcap"}});
  d["routing"] = {{"expert_scale", row_of(8)}, {"renormalize_eps", 1e-6}};
  const auto merged = [&](const json& patch) { return merge_config(*parse_config(d.dump()), patch.dump()); };
  const auto same = merged(json::object());
  ASSERT_TRUE(same);
  EXPECT_EQ(json::parse(same->canonical), resolved_of(d));
  ASSERT_EQ(same->expert_norm.values.size(), 256u);
  EXPECT_EQ(same->expert_norm.values[5], 1.25f);
  const auto other = merged({{"expert_norm", "norm.weight"}, {"routing", {{"expert_scale", {3}}}}});
  ASSERT_TRUE(other);
  EXPECT_EQ(other->expert_norm.name, "norm.weight");
  EXPECT_TRUE(other->expert_norm.values.empty());
  EXPECT_EQ(other->routing.expert_scale.values, std::vector<float>{3});
  EXPECT_EQ(other->routing.renormalize_eps, 1e-6);
  const auto none = merged({{"expert_norm", nullptr}, {"routing", {{"expert_scale", nullptr}}}});
  ASSERT_TRUE(none);
  EXPECT_FALSE(none->expert_norm.wanted() || none->routing.expert_scale.wanted());
  EXPECT_EQ(merged({{"num_experts", 4}}).error().subject, "/routing/expert_scale");
  EXPECT_EQ(merged({{"hidden_dim", 128}}).error().subject, "/expert_norm");
}

}  // namespace
}  // namespace moe::test::layer_options_test
