// What people's files say in other places and words than the class expects: it counts, or is refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "hf/hf.h"
#include "support/rooms.h"
#include "support/vectors.h"

namespace moe::test::readers_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

Result<Config> create(const json& file, const json& options = json::object()) {
  return config_from_hf(file.dump(), options.dump());
}

json model(const char* name, const json& more = json::object()) {
  json file = {{"architectures", {name}},     {"num_hidden_layers", 6}, {"hidden_size", 64},
               {"moe_intermediate_size", 32}, {"num_experts", 8},       {"num_experts_per_tok", 2}};
  file.update(more);
  return file;
}
json deepseek(const char* name, const json& more = json::object()) {
  json file = model(name, more);
  file["n_routed_experts"] = 8;
  file.erase("num_experts");
  return file;
}

void expect_refused(const json& file, const char* subject, const json& options = json::object()) {
  const auto c = create(file, options);
  ASSERT_FALSE(c) << file;
  EXPECT_EQ(c.error().subject, subject) << c.error().message;
}

TEST(HfReaders, AModelOfAnyTextModelDoesNotGuess) {
  json file = {{"architectures", {"Mistral3ForConditionalGeneration"}}};
  file["text_config"] = deepseek("", json::object());
  file["text_config"].erase("architectures");
  EXPECT_TRUE(create(file));
  file["text_config"]["model_type"] = "unknown_moe";
  expect_refused(file, "/text_config/model_type");
  file["text_config"]["architectures"] = {"FooForCausalLM"};
  expect_refused(file, "/text_config/architectures/0");
}

TEST(HfReaders, ListsHaveAnEntryForEachLayer) {
  const json third = {{"layer_index", 3}};
  const json bailing = model("BailingMoeV3ForCausalLM", {{"expert_swiglu_limit_list", {5, 5, 5}}});
  expect_refused(bailing, "/expert_swiglu_limit_list", third);
  expect_refused(model("Qwen3MoeForCausalLM", {{"swiglu_limits", {3, 3}}}), "/swiglu_limits", third);
  EXPECT_TRUE(create(model("Qwen3MoeForCausalLM", {{"swiglu_limits", {0, nullptr}}}), third));
  // 0 experts: a dense layer.
  const json counts = model("Qwen3MoeForCausalLM", {{"num_experts", {0, 8, 6, 6, 6, 6}}});
  const auto first = create(counts);
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_EQ(first->num_experts, 8);
  const auto dense = create(counts, {{"layer_index", 0}});
  ASSERT_FALSE(dense);
  EXPECT_THAT(dense.error().details, HasSubstr("dense_layer"));
}

TEST(HfReaders, DefaultsOfAClassGiveWayToAnotherMethod) {
  const json ernie = {{"architectures", {"Ernie4_5_MoeForCausalLM"}}};
  EXPECT_GT(create(ernie)->routing.renormalize_min, 0);
  for (const json& routing :
       {json{{"method", "topk"}}, json{{"hash_routing", true}, {"e_score_correction_bias", nullptr}}}) {
    const auto other = create(ernie, {{"overrides", {{"routing", routing}}}});
    ASSERT_TRUE(other) << other.error().message;
    EXPECT_EQ(other->routing.renormalize_min, 0);
  }
}

TEST(HfReaders, WordsThatChangeTheLayer) {
  const json cat = {{"architectures", {"LongcatFlashForCausalLM"}}};
  json file = cat;
  file["zero_expert_type"] = "identity";
  EXPECT_TRUE(create(file));
  file["zero_expert_type"] = "drop";
  expect_refused(file, "/zero_expert_type");
  // Read for the whole model, said of a layer.
  json qwen = model("Qwen3MoeForCausalLM");
  const json whole = {{"mlp_only_layers", {1}}, {"decoder_sparse_step", 3}, {"dtype", "float16"}};
  for (const auto& [key, value] : whole.items()) {
    qwen["per_layer_config"] = {{"1", {{key, value}}}};
    expect_refused(qwen, ("/per_layer_config/1/" + key).c_str(), {{"layer_index", 1}});
    EXPECT_TRUE(create(qwen, {{"layer_index", 2}}));
  }
}

