// Rules of checkpoints that treat some experts or projections of a layer unlike the others: refused with the rule and
// such a name, never read as the layer's first expert. All experts under one rule, named one by one: read by it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "config/config.h"
#include "hf/hf.h"
#include "support/rooms.h"
#include "support/vectors.h"

namespace moe::test::expert_rules_test {
namespace {

using ::testing::HasSubstr;

const std::string kModule = "model.layers.3.mlp.experts";
const std::vector<std::string> kProjections = {"gate_proj", "up_proj", "down_proj"};
constexpr int kExperts = 12;

Result<std::optional<HfQuantization>> resolve(const nlohmann::json& object, int experts = kExperts) {
  const auto v = json::parse(object.dump());
  EXPECT_TRUE(v) << object;
  return resolve_hf_quantization(*v, kModule, kProjections, experts);
}

std::string name(int expert, const std::string& projection) {
  return kModule + "." + std::to_string(expert) + "." + projection;
}

// Every projection of every expert.
nlohmann::json all_names() {
  nlohmann::json names = nlohmann::json::array();
  for (int e = 0; e < kExperts; ++e)
    for (const std::string& p : kProjections) names.push_back(name(e, p));
  return names;
}

enum class Result3 { read, plain, refused };

struct Case {
  const char* method;  // with where its rules stand
  nlohmann::json rules;
  Result3 want;
  std::string subject{}, named{};  // of a refusal: the rule, a name in the message
};

nlohmann::json document(const Case& c) {
  const std::string method = c.method;
  nlohmann::json d = {{"quant_method", c.method}};
  if (method == "compressed-tensors")
    d.update({{"ignore", c.rules}, {"config_groups", {{"W8A16", {"Linear"}}}}});
  else if (method == "gptq")
    d.update({{"dynamic", c.rules}, {"bits", 4}, {"group_size", 128}, {"desc_act", false}, {"sym", true}});
  else if (method == "awq")
    d.update({{"modules_to_not_convert", c.rules}, {"bits", 4}, {"group_size", 128}, {"zero_point", true}});
  else if (method == "fp8")
    d.update({{"modules_to_not_convert", c.rules}, {"activation_scheme", "dynamic"}});
  else
    d.update({{"ignore", c.rules}, {"quant_algo", "FP8"}});
  return d;
}

TEST(ExpertRules, OneForAllOrRefused) {
  using nlohmann::json;
  const std::string base = "/hf_quantization_config";
  const std::vector<Case> cases = {
      {"compressed-tensors", all_names(), Result3::plain},
      {"compressed-tensors", {"re:.*layers\\.3\\..*"}, Result3::plain},
      {"compressed-tensors", {"re:.*experts\\.\\d+\\..*_proj"}, Result3::plain},
      {"compressed-tensors", {"re:.*layers\\.4\\..*", "re:.*gate$", "lm_head"}, Result3::read},
      {"compressed-tensors", {"re:.*experts\\.12\\..*", name(12, "up_proj")}, Result3::read},  // there is none
      {"compressed-tensors", {"model.layers.3.mlp.experts.03.up_proj"}, Result3::read},
      {"compressed-tensors", {"lm_head", name(3, "up_proj")}, Result3::refused, "/ignore/1", name(3, "up_proj")},
      {"compressed-tensors", {"re:.*experts.3\\..*"}, Result3::refused, "/ignore/0", name(3, "gate_proj")},
      {"compressed-tensors", {"re:.*experts\\.0\\..*"}, Result3::refused, "/ignore/0", name(0, "gate_proj")},
      {"compressed-tensors", {"re:.*experts\\..\\."}, Result3::refused, "config_groups/W8A16/0", name(10, "gate_proj")},
      {"compressed-tensors", {"re:.*1\\.down_proj$"}, Result3::refused, "/ignore/0", name(1, "down_proj")},
      {"gptq", {{"-:.*experts", json::object()}}, Result3::plain},
      {"gptq", {{"-:.*experts\\..*", json::object()}}, Result3::plain},  // matches the names alone
      {"gptq", {{"-:.*mlp\\.gate$", json::object()}, {"+:.*layers\\.4\\.", {{"bits", 8}}}}, Result3::read},
      {"gptq", {{".*experts\\.3\\..*", {{"bits", 4}}}}, Result3::read},  // says what holds anyway
      {"gptq",
       {{"-:.*experts\\.3\\..*", json::object()}},
       Result3::refused,
       "/dynamic/-:.*experts\\.3\\..*",
       name(3, "gate_proj")},
      {"gptq", {{"+:.*down_proj", {{"bits", 8}}}}, Result3::refused, "/dynamic/+:.*down_proj", name(0, "down_proj")},
      {"gptq",
       {{".*\\.11\\.up_proj", {{"group_size", 32}}}},
       Result3::refused,
       "/dynamic/.*\\.11\\.up_proj",
       name(11, "up_proj")},
      {"awq", {"experts"}, Result3::plain},
      {"awq", {"gate", "layers.4."}, Result3::read},
      {"awq", {"experts.3.up_proj"}, Result3::refused, "/modules_to_not_convert/0", name(3, "up_proj")},
      {"awq", {"gate", "experts.1"}, Result3::refused, "/modules_to_not_convert/1", name(1, "gate_proj")},
      {"fp8", all_names(), Result3::plain},
      {"fp8", {kModule}, Result3::plain},
      {"fp8", {"lm_head", "model.layers.30.mlp.experts.1.up_proj"}, Result3::read},
      {"fp8", {"lm_head", name(7, "up_proj")}, Result3::refused, "/modules_to_not_convert/1", kModule + ".7."},
      {"modelopt", all_names(), Result3::plain},
      {"modelopt", {"model.layers.3.*"}, Result3::plain},
      {"modelopt", {"*.experts.*"}, Result3::plain},
      {"modelopt", {"*.experts.4"}, Result3::read},
      {"modelopt", {"lm_head", "*.experts.4.*"}, Result3::refused, "/ignore/1", name(4, "gate_proj")},
  };
  for (const Case& c : cases) {
    const std::string at = std::string(c.method) + " " + c.rules.dump();
    const auto got = resolve(document(c));
    if (c.want != Result3::refused) {
      ASSERT_TRUE(got) << at << ": " << got.error().message;
      EXPECT_EQ(got->has_value(), c.want == Result3::read) << at;
      continue;
    }
    ASSERT_FALSE(got) << at;
    EXPECT_EQ(got.error().code, Code::unsupported) << at;
    EXPECT_THAT(got.error().subject, ::testing::AllOf(::testing::StartsWith(base), ::testing::EndsWith(c.subject)));
    EXPECT_THAT(got.error().message, ::testing::AllOf(HasSubstr(got.error().subject), HasSubstr(c.named))) << at;
  }
}

TEST(ExpertRules, TargetsOfSomeExperts) {
  const auto groups = [](const std::string& target, int bits) {
    const nlohmann::json eight = {{"num_bits", 8}, {"strategy", "channel"}};
    nlohmann::json other = eight;
    other["num_bits"] = bits;
    return nlohmann::json{
        {"quant_method", "compressed-tensors"},
        {"config_groups",
         {{"a", {{"targets", {"Linear"}}, {"weights", eight}}}, {"b", {{"targets", {target}}, {"weights", other}}}}}};
  };
  const auto mixed = resolve(groups("re:.*experts\\.5\\..*", 4));
  ASSERT_FALSE(mixed);
  EXPECT_EQ(mixed.error().code, Code::unsupported);
  EXPECT_EQ(mixed.error().subject, "/hf_quantization_config/config_groups/b/targets/0");
  EXPECT_THAT(mixed.error().message, HasSubstr(name(5, "gate_proj")));
  const auto same = resolve(groups("re:.*experts\\.5\\..*", 8));
  ASSERT_TRUE(same) << same.error().message;
  EXPECT_TRUE(*same);
}

// A whole config.json: the number of experts is its own, and the error points into it.
TEST(ExpertRules, InAConfigJson) {
  const nlohmann::json config = {
      {"architectures", {"Qwen3MoeForCausalLM"}},
      {"model_type", "qwen3_moe"},
      {"hidden_size", 256},
      {"moe_intermediate_size", 128},
      {"num_experts", 128},
      {"num_experts_per_tok", 8},
      {"num_hidden_layers", 4},
      {"norm_topk_prob", true},
      {"hidden_act", "silu"},
      {"quantization_config",
       {{"quant_method", "compressed-tensors"},
        {"ignore", {"model.layers.0.mlp.experts.100.up_proj"}},
        {"config_groups", {{"W4A16", {"Linear"}}}}}},
  };
  for (const int layer : {0, 1}) {
    const auto got = hf::config_from_hf(config.dump(), R"({"layer_index":)" + std::to_string(layer) + "}");
    ASSERT_EQ(static_cast<bool>(got), layer == 1) << got.error().message;
    if (layer == 1) continue;
    EXPECT_EQ(got.error().code, Code::unsupported);
    EXPECT_EQ(got.error().subject, "/quantization_config/ignore/0");
    EXPECT_THAT(got.error().message, HasSubstr("model.layers.0.mlp.experts.100.up_proj"));
  }
}

// 512 experts, and rules that look at every name: work is counted in states, so that a real file's many patterns are
// far from the limit and a hostile one's meet it.
TEST(ExpertRules, ManyPatternsOverManyExperts) {
  nlohmann::json real = nlohmann::json::array();
  for (int i = 0; i < 500; ++i) real.push_back("re:.*layers\\." + std::to_string(i + 4) + "\\.mlp\\.(gate|router)$");
  EXPECT_TRUE(resolve(document({"compressed-tensors", real, Result3::read}), 512));
  nlohmann::json hostile = nlohmann::json::array();
  for (int i = 0; i < 4000; ++i)
    hostile.push_back("re:(.?){60}(.?){60}(.*a){60}(.*b){60}" + std::string(100, '.') + std::to_string(i));
  const auto got = resolve(document({"compressed-tensors", hostile, Result3::read}), 512);
  ASSERT_FALSE(got);
  EXPECT_THAT(got.error().message, HasSubstr("too many patterns"));
}

// The names of all experts cost once, not with each entry.
TEST(ExpertRules, ManyNamesOfManyExperts) {
  const nlohmann::json names(20'000, name(3, "up_proj"));
  for (const char* method : {"compressed-tensors", "fp8"}) {
    const auto got = resolve(document({method, names, Result3::refused}), 65536);
    ASSERT_FALSE(got) << method;
    EXPECT_EQ(got.error().code, Code::unsupported) << method;
  }
}

}  // namespace
}  // namespace moe::test::expert_rules_test
