// Documents -> Config: the golden documents, the canonical text, and what the members mean.
#include <gtest/gtest.h>

#include <set>

#include "config/documents.h"
#include "support/rooms.h"
#include "support/vectors.h"

namespace moe::test::parse_test {
namespace {

using nlohmann::json;

TEST(Parse, ValidDocumentsResolveAsExpected) {
  const json index = load_json("config/index.json");
  ASSERT_GE(index["valid"].size(), 33U);
  for (const auto& entry : index["valid"]) {
    const std::string file = entry.get<std::string>();
    const auto c = parse_config(read_text(vector_path("config/" + file)));
    ASSERT_TRUE(c) << file << ": " << c.error().message;
    const json expected = load_json("config/" + file.substr(0, file.size() - 5) + ".expected.json");
    EXPECT_EQ(json::parse(c->canonical), expected) << file << "\n" << json::diff(json::parse(c->canonical), expected);
  }
}

TEST(Parse, InvalidDocumentsNameTheMember) {
  const json index = load_json("config/index.json");
  ASSERT_GE(index["invalid"].size(), 108U);
  for (const auto& entry : index["invalid"]) {
    const std::string file = entry["file"].get<std::string>();
    const auto c = parse_config(read_text(vector_path("config/" + file)));
    ASSERT_FALSE(c) << file;
    EXPECT_EQ(c.error().code, Code::invalid_config) << file;
    EXPECT_EQ(c.error().subject, entry["pointer"].get<std::string>()) << file << ": " << c.error().message;
    EXPECT_EQ(entry["layer"] == "parse" && c.error().details.empty(), file.find("root_") != std::string::npos) << file;
  }
}

// No member of the text may come before a smaller one.
void expect_sorted(const nlohmann::ordered_json& v) {
  std::string before;
  for (const auto& item : v.items()) {
    if (v.is_object()) {
      EXPECT_LT(before, item.key());
      before = item.key();
    }
    if (item.value().is_structured()) expect_sorted(item.value());
  }
}

TEST(Parse, CanonicalTextIsOneSortedLine) {
  const json d =
      layer_document({{"activation", "swigluoai"},
                      {"activation_params", {{"limit", 7}, {"alpha", 2}}},
                      {"routing", {{"routed_scaling_factor", 16}, {"method", "sparsemixer"}, {"jitter_eps", 1}}},
                      {"name", "a \"b\"\n\x01 caf\xc3\xa9/"},
                      {"platform", {{"libs", {{"z", true}, {"a", false}}}}},
                      {"vllm_env", {{"VLLM_USE_DEEP_GEMM", "0"}, {"VLLM_BATCH_INVARIANT", "1"}}}});
  const auto c = parse_config(d.dump(1));
  ASSERT_TRUE(c) << c.error().message;
  const std::string& t = c->canonical;
  EXPECT_EQ(t.find('\n'), std::string::npos);
  expect_sorted(nlohmann::ordered_json::parse(t));
  for (const char* part :
       {"\"limit\":7.0", "\"alpha\":2.0", "\"beta\":1.0", "\"routed_scaling_factor\":16.0", "\"jitter_eps\":1.0",
        "\"name\":\"a \\\"b\\\"\\n\\u0001 caf\xc3\xa9/\"", "\"libs\":{\"a\":false,\"z\":true}", "\"num_experts\":8,",
        "\"method\":\"SparseMixer\",\"method_id\":104"}) {
    EXPECT_NE(t.find(part), std::string::npos) << part << " in " << t;
  }
  // Blanks: none outside strings, and this document has a single blank and no other string with one.
  EXPECT_EQ(std::count(t.begin(), t.end(), ' '), 2);
  const auto again = parse_config(d.dump());
  ASSERT_TRUE(again);
  EXPECT_EQ(again->canonical, t);
  EXPECT_FALSE(parse_config(t));  // a report, not an input
}

TEST(Parse, NamesOfOneSetting) {
  for (const char* name : {"top_k", "experts_per_token", "num_experts_per_tok"}) {
    json d = layer_document({{"top_k", nullptr}});
    d[name] = 3;
    EXPECT_EQ(resolved_of(d)["top_k"], 3);
    d[name] = 9;
    EXPECT_EQ(fault_of(d), std::string("/") + name);
  }
  EXPECT_EQ(fault_of(layer_document({{"hidden_size", 256}})), "/hidden_size");
  EXPECT_EQ(fault_of(layer_document({{"moe_intermediate_size", 512}})), "/moe_intermediate_size");
}

TEST(Parse, Widths) {
  const json parallel = {{"parallel", {{"tp_size", 4}, {"tp_rank", 1}}}};
  auto c = parse_config(layer_document(parallel).dump());
  ASSERT_TRUE(c);
  EXPECT_EQ(c->intermediate_size, 512);
  EXPECT_EQ(c->intermediate_size_per_partition, 128);
  json d = layer_document(parallel);
  d.erase("intermediate_size");
  d["intermediate_size_per_partition"] = 512;
  c = parse_config(d.dump());
  ASSERT_TRUE(c);
  EXPECT_EQ(c->intermediate_size, 2048);
  EXPECT_EQ(c->intermediate_size_per_partition, 512);
  // 2^20 on each of 2^48 ranks is no 64-bit number.
  d["intermediate_size_per_partition"] = 1 << 20;
  d["parallel"] = {{"tp_size", 65536}, {"dp_size", 65536}, {"pcp_size", 65536}};
  EXPECT_EQ(fault_of(d), "/intermediate_size_per_partition");
}

TEST(Parse, NamesThatAreMeant) {
  const auto message = [](const json& members) {
    const auto c = parse_config(layer_document(members).dump());
    return c ? std::string() : c.error().message;
  };
  EXPECT_EQ(message({{"tp_size", 2}}),
            R"(/tp_size: unknown member "tp_size" (did you mean {"parallel": {"tp_size": ..}}?))");
  EXPECT_EQ(message({{"topk_group", 2}}),
            R"(/topk_group: unknown member "topk_group" (did you mean {"routing": {"topk_group": ..}}?))");
  EXPECT_EQ(message({{"dtype", "bfloat16"}}), R"(/dtype: unknown member "dtype" (did you mean in_dtype?))");
  EXPECT_EQ(message({{"in_dtype", "bf16"}}),
            R"(/in_dtype: found "bf16", expected float32, float16 or bfloat16 (did you mean bfloat16?))");
}

TEST(Parse, LengthsCountCharacters) {
  const auto repeated = [](int n) {
    std::string s;
    for (int i = 0; i < n; ++i) s += "\xf0\x9f\x98\x80";
    return s;
  };
  EXPECT_EQ(resolved_of(layer_document({{"name", repeated(512)}}))["name"], repeated(512));
  EXPECT_EQ(fault_of(layer_document({{"name", repeated(513)}})), "/name");
  EXPECT_EQ(fault_of(layer_document({{"$schema", repeated(2048)}})), "accepted");
  EXPECT_EQ(fault_of(layer_document({{"$schema", repeated(2049)}})), "/$schema");
  EXPECT_EQ(fault_of(layer_document({{"projection_names", {"a", "b", repeated(64)}}})), "accepted");
  EXPECT_EQ(fault_of(layer_document({{"projection_names", {"a", "b", repeated(65)}}})), "/projection_names/2");
  EXPECT_EQ(fault_of(layer_document({{"projection_names", {"a", "", "c"}}})), "/projection_names/1");
  EXPECT_EQ(fault_of(layer_document({{"projection_names", {"a", 1, "c"}}})), "/projection_names/1");
}

TEST(Parse, MessagesSayWhatWasFoundAndExpected) {
  const auto message = [](const json& d) {
    const auto c = parse_config(d.dump());
    return c ? std::string() : c.error().message;
  };
  EXPECT_EQ(message(layer_document({{"num_experts", 0}})), "/num_experts: found 0, expected an integer in [1, 65536]");
  EXPECT_EQ(message(layer_document({{"has_bias", "yes"}})), "/has_bias: found \"yes\", expected true or false");
  EXPECT_EQ(message(layer_document({{"in_dtype", "fp8"}})),
            "/in_dtype: found \"fp8\", expected float32, float16 or bfloat16");
  EXPECT_EQ(message(layer_document({{"top_k", {1, 2}}})),
            "/top_k: found an array of 2 elements, expected an integer in [1, 65536]");
  EXPECT_EQ(message(layer_document({{"intermediate_size", 513}, {"parallel", {{"tp_size", 2}}}})),
            "/intermediate_size: found 513, expected a multiple of the flattened tp_size 2");
  EXPECT_EQ(message(json::array()), "the document: found an array of 0 elements, expected an object");
  const std::string long_name(600, 'x');
  EXPECT_LT(message(layer_document({{"name", long_name}})).size(), 200U);
}

// In a document with several faults the first in the order of the rules is reported (config.md 13).
TEST(Parse, FirstFaultInTheOrderOfTheRules) {
  json d = {{"version", 2},
            {"name", 1},
            {"$schema", 1},
            {"projection_names", {"a"}},
            {"num_experts", 0},
            {"top_k", 70000},
            {"hidden_dim", 0},
            {"intermediate_size", 0},
            {"activation", "tanh"},
            {"activation_params", {{"alpha", 1}}},
            {"w13_layout", "interleaved"},
            {"has_bias", 1},
            {"in_dtype", "f"},
            {"out_dtype", "f"},
            {"router_logits_dtype", "f"},
            {"moe_backend", "gpu"},
            {"max_num_tokens", 0},
            {"apply_router_weight_on_input", 1},
            {"disable_inplace", 1},
            {"compute", "a2"},
            {"activation_quant", "x"},
            {"marlin_input_dtype", "x"},
            {"emulation_layout", "x"},
            {"parallel", {{"tp_size", 0}}},
            {"routing", {{"method", "best"}}},
            {"quantization", {{"scheme", "W2"}}},
            {"platform", {{"type", "abacus"}}},
            {"vllm_env", {{"HOME", "x"}}},
            {"selection_policy", "x"},
            {"bit_compat", "x"}};
  const std::pair<const char*, json> steps[] = {{"/version", 1},
                                                {"/name", "n"},
                                                {"/$schema", "s"},
                                                {"/projection_names", {"a", "b", "c"}},
                                                {"/num_experts", 8},
                                                {"/top_k", 2},
                                                {"/hidden_dim", 256},
                                                {"/intermediate_size", 512},
                                                {"/activation", "gelu"},
                                                {"/activation_params/alpha", nullptr},
                                                {"/has_bias", true},
                                                {"/in_dtype", "float32"},
                                                {"/out_dtype", "float32"},
                                                {"/router_logits_dtype", "float32"},
                                                {"/moe_backend", "CPU"},
                                                {"/max_num_tokens", 1},
                                                {"/apply_router_weight_on_input", false},
                                                {"/disable_inplace", false},
                                                {"/compute", "auto"},
                                                {"/activation_quant", "auto"},
                                                {"/marlin_input_dtype", "none"},
                                                {"/emulation_layout", "dense"},
                                                {"/parallel/tp_size", 1},
                                                {"/routing/method", "auto"},
                                                {"/quantization/scheme", "none"},
                                                {"/platform/type", "cpu"},
                                                {"/vllm_env/HOME", nullptr},
                                                {"/selection_policy", "vllm"},
                                                {"/bit_compat", "vllm"}};
  for (const auto& [pointer, repair] : steps) {
    EXPECT_EQ(fault_of(d), pointer);
    const json::json_pointer p{std::string(pointer)};
    if (repair.is_null()) {
      d[p.parent_pointer()].erase(p.back());
    } else {
      d[p] = repair;
    }
  }
  EXPECT_EQ(fault_of(d), "accepted");
}

TEST(Parse, ArithmeticMembers) {
  const auto q = [](const char* scheme, const char* key, const char* value) {
    return fault_of(layer_document({{"quantization", {{"scheme", scheme}}}, {key, value}}));
  };
  EXPECT_EQ(q("W4A16", "compute", "a8"), "accepted");
  EXPECT_EQ(q("W4A8", "compute", "a8"), "accepted");
  EXPECT_EQ(q("W4AFP8", "compute", "a8"), "/compute");
  EXPECT_EQ(q("none", "compute", "a8"), "/compute");
  for (const char* scheme : {"MXFP4", "MXFP4A16", "NVFP4", "NVFP4A16"})
    for (const char* compute : {"a8", "a16"}) EXPECT_EQ(q(scheme, "compute", compute), "accepted") << scheme;
  EXPECT_EQ(q("FP8", "compute", "a16"), "accepted");
  for (const char* scheme : {"FP8", "FP8_DYNAMIC", "FP8_BLOCK", "MXFP8", "MXFP8A16"}) {
    EXPECT_EQ(q(scheme, "compute", "a8"), "accepted") << scheme;
    EXPECT_EQ(q(scheme, "compute", "a4"), "/compute") << scheme;
    EXPECT_EQ(q(scheme, "compute", "mxfp8"), "/compute") << scheme;
  }
  for (const char* compute : {"a4", "mxfp8"}) {
    EXPECT_EQ(q("MXFP4", "compute", compute), "accepted");
    EXPECT_EQ(q("MXFP4A16", "compute", compute), "accepted");
    EXPECT_EQ(q("NVFP4A16", "compute", compute), "/compute");
    EXPECT_EQ(q("W4A16", "compute", compute), "/compute");
  }
  EXPECT_EQ(q("NVFP4", "compute", "a4"), "accepted");
  EXPECT_EQ(q("NVFP4", "compute", "mxfp8"), "/compute");
  EXPECT_EQ(q("W4A16", "compute", "a16"), "accepted");
  EXPECT_EQ(q("none", "compute", "a16"), "accepted");
  EXPECT_EQ(q("W4A8", "compute", "a16"), "/compute");
  EXPECT_EQ(q("W4A8", "activation_quant", "block32"), "accepted");
  EXPECT_EQ(q("W4A16", "activation_quant", "block32"), "/activation_quant");
  EXPECT_EQ(q("W4A16", "marlin_input_dtype", "int8"), "accepted");
  EXPECT_EQ(q("W8A16", "marlin_input_dtype", "int8"), "accepted");
  EXPECT_EQ(q("W8A16", "marlin_input_dtype", "fp8"), "/marlin_input_dtype");
  EXPECT_EQ(q("W4A8", "marlin_input_dtype", "int8"), "/marlin_input_dtype");
  EXPECT_EQ(q("none", "marlin_input_dtype", "int8"), "/marlin_input_dtype");
}

TEST(Parse, ConfigHoldsTheValues) {
  const json d = layer_document(
      {{"activation", "gelu_pytorch_tanh"},
       {"moe_backend", "Flashinfer-TRTLLM"},
       {"in_dtype", "float16"},
       {"out_dtype", "float32"},
       {"quantization", {{"scheme", "w4a8"}, {"group_size", 32}}},
       {"platform", {{"type", "cuda"}, {"capability", {9, 0}}, {"features", {"avx2"}}, {"cuda_version", 12080}}},
       {"routing", {{"scoring_func", "sigmoid"}, {"e_score_correction_bias", {0, 1, 2, 3, 4, 5, 6, 7.5}}}},
       {"vllm_env", {{"VLLM_USE_DEEP_GEMM", "0"}}},
       {"bit_compat", "vllm"}});
  const auto c = parse_config(d.dump());
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ(c->activation, Activation::gelu_tanh);
  EXPECT_EQ(c->moe_backend, "flashinfer_trtllm");
  EXPECT_EQ(c->in_dtype, DType::f16);
  EXPECT_EQ(c->out_dtype, DType::f32);
  EXPECT_EQ(c->router_logits_dtype, DType::f16);
  EXPECT_EQ(c->weight_groups().as_written(), 32);
  EXPECT_TRUE(c->quantization.is_w4a8_int8());
  EXPECT_EQ(c->platform_type, DeviceType::cuda);
  ASSERT_TRUE(c->platform_features);
  EXPECT_EQ(c->platform_features->count(), 1U);
  EXPECT_EQ(c->platform_facts.capability, (std::array<int, 2>{9, 0}));
  EXPECT_EQ(c->platform_facts.cuda_version, 12080);
  EXPECT_EQ(c->routing.bias, (std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7.5F}));
  EXPECT_EQ(c->vllm_env, (std::vector<std::pair<std::string, std::string>>{{"VLLM_USE_DEEP_GEMM", "0"}}));
  EXPECT_EQ(c->bit_compat, Policy::vllm);
  EXPECT_EQ(c->selection_policy, Policy::libmoe);
  EXPECT_EQ(json::parse(moe::json::write(c->resolved)), json::parse(c->canonical));
}

TEST(Parse, HfQuantizationFrame) {
  const json gptq = {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 128}, {"desc_act", true}, {"sym", true}};
  EXPECT_EQ(resolved_of(layer_document({{"hf_quantization_config", gptq}}))["quantization"]["hf"], "gptq");
  const std::string base = "/hf_quantization_config";
  EXPECT_EQ(fault_of(layer_document({{"hf_quantization_config", json::array()}})), base);
  json no_method = gptq;
  no_method.erase("quant_method");
  json d = layer_document();
  d["hf_quantization_config"] = no_method;
  EXPECT_EQ(fault_of(d), base + "/quant_method");
  for (const json& method : {json("bitsandbytes"), json(1), json(nullptr)}) {
    d["hf_quantization_config"]["quant_method"] = method;
    EXPECT_EQ(fault_of(d), base + "/quant_method");
  }
  // Sizes are judged with the whole object to blame.
  d["hf_quantization_config"] = gptq;
  d["hidden_dim"] = 200;
  EXPECT_EQ(fault_of(d), base);
  d["quantization"] = {{"scheme", "none"}};
  EXPECT_EQ(fault_of(d), base);
}

}  // namespace
}  // namespace moe::test::parse_test
