// Quantization objects that are valid and not read: whose they are, what reads the tensors, and that this is no fault
// of the file (UNSUPPORTED). Messages about the file name its own keys.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "config/config.h"
#include "hf/hf.h"
#include "support/rooms.h"
#include "support/vectors.h"

namespace moe::test::hf_other_tools_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json model(json quantization = nullptr) {
  json m = {{"architectures", {"Qwen3MoeForCausalLM"}},
            {"model_type", "qwen3_moe"},
            {"num_hidden_layers", 2},
            {"hidden_size", 256},
            {"moe_intermediate_size", 640},
            {"num_experts", 4},
            {"num_experts_per_tok", 2},
            {"norm_topk_prob", true},
            {"hidden_act", "silu"}};
  if (!quantization.is_null()) m["quantization_config"] = std::move(quantization);
  return m;
}

struct Case {
  json object;
  std::string subject;  // behind /quantization_config
  std::vector<const char*> words;
  Code code = Code::unsupported;
};

void expect_refused(const Case& c) {
  const auto got = hf::config_from_hf(model(c.object).dump(), "");
  ASSERT_FALSE(got) << c.object;
  EXPECT_EQ(got.error().code, c.code) << got.error().message;
  EXPECT_EQ(got.error().subject, "/quantization_config" + c.subject);
  for (const char* word : c.words) EXPECT_THAT(got.error().message, HasSubstr(word)) << c.object;
}

TEST(HfOtherTools, WhoseObjectItIsAndWhatHelps) {
  const char* const plain = R"(overrides {"quantization": null})";
  const auto auto_round = [](const char* method, const char* packing, int bits = 4) {
    return json{
        {"quant_method", method}, {"bits", bits}, {"group_size", 128}, {"sym", true}, {"packing_format", packing}};
  };
  for (const Case& c : {
           Case{{{"group_size", 64}, {"bits", 4}, {"mode", "affine"}}, "/quant_method", {"MLX", plain}},
           Case{
               {{"group_size", 32}, {"bits", 8}, {"model.layers.0.mlp.gate", {{"bits", 8}}}}, "/quant_method", {"MLX"}},
           Case{{{"quant_method", "mlx"}}, "/quant_method", {"MLX"}},
           Case{auto_round("auto-round", "auto_round:marlin"), "/packing_format", {"AutoRound", "marlin", "auto_gptq"}},
           Case{auto_round("intel/auto-round", "auto_round:auto_gptq", 3), "/bits", {"AutoRound", "3-bit int"}},
           Case{{{"quant_method", "auto-round"}, {"packing_format", 4}}, "/quant_method", {"AutoRound", "bits", plain}},
           Case{{{"quant_method", "auto_round"}, {"bits", 4}}, "/quant_method", {"AutoRound", "group_size", plain}},
           Case{{{"quant_method", "bitsandbytes"}, {"load_in_4bit", true}}, "/quant_method", {"bitsandbytes", plain}},
           Case{{{"quant_method", "torchao"}}, "/quant_method", {"torchao", plain}},
           Case{{{"quant_method", "hqq"}}, "/quant_method", {"HQQ", plain}},
           Case{{{"quant_method", "quark"}, {"export", json::object()}}, "/quant_method", {"Quark", plain}},
           Case{{{"bits", 4}, {"group_size", 128}, {"desc_act", false}, {"sym", true}},
                "/quant_method",
                {"missing", "gptq"},
                Code::invalid_config},
           Case{{{"w_bit", 4}, {"q_group_size", 128}, {"zero_point", true}},
                "/quant_method",
                {"missing", "awq"},
                Code::invalid_config},
       })
    expect_refused(c);
  const auto unknown = hf::config_from_hf(model({{"quant_method", "of nobody"}}).dump(), "");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, Code::invalid_config);
  EXPECT_THAT(unknown.error().message, HasSubstr("expected one of compressed-tensors, gptq"));
  EXPECT_THAT(unknown.error().message, HasSubstr("quark"));
  const auto own = config::parse_config(
      R"({"num_experts":4,"top_k":2,"hidden_dim":64,"intermediate_size":64,"hf_quantization_config":{"quant_method":"x"}})");
  ASSERT_FALSE(own);
  EXPECT_THAT(own.error().message, HasSubstr("quark"));
}

