// Quantization objects of checkpoints: the golden cases through moe_describe's topic, and documents that
// hold the wrong things. See impl/config/quantization/checkpoint_quantization.cpp and hf_compressed_tensors.cpp.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "config/config.h"
#include "hf/hf.h"
#include "support/rooms.h"
#include "support/vectors.h"

namespace moe::test::hf_quantization_test {
namespace {

constexpr const char* kModule = "model.layers.3.mlp.experts";
const std::vector<std::string> kProjections = {"gate_proj", "up_proj", "down_proj"};

json::Value parsed(const std::string& text) {
  auto v = json::parse(text);
  EXPECT_TRUE(v) << text << ": " << v.error().message;
  return v ? *std::move(v) : json::Value();
}

Result<std::optional<HfQuantization>> resolve(const std::string& text) {
  return resolve_hf_quantization(parsed(text), kModule, kProjections, 128);
}

// `expected` is contained in `answer`: objects member by member, the rest exactly.
bool contains(const nlohmann::json& answer, const nlohmann::json& expected) {
  if (!expected.is_object()) return answer == expected;
  if (!answer.is_object()) return false;
  for (const auto& [key, value] : expected.items())
    if (!answer.contains(key) || !contains(answer[key], value)) return false;
  return true;
}

TEST(HfQuantization, GoldenCases) {
  const auto cases = load_json("config/hf_resolution_cases.json")["cases"];
  ASSERT_EQ(cases.size(), 47U);
  int resolved = 0, plain = 0, refused = 0;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    nlohmann::json query = cases[i];
    for (const char* key : {"resolved", "error_pointer", "why"}) query.erase(key);
    const auto answer = describe_checkpoint(parsed(query.dump()));
    if (cases[i].contains("error_pointer")) {
      ASSERT_FALSE(answer) << "case " << i;
      EXPECT_EQ(answer.error().subject, cases[i]["error_pointer"].get<std::string>()) << "case " << i;
      // Valid, and not read: an algorithm, a format, other bits than those that are.
      const std::string subject = answer.error().subject;
      const bool unread =
          subject.ends_with("/quant_algo") || subject.ends_with("/format") || subject.ends_with("/bits");
      EXPECT_EQ(answer.error().code, unread ? Code::unsupported : Code::invalid_config) << "case " << i;
      ++refused;
      continue;
    }
    ASSERT_TRUE(answer) << "case " << i << ": " << answer.error().message;
    const auto got = nlohmann::json::parse(*answer);
    EXPECT_TRUE(contains(got, {{"resolved", cases[i]["resolved"]}})) << "case " << i << ": " << got.dump();
    EXPECT_EQ(got["resolved"].is_null(), cases[i]["resolved"].is_null()) << "case " << i;
    ++(cases[i]["resolved"].is_null() ? plain : resolved);
  }
  EXPECT_GT(resolved, 20);
  EXPECT_GT(plain, 3);
  EXPECT_GT(refused, 5);
}

// One type has several words, and another type none of them.
TEST(HfQuantization, WordsForFloat8) {
  const auto with = [](const std::string& fmt) {
    return resolve(R"({"quant_method":"fp8","activation_scheme":"dynamic","fmt":")" + fmt + "\"}");
  };
  for (const char* fmt : {"e4m3", "E4M3", "e4m3fn", "float8_e4m3fn", "torch.float8_e4m3fn", "F8_E4M3", "fp8_e4m3"}) {
    const auto got = with(fmt);
    ASSERT_TRUE(got) << fmt << ": " << got.error().message;
    EXPECT_TRUE((*got)->quantization.is_fp8());
  }
  for (const char* fmt : {"e5m2", "float8_e5m2", "torch.float8_e5m2", "float8_e4m3fnuz", "e4m3fnuz", "float8_e5m2fnuz",
                          "float8_e8m0fnu", "float16", ""}) {
    const auto got = with(fmt);
    ASSERT_FALSE(got) << fmt;
    EXPECT_EQ(got.error().code, Code::unsupported);
    EXPECT_EQ(got.error().subject, "/hf_quantization_config/fmt");
    EXPECT_NE(got.error().message.find(fmt), std::string::npos);
  }
  const auto blocks = resolve(R"({"quant_method":"modelopt","quant_algo":"FP8_BLOCK_SCALES"})"),
             same = resolve(R"({"quant_method":"modelopt","quant_algo":"fp8_pb_wo"})");
  ASSERT_TRUE(blocks && same);
  EXPECT_EQ((*blocks)->quantization.weights, (*same)->quantization.weights);
  EXPECT_EQ((*blocks)->quantization.input_activations, (*same)->quantization.input_activations);
}

