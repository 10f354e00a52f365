// Which layers of a model have experts: every rule that a class can have, with and without the keys that it reads.
#include "hf/layers.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/rooms.h"
#include "support/vectors.h"

namespace moe::test::layers_test {
namespace {

using hf::LayerKeys;
using hf::Layers;
using nlohmann::json;

// The layers with experts, as digits; the pointer of a fault.
std::string layers_of(const LayerKeys& keys, json file) {
  const auto document = moe::json::parse(file.dump());
  EXPECT_TRUE(document);
  const auto model = hf::ModelFile::open(*document);
  EXPECT_TRUE(model);
  const auto rule = hf::layer_rule(*model, keys);
  if (!rule) return rule.error().subject;
  std::string found;
  for (std::int64_t l = 0; l < rule->count; ++l)
    if (rule->has_experts(l)) found += std::to_string(l);
  return found;
}

TEST(Layers, All) {
  EXPECT_EQ(layers_of({}, {{"num_hidden_layers", 3}}), "012");
  EXPECT_EQ(layers_of({.count = "num_layers"}, {{"num_layers", 2}, {"num_hidden_layers", 4}}), "01");
  EXPECT_EQ(layers_of({}, json::object()), "/num_hidden_layers");
  EXPECT_EQ(layers_of({}, {{"num_hidden_layers", 0}}), "/num_hidden_layers");
  const LayerKeys gemma{.enabled_by_enable_moe_block = true};
  EXPECT_EQ(layers_of(gemma, {{"num_hidden_layers", 2}}), "");
  EXPECT_EQ(layers_of(gemma, {{"num_hidden_layers", 2}, {"enable_moe_block", true}}), "01");
}

TEST(Layers, ListsOfWordsWinOverNumbers) {
  const LayerKeys keys{.rule = Layers::words, .first = {{"first_k_dense_replace"}, 1}, .step = "moe_layer_freq"};
  EXPECT_EQ(layers_of(keys, {{"num_hidden_layers", 4}}), "123");
  EXPECT_EQ(layers_of(keys, {{"num_hidden_layers", 4}, {"first_k_dense_replace", 2}}), "23");
  EXPECT_EQ(layers_of(keys, {{"num_hidden_layers", 5}, {"moe_layer_freq", 2}}), "24");
  EXPECT_EQ(layers_of(keys, {{"num_hidden_layers", 4}, {"moe_layer_freq", {0, 1, 0, 1}}}), "13");
  EXPECT_EQ(
      layers_of(keys,
                {{"num_hidden_layers", 2}, {"first_k_dense_replace", 2}, {"mlp_layer_types", {"sparse", "dense"}}}),
      "0");
  EXPECT_EQ(layers_of(keys, {{"num_hidden_layers", 2}, {"moe_layer_freq", 0}}), "/moe_layer_freq");
  EXPECT_EQ(layers_of(keys, {{"num_hidden_layers", 2}, {"mlp_layer_types", 3}}), "/mlp_layer_types");
}

TEST(Layers, PredictingOnesComeBehind) {
  LayerKeys keys{.rule = Layers::words, .first = {{}, 1}, .predicting = true};
  EXPECT_EQ(layers_of(keys, {{"num_hidden_layers", 3}, {"num_nextn_predict_layers", 1}}), "123");
  const json words = {
      {"num_hidden_layers", 2}, {"num_nextn_predict_layers", 1}, {"mlp_layer_types", {"sparse", "dense"}}};
  EXPECT_EQ(layers_of(keys, words), "02");
  keys.predicting = false;
  EXPECT_EQ(layers_of(keys, words), "0");
}

TEST(Layers, NumbersOfLayers) {
  const LayerKeys keys{.rule = Layers::words, .first = {{}, 3}, .numbers = "moe_layers_enum"};
  EXPECT_EQ(layers_of(keys, {{"num_hidden_layers", 5}}), "34");
  EXPECT_EQ(layers_of(keys, {{"num_hidden_layers", 5}, {"moe_layers_enum", "1,4,9"}}), "14");
  EXPECT_EQ(layers_of(keys, {{"num_hidden_layers", 5}, {"moe_layers_enum", {0, 2}}}), "02");
  for (const json& bad : {json("1,x"), json("1;2"), json("-1"), json(7), json({"a"})}) {
    const std::string fault = layers_of(keys, {{"num_hidden_layers", 5}, {"moe_layers_enum", bad}});
    EXPECT_EQ(fault.substr(0, 16), "/moe_layers_enum") << bad;
  }
}

TEST(Layers, OfQwenJambaErnieLlamaAndNemotron) {
  const LayerKeys qwen{.rule = Layers::qwen, .step = "decoder_sparse_step"};
  EXPECT_EQ(layers_of(qwen, {{"num_hidden_layers", 6}, {"decoder_sparse_step", 2}, {"mlp_only_layers", {3}}}), "15");
  const LayerKeys flint{.rule = Layers::qwen, .first = {{}, 2}, .step = "decoder_sparse_step"};
  EXPECT_EQ(layers_of(flint, {{"num_hidden_layers", 4}}), "23");
  EXPECT_EQ(layers_of(flint, {{"num_hidden_layers", 4}, {"mlp_only_layers", json::array()}}), "0123");
  const LayerKeys jamba{.rule = Layers::jamba};
  EXPECT_EQ(layers_of(jamba, {{"num_hidden_layers", 6}}), "135");
  EXPECT_EQ(layers_of(jamba, {{"num_hidden_layers", 7}, {"expert_layer_period", 3}, {"expert_layer_offset", 0}}),
            "036");
  const LayerKeys ernie{.rule = Layers::ernie};
  EXPECT_EQ(layers_of(ernie, {{"num_hidden_layers", 4}}), "123");
  EXPECT_EQ(layers_of(ernie, {{"num_hidden_layers", 6},
                              {"moe_layer_interval", 2},
                              {"moe_layer_start_index", 2},
                              {"moe_layer_end_index", 4}}),
            "3");
  const LayerKeys llama{.rule = Layers::llama4};
  EXPECT_EQ(layers_of(llama, {{"num_hidden_layers", 4}, {"interleave_moe_layer_step", 2}}), "13");
  EXPECT_EQ(layers_of(llama, {{"num_hidden_layers", 4}, {"moe_layers", {0, 3}}}), "03");
  // Layers that the model does not have: as many as a word of bits holds, where asan sees one more.
  EXPECT_EQ(layers_of(llama, {{"num_hidden_layers", 64}, {"moe_layers", {0, 64}}}), "0");
  const LayerKeys nemotron{.rule = Layers::nemotron};
  EXPECT_EQ(layers_of(nemotron, {{"hybrid_override_pattern", "ME*E-"}}), "13");
  EXPECT_EQ(layers_of(nemotron, {{"layers_block_type", {"moe", "mlp", "moe"}}}), "02");
  EXPECT_EQ(layers_of(nemotron, json::object()), "/hybrid_override_pattern");
}

}  // namespace
}  // namespace moe::test::layers_test
