// moe_describe("checkpoint"): form (b) with the tensors on disk, and what queries may hold. The golden
// cases of form (a) are in quantization_test.cpp. See impl/hf/describe.cpp.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <tuple>

#include "hf/hf.h"
#include "support/rooms.h"
#include "support/vectors.h"

namespace moe::test::hf_describe_test {
namespace {

using nlohmann::json;

Result<std::string> describe(const json& query) {
  const auto value = moe::json::parse(query.dump());
  EXPECT_TRUE(value);
  return describe_checkpoint(*value);
}

json answer(const json& query) {
  const auto text = describe(query);
  EXPECT_TRUE(text) << text.error().subject << " " << text.error().message;
  return text ? json::parse(*text) : json();
}

json tensor(const json& tensors, const std::string& name) {
  for (const json& t : tensors)
    if (t["name"] == name) return t;
  ADD_FAILURE() << "no tensor " << name;
  return {};
}

TEST(HfDescribe, Qwen3Tensors) {
  const json a = answer({{"config", load_json("hf/qwen3_30b_a3b_w4a8.json")}, {"options", {{"layer_index", 3}}}});
  EXPECT_EQ(a["config"]["name"], "model.layers.3.mlp.experts");
  const auto config = parse_config(a["config"].dump());
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_TRUE(config->quantization.is_w4a8_int8());
  const json& t = a["tensors"];
  ASSERT_EQ(t.size(), 128U * 3 * 2);
  EXPECT_EQ(t[0], json::parse(R"({"name": "model.layers.3.mlp.experts.0.gate_proj.weight", "role": "w13_weight",
    "expert": 0, "shard": "w1", "dtype": "i8", "shape": [768, 2048]})"));
  EXPECT_EQ(tensor(t, "model.layers.3.mlp.experts.127.up_proj.weight_scale"), json::parse(R"({
    "name": "model.layers.3.mlp.experts.127.up_proj.weight_scale", "role": "w13_scale",
    "expert": 127, "shard": "w3", "dtype": "bf16", "shape": [768, 16]})"));
  EXPECT_EQ(tensor(t, "model.layers.3.mlp.experts.5.down_proj.weight_scale"), json::parse(R"({
    "name": "model.layers.3.mlp.experts.5.down_proj.weight_scale", "role": "w2_scale",
    "expert": 5, "shard": "w2", "dtype": "bf16", "shape": [2048, 6]})"));
}

// Shapes of codes that begin inside of words, and of four 6-bit floats in three bytes.
TEST(HfDescribe, NarrowTensors) {
  json config = load_json("hf/qwen3_30b_a3b_w4a8.json");
  json& object = config["quantization_config"];
  json& group = object["config_groups"].begin().value();
  group.erase("input_activations");
  group.erase("format");
  const std::string base = "model.layers.0.mlp.experts.2.down_proj.";
  for (const auto& [bits, words, rows] :
       {std::tuple(2, 48, 128), {3, 72, 192}, {5, 120, 320}, {6, 144, 384}, {7, 168, 448}}) {
    group["weights"] = {{"num_bits", bits}, {"type", "int"}, {"group_size", 128}, {"symmetric", false}};
    object["format"] = "pack-quantized";
    const json a = answer({{"config", config}});
    EXPECT_EQ(a["config"]["quantization"]["format"], "pack-quantized-w" + std::to_string(bits));
    EXPECT_EQ(a["config"]["quantization"]["weights"]["num_bits"], bits < 4 ? 4 : 8);
    EXPECT_EQ(tensor(a["tensors"], base + "weight_packed")["shape"], json({2048, words}));
    EXPECT_EQ(tensor(a["tensors"], base + "weight_zero_point")["shape"], json({rows, 6}));
    EXPECT_EQ(tensor(a["tensors"], base + "weight_scale")["shape"], json({2048, 6}));
  }
  group["weights"] = {{"num_bits", 6}, {"type", "float"}, {"group_size", 32}, {"scale_dtype", "torch.uint8"}};
  object["format"] = "mxfp6-pack-quantized";
  const json a = answer({{"config", config}});
  EXPECT_EQ(a["config"]["quantization"]["format"], "mxfp6-pack-quantized");
  EXPECT_EQ(tensor(a["tensors"], base + "weight_packed")["shape"], json({2048, 576}));
  EXPECT_EQ(tensor(a["tensors"], base + "weight_packed")["dtype"], "u8");
  EXPECT_EQ(tensor(a["tensors"], base + "weight_scale")["shape"], json({2048, 24}));
}

TEST(HfDescribe, MixtralTensors) {
  const json a = answer({{"config", load_json("hf/mixtral_8x7b_w4a8.json")}});
  const json& t = a["tensors"];
  ASSERT_EQ(t.size(), 8U * 3 * 3);
  const std::string base = "model.layers.0.block_sparse_moe.experts.7.";
  EXPECT_EQ(tensor(t, base + "w1.weight_packed"), json::parse(R"({
    "name": "model.layers.0.block_sparse_moe.experts.7.w1.weight_packed", "role": "w13_weight",
    "expert": 7, "shard": "w1", "dtype": "i32", "shape": [14336, 512]})"));
  EXPECT_EQ(tensor(t, base + "w2.weight_packed")["shape"], json({4096, 1792}));
  EXPECT_EQ(tensor(t, base + "w3.weight_scale")["shape"], json({14336, 1}));
  const json shape = tensor(t, base + "w2.weight_shape");
  EXPECT_EQ(shape["dtype"], "i64");
  EXPECT_EQ(shape["shape"], json({2}));
  EXPECT_TRUE(shape["role"].is_null());
}

TEST(HfDescribe, TensorsOfTheCheckpointVectors) {
  const struct {
    const char *config, *file, *format;
  } cases[] = {{"w4a8_int8/ckpt_g32_config.json", "w4a8_int8/ckpt_g32_int_quantized.safetensors", "int-quantized"},
               {"w4a8_int8/ckpt_g32_config.json", "w4a8_int8/ckpt_g32_pack_quantized.safetensors", "pack-quantized"},
               {"w4a8_int8/ckpt_cw_config.json", "w4a8_int8/ckpt_cw_int_quantized.safetensors", "int-quantized"},
               {"w4a8_int8/ckpt_cw_config.json", "w4a8_int8/ckpt_cw_pack_quantized.safetensors", "pack-quantized"}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.file);
    json hf = load_json("hf/qwen3_30b_a3b_w4a8.json");
    hf.merge_patch(
        {{"num_experts", 2}, {"num_experts_per_tok", 1}, {"hidden_size", 64}, {"moe_intermediate_size", 32}});
    hf["quantization_config"] = load_json(c.config)["quantization_config"];
    hf["quantization_config"]["format"] = c.format;
    const json a = answer({{"config", hf}});
    const VecFile file = load_vectors(c.file);
    ASSERT_EQ(a["tensors"].size(), file.tensors.size());
    for (const json& t : a["tensors"]) {
      const std::string name = t["name"];
      ASSERT_TRUE(file.has(name)) << name;
      EXPECT_EQ(file.at(name).shape, t["shape"].get<std::vector<std::int64_t>>()) << name;
      EXPECT_EQ(dtype_name(file.at(name).dtype), t["dtype"].get<std::string>()) << name;
    }
  }
}

TEST(HfDescribe, OnlyThisRanksExpertsWhole) {
  const json hf = load_json("hf/qwen3_30b_a3b_w4a8.json");
  const auto experts = [&](const json& options) {
    std::set<int> held;
    const json a = answer({{"config", hf}, {"options", options}});
    for (const json& t : a["tensors"]) {
      held.insert(t["expert"].get<int>());
      if (t["role"] == "w2_weight") {
        EXPECT_EQ(t["shape"], json({2048, 768}));
      }
    }
    return held;
  };
  const auto rank1 = experts({{"ep_size", 4}, {"ep_rank", 1}});
  EXPECT_EQ(rank1.size(), 32U);
  EXPECT_EQ(*rank1.begin(), 32);
  EXPECT_EQ(experts({{"tp_size", 2}, {"tp_rank", 1}}).size(), 128U);  // whole shapes, see above
  const auto robin = experts(
      {{"ep_size", 64}, {"ep_rank", 5}, {"overrides", {{"parallel", {{"expert_placement_strategy", "round_robin"}}}}}});
  EXPECT_EQ(robin, (std::set<int>{5, 69}));
  // Redundant copies are read from the logical expert.
  const auto copies = experts({{"ep_size", 2},
                               {"ep_rank", 1},
                               {"overrides", {{"parallel", {{"enable_eplb", true}, {"num_redundant_experts", 2}}}}}});
  EXPECT_EQ(copies.size(), 65U);
  EXPECT_TRUE(copies.count(0) == 1 && copies.count(1) == 1 && copies.count(65) == 1 && copies.count(64) == 0);
}

TEST(HfDescribe, BiasAndModelDtype) {
  const json hf = load_json("hf/qwen3_30b_a3b_w4a8.json");
  const json a = answer({{"config", hf}, {"options", {{"overrides", {{"has_bias", true}, {"in_dtype", "float32"}}}}}});
  EXPECT_EQ(a["tensors"].size(), 128U * 3 * 3);
  const json bias = tensor(a["tensors"], "model.layers.0.mlp.experts.2.down_proj.bias");
  EXPECT_EQ(bias["role"], "w2_bias");
  EXPECT_EQ(bias["shape"], json({2048}));
  EXPECT_EQ(bias["dtype"], "f32");
}

TEST(HfDescribe, DefaultsAndNullOfFormA) {
  const json awq = {{"quant_method", "awq"}, {"bits", 4}, {"group_size", 128}, {"zero_point", true}};
  const json a = answer({{"hf_quantization_config", awq}});
  EXPECT_EQ(a["resolved"]["zero_point_convention"], "as_stored");
  EXPECT_EQ(a["resolved"]["is_transposed"], true);
  EXPECT_EQ(a["resolved"]["weights"]["actorder"], nullptr);
  EXPECT_FALSE(a["resolved"].contains("hf"));
  json skipped = awq;
  skipped["modules_to_not_convert"] = {"experts"};
  EXPECT_EQ(answer({{"name", "x.experts"}, {"hf_quantization_config", skipped}}), json({{"resolved", nullptr}}));
}

TEST(HfDescribe, QueriesAreChecked) {
  const json awq = {{"quant_method", "awq"}, {"bits", 4}, {"group_size", 128}, {"zero_point", true}};
  const json qwen = load_json("hf/qwen3_30b_a3b_w4a8.json");
  json llama = qwen, loose = qwen, few = qwen, plain = qwen;
  llama["architectures"] = {"LlamaForCausalLM"};
  const json int4 = {{"num_bits", 4}, {"type", "int"}, {"strategy", "group"}, {"group_size", 32}, {"symmetric", true}};
  loose["quantization_config"] = {{"quant_method", "compressed-tensors"},
                                  {"format", "int-quantized"},
                                  {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", int4}}}}}};
  few["hidden_size"] = nullptr;
  plain.erase("quantization_config");
  const struct {
    json query;
    std::string subject;
    Code code = Code::invalid_config;
  } cases[] = {
      {json::object(), ""},
      {{{"name", "x"}}, ""},
      {{{"hf_quantization_config", awq}, {"config", qwen}}, ""},
      {{{"config", qwen}, {"hf_config", qwen}}, ""},
      {{{"hf_quantization_config", awq}, {"id", 1}}, "/id"},
      {{{"hf_quantization_config", nullptr}}, "/hf_quantization_config"},
      {{{"hf_quantization_config", awq}, {"name", 5}}, "/name"},
      {{{"hf_quantization_config", awq}, {"name", nullptr}}, "/name"},
      {{{"hf_quantization_config", awq}, {"name", std::string(513, 'x')}}, "/name"},
      {{{"hf_quantization_config", awq}, {"projection_names", {"a", "b"}}}, "/projection_names"},
      {{{"hf_quantization_config", awq}, {"projection_names", {"a", "b", 3}}}, "/projection_names/2"},
      {{{"hf_quantization_config", awq}, {"projection_names", {"a", "b", ""}}}, "/projection_names/2"},
      {{{"hf_quantization_config", awq}, {"projection_names", {"a", "b", "a"}}}, "/projection_names/2"},
      {{{"config", qwen}, {"name", "x"}}, "/name"},
      {{{"config", 5}}, "/config"},
      {{{"hf_config", nullptr}}, "/hf_config"},
      {{{"config", llama}}, "/architectures/0", Code::unsupported},
      {{{"config", few}}, "/hidden_size"},
      {{{"config", loose}}, "/quantization_config", Code::unsupported},
      {{{"config", qwen}, {"options", 5}}, "/options"},
      {{{"config", qwen}, {"options", {{"layer_index", 48}}}}, "/options/layer_index"},
      {{{"config", qwen}, {"options", {{"overrides", {{"top_k", 0}}}}}}, "/options/overrides/top_k"},
      {{{"config", qwen},
        {"options", {{"overrides", {{"quantization", {{"weights", int4}, {"format", "int-quantized"}}}}}}}},
       "/options/overrides/quantization",
       Code::unsupported},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.query.dump().substr(0, 200));
    const auto got = describe(c.query);
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().subject, c.subject) << got.error().message;
    EXPECT_EQ(got.error().code, c.code) << got.error().message;
  }
  EXPECT_EQ(answer({{"hf_config", qwen}})["tensors"].size(), 128U * 6);  // the other name of "config"
  json gpt_oss = load_json("hf/GptOssForCausalLM-base/config.json");
  const json bf16 = answer({{"config", gpt_oss}});
  ASSERT_EQ(bf16["tensors"].size(), 4U);
  EXPECT_EQ(bf16["tensors"][0], json::parse(R"({"name": "model.layers.0.mlp.experts.gate_up_proj",
    "role": "w13_weight", "expert": null, "shard": "w13", "dtype": "bf16", "shape": [8, 64, 128]})"));
  gpt_oss["quantization_config"] = {{"quant_method", "mxfp4"}};
  const json mxfp4 = answer({{"config", gpt_oss}});
  ASSERT_EQ(mxfp4["tensors"].size(), 6U);
  EXPECT_EQ(mxfp4["tensors"][3], json::parse(R"({"name": "model.layers.0.mlp.experts.down_proj_blocks",
    "role": "w2_weight", "expert": null, "shard": "w2", "dtype": "u8", "shape": [8, 64, 2, 16]})"));
  const json unquantized = answer({{"config", plain}});
  ASSERT_EQ(unquantized["tensors"].size(), 128U * 3);
  EXPECT_EQ(unquantized["tensors"][2], json::parse(R"({"name": "model.layers.0.mlp.experts.0.down_proj.weight",
    "role": "w2_weight", "expert": 0, "shard": "w2", "dtype": "bf16", "shape": [2048, 768]})"));
}

}  // namespace
}  // namespace moe::test::hf_describe_test
