// A selection as JSON: the documented members, and that what runs is what is written: types inside the kernel,
// quantization config, routing method, activation format, shard, experts.
#include <gtest/gtest.h>

#include <initializer_list>
#include <memory>
#include <string>

#include "oracle/selection.h"
#include "support/rooms.h"
#include "support/vectors.h"
#include "vllm/topics.h"

namespace moe::test::selection_json_test {
namespace {

using nlohmann::json;

Platform machine(Arch arch, std::initializer_list<Feature> features) {
  Platform p;
  p.type = DeviceType::cpu;
  p.arch = arch;
  for (const Feature f : features) p.features.set(static_cast<std::size_t>(f));
  return p;
}
Platform avx2() { return machine(Arch::x86_64, {Feature::scalar, Feature::avx2, Feature::fma, Feature::f16c}); }
Platform arm() {
  Platform p = machine(Arch::aarch64, {Feature::scalar, Feature::neon, Feature::dotprod});
  p.libs = {{"torch_dyn_quant_4bit", true}};
  return p;
}

// The JSON of a small layer's selection; `patch` brings its quantization.
json selected(const json& patch, const Platform& p = avx2()) {
  json doc = {{"num_experts", 8}, {"top_k", 2}, {"hidden_dim", 256}, {"intermediate_size", 128}};
  doc.merge_patch(patch);
  Result<Config> c = parse_config(doc.dump());
  EXPECT_TRUE(c) << c.error().message << " in " << doc.dump();
  if (!c) return json::object();
  const auto s = select_backend(std::make_shared<const Config>(*std::move(c)), p, {.explain_only = true});
  EXPECT_TRUE(s) << s.error().message;
  return s ? json::parse(selection_to_json(*s)) : json::object();
}
json scheme(const char* name, int group = 0) {
  json q = {{"scheme", name}};
  if (group != 0) q["group_size"] = group;
  return {{"quantization", q}};
}
json with(json base, const char* patch) {
  base.merge_patch(json::parse(patch));
  return base;
}

TEST(SelectionJson, HasTheDocumentedMembers) {
  const json v = selected(with(scheme("W4A8", 32), R"({"parallel": {"tp_size": 2, "tp_rank": 1,
    "enable_expert_parallel": true, "expert_placement_strategy": "round_robin"}})"));
  EXPECT_EQ(v.at("backend"), "CPU_INT4");
  EXPECT_EQ(v.at("kernel"), "w4a8_tok8_p16_avx2");
  EXPECT_EQ(v.at("experts"), "CPUExpertsInt4");
  EXPECT_EQ(v.at("layout"), "p16/int4-g32/1");
  EXPECT_EQ(v.at("weight_scheme"), "int4_g32_sym");
  EXPECT_EQ(v.at("activation_scheme"), "int8_token_dynamic");
  EXPECT_EQ(v.at("routing_method"), "Renormalize");
  EXPECT_EQ(v.at("activation_format"), "standard");
  EXPECT_EQ(v.at("warning"), "");
  EXPECT_EQ(v.at("platform").at("type"), "cpu");
  EXPECT_EQ(v.at("config").at("num_experts"), 8);
  EXPECT_EQ(v.at("expert_placement"), json::parse(R"({"strategy": "round_robin", "requested": "round_robin",
    "ep_size": 2, "ep_rank": 1, "experts": [1, 3, 5, 7]})"));
  int refused = 0;
  for (const json& c : v.at("candidates")) {
    if (c.at("kernel") != "w4a8_tok8_p16_avx512vnni") continue;
    ++refused;
    EXPECT_EQ(c.at("reason"), "MOE_REJECT_ISA");
    EXPECT_EQ(c.at("reason_code"), 3);
    EXPECT_EQ(c.at("accepted"), false);
    EXPECT_EQ(c.at("chosen"), false);
    EXPECT_EQ(c.at("subject"), "avx512_vnni");
  }
  EXPECT_EQ(refused, 1);
  for (const json& c : v.at("candidates")) EXPECT_EQ(c.at("chosen"), c.at("kernel") == v.at("kernel"));
}

TEST(SelectionJson, PolicyVllmFallsBackToLinearPlacement) {
  const json v = selected(with(scheme("W4A8", 32), R"({"selection_policy": "vllm", "parallel": {"tp_size": 2,
    "enable_expert_parallel": true, "expert_placement_strategy": "round_robin"}})"),
                          arm());
  EXPECT_EQ(v.at("expert_placement").at("strategy"), "linear");
  EXPECT_EQ(v.at("expert_placement").at("requested"), "round_robin");
  EXPECT_EQ(v.at("expert_placement").at("experts"), json::parse("[0, 1, 2, 3]"));
  EXPECT_EQ(v.at("backend"), "");
  EXPECT_EQ(v.at("runs_as"), nullptr);
}

