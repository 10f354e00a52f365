// The option "architecture": a known name, a description, and what is refused of both. See impl/hf/read_as.cpp.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "hf/architecture.h"
#include "hf/hf.h"
#include "hf/nearest.h"
#include "support/rooms.h"
#include "support/vectors.h"

namespace moe::test::hf_read_as_test {
namespace {

using nlohmann::json;

Result<Config> create(const json& file, const json& options = json::object()) {
  return config_from_hf(file.dump(), options.dump());
}

json document(const json& file, const json& options) {
  const auto f = moe::json::parse(file.dump()), o = moe::json::parse(options.dump());
  EXPECT_TRUE(f && o);
  const auto d = document_from_hf(*f, *o);
  EXPECT_TRUE(d) << d.error().message;
  return d ? json::parse(moe::json::write(*d)) : json();
}

json qwen() {
  json file = load_json("hf/qwen3_30b_a3b_w4a8.json");
  file.erase("quantization_config");
  return file;
}

// A class that nobody knows, with keys of its own.
json new_file() {
  return {{"architectures", {"NoveltyForCausalLM"}},
          {"width", 64},
          {"expert_width", 32},
          {"experts", 8},
          {"active", 2},
          {"act", "gelu"},
          {"depth", 6},
          {"dense_first", 2},
          {"torch_dtype", "bfloat16"}};
}
json description() {
  return json::parse(R"({"module": "model.blocks.{layer}.ff.experts", "projections": ["wg", "wu", "wd"],
    "keys": {"num_experts": "experts", "top_k": "active", "hidden_dim": "width", "intermediate_size": "expert_width",
             "activation": "act", "num_layers": "depth", "first_layer": "dense_first"},
    "routing": {"scoring_func": "sigmoid", "renormalize": false, "routed_scaling_factor": 2.5,
                "e_score_correction_bias": true}})");
}

TEST(HfReadAs, KnownName) {
  json file = qwen();
  file["architectures"] = {"Qwen3MoeTwinForCausalLM"};
  EXPECT_FALSE(create(file));
  const json option = {{"architecture", "Qwen3MoeForCausalLM"}};
  EXPECT_EQ(document(file, option), document(qwen(), json::object()));
  file.erase("architectures");
  EXPECT_EQ(document(file, option), document(qwen(), json::object()));
  // Whatever the file says.
  EXPECT_EQ(document(qwen(), {{"architecture", "MixtralForCausalLM"}})["projection_names"], json({"w1", "w3", "w2"}));
}

TEST(HfReadAs, Description) {
  EXPECT_EQ(document(new_file(), {{"architecture", description()}}), json::parse(R"({
    "name": "model.blocks.2.ff.experts", "projection_names": ["wg", "wu", "wd"], "num_experts": 8, "top_k": 2,
    "hidden_dim": 64, "intermediate_size": 32, "activation": "gelu", "in_dtype": "bfloat16",
    "routing": {"scoring_func": "sigmoid", "renormalize": false, "routed_scaling_factor": 2.5,
                "e_score_correction_bias": true}})"));
  json d = description();
  d["keys"]["num_experts"] = {"num_experts", "experts"};  // the first that the file has
  const auto c = create(new_file(), {{"architecture", d}, {"layer_index", 5}, {"overrides", {{"top_k", 3}}}});
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ(c->name, "model.blocks.5.ff.experts");
  EXPECT_EQ(c->num_experts, 8);
  EXPECT_EQ(c->top_k, 3);
  EXPECT_EQ(c->routing.scoring, Scoring::sigmoid);
  EXPECT_TRUE(c->routing.has_bias);
  EXPECT_EQ(c->stacked_weights, StackedWeights::none);
}

TEST(HfReadAs, DescriptionOfStacks) {
  json d = description(), file = new_file();
  d["stacked"] = "columns_first";
  d["stacked_names"] = {"w13", "w2"};
  d["interleaved"] = true;
  d["has_bias"] = true;
  d["activation"] = "silu";
  file.erase("act");  // silu is what the class takes then
  const auto c = create(file, {{"architecture", d}});
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ(c->stacked_weights, StackedWeights::columns_first);
  EXPECT_EQ(c->stacked_names, (std::vector<std::string>{"w13", "w2"}));
  EXPECT_EQ(c->w13_layout, W13Layout::interleaved);
  EXPECT_TRUE(c->has_bias);
  EXPECT_EQ(c->activation, Activation::silu);
  d["interleaved"] = d["has_bias"] = false;
  EXPECT_EQ(create(file, {{"architecture", d}})->w13_layout, W13Layout::gate_up);
  d["gated"] = false;
  const auto ungated = create(file, {{"architecture", d}});
  ASSERT_TRUE(ungated) << ungated.error().message;
  EXPECT_EQ(ungated->activation, Activation::silu_no_mul);
}

// Members of a description win over those of the row, and the rest is the row's.
TEST(HfReadAs, DescriptionLikeARow) {
  json file = load_json("hf/qwen3_30b_a3b_w4a8.json");
  file["architectures"] = {"NoveltyForCausalLM"};
  const json d = {{"like", "Qwen3MoeForCausalLM"},
                  {"module", "language.layers.{layer}.moe"},
                  {"routing", {{"scoring_func", "sigmoid"}}}};
  json expected = document(load_json("hf/qwen3_30b_a3b_w4a8.json"), json::object());
  expected["name"] = "language.layers.0.moe";
  expected["routing"]["scoring_func"] = "sigmoid";
  EXPECT_EQ(document(file, {{"architecture", d}}), expected);
  json gpt_oss = load_json("hf/GptOssForCausalLM-base/config.json");
  const json again = {{"like", "GptOssForCausalLM"}};
  EXPECT_EQ(document(gpt_oss, {{"architecture", again}}), document(gpt_oss, json::object()));
  gpt_oss["kept"] = json::object();
  for (const char* key : {"num_local_experts", "hidden_size"}) {
    gpt_oss["kept"][key] = gpt_oss[key];
    gpt_oss.erase(key);
  }
  EXPECT_TRUE(create(gpt_oss, {{"architecture", {{"like", "GptOssForCausalLM"}, {"holder", "kept"}}}}));
}

TEST(HfReadAs, FaultsAreReportedWhereTheyAre) {
  const struct {
    const char* patch;  // of the description
    const char* subject;
    Code code = Code::invalid_config;
  } cases[] = {
      {R"({"like": "Qwen9MoeForCausalLM"})", "options:/architecture/like"},
      {R"({"like": "DogeForCausalLM"})", "options:/architecture/like", Code::unsupported},
      {R"({"like": 4})", "options:/architecture/like"},
      {R"({"named": "x"})", "options:/architecture/named"},
      {R"({"module": null})", "options:/architecture/module"},
      {R"({"module": "model.layers.3.experts"})", "options:/architecture/module"},
      {R"({"module": "model.{layer}.mlp.{layer}.experts"})", "options:/architecture/module"},
      {R"({"module": "{layer}.experts"})", "options:/architecture/module"},
      {R"({"module": "model.layers.{layer}"})", "options:/architecture/module"},
      {R"({"module": ""})", "options:/architecture/module"},
      {R"({"holder": []})", "options:/architecture/holder"},
      {R"({"projections": ["a", "b"]})", "options:/architecture/projections"},
      {R"({"projections": ["a", "b", 7]})", "options:/architecture/projections/2"},
      {R"({"projections": ["a", "b", "a"]})", "options:/architecture/projections/2"},
      {R"({"gated": 1})", "options:/architecture/gated"},
      {R"({"stacked": "rows"})", "options:/architecture/stacked"},
      {R"({"stacked": "rows_first", "stacked_names": ["a"]})", "options:/architecture/stacked_names"},
      {R"({"stacked": "rows_first", "stacked_names": ["a", ""]})", "options:/architecture/stacked_names/1"},
      {R"({"stacked": "rows_first", "stacked_names": ["a", "a"]})", "options:/architecture/stacked_names/1"},
      {R"({"interleaved": "no"})", "options:/architecture/interleaved"},
      {R"({"has_bias": 0})", "options:/architecture/has_bias"},
      {R"({"activation": "tanh"})", "options:/architecture/activation"},
      {R"({"keys": 5})", "options:/architecture/keys"},
      {R"({"keys": {"layers": "x"}})", "options:/architecture/keys/layers"},
      {R"({"keys": {"top_k": 5}})", "options:/architecture/keys/top_k"},
      {R"({"keys": {"top_k": []}})", "options:/architecture/keys/top_k"},
      {R"({"keys": {"top_k": ["a", 5]}})", "options:/architecture/keys/top_k/1"},
      {R"({"keys": {"activation": 1}})", "options:/architecture/keys/activation"},
      {R"({"keys": {"hidden_dim": "hidden"}})", "/hidden"},
      {R"({"keys": {"activation": "no_such"}})", "/no_such"},
      {R"({"routing": null})", "options:/architecture/routing/scoring_func"},
      {R"({"routing": {"scoring_func": null}})", "options:/architecture/routing/scoring_func"},
      {R"({"routing": {"renormalize": null}})", "options:/architecture/routing/renormalize"},
      {R"({"routing": 3})", "options:/architecture/routing"},
      {R"({"routing": {"scoring_func": "tanh"}})", "options:/architecture/routing/scoring_func"},
      {R"({"routing": {"score": 1}})", "options:/architecture/routing/score"},
      {R"({"routing": {"topk_group": 9}})", "options:/architecture/routing/topk_group"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.patch);
    json d = description();
    d.merge_patch(json::parse(c.patch));
    const auto got = create(new_file(), {{"architecture", d}});
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().subject, c.subject) << got.error().message;
    EXPECT_EQ(got.error().code, c.code) << got.error().message;
    EXPECT_NE(got.error().message.find(c.subject), std::string::npos) << got.error().message;
  }
  for (const json& other : {json(5), json(), json::array({"MixtralForCausalLM"}), json("")}) {
    const auto got = create(qwen(), {{"architecture", other}});
    ASSERT_FALSE(got) << other;
    EXPECT_EQ(got.error().subject, "options:/architecture") << got.error().message;
  }
}

