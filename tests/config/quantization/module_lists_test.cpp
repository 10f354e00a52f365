// Lists of modules in quantization objects: transformers' rule for those of fp8 and mxfp4 files, and GPTQ's modules of
// a block. Expected: what transformers 5.24's should_convert_module says of the module of all experts.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "config/config.h"
#include "config/quantization/foreign.h"
#include "support/rooms.h"
#include "support/vectors.h"

namespace moe::test::module_lists_test {
namespace {

using nlohmann::json;

const std::vector<std::string> kProjections = {"gate_proj", "up_proj", "down_proj"};
constexpr int kExperts = 12;

enum class Answer { quantized, plain, refused };

Answer answer(const json& object, const std::string& module = "model.layers.1.mlp.experts") {
  const auto v = moe::json::parse(object.dump(), {.max_bytes = kMostForeignBytes});
  EXPECT_TRUE(v) << v.error().message;
  const auto got = resolve_hf_quantization(*v, module, kProjections, kExperts);
  if (!got) {
    EXPECT_EQ(got.error().code, Code::unsupported) << got.error().message;
    return Answer::refused;
  }
  return got->has_value() ? Answer::quantized : Answer::plain;
}

struct Case {
  std::vector<std::string> list;
  Answer want;
};

TEST(ModuleLists, OfFp8AndMxfp4Files) {
  using enum Answer;
  const std::string at = "model.layers.1.mlp.experts.";
  const Case cases[] = {
      // from the start to a dot or the end
      {{"model.layers.1"}, plain},
      {{"model.layers.1."}, plain},
      {{"model.layers.1.mlp"}, plain},
      {{"model.layers.1.mlp.experts"}, plain},
      {{"model"}, plain},
      {{"model.layers.10"}, quantized},
      {{"model.layers.10.mlp.experts"}, quantized},
      {{"model.layers.1.ml"}, quantized},
      {{"model.layers.1.mlp.expert"}, quantized},
      {{"model.layers.1.mlp.gate"}, quantized},
      {{"model.layers.1.mlp.shared_experts"}, quantized},
      {{"layers.1.mlp"}, quantized},
      {{"lm_head", "model.layers.1.input_layernorm", "model.layers.0.mlp"}, quantized},
      // as a regular expression with the same boundary
      {{"model.layers.*"}, plain},
      {{R"(model\.layers\.(0|1))"}, plain},
      {{R"(model\.layers\.\d+\.mlp)"}, plain},
      {{R"(model\.layers\.\d+\.mlp$)"}, quantized},
      {{R"(model\.layers\.\d+\.mlp\.experts$)"}, plain},
      {{R"(model\.layers\.(0|11))"}, quantized},
      {{R"(model\.layers\.1\.m)"}, quantized},
      {{R"(model\.layers\.[01]\.)"}, plain},
      {{".*mlp.gate"}, quantized},
      {{".*mlp.experts"}, plain},
      {{"model.layers.*.mlp.router", "model.layers.*.self_attn"}, quantized},
      // as the end of the name
      {{"experts"}, plain},
      {{"mlp.experts"}, plain},
      {{"xperts"}, plain},
      {{"gate"}, quantized},
      {{"mlp"}, quantized},
      {{"gate_proj", "up_proj", "down_proj"}, quantized},  // of dense layers: the experts are one module
      {{"gate", "e_score_correction_bias", "lm_head"}, quantized},
      // experts one by one, as files name them in which each is a module
      {{at + "3"}, refused},
      {{at + "1.up_proj"}, refused},
      {{"experts.3.up_proj"}, refused},
      {{R"(.*experts\.\d\.up_proj)"}, refused},
      {{R"(.*experts\.\d+\.\w+_proj)"}, plain},
      {{at + "12"}, quantized},  // there is none
      {{at + "gate_up_proj"}, plain},
      {{"language_model." + at.substr(0, at.size() - 1)}, plain},
  };
  for (const Case& c : cases) {
    const std::string told = json(c.list).dump();
    json fp8 = {{"quant_method", "fp8"}, {"activation_scheme", "dynamic"}, {"modules_to_not_convert", c.list}};
    EXPECT_EQ(answer(fp8), c.want) << told;
    fp8.erase("modules_to_not_convert");
    fp8["ignored_layers"] = c.list;
    EXPECT_EQ(answer(fp8), c.want) << told;
    EXPECT_EQ(answer({{"quant_method", "mxfp4"}, {"modules_to_not_convert", c.list}}), c.want) << told;
  }
  // AWQ's lists have parts of names.
  const json awq = {{"quant_method", "awq"},
                    {"bits", 4},
                    {"group_size", 128},
                    {"zero_point", true},
                    {"modules_to_not_convert", {"layers.1"}}};
  EXPECT_EQ(answer(awq, "model.layers.10.mlp.experts"), plain);
}

TEST(ModuleLists, WildcardsOfModelOpt) {
  using enum Answer;
  for (const auto& [pattern, want] :
       {std::pair("model.layers.1*", plain), std::pair("model.layers.1", quantized),
        std::pair("model.layers.[!0].mlp*", plain), std::pair("model.layers.[!1].mlp*", quantized),
        std::pair("model.layers.[!01].mlp*", quantized), std::pair("model.layers.[!0-2].mlp*", quantized),
        std::pair("model.layers.[!2-9].mlp*", plain),
        std::pair("model.layers.[^0].mlp*", quantized),  // the letters ^ and 0
        std::pair("model.layers.[^1].mlp*", plain), std::pair("model.layers.[1!].mlp*", plain),
        std::pair("model.layers.?.mlp*", plain), std::pair("model.layers.[0-2].mlp.experts", plain),
        std::pair("model.layers.[3-5].mlp.experts", quantized), std::pair("model.layers.[029].mlp.experts", quantized),
        std::pair("model.layers.[019].mlp.experts", plain), std::pair("model.layers.[-1].mlp.experts", plain),
        std::pair("model.layers.[0-].mlp.experts", quantized)})
    EXPECT_EQ(answer({{"quant_method", "modelopt"}, {"quant_algo", "FP8"}, {"ignore", {pattern}}}), want) << pattern;
}

// What has no end is looked for once.
TEST(ModuleLists, ManyOpenBrackets) {
  const std::string open(std::size_t{8} << 20, '[');
  // Half an hour otherwise.
  EXPECT_EQ(answer({{"quant_method", "modelopt"}, {"quant_algo", "FP8"}, {"ignore", {"*" + open}}}), Answer::refused);
}

TEST(ModuleLists, OfGptqsBlocks) {
  using enum Answer;
  json every = json::array();
  for (int e = 0; e < kExperts; ++e)
    for (const std::string& p : kProjections) every.push_back("mlp.experts." + std::to_string(e) + "." + p);
  struct Blocks {
    json list;
    Answer want;
  };
  const auto list = [](const char* text) { return json::parse(text); };
  for (const Blocks& c :
       {Blocks{nullptr, quantized}, Blocks{list("[]"), quantized}, Blocks{list("[[]]"), quantized},
        Blocks{list(R"([["self_attn.q_proj","self_attn.k_proj"],["self_attn.o_proj"]])"), plain},
        Blocks{list(R"(["self_attn.q_proj"])"), plain}, Blocks{json::array({every}), quantized},
        Blocks{every, quantized}, Blocks{list(R"([["mlp.experts"]])"), quantized},
        Blocks{list(R"([["experts"],["self_attn.o_proj"]])"), quantized}, Blocks{list(R"([["mlp"]])"), quantized},
        Blocks{list(R"([["gate_proj","up_proj"],["down_proj"]])"), quantized},
        Blocks{list(R"([["mlp.gate_proj","mlp.up_proj"],["mlp.down_proj"]])"), plain},
        Blocks{list(R"([["mlp.gate"]])"), plain}, Blocks{list(R"([["mlp.shared_experts"]])"), plain},
        Blocks{list(R"([["model.layers.1.mlp.experts"]])"), quantized}, Blocks{list(R"([["gate_proj"]])"), refused},
        Blocks{list(R"([["mlp.experts.1.gate_proj","mlp.experts.1.up_proj"]])"), refused},
        Blocks{list(R"([["mlp.experts.3"]])"), refused}}) {
    const json object = {{"quant_method", "gptq"}, {"bits", 4},   {"group_size", 128},
                         {"desc_act", false},      {"sym", true}, {"modules_in_block_to_quantize", c.list}};
    EXPECT_EQ(answer(object), c.want) << c.list;
  }
  const auto wrong = moe::json::parse(
      R"({"quant_method":"gptq","bits":4,"group_size":128,"desc_act":false,"sym":true,"modules_in_block_to_quantize":[["a"],[1]]})");
  const auto got = resolve_hf_quantization(*wrong, "model.layers.1.mlp.experts", kProjections, kExperts);
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().subject, "/hf_quantization_config/modules_in_block_to_quantize/1/0");
}

}  // namespace
}  // namespace moe::test::module_lists_test