// Experts of an fp8 file that are something else: as its own key says, or ModelOpt's.
TEST(HfQuantization, ExpertsOfFp8Files) {
  const std::string fp8 = R"("quant_method":"fp8","activation_scheme":"dynamic","weight_block_size":[128,128])";
  const auto format = [&](const std::string& more) {
    const auto got = resolve("{" + fp8 + more + "}");
    EXPECT_TRUE(got) << more << ": " << got.error().message;
    if (!got) return std::string("refused");
    return *got ? std::string(at(kFormatNames, (*got)->quantization.format)) : std::string("plain");
  };
  for (const char* word : {"fp8", "float8_e4m3fn"})
    EXPECT_EQ(format(std::string(R"(,"expert_dtype":")") + word + "\""), "float-quantized");
  for (const char* word : {"fp4", "mxfp4", "float4_e2m1fn"})
    EXPECT_EQ(format(std::string(R"(,"expert_dtype":")") + word + "\""), "mxfp4-pack-quantized");
  EXPECT_EQ(format(R"(,"expert_dtype":"fp4","modules_to_not_convert":["model.layers.3.mlp"])"), "plain");
  const std::string nv = R"(,"moe_quant_algo":"NVFP4","quant_algo":"MIXED_PRECISION","expert_dtype":"fp4")";
  EXPECT_EQ(format(nv), "nvfp4-pack-quantized");
  EXPECT_EQ(format(nv + R"(,"ignore":["*.attn.*"])"), "nvfp4-pack-quantized");
  EXPECT_EQ(format(nv + R"(,"ignore":["model.layers.3.*"])"), "mxfp4-pack-quantized");
  EXPECT_EQ(format(nv + R"(,"quantized_layers":{"model.layers.3.mlp.experts":{"quant_algo":"nvfp4"}})"),
            "nvfp4-pack-quantized");
  EXPECT_EQ(format(nv + R"(,"quantized_layers":{"layers.3.mlp.experts":{"quant_algo":"NVFP4"}})"),
            "nvfp4-pack-quantized");
  EXPECT_EQ(format(nv + R"(,"quantized_layers":{"model.layers.30.mlp.experts":{"quant_algo":"NVFP4"}})"),
            "mxfp4-pack-quantized");
  EXPECT_EQ(format(R"(,"quantized_layers":{"model.layers.3.mlp.experts":{"quant_algo":"W4A16_NVFP4"}})"),
            "nvfp4-pack-quantized");
  struct Refused {
    const char *more, *subject;
  };
  for (const Refused& c :
       {Refused{R"(,"expert_dtype":"int4")", "/expert_dtype"}, Refused{R"(,"expert_dtype":4)", "/expert_dtype"},
        Refused{R"(,"moe_quant_algo":"INT4_AWQ")", "/moe_quant_algo"},
        Refused{R"(,"moe_quant_algo":"NVFP4","quantized_layers":{"model.layers.3.mlp.experts":{"quant_algo":"FP8"}})",
                "/quantized_layers/model.layers.3.mlp.experts/quant_algo"},
        Refused{R"(,"quantized_layers":{"model.layers.3.mlp.experts":{}})",
                "/quantized_layers/model.layers.3.mlp.experts/quant_algo"},
        Refused{R"(,"quantized_layers":{"model.layers.3.mlp.experts.0.up_proj":{"quant_algo":"FP8"}})",
                "/quantized_layers/model.layers.3.mlp.experts.0.up_proj"}}) {
    const auto got = resolve("{" + fp8 + c.more + "}");
    ASSERT_FALSE(got) << c.more;
    EXPECT_EQ(got.error().subject, std::string("/hf_quantization_config") + c.subject);
  }
}

