// Quantization objects of the tools that write checkpoints: what each makes of a layer's experts, which of their words
// are refused and where, and which of several rules counts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "config/config.h"
#include "hf/hf.h"
#include "support/rooms.h"
#include "support/vectors.h"

namespace moe::test::hf_tool_objects_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::string kExperts = "model.layers.0.mlp.experts";

Result<Config> read(const json& object) {
  const json model = {{"architectures", {"Qwen3MoeForCausalLM"}},
                      {"model_type", "qwen3_moe"},
                      {"num_hidden_layers", 2},
                      {"hidden_size", 256},
                      {"moe_intermediate_size", 256},
                      {"num_experts", 4},
                      {"num_experts_per_tok", 2},
                      {"norm_topk_prob", true},
                      {"hidden_act", "silu"},
                      {"quantization_config", object}};
  return hf::config_from_hf(model.dump(), "");
}

json with(json object, const json& more) {
  object.merge_patch(more);
  return object;
}

// What an object makes of the experts, in few words: the format, with the bits and the group of integers.
std::string kind_of(const json& object) {
  const auto got = read(object);
  if (!got) return got.error().message;
  const Quantization& q = got->quantization;
  std::string text(at(kFormatNames, q.format));
  if (!q.weights) return text;
  if (q.weights->type == NumType::integer) text += " int" + std::to_string(q.weights->num_bits);
  if (q.weights->type == NumType::integer && q.weights->group_size)
    text += " g" + std::to_string(*q.weights->group_size);
  if (q.weights->type == NumType::integer && !q.weights->symmetric) text += " asymmetric";
  if (q.input_activations) text += " with activations";
  return text;
}

void expect_refused(const json& object, const std::string& subject, const std::vector<const char*>& words,
                    Code code = Code::unsupported) {
  const auto got = read(object);
  ASSERT_FALSE(got) << object;
  EXPECT_EQ(got.error().code, code) << got.error().message;
  EXPECT_EQ(got.error().subject, "/quantization_config" + subject);
  for (const char* word : words) EXPECT_THAT(got.error().message, HasSubstr(word)) << object;
}

// ---- AutoRound ----------------------------------------------------------------------------------

json auto_round(const char* packing = "auto_round:auto_gptq", const json& more = json::object()) {
  return with({{"quant_method", "auto-round"},
               {"packing_format", packing},
               {"bits", 4},
               {"group_size", 128},
               {"sym", true},
               {"data_type", "int"}},
              more);
}
json auto_round_floats(const char* packing, int bits, const char* type, json group) {
  return auto_round(packing, {{"bits", bits}, {"data_type", type}, {"group_size", std::move(group)}});
}

TEST(ToolObjects, AutoRoundContainers) {
  const std::vector<std::pair<json, std::string>> cases = {
      {auto_round(), "gptq int4 g128"},
      {auto_round("auto_round:auto_awq", {{"sym", false}}), "awq int4 g128 asymmetric"},
      {auto_round("auto_round", {{"bits", 8}}), "gptq int8 g128"},
      {auto_round("auto_round:llm_compressor", {{"group_size", -1}}), "pack-quantized int4"},
      {auto_round_floats("auto_round:llm_compressor", 4, "mx_fp", 32), "mxfp4-pack-quantized"},
      {auto_round_floats("auto_round:llm_compressor", 8, "mx_fp_rceil", 32), "mxfp8-quantized"},
      {auto_round_floats("auto_round:llm_compressor", 4, "mx_fp4e2m1", 32), "mxfp4-pack-quantized"},
      {auto_round_floats("auto_round:llm_compressor", 8, "mx_fp8e4m3_rceil", 32), "mxfp8-quantized"},
      {auto_round_floats("auto_round:llm_compressor", 4, "nv_fp4_with_static_gs", 16), "nvfp4-pack-quantized"},
      {auto_round_floats("auto_round:fp8_static", 8, "fp", -1), "float-quantized with activations"},
      {auto_round_floats("auto_round:fp8", 8, "fp", {128, 128}), "float-quantized with activations"},
      {auto_round_floats("auto_round", 8, "fp", 0), "float-quantized"},
  };
  for (const auto& [object, kind] : cases) EXPECT_EQ(kind_of(object), kind) << object;
}

