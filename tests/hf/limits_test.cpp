// What published files need of limits: objects of megabytes, lists of 20 000 modules in every format, and numbers that
// a file lists for each layer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "config/config.h"
#include "hf/hf.h"
#include "support/rooms.h"
#include "support/vectors.h"

namespace moe::test::hf_limits_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr int kModules = 20'000;

json model(int experts = 4) {
  return {{"architectures", {"Qwen3MoeForCausalLM"}},
          {"model_type", "qwen3_moe"},
          {"num_hidden_layers", 4},
          {"hidden_size", 128},
          {"moe_intermediate_size", 128},
          {"num_experts", experts},
          {"num_experts_per_tok", 2},
          {"norm_topk_prob", true},
          {"hidden_act", "silu"}};
}

// Projections of other layers than the first ones, then the experts of layer 1.
json modules(const std::string& before, const std::string& after) {
  json all = json::array();
  for (int layer = 4; all.size() + 12 < kModules; ++layer)
    for (int e = 0; e < 128; ++e)
      all.push_back(before + "model.layers." + std::to_string(layer) + ".mlp.experts." + std::to_string(e) +
                    ".down_proj" + after);
  for (int e = 0; e < 4; ++e)
    for (const char* p : {"gate_proj", "up_proj", "down_proj"})
      all.push_back(before + "model.layers.1.mlp.experts." + std::to_string(e) + "." + p + after);
  return all;
}

struct List {
  const char* what;
  json object;
};

// Objects that leave out layer 1, expert by expert, and others.
std::vector<List> objects() {
  std::vector<List> all;
  const json weights = {{"num_bits", 8}, {"strategy", "channel"}};
  const json gptq = {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 128}, {"desc_act", false}, {"sym", true}};
  const json awq = {{"quant_method", "awq"}, {"bits", 4}, {"group_size", 128}, {"zero_point", true}};
  const json fp8 = {{"quant_method", "fp8"}, {"activation_scheme", "dynamic"}};
  for (const auto& [before, after] : {std::pair("", ""), std::pair("re:", "$"), std::pair("re:.*", "")})
    all.push_back({"compressed-tensors, ignore",
                   {{"quant_method", "compressed-tensors"},
                    {"ignore", modules(before, after)},
                    {"config_groups", {{"g", {{"targets", {"Linear"}}, {"weights", weights}}}}}}});
  for (const auto& [before, after] : {std::pair("-:", ""), std::pair("-:.*", ".*")}) {
    json d = gptq;
    for (const json& key : modules(before, after)) d["dynamic"][key.get<std::string>()] = json::object();
    all.push_back({"gptq", d});
  }
  const auto with = [&](const char* what, json d, const char* list, json names) {
    d[list] = std::move(names);
    all.push_back({what, std::move(d)});
  };
  with("awq", awq, "modules_to_not_convert", modules("", ""));
  with("fp8", fp8, "ignored_layers", modules("", ""));
  with("fp8", fp8, "modules_to_not_convert", modules("", ""));
  const json modelopt = {{"quant_method", "modelopt"}, {"quant_algo", "FP8"}};
  for (const auto& [before, after] : {std::pair("", ""), std::pair("", "*"), std::pair("*", "")})
    with("modelopt", modelopt, "ignore", modules(before, after));
  with("modelopt, quantized_layers", modelopt, "ignore", {"model.layers.1.*"});
  for (const json& name : modules("", ""))
    all.back().object["quantized_layers"][name.get<std::string>()] = {{"quant_algo", "FP8"}};
  return all;
}

TEST(HfLimits, ListsOfManyModules) {
  for (const List& list : objects()) {
    const std::string object = list.object.dump(), file = model().dump();
    const std::string with_object = file.substr(0, file.size() - 1) + ",\"quantization_config\":" + object + "}";
    for (const int layer : {0, 1}) {
      const auto c = hf::config_from_hf(with_object, R"({"layer_index":)" + std::to_string(layer) + "}");
      ASSERT_TRUE(c) << list.what << ": " << c.error().message;
      EXPECT_EQ(c->quantization.weights.has_value(), layer == 0) << list.what;
    }
    // As an option of the same size.
    const auto option = hf::config_from_hf(file, "{\"quantization_config\":" + object + "}");
    ASSERT_TRUE(option) << list.what << ": " << option.error().message;
    EXPECT_TRUE(option->quantization.weights) << list.what;
  }
}

TEST(HfLimits, ManyTargets) {
  const json weights = {{"num_bits", 8}, {"strategy", "channel"}};
  for (const auto& [before, after] : {std::pair("", ""), std::pair("re:", "$")}) {
    json file = model();
    file["quantization_config"] = {
        {"quant_method", "compressed-tensors"},
        {"config_groups", {{"g", {{"targets", modules(before, after)}, {"weights", weights}}}}}};
    for (const int layer : {0, 1}) {
      const auto c = hf::config_from_hf(file.dump(), R"({"layer_index":)" + std::to_string(layer) + "}");
      ASSERT_TRUE(c) << c.error().message;
      EXPECT_EQ(c->quantization.weights.has_value(), layer == 1);
    }
  }
}