TEST(SelectionJson, RunsAsSaysWhatTheKernelMultiplies) {
  EXPECT_EQ(selected(scheme("W4A8", 32)).at("runs_as"),
            json::parse(R"({"weights": "int4", "activations": "int8_per_token"})"));
  EXPECT_EQ(selected(scheme("W8A16", 32)).at("runs_as"),
            json::parse(R"({"weights": "int8", "activations": "int16_block128"})"));
  for (const char* dtype : {"bfloat16", "float16", "float32"}) {
    const json v = selected({{"in_dtype", dtype}});
    EXPECT_EQ(v.at("runs_as"), (json{{"weights", dtype}, {"activations", "float32"}}));
    EXPECT_EQ(v.at("backend"), "CPU");
  }
}

// The same object as the builder's own answer, without the shapes.
void expect_quant_config(const json& selection, const json& call) {
  const auto query = moe::json::parse(call.dump());
  ASSERT_TRUE(query);
  const Result<std::string> answer = describe_quant_config(*query);
  ASSERT_TRUE(answer) << call.dump() << answer.error().message;
  json want = json::parse(*answer);
  want.erase("scale_shape");
  EXPECT_EQ(selection.at("quant_config"), want) << call.dump();
}

TEST(SelectionJson, QuantConfigOfW4a8Int8) {
  const auto call = [](json block) { return json{{"builder", "w4a8_int8"}, {"args", json::array({block})}}; };
  expect_quant_config(selected(scheme("W4A8", 64)), call({1, 64}));
  expect_quant_config(selected(scheme("W4A8", -1)), call({-1, 1}));
}

TEST(SelectionJson, QuantConfigOfUnquantizedLayers) {
  expect_quant_config(selected({{"in_dtype", "float32"}}), {{"builder", "make"}});
  expect_quant_config(selected({{"has_bias", true}}), {{"builder", "biased"}, {"args", {"tensor", "tensor"}}});
}

TEST(SelectionJson, QuantConfigOfWna16) {
  const auto call = [](json args, json kwargs) {
    return json{{"builder", "wna16"}, {"args", std::move(args)}, {"kwargs", std::move(kwargs)}};
  };
  expect_quant_config(selected(scheme("W4A16", 64)), call({"tensor", "tensor", 64, 4}, json::object()));
  expect_quant_config(selected(with(scheme("W4A16_ASYM", -1), R"({"has_bias": true})")),
                      call({"tensor", "tensor", -1, 4, "tensor", "tensor", "tensor", "tensor"}, json::object()));
  expect_quant_config(selected(with(scheme("W8A16", 128), R"({"marlin_input_dtype": "int8",
    "activation_params": {"limit": 7.0}})")),  // w2 has one group, and so no global scale
                      call({"tensor", "tensor", 128, 8}, {{"a1_gscale", "tensor"}, {"gemm1_clamp_limit", 7.0}}));
}

TEST(SelectionJson, NoQuantConfigWithoutABackend) {
  json layer = scheme("NVFP4");
  layer["selection_policy"] = "vllm";
  const json v = selected(layer);
  EXPECT_EQ(v.at("quant_config"), nullptr);
  EXPECT_EQ(v.at("runs_as"), nullptr);
}

TEST(SelectionJson, FourBitFloatsRunAsWeightsAlone) {
  for (const char* name : {"NVFP4", "MXFP4"}) {
    const json v = selected(scheme(name));
    EXPECT_EQ(v.at("backend"), "CPU");
    EXPECT_EQ(v.at("runs_as").at("weights"), "float4_e2m1");
    EXPECT_EQ(v.at("quant_config").at("predicates").at(*name == 'N' ? "use_nvfp4_w4a16" : "use_mxfp4_w4a16"), true);
  }
}

TEST(SelectionJson, RoutingMethodAndShardAreTheResolvedOnes) {
  const json v = selected(json::parse(R"({"routing": {"scoring_func": "sigmoid", "renormalize": false},
    "parallel": {"tp_size": 2, "dp_size": 2, "tp_rank": 1, "dp_rank": 1}})"));
  EXPECT_EQ(v.at("routing_method"), "Sigmoid");
  EXPECT_EQ(v.at("shard"),
            json::parse(R"({"tp_size": 4, "tp_rank": 3, "intermediate_begin": 96, "intermediate_end": 128})"));
  EXPECT_EQ(v.at("expert_placement").at("experts").size(), 8U);
  const json batched = selected(json::parse(R"({"parallel": {"dp_size": 2, "enable_expert_parallel": true,
    "all2all_backend": "deepep_low_latency"}})"));
  EXPECT_EQ(batched.at("activation_format"), "batched");
}

}  // namespace
}  // namespace moe::test::selection_json_test