// Older files have `backend`, which names a kernel, or nothing.
TEST(ToolObjects, AutoRoundWithoutPackingFormat) {
  const auto zeros = [](const json& more) -> std::string {
    constexpr std::array kWords = {"as_stored", "plus_one", "twos_complement"};
    json object = auto_round("", with({{"sym", false}}, more));
    object.erase("packing_format");
    const auto got = read(object);
    return got ? at(kWords, *got->quantization.zero_point_convention) : got.error().message;
  };
  for (const char* word : {"auto_round:gptq:exllamav2", "auto_gptq:exllamav2", "auto_round:gptq", "auto", "gptq"})
    EXPECT_EQ(zeros({{"backend", word}}), "plus_one") << word;
  EXPECT_EQ(zeros(json::object()), "plus_one");
  for (const char* word : {"auto_round:exllamav2", "auto_round:triton", "auto_round"})
    EXPECT_EQ(zeros({{"backend", word}}), "as_stored") << word;
  json awq = auto_round("", {{"sym", false}, {"backend", "auto_round:awq:gemm"}});
  awq.erase("packing_format");
  EXPECT_EQ(kind_of(awq), "awq int4 g128 asymmetric");
  awq["backend"] = "auto_round:marlin";
  expect_refused(awq, "/backend", {"auto_round:marlin"});
}

// Words that begin like one that is read are others.
TEST(ToolObjects, AutoRoundTypesAreWholeWords) {
  for (const char* type : {"int_asym_float_zp", "int_asym_dq", "integer", ""})
    expect_refused(auto_round("auto_round:auto_gptq", {{"data_type", type}}), type[0] == 0 ? "/bits" : "/data_type",
                   {"AutoRound", type});
  for (const char* type : {"fp8_e5m2", "fp8_e5m2_sym"})
    expect_refused(auto_round_floats("auto_round", 8, type, 0), "/data_type", {type});
  expect_refused(auto_round_floats("auto_round:llm_compressor", 4, "mx_fp8", 32), "/bits", {"4-bit mx_fp8"});
  for (const char* type : {"mx_fp8e5m2", "mx_fp6", "mx_fp6e3m2"})
    expect_refused(auto_round_floats("auto_round:llm_compressor", 8, type, 32), "/data_type", {type});
  expect_refused(auto_round_floats("auto_round:llm_compressor", 4, "mx_int", 32), "/data_type", {"MXINT4"});
  expect_refused(auto_round_floats("auto_round:llm_compressor", 4, "nvfp4_v2", 16), "/data_type", {"NVFP4_E5M3"});
  expect_refused(auto_round_floats("auto_round:llm_compressor", 4, "mx_fp", 64), "/group_size", {"64", "32 columns"},
                 Code::invalid_config);
  expect_refused(auto_round_floats("auto_round:llm_compressor", 4, "nv_fp", 32), "/group_size", {"32", "16 columns"},
                 Code::invalid_config);
}

TEST(ToolObjects, RotatedWeightsNeedRotatedInputs) {
  expect_refused(auto_round("auto_round:auto_gptq", {{"rotation_config", {{"type", "hadamard"}}}}), "/rotation_config",
                 {"rotated"});
  expect_refused(auto_round("auto_round:auto_gptq", {{"spinquant_config", {{"r1", true}}}}), "/spinquant_config",
                 {"rotated"});
}

TEST(ToolObjects, AutoRoundRules) {
  const auto rule = [](const std::string& key, const json& members) {
    return auto_round("auto_round:auto_gptq", {{"extra_config", {{key, members}}}});
  };
  const json plain = {{"bits", 16}, {"data_type", "float"}};
  EXPECT_EQ(kind_of(rule(kExperts, plain)), "none");
  EXPECT_EQ(kind_of(rule(".*mlp\\.experts.*", {{"bits", 8}})), "gptq int8 g128");
  EXPECT_EQ(kind_of(rule("experts\\..*", plain)), "none");  // found anywhere in a name
  // A bar parts alternatives, each of which is found anywhere.
  EXPECT_EQ(kind_of(rule("^lm_head|experts", plain)), "none");
  EXPECT_EQ(kind_of(rule(".*lm_head|mlp\\.experts", plain)), "none");
  // The router's pattern and those of other layers are not about experts.
  EXPECT_EQ(kind_of(rule(".*model\\.layers\\.0\\.mlp\\.gate.*", plain)), "gptq int4 g128");
  EXPECT_EQ(kind_of(rule("^mlp", plain)), "gptq int4 g128");
  expect_refused(rule(kExperts + ".1.up_proj", {{"bits", 8}}), "/extra_config/" + kExperts + ".1.up_proj",
                 {"treats " /* .. */, "one scheme"});
}

