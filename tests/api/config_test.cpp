// Configs through the ABI: the golden documents, getters, merge, limits.
#include <gtest/gtest.h>

#include "support/capi.h"
#include "support/rooms.h"

namespace moe::test::config_test {
namespace {

nlohmann::json resolved(const moe_config* c) {
  return json_of([&](moe_buffer** o, moe_error** e) { return moe_config_to_json(c, o, e); });
}

TEST(Config, GoldenDocuments) {
  const auto index = load_json("config/index.json");
  for (const auto& name : index["valid"]) {
    const std::string file = "config/" + name.get<std::string>();
    const ConfigPtr c = make_config(read_text(vector_path(file)));
    ASSERT_TRUE(c) << file;
    EXPECT_EQ(resolved(c.get()), load_json(file.substr(0, file.size() - 5) + ".expected.json")) << file;
  }
  for (const auto& entry : index["invalid"]) {
    const std::string text = read_text(vector_path("config/" + entry["file"].get<std::string>()));
    moe_config* out = reinterpret_cast<moe_config*>(8);
    const Failure f = failure([&](moe_error** e) { return moe_config_create(text.data(), text.size(), &out, e); });
    EXPECT_EQ(f.status, MOE_ERR_INVALID_CONFIG) << entry["file"];
    EXPECT_EQ(f.subject, entry["pointer"].get<std::string>()) << entry["file"];
    EXPECT_EQ(out, nullptr);
  }
}

TEST(Config, Getters) {
  const ConfigPtr c = make_config(read_text(vector_path("config/valid/w4a8_int8_cpu.json")));
  std::int64_t i = 0;
  double d = 0;
  const char* s = nullptr;
  EXPECT_EQ(moe_config_get_int(c.get(), "/num_experts", &i, nullptr), MOE_OK);
  EXPECT_EQ(i, 8);
  EXPECT_EQ(moe_config_get_int(c.get(), "/is_gated", &i, nullptr), MOE_OK);
  EXPECT_EQ(i, 1);
  EXPECT_EQ(moe_config_get_float(c.get(), "/routing/routed_scaling_factor", &d, nullptr), MOE_OK);
  EXPECT_EQ(d, 1.0);
  EXPECT_EQ(moe_config_get_float(c.get(), "/hidden_dim", &d, nullptr), MOE_OK);
  EXPECT_EQ(d, 4096.0);
  EXPECT_EQ(moe_config_get_string(c.get(), "/projection_names/2", &s, nullptr), MOE_OK);
  EXPECT_STREQ(s, "down_proj");
}

TEST(Config, GettersNameThePointer) {
  const ConfigPtr c = make_config(random_model().config_text());
  for (const char* pointer :
       {"/absent", "num_experts", "/activation", "/routing", "/routing/seed", "/projection_names/9", "", "/"}) {
    std::int64_t out = 7;
    const Failure f = failure([&](moe_error** e) { return moe_config_get_int(c.get(), pointer, &out, e); });
    EXPECT_EQ(f.status, MOE_ERR_INVALID_ARGUMENT) << pointer;
    EXPECT_EQ(f.subject, pointer);
    EXPECT_EQ(out, 0);
  }
  double d = 1;
  EXPECT_EQ(moe_config_get_float(c.get(), "/is_gated", &d, nullptr), MOE_ERR_INVALID_ARGUMENT);  // no number
  const char* s = "x";
  EXPECT_EQ(moe_config_get_string(c.get(), "/num_experts", &s, nullptr), MOE_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(s, nullptr);
}

TEST(Config, MergePatchesTheInput) {
  const ConfigPtr c = make_config(random_model().config_text());
  const std::string patch = R"({"num_experts_per_tok":1,"quantization":{"group_size":64}})";
  const ConfigPtr merged = make<ConfigPtr>(
      [&](moe_config** o, moe_error** e) { return moe_config_merge(c.get(), patch.data(), patch.size(), o, e); });
  EXPECT_EQ(resolved(merged.get())["top_k"], 1);
  EXPECT_EQ(resolved(merged.get())["quantization"]["weights"]["group_size"], 64);
  EXPECT_EQ(resolved(c.get())["top_k"], 2);
  moe_config* out = nullptr;
  const Failure f =
      failure([&](moe_error** e) { return moe_config_merge(c.get(), "{\"top_k\":0}", MOE_NUL_TERMINATED, &out, e); });
  EXPECT_EQ(f.status, MOE_ERR_INVALID_CONFIG);
  EXPECT_EQ(f.subject, "/top_k");
}

TEST(Config, HostileTexts) {
  const std::string good = random_model().config_text();
  moe_config* out = nullptr;
  const auto status = [&](const std::string& text) {
    return moe_config_create(text.data(), text.size(), &out, nullptr);
  };
  for (std::size_t n = 0; n < good.size(); ++n) ASSERT_EQ(status(good.substr(0, n)), MOE_ERR_INVALID_CONFIG) << n;
  EXPECT_EQ(status(std::string(5000000, '[')), MOE_ERR_INVALID_CONFIG);
  EXPECT_EQ(status(good + std::string(1 << 20, ' ')), MOE_ERR_INVALID_CONFIG);
  EXPECT_EQ(status("\xef\xbb\xbf" + good), MOE_ERR_INVALID_CONFIG);
  EXPECT_EQ(status(good + std::string(1, '\0')), MOE_ERR_INVALID_CONFIG);
  const Failure f = failure([&](moe_error** e) { return moe_config_create("{\"a\":}", MOE_NUL_TERMINATED, &out, e); });
  EXPECT_EQ(f.subject, "");
  EXPECT_EQ(f.details["offset"], 5);
}

TEST(Config, FromHuggingFace) {
  const std::string hf = R"({"architectures":["Qwen3MoeForCausalLM"],"model_type":"qwen3_moe","num_experts":8,
    "num_experts_per_tok":2,"hidden_size":64,"moe_intermediate_size":96,"hidden_act":"silu","norm_topk_prob":true,
    "num_hidden_layers":2,"decoder_sparse_step":1,"mlp_only_layers":[],"torch_dtype":"bfloat16"})";
  const ConfigPtr c = make<ConfigPtr>([&](moe_config** o, moe_error** e) {
    return moe_config_create_from_hf(hf.data(), hf.size(), "{\"layer_index\":1}", MOE_NUL_TERMINATED, o, e);
  });
  EXPECT_EQ(resolved(c.get())["num_experts"], 8);
  EXPECT_EQ(resolved(c.get())["name"], "model.layers.1.mlp.experts");
  moe_config* out = nullptr;
  const Failure f = failure([&](moe_error** e) {
    return moe_config_create_from_hf(hf.data(), hf.size(), "{\"layer_index\":\"one\"}", MOE_NUL_TERMINATED, &out, e);
  });
  EXPECT_EQ(f.status, MOE_ERR_INVALID_CONFIG);
  EXPECT_EQ(f.subject, "options:/layer_index");
}

TEST(Config, SchemaIsJson) {
  const auto schema = nlohmann::json::parse(moe_config_schema_json());
  EXPECT_EQ(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
  EXPECT_TRUE(schema["properties"].contains("num_experts"));
}

}  // namespace
}  // namespace moe::test::config_test