TEST(HfReaders, QuantizationUnderAnOlderKey) {
  const json q = {{"quant_method", "fp8"}, {"activation_scheme", "dynamic"}};
  for (const char* key : {"quantization_config", "compression_config"}) {
    const auto c = create(model("Qwen3MoeForCausalLM", {{key, q}}));
    ASSERT_TRUE(c) << c.error().message;
    EXPECT_EQ(c->quantization.weights->num_bits, 8) << key;
  }
}

// transformers reads `format`, where there is no checkpoint_format and no version.
TEST(HfReaders, FormatsOfGptqAndAwq) {
  const auto of = [](const json& more) {
    json q = {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 32}, {"desc_act", false}, {"sym", false}};
    q.update(more);
    return model("Qwen3MoeForCausalLM", {{"quantization_config", q}});
  };
  const auto zeros = [&](const json& more) { return create(of(more))->quantization.zero_point_convention; };
  EXPECT_EQ(zeros(json::object()), ZeroPoints::plus_one);
  EXPECT_EQ(zeros({{"format", "gptq_v2"}}), ZeroPoints::as_stored);
  EXPECT_EQ(zeros({{"format", "GPTQ_V2"}, {"checkpoint_format", nullptr}}), ZeroPoints::as_stored);
  EXPECT_EQ(zeros({{"format", "gptq_v2"}, {"checkpoint_format", "gptq"}}), ZeroPoints::plus_one);
  EXPECT_EQ(zeros({{"quant_method", "GPTQ"}}), ZeroPoints::plus_one);
  expect_refused(of({{"format", "marlin"}}), "/quantization_config/format");
  const auto awq = [](const json& more) {
    json q = {{"quant_method", "awq"}, {"bits", 4}, {"group_size", 32}, {"zero_point", true}};
    q.update(more);
    return model("Qwen3MoeForCausalLM", {{"quantization_config", q}});
  };
  EXPECT_TRUE(create(awq({{"format", "gemm"}})));
  EXPECT_TRUE(create(awq({{"version", "gemm"}, {"format", "gemv"}})));
  expect_refused(awq({{"format", "gemv"}}), "/quantization_config/format");
  expect_refused(awq({{"version", "llm-awq"}}), "/quantization_config/version");
}

// NaN of Python's json is no text that something begins with.
TEST(HfReaders, NotANumberIsNoEmptyText) {
  const std::string file =
      R"({"architectures":["Qwen3MoeForCausalLM"],"num_hidden_layers":2,"hidden_size":128,"moe_intermediate_size":128,
          "num_experts":8,"num_experts_per_tok":2,"rope_theta":NaN,"quantization_config":{"quant_method":"fp8",
          "activation_scheme":"dynamic","weight_block_size":[128,128],"modules_to_not_convert":[NaN]}})";
  const auto c = config_from_hf(file, "");
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_TRUE(c->quantization.weights);
}

TEST(HfReaders, ClassesThatEnginesAgreeOn) {
  for (const char* name : {"ExaoneMoEForCausalLM", "BailingMoeForCausalLM", "BailingMoeV2ForCausalLM"})
    EXPECT_TRUE(create(model(name, {{"norm_topk_prob", true}}))) << name;
  EXPECT_TRUE(create(deepseek("DeepseekForCausalLM", {{"norm_topk_prob", true}}))->routing.renormalize);
  json inner = deepseek("", json::object());
  inner.erase("architectures");
  for (const char* name : {"DeepseekOCRForCausalLM", "UnlimitedOCRForCausalLM"})
    EXPECT_TRUE(create({{"architectures", {name}}, {"language_config", inner}})) << name;
  const json sigmoid = {
      {"score_function", "sigmoid"}, {"moe_router_enable_expert_bias", true}, {"n_group", 4}, {"topk_group", 2},
      {"norm_topk_prob", true},      {"routed_scaling_factor", 2.5}};
  const auto ring = create(model("BailingMoeV2ForCausalLM", sigmoid));
  ASSERT_TRUE(ring) << ring.error().message;
  EXPECT_EQ(ring->routing.scoring, Scoring::sigmoid);
  EXPECT_EQ(ring->routing.num_expert_group, 4);
  const auto unknown = create({{"architectures", {"FooForCausalLM"}}, {"language_config", inner}});
  EXPECT_THAT(unknown.error().message, ::testing::Not(HasSubstr("dense model")));
}

}  // namespace
}  // namespace moe::test::readers_test