// vLLM's class of experts had another name before.
TEST(HfQuantization, ClassesOfExperts) {
  for (const char* target :
       {"Linear", "RoutedExperts", "FusedMoE", "routedexperts", "re:Routed.*", "re:FusedMoE", "Experts"}) {
    const auto got = resolve(R"({"quant_method":"compressed-tensors","config_groups":{"a":{"targets":[")" +
                             std::string(target) + R"("],"weights":{"num_bits":8,"strategy":"channel"}}}})");
    ASSERT_TRUE(got) << target << ": " << got.error().message;
    EXPECT_TRUE(*got) << target;
  }
  // A group of its own comes before that of all linear layers.
  const auto own = resolve(
      R"({"quant_method":"compressed-tensors","config_groups":{"a":{"targets":["Linear"],"weights":{"num_bits":8,"strategy":"channel"}},
          "b":{"targets":["RoutedExperts"],"weights":{"num_bits":4,"strategy":"channel"}}}})");
  ASSERT_TRUE(own && *own);
  EXPECT_EQ((*own)->quantization.weights->num_bits, 4);
}

TEST(HfQuantization, StorageOfEachMethod) {
  const auto gptq = resolve(R"({"quant_method":"gptq","bits":4,"group_size":128,"desc_act":false,"sym":true})");
  ASSERT_TRUE(gptq && *gptq);
  EXPECT_EQ((*gptq)->quantization.hf, "gptq");
  EXPECT_EQ((*gptq)->quantization.zero_point_convention, ZeroPoints::plus_one);
  EXPECT_EQ((*gptq)->quantization.is_transposed, true);
  const auto v2 = resolve(
      R"({"quant_method":"gptq","bits":4,"group_size":128,"desc_act":true,"sym":true,"checkpoint_format":"gptq_v2"})");
  ASSERT_TRUE(v2 && *v2);
  EXPECT_EQ((*v2)->quantization.zero_point_convention, ZeroPoints::as_stored);
  EXPECT_EQ((*v2)->quantization.weights->actorder, ActOrder::group);
  const auto fp8 = resolve(R"({"quant_method":"fp8","activation_scheme":"dynamic","weight_block_size":[128,64]})");
  ASSERT_TRUE(fp8 && *fp8);
  EXPECT_EQ((*fp8)->quantization.zero_point_convention, std::nullopt);
  EXPECT_EQ((*fp8)->quantization.is_transposed, std::nullopt);
  EXPECT_EQ((*fp8)->quantization.input_activations->group_size, 64);
}

TEST(HfQuantization, GptqOverridesNameTheirOwnPlace) {
  const std::string head = R"({"quant_method":"gptq","bits":4,"group_size":128,"desc_act":false,"sym":true,"dynamic":)";
  const auto changed =
      resolve(head + R"({"+:.*experts":{"bits":8,"sym":false,"group_size":-1,"desc_act":true},".*":{"bits":4}}})");
  ASSERT_TRUE(changed && *changed);
  const QuantArgs& w = *(*changed)->quantization.weights;
  EXPECT_EQ(w.num_bits, 8);
  EXPECT_FALSE(w.symmetric);
  EXPECT_EQ(w.strategy, Strategy::channel);
  EXPECT_EQ(w.actorder, ActOrder::none);
  const auto first_wins = resolve(head + R"({"-:lm_head":{},".*mlp":{},"-:.*":{}}})");
  ASSERT_TRUE(first_wins && *first_wins);
  const auto refused = resolve(head + R"({".*experts":{"bits":3}}})");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().subject, "/hf_quantization_config/dynamic/.*experts/bits");
}

struct Hostile {
  std::string text, subject;
  Code code = Code::invalid_config;
};

std::string ct(const std::string& members) { return R"({"quant_method":"compressed-tensors",)" + members + "}"; }
std::string group(const std::string& members) {
  return ct(R"("config_groups":{"g":{"targets":["Linear"],)" + members + "}}");
}

