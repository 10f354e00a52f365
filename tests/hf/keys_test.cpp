// Every key of every class's configuration in transformers, of all published files of tests/vectors and of experts in
// the engines' models stands in a list: read, compared with what the document says, harmless, outside of experts
// (tests/vectors/hf_keys, made by config_keys.py). What a class takes for granted is what its row takes.
#include "hf/keys.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "hf/architecture.h"
#include "hf/class_names.h"
#include "hf/hf.h"
#include "support/rooms.h"
#include "support/vectors.h"

namespace moe::test::hf_keys_test {
namespace {

using nlohmann::json;

Result<Config> create(const json& file, const json& options = json::object()) {
  return config_from_hf(file.dump(), options.dump());
}

json document(const json& file, const json& options = json::object()) {
  const auto f = moe::json::parse(file.dump()), o = moe::json::parse(options.dump());
  const auto d = document_from_hf(*f, *o);
  return d ? json::parse(moe::json::write(*d)) : json(d.error().message);
}

const json& classes() {
  static const json all = load_json("hf_keys/transformers.json")["classes"];
  return all;
}
const json& engines() {
  static const json all = load_json("hf_keys/engines.json");
  return all;
}

// key -> what it is about.
const std::map<std::string, std::string>& outside() {
  static const std::map<std::string, std::string> all = [] {
    std::map<std::string, std::string> reasons;
    const json file = load_json("hf_keys/outside.json");
    for (const auto& [reason, keys] : file.items())
      for (const std::string key : keys) reasons[key] = reason;
    return reasons;
  }();
  return all;
}

std::vector<std::string> keys_of(const json& entry) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : entry["keys"].items()) {
    keys.push_back(key);
    if (key == "ffn_config" && value.is_object())
      for (const auto& [inner, of_inner] : value.items()) keys.push_back(inner);
  }
  for (const auto& [name, key] : entry["other_names"].items()) keys.push_back(name);
  for (const std::string key : entry["old"]) keys.push_back(key);
  return keys;
}

// Python writes Infinity.
json python_json(const std::string& name) {
  return json::parse(std::regex_replace(read_text(vector_path(name)), std::regex("-?(Infinity|NaN)"), "null"));
}

struct Published {
  std::string name;
  json file;
};
const std::vector<Published>& published() {
  static const std::vector<Published> all = [] {
    std::vector<Published> files;
    for (const auto& entry : std::filesystem::directory_iterator(vector_path("published_configs"))) {
      const std::string name = entry.path().filename().string();
      if (name.ends_with(".json") && name != "expected.json" && !name.ends_with("hf_quant_config.json"))
        files.push_back({name, python_json("published_configs/" + name)});
    }
    return files;
  }();
  return all;
}
// The part with the experts' members.
const json& text_of(const json& file) { return file.contains("text_config") ? file["text_config"] : file; }

// Keys that some row reads.
const std::set<std::string>& read_by_any() {
  static const std::set<std::string> all = [] {
    std::set<std::string> keys;
    for (const Architecture& a : architectures())
      for (const std::string_view key : keys_read(a)) keys.emplace(key);
    return keys;
  }();
  return all;
}

void expect_listed(const Architecture& row, const std::string& key, const std::string& where) {
  const KeyUse use = use_of(row, key);
  if (use != KeyUse::unknown) return;
  EXPECT_FALSE(speaks_of_experts(key)) << where << ": " << key << " is neither read nor compared nor harmless";
  EXPECT_TRUE(outside().contains(key)) << where << ": " << key << " is in no list";
}

TEST(HfKeys, EveryKeyOfAClassIsListed) {
  ASSERT_GT(classes().size(), 80U);
  for (const json& entry : classes()) {
    const std::string name = entry["class"];
    const Architecture* row = class_named(name).row;
    ASSERT_NE(row, nullptr) << name;
    for (const std::string& key : keys_of(entry)) expect_listed(*row, key, name);
  }
}

TEST(HfKeys, OthersAreUnknown) {
  for (const Architecture& row : architectures())
    for (const char* key : {"", "no_such_key", "num_expert", "rope_theta_of_experts"})
      EXPECT_EQ(use_of(row, key), KeyUse::unknown) << row.name << " " << key;
}