TEST(ToolObjects, AutoRoundSingleNamesWinOverTheirModule) {
  json rules;
  rules[kExperts] = {{"bits", 8}};
  for (int e = 0; e < 4; ++e) rules[kExperts + "." + std::to_string(e)] = {{"bits", 16}};
  EXPECT_EQ(kind_of(auto_round("auto_round:auto_gptq", {{"extra_config", rules}})), "none");
  rules.erase(kExperts + ".2");
  expect_refused(auto_round("auto_round:auto_gptq", {{"extra_config", rules}}), "/extra_config/" + kExperts,
                 {"one scheme"});
}

TEST(ToolObjects, AutoRoundBlocks) {
  for (const json& blocks : {json("model.layers"), json("model.visual, model.layers"), json({"model.layers.0"}),
                             json::array({json::array({"model.layers.0", "model.layers.1"})})})
    EXPECT_EQ(kind_of(auto_round("auto_round:auto_gptq", {{"block_name_to_quantize", blocks}})), "gptq int4 g128");
  for (const json& blocks : {json("model.layer"), json({"model.layers.1", "model.layers.00"})})
    EXPECT_EQ(kind_of(auto_round("auto_round:auto_gptq", {{"block_name_to_quantize", blocks}})), "none");
}

// ---- Quark --------------------------------------------------------------------------------------

json spec(const char* dtype, const char* scheme, const json& more = json::object()) {
  return with({{"dtype", dtype}, {"qscheme", scheme}}, more);
}
json quark(json weight, const json& more = json::object()) {
  return with({{"quant_method", "quark"}, {"global_quant_config", {{"weight", std::move(weight)}}}}, more);
}
json fp4_of_16(const json& second) {
  return json::array({spec("fp4", "per_group", {{"group_size", 16}, {"ch_axis", -1}}), second});
}

TEST(ToolObjects, QuarkKinds) {
  const json scales = spec("fp8_e4m3", "per_tensor", {{"is_scale_quant", true}});
  const std::vector<std::pair<json, std::string>> cases = {
      {spec("fp4", "per_group", {{"group_size", 32}, {"scale_format", "e8m0"}}), "mxfp4-pack-quantized"},
      {fp4_of_16(scales), "nvfp4-pack-quantized"},
      {spec("fp8_e4m3", "per_tensor"), "float-quantized"},
      {spec("fp8_e4m3", "per_channel", {{"ch_axis", 0}}), "float-quantized"},
      {spec("int4", "per_group", {{"group_size", 32}, {"ch_axis", -1}, {"symmetric", true}}), "quark-reorder int4 g32"},
      {spec("uint4", "per_group", {{"group_size", 32}, {"ch_axis", 1}, {"symmetric", false}}),
       "quark-reorder int4 g32 asymmetric"},
      {spec("int4", "per_channel", {{"ch_axis", 0}}), "quark-reorder int4"},
      {spec("int8", "per_tensor"), "quark-int8 int8"},
      {spec("int8", "per_channel", {{"ch_axis", 0}}), "int-quantized int8"},
  };
  for (const auto& [weight, kind] : cases) EXPECT_EQ(kind_of(quark(weight)), kind) << weight;
  EXPECT_EQ(kind_of(quark(spec("int4", "per_channel"), {{"export", {{"pack_method", "order"}}}})), "quark-order int4");
}