TEST(HfQuantization, HostileDocumentsFailWithAPointer) {
  const std::string base = "/hf_quantization_config";
  const std::string token8 = R"("input_activations":{"num_bits":8,"strategy":"token","dynamic":true})";
  const std::vector<Hostile> cases = {
      {"[]", base},
      {"{}", base + "/quant_method"},
      {R"({"quant_method":7})", base + "/quant_method"},
      {R"({"quant_method":"bitsandbytes"})", base + "/quant_method", Code::unsupported},
      {R"({"quant_method":"quark"})", base + "/quant_method", Code::unsupported},
      {R"({"quant_method":"modelopt","quantization":{"quant_algo":"MIXED_PRECISION"}})",
       base + "/quantization/quant_algo", Code::unsupported},
      {R"({"quant_method":"fp8","activation_scheme":"dynamic","fmt":"e5m2"})", base + "/fmt", Code::unsupported},
      {R"({"quant_method":"modelopt"})", base + "/quant_algo"},
      {R"({"quant_method":"modelopt","quant_algo":8})", base + "/quant_algo"},
      {R"({"quant_method":"modelopt","quant_algo":"FP8","ignore":"lm_head"})", base + "/ignore"},
      {R"({"quant_method":"modelopt","quantization":[]})", base + "/quantization"},
      {R"({"quant_method":"gptq","bits":"4","group_size":128,"desc_act":false,"sym":true})", base + "/bits"},
      {R"({"quant_method":"gptq","bits":4.5,"group_size":128,"desc_act":false,"sym":true})", base + "/bits"},
      {R"({"quant_method":"gptq","bits":true,"group_size":128,"desc_act":false,"sym":true})", base + "/bits"},
      {R"({"quant_method":"gptq","bits":4,"group_size":0,"desc_act":false,"sym":true})", base + "/group_size"},
      {R"({"quant_method":"gptq","bits":4,"group_size":-2,"desc_act":false,"sym":true})", base + "/group_size"},
      {R"({"quant_method":"gptq","bits":4,"group_size":128,"desc_act":0,"sym":true})", base + "/desc_act"},
      {R"({"quant_method":"gptq","bits":4,"group_size":128,"desc_act":false,"sym":null})", base + "/sym"},
      {R"({"quant_method":"gptq","bits":4,"group_size":128,"desc_act":false,"sym":true,"checkpoint_format":"marlin"})",
       base + "/checkpoint_format", Code::unsupported},
      {R"({"quant_method":"gptq","bits":4,"group_size":128,"desc_act":false,"sym":true,"dynamic":[]})",
       base + "/dynamic"},
      {R"({"quant_method":"gptq","bits":4,"group_size":128,"desc_act":false,"sym":true,"dynamic":{".*":8}})",
       base + "/dynamic/.*"},
      {R"({"quant_method":"gptq","bits":4,"group_size":128,"desc_act":false,"sym":true,"dynamic":{"(?=a)/b":{}}})",
       base + "/dynamic/(?=a)~1b", Code::unsupported},
      {R"({"quant_method":"awq","bits":4,"group_size":128})", base + "/zero_point"},
      {R"({"quant_method":"awq","w_bit":8,"bits":4,"group_size":128,"zero_point":true})", base + "/w_bit",
       Code::unsupported},
      {R"({"quant_method":"awq","bits":4,"q_group_size":"128","zero_point":true})", base + "/q_group_size"},
      {R"({"quant_method":"awq","bits":4,"group_size":128,"zero_point":true,"modules_to_not_convert":[1]})",
       base + "/modules_to_not_convert/0"},
      {R"({"quant_method":"fp8","activation_scheme":"both"})", base + "/activation_scheme"},
      {R"({"quant_method":"fp8","activation_scheme":"dynamic","weight_block_size":[128]})",
       base + "/weight_block_size"},
      {R"({"quant_method":"fp8","activation_scheme":"dynamic","weight_block_size":[128,0]})",
       base + "/weight_block_size/1"},
      {R"({"quant_method":"fp8","activation_scheme":"dynamic","weight_block_size":"128x128"})",
       base + "/weight_block_size"},
      {ct(R"("config_groups":7)"), base + "/config_groups"},
      {ct(R"("config_groups":{"g":7})"), base + "/config_groups/g"},
      {ct(R"("config_groups":{"a/b":{}})"), base + "/config_groups/a~1b/targets"},
      {ct(R"("config_groups":{"g":{"targets":"Linear"}})"), base + "/config_groups/g/targets"},
      {ct(R"("config_groups":{"g":{"targets":["Linear",5]}})"), base + "/config_groups/g/targets/1"},
      {ct(R"("config_groups":{"W5A5":["Linear"]})"), base + "/config_groups/W5A5"},
      {ct(R"("config_groups":{"none":["Linear"]})"), base + "/config_groups/none"},
      {ct(R"("config_groups":{"W4A16":["Linear",{}]})"), base + "/config_groups/W4A16/1"},
      {ct(R"("config_groups":{"g":{"targets":["re:("]}})"), base + "/config_groups/g/targets/0"},
      {ct(R"j("config_groups":{"g":{"targets":["re:(?!a)"]}})j"), base + "/config_groups/g/targets/0",
       Code::unsupported},
      {ct(R"("ignore":[1,2])"), base + "/ignore/0"},
      {ct(R"("ignore":{"a":1})"), base + "/ignore"},
      {ct(R"("ignore":["lm_head","re:[z-a]"])"), base + "/ignore/1"},
      {group(R"("weights":"int4")"), base + "/config_groups/g/weights"},
      {group(R"("weights":{"num_bits":"4"})"), base + "/config_groups/g/weights/num_bits"},
      {group(R"("weights":{"num_bits":1})"), base + "/config_groups/g/weights/num_bits", Code::unsupported},
      {group(R"("weights":{"num_bits":4,"type":"uint"})"), base + "/config_groups/g/weights/type"},
      {group(R"("weights":{"num_bits":4,"group_size":0})"), base + "/config_groups/g/weights/group_size"},
      {group(R"("weights":{"num_bits":4,"strategy":"group"})"), base + "/config_groups/g/weights/group_size"},
      {group(R"("weights":{"num_bits":4,"strategy":"rows"})"), base + "/config_groups/g/weights/strategy"},
      {group(R"("weights":{"num_bits":8,"strategy":"token","dynamic":true})"),
       base + "/config_groups/g/weights/strategy"},
      {group(R"("weights":{"num_bits":8,"strategy":"tensor","dynamic":true})"),
       base + "/config_groups/g/weights/dynamic"},
      {group(R"("weights":{"num_bits":8,"strategy":"block","block_structure":"128"})"),
       base + "/config_groups/g/weights/block_structure"},
      {group(R"("weights":{"num_bits":8,"strategy":"block","block_structure":"x128"})"),
       base + "/config_groups/g/weights/block_structure"},
      {group(R"("weights":{"num_bits":8,"strategy":"block","block_structure":"0x128"})"),
       base + "/config_groups/g/weights/block_structure/0"},
      {group(R"("weights":{"num_bits":8,"strategy":"block","block_structure":[128,"1"]})"),
       base + "/config_groups/g/weights/block_structure/1"},
      {group(R"("weights":{"num_bits":4,"strategy":"channel","actorder":"group"})"),
       base + "/config_groups/g/weights/actorder"},
      {group(R"("weights":{"num_bits":4,"group_size":128,"symmetric":1})"),
       base + "/config_groups/g/weights/symmetric"},
      {group(R"("weights":{"num_bits":8,"strategy":"channel"},"input_activations":[])"),
       base + "/config_groups/g/input_activations"},
      {group(R"("weights":{"num_bits":8,"strategy":"channel"},"input_activations":{"strategy":"token"})"),
       base + "/config_groups/g/input_activations/dynamic"},
      {group(R"("weights":{"num_bits":4,"strategy":"channel"},"format":"nvfp4-pack-quantized")"),
       base + "/config_groups/g/format"},
      {group(R"("weights":{"num_bits":4,"strategy":"channel"},"format":"sparse-24-bitmask")"),
       base + "/config_groups/g/format", Code::unsupported},
      {group(R"("weights":{"num_bits":4,"strategy":"channel"},"format":5)"), base + "/config_groups/g/format"},
      {ct(R"("format":"awq","config_groups":{"g":{"targets":["Linear"],"weights":{"num_bits":4,"group_size":32},)" +
          token8 + "}}"),
       base + "/format"},
  };
  for (const Hostile& c : cases) {
    const auto got = resolve(c.text);
    ASSERT_FALSE(got) << c.text;
    EXPECT_EQ(got.error().subject, c.subject) << c.text << "\n" << got.error().message;
    EXPECT_EQ(got.error().code, c.code) << c.text;
    EXPECT_NE(got.error().message.find(c.subject), std::string::npos) << got.error().message;
  }
}

// Numbers that every call would have to rotate, or another layout than the one that is read.
TEST(HfQuantization, RotationsAndOtherLayoutsAreRefused) {
  using nlohmann::json;
  const json weights = {{"num_bits", 4}, {"type", "int"}, {"strategy", "group"}, {"group_size", 32}};
  const auto compressed = [&](const char* location) {
    return json{{"quant_method", "compressed-tensors"},
                {"format", "pack-quantized"},
                {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}}}}},
                {"transform_config",
                 {{"config_groups",
                   {{"R4", {{"type", "hadamard"}, {"apply", {{{"targets", {"Linear"}}, {"location", location}}}}}}}}}}};
  };
  const json gptq = {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 32}, {"desc_act", false}, {"sym", true}};
  json rotated = gptq, plain = gptq;
  rotated["rotation"] = "hadamard";
  plain["rotation"] = nullptr;
  const json awq = {{"quant_method", "awq"}, {"bits", 4}, {"group_size", 32}, {"zero_point", true}};
  json gemv = awq, gemm = awq;
  gemv["version"] = "GEMV_fast";
  gemm["version"] = "GEMM";
  const std::vector<std::string> projections = {"gate_proj", "up_proj", "down_proj"};
  struct Case {
    json config;
    const char* subject;
  };
  for (const Case& c :
       {Case{compressed("weight_input"), ""}, Case{compressed("input"), "/transform_config/config_groups/R4"},
        Case{plain, ""}, Case{rotated, "/rotation"}, Case{gemm, ""}, Case{gemv, "/version"}}) {
    const auto value = moe::json::parse(c.config.dump());
    ASSERT_TRUE(value);
    const auto got = resolve_hf_quantization(*value, "model.layers.0.mlp.experts", projections, 4);
    ASSERT_EQ(static_cast<bool>(got), c.subject[0] == 0) << c.config.dump();
    if (got) continue;
    EXPECT_EQ(got.error().subject, std::string("/hf_quantization_config") + c.subject);
    EXPECT_EQ(got.error().code, Code::unsupported);
  }
}

