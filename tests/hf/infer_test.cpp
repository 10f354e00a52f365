// moe_describe("checkpoint") with tensors: what names and shapes tell of a class, what they do not tell, and the list
// of classes. See impl/hf/infer.cpp, seen_tensors.cpp and architecture_list.cpp.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "hf/architecture.h"
#include "hf/hf.h"
#include "support/rooms.h"
#include "support/vectors.h"

namespace moe::test::hf_infer_test {
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

bool is_unsure(const json& answer, const std::string& start) {
  for (const json& sentence : answer["unsure"])
    if (sentence.get<std::string>().starts_with(start)) return true;
  return false;
}

void expect_unsure(const json& answer, const std::set<std::string>& starts) {
  for (const std::string& start : starts) EXPECT_TRUE(is_unsure(answer, start)) << start << " " << answer["unsure"];
  EXPECT_EQ(answer["unsure"].size(), starts.size()) << answer["unsure"];
}

json file(std::int64_t hidden = 64, std::int64_t width = 32) {
  return {{"architectures", {"NoveltyForCausalLM"}},
          {"hidden_size", hidden},
          {"expert_dim", width},
          {"intermediate_size", 999},
          {"n_experts", 4},
          {"num_experts_per_tok", 2},
          {"hidden_act", "silu"},
          {"num_hidden_layers", 3},
          {"first_k_dense_replace", 1},
          {"scoring_func", "sigmoid"},
          {"norm_topk_prob", true},
          {"torch_dtype", "bfloat16"}};
}

json pair(const std::string& name, const json& shape) { return json::array({name, shape}); }

// Layers 1 and 2, with a router.
json experts(const std::vector<std::pair<std::string, json>>& parts) {
  json all = json::array();
  all.push_back(pair("model.embed_tokens.weight", {1000, 64}));
  all.push_back(pair("model.layers.0.mlp.up_proj.weight", {999, 64}));
  for (const char* layer : {"1", "2"}) {
    const std::string at = std::string("model.layers.") + layer + ".ff.";
    all.push_back(pair(at + "router.weight", {4, 64}));
    for (int e = 0; e < 4; ++e)
      for (const auto& [name, shape] : parts)
        all.push_back(pair(at + "experts." + std::to_string(e) + "." + name, shape));
  }
  return all;
}

json stacks(const std::vector<std::pair<std::string, json>>& parts) {
  json all = json::array();
  for (const char* layer : {"1", "2"})
    for (const auto& [name, shape] : parts)
      all.push_back({{"name", std::string("model.layers.") + layer + ".ff.experts." + name}, {"shape", shape}});
  return all;
}

TEST(HfInfer, TensorsOfEveryExpert) {
  const json tensors = experts({{"w2.weight", {64, 32}}, {"w1.weight", {32, 64}}, {"w3.weight", {32, 64}}});
  const json a = answer({{"config", file()}, {"tensors", tensors}});
  EXPECT_EQ(a["architecture"], json::parse(R"({
    "module": "model.layers.{layer}.ff.experts", "projections": ["w1", "w3", "w2"],
    "keys": {"num_experts": "n_experts", "hidden_dim": "hidden_size", "intermediate_size": "expert_dim",
             "top_k": "num_experts_per_tok", "activation": "hidden_act", "num_layers": "num_hidden_layers",
             "first_layer": "first_k_dense_replace"},
    "routing": {"scoring_func": "sigmoid", "renormalize": true}})"));
  EXPECT_EQ(a["unsure"], json::array());
  EXPECT_EQ(a["router"], json({"model.layers.{layer}.ff.router.weight"}));
  EXPECT_EQ(a["nearest"], json::array());
  // After a look it is the option.
  const json again = answer({{"config", file()}, {"options", {{"architecture", a["architecture"]}}}});
  EXPECT_EQ(again["config"]["name"], "model.layers.1.ff.experts");
  EXPECT_EQ(again["config"]["intermediate_size"], 32);
  std::set<std::string> named;
  for (const json& t : tensors) named.insert(t[0].get<std::string>());
  for (const json& t : again["tensors"]) EXPECT_TRUE(named.contains(t["name"])) << t;
  EXPECT_EQ(again["tensors"].size(), 12U);
}

TEST(HfInfer, WhatConfigDoesNotSayIsLeftOut) {
  json config = file();
  for (const char* key : {"scoring_func", "norm_topk_prob", "n_experts", "num_experts_per_tok", "hidden_act",
                          "num_hidden_layers", "first_k_dense_replace", "expert_dim", "hidden_size"})
    config.erase(key);
  config["routed_scaling_factor"] = 2.5;
  config["mlp_only_layers"] = json::array();
  const json a = answer({{"config", config},
                         {"tensors", experts({{"gate.weight", {32, 64}},
                                              {"up.weight", {32, 64}},
                                              {"down.weight", {64, 32}},
                                              {"up.bias", {32}},
                                              {"gate.bias", {32}},
                                              {"down.bias", {64}}})}});
  EXPECT_EQ(a["architecture"], json::parse(R"({"module": "model.layers.{layer}.ff.experts", "has_bias": true,
    "projections": ["gate", "up", "down"], "keys": {}, "routing": {"routed_scaling_factor": 2.5}})"));
  expect_unsure(a, {"keys.num_experts", "keys.hidden_dim", "keys.intermediate_size", "keys.top_k", "activation",
                    "keys.num_layers", "which layers", "keys.first_layer", "routing.scoring_func",
                    "routing.renormalize", "routing.apply_routed_scale_to_output", "projections: told by"});
  // Passed back without a look it is refused: nothing is guessed.
  const auto back = describe({{"config", config}, {"options", {{"architecture", a["architecture"]}}}});
  ASSERT_FALSE(back);
  EXPECT_EQ(back.error().subject, "/options/architecture/routing/scoring_func") << back.error().message;
}

TEST(HfInfer, ShapesTellDownNamesTellTheRest) {
  const json odd =
      answer({{"config", file()},
              {"tensors", experts({{"a.weight", {32, 64}}, {"b.weight", {32, 64}}, {"c.weight", {64, 32}}})}});
  EXPECT_FALSE(odd["architecture"].contains("projections"));
  expect_unsure(odd, {"projections: which of a, b, c"});
  const json square = answer(
      {{"config", file(64, 64)},
       {"tensors",
        experts({{"gate_proj.weight", {64, 64}}, {"up_proj.weight", {64, 64}}, {"down_proj.weight", {64, 64}}})}});
  EXPECT_EQ(square["architecture"]["projections"], json({"gate_proj", "up_proj", "down_proj"}));
  expect_unsure(square, {"projections: told by their names alone"});
  const json turned = answer(
      {{"config", file()},
       {"tensors",
        experts({{"gate_proj.weight", {32, 64}}, {"up_proj.weight", {32, 65}}, {"down_proj.weight", {64, 32}}})}});
  EXPECT_TRUE(is_unsure(turned, "keys.hidden_dim")) << turned;
  const json ungated = answer(
      {{"config", file()}, {"tensors", experts({{"up_proj.weight", {32, 64}}, {"down_proj.weight", {64, 32}}})}});
  EXPECT_EQ(ungated["architecture"]["gated"], false);
  EXPECT_EQ(ungated["architecture"]["projections"], json({"gate_proj", "up_proj", "down_proj"}));
  const json packed = answer({{"config", file()},
                              {"tensors", experts({{"gate_proj.weight_packed", {32, 8}},
                                                   {"gate_proj.weight_scale", {32, 2}},
                                                   {"up_proj.weight_packed", {32, 8}},
                                                   {"down_proj.weight_packed", {64, 4}}})}});
  EXPECT_EQ(packed["architecture"]["keys"]["hidden_dim"], "hidden_size");
  EXPECT_TRUE(is_unsure(packed, "keys.hidden_dim and keys.intermediate_size: the weights are packed")) << packed;
}

TEST(HfInfer, Stacks) {
  const auto look = [](const json& config, const std::vector<std::pair<std::string, json>>& parts) {
    return answer({{"config", config}, {"tensors", stacks(parts)}});
  };
  const json rows = look(file(), {{"gate_up_proj", {4, 64, 64}}, {"down_proj", {4, 64, 32}}});
  // w13 is square, and w2 alone does not tell how w13 lies.
  EXPECT_FALSE(rows["architecture"].contains("stacked"));
  expect_unsure(rows, {"stacked: a tensor of the experts is square", "interleaved"});
  const json first = look(file(64, 48), {{"gate_up_proj", {4, 96, 64}}, {"down_proj", {4, 64, 48}}});
  EXPECT_EQ(first["architecture"]["stacked"], "rows_first");
  EXPECT_EQ(first["architecture"]["stacked_names"], json({"gate_up_proj", "down_proj"}));
  EXPECT_FALSE(first["architecture"].contains("projections"));
  expect_unsure(first, {"interleaved"});
  const json columns =
      look(file(64, 48), {{"w2", {4, 48, 64}}, {"w13", {4, 64, 96}}, {"w13_bias", {4, 96}}, {"w2_bias", {4, 64}}});
  EXPECT_EQ(columns["architecture"]["stacked"], "columns_first");
  EXPECT_EQ(columns["architecture"]["stacked_names"], json({"w13", "w2"}));
  EXPECT_EQ(columns["architecture"]["has_bias"], true);
  const json apart =
      look(file(64, 48),
           {{"gate_proj.weight", {4, 48, 64}}, {"up_proj.weight", {4, 48, 64}}, {"down_proj.weight", {4, 64, 48}}});
  EXPECT_EQ(apart["architecture"]["stacked"], "rows_first");
  EXPECT_EQ(apart["architecture"]["stacked_names"], json({"gate_proj.weight", "up_proj.weight", "down_proj.weight"}));
  expect_unsure(apart, {});
  const json ungated = look(file(64, 48), {{"up_proj", {4, 48, 64}}, {"down_proj", {4, 64, 48}}});
  EXPECT_EQ(ungated["architecture"]["gated"], false);
  EXPECT_EQ(ungated["architecture"]["stacked"], "rows_first");
  const json mixed = look(file(64, 48), {{"gate_up_proj", {4, 96, 64}}, {"down_proj", {4, 48, 64}}});
  EXPECT_TRUE(is_unsure(mixed, "stacked: the shapes are neither")) << mixed;
  json dbrx = file(64, 48);
  dbrx["num_experts"] = 4;
  const json flat = look(dbrx, {{"w1", {192, 64}}, {"v1", {192, 64}}, {"w2", {192, 64}}});
  EXPECT_EQ(flat["architecture"]["stacked"], "flat");
  EXPECT_EQ(flat["architecture"]["stacked_names"], json({"w1", "v1", "w2"}));
  EXPECT_EQ(flat["architecture"]["keys"]["intermediate_size"], "expert_dim");
  // Passed back, with what was unsure left at its default.
  const json again = answer({{"config", file(64, 48)}, {"options", {{"architecture", first["architecture"]}}}});
  EXPECT_EQ(again["config"]["stacked_weights"], "rows_first");
  ASSERT_EQ(again["tensors"].size(), 2U);
  EXPECT_EQ(again["tensors"][0]["name"], "model.layers.1.ff.experts.gate_up_proj");
  EXPECT_EQ(again["tensors"][0]["shape"], json({4, 96, 64}));
}

TEST(HfInfer, VectorsOfTheRouter) {
  json tensors = experts({{"w1.weight", {32, 64}}, {"w2.weight", {64, 32}}, {"w3.weight", {32, 64}}});
  tensors.push_back(pair("model.layers.1.ff.gate.e_score_correction_bias", json::array({4})));
  tensors.push_back(pair("model.layers.1.ff.router.bias", json::array({4})));
  json config = file();
  config["n_group"] = 2;
  config["topk_group"] = 1;
  const json a = answer({{"config", config}, {"tensors", tensors}});
  const json& routing = a["architecture"]["routing"];
  EXPECT_EQ(routing["e_score_correction_bias"], true);
  EXPECT_EQ(routing["correction_bias_name"], "ff.gate.e_score_correction_bias");
  EXPECT_EQ(routing["num_expert_group"], 2);
  EXPECT_EQ(routing["topk_group"], 1);
  expect_unsure(a, {"model.layers.{layer}.ff.router.bias has a number for each expert"});
}

// A value alone does not make a key: what a token has and what is shared are other things.
TEST(HfInfer, KeysOfOtherThings) {
  json config = {{"architectures", {"NoveltyForCausalLM"}},
                 {"num_experts_per_token", 4},
                 {"experts_per_tok", 4},
                 {"shared_expert_width", 32},
                 {"hidden_size", 64}};
  const json tensors = experts({{"w1.weight", {32, 64}}, {"w2.weight", {64, 32}}, {"w3.weight", {32, 64}}});
  const json keys = answer({{"config", config}, {"tensors", tensors}})["architecture"]["keys"];
  EXPECT_FALSE(keys.contains("num_experts")) << keys;
  EXPECT_FALSE(keys.contains("intermediate_size")) << keys;
  config["moe_experts"] = 4;
  config["intermediate_size"] = config["moe_intermediate_size"] = 32;
  const json found = answer({{"config", config}, {"tensors", tensors}})["architecture"]["keys"];
  EXPECT_EQ(found["num_experts"], "moe_experts");
  EXPECT_EQ(found["intermediate_size"], "moe_intermediate_size");
}

TEST(HfInfer, MembersInsideAnObject) {
  json inside = file();
  json config = {{"architectures", {"NoveltyForConditionalGeneration"}}, {"speech", {{"depth", 3}}}};
  inside["num_experts"] = 4;
  config["brain"]["language"] = inside;
  const json tensors = experts({{"w1.weight", {32, 64}}, {"w2.weight", {64, 32}}, {"w3.weight", {32, 64}}});
  const json a = answer({{"config", config}, {"tensors", tensors}});
  EXPECT_EQ(a["architecture"]["holder"], "brain/language");
  EXPECT_EQ(a["architecture"]["keys"]["num_experts"], "num_experts");
  EXPECT_TRUE(describe({{"config", config}, {"options", {{"architecture", a["architecture"]}}}}));
}

// A known class says the same of itself.
TEST(HfInfer, KnownClasses) {
  for (const char* name : {"hf/qwen3_30b_a3b_w4a8.json", "hf/GptOssForCausalLM-base/config.json",
                           "hf/DeepseekV4ForCausalLM-base/config.json"}) {
    SCOPED_TRACE(name);
    json config = load_json(name);
    config.erase("quantization_config");
    const json known = answer({{"config", config}});
    const json a = answer({{"config", config}, {"tensors", known["tensors"]}});
    json d = a["architecture"];
    d["routing"].merge_patch({{"scoring_func", "softmax"}, {"renormalize", true}});
    if (!d.contains("stacked")) {  // a square stack is not told
      d["like"] = config["architectures"][0];
      d["keys"].erase("activation");
    }
    const json again = answer({{"config", config}, {"options", {{"architecture", d}}}});
    EXPECT_EQ(again["tensors"], known["tensors"]);
    EXPECT_EQ(a["nearest"][0], config["architectures"][0]);
  }
}

TEST(HfInfer, QueriesAreChecked) {
  const json good = experts({{"w1.weight", {32, 64}}, {"w2.weight", {64, 32}}, {"w3.weight", {32, 64}}});
  const struct {
    json query;
    std::string subject;
  } cases[] = {
      {{{"tensors", good}}, ""},
      {{{"config", file()}, {"tensors", good}, {"options", json::object()}}, "/options"},
      {{{"config", file()}, {"tensors", 5}}, "/tensors"},
      {{{"config", file()}, {"tensors", json::array()}}, "/tensors"},
      {{{"config", file()}, {"tensors", {"a.0.b"}}}, "/tensors/0"},
      {{{"config", file()}, {"tensors", json::array({json::array({"a.0.b", 5})})}}, "/tensors/0"},
      {{{"config", file()}, {"tensors", json::array({json::array({"a.0.b", {-1}})})}}, "/tensors/0"},
      {{{"config", file()}, {"tensors", {{{"name", "a.0.b"}}}}}, "/tensors/0"},
      {{{"config", file()}, {"tensors", {{{"name", 5}, {"shape", {1}}}}}}, "/tensors/0"},
      {{{"config", file()}, {"tensors", {{{"name", "lm_head.weight"}, {"shape", {1, 2}}}}}}, "/tensors"},
      {{{"architectures", false}}, "/architectures"},
      {{{"architectures", 1}}, "/architectures"},
      {{{"architectures", true}, {"name", "x"}}, "/name"},
      {{{"architectures", true}, {"config", file()}}, ""},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.query.dump().substr(0, 200));
    const auto got = describe(c.query);
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().subject, c.subject) << got.error().message;
    EXPECT_EQ(got.error().code, Code::invalid_config);
  }
}