TEST(ToolObjects, QuarkSpecificationsThatAreNotRead) {
  const std::string weight = "/global_quant_config/weight";
  expect_refused(quark(spec("int4", "per_channel", {{"ch_axis", 1}})), weight + "/ch_axis",
                 {"per_channel", "read is 0"});
  expect_refused(quark(spec("int4", "per_group", {{"group_size", 32}, {"ch_axis", 0}})), weight + "/ch_axis",
                 {"per_group", "-1 or 1"});
  expect_refused(quark(json::array()), weight, {"[]"}, Code::invalid_config);
  expect_refused(quark(fp4_of_16(spec("fp8_e4m3", "per_channel", {{"is_scale_quant", true}}))), weight, {"fp8_e4m3"});
  expect_refused(quark(fp4_of_16(spec("fp8_e4m3", "per_tensor", {{"is_scale_quant", false}}))), weight, {"fp8_e4m3"});
  expect_refused(quark(spec("fp6_e3m2", "per_group", {{"group_size", 32}, {"scale_format", "e8m0"}})), weight,
                 {"fp6_e3m2"});
  expect_refused(quark(json::array({spec("fp8_e4m3", "per_tensor"), spec("int4", "per_channel")})), weight,
                 {"fp8_e4m3 per_tensor of int4 per_channel"});
  expect_refused(quark(spec("fp8_e4m3", "per_tensor"), {{"export", {{"weight_format", "fake_quantized"}}}}),
                 "/export/weight_format", {"fake_quantized", "overrides"});
}

TEST(ToolObjects, QuarkAlgorithms) {
  const json weight = spec("fp8_e4m3", "per_tensor");
  EXPECT_EQ(kind_of(quark(weight, {{"algo_config", json::array({{{"name", "gptq"}}, {{"name", "smooth"}}})}})),
            "float-quantized");
  EXPECT_EQ(kind_of(quark(weight, {{"algo_config", nullptr}})), "float-quantized");
  expect_refused(quark(weight, {{"algo_config", json::array({{{"name", "awq"}}, {{"name", "rotation"}}})}}),
                 "/algo_config/1", {"rotate"});
  expect_refused(quark(weight, {{"algo_config", {{"name", "QuaRot"}}}}), "/algo_config", {"rotate"});
  expect_refused(quark(weight, {{"algo_config", json::array({7})}}), "/algo_config/0", {"rotate"});
}

// Patterns are of whole names: a parent does not stand for its children.
TEST(ToolObjects, QuarkPatterns) {
  const json weight = spec("fp8_e4m3", "per_tensor");
  const auto excluding = [&](const json& names) { return kind_of(quark(weight, {{"exclude", names}})); };
  EXPECT_EQ(excluding({"lm_head", "model.layers.0.mlp.gate"}), "float-quantized");
  EXPECT_EQ(excluding({kExperts}), "float-quantized");
  EXPECT_EQ(excluding({"model.layers.*.mlp"}), "float-quantized");
  EXPECT_EQ(excluding({kExperts + ".*"}), "none");
  EXPECT_EQ(excluding({"*experts*"}), "none");
  EXPECT_EQ(excluding({"model.layers.1.*"}), "float-quantized");
  expect_refused(quark(weight, {{"exclude", {kExperts + ".0.*"}}}), "/exclude/0", {"one scheme"});
  const json other = {{"weight", spec("int8", "per_channel")}};
  EXPECT_EQ(kind_of(quark(weight, {{"layer_quant_config", {{"*.experts.*", other}}}})), "int-quantized int8");
  EXPECT_EQ(kind_of(quark(weight, {{"layer_quant_config", {{kExperts, other}}}})), "float-quantized");
  json names = {{"*.experts.*", {{"weight", spec("int4", "per_channel")}}}};  // names win over patterns
  for (int e = 0; e < 4; ++e)
    for (const char* p : {"gate_proj", "up_proj", "down_proj"})
      names[kExperts + "." + std::to_string(e) + "." + p] = other;
  EXPECT_EQ(kind_of(quark(weight, {{"layer_quant_config", names}})), "int-quantized int8");
}

// ---- ModelOpt, torchao, bitsandbytes ------------------------------------------------------------