TEST(HfQuantization, TargetsAndIgnoreOfCompressedTensors) {
  const std::string w4 = R"("weights":{"num_bits":4,"group_size":32})",
                    w8 = R"("weights":{"num_bits":8,"strategy":"channel"})";
  const auto bits = [&](const std::string& text) {
    const auto got = resolve(text);
    EXPECT_TRUE(got) << text << ": " << got.error().message;
    return !got ? -1 : !*got ? 0 : (*got)->quantization.weights->num_bits;
  };
  const auto two = [&](const std::string& first, const std::string& second) {
    return ct(R"("config_groups":{"a":{"targets":[)" + first + "]," + w4 + R"(},"b":{"targets":[)" + second + "]," +
              w8 + "}}");
  };
  EXPECT_EQ(bits(two(R"("Linear")", R"("re:.*experts.*")")), 8);        // names before classes
  EXPECT_EQ(bits(two(R"("Linear")", R"("FusedMoE")")), 8);              // the class's own group before Linear
  EXPECT_EQ(bits(two(R"("fusedmoe")", R"("Conv2d")")), 4);              // without case
  EXPECT_EQ(bits(two(R"("re:.*experts.*")", R"("re:.*mlp.*")")), 4);    // first target wins
  EXPECT_EQ(bits(two(R"("Linear")", R"("Linear")")), 8);                // a target named twice: the later group
  EXPECT_EQ(bits(two(R"("LlamaAttention")", R"("re:FusedM.E$")")), 8);  // a pattern may name the class
  EXPECT_EQ(bits(two(R"("Conv2d")", R"("Embedding")")), 0);
  EXPECT_EQ(bits(ct(R"("config_groups":null)")), 0);
  EXPECT_EQ(bits(ct(R"("config_groups":{"g":{"targets":["Linear"],"weights":null}})")), 0);
  EXPECT_EQ(bits(ct(R"("ignore":["re:.*experts"],"config_groups":{"w8a16":["Linear"]})")), 0);
  EXPECT_EQ(bits(ct(R"("ignore":null,"config_groups":{"w8a16":["Linear"]})")), 8);
  const std::string one_ignored =
      ct(R"("ignore":["model.layers.3.mlp.experts.0.up_proj"],"config_groups":{"W8A16":["Linear"]})");
  const auto split = resolve(one_ignored);
  ASSERT_FALSE(split);
  EXPECT_EQ(split.error().subject, "/hf_quantization_config/config_groups");
  EXPECT_NE(split.error().message.find("up_proj"), std::string::npos);
  // Equal arguments in two groups are one scheme.
  EXPECT_EQ(bits(ct(R"("config_groups":{"a":{"targets":["re:.*gate_proj","re:.*down_proj"],)" + w4 +
                    R"(},"b":{"targets":["re:.*up_proj"],)" + w4 + "}}")),
            4);
}

