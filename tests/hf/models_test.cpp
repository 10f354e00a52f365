// config.json -> config: the two models of real shape, other architectures, options, overrides, and
// where faults are reported. See impl/hf/models.cpp and document.cpp.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "hf/architecture.h"
#include "hf/hf.h"
#include "support/rooms.h"
#include "support/vectors.h"

namespace moe::test::hf_models_test {
namespace {

using nlohmann::json;

const char* const kQwen = "hf/qwen3_30b_a3b_w4a8.json";
const char* const kMixtral = "hf/mixtral_8x7b_w4a8.json";

Result<Config> create(const json& file, const json& options = json::object()) {
  return config_from_hf(file.dump(), options.dump());
}

json document(const json& file, const json& options = json::object()) {
  const auto f = moe::json::parse(file.dump()), o = moe::json::parse(options.dump());
  EXPECT_TRUE(f && o);
  const auto d = document_from_hf(*f, *o);
  EXPECT_TRUE(d) << d.error().message;
  return d ? json::parse(moe::json::write(*d)) : json();
}

void expect_fault(const Result<Config>& got, const std::string& subject, Code code = Code::invalid_config) {
  ASSERT_FALSE(got) << "expected a fault at " << subject;
  EXPECT_EQ(got.error().subject, subject) << got.error().message;
  EXPECT_EQ(got.error().code, code) << got.error().message;
  EXPECT_NE(got.error().message.find(subject), std::string::npos) << got.error().message;
}

TEST(HfModels, Qwen3Group128IntQuantized) {
  const auto c = create(load_json(kQwen));
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ(c->name, "model.layers.0.mlp.experts");
  EXPECT_EQ(c->projection_names, (std::vector<std::string>{"gate_proj", "up_proj", "down_proj"}));
  EXPECT_EQ(c->num_experts, 128);
  EXPECT_EQ(c->top_k, 8);
  EXPECT_EQ(c->hidden_dim, 2048);
  EXPECT_EQ(c->intermediate_size, 768);  // not the dense 6144
  EXPECT_EQ(c->activation, Activation::silu);
  EXPECT_EQ(c->in_dtype, DType::bf16);
  EXPECT_EQ(c->routing.method, RoutingMethod::renormalize);
  EXPECT_TRUE(c->routing.renormalize);
  EXPECT_FALSE(c->routing.has_bias);
  EXPECT_TRUE(c->quantization.is_w4a8_int8());
  EXPECT_EQ(c->quantization.format, Format::int_quantized);
  EXPECT_EQ(c->weight_groups().as_written(), 128);
  EXPECT_EQ(c->quantization.hf, std::nullopt);  // the strict form
}

TEST(HfModels, MixtralChannelPackQuantized) {
  const auto c = create(load_json(kMixtral), {{"layer_index", 31}});
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ(c->name, "model.layers.31.block_sparse_moe.experts");
  EXPECT_EQ(c->projection_names, (std::vector<std::string>{"w1", "w3", "w2"}));
  EXPECT_EQ(c->num_experts, 8);
  EXPECT_EQ(c->top_k, 2);
  EXPECT_EQ(c->hidden_dim, 4096);
  EXPECT_EQ(c->intermediate_size, 14336);
  EXPECT_EQ(c->routing.method, RoutingMethod::renormalize);
  EXPECT_EQ(c->quantization.format, Format::pack_quantized);
  EXPECT_EQ(c->quantization.is_transposed, false);
  EXPECT_EQ(c->weight_groups().as_written(), -1);
  EXPECT_EQ(c->quantization.weights->strategy, Strategy::channel);
}

TEST(HfModels, DocumentIsAnInputAndHasOnlyWhatTheFileSays) {
  EXPECT_EQ(document(load_json(kQwen), {{"layer_index", 3}}), json::parse(R"({
    "name": "model.layers.3.mlp.experts", "projection_names": ["gate_proj", "up_proj", "down_proj"],
    "num_experts": 128, "top_k": 8, "hidden_dim": 2048, "intermediate_size": 768, "activation": "silu",
    "in_dtype": "bfloat16", "routing": {"scoring_func": "softmax", "renormalize": true},
    "quantization": {"format": "int-quantized", "zero_point_convention": "as_stored",
      "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": true, "dynamic": false},
      "input_activations": {"num_bits": 8, "type": "int", "strategy": "token", "symmetric": true, "dynamic": true}}})"));
  const auto c = create(load_json(kQwen));
  ASSERT_TRUE(c);
  const auto merged = merge_config(*c, R"({"num_experts_per_tok": 4})");
  ASSERT_TRUE(merged) << merged.error().message;
  EXPECT_EQ(merged->top_k, 4);
}

// Sizes, too: those of the class's own configuration.
TEST(HfModels, SizesOfTheClass) {
  const auto mixtral = create({{"architectures", {"MixtralForCausalLM"}}}, {{"layer_index", 31}});
  ASSERT_TRUE(mixtral) << mixtral.error().message;
  EXPECT_EQ(mixtral->num_experts, 8);
  EXPECT_EQ(mixtral->top_k, 2);
  EXPECT_EQ(mixtral->hidden_dim, 4096);
  EXPECT_EQ(mixtral->intermediate_size, 14336);
  expect_fault(create({{"architectures", {"MixtralForCausalLM"}}}, {{"layer_index", 32}}), "options:/layer_index");
  // A class without a default, and a file that says null, have none.
  expect_fault(create({{"architectures", {"DeepseekV2ForCausalLM"}}}), "/num_experts_per_tok");
  expect_fault(create({{"architectures", {"MixtralForCausalLM"}}, {"num_experts_per_tok", nullptr}}),
               "/num_experts_per_tok");
  // What is overridden the file need not tell.
  const auto told =
      create({{"architectures", {"DeepseekV2ForCausalLM"}}}, {{"overrides", {{"num_experts_per_tok", 6}}}});
  ASSERT_TRUE(told) << told.error().message;
  EXPECT_EQ(told->top_k, 6);
}

// Two keys of one number: which of them a program reads differs, so they must agree, or the caller chooses.
TEST(HfModels, TwoSpellingsOfOneSize) {
  json file = load_json(kQwen);
  file["num_local_experts"] = 128;
  EXPECT_TRUE(create(file));
  file["num_local_experts"] = 64;
  const auto got = create(file);
  expect_fault(got, "/num_local_experts");
  EXPECT_NE(got.error().message.find("/num_experts is 128"), std::string::npos) << got.error().message;
  const auto chosen = create(file, {{"overrides", {{"num_experts", 64}}}});
  ASSERT_TRUE(chosen) << chosen.error().message;
  EXPECT_EQ(chosen->num_experts, 64);
  // A number and a list with one for each layer agree if they do in this layer.
  json list = {{"architectures", {"HunYuanMoEV1ForCausalLM"}},
               {"num_experts", 16},
               {"moe_topk", {8, 4}},
               {"num_experts_per_tok", 8},
               {"num_hidden_layers", 2}};
  EXPECT_TRUE(create(list, {{"layer_index", 0}}));
  expect_fault(create(list, {{"layer_index", 1}}), "/num_experts_per_tok");
}

// What a file leaves out is the class's; vLLM's class takes one group.
TEST(HfModels, DefaultsOfTheClassAndOfVllm) {
  const json file = {{"architectures", {"DeepseekV3ForCausalLM"}},
                     {"n_routed_experts", 64},
                     {"num_experts_per_tok", 8},
                     {"hidden_size", 64},
                     {"moe_intermediate_size", 32},
                     {"num_hidden_layers", 4}};
  const json own = document(file)["routing"];
  EXPECT_EQ(own["num_expert_group"], 8);
  EXPECT_EQ(own["topk_group"], 4);
  EXPECT_EQ(own["routed_scaling_factor"], 2.5);
  EXPECT_EQ(own["renormalize"], true);
  EXPECT_EQ(document(file)["name"], "model.layers.3.mlp.experts");
  const json vllm = document(file, {{"overrides", {{"bit_compat", "vllm"}}}})["routing"];
  EXPECT_EQ(vllm["num_expert_group"], 1);
  EXPECT_EQ(vllm["topk_group"], 1);
  json v4 = file;
  v4["architectures"] = {"DeepseekV4ForCausalLM"};
  v4["norm_topk_prob"] = false;
  EXPECT_EQ(document(v4)["routing"]["renormalize"], true);
  EXPECT_EQ(document(v4, {{"overrides", {{"bit_compat", "vllm"}}}})["routing"]["renormalize"], false);
}

TEST(HfModels, QwenLayersWithExperts) {
  json file = load_json(kQwen);
  file["decoder_sparse_step"] = 3;  // layers 2, 5, 8, ...
  file["mlp_only_layers"] = {7, 2};
  EXPECT_EQ(document(file)["name"], "model.layers.5.mlp.experts");
  EXPECT_EQ(document(file, {{"layer_index", 8}})["name"], "model.layers.8.mlp.experts");
  for (const int dense : {0, 2, 3, 6}) {
    const auto got = create(file, {{"layer_index", dense}});
    expect_fault(got, "options:/layer_index");
    EXPECT_NE(got.error().message.find("layer " + std::to_string(dense)), std::string::npos);
    EXPECT_EQ(got.error().details, R"("reason":"dense_layer")");
  }
  const auto behind = create(file, {{"layer_index", 48}});
  expect_fault(behind, "options:/layer_index");
  EXPECT_EQ(behind.error().details, R"("reason":"no_such_layer")");
  file["decoder_sparse_step"] = 49;
  const auto none = create(file);
  expect_fault(none, "/num_hidden_layers");
  EXPECT_EQ(none.error().details, R"("reason":"dense_model")");
  file["decoder_sparse_step"] = 0;
  expect_fault(create(file), "/decoder_sparse_step");
}

TEST(HfModels, MembersInsideTextConfig) {
  const json whole = load_json(kQwen);
  json file = {{"architectures", whole["architectures"]}, {"quantization_config", whole["quantization_config"]}};
  file["text_config"] = whole;
  file["text_config"].erase("quantization_config");
  file["text_config"].erase("torch_dtype");
  file["text_config"]["dtype"] = "torch.float16";
  const auto c = create(file, {{"module", "model.language_model.layers.4.mlp.experts"}, {"layer_index", 4}});
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ(c->name, "model.language_model.layers.4.mlp.experts");
  EXPECT_EQ(c->in_dtype, DType::f16);
  EXPECT_TRUE(c->quantization.is_w4a8_int8());
  file["text_config"]["num_experts_per_tok"] = 129;
  expect_fault(create(file), "/text_config/num_experts_per_tok");
  file["text_config"] = 5;
  expect_fault(create(file), "/text_config");
}

json deepseek() {
  return {{"architectures", {"DeepseekV3ForCausalLM"}},
          {"hidden_size", 7168},
          {"moe_intermediate_size", 2048},
          {"intermediate_size", 18432},
          {"n_routed_experts", 256},
          {"num_experts_per_tok", 8},
          {"num_hidden_layers", 61},
          {"num_nextn_predict_layers", 1},
          {"first_k_dense_replace", 3},
          {"moe_layer_freq", 1},
          {"n_group", 8},
          {"topk_group", 4},
          {"topk_method", "noaux_tc"},
          {"scoring_func", "sigmoid"},
          {"norm_topk_prob", true},
          {"routed_scaling_factor", 2.5},
          {"hidden_act", "silu"},
          {"torch_dtype", "bfloat16"},
          {"quantization_config",
           {{"quant_method", "fp8"}, {"activation_scheme", "dynamic"}, {"weight_block_size", {128, 128}}}}};
}

TEST(HfModels, DeepSeekV3) {
  const auto c = create(deepseek());
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ(c->name, "model.layers.3.mlp.experts");
  EXPECT_EQ(c->num_experts, 256);
  EXPECT_EQ(c->intermediate_size, 2048);
  EXPECT_EQ(c->routing.method, RoutingMethod::deepseek_v3);
  EXPECT_EQ(c->routing.num_expert_group, 8);
  EXPECT_EQ(c->routing.topk_group, 4);
  EXPECT_TRUE(c->routing.has_bias);
  EXPECT_EQ(c->routing.routed_scaling_factor, 2.5);
  EXPECT_TRUE(c->routing.apply_routed_scale_to_output);
  EXPECT_EQ(c->quantization.weights->strategy, Strategy::block);
  EXPECT_TRUE(create(deepseek(), {{"layer_index", 61}}));  // multi-token prediction
  expect_fault(create(deepseek(), {{"layer_index", 62}}), "options:/layer_index");
  expect_fault(create(deepseek(), {{"layer_index", 2}}), "options:/layer_index");
  json v2 = deepseek();
  for (const char* key : {"topk_method", "scoring_func", "n_group", "topk_group"}) v2.erase(key);
  v2["architectures"] = {"DeepseekV2ForCausalLM"};
  const auto second = create(v2);
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_EQ(second->routing.scoring, Scoring::softmax);
  EXPECT_EQ(second->routing.num_expert_group, 1);
  EXPECT_FALSE(second->routing.has_bias);
}

TEST(HfModels, RoutingOfOtherArchitectures) {
  const auto routing_of = [](const char* architecture, const json& changes) {
    json file = load_json(kQwen);
    file["architectures"] = {architecture};
    file["num_local_experts"] = 128;
    file["n_routed_experts"] = 128;
    file.merge_patch(changes);
    const auto c = create(file);
    EXPECT_TRUE(c) << architecture << ": " << c.error().message;
    return c ? *c : Config();
  };
  EXPECT_FALSE(routing_of("Qwen3MoeForCausalLM", {{"norm_topk_prob", nullptr}}).routing.renormalize);
  EXPECT_FALSE(routing_of("Qwen2MoeForCausalLM", {{"norm_topk_prob", false}}).routing.renormalize);
  EXPECT_TRUE(routing_of("Qwen3NextForCausalLM", {{"norm_topk_prob", nullptr}}).routing.renormalize);
  const Config olmoe = routing_of("OlmoeForCausalLM", {{"norm_topk_prob", false}});
  EXPECT_EQ(olmoe.routing.method, RoutingMethod::default_);
  EXPECT_EQ(olmoe.intermediate_size, 6144);
  const Config phi = routing_of("PhiMoEForCausalLM", {{"num_experts_per_tok", 2}});
  EXPECT_EQ(phi.routing.method, RoutingMethod::sparse_mixer);
  EXPECT_EQ(phi.name, "model.layers.0.block_sparse_moe.experts");
  EXPECT_EQ(phi.projection_names[1], "w3");
  const Config minimax = routing_of("MiniMaxM2ForCausalLM", {{"scoring_func", "sigmoid"}, {"use_routing_bias", true}});
  EXPECT_EQ(minimax.routing.method, RoutingMethod::minimax2);
  const Config glm =
      routing_of("Glm4MoeForCausalLM", {{"n_group", 1}, {"topk_group", 1}, {"routed_scaling_factor", 2}});
  EXPECT_EQ(glm.routing.method, RoutingMethod::deepseek_v3);
  EXPECT_EQ(glm.routing.routed_scaling_factor, 2.0);
}

// Its experts are its own whatever hidden_act says, in one tensor and in whichever form a tool leaves them.
TEST(HfModels, GptOss) {
  json file = load_json("hf/GptOssForCausalLM-base/config.json");
  const auto plain = create(file);
  ASSERT_TRUE(plain) << plain.error().message;
  EXPECT_EQ(plain->activation, Activation::swigluoai);
  EXPECT_EQ(plain->limit, 1.5);
  EXPECT_EQ(plain->alpha, 1.702);
  EXPECT_TRUE(plain->has_bias);
  EXPECT_EQ(plain->w13_layout, W13Layout::interleaved);
  EXPECT_EQ(plain->stacked_weights, StackedWeights::columns_first);
  EXPECT_EQ(plain->intermediate_size, 64);
  EXPECT_EQ(plain->quantization.format, Format::none);
  EXPECT_EQ(plain->routing.method, RoutingMethod::renormalize);
  for (const char* key : {"swiglu_limit", "swiglu_alpha"}) file.erase(key);
  file["quantization_config"] = {{"quant_method", "mxfp4"},
                                 {"modules_to_not_convert", {"model.layers.*.self_attn", "model.layers.*.mlp.router"}}};
  const auto own = create(file);
  ASSERT_TRUE(own) << own.error().message;
  EXPECT_EQ(own->limit, 7.0);
  EXPECT_EQ(own->quantization.format, Format::mxfp4_gpt_oss);
  file["swiglu_limit"] = "high";
  expect_fault(create(file), "/swiglu_limit");
}

// fp8 is what its other layers are.
TEST(HfModels, DeepseekV4) {
  json file = load_json("hf/DeepseekV4ForCausalLM-base/config.json");
  const auto plain = create(file, {{"layer_index", 1}});
  ASSERT_TRUE(plain) << plain.error().message;
  EXPECT_EQ(plain->name, "model.layers.1.ffn.experts");
  EXPECT_EQ(plain->routing.method, RoutingMethod::deepseek_v4);
  EXPECT_EQ(plain->routing.routed_scaling_factor, 1.5);
  EXPECT_TRUE(plain->routing.has_bias);
  EXPECT_FALSE(plain->routing.hash_routing);
  EXPECT_EQ(plain->limit, 1.5);
  file["quantization_config"] = {{"quant_method", "fp8"},
                                 {"fmt", "e4m3"},
                                 {"activation_scheme", "dynamic"},
                                 {"scale_fmt", "ue8m0"},
                                 {"weight_block_size", {128, 128}}};
  for (const json& dtype : {json(nullptr), json("fp4")}) {
    file["expert_dtype"] = dtype;
    const auto fp4 = create(file);
    ASSERT_TRUE(fp4) << fp4.error().message;
    EXPECT_TRUE(fp4->quantization.is_mxfp4());
    EXPECT_FALSE(fp4->quantization.input_activations);
    EXPECT_EQ(fp4->quantization.format, Format::mxfp4_pack_quantized);
  }
  file["expert_dtype"] = "int4";
  expect_fault(create(file), "/expert_dtype");
  file["expert_dtype"] = "fp8";
  file["hidden_size"] = file["moe_intermediate_size"] = 256;
  EXPECT_EQ(create(file)->quantization.weights->strategy, Strategy::block);
  // Layers that choose by a table have no correction bias.
  file.erase("expert_dtype");
  file["mlp_layer_types"] = {"hash_moe", "moe"};
  EXPECT_TRUE(create(file)->routing.hash_routing);
  EXPECT_FALSE(create(file)->routing.has_bias);
  EXPECT_FALSE(create(file, {{"layer_index", 1}})->routing.hash_routing);
  file.erase("mlp_layer_types");
  EXPECT_TRUE(create(file, {{"layer_index", 1}})->routing.hash_routing);  // the first three
  file["num_hash_layers"] = 1;
  EXPECT_TRUE(create(file)->routing.hash_routing);
  EXPECT_FALSE(create(file, {{"layer_index", 1}})->routing.hash_routing);
}

// Python's None is false; where the class computes with a number, null is refused.
// The row reads the key, whatever the model type; without it the type of published files tells, and the config says so.
TEST(HfModels, ExpertsOfDeepseekV4) {
  const json base = {{"architectures", {"DeepseekV4ForCausalLM"}},
                     {"hidden_size", 256},
                     {"moe_intermediate_size", 128},
                     {"n_routed_experts", 4},
                     {"num_experts_per_tok", 2},
                     {"num_hidden_layers", 3},
                     {"num_nextn_predict_layers", 2},
                     {"quantization_config",
                      {{"quant_method", "fp8"}, {"activation_scheme", "dynamic"}, {"weight_block_size", {128, 128}}}}};
  for (const char* type : {"deepseek_v4", "deepseek_ref"})
    for (const char* dtype : {"fp4", "fp8", ""})
      for (const bool inside : {false, true}) {
        json file = base;
        file["model_type"] = type;
        if (*dtype != '\0') (inside ? file["quantization_config"] : file)["expert_dtype"] = dtype;
        const auto got = create(file);
        ASSERT_TRUE(got) << got.error().message;
        const bool fp4 = *dtype != '\0' ? std::string(dtype) == "fp4" : std::string(type) == "deepseek_v4";
        EXPECT_EQ(got->quantization.is_mxfp4(), fp4) << type << dtype;
        EXPECT_EQ(got->assumed.empty(), *dtype != '\0');
        EXPECT_EQ(got->assumed.find("expert_dtype") == std::string::npos, got->assumed.empty());
      }
  json two = base;
  two["expert_dtype"] = "fp4";
  two["quantization_config"]["expert_dtype"] = "fp8";
  expect_fault(create(two), "/expert_dtype");
  // Layers of multi-token prediction count from 0 below a name of their own.
  const std::vector<std::string> names = {"model.layers.0.ffn.experts", "model.layers.1.ffn.experts",
                                          "model.layers.2.ffn.experts", "mtp.0.ffn.experts", "mtp.1.ffn.experts"};
  for (std::size_t l = 0; l < names.size(); ++l) EXPECT_EQ(create(base, {{"layer_index", l}})->name, names[l]);
  EXPECT_FALSE(create(base, {{"layer_index", 5}}));
}

TEST(HfModels, Nulls) {
  json v3 = {{"architectures", {"DeepseekV3ForCausalLM"}}, {"norm_topk_prob", nullptr}};
  EXPECT_EQ(document(v3)["routing"]["renormalize"], false);
  for (const char* key : {"n_group", "topk_group", "routed_scaling_factor"}) {
    json file = v3;
    file[key] = nullptr;
    expect_fault(create(file), std::string("/") + key);
  }
  const auto routing = [](const char* name, const char* key) {
    return document({{"architectures", {name}}, {"num_experts_per_tok", 2}, {key, nullptr}})["routing"];
  };
  EXPECT_EQ(routing("MiMoV2FlashForCausalLM", "routed_scaling_factor")["routed_scaling_factor"], 1.0);  // as published
  EXPECT_EQ(routing("LongcatFlashForCausalLM", "zero_expert_num")["num_zero_experts"], 0);
  EXPECT_EQ(routing("Glm4MoeForCausalLM", "n_group")["num_expert_group"], 1);
  json dbrx = {{"architectures", {"DbrxForCausalLM"}}, {"ffn_config", {{"moe_normalize_expert_weights", nullptr}}}};
  EXPECT_EQ(document(dbrx)["routing"]["renormalize"], false);
  dbrx["ffn_config"] = {{"moe_normalize_expert_weights", 1}};
  EXPECT_EQ(document(dbrx)["routing"]["renormalize"], true);
  EXPECT_EQ(document(dbrx, {{"layer_index", 23}})["name"], "transformer.blocks.23.ffn.experts.mlp");
  dbrx["num_hidden_layers"] = 2;  // the other spelling of n_layers
  expect_fault(create(dbrx, {{"layer_index", 2}}), "options:/layer_index");
}

// Both spellings of a flag or factor are read, and must agree.
TEST(HfModels, OtherSpellings) {
  json file = {{"architectures", {"BailingHybridForCausalLM"}}, {"norm_topk_prob", false}};
  EXPECT_EQ(document(file)["routing"]["renormalize"], false);
  file["moe_renormalize"] = true;
  expect_fault(create(file), "/norm_topk_prob");
  json inkling = {{"architectures", {"Inkling2ForCausalLM"}}, {"routed_scaling_factor", 2.5}};
  EXPECT_EQ(document(inkling)["routing"]["routed_scaling_factor"], 2.5);
  inkling["route_scale"] = 3.0;
  expect_fault(create(inkling), "/routed_scaling_factor");
}

// A member that the class does not read and that would change its numbers: the file or the class is wrong.
TEST(HfModels, MembersThatTheClassIgnores) {
  json file = load_json(kQwen);
  file["swiglu_limit"] = nullptr;
  EXPECT_TRUE(create(file));
  file["swiglu_limit"] = 7.0;
  expect_fault(create(file), "/swiglu_limit");
  const auto clamped = create(file, {{"overrides", {{"activation_params", {{"limit", 7.0}}}}}});
  ASSERT_TRUE(clamped) << clamped.error().message;
  EXPECT_EQ(clamped->limit, 7.0);
  EXPECT_TRUE(create(file, {{"overrides", {{"activation_params", {{"limit", nullptr}}}}}}));
  json v3 = {{"architectures", {"DeepseekV3ForCausalLM"}}, {"scoring_func", "sigmoid"}};
  EXPECT_TRUE(create(v3));
  v3["scoring_func"] = "softmax";
  expect_fault(create(v3), "/scoring_func");
  EXPECT_EQ(create(v3, {{"overrides", {{"routing", {{"scoring_func", "softmax"}}}}}})->routing.scoring,
            Scoring::softmax);
  EXPECT_TRUE(create(v3, {{"overrides", {{"bit_compat", "vllm"}}}}));  // vLLM's class reads it
}

// What a multimodal file leaves out of text_config has the class's value, whatever the root says.
TEST(HfModels, TheRootIsAnotherModels) {
  const json file = {{"architectures", {"Qwen3VLMoeForConditionalGeneration"}},
                     {"num_experts_per_tok", 2},
                     {"dtype", "float16"},
                     {"text_config", {{"num_experts", 64}}}};
  const auto c = create(file);
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ(c->top_k, 4);
  EXPECT_EQ(c->num_experts, 64);
  EXPECT_EQ(c->in_dtype, DType::f16);
}

// Whole models are loaded in the root's type, whatever their parts' own is.
TEST(HfModels, DtypeOfTheRootWins) {
  json file = load_json(kQwen);
  file.erase("torch_dtype");
  const auto dtype = [&](const json& root, const json& part) {
    json whole = {{"architectures", file["architectures"]}, {"text_config", file}};
    whole.merge_patch(root);
    whole["text_config"].merge_patch(part);
    const auto c = create(whole);
    EXPECT_TRUE(c) << c.error().message;
    return c ? c->in_dtype : DType::invalid;
  };
  for (const char* at_root : {"dtype", "torch_dtype"})
    for (const char* in_part : {"dtype", "torch_dtype"}) {
      EXPECT_EQ(dtype({{at_root, "bfloat16"}}, {{in_part, "float32"}}), DType::bf16);
      EXPECT_EQ(dtype({{at_root, "float32"}}, {{in_part, "bfloat16"}}), DType::f32);
      EXPECT_EQ(dtype(json::object(), {{in_part, "float16"}}), DType::f16);
      json null = {{"architectures", file["architectures"]}, {at_root, nullptr}, {"text_config", file}};
      null["text_config"][in_part] = "float16";
      EXPECT_EQ(create(null)->in_dtype, DType::f16);
    }
  EXPECT_EQ(dtype({{"dtype", "float16"}, {"torch_dtype", "bfloat16"}}, json::object()), DType::f16);
  json wrong = {{"architectures", file["architectures"]}, {"dtype", "int8"}, {"text_config", file}};
  wrong["text_config"]["dtype"] = "float32";
  expect_fault(create(wrong), "/dtype");
}

// Each class as its own code divides; vLLM's divide by the sum.
TEST(HfModels, WhatIsAddedToTheSum) {
  const std::map<std::string, double> others = {{"Lfm2MoeForCausalLM", 1e-6},
                                                {"MuseSparkForConditionalGeneration", 1e-15}};
  const std::set<std::string> tiny = {"AXK1ForCausalLM",
                                      "AXK2ForCausalLM",
                                      "AfmoeForCausalLM",
                                      "BailingHybridForCausalLM",
                                      "BailingMoeV3ForCausalLM",
                                      "BeamForCausalLM",
                                      "DeepseekV32ForCausalLM",
                                      "DeepseekV3ForCausalLM",
                                      "DeepseekV41ForCausalLM",
                                      "DeepseekV4ForCausalLM",
                                      "Dots1ForCausalLM",
                                      "Dots3NoteForCausalLM",
                                      "Dots3NoteForConditionalGeneration",
                                      "ExaoneMoEForCausalLM",
                                      "ExaoneMoeForCausalLM",
                                      "Glm4MoeForCausalLM",
                                      "Glm4MoeLiteForCausalLM",
                                      "Glm4vMoeForConditionalGeneration",
                                      "Glm5NextForConditionalGeneration",
                                      "GlmMoeDsaForCausalLM",
                                      "HYV3ForCausalLM",
                                      "HYV4ForCausalLM",
                                      "HYV4VLForConditionalGeneration",
                                      "Inkling2ForCausalLM",
                                      "Inkling2ForConditionalGeneration",
                                      "Inkling2LoopForCausalLM",
                                      "Inkling2LoopForConditionalGeneration",
                                      "KimiK2ForCausalLM",
                                      "KimiLinearForCausalLM",
                                      "MiMoV2FlashForCausalLM",
                                      "Mistral3ForConditionalGeneration",
                                      "Mistral4ForCausalLM",
                                      "MistralLarge4ForConditionalGeneration",
                                      "NemotronHForCausalLM",
                                      "SarvamMLAForCausalLM",
                                      "SarvamMoEForCausalLM",
                                      "SolarOpenForCausalLM"};
  const json sizes = {{"num_experts", 8},
                      {"num_experts_per_tok", 2},
                      {"moe_intermediate_size", 64},
                      {"hidden_size", 64},
                      {"num_hidden_layers", 6},
                      {"intermediate_size", 64},
                      {"num_expert_group", 1},
                      {"n_group", 1},
                      {"topk_group", 1},
                      {"top_k_experts", 2},
                      {"enable_moe_block", true},
                      {"hybrid_override_pattern", "EE"}};
  for (const Architecture& a : architectures()) {
    const std::string name(a.name);
    json file = sizes;
    file["architectures"] = {name};
    if (name.starts_with("Phi") || name.starts_with("Llama4") || name.starts_with("Zaya")) continue;  // other top_k
    for (const std::string_view key : {a.experts.keys[0], a.top_k.keys[0], a.width.keys[0], a.hidden.keys[0]})
      if (!file.contains(std::string(key)))
        file[std::string(key)] = key == a.experts.keys[0] ? 8 : key == a.top_k.keys[0] ? 2 : 64;
    const auto it = others.find(name);
    const double eps = it != others.end() ? it->second : tiny.contains(name) ? 1e-20 : 0.0;
    const auto own = create(file), vllm = create(file, {{"overrides", {{"bit_compat", "vllm"}}}});
    ASSERT_TRUE(own) << name << own.error().message;
    ASSERT_TRUE(vllm) << name << vllm.error().message;
    EXPECT_EQ(own->routing.renormalize_eps, eps) << name;
    EXPECT_EQ(vllm->routing.renormalize_eps, eps == 1e-15 ? eps : 0.0) << name;
  }
}

// Classes of transformers 5.24.0 without any size in the file, and those that vLLM and SGLang have.
TEST(HfModels, NewerClasses) {
  const auto bare = [](const char* name) { return create({{"architectures", {name}}}); };
  const auto lara = bare("LaraMiniForCausalLM"), hy = bare("HYV4VLForConditionalGeneration"),
             loop = bare("Inkling2LoopForCausalLM"), whole = bare("Inkling2LoopForConditionalGeneration"),
             sarvam = bare("SarvamMoEForCausalLM"), mla = bare("SarvamMLAForCausalLM");
  for (const auto* c : {&lara, &hy, &loop, &whole, &sarvam, &mla}) ASSERT_TRUE(*c) << c->error().message;
  EXPECT_EQ(lara->num_experts, 128);
  EXPECT_EQ(lara->routing.scoring, Scoring::softmax);
  EXPECT_TRUE(lara->routing.renormalize);
  EXPECT_EQ(hy->name, "model.language_model.layers.1.mlp.experts");
  EXPECT_EQ(hy->limit, 10.0);
  EXPECT_EQ(hy->routing.routed_scaling_factor, 2.827);
  EXPECT_EQ(hy->hidden_dim, 6144);
  EXPECT_EQ(loop->intermediate_size, 1152);
  EXPECT_EQ(loop->routing.routed_scaling_factor, 8.0);
  EXPECT_EQ(whole->activation, Activation::swiglu_softcap);
  EXPECT_EQ(sarvam->routing.routed_scaling_factor, 2.5);  // GLM-4's class has 1
  EXPECT_EQ(sarvam->top_k, 6);
  EXPECT_EQ(mla->routing.num_expert_group, 1);  // DeepSeek-V3's has 8
  EXPECT_EQ(mla->name, "model.layers.1.mlp.experts");

  json file = deepseek();
  file["architectures"] = {"KimiK2ForCausalLM"};
  json v3 = document(deepseek());
  EXPECT_EQ(document(file), v3);
  file["architectures"] = {"SarvamMoEForCausalLM"};
  file["moe_router_enable_expert_bias"] = false;
  EXPECT_FALSE(create(file)->routing.has_bias);
  file["score_function"] = "softmax";
  expect_fault(create(file), "/score_function");

  file = {{"architectures", {"MiniMaxM3SparseForCausalLM"}},
          {"num_local_experts", 8},
          {"num_experts_per_tok", 2},
          {"hidden_size", 64},
          {"intermediate_size", 64},
          {"num_hidden_layers", 3},
          {"moe_layer_freq", {0, 1, 1}}};
  const auto m3 = create(file);
  ASSERT_TRUE(m3) << m3.error().message;
  EXPECT_EQ(m3->name, "model.layers.1.block_sparse_moe.experts");
  EXPECT_EQ(m3->limit, 7.0);
  EXPECT_EQ(m3->alpha, 1.702);
  EXPECT_TRUE(m3->routing.has_bias);
  file["use_routing_bias"] = false;
  EXPECT_FALSE(create(file)->routing.has_bias);

  file = {{"architectures", {"DeepseekV41ForCausalLM"}},
          {"text_config",
           {{"n_routed_experts", 8},
            {"num_experts_per_tok", 2},
            {"hidden_size", 64},
            {"moe_intermediate_size", 64},
            {"num_hidden_layers", 2},
            {"num_nextn_predict_layers", 1},
            {"norm_topk_prob", false},
            {"swiglu_limit", 10}}}};
  const auto v41 = create(file);
  ASSERT_TRUE(v41) << v41.error().message;
  EXPECT_EQ(v41->limit, 10.0);
  EXPECT_FALSE(v41->routing.renormalize);
  EXPECT_FALSE(v41->routing.hash_routing);
  EXPECT_TRUE(v41->routing.has_bias);
  expect_fault(create(file, {{"layer_index", 2}}), "options:/layer_index");
  file["text_config"].erase("swiglu_limit");
  EXPECT_EQ(create(file)->limit, std::nullopt);
}

// Each layer's clamp, or none.
TEST(HfModels, LimitsOfLing3) {
  json file = deepseek();
  file["architectures"] = {"BailingMoeV3ForCausalLM"};
  file.erase("quantization_config");
  file["num_hidden_layers"] = 4;
  file["first_k_dense_replace"] = 1;
  file["expert_swiglu_limit_list"] = {0, nullptr, 0, 4};
  for (const int layer : {1, 2, 3}) {
    const auto c = create(file, {{"layer_index", layer}});
    ASSERT_TRUE(c) << c.error().message;
    EXPECT_EQ(c->activation, layer == 3 ? Activation::swiglustep : Activation::silu);
    EXPECT_EQ(c->limit, layer == 3 ? std::optional<double>(4.0) : std::nullopt);
  }
  file["norm_topk_prob"] = false;
  EXPECT_FALSE(create(file)->routing.renormalize);
  EXPECT_TRUE(create(file, {{"overrides", {{"bit_compat", "vllm"}}}})->routing.renormalize);
}

TEST(HfModels, Step35) {
  const json file = {{"architectures", {"Step3p5ForCausalLM"}},
                     {"moe_num_experts", 8},
                     {"moe_top_k", 2},
                     {"hidden_size", 64},
                     {"moe_intermediate_size", 64},
                     {"num_hidden_layers", 3},
                     {"moe_layers_enum", "1,2"},
                     {"swiglu_limits", {0, 0, 7}},
                     {"use_moe_router_bias", true},
                     {"moe_router_activation", "sigmoid"},
                     {"norm_expert_weight", false},
                     {"moe_router_scaling_factor", 3.0}};
  const auto first = create(file), second = create(file, {{"layer_index", 2}});
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_EQ(first->name, "model.layers.1.moe");
  EXPECT_EQ(first->activation, Activation::silu);
  EXPECT_FALSE(first->routing.renormalize);
  EXPECT_EQ(first->routing.routed_scaling_factor, 3.0);
  EXPECT_EQ(second->limit, 7.0);
  json other = file;
  other["moe_router_activation"] = "softmax";
  expect_fault(create(other), "/moe_router_activation");
}

// It belongs to the class's way of routing, and its tables' layers divide so, too.
TEST(HfModels, OtherWaysOfRoutingAddNothing) {
  const auto eps = [](const json& file, const json& routing) {
    const auto c = create(file, {{"overrides", {{"routing", routing}}}});
    EXPECT_TRUE(c) << routing << c.error().message;
    return c ? c->routing.renormalize_eps : -1.0;
  };
  EXPECT_EQ(eps(deepseek(), {{"method", "auto"}}), 1e-20);
  EXPECT_EQ(eps(deepseek(), {{"method", "topk"}}), 0.0);
  EXPECT_EQ(eps(deepseek(), {{"method", "custom"}}), 0.0);
  EXPECT_EQ(eps(deepseek(), {{"renormalize_eps", 1e-6}}), 1e-6);
  EXPECT_EQ(eps(deepseek(), {{"renormalize_eps", 0}}), 0.0);
  EXPECT_EQ(eps(deepseek(), {{"renormalize", false}}), 1e-20);
  const json both = {{"overrides", {{"routing", {{"method", "topk"}, {"renormalize_eps", 1e-6}}}}}};
  expect_fault(create(deepseek(), both), "options:/overrides/routing/renormalize_eps");
  const auto hashed = create(load_json("hf/DeepseekV4ForCausalLM-base/config.json"), {{"layer_index", 0}});
  ASSERT_TRUE(hashed) << hashed.error().message;
  EXPECT_EQ(hashed->routing.renormalize_eps, 1e-20);
}

// Python writes them; as a number nobody takes them.
TEST(HfModels, InfinityOfPython) {
  std::string text = load_json(kQwen).dump();
  text.insert(1, R"("time_step_limit": [0.0, Infinity, -Infinity, NaN], "a \"NaN": "Infinity", )");
  EXPECT_TRUE(config_from_hf(text, ""));
  const auto got = config_from_hf(R"({"architectures": ["MixtralForCausalLM"], "num_experts_per_tok": NaN})", "");
  expect_fault(got, "/num_experts_per_tok");
}

// The file beside config.json has no quant_method.
TEST(HfModels, ModelOptsOwnFile) {
  json file = load_json(kQwen);
  file.erase("quantization_config");
  const auto with_algorithm = [&](const json& producer, const char* algorithm) {
    return create(file, {{"quantization_config",
                          {{"producer", producer},
                           {"quantization",
                            {{"quant_algo", algorithm},
                             {"kv_cache_quant_algo", "FP8"},
                             {"group_size", 16},
                             {"exclude_modules", {"lm_head", "model.layers.*.mlp.gate"}}}}}}});
  };
  const json modelopt = {{"name", "modelopt"}, {"version", "0.29.0"}};
  const auto c = with_algorithm(modelopt, "NVFP4"), a16 = with_algorithm(modelopt, "W4A16_NVFP4");
  ASSERT_TRUE(c && a16);
  EXPECT_TRUE(c->quantization.is_nvfp4() && a16->quantization.is_nvfp4());
  EXPECT_TRUE(c->quantization.input_activations && !a16->quantization.input_activations);
  expect_fault(with_algorithm({{"name", "somebody"}}, "NVFP4"), "options:/quantization_config/quant_method");
}

// What transformers 5 leaves out of a file is what the class does anyway; what a file says counts.
TEST(HfModels, ArchitecturesOwnDefaults) {
  json sparse = deepseek();
  for (const char* key : {"topk_method", "scoring_func"}) sparse.erase(key);
  for (const char* name : {"DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM", "Dots1ForCausalLM"}) {
    json file = sparse;
    file["architectures"] = {name};
    EXPECT_EQ(create(file)->routing.scoring, Scoring::sigmoid) << name;
    EXPECT_TRUE(create(file)->routing.has_bias) << name;
    file["scoring_func"] = "noaux_tc";  // dots1 as published
    EXPECT_EQ(create(file)->routing.scoring, Scoring::sigmoid) << name;
    EXPECT_TRUE(create(file)->routing.has_bias) << name;
    file["topk_method"] = "greedy";
    EXPECT_FALSE(create(file)->routing.has_bias) << name;
    file["topk_method"] = 5;
    expect_fault(create(file), "/topk_method");
  }
  json file = sparse;
  for (const char* key : {"n_group", "topk_group", "routed_scaling_factor"}) file.erase(key);  // of other classes
  file["architectures"] = {"MiniMaxM2ForCausalLM"};
  EXPECT_TRUE(create(file)->routing.has_bias);
  EXPECT_EQ(create(file)->routing.scoring, Scoring::sigmoid);
  file["use_routing_bias"] = false;
  EXPECT_FALSE(create(file)->routing.has_bias);
}

// Where vLLM's classes and transformers' differ.
TEST(HfModels, RoutingByBitCompat) {
  const json vllm = {{"overrides", {{"bit_compat", "vllm"}}}};
  json olmoe = load_json(kQwen);
  olmoe["architectures"] = {"OlmoeForCausalLM"};
  olmoe["norm_topk_prob"] = true;
  EXPECT_TRUE(create(olmoe)->routing.renormalize);
  EXPECT_FALSE(create(olmoe, vllm)->routing.renormalize);
  json v2 = deepseek();
  v2["architectures"] = {"DeepseekV2ForCausalLM"};
  v2["scoring_func"] = "softmax";
  v2["norm_topk_prob"] = true;
  v2["topk_method"] = "greedy";
  EXPECT_EQ(create(v2)->routing.num_expert_group, 1);
  EXPECT_FALSE(create(v2)->routing.renormalize);
  EXPECT_EQ(create(v2, vllm)->routing.num_expert_group, 8);
  EXPECT_EQ(create(v2, vllm)->routing.topk_group, 4);
  EXPECT_TRUE(create(v2, vllm)->routing.renormalize);
  v2["topk_method"] = "group_limited_greedy";
  EXPECT_EQ(create(v2)->routing.num_expert_group, 8);
  EXPECT_EQ(create(v2)->routing.topk_group, 4);
}

TEST(HfModels, OtherNamesOfTheSame) {
  json file = load_json(kQwen);
  file["hidden_act"] = "swish";
  EXPECT_EQ(create(file)->activation, Activation::silu);
  file["hidden_act"] = "swosh";
  expect_fault(create(file), "/hidden_act");
  json phi = load_json(kMixtral);
  phi.erase("quantization_config");
  for (const char* name : {"PhimoeForCausalLM", "PhiMoEForCausalLM"}) {
    phi["architectures"] = {name};
    phi["router_jitter_noise"] = 0.02;
    EXPECT_EQ(create(phi)->routing.method, RoutingMethod::sparse_mixer) << name;
    EXPECT_EQ(create(phi)->routing.jitter_eps, 0.02) << name;
  }
}

TEST(HfModels, Options) {
  const json file = load_json(kQwen);
  const auto tp = create(file, {{"tp_size", 2}, {"tp_rank", 1}});
  ASSERT_TRUE(tp) << tp.error().message;
  EXPECT_EQ(tp->parallel.tp_size, 2);
  EXPECT_EQ(tp->parallel.tp_rank, 1);
  EXPECT_EQ(tp->intermediate_size_per_partition, 384);
  EXPECT_EQ(tp->intermediate_size, 768);
  const auto ep = create(file, {{"ep_size", 4}, {"ep_rank", 3}});
  ASSERT_TRUE(ep) << ep.error().message;
  EXPECT_EQ(ep->parallel.ep_size, 4);
  EXPECT_EQ(ep->parallel.ep_rank, 3);
  EXPECT_EQ(ep->parallel.tp_size, 1);
  EXPECT_EQ(local_experts(*ep).front(), 96);
  EXPECT_TRUE(create(file, {{"ep_size", 1}, {"ep_rank", 0}, {"tp_size", 2}}));
  const auto other = create(file, {{"quantization_config",
                                    {{"quant_method", "awq"}, {"bits", 4}, {"group_size", 64}, {"zero_point", true}}}});
  ASSERT_TRUE(other) << other.error().message;
  EXPECT_EQ(other->quantization.format, Format::awq);
  EXPECT_TRUE(config_from_hf(file.dump(), ""));
  json plain = file;
  plain.erase("quantization_config");
  const auto unquantized = create(plain);
  ASSERT_TRUE(unquantized);
  EXPECT_FALSE(unquantized->quantization.weights);
  json ignored = file;
  ignored["quantization_config"]["ignore"] = {"re:model.layers.0.mlp.experts"};
  EXPECT_FALSE(create(ignored)->quantization.weights);
  EXPECT_TRUE(create(ignored, {{"layer_index", 1}})->quantization.weights);
}

TEST(HfModels, OverridesWin) {
  const json file = load_json(kQwen);
  const json overrides = {{"num_experts_per_tok", 4},
                          {"routing", {{"renormalize", false}}},
                          {"quantization", {{"scheme", "W4A8"}, {"group_size", 32}}},
                          {"parallel", {{"tp_rank", 0}}},
                          {"in_dtype", "float32"}};
  const auto c = create(file, {{"tp_size", 2}, {"tp_rank", 1}, {"overrides", overrides}});
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ(c->top_k, 4);
  EXPECT_EQ(c->routing.method, RoutingMethod::default_);
  EXPECT_EQ(c->weight_groups().as_written(), 32);
  EXPECT_EQ(c->parallel.tp_size, 2);
  EXPECT_EQ(c->parallel.tp_rank, 0);
  EXPECT_EQ(c->in_dtype, DType::f32);
  const auto part = create(file, {{"overrides", {{"intermediate_size_per_partition", 256}}}});
  ASSERT_TRUE(part) << part.error().message;
  EXPECT_EQ(part->intermediate_size_per_partition, 256);
  const auto none = create(file, {{"overrides", {{"quantization", nullptr}}}});
  ASSERT_TRUE(none);
  EXPECT_FALSE(none->quantization.weights);
  // The names asked for are the names in force.
  json ignored = file;
  ignored["quantization_config"]["ignore"] = {"re:my.experts"};
  EXPECT_FALSE(create(ignored, {{"module", "my.experts"}})->quantization.weights);
  EXPECT_FALSE(create(ignored, {{"overrides", {{"name", "my.experts"}}}})->quantization.weights);
  EXPECT_TRUE(create(ignored)->quantization.weights);
}

TEST(HfModels, FaultsAreReportedWhereTheyAre) {
  struct Case {
    std::function<void(json&, json&)> spoil;
    std::string subject;
    Code code = Code::invalid_config;
  };
  const std::vector<Case> cases = {
      {[](json& f, json&) { f.erase("architectures"); }, "/architectures"},
      {[](json& f, json&) { f["architectures"] = json::array(); }, "/architectures"},
      {[](json& f, json&) { f["architectures"] = {7}; }, "/architectures/0"},
      {[](json& f, json&) { f["architectures"] = {"LlamaForCausalLM"}; }, "/architectures/0", Code::unsupported},
      {[](json& f, json&) { f["num_hidden_layers"] = nullptr; }, "/num_hidden_layers"},
      {[](json& f, json&) { f["num_hidden_layers"] = 1e30; }, "/num_hidden_layers"},
      {[](json& f, json&) {
         f["mlp_only_layers"] = {0, "1"};
       },
       "/mlp_only_layers/1"},
      {[](json& f, json&) { f["num_experts"] = nullptr; }, "/num_experts"},
      {[](json& f, json&) { f["num_experts"] = "128"; }, "/num_experts"},
      {[](json& f, json&) { f["num_experts_per_tok"] = 0; }, "/num_experts_per_tok"},
      {[](json& f, json&) { f["num_experts_per_tok"] = 129; }, "/num_experts_per_tok"},
      {[](json& f, json&) { f["hidden_size"] = -1; }, "/hidden_size"},
      {[](json& f, json&) { f["moe_intermediate_size"] = nullptr; }, "/moe_intermediate_size"},
      {[](json& f, json&) { f["hidden_act"] = "tanh"; }, "/hidden_act"},
      {[](json& f, json&) { f["norm_topk_prob"] = 1; }, "/norm_topk_prob"},
      {[](json& f, json&) { f["torch_dtype"] = "float64"; }, "/torch_dtype"},
      {[](json& f, json&) { f["swiglu_limit"] = 0; }, "/swiglu_limit"},
      {[](json& f, json&) { f["quantization_config"] = 5; }, "/quantization_config"},
      {[](json& f, json&) { f["quantization_config"]["config_groups"]["group_0"]["weights"]["num_bits"] = 1; },
       "/quantization_config/config_groups/group_0/weights/num_bits", Code::unsupported},
      {[](json& f, json&) { f["quantization_config"]["config_groups"]["group_0"]["weights"]["group_size"] = 512; },
       "/quantization_config"},
      {[](json& f, json&) { f["quantization_config"]["quant_method"] = "quark"; }, "/quantization_config/quant_method",
       Code::unsupported},
      {[](json&, json& o) { o = 5; }, "options:"},
      {[](json&, json& o) { o["layer"] = 3; }, "options:/layer"},
      {[](json&, json& o) { o["layer_index"] = "3"; }, "options:/layer_index"},
      {[](json&, json& o) { o["layer_index"] = -1; }, "options:/layer_index"},
      {[](json&, json& o) { o["module"] = 3; }, "options:/module"},
      {[](json&, json& o) { o["module"] = std::string(513, 'a'); }, "options:/module"},
      {[](json&, json& o) { o["tp_size"] = 0; }, "options:/tp_size"},
      {[](json&, json& o) { o["tp_size"] = 5; }, "/moe_intermediate_size"},
      {[](json&, json& o) { o["tp_rank"] = 1; }, "options:/tp_rank"},
      {[](json&, json& o) {
         o = {{"ep_size", 2}, {"tp_size", 2}};
       },
       "options:/ep_size"},
      {[](json&, json& o) {
         o = {{"ep_size", 2}, {"ep_rank", 2}};
       },
       "options:/ep_rank"},
      {[](json&, json& o) { o["ep_rank"] = 1; }, "options:/ep_rank"},
      {[](json&, json& o) { o["ep_size"] = 129; }, "options:/ep_size"},
      {[](json&, json& o) { o["quantization_config"] = nullptr; }, "options:/quantization_config"},
      {[](json&, json& o) {
         o["quantization_config"] = {{"quant_method", "gptq"}};
       },
       "options:/quantization_config/bits"},
      {[](json&, json& o) { o["overrides"] = 1; }, "options:/overrides"},
      {[](json&, json& o) {
         o["overrides"] = {{"top_k", 300}};
       },
       "options:/overrides/top_k"},
      {[](json&, json& o) {
         o["overrides"] = {{"a/b", 1}};
       },
       "options:/overrides/a~1b"},
      {[](json&, json& o) { o["overrides"]["routing"]["topk_group"] = 3; }, "options:/overrides/routing/topk_group"},
      {[](json&, json& o) { o["overrides"]["quantization"]["scheme"] = "W9"; },
       "options:/overrides/quantization/scheme"},
      {[](json&, json& o) { o["overrides"]["name"] = 4; }, "options:/overrides/name"},
      {[](json&, json& o) {
         o["overrides"]["projection_names"] = {"a", "b"};
       },
       "options:/overrides/projection_names"},
  };
  for (const Case& c : cases) {
    json file = load_json(kQwen), options = json::object();
    c.spoil(file, options);
    SCOPED_TRACE(c.subject + " " + options.dump());
    expect_fault(create(file, options), c.subject, c.code);
  }
}

TEST(HfModels, AnyMemberMayHoldAnything) {
  const json odd = json::parse(R"([null, true, -1, 0, 7, 1e300, 1e18, "", "x", [], [7], ["x"], {}, {"a": {}}])");
  int failed = 0, passed = 0;
  for (const json& file : {load_json(kQwen), load_json(kMixtral), deepseek()})
    for (const auto& [member, value] : file.items())
      for (const json& other : odd) {
        json changed = file;
        changed[member] = other;
        const auto got = create(changed);
        if (got) {
          ++passed;
          continue;
        }
        ++failed;
        const std::string& subject = got.error().subject;  // another member when the two do not go together
        ASSERT_TRUE(subject.starts_with("/")) << member << ": " << got.error().message;
        EXPECT_TRUE(file.contains(subject.substr(1, subject.find('/', 1) - 1))) << subject << " for " << member;
        EXPECT_TRUE(got.error().code == Code::invalid_config || got.error().code == Code::unsupported);
      }
  EXPECT_GT(failed, 300);
  EXPECT_GT(passed, 300);
}

TEST(HfModels, TextsAreLimited) {
  const auto broken = config_from_hf("{", "");
  ASSERT_FALSE(broken);
  EXPECT_EQ(broken.error().subject, "");
  EXPECT_NE(broken.error().details.find("offset"), std::string::npos);
  const std::string qwen = load_json(kQwen).dump();
  expect_fault(config_from_hf("[]", ""), "");
  const auto options = config_from_hf(qwen, "{]");
  ASSERT_FALSE(options);
  EXPECT_EQ(options.error().subject, "options:");
  // 2 MiB are fine for a config.json; 17 MiB are not.
  json file = load_json(kQwen);
  file["padding"] = std::string(2U << 20, 'x');
  EXPECT_TRUE(create(file));
  file["padding"] = std::string(17U << 20, 'x');
  expect_fault(create(file), "");
}

}  // namespace
}  // namespace moe::test::hf_models_test