TEST(ToolObjects, ModelOptEntries) {
  const auto mixed = [](const json& layers) {
    return json{{"quant_method", "modelopt"}, {"quant_algo", "MIXED_PRECISION"}, {"quantized_layers", layers}};
  };
  const json fp8 = {{"quant_algo", "FP8"}}, int8 = {{"quant_algo", "W8A16"}};
  json singles = {{kExperts, fp8}};  // sorted before its parts
  for (int e = 0; e < 4; ++e) singles[kExperts + "." + std::to_string(e)] = int8;
  EXPECT_EQ(kind_of(mixed(singles)), "int-quantized int8");
  EXPECT_EQ(kind_of(mixed({{"model.layers.0.mlp.experts_of_others", fp8}})), "none");
  for (const std::string& key : {kExperts + ".gate_up_proj", kExperts + ".4.up_proj", kExperts + ".0.up_proj.x"})
    expect_refused(mixed({{key, fp8}}), "/quantized_layers/" + key, {"part of the experts", kExperts.c_str()});
  for (const std::string& key :
       {kExperts + "*", std::string("*.experts"), std::string("model.layers.?.mlp.experts.0.*")})
    expect_refused(mixed({{key, fp8}}), "/quantized_layers/" + key, {"pattern"});
  EXPECT_EQ(kind_of(mixed({{"*self_attn*", fp8}, {kExperts, int8}})), "int-quantized int8");
}

TEST(ToolObjects, TorchaoPatternsAreOfModulesOrParameters) {
  const auto by_name = [](const json& rules) {
    return kind_of({{"quant_method", "torchao"},
                    {"quant_type", {{"default", {{"_type", "FqnToConfig"}, {"_data", {{"fqn_to_config", rules}}}}}}}});
  };
  const json int8 = {{"_type", "Int8WeightOnlyConfig"}};
  for (const char* pattern : {"re:.*experts.*_proj", "re:.*experts.*_proj\\.weight", "re:.*\\.weight"})
    EXPECT_EQ(by_name({{pattern, int8}, {"_default", nullptr}}), "int-quantized int8") << pattern;
  for (const char* pattern : {"re:.*experts", "re:experts.*", "re:.*\\.bias"})
    EXPECT_EQ(by_name({{pattern, int8}, {"_default", nullptr}}), "none") << pattern;
}

TEST(ToolObjects, TorchaoGranularity) {
  const auto of = [](const char* type, json granularity, json group = nullptr) {
    return json{{"quant_method", "torchao"},
                {"quant_type",
                 {{"default",
                   {{"_type", type}, {"_data", {{"granularity", std::move(granularity)}, {"group_size", group}}}}}}}};
  };
  const auto named = [](const char* type, json data) { return json{{"_type", type}, {"_data", std::move(data)}}; };
  const json row = named("PerRow", {{"dim", -1}}), groups = named("PerGroup", {{"group_size", 32}});
  const char* const int8 = "Int8WeightOnlyConfig";
  const char* const fp8 = "Float8DynamicActivationFloat8WeightConfig";
  const std::string at = "/quant_type/default/_data";
  EXPECT_EQ(kind_of(of(int8, row)), "int-quantized int8");
  EXPECT_EQ(kind_of(of(int8, named("PerAxis", {{"axis", 0}}))), "int-quantized int8");
  EXPECT_EQ(kind_of(of(int8, groups)), "int-quantized int8 g32");
  EXPECT_EQ(kind_of(of(int8, nullptr, 64)), "int-quantized int8 g64");
  EXPECT_EQ(kind_of(of(fp8, {row, row})), "float-quantized");
  expect_refused(of(int8, named("PerAxis", {{"axis", 1}})), at + "/granularity", {"PerRow", "PerGroup"});
  expect_refused(of(int8, named("PerTensor", json::object())), at + "/granularity", {"PerRow"});
  expect_refused(of(int8, named("PerGroup", {{"group_size", 0}})), at + "/granularity", {"PerGroup"});
  expect_refused(of(int8, groups, 64), at + "/group_size", {"64", "32"}, Code::invalid_config);
  expect_refused(of(fp8, groups), at + "/granularity", {"PerRow"});
  expect_refused(of(fp8, {named("PerTensor", json::object()), row}), at + "/granularity", {"PerRow"});
}

TEST(ToolObjects, Bitsandbytes) {
  EXPECT_EQ(kind_of({{"quant_method", "bitsandbytes"}, {"load_in_8bit", true}, {"load_in_4bit", false}}),
            "bitsandbytes-int8 int8");
  expect_refused({{"quant_method", "bitsandbytes"}, {"load_in_4bit", true}, {"bnb_4bit_quant_type", "nf4"}},
                 "/quant_method", {"nf4", "4-bit", "load_in_8bit"});
}

}  // namespace
}  // namespace moe::test::hf_tool_objects_test