TEST(HfQuantization, WildcardsOfModelOpt) {
  const auto skipped = [&](const std::string& pattern) {
    const auto got =
        resolve(R"({"quant_method":"modelopt","quant_algo":"FP8","ignore":[)" + json::quote(pattern) + "]}");
    EXPECT_TRUE(got) << pattern << ": " << got.error().message;
    return got && !*got;
  };
  EXPECT_TRUE(skipped("model.layers.3*"));
  EXPECT_TRUE(skipped("model.layers.3.mlp.experts*"));
  EXPECT_TRUE(skipped("model.layers.[0-4].mlp.exp?rts"));
  EXPECT_TRUE(skipped("*[!x]"));
  EXPECT_FALSE(skipped("model.layers.3"));
  EXPECT_FALSE(skipped("model?layers.30.*"));
  EXPECT_FALSE(skipped("model.layers.[!3].mlp.experts"));
  EXPECT_FALSE(skipped("model.layers.[3.mlp.experts"));
  EXPECT_FALSE(skipped("(.*)"));
}

// Every member of every golden object in turn replaced by values of all kinds, or left out.
TEST(HfQuantization, AnyMemberMayHoldAnything) {
  const auto odd = nlohmann::json::parse(
      R"([null, true, -1, 0, 3, 1e300, 0.5, "", "re:(", "re:.*", "static", [], [null], [[]], [128, 128], ["Linear"], {}, {"a": null}])");
  int failed = 0, passed = 0;
  const nlohmann::json file = load_json("config/hf_resolution_cases.json");
  for (const auto& c : file["cases"]) {
    const nlohmann::json flat = c["hf_quantization_config"].flatten();
    std::set<std::string> places;  // members at every depth
    for (const auto& [leaf, value] : flat.items())
      for (std::size_t end = leaf.size(); end != 0 && end != std::string::npos; end = leaf.rfind('/', end - 1))
        places.insert(leaf.substr(0, end));
    const auto attempt = [&](const nlohmann::json& object) {
      const auto got = resolve(object.dump());
      if (got) {
        ++passed;
        return;
      }
      ++failed;
      EXPECT_TRUE(got.error().subject.starts_with("/hf_quantization_config")) << object.dump();
      EXPECT_TRUE(got.error().code == Code::invalid_config || got.error().code == Code::unsupported) << object.dump();
      EXPECT_FALSE(got.error().message.empty());
    };
    for (const std::string& place : places) {
      const nlohmann::json::json_pointer pointer(place);
      for (const nlohmann::json& value : odd) {
        nlohmann::json object = c["hf_quantization_config"];
        object[pointer] = value;
        attempt(object);
      }
      nlohmann::json object = c["hf_quantization_config"];
      if (!object[pointer.parent_pointer()].is_object()) continue;
      object[pointer.parent_pointer()].erase(pointer.back());
      attempt(object);
    }
  }
  EXPECT_GT(failed, 1000);
  EXPECT_GT(passed, 1000);
}

TEST(HfQuantization, WorkOnPatternsIsLimited) {
  std::string text = R"({"quant_method":"gptq","bits":4,"group_size":128,"desc_act":false,"sym":true,"dynamic":{)";
  for (int i = 0; i < 20000; ++i) text += (i ? "," : "") + json::quote("(.?){60}x" + std::to_string(i)) + ":{}";
  const auto got = resolve(text + "}}");
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, Code::unsupported);
  EXPECT_TRUE(got.error().subject.starts_with("/hf_quantization_config/dynamic/"));
}

}  // namespace
}  // namespace moe::test::hf_quantization_test
