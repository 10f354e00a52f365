// moe_describe: quant_config, ocp_mx_scheme and quant_key. Every golden case, and what is refused.
#include <gtest/gtest.h>

#include <map>

#include "support/describe.h"
#include "support/rooms.h"

namespace moe::test::describe_quant_test {
namespace {

using nlohmann::json;

TEST(DescribeQuant, EveryBuilderCall) {
  const json cases = load_json("config/quant_config_cases.json").at("cases");
  EXPECT_EQ(cases.size(), 107U);
  std::size_t errors = 0;
  for (json c : cases) {
    const json expected = c["expected"];
    c.erase("expected");
    if (!expected.contains("error")) {
      expect_answer("quant_config", c, expected);
      continue;
    }
    ++errors;
    const Described d = describe("quant_config", c.dump());
    EXPECT_EQ(d.why.status, MOE_ERR_INVALID_CONFIG) << c.dump();
    EXPECT_EQ(d.why.subject, "") << c.dump();
  }
  EXPECT_EQ(errors, 13U);
}

TEST(DescribeQuant, TheExampleOfTheSpec) {
  const Described d = describe("quant_config", R"({"builder": "gptq_marlin", "args": ["tensor", "tensor", 4, 128]})");
  ASSERT_EQ(d.why.status, MOE_OK);
  const json none = {{"dtype", nullptr},         {"shape", {1, 128}}, {"scale", false},
                     {"alpha_or_gscale", false}, {"zp", false},       {"bias", false}};
  EXPECT_EQ(d.answer["descs"]["a1"], none);
  EXPECT_EQ(d.answer["descs"]["w1"]["scale"], true);
  EXPECT_EQ(d.answer["predicates"].size(), 19U);
  EXPECT_EQ(d.answer["config_name"], (json{{"fp32", "int4_w4a16"}, {"bf16", "int4_w4a16"}}));
  EXPECT_EQ(d.answer["tuning_suffix"]["bf16"], ",dtype=int4_w4a16,block_shape=[1,128].json");
}

// Every builder takes its own arguments, by position and by name with the same answer, and each one arrives.
TEST(DescribeQuant, PositionsAreNames) {
  const json values = {{"quant_dtype", "mxfp4"},    {"weight_dtype", "mxfp6_e2m3"},
                       {"weight_bits", 8},          {"num_bits", 4},
                       {"group_size", 64},          {"per_act_token_quant", false},
                       {"per_out_ch_quant", false}, {"is_scale_swizzled", false},
                       {"block_shape", {1, 32}},    {"gemm1_alpha", 1.5},
                       {"gemm1_beta", 0.5},         {"gemm1_clamp_limit", 7.0}};
  const std::map<std::string, std::vector<std::string>> orders = {
      {"make", {"quant_dtype", "per_act_token_quant", "per_out_ch_quant", "block_shape"}},
      {"fp8_w8a8", {"w1_scale", "w2_scale"}},
      {"int8_w8a8", {"w1_scale", "w2_scale", "a1_scale", "a2_scale", "w1_bias", "w2_bias", "per_act_token_quant"}},
      {"gptq_marlin", {"w1_scale", "w2_scale", "weight_bits", "group_size", "w1_zp", "w2_zp", "w1_bias", "w2_bias"}},
      {"awq_marlin",
       {"w1_scale", "w2_scale", "w1_zp", "w2_zp", "weight_bits", "group_size", "w1_bias", "w2_bias", "a1_gscale",
        "a2_gscale"}},
      {"int4_w4a16", {"w1_scale", "w2_scale", "w1_zp", "w2_zp", "block_shape"}},
      {"int8_w8a16", {"w1_scale", "w2_scale", "w1_zp", "w2_zp", "block_shape"}},
      {"fp8_w8a16", {"w1_scale", "w2_scale", "block_shape"}},
      {"int4_w4afp8",
       {"w1_scale", "w2_scale", "g1_alphas", "g2_alphas", "per_act_token_quant", "per_out_ch_quant", "block_shape"}},
      {"mxfp4_w4a16", {"w1_scale", "w2_scale", "w1_bias", "w2_bias"}},
      {"mxfp4_mxfp8", {"w1_scale", "w2_scale", "a1_scale", "a2_scale", "w1_bias", "w2_bias", "block_shape"}},
      {"mxfp4_w4a8", {"w1_scale", "w2_scale", "a1_scale", "a2_scale", "w1_bias", "w2_bias", "block_shape"}},
      {"ocp_mx",
       {"quant_dtype", "w1_scale", "w2_scale", "weight_dtype", "a1_scale", "a2_scale", "w1_bias", "w2_bias",
        "block_shape"}},
      {"nvfp4",
       {"g1_alphas", "g2_alphas", "a1_gscale", "a2_gscale", "w1_scale", "w2_scale", "w1_bias", "w2_bias",
        "is_scale_swizzled"}},
      {"nvfp4_w4a16", {"g1_alphas", "g2_alphas", "w1_scale", "w2_scale"}},
      {"biased", {"w1_bias", "w2_bias"}},
      {"w4a8_int8", {"block_shape"}},
      {"wna16",
       {"w1_scale", "w2_scale", "group_size", "num_bits", "w1_zp", "w2_zp", "w1_bias", "w2_bias", "a1_gscale",
        "a2_gscale", "gemm1_clamp_limit", "gemm1_alpha", "gemm1_beta"}}};
  for (const auto& [builder, order] : orders) {
    json by_place = {{"builder", builder}, {"args", json::array()}}, by_name = {{"builder", builder}};
    for (const std::string& name : order) {
      const json value = values.contains(name) ? values[name] : json("tensor");
      by_place["args"].push_back(value);
      by_name["kwargs"][name] = value;
    }
    const Described a = describe("quant_config", by_place.dump()), b = describe("quant_config", by_name.dump());
    ASSERT_EQ(a.why.status, MOE_OK) << builder << ": " << a.why.message;
    EXPECT_EQ(a.answer, b.answer) << builder;
    by_place["args"].push_back(nullptr);
    expect_refused("quant_config", {{by_place.dump().c_str(), ("/args/" + std::to_string(order.size())).c_str()}});
  }
}

TEST(DescribeQuant, Wna16) {
  const Described d = describe("quant_config", R"({"builder": "wna16", "args": ["tensor", "tensor", 128, 4],
    "kwargs": {"w1_zp": "tensor", "w2_zp": "tensor", "a1_gscale": "tensor", "gemm1_clamp_limit": 7}})");
  ASSERT_EQ(d.why.status, MOE_OK) << d.why.message;
  EXPECT_EQ(d.answer["predicates"]["block_shape"], (json{0, 128}));
  EXPECT_EQ(d.answer["descs"]["w2"]["dtype"], "int4");
  EXPECT_EQ(d.answer["descs"]["w2"]["zp"], true);
  EXPECT_EQ(d.answer["descs"]["a1"]["alpha_or_gscale"], true);
  EXPECT_EQ(d.answer["descs"]["a2"]["alpha_or_gscale"], false);
  EXPECT_EQ(d.answer["gemm1_clamp_limit"], 7.0);
}

TEST(DescribeQuant, AskedShapes) {
  const Described d = describe("quant_config", R"({"builder": "make", "args": ["fp8_e4m3fn"],
    "kwargs": {"block_shape": [128, 128]}, "shapes": [{"max_tokens": 3, "hidden_dim": 129, "num_experts": 2}]})");
  ASSERT_EQ(d.why.status, MOE_OK) << d.why.message;
  const json want = {
      {{"max_tokens", 3}, {"hidden_dim", 129}, {"num_experts", 2}, {"shape", {3, 2}}, {"batched", {2, 3, 2}}}};
  EXPECT_EQ(d.answer["scale_shape"], want);
}

