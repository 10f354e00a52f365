// Variants of a configuration by merge patches: on the document as given, aliases or not, checked anew.
#include <gtest/gtest.h>

#include "config/documents.h"
#include "support/rooms.h"

namespace moe::test::merge_test {
namespace {

using nlohmann::json;

Result<Config> merged(const json& document, const json& patch) {
  const auto c = parse_config(document.dump());
  EXPECT_TRUE(c) << document.dump();
  return merge_config(*c, patch.dump());
}
json resolved(const json& document, const json& patch) {
  const auto c = merged(document, patch);
  EXPECT_TRUE(c) << patch.dump() << ": " << (c ? "" : c.error().message);
  return c ? json::parse(c->canonical) : json();
}
std::string fault(const json& document, const json& patch) {
  const auto c = merged(document, patch);
  if (c) return "accepted";
  EXPECT_EQ(c.error().code, Code::invalid_config);
  return c.error().subject;
}

TEST(Merge, SetsReplacesAndRemoves) {
  const json d = layer_document({{"moe_backend", "cpu"}, {"parallel", {{"tp_size", 2}, {"tp_rank", 1}}}});
  EXPECT_EQ(resolved(d, json::object()), resolved_of(d));
  EXPECT_EQ(resolved(d, {{"moe_backend", "marlin"}})["moe_backend"], "marlin");
  EXPECT_EQ(resolved(d, {{"moe_backend", nullptr}})["moe_backend"], "auto");
  EXPECT_EQ(resolved(d, {{"parallel", {{"tp_rank", 0}}}})["parallel"]["tp_rank"], 0);
  EXPECT_EQ(resolved(d, {{"parallel", nullptr}})["intermediate_size_per_partition"], 512);
  EXPECT_EQ(resolved(d, {{"has_bias", true}})["has_bias"], true);
}

TEST(Merge, AliasesAreOneSetting) {
  json d = layer_document({{"top_k", nullptr}, {"hidden_dim", nullptr}, {"intermediate_size", nullptr}});
  d["num_experts_per_tok"] = 2;
  d["hidden_size"] = 256;
  d["moe_intermediate_size"] = 512;
  EXPECT_EQ(resolved(d, {{"top_k", 4}})["top_k"], 4);
  EXPECT_EQ(resolved(d, {{"experts_per_token", 4}})["top_k"], 4);
  EXPECT_EQ(resolved(d, {{"num_experts_per_tok", 4}})["top_k"], 4);
  EXPECT_EQ(resolved(d, {{"hidden_dim", 128}})["hidden_dim"], 128);
  EXPECT_EQ(resolved(d, {{"intermediate_size", 64}})["intermediate_size_per_partition"], 64);
  EXPECT_EQ(resolved(d, {{"top_k", nullptr}, {"experts_per_token", 3}})["top_k"], 3);
  EXPECT_EQ(resolved(d, {{"top_k", 3}, {"experts_per_token", nullptr}})["top_k"], 3);
  // Pointers speak of the merged document, which has the first names.
  EXPECT_EQ(fault(d, {{"num_experts_per_tok", 9}}), "/top_k");
  EXPECT_EQ(fault(d, {{"hidden_size", nullptr}}), "/hidden_dim");
  EXPECT_EQ(fault(d, {{"top_k", 3}, {"experts_per_token", 3}}), "/experts_per_token");
  EXPECT_EQ(fault(d, {{"experts_per_token", 3}, {"num_experts_per_tok", 3}}), "/num_experts_per_tok");
}

TEST(Merge, OneWidthTakesThePlaceOfTheOther) {
  const json d = layer_document({{"parallel", {{"tp_size", 2}}}});
  json r = resolved(d, {{"intermediate_size_per_partition", 64}});
  EXPECT_EQ(r["intermediate_size_per_partition"], 64);
  const auto part = merged(d, {{"intermediate_size_per_partition", 64}});
  ASSERT_TRUE(part);
  EXPECT_EQ(part->intermediate_size, 128);
  const auto whole = merge_config(*part, R"({"moe_intermediate_size":1024})");
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->intermediate_size_per_partition, 512);
  EXPECT_EQ(fault(d, {{"intermediate_size", 64}, {"intermediate_size_per_partition", 32}}),
            "/intermediate_size_per_partition");
  EXPECT_EQ(fault(d, {{"intermediate_size", nullptr}}), "/intermediate_size");
}

TEST(Merge, ChecksAnew) {
  const json d = layer_document({{"quantization", {{"scheme", "W4A8"}, {"group_size", 128}}}});
  EXPECT_EQ(fault(d, {{"hidden_dim", 192}}), "/quantization/group_size");
  EXPECT_EQ(fault(d, {{"quantization", {{"weights", json::object()}}}}), "/quantization/weights");
  EXPECT_EQ(fault(d, {{"unknown", 1}}), "/unknown");
  EXPECT_EQ(fault(d, {{"hf_quantization_config", {{"quant_method", "fp8"}}}}), "/hf_quantization_config");
  EXPECT_EQ(resolved(d, {{"quantization", nullptr}})["quantization"]["format"], "none");
  // A patch that is no object takes the place of the document.
  EXPECT_EQ(fault(d, json::array()), "");
  EXPECT_EQ(fault(d, nullptr), "");
}

TEST(Merge, BadTextAndSize) {
  const auto c = parse_config(layer_document().dump());
  ASSERT_TRUE(c);
  for (const char* text : {"", "{", "{\"a\":1,\"a\":2}", "{} x"}) {
    const auto m = merge_config(*c, text);
    ASSERT_FALSE(m) << text;
    EXPECT_EQ(m.error().code, Code::invalid_config);
    EXPECT_EQ(m.error().subject, "");
  }
  // Two documents that fit, one that does not.
  json d = layer_document();
  d["hf_quantization_config"] = {
      {"quant_method", "fp8"}, {"activation_scheme", "dynamic"}, {"a", std::string(600'000, 'a')}};
  EXPECT_EQ(fault(d, {{"hf_quantization_config", {{"a", "b"}}}}), "accepted");
  EXPECT_EQ(fault(d, {{"hf_quantization_config", {{"b", std::string(600'000, 'b')}}}}), "");
}

TEST(Merge, ChainsKeepTheDocument) {
  auto c = parse_config(layer_document({{"name", "a"}}).dump());
  ASSERT_TRUE(c);
  for (int k = 1; k <= 8; ++k) {
    c = merge_config(*c, json{{"num_experts_per_tok", k}}.dump());
    ASSERT_TRUE(c);
    EXPECT_EQ(c->top_k, k);
    EXPECT_EQ(c->name, "a");
    EXPECT_EQ(c->input.object()->size(), 5U);
  }
}

}  // namespace
}  // namespace moe::test::merge_test