TEST(HfReadAs, UnknownNamesComeWithTheNearest) {
  const auto option = create(qwen(), {{"architecture", "Qwen3MoEForCausalML"}});
  ASSERT_FALSE(option);
  EXPECT_EQ(option.error().code, Code::invalid_config);
  EXPECT_EQ(option.error().subject, "options:/architecture");
  EXPECT_NE(option.error().message.find("Qwen3MoeForCausalLM"), std::string::npos) << option.error().message;
  const auto unread = create(qwen(), {{"architecture", "DogeForCausalLM"}});
  ASSERT_FALSE(unread);
  EXPECT_EQ(unread.error().code, Code::unsupported);
  json file = qwen();
  file["architectures"] = {"Qwen3_6MoeForConditionalGeneration"};
  const auto unknown = create(file);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, Code::unsupported);
  EXPECT_EQ(unknown.error().subject, "/architectures/0");
  EXPECT_NE(unknown.error().message.find("option \"architecture\""), std::string::npos) << unknown.error().message;
  const json details = json::parse("{" + unknown.error().details + "}");
  EXPECT_EQ(details["nearest"].size(), 3U) << details;
  EXPECT_EQ(details["nearest"][0], "Qwen3_5MoeForConditionalGeneration");
  // Nothing is called like it: the members tell.
  file["architectures"] = {"NovaForCausalLM"};
  const auto nova = create(file);
  ASSERT_FALSE(nova);
  const json by_keys = json::parse("{" + nova.error().details + "}");
  EXPECT_EQ(by_keys["nearest"].size(), 3U);
  EXPECT_EQ(by_keys["nearest"][0], "Qwen2MoeForCausalLM");
  EXPECT_NE(nova.error().message.find("moe_describe(\"checkpoint\", {\"config\""), std::string::npos);
  file["architectures"] = {"DogeForCausalLM"};
  EXPECT_NE(create(file).error().message.find("product keys"), std::string::npos);
}