TEST(HfKeys, EveryKeyOfAPublishedFileIsListed) {
  ASSERT_GT(published().size(), 30U);
  for (const Published& p : published()) {
    const std::string name = p.file["architectures"][0];
    const Architecture* row = class_named(name).row;
    const json& text = text_of(p.file);
    if (row == nullptr && text.contains("model_type")) row = class_of_model_type(std::string(text["model_type"]));
    const Architecture none;
    for (const auto& [key, value] : text.items()) expect_listed(row == nullptr ? none : *row, key, p.name);
  }
}

TEST(HfKeys, EveryKeyOfExpertsInAnEnginesModelIsListed) {
  for (const auto& [key, files] : engines().items()) {
    const Architecture none;
    EXPECT_TRUE(read_by_any().contains(key) || use_of(none, key) != KeyUse::unknown) << key << " " << files;
  }
}

// A key that stands in a list stands in a configuration, a file or an engine.
TEST(HfKeys, EveryListedKeyIsSomebodys) {
  std::set<std::string> seen;
  for (const json& entry : classes())
    for (const std::string& key : keys_of(entry)) seen.insert(key);
  for (const Published& p : published())
    for (const auto& [key, value] : text_of(p.file).items()) seen.insert(key);
  for (const auto& [key, files] : engines().items()) seen.insert(key);
  const json elsewhere = load_json("hf_keys/seen.json");
  for (const auto& [key, where] : elsewhere.items()) seen.insert(key);
  for (const HarmlessKey& h : harmless_keys()) {
    EXPECT_TRUE(seen.contains(std::string(h.key))) << h.key << " is in no data";
    EXPECT_FALSE(h.why.empty());
    EXPECT_TRUE(speaks_of_experts(h.key)) << h.key << " needs no row";
    EXPECT_FALSE(read_by_any().contains(std::string(h.key))) << h.key << " is read";
  }
  for (const std::string_view key : keys_compared())
    EXPECT_TRUE(seen.contains(std::string(key))) << key << " is in no data";
  for (const auto& [key, reason] : outside()) EXPECT_TRUE(seen.contains(key)) << key << " is in no data";
}

// The class's own values, left out and written: the same layer.
TEST(HfKeys, WhatAClassTakesForGranted) {
  for (const json& entry : classes()) {
    const std::string name = entry["class"], type = entry["model_type"];
    SCOPED_TRACE(name + " " + type);
    const Architecture& row = row_of_type(*class_named(name).row, type);
    json members;
    for (const std::string_view key : keys_read(row)) {
      const std::string k(key);
      if (entry["keys"].contains(k) && !entry["keys"][k].is_null()) members[k] = entry["keys"][k];
    }
    for (const char* key : {"dtype", "architectures", "model_type"}) members.erase(key);
    json left = {{"architectures", {name}}, {"model_type", type}}, whole = left;
    std::string part = entry["part"];
    if (part.empty()) {
      whole.update(members);
    } else {
      const std::string pointer = "/" + part;
      left[json::json_pointer(pointer)] = json::object();
      whole[json::json_pointer(pointer)] = members;
    }
    const auto got = create(left), want = create(whole);
    if (const json layers = entry["keys"].value(std::string(row.where.count), json());
        row.where.layers && layers.is_number_integer()) {
      EXPECT_EQ(*row.where.layers, layers.get<std::int64_t>());
    }
    if (!got) continue;  // a size without a default, or no layer with experts
    ASSERT_TRUE(want) << want.error().message;
    EXPECT_EQ(got->canonical, want->canonical);
  }
}

// --- faults
// -----------------------------------------------------------------------------------------------------------

const json kQwen = {{"architectures", {"Qwen3MoeForCausalLM"}},
                    {"num_experts", 8},
                    {"num_experts_per_tok", 2},
                    {"hidden_size", 128},
                    {"moe_intermediate_size", 64},
                    {"num_hidden_layers", 2},
                    {"norm_topk_prob", true}};

json with(json file, const json& changes) {
  file.update(changes);
  return file;
}