TEST(DescribeQuant, StatesOfVllm) {
  const auto answer = [](const std::string& profile) {
    return describe("quant_config", R"({"builder": "fp8_w8a8", "args": ["tensor", "tensor"], "platform_fp8":
      "fp8_e4m3fnuz", "profile": ")" + profile +
                                        "\"}")
        .answer;
  };
  EXPECT_EQ(answer("2026-04"), answer("seed"));
  EXPECT_NE(answer("2026-04"), answer("2026-05"));
}

TEST(DescribeQuant, Refusals) {
  expect_refused(
      "quant_config",
      {{"[]", ""},
       {"{\"builder\":", ""},
       {R"({})", "/builder"},
       {R"({"builder": null})", "/builder"},
       {R"({"builder": "Make"})", "/builder"},
       {R"({"builder": "make", "colour": 1})", "/colour"},
       {R"({"builder": "make", "args": {}})", "/args"},
       {R"({"builder": "make", "kwargs": []})", "/kwargs"},
       {R"({"builder": "make", "profile": "may"})", "/profile"},
       {R"({"builder": "make", "platform_fp8": "fp8"})", "/platform_fp8"},
       {R"({"builder": "make", "args": ["int9"]})", "/args/0"},
       {R"({"builder": "make", "args": [8]})", "/args/0"},
       {R"({"builder": "make", "args": ["int8", 1]})", "/args/1"},
       {R"({"builder": "make", "args": ["int8", null]})", "/args/1"},
       {R"({"builder": "make", "args": ["int8"], "kwargs": {"quant_dtype": "int8"}})", "/kwargs/quant_dtype"},
       {R"({"builder": "make", "kwargs": {"block_shape": [1]}})", "/kwargs/block_shape"},
       {R"({"builder": "make", "kwargs": {"block_shape": [1, 0]}})", "/kwargs/block_shape/1"},
       {R"({"builder": "make", "kwargs": {"block_shape": [-2, 4]}})", "/kwargs/block_shape/0"},
       {R"({"builder": "make", "kwargs": {"block_shape": [true, 4]}})", "/kwargs/block_shape/0"},
       {R"({"builder": "make", "kwargs": {"w1_scale": true}})", "/kwargs/w1_scale"},
       {R"({"builder": "make", "kwargs": {"w1_scale": "a tensor"}})", "/kwargs/w1_scale"},
       {R"({"builder": "make", "kwargs": {"gemm1_alpha": "1"}})", "/kwargs/gemm1_alpha"},
       {R"({"builder": "make", "kwargs": {"a/b": 1}})", "/kwargs/a~1b"},
       {R"({"builder": "fp8_w8a8", "args": ["tensor", "tensor"], "kwargs": {"quant_dtype": "int8"}})",
        "/kwargs/quant_dtype"},
       {R"({"builder": "fp8_w8a8", "args": ["tensor"]})", "/kwargs/w2_scale"},
       {R"({"builder": "int4_w4a16", "args": ["tensor", "tensor"], "kwargs": {"w2_zp": null}})", "/kwargs/w1_zp"},
       {R"({"builder": "gptq_marlin", "args": ["tensor", "tensor", 4]})", "/kwargs/group_size"},
       {R"({"builder": "gptq_marlin", "args": ["tensor", "tensor", 4.5, 128]})", "/args/2"},
       {R"({"builder": "gptq_marlin", "args": ["tensor", "tensor", 4, 0]})", "/args/3"},
       {R"({"builder": "make", "shapes": {}})", "/shapes"},
       {R"({"builder": "make", "shapes": [{"max_tokens": 1, "hidden_dim": 2}]})", "/shapes/0/num_experts"},
       {R"({"builder": "make", "shapes": [{"max_tokens": 0, "hidden_dim": 2, "num_experts": 1}]})",
        "/shapes/0/max_tokens"}});
}

