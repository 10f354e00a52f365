// The member "routing": golden method names, the rules of config.md 13.
#include <gtest/gtest.h>

#include "config/documents.h"
#include "config/sections.h"
#include "support/rooms.h"
#include "support/vectors.h"

namespace moe::test::routing_test {
namespace {

using nlohmann::json;

TEST(Routing, GoldenMethodNames) {
  const json golden = load_json("config/routing_method_cases.json");
  ASSERT_GE(golden["cases"].size(), 20U);
  for (const json& c : golden["cases"]) {
    const std::string word = c["scoring_func"].get<std::string>();
    const auto scoring = std::find(kScoringNames.begin(), kScoringNames.end(), word);
    if (scoring == kScoringNames.end()) continue;  // no scoring function of a configuration
    const std::int64_t groups = c["num_expert_group"].is_null() ? 0 : c["num_expert_group"].get<std::int64_t>();
    const RoutingMethod m =
        routing_method(static_cast<Scoring>(scoring - kScoringNames.begin()), c["top_k"].get<std::int64_t>(),
                       c["renormalize"].get<bool>(), groups, c["has_e_score_bias"].get<bool>());
    EXPECT_EQ(routing_method_name(m), c["2026-05"].get<std::string>()) << c;
  }
  for (const auto& [name, number] : golden["abi_numbers"].items()) {
    const auto m = routing_method_from_name(name);
    ASSERT_TRUE(m) << name;
    EXPECT_EQ(static_cast<int>(*m), number.get<int>()) << name;
  }
}

TEST(Routing, ResolvedMethod) {
  const auto method = [](const json& routing, std::int64_t top_k = 2) {
    return resolved_of(layer_document({{"top_k", top_k}, {"routing", routing}}))["routing"]["method"]
        .get<std::string>();
  };
  EXPECT_EQ(method(json::object()), "Renormalize");
  EXPECT_EQ(method({{"renormalize", false}}), "Default");
  EXPECT_EQ(method({{"scoring_func", "sigmoid"}, {"renormalize", false}}), "Sigmoid");
  EXPECT_EQ(method({{"scoring_func", "sigmoid"}}, 1), "Llama4");
  EXPECT_EQ(method({{"method", "topk"}}), "TopK");
  EXPECT_EQ(method({{"method", "custom"}}), "Custom");
  EXPECT_EQ(method({{"scoring_func", "softmax"}, {"e_score_correction_bias", true}}), "Unspecified");
  // Groups that are not used do not count.
  const json unused = {{"scoring_func", "sigmoid"},
                       {"e_score_correction_bias", true},
                       {"use_grouped_topk", false},
                       {"num_expert_group", 4}};
  EXPECT_EQ(method(unused), "MiniMax2");
  EXPECT_EQ(resolved_of(layer_document({{"routing", unused}}))["routing"]["num_expert_group"], nullptr);
}

TEST(Routing, Rules) {
  struct Row {
    json routing;
    const char* pointer;
    json more = json::object();
  };
  const Row rows[] = {
      {{{"num_expert_group", 4}, {"topk_group", 2}}, "accepted"},
      {{{"num_expert_group", 4}}, "/topk_group"},
      {{{"topk_group", 2}}, "/topk_group"},
      {{{"use_grouped_topk", true}}, "/num_expert_group"},
      {{{"use_grouped_topk", true}, {"num_expert_group", 4}}, "/topk_group"},
      {{{"use_grouped_topk", false}, {"num_expert_group", 4}, {"topk_group", 2}}, "/topk_group"},
      {{{"num_expert_group", 3}, {"topk_group", 1}}, "/num_expert_group"},
      {{{"num_expert_group", 4}, {"topk_group", 5}}, "/topk_group"},
      {{{"num_expert_group", 8}, {"topk_group", 8}, {"e_score_correction_bias", true}}, "/num_expert_group"},
      {{{"num_expert_group", 8}, {"topk_group", 1}}, "/topk_group"},
      {{{"method", "sparsemixer"}}, "accepted"},
      {{{"method", "sparsemixer"}, {"jitter_eps", 0}}, "accepted"},
      {{{"method", "sparsemixer"}, {"num_expert_group", 2}, {"topk_group", 1}}, "/num_expert_group"},
      {{{"method", "sparsemixer"}, {"e_score_correction_bias", true}}, "/e_score_correction_bias"},
      {{{"jitter_eps", 0.1}}, "/jitter_eps"},
      {{{"method", "sparsemixer"}, {"jitter_eps", 1.5}}, "/jitter_eps"},
      {{{"method", "simulated"}}, "/simulation_strategy"},
      {{{"simulation_strategy", "normal_routing"}}, "/simulation_strategy"},
      {{{"method", "simulated"}, {"simulation_strategy", "normal"}}, "/simulation_strategy"},
      {{{"num_zero_experts", 2}}, "/num_zero_experts"},
      {{{"num_zero_experts", 2}, {"e_score_correction_bias", true}}, "accepted"},
      {{{"num_zero_experts", 2}, {"e_score_correction_bias", {0, 1, 2, 3, 4, 5, 6, 7}}}, "/e_score_correction_bias"},
      {{{"num_zero_experts", 2}, {"e_score_correction_bias", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}}}, "accepted"},
      {{{"e_score_correction_bias", json::array()}}, "/e_score_correction_bias"},
      {{{"num_fused_shared_experts", 1}}, "accepted"},
      {{{"num_fused_shared_experts", 1}},
       "/num_fused_shared_experts",
       {{"parallel", {{"tp_size", 2}, {"enable_expert_parallel", true}}}}},
      {{{"num_fused_shared_experts", 1}, {"num_zero_experts", 1}, {"e_score_correction_bias", true}},
       "/num_fused_shared_experts"},
      {{{"hash_routing", true}}, "accepted"},
      {{{"hash_routing", true}, {"method", "topk"}}, "/hash_routing"},
      {{{"hash_routing", true}, {"num_expert_group", 2}, {"topk_group", 1}}, "/hash_routing"},
      {{{"hash_routing", true}, {"num_zero_experts", 1}, {"e_score_correction_bias", true}}, "/hash_routing"},
      {{{"topk_weights_hold_factor", true}}, "accepted"},
      {{{"topk_weights_hold_factor", 1}}, "/topk_weights_hold_factor"},
      {{{"skip_id", 8}}, "accepted"},
      {{{"skip_id", 7}}, "/skip_id"},
      {{{"skip_id", -1}}, "/skip_id"},
      {{{"skip_id", 2147483648}}, "/skip_id"},
      {{{"skip_id", 9}, {"num_zero_experts", 2}, {"e_score_correction_bias", true}}, "/skip_id"},
      {{{"skip_id", 8}, {"num_fused_shared_experts", 1}}, "/skip_id"},
      {{{"routed_scaling_factor", 1e6}}, "accepted"},
      {{{"routed_scaling_factor", 1.0000001e6}}, "/routed_scaling_factor"},
  };
  for (const Row& row : rows) {
    json d = layer_document(row.more);
    d["routing"] = row.routing;
    const std::string expected =
        std::string(row.pointer) == "accepted" ? "accepted" : std::string("/routing").append(row.pointer);
    EXPECT_EQ(fault_of(d), expected) << row.routing;
  }
  EXPECT_EQ(fault_of(layer_document({{"top_k", 3}, {"routing", {{"method", "sparsemixer"}}}})), "/top_k");
  EXPECT_EQ(fault_of(layer_document({{"apply_router_weight_on_input", true}})), "/apply_router_weight_on_input");
  EXPECT_EQ(fault_of(layer_document({{"apply_router_weight_on_input", true}, {"top_k", 1}})), "accepted");
}

TEST(Routing, Defaults) {
  const auto c = parse_config(layer_document({{"routing", {{"method", "sparsemixer"}}}}).dump());
  ASSERT_TRUE(c);
  EXPECT_EQ(c->routing.jitter_eps, 0.01);
  EXPECT_EQ(c->routing.seed, std::nullopt);
  const auto s = parse_config(
      layer_document({{"routing", {{"method", "simulated"}, {"simulation_strategy", "uniform_random"}}}}).dump());
  ASSERT_TRUE(s);
  EXPECT_EQ(s->routing.seed, 0);
  EXPECT_EQ(s->routing.simulation_strategy, "uniform_random");
}

// Documents of those who do not use them stay as they were.
TEST(Routing, NewMembersAreShownWhereTheyAreSet) {
  const json plain = resolved_of(layer_document(json::object()))["routing"];
  EXPECT_FALSE(plain.contains("skip_id"));
  EXPECT_FALSE(plain.contains("topk_weights_hold_factor"));
  const json set =
      resolved_of(layer_document({{"routing", {{"skip_id", 8}, {"topk_weights_hold_factor", false}}}}))["routing"];
  EXPECT_EQ(set["skip_id"], 8);
  EXPECT_EQ(set["topk_weights_hold_factor"], false);
}

}  // namespace
}  // namespace moe::test::routing_test