TEST(HfReadAs, BaseModelsAndOtherHeads) {
  const json whole = document(qwen(), json::object());
  for (const char* name : {"Qwen3MoeModel", "Qwen3MoeForSequenceClassification", "Qwen3MoeForTokenClassification",
                           "Qwen3MoeForQuestionAnswering"}) {
    json file = qwen();
    file["architectures"] = {name};
    EXPECT_EQ(document(file, json::object()), whole) << name;
    EXPECT_EQ(
        document(new_file(), {{"architecture", {{"like", name}, {"keys", description()["keys"]}}}})["num_experts"], 8);
    EXPECT_EQ(create(file)->named_by_class, "Qwen3MoeForCausalLM");
  }
  json file = qwen();
  for (const char* name : {"DogeModel", "SwitchTransformersModel", "Ernie4_5_VLMoeTextModel"}) {
    file["architectures"] = {name};
    const auto got = create(file);
    ASSERT_FALSE(got) << name;
    EXPECT_NE(got.error().message.find("is not read"), std::string::npos) << got.error().message;
  }
}

// A class that is not known around a text model that says what it is.
TEST(HfReadAs, TextModelsInsideOthers) {
  json text = qwen();
  text.erase("architectures");
  const auto wrapped = [&](const json& more, const char* name, const char* part) {
    json inner = text;
    inner.merge_patch(more);
    return json{{"architectures", {name}}, {"model_type", "wrapper"}, {"dtype", "bfloat16"}, {part, inner}};
  };
  json whole = document(qwen(), json::object());
  whole["name"] = "language_model.model.layers.0.mlp.experts";
  for (const char* name :
       {"InternVLForConditionalGeneration", "LlavaForConditionalGeneration", "LlavaOnevisionForConditionalGeneration",
        "VoxtralForConditionalGeneration", "AyaVisionForConditionalGeneration", "Lfm2VlForConditionalGeneration",
        "LlavaModel", "KimiK25ForConditionalGeneration"})
    for (const char* part : {"text_config", "llm_config"})
      for (const json& more : {json{{"model_type", "qwen3_moe"}},
                               json{{"architectures", {"Qwen3MoeForCausalLM"}}, {"model_type", "other"}},
                               json{{"architectures", {"Qwen3MoeModel"}}},
                               json{{"architectures", nullptr}, {"model_type", "qwen3_moe"}}}) {
        const json file = wrapped(more, name, part);
        EXPECT_EQ(document(file, json::object()), whole) << file;
        EXPECT_EQ(create(file)->named_by_class, "Qwen3MoeForCausalLM");
      }
  // Its own prefix where the class has another than text models have.
  json gemma = {{"model_type", "qwen3_vl_moe_text"}};
  EXPECT_EQ(document(wrapped(gemma, "NovelVisionModel", "text_config"), json::object())["name"],
            "model.language_model.layers.0.mlp.experts");
  // Faults have their place in the file.
  json file = wrapped({{"model_type", "qwen3_moe"}, {"num_experts_per_tok", 129}}, "LlavaModel", "text_config");
  EXPECT_EQ(create(file).error().subject, "/text_config/num_experts_per_tok");
  // Quantization of the part.
  file = wrapped({{"model_type", "qwen3_moe"},
                  {"quantization_config", load_json("hf/qwen3_30b_a3b_w4a8.json")["quantization_config"]}},
                 "LlavaModel", "text_config");
  ASSERT_TRUE(create(file)) << create(file).error().message;
  EXPECT_TRUE(create(file)->quantization.is_w4a8_int8());
  // Nothing is guessed.
  for (const json& more :
       {json{{"model_type", "qwen3"}}, json{{"model_type", nullptr}}, json{{"model_type", "dbrx"}},
        json{{"architectures", {"NovelForCausalLM"}}, {"model_type", "qwen3_moe"}},
        json{{"architectures", {"DogeForCausalLM"}}}, json{{"architectures", {"DbrxForCausalLM"}}}}) {
    const auto got = create(wrapped(more, "LlavaModel", "text_config"));
    ASSERT_FALSE(got) << more;
    EXPECT_EQ(got.error().subject, "/architectures/0") << got.error().message;
    EXPECT_EQ(got.error().code, Code::unsupported);
  }
  EXPECT_EQ(create(wrapped({{"architectures", 5}}, "LlavaModel", "text_config")).error().subject,
            "/text_config/architectures");
  EXPECT_EQ(create(wrapped({{"model_type", 5}}, "LlavaModel", "text_config")).error().subject,
            "/text_config/model_type");
  // A known class that takes any text model.
  file = wrapped({{"model_type", "qwen3_moe"}}, "Mistral3ForConditionalGeneration", "text_config");
  EXPECT_EQ(document(file, json::object()), whole);
  file = wrapped({{"model_type", "mistral4"}, {"n_routed_experts", 128}}, "Mistral3ForConditionalGeneration",
                 "text_config");
  const json mistral = document(file, json::object());
  file["text_config"].erase("model_type");
  EXPECT_EQ(document(file, json::object()), mistral);
  EXPECT_EQ(mistral["routing"]["group_score"], "two_largest");
  // A known class, read or not, is what it is.
  const json named = wrapped({{"model_type", "qwen3_moe"}}, "Ernie4_5_VLMoeForConditionalGeneration", "text_config");
  EXPECT_NE(create(named).error().message.find("two sets of experts"), std::string::npos);
}