// Odd names and shapes of any kind are no reason to fail in another way.
TEST(HfInfer, AnyNamesAndShapes) {
  json tensors = json::array();
  const char* const words[] = {"", "0", "1", "70000", "weight", "bias", "experts", "a", "99999999999999999999"};
  for (const char* a : words)
    for (const char* b : words)
      for (const char* c : words)
        for (const json& shape : {json::array(), json::array({2}), json({2, 0}), json({4, 8, 8}), json({1, 2, 3, 4})})
          tensors.push_back(pair(std::string("x.") + a + "." + b + "." + c + ".weight", shape));
  for (const json& config : {file(), json::object(), json{{"num_experts", -1}, {"hidden_size", 0}}}) {
    const auto got = describe({{"config", config}, {"tensors", tensors}});
    if (got) {
      EXPECT_TRUE(json::parse(*got).contains("architecture"));
    } else {
      EXPECT_EQ(got.error().subject, "/tensors");
    }
  }
}

TEST(HfInfer, ListOfArchitectures) {
  const json a = answer({{"architectures", true}});
  ASSERT_EQ(a["architectures"].size(), architectures().size());
  EXPECT_EQ(a["unread"].size(), unread_architectures().size());
  std::set<std::string> names;
  for (const json& row : a["architectures"]) {
    EXPECT_TRUE(names.insert(row["name"]).second) << row["name"];
    // What it says of names and keys is what the option takes.
    json d = {{"like", row["name"]}};
    for (const char* member :
         {"module", "holder", "projections", "gated", "stacked", "stacked_names", "interleaved", "has_bias", "keys"})
      if (row.contains(member)) d[member] = row[member];
    json file = json::object();
    for (std::string path = row.value("holder", ""); !path.empty();) {  // "a/b": from the inside
      const std::size_t slash = path.rfind('/');
      file = json{{path.substr(slash == path.npos ? 0 : slash + 1), file}};
      path.resize(slash == path.npos ? 0 : slash);
    }
    const auto got = config_from_hf(file.dump(), json{{"architecture", d}}.dump());
    EXPECT_FALSE(!got && got.error().subject.starts_with("options:")) << got.error().message;
  }
  for (const json& row : a["unread"]) EXPECT_FALSE(row["why"].get<std::string>().empty());
}

}  // namespace
}  // namespace moe::test::hf_infer_test