TEST(HfOtherTools, ValidButNotRead) {
  const json gptq = {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 128}, {"desc_act", false}, {"sym", true}};
  const auto with = [](json d, const char* key, json value) {
    d[key] = std::move(value);
    return d;
  };
  const auto compressed = [](int bits, const char* format) {
    return json{
        {"quant_method", "compressed-tensors"},
        {"format", format},
        {"config_groups", {{"g", {{"targets", {"Linear"}}, {"weights", {{"num_bits", bits}, {"group_size", 128}}}}}}}};
  };
  const json awq = {{"quant_method", "awq"}, {"bits", 8}, {"group_size", 128}, {"zero_point", true}};
  const std::string bits_of_group = "/config_groups/g/weights/num_bits";
  for (const int bits : {2, 3, 5, 6, 7}) {
    expect_refused({with(gptq, "bits", bits), "/bits", {"expected 4 or 8"}});
    // Widths that are packed, in containers of other numbers.
    expect_refused({compressed(bits, "mxfp8-quantized"), bits_of_group, {"expected 4 or 8"}});
  }
  expect_refused({compressed(1, "pack-quantized"), bits_of_group, {"expected 4 or 8"}});
  for (const char* format : {"marlin-24", "sparse-24-bitmask"})
    expect_refused({compressed(4, format), "/format", {format}});
  expect_refused({compressed(0, "pack-quantized"), bits_of_group, {"num_bits"}, Code::invalid_config});
  expect_refused({awq, "/bits", {"4 bits"}});
  expect_refused({with(gptq, "checkpoint_format", "marlin"), "/checkpoint_format", {"gptq or gptq_v2"}});
  expect_refused({with(gptq, "bits", "4"), "/bits", {}, Code::invalid_config});
  // Our own document keeps its code.
  const auto own = config::parse_config(
      R"({"num_experts":4,"top_k":2,"hidden_dim":64,"intermediate_size":64,"quantization":{"weights":{"num_bits":3}}})");
  ASSERT_FALSE(own);
  EXPECT_EQ(own.error().code, Code::invalid_config);
}

TEST(HfOtherTools, MixedPrecisionOfModelOpt) {
  const json layers = {{"model.language_model.layers.0.mlp.experts", {{"quant_algo", "NVFP4"}, {"group_size", 16}}},
                       {"model.language_model.layers.10.mlp.experts", {{"quant_algo", "MXFP8"}}}};
  for (const bool nested : {false, true}) {
    const json inner = {{"quant_algo", "MIXED_PRECISION"}, {"quantized_layers", layers}};
    json object = nested ? json{{"producer", {{"name", "modelopt"}}}, {"quantization", inner}} : inner;
    if (!nested) object["quant_method"] = "modelopt";
    const std::map<int, std::string> formats = {{0, "nvfp4-pack-quantized"}, {1, "none"}, {10, "mxfp8-quantized"}};
    for (const auto& [layer, format] : formats) {
      json m = model(object);
      m["num_hidden_layers"] = 11;
      const auto got = hf::config_from_hf(m.dump(), R"({"layer_index": )" + std::to_string(layer) + "}");
      ASSERT_TRUE(got) << got.error().message;
      EXPECT_EQ(at(kFormatNames, got->quantization.format), format) << layer;
    }
  }
}

// One scheme for the experts of a layer, also where an entry is for a projection.
TEST(HfOtherTools, MixedPrecisionOfSingleProjections) {
  json layers;
  for (int e = 0; e < 4; ++e)
    for (const char* projection : {"gate_proj", "up_proj", "down_proj"})
      layers["model.layers.0.mlp.experts." + std::to_string(e) + "." + projection] = {{"quant_algo", "FP8"}};
  json object = {{"quant_method", "modelopt"}, {"quant_algo", "MIXED_PRECISION"}, {"quantized_layers", layers}};
  const auto same = hf::config_from_hf(model(object).dump(), "");
  ASSERT_TRUE(same) << same.error().message;
  EXPECT_EQ(same->quantization.format, Format::float_quantized);
  object["quantized_layers"]["model.layers.0.mlp.experts.2.up_proj"] = {{"quant_algo", "NVFP4"}};
  expect_refused({object,
                  "/quantized_layers/model.layers.0.mlp.experts.2.up_proj",
                  {"treats model.layers.0.mlp.experts.2.up_proj unlike", "one scheme"}});
  object.erase("quantized_layers");
  expect_refused({object, "/quant_algo", {"ModelOpt", "MIXED_PRECISION without quantized_layers", "option"}});
}