void expect_fault(const Result<Config>& got, const std::string& pointer, const std::string& way) {
  ASSERT_FALSE(got) << "expected a fault at " << pointer;
  EXPECT_EQ(got.error().subject, pointer) << got.error().message;
  EXPECT_NE(got.error().message.find("overrides." + way), std::string::npos) << got.error().message;
}

// key and value, the pointer, the override that the message names, one that lets the file pass.
struct Fault {
  json said;
  std::string pointer, way;
  json overrides;
};

TEST(HfKeys, WhatTheClassDoesNotReadIsRefused) {
  const std::vector<Fault> faults = {
      {{{"swiglu_limits", {5, 5}}},
       "/swiglu_limits/0",
       "activation_params.limit",
       {{"activation_params", {{"limit", nullptr}}}}},
      {{{"expert_swiglu_limit_list", {4, 0}}},
       "/expert_swiglu_limit_list/0",
       "activation_params.limit",
       {{"activation", "swiglustep"}, {"activation_params", {{"limit", 4}}}}},
      {{{"swiglu_alpha", 1.702}},
       "/swiglu_alpha",
       "activation_params.alpha",
       {{"activation_params", {{"alpha", nullptr}}}}},
      {{{"swiglu_beta", 1.0}}, "/swiglu_beta", "activation_params.beta", {{"activation_params", {{"beta", nullptr}}}}},
      {{{"mlp_gate_softcap", 4.0}},
       "/mlp_gate_softcap",
       "activation_params.gate_cap",
       {{"activation_params", {{"gate_cap", nullptr}}}}},
      {{{"scoring_func", "sigmoid"}},
       "/scoring_func",
       "routing.scoring_func",
       {{"routing", {{"scoring_func", "sigmoid"}}}}},
      {{{"moe_router_activation", "sigmoid"}},
       "/moe_router_activation",
       "routing.scoring_func",
       {{"routing", {{"scoring_func", "softmax"}}}}},
      {{{"routed_scaling_factor", 2.5}},
       "/routed_scaling_factor",
       "routing.routed_scaling_factor",
       {{"routing", {{"routed_scaling_factor", 2.5}}}}},
      {{{"n_group", 4}},
       "/n_group",
       "routing.num_expert_group",
       {{"routing", {{"num_expert_group", 4}, {"topk_group", 2}}}}},
      {{{"moe_latent_size", 64}}, "/moe_latent_size", "hidden_dim", {{"hidden_dim", 64}}},
      {{{"routed_expert_hidden_size", 64}}, "/routed_expert_hidden_size", "hidden_dim", {{"hidden_dim", 64}}},
      {{{"moe_topk", 4}}, "/moe_topk", "top_k", {{"top_k", 4}}},
      {{{"moe_num_experts", 16}}, "/moe_num_experts", "num_experts", {{"num_experts", 16}}},
      {{{"moe_weird_scale", 2.0}}, "/moe_weird_scale", "routing", {{"routing", {{"routed_scaling_factor", 2.0}}}}},
      {{{"Expert_Clamp", {0, 3}}}, "/Expert_Clamp", "activation_params", {{"activation_params", {{"limit", nullptr}}}}},
      {{{"expert_new_size", 64}},
       "/expert_new_size",
       "intermediate_size or overrides.hidden_dim",
       {{"hidden_dim", 128}}},
  };
  for (const Fault& f : faults) {
    SCOPED_TRACE(f.said.dump());
    expect_fault(create(with(kQwen, f.said)), f.pointer, f.way);
    const auto passed = create(with(kQwen, f.said), {{"overrides", f.overrides}});
    EXPECT_TRUE(passed) << passed.error().message;
    // Inside text_config; the root of such a file is another's.
    json inside = {{"architectures", {"Qwen3VLMoeForConditionalGeneration"}}, {"text_config", with(kQwen, f.said)}};
    expect_fault(create(inside), "/text_config" + f.pointer, f.way);
    inside["text_config"] = kQwen;
    EXPECT_TRUE(create(with(inside, f.said)));
  }
}

