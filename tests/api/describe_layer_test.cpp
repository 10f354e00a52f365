// moe_describe: parallel_config, routing_method and activation. Every golden case, and what is refused.
#include <gtest/gtest.h>

#include "support/describe.h"
#include "support/rooms.h"

namespace moe::test::describe_layer_test {
namespace {

using nlohmann::json;

TEST(DescribeParallel, EveryCase) {
  const json cases = load_json("config/parallel_cases.json").at("cases");
  EXPECT_EQ(cases.size(), 39U);
  for (const json& c : cases) {
    expect_answer("parallel_config", c["input"], c["expected"]);
    EXPECT_EQ(c["expected"].size(), 25U);
  }
}

TEST(DescribeParallel, Profiles) {
  const auto ask = [](json query) { return describe("parallel_config", query.dump()).answer; };
  EXPECT_EQ(ask({{"profile", "2026-04"}})["all2all_backend"], "naive");
  EXPECT_EQ(ask({{"profile", "seed"}})["all2all_backend"], "naive");
  EXPECT_EQ(ask({{"profile", "2026-05"}})["all2all_backend"], "allgather_reducescatter");
  EXPECT_EQ(ask({{"profile", "2026-11"}})["all2all_backend"], "allgather_reducescatter");
  EXPECT_EQ(ask({{"profile", "2026-04"}, {"dp_size", 2}})["all2all_backend"], "allgather_reducescatter");
  json split = {{"pcp_size", 2}, {"enable_expert_parallel", true}, {"all2all_backend", "mori_low_latency"}};
  for (const char* profile : {"2026-04", "2026-05", "2026-11"}) {
    split["profile"] = profile;
    const bool november = profile == std::string("2026-11");
    const json answer = ask(split);
    EXPECT_EQ(answer["use_all2all_kernels"], november) << profile;
    EXPECT_EQ(answer["use_mori_kernels"], november) << profile;
    EXPECT_EQ(answer.contains("use_moonep_kernels"), november) << profile;
    EXPECT_EQ(answer.contains("use_naive_all2all_kernels"), profile == std::string("2026-04")) << profile;
    EXPECT_EQ(answer.contains("use_nixl_ep_kernels"), profile != std::string("2026-04")) << profile;
  }
  json nixl = {{"dp_size", 2}, {"enable_expert_parallel", true}, {"all2all_backend", "nixl_ep"}};
  for (const char* profile : {"2026-04", "2026-05", "2026-11"}) {
    nixl["profile"] = profile;
    EXPECT_EQ(ask(nixl)["use_batched_activation_format"], profile != std::string("2026-04")) << profile;
  }
  EXPECT_EQ(ask({{"profile", "2026-11"}, {"all2all_backend", "passthrough"}})["use_passthrough_all2all"], true);
  EXPECT_EQ(ask({{"profile", "2026-11"}, {"all2all_backend", "moonep"}})["use_moonep_kernels"], false);
}

TEST(DescribeParallel, Refusals) {
  expect_refused("parallel_config", {{"[]", ""},
                                     {R"({"tp_size": 0})", "/tp_size"},
                                     {R"({"tp_size": 65537})", "/tp_size"},
                                     {R"({"tp_size": true})", "/tp_size"},
                                     {R"({"tp_size": null})", "/tp_size"},
                                     {R"({"tp_size": 2, "tp_rank": 2})", "/tp_rank"},
                                     {R"({"pcp_size": 2, "pcp_rank": 3})", "/pcp_rank"},
                                     {R"({"dp_size": 2, "dp_rank": -1})", "/dp_rank"},
                                     {R"({"sp_size": 1.5})", "/sp_size"},
                                     {R"({"enable_expert_parallel": 1})", "/enable_expert_parallel"},
                                     {R"({"enable_eplb": "yes"})", "/enable_eplb"},
                                     {R"({"all2all_backend": "carrier_pigeon"})", "/all2all_backend"},
                                     {R"({"all2all_backend": 3})", "/all2all_backend"},
                                     {R"({"profile": "2026-06"})", "/profile"},
                                     {R"({"ep_size": 2})", "/ep_size"}});
}

TEST(DescribeRouting, EveryCase) {
  const json all = load_json("config/routing_method_cases.json");
  EXPECT_EQ(all.at("cases").size(), 128U);
  const json numbers = all.at("abi_numbers");
  for (json c : all["cases"]) {
    const json want = {{"seed", c["seed"]}, {"2026-05", c["2026-05"]}};
    c.erase("seed");
    c.erase("2026-05");
    expect_answer("routing_method", c, want);
    const json answer = describe("routing_method", c.dump()).answer;
    EXPECT_EQ(answer["number"], numbers[answer["method"].get<std::string>()]) << c.dump();
    const bool sigmoid = c["scoring_func"] == "sigmoid" && c["top_k"] != 1 && c["renormalize"] == false &&
                         c["has_e_score_bias"] == false;
    EXPECT_EQ(answer["method"], sigmoid ? json("Sigmoid") : want["2026-05"]) << c.dump();
  }
  expect_answer("routing_method", {{"names", true}}, {{"numbers", numbers}});
  EXPECT_EQ(describe("routing_method", R"({"names": true})").answer["numbers"].size(), numbers.size());
}

// As vLLM 0.33.0's own function answers.
TEST(DescribeRouting, November) {
  struct Case {
    const char* scoring;
    int top_k;
    bool renormalize;
    int groups;
    bool bias;
    const char* name;
  };
  for (const Case& c :
       {Case{"sqrtsoftplus", 6, true, 0, true, "DeepseekV4"}, Case{"sqrtsoftplus", 6, false, 0, true, "Unspecified"},
        Case{"sigmoid", 8, true, 8, true, "DeepSeekV3"}, Case{"sigmoid", 8, false, 8, true, "Unspecified"},
        Case{"sigmoid", 8, true, 0, true, "MiniMax2"}, Case{"sigmoid", 8, false, 0, true, "Unspecified"},
        Case{"softmax", 8, true, 0, true, "Unspecified"}, Case{"sigmoid", 1, true, 0, false, "SigmoidRenorm"},
        Case{"sigmoid", 1, false, 0, false, "Sigmoid"}, Case{"softmax", 8, true, 0, false, "RenormalizeNaive"},
        Case{"softmax", 1, false, 0, false, "Default"}, Case{"tanh", 1, true, 0, false, "Unspecified"}}) {
    json query = {{"scoring_func", c.scoring},
                  {"top_k", c.top_k},
                  {"renormalize", c.renormalize},
                  {"num_expert_group", c.groups},
                  {"has_e_score_bias", c.bias}};
    const json today = describe("routing_method", query.dump()).answer;
    EXPECT_EQ(today["2026-11"], c.name) << query.dump();
    for (const char* profile : {"2026-04", "2026-05", "2026-11"}) {
      query["profile"] = profile;
      const json answer = describe("routing_method", query.dump()).answer;
      EXPECT_EQ(answer["method"], today[profile == std::string("2026-04") ? "seed" : profile]) << query.dump();
    }
  }
}

TEST(DescribeRouting, DefaultsAndRefusals) {
  expect_answer("routing_method", {{"scoring_func", "softmax"}, {"top_k", 2}}, {{"method", "Renormalize"}});
  expect_answer("routing_method", {{"scoring_func", "SOFTMAX"}, {"top_k", 2}}, {{"method", "Unspecified"}});
  expect_refused("routing_method",
                 {{"[]", ""},
                  {R"({"top_k": 1})", "/scoring_func"},
                  {R"({"scoring_func": "softmax"})", "/top_k"},
                  {R"({"scoring_func": null, "top_k": 1})", "/scoring_func"},
                  {R"({"scoring_func": "softmax", "top_k": 0})", "/top_k"},
                  {R"({"scoring_func": "softmax", "top_k": 1, "renormalize": null})", "/renormalize"},
                  {R"({"scoring_func": "softmax", "top_k": 1, "num_expert_group": -1})", "/num_expert_group"},
                  {R"({"scoring_func": "softmax", "top_k": 1, "has_e_score_bias": 0})", "/has_e_score_bias"},
                  {R"({"scoring_func": "softmax", "top_k": 1, "topk_group": 1})", "/topk_group"},
                  {R"({"scoring_func": "softmax", "top_k": 1, "profile": 2026})", "/profile"},
                  {R"({"names": false})", "/names"},
                  {R"({"names": 1})", "/names"},
                  {R"({"names": true, "top_k": 1})", "/top_k"}});
}

TEST(DescribeActivation, EveryName) {
  const json index = load_json("activation/index.json");
  EXPECT_EQ(index.at("cases").size(), 15U);
  for (const json& c : index["cases"])
    expect_answer("activation", {{"activation", c["activation"]}},
                  {{"name", c["activation"]}, {"gated", c["gated"]}, {"without_mul", c["without_mul"]}});
  EXPECT_EQ(index.at("unknown").size(), 5U);
  for (const json& u : index["unknown"]) {
    const Described d = describe("activation", u.dump());
    EXPECT_EQ(d.why.status, MOE_ERR_INVALID_CONFIG) << u;
    EXPECT_EQ(d.why.subject, "/activation") << u;
  }
  for (const auto& [alias, name] : index.at("alias").items())
    expect_answer("activation", {{"activation", alias}}, {{"name", name}});
}

TEST(DescribeActivation, ParametersLayoutAndRefusals) {
  const json none = {{"alpha", nullptr}, {"beta", nullptr}, {"limit", nullptr}};
  const json oai = {{"alpha", 1.702}, {"beta", 1.0}, {"limit", 7.0}};
  expect_answer("activation", {{"activation", "gelu_pytorch_tanh"}},
                {{"without_mul", "gelu_tanh_no_mul"}, {"w13_layout", "gate_up"}, {"params", none}});
  expect_answer("activation", {{"activation", "swigluoai"}}, {{"w13_layout", "interleaved"}, {"params", oai}});
  expect_answer("activation", {{"activation", "relu2_no_mul"}}, {{"gated", false}, {"w13_layout", nullptr}});
  expect_refused("activation", {{"[]", ""},
                                {"{}", "/activation"},
                                {R"({"activation": null})", "/activation"},
                                {R"({"activation": "silu", "limit": 7})", "/limit"}});
}

}  // namespace
}  // namespace moe::test::describe_layer_test