// Each pattern is walked over the layer once, whatever the number of experts.
TEST(HfLimits, ManyPatternsOverManyExperts) {
  json patterns = json::array();
  for (int i = 0; i < kModules; ++i)
    patterns.push_back("re:.*layers\\." + std::to_string(i + 4) + "\\.mlp\\.experts\\.\\d+\\..*");
  json file = model(512);
  file["quantization_config"] = {
      {"quant_method", "compressed-tensors"}, {"ignore", patterns}, {"config_groups", {{"W8A16", {"Linear"}}}}};
  const auto c = hf::config_from_hf(file.dump(), "");
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_TRUE(c->quantization.weights);
}

// Names of a megabyte are refused before each entry of a list is held against them, which took minutes.
TEST(HfLimits, LongNamesAndLongLists) {
  json names = json::array(), file = model(65536);
  for (int e = 0; e < kModules; ++e) names.push_back("model.layers.0.mlp.experts." + std::to_string(e) + ".x");
  file["quantization_config"] = {
      {"quant_method", "compressed-tensors"}, {"ignore", names}, {"config_groups", {{"W8A16", {"Linear"}}}}};
  json options;
  for (const char c : {'a', 'b', 'c'})
    options["overrides"]["projection_names"].push_back(std::string(std::size_t{1} << 20, c));
  const auto refused = hf::config_from_hf(file.dump(), options.dump());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::invalid_config);
  EXPECT_THAT(refused.error().subject, HasSubstr("projection_names"));
}

TEST(HfLimits, TextsThatCarryAFile) {
  const std::string long_text(3U << 20, 'x');
  json object = {{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}, {"producer", long_text}};
  const json options = {{"quantization_config", object}};
  EXPECT_TRUE(hf::config_from_hf(model().dump(), options.dump()));
  // Options that take 17 MiB are refused.
  json too_long = options;
  too_long["quantization_config"]["producer"] = std::string(17U << 20, 'x');
  const auto refused = hf::config_from_hf(model().dump(), too_long.dump());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().subject, "options:");
  // Our own document: with a checkpoint's object as much, else 1 MiB.
  json own = {{"num_experts", 4}, {"top_k", 2}, {"hidden_dim", 128}, {"intermediate_size", 128}};
  own["hf_quantization_config"] = object;
  const auto c = config::parse_config(own.dump());
  ASSERT_TRUE(c) << c.error().message;
  const auto merged = config::merge_config(*c, R"({"top_k": 1})");
  ASSERT_TRUE(merged) << merged.error().message;
  EXPECT_EQ(merged->top_k, 1);
  own.erase("hf_quantization_config");
  own["name"] = long_text;
  const auto plain = config::parse_config(own.dump());
  ASSERT_FALSE(plain);
  EXPECT_THAT(plain.error().message, HasSubstr("at most 1048576 are allowed"));
}

TEST(HfLimits, ANumberOfEachLayer) {
  json hunyuan = {{"architectures", {"HunYuanMoEV1ForCausalLM"}},
                  {"model_type", "hunyuan_v1_moe"},
                  {"num_hidden_layers", 3},
                  {"hidden_size", 128},
                  {"intermediate_size", 256},
                  {"moe_intermediate_size", 64},
                  {"num_experts", 16},
                  {"moe_topk", 2},
                  {"hidden_act", "silu"}};
  struct Case {
    json file;
    const char* key;
    std::int64_t Config::*member;
  };
  json local = model();
  local.erase("num_experts");
  local["num_local_experts"] = 4;
  for (const Case& c :
       {Case{hunyuan, "num_experts", &Config::num_experts}, Case{hunyuan, "moe_topk", &Config::top_k},
        Case{hunyuan, "intermediate_size", &Config::intermediate_size},
        Case{model(), "num_experts", &Config::num_experts}, Case{local, "num_local_experts", &Config::num_experts},
        Case{model(), "num_experts_per_tok", &Config::top_k},
        Case{model(), "moe_intermediate_size", &Config::intermediate_size}}) {
    json file = c.file;
    const int layers = file["num_hidden_layers"].get<int>();
    if (c.member == &Config::top_k) file["num_experts"] = 64;
    json list = json::array();
    for (int l = 0; l < layers; ++l) list.push_back(32 + 8 * l);
    file[c.key] = list;
    for (int l = 0; l < layers; ++l) {
      const auto got = hf::config_from_hf(file.dump(), R"({"layer_index":)" + std::to_string(l) + "}");
      ASSERT_TRUE(got) << c.key << ": " << got.error().message;
      EXPECT_EQ((*got).*c.member, list[static_cast<std::size_t>(l)].get<std::int64_t>()) << c.key << " " << l;
    }
    for (const bool longer : {true, false}) {
      json wrong = file;
      longer ? wrong[c.key].push_back(8) : wrong[c.key].erase(0);
      const auto got = hf::config_from_hf(wrong.dump(), "");
      ASSERT_FALSE(got) << c.key << longer;
      EXPECT_EQ(got.error().subject, std::string("/") + c.key);
      EXPECT_THAT(got.error().message, HasSubstr("a list of " + std::to_string(layers)));
    }
    json odd = file;
    odd[c.key][1] = nullptr;
    const auto got = hf::config_from_hf(odd.dump(), R"({"layer_index":1})");
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().subject, std::string("/") + c.key + "/1");
  }
}

}  // namespace
}  // namespace moe::test::hf_limits_test