TEST(HfKeys, WhatSaysNothingPasses) {
  for (const json& said : std::vector<json>{{{"swiglu_limits", {nullptr, 0}}},
                                            {{"swiglu_limits", {0, 5}}},
                                            {{"expert_swiglu_limit_list", json::array()}},
                                            {{"swiglu_alpha", 1}},
                                            {{"swiglu_beta", 0}},
                                            {{"mlp_gate_softcap", nullptr}},
                                            {{"scoring_func", "softmax"}},
                                            {{"routed_scaling_factor", 1}},
                                            {{"routed_scaling_factor", false}},
                                            {{"n_group", 1}, {"topk_group", 1}},
                                            {{"moe_latent_size", nullptr}},
                                            {{"moe_latent_size", 128}},
                                            {{"moe_topk", {2, 4}}},
                                            {{"moe_weird_scale", 0}},
                                            {{"moe_weird_scale", {nullptr, 0}}},
                                            {{"moe_norm_new", false}},
                                            {{"rope_scaling", {{"factor", 4}}}},
                                            {{"shared_expert_intermediate_size", 512}},
                                            {{"swiglu_limits_shared", {7, 7}}},
                                            {{"moe_capacity", {64, 64}}}}) {
    const auto got = create(with(kQwen, said));
    EXPECT_TRUE(got) << said << got.error().message;
    EXPECT_EQ(document(with(kQwen, said)), document(kQwen)) << said;
  }
}

// The word of the class under any of its keys.
TEST(HfKeys, ScoringWordsOfClassesThatHaveOne) {
  const std::map<std::string, std::vector<std::string>> keys = {
      {"GlmMoeDsaForCausalLM", {"scoring_func"}},
      {"BailingHybridForCausalLM", {"score_function", "scoring_func"}},
      {"KimiLinearForCausalLM", {"moe_router_activation_func", "scoring_func"}},
      {"NemotronHForCausalLM", {"scoring_func", "score_function"}},
      {"Step3p7ForConditionalGeneration", {"moe_router_activation"}},
      {"AfmoeForCausalLM", {"score_func"}}};
  for (const auto& [name, spellings] : keys)
    for (const std::string& key : spellings) {
      SCOPED_TRACE(name + " " + key);
      json file = {{"architectures", {name}}, {key, "sigmoid"}};
      if (name == "NemotronHForCausalLM") file["hybrid_override_pattern"] = "ME";
      EXPECT_TRUE(create(file));
      file[key] = "softmax";
      expect_fault(create(file), "/" + key, "routing.scoring_func");
    }
}

TEST(HfKeys, ASizeUnderAnotherSpelling) {
  const json step = {{"architectures", {"Step3p7ForConditionalGeneration"}}, {"text_config", {{"num_experts", 144}}}};
  expect_fault(create(step), "/text_config/num_experts", "num_experts");
  EXPECT_EQ(create(step, {{"overrides", {{"num_experts", 144}}}})->num_experts, 144);
  expect_fault(create({{"architectures", {"MixtralForCausalLM"}}, {"moe_intermediate_size", 768}}),
               "/moe_intermediate_size", "intermediate_size");
  // Beside the class's own key it is the width of something else.
  EXPECT_EQ(
      create({{"architectures", {"OlmoeForCausalLM"}}, {"moe_intermediate_size", 768}, {"intermediate_size", 512}})
          ->intermediate_size,
      512);
}

// Read as the engines' classes do.
TEST(HfKeys, ReadWhereAnEngineReadsThem) {
  json ling = {{"architectures", {"BailingHybridForCausalLM"}},
               {"num_hidden_layers", 4},
               {"first_k_dense_replace", 1},
               {"num_nextn_predict_layers", 1},
               {"expert_swiglu_limit_list", {0, nullptr, 0, 4}},
               {"share_expert_swiglu_limit_list", {0, 0, 5, 7}}};
  const json clamped = document(ling, {{"layer_index", 3}});
  EXPECT_EQ(clamped["activation"], "swiglustep");
  EXPECT_EQ(clamped["activation_params"]["limit"], 4.0);
  for (const int free : {1, 2, 4}) EXPECT_EQ(document(ling, {{"layer_index", free}})["activation"], "silu") << free;
  const auto latent = create({{"architectures", {"KimiLinearForCausalLM"}}, {"routed_expert_hidden_size", 512}});
  EXPECT_EQ(latent->hidden_dim, 512);
  EXPECT_EQ(
      document({{"architectures", {"MiniMaxM3VLForCausalLM"}}, {"swiglu_beta", 0.5}})["activation_params"]["beta"],
      0.5);
}