// The cut is the caller's doing: the message says which, and what cuts no expert.
TEST(HfOtherTools, TensorParallelismThatCutsAGroup) {
  const auto group = [](int bits, int size) {
    return json{
        {"quant_method", "compressed-tensors"},
        {"config_groups", {{"g", {{"targets", {"Linear"}}, {"weights", {{"num_bits", bits}, {"group_size", size}}}}}}}};
  };
  struct Cut {
    json object;
    int tp;
    const char* unit;
  };
  const json blocks = {{"quant_method", "fp8"}, {"activation_scheme", "dynamic"}, {"weight_block_size", {128, 128}}};
  const json gptq = {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 128}, {"desc_act", false}, {"sym", true}};
  const json channel = {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", -1}, {"desc_act", false}, {"sym", true}};
  const json awq = {{"quant_method", "awq"}, {"bits", 4}, {"group_size", 128}, {"zero_point", true}};
  const json mxfp4 = {{"quant_method", "mxfp4"}};
  const json nvfp4 = {{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}};
  const json mxfp8 = {{"quant_method", "modelopt"}, {"quant_algo", "MXFP8"}};
  for (const Cut& c :
       {Cut{blocks, 2, "128"}, Cut{group(4, 128), 2, "128"}, Cut{group(8, 64), 4, "64"}, Cut{gptq, 2, "128"},
        Cut{awq, 2, "128"}, Cut{mxfp4, 8, "32"}, Cut{mxfp8, 8, "32"}, Cut{nvfp4, 16, "16"}, Cut{channel, 160, "8"}}) {
    const auto whole = hf::config_from_hf(model(c.object).dump(), R"({"ep_size": 2})");
    EXPECT_TRUE(whole) << c.object << whole.error().message;
    const auto cut = hf::config_from_hf(model(c.object).dump(), json{{"tp_size", c.tp}}.dump());
    ASSERT_FALSE(cut) << c.object;
    for (const std::string& word : {"tp_size " + std::to_string(c.tp), std::string("640"), std::string("ep_size"),
                                    std::string("multiple of the "), std::string(c.unit)})
      EXPECT_THAT(cut.error().message, HasSubstr(word)) << c.object;
    EXPECT_THAT(cut.error().message, ::testing::Not(HasSubstr("either")));
  }
}

TEST(HfOtherTools, ADenseModelHasNoExperts) {
  json dense = model();
  for (const char* key : {"moe_intermediate_size", "num_experts", "num_experts_per_tok"}) dense.erase(key);
  dense["architectures"] = {"Qwen3ForCausalLM"};
  const auto got = hf::config_from_hf(dense.dump(), "");
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, Code::unsupported);
  EXPECT_THAT(got.error().message, HasSubstr("a dense model has no experts"));
  json none = model();
  none["num_experts"] = 0;
  const auto zero = hf::config_from_hf(none.dump(), "");
  ASSERT_FALSE(zero);
  EXPECT_EQ(zero.error().subject, "/num_experts");
  EXPECT_THAT(zero.error().message, HasSubstr("has no experts"));
  json sparse = model();
  sparse["architectures"] = {"OtherForCausalLM"};
  const auto other = hf::config_from_hf(sparse.dump(), "");
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().message, ::testing::Not(HasSubstr("dense")));
}

TEST(HfOtherTools, NearestMemberOfATypingError) {
  struct Typo {
    const char *options, *subject, *meant;
  };
  for (const Typo& t :
       {Typo{R"({"layer_idx": 1})", "options:/layer_idx", "did you mean layer_index?"},
        Typo{R"({"tpsize": 2})", "options:/tpsize", "did you mean tp_size?"},
        Typo{R"({"quantisation_config": {}})", "options:/quantisation_config", "did you mean quantization_config?"},
        Typo{R"({"overrides": {"hiden_dim": 5}})", "options:/overrides/hiden_dim", "did you mean hidden_dim?"},
        Typo{R"({"overrides": {"routing": {"scoring_fun": "softmax"}}})", "options:/overrides/routing/scoring_fun",
             "did you mean scoring_func?"},
        Typo{R"({"architecture": {"like": "Qwen3MoeForCausalLM", "projection": []}})",
             "options:/architecture/projection", "did you mean projections?"}}) {
    const auto got = hf::config_from_hf(model().dump(), t.options);
    ASSERT_FALSE(got) << t.options;
    EXPECT_EQ(got.error().subject, t.subject);
    EXPECT_THAT(got.error().message, HasSubstr(t.meant));
    EXPECT_THAT(got.error().message, ::testing::Not(HasSubstr("known here: ")));
  }
  const auto far = hf::config_from_hf(model().dump(), R"({"zzz": 1})");
  ASSERT_FALSE(far);
  EXPECT_THAT(far.error().message, ::testing::Not(HasSubstr("did you mean")));
  EXPECT_THAT(far.error().message, HasSubstr("known here: "));
}

}  // namespace
}  // namespace moe::test::hf_other_tools_test
