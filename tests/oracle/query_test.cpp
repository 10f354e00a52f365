// Describe queries: members, defaults, key forms, and the pointer of each fault (describe.md 1, 2).
#include "oracle/query.h"

#include <gtest/gtest.h>

#include "oracle/selection.h"
#include "support/rooms.h"
#include "support/vectors.h"

namespace moe::test::query_test {
namespace {

Result<Query> query(const std::string& text) {
  auto v = json::parse(text);
  if (!v) return v.error();
  return parse_query(*v);
}

std::string with(const std::string& member) {
  return R"({"oracle": "int_wna16", "platform": {"type": "cpu"}, )" + member + "}";
}

TEST(Query, Defaults) {
  const auto q = query(R"({"oracle": "w4a8_int8", "platform": {"type": "cpu", "arch": "aarch64"}})");
  ASSERT_TRUE(q) << q.error().message;
  EXPECT_EQ(q->oracle, OracleId::w4a8_int8);
  EXPECT_EQ(q->policy, Policy::vllm);
  EXPECT_EQ(q->platform.arch, Arch::aarch64);
  EXPECT_EQ(q->moe.moe_backend, "auto");
  EXPECT_EQ(q->moe.activation, Activation::silu);
  EXPECT_TRUE(q->moe.is_act_and_mul);
  EXPECT_EQ(q->moe.routing_method, RoutingMethod::default_);
  EXPECT_EQ(q->moe.in_dtype, "bfloat16");
  EXPECT_FALSE(q->weight_key || q->activation_key || q->user_activation);
  EXPECT_FALSE(q->batch_invariant());
}

TEST(Query, MembersArrive) {
  const auto q =
      query(with(R"("moe": {"hidden_dim": 8.0, "activation": "gelu_pytorch_tanh", "routing_method": "DeepseekV4",
    "parallel": {"dp_size": 2, "use_ep": true, "all2all_backend": "nixl_ep"}}, "env": {"VLLM_BATCH_INVARIANT": "1"})"));
  ASSERT_TRUE(q) << q.error().message;
  EXPECT_EQ(q->moe.hidden_dim, 8);
  EXPECT_EQ(q->moe.activation, Activation::gelu_tanh);
  EXPECT_EQ(q->moe.routing_method, RoutingMethod::deepseek_v4);
  EXPECT_TRUE(q->moe.parallel.batched());
  EXPECT_TRUE(q->batch_invariant());
}

struct Fault {
  std::string text, pointer;
};

TEST(Query, FaultsHavePointers) {
  const Fault faults[] = {
      {"[]", ""},
      {"{}", "/oracle"},
      {R"({"oracle": "int_wna16"})", "/platform"},
      {R"({"oracle": "wna16", "platform": {"type": "cpu"}})", "/oracle"},
      {R"({"oracle": "int_wna16", "platform": {}})", "/platform/type"},
      {R"({"oracle": "int_wna16", "platform": {"type": "auto"}})", "/platform/type"},
      {R"({"oracle": "int_wna16", "platform": {"type": "vulkan"}})", "/platform/type"},
      {R"({"oracle": "int_wna16", "platform": {"type": "cpu", "isa": "avx2"}})", "/platform/isa"},
      {with(R"("colour": 1)"), "/colour"},
      {with(R"("a/b~": 1)"), "/a~1b~0"},
      {with(R"("moe": null)"), "/moe"},
      {with(R"("moe": {"activation": "SILU"})"), "/moe/activation"},
      {with(R"("moe": {"activation": null})"), "/moe/activation"},
      {with(R"("moe": {"is_act_and_mul": 1})"), "/moe/is_act_and_mul"},
      {with(R"("moe": {"routing_method": "default"})"), "/moe/routing_method"},
      {with(R"("moe": {"hidden_dim": 8.5})"), "/moe/hidden_dim"},
      {with(R"("moe": {"hidden_dim": 1e300})"), "/moe/hidden_dim"},
      {with(R"("moe": {"hidden_dim": true})"), "/moe/hidden_dim"},
      {with(R"("moe": {"num_experts": -1})"), "/moe/num_experts"},
      {with(R"("moe": {"parallel": {"ep_size": 0}})"), "/moe/parallel/ep_size"},
      {with(R"("moe": {"parallel": {"rank": 0}})"), "/moe/parallel/rank"},
      {with(R"("moe": {"in_dtype": 16})"), "/moe/in_dtype"},
      {with(R"("weight_key": "kInt5Static")"), "/weight_key"},
      {with(R"("weight_key": 4)"), "/weight_key"},
      {with(R"("weight_key": {})"), "/weight_key/dtype"},
      {with(R"("weight_key": {"dtype": "int8", "scale_dtype": "bf16", "static": true, "group": [1]})"),
       "/weight_key/group"},
      {with(R"("weight_key": {"dtype": "int8", "scale_dtype": "bf16", "static": true, "group": [1, 0]})"),
       "/weight_key/group/1"},
      {with(R"("weight_key": {"dtype": "int8", "scale_dtype": "int9", "static": true, "group": [1, 4]})"),
       "/weight_key/scale_dtype"},
      {with(R"("activation_key": {"dtype": "int8", "scale": {"dtype": "fp32"}})"), "/activation_key/scale/static"},
      {with(R"("activation_key": {"dtype": "int8", "scale": null})"), "/activation_key/scale"},
      {with(R"("user_activation": {})"), "/user_activation"},
      {with(R"("allow_vllm_cutlass": null)"), "/allow_vllm_cutlass"},
      {with(R"("env": {"HOME": "/"})"), "/env/HOME"},
      {with(R"("env": {"VLLM_BATCH_INVARIANT": 1})"), "/env/VLLM_BATCH_INVARIANT"},
  };
  for (const Fault& f : faults) {
    SCOPED_TRACE(f.text);
    const auto q = query(f.text);
    ASSERT_FALSE(q);
    EXPECT_EQ(q.error().code, Code::invalid_config);
    EXPECT_EQ(q.error().subject, f.pointer);
    EXPECT_FALSE(q.error().message.empty());
  }
}

// Oracles of one kind of weights need no key; fp8 and nvfp4 are asked about the keys that they get, here none.
TEST(Query, KeysThatAreNotGiven) {
  struct Row {
    const char *name, *weight, *activation, *backend;  // nullptr: none accepts
  };
  const Row rows[] = {{"fp8", "none", "none", nullptr},
                      {"nvfp4", "none", "none", nullptr},
                      {"mxfp8", "kMxfp8Static", "kMxfp8Dynamic", "MARLIN"},
                      {"mxfp4", "kMxfp4Static", "none", "MARLIN"},
                      {"mxfp4_deepseek_v4", "kMxfp4Static", "none", "MARLIN"}};
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    const std::string text =
        std::string(R"({"oracle": ")") + row.name + R"(", "platform": {"type": "cuda", "capability": [9, 0]}})";
    const auto q = query(text);
    ASSERT_TRUE(q);
    EXPECT_EQ(key_text(q->weight_key), row.weight);
    EXPECT_EQ(key_text(q->activation_key), row.activation);
    const auto answer = describe_oracle(*json::parse(text));
    ASSERT_EQ(static_cast<bool>(answer), row.backend != nullptr);
    if (!answer) {
      EXPECT_EQ(answer.error().code, Code::no_backend);
      const auto details = nlohmann::json::parse("{" + answer.error().details + "}");
      EXPECT_EQ(details.at("candidates").back().at("reason"),
                row.name == std::string("fp8") ? "device" : "quant_scheme");
    } else {
      EXPECT_EQ(nlohmann::json::parse(*answer).at("backend"), row.backend);
    }
  }
}

// What only a config leads to has no question.
TEST(Query, W4a8Fp8IsNoOracleOfVllm) {
  const auto q = query(R"({"oracle": "w4a8_fp8", "platform": {"type": "cpu"}})");
  ASSERT_FALSE(q);
  EXPECT_EQ(q.error().subject, "/oracle");
  EXPECT_EQ(q.error().message.find("w4a8_fp8,"), std::string::npos);
}

// --- keys -----------------------------------------------------------------------------------------------

Result<std::optional<QuantKey>> key(const std::string& text) {
  auto v = json::parse(text);
  if (!v) return v.error();
  return parse_key(*v, "/k");
}

TEST(Keys, CatalogueEqualsTheVectors) {
  const nlohmann::json rows = load_json("config/quant_keys.json");
  EXPECT_EQ(rows.size(), 18u);
  for (const auto& [name, object] : rows.items()) {
    SCOPED_TRACE(name);
    const QuantKey* row = find_key(name);
    ASSERT_NE(row, nullptr);
    const auto read = key(object.dump());
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(**read, *row);
  }
}

TEST(Keys, BothFormsAndAllSpellings) {
  const QuantKey expected = key_named("kInt4W4A8StaticGroup64Sym");
  for (
      const char* text :
      {R"("kInt4W4A8StaticGroup64Sym")",
       R"({"dtype": "int8", "scale_dtype": "bfloat16", "static": true, "group": [1, 64], "symmetric": true})",
       R"({"dtype": "int8", "scale_dtype": "bf16", "static": true, "group": [1, 64]})",
       R"({"dtype": "int8", "scale": {"dtype": "bf16", "static": true, "group_shape": [1, 64]}, "scale2": null, "symmetric": true})"}) {
    const auto k = key(text);
    ASSERT_TRUE(k) << text << k.error().message;
    EXPECT_EQ(*k, expected) << text;
  }
  EXPECT_EQ(*key("null"), std::nullopt);
}

TEST(Keys, EqualityIsByValue) {
  EXPECT_EQ(key_named("kInt8StaticChannelSym"), key_named("kInt4W4A8StaticChannelSym"));
  EXPECT_NE(key_named("kInt4Static"), key_named("kInt4Static32"));
  EXPECT_NE(key_named("kNvfp4Static"), key_named("kNvfp4Dynamic"));
  EXPECT_NE(key_named("kInt4StaticAsym"), key_named("kInt4Static"));
}

TEST(Keys, AnswersUseTheNameOrTheLongForm) {
  EXPECT_EQ(json::write(key_to_json(key_named("kInt4Static32"))), "\"kInt4Static32\"");
  EXPECT_EQ(json::write(key_to_json(std::nullopt)), "null");
  const auto odd = key(R"({"dtype": "int8", "scale_dtype": "bf16", "static": true, "group": [1, 96]})");
  ASSERT_TRUE(odd);
  const json::Value v = key_to_json(*odd);
  EXPECT_EQ(
      json::write(v),
      R"({"dtype":"int8","scale":{"dtype":"bf16","static":true,"group_shape":[1,96]},"scale2":null,"symmetric":true})");
  EXPECT_EQ(**parse_key(v, ""), **odd);
}

}  // namespace
}  // namespace moe::test::query_test