TEST(HfKeys, MembersOfOneLayer) {
  const json file = with(kQwen, {{"per_layer_config", {{"1", {{"num_experts", 4}, {"num_local_experts", 4}}}}}});
  EXPECT_EQ(create(file)->num_experts, 8);
  EXPECT_EQ(create(file, {{"layer_index", 1}})->num_experts, 4);
  const auto one = [](const json& members) { return create(with(kQwen, {{"per_layer_config", {{"0", members}}}})); };
  EXPECT_EQ(one({{"num_local_experts", 4}})->num_experts, 4);  // another spelling than the whole model's
  expect_fault(one({{"swiglu_limit", 7}}), "/per_layer_config/0/swiglu_limit", "activation_params.limit");
  EXPECT_EQ(one({{"top_k", 9}, {"num_experts_per_tok", 9}}).error().subject, "/per_layer_config/0/num_experts_per_tok");
  EXPECT_EQ(one({{"skip", {"mlp"}}}).error().subject, "/per_layer_config/0/skip");
  EXPECT_TRUE(one({{"skip", {"self_attn"}}, {"num_attention_heads", 4}}));
  EXPECT_EQ(create(with(kQwen, {{"per_layer_config", {{"first", json::object()}}}})).error().subject,
            "/per_layer_config/first");
  EXPECT_EQ(create(with(kQwen, {{"per_layer_config", 5}})).error().subject, "/per_layer_config");
}

// A description says how its class routes.
TEST(HfKeys, ADescriptionsOwnRoutingCounts) {
  const json file = with(kQwen, {{"scoring_func", "sigmoid"}, {"norm_topk_prob", false}});
  const json described = {{"module", "model.layers.{layer}.mlp.experts"},
                          {"activation", "silu"},
                          {"keys", {{"top_k", "num_experts_per_tok"}}},
                          {"routing", {{"scoring_func", "sigmoid"}, {"renormalize", false}}}};
  const auto got = create(file, {{"architecture", described}});
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ(got->routing.scoring, Scoring::sigmoid);
}

TEST(HfKeys, NullGroups) {
  const json file = {{"architectures", {"AXK2ForCausalLM"}}, {"n_group", nullptr}, {"topk_group", 4}};
  EXPECT_EQ(document(file)["routing"]["num_expert_group"], 1);
  EXPECT_EQ(document(file)["routing"]["topk_group"], 1);
  expect_fault(create(with(file, {{"n_group", 8}, {"topk_group", nullptr}})), "/topk_group", "routing.topk_group");
  json v3 = {{"architectures", {"DeepseekV3ForCausalLM"}}, {"n_group", nullptr}, {"topk_group", nullptr}};
  expect_fault(create(v3), "/n_group", "routing.num_expert_group");
  const auto none = create(v3, {{"overrides", {{"routing", {{"num_expert_group", 1}, {"topk_group", 1}}}}}});
  ASSERT_TRUE(none) << none.error().message;
  EXPECT_EQ(none->routing.num_expert_group, 1);
  EXPECT_EQ(document({{"architectures", {"BailingHybridForCausalLM"}}, {"n_group", nullptr}})["routing"]["topk_group"],
            1);
}

TEST(HfKeys, ModelTypesThatShareAClass) {
  const auto factor = [](const char* name, const char* type) {
    return document({{"architectures", {name}}, {"model_type", type}})["routing"]["routed_scaling_factor"];
  };
  EXPECT_EQ(factor("Glm4MoeForCausalLM", "glm4_moe"), 1.0);
  EXPECT_EQ(factor("Glm4MoeForCausalLM", "sarvam_moe"), 2.5);
  const json mla = document({{"architectures", {"DeepseekV3ForCausalLM"}}, {"model_type", "sarvam_mla"}});
  EXPECT_EQ(mla["routing"]["num_expert_group"], 1);
  EXPECT_EQ(mla["num_experts"], 128);
  EXPECT_EQ(mla["name"], "model.layers.1.mlp.experts");
}

}  // namespace
}  // namespace moe::test::hf_keys_test