TEST(DescribeOcpMx, EveryPair) {
  const json cases = load_json("config/ocp_mx_cases.json").at("cases");
  EXPECT_EQ(cases.size(), 80U);
  for (json c : cases) {
    const json scheme = c["scheme"];
    c.erase("scheme");
    expect_answer("ocp_mx_scheme", c, {{"scheme", scheme}});
  }
  EXPECT_EQ(describe("ocp_mx_scheme", R"({"act": "mxfp8", "weight": "mxfp4"})").answer["warning"], "unknown_mx_pair");
  EXPECT_FALSE(describe("ocp_mx_scheme", R"({"act": "mxfp8", "weight": "mxfp8"})").answer.contains("warning"));
}

TEST(DescribeOcpMx, Refusals) {
  expect_refused("ocp_mx_scheme", {{"[]", ""},
                                   {R"({"act": null})", "/weight"},
                                   {R"({"weight": null})", "/act"},
                                   {R"({"act": "mxfp5", "weight": null})", "/act"},
                                   {R"({"act": null, "weight": 4})", "/weight"},
                                   {R"({"act": null, "weight": null, "a": 1})", "/a"}});
}

TEST(DescribeQuantKey, EveryKey) {
  const json keys = load_json("config/quant_keys.json");
  EXPECT_EQ(keys.size(), 18U);
  for (const auto& [name, object] : keys.items()) expect_answer("quant_key", {{"name", name}}, object);
}

TEST(DescribeQuantKey, NamesAreTheCatalogue) {
  const json names = describe("quant_key", "{}").answer.at("names");
  EXPECT_EQ(names.size(), 26U);
  for (const json& name : names) {
    const Described d = describe("quant_key", json{{"name", name}}.dump());
    EXPECT_EQ(d.why.status, MOE_OK) << name;
    EXPECT_EQ(d.answer["symmetric"], name.get<std::string>().find("Asym") == std::string::npos) << name;
  }
  expect_refused("quant_key", {{"[]", ""},
                               {R"({"name": "kInt5Static"})", "/name"},
                               {R"({"name": null})", "/name"},
                               {R"({"name": "kInt4Static", "x": 1})", "/x"}});
}

}  // namespace
}  // namespace moe::test::describe_quant_test