// Names that no package has: the way out is the class to read them like.
TEST(HfReadAs, NamesOfNoClass) {
  json file = qwen();
  for (const auto& [name, like] :
       {std::pair("MiniMaxM3ForCausalLM", "\"architecture\": \"MiniMaxM3SparseForCausalLM\""),
        std::pair("Step3p7FlashForCausalLM", "\"architecture\": \"Step3p7ForConditionalGeneration\"")}) {
    file["architectures"] = {name};
    const auto got = create(file);
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().code, Code::unsupported);
    EXPECT_NE(got.error().message.find(like), std::string::npos) << got.error().message;
  }
}

TEST(HfReadAs, HolderThatIsNotThere) {
  json d = {{"like", "Qwen3MoeForCausalLM"}, {"holder", "language/text"}};
  const auto got = create(qwen(), {{"architecture", d}});
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().subject, "options:/architecture/holder") << got.error().message;
}

TEST(HfReadAs, NearestNames) {
  const auto nearest = [](const char* name) { return nearest_architectures(name); };
  EXPECT_EQ(nearest("LlamaForCausalLM").at(0), "Llama4ForCausalLM");
  EXPECT_EQ(nearest("LlamaForConditionalGeneration").at(0), "Llama4ForConditionalGeneration");
  EXPECT_EQ(nearest("deepseekv5forcausallm").size(), 3U);
  EXPECT_EQ(nearest("GptOss2ForCausalLM").at(0), "GptOssForCausalLM");
  EXPECT_TRUE(nearest("BertForMaskedLM").empty());
  EXPECT_TRUE(nearest("").empty());
  EXPECT_TRUE(nearest("ForCausalLM").empty());
  EXPECT_LE(nearest_architectures(std::string(100000, 'Q')).size(), 3U);
  for (const Architecture& a : architectures()) EXPECT_EQ(nearest_architectures(a.name).at(0), a.name);
}

}  // namespace
}  // namespace moe::test::hf_read_as_test
