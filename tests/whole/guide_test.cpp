// The guide for callers, include_c/README.md: its documents work, and it describes every member of a config.
#include <gtest/gtest.h>

#include "support/capi.h"
#include "support/rooms.h"

namespace moe::test::guide_test {
namespace {

std::string guide() { return read_text(vector_path("../../include_c/README.md")); }

constexpr char kMachine[] = R"({"type": "cpu", "arch": "x86_64", "features": ["avx2", "fma", "f16c"]})";

// For the options that the guide shows.
constexpr char kNovelty[] = R"({"architectures": ["NoveltyForCausalLM"], "n_experts": 8, "num_experts_per_tok": 2,
  "hidden_size": 64, "expert_dim": 64, "hidden_act": "silu", "num_hidden_layers": 3, "first_k_dense_replace": 1})";

// A document for a config, or options for a config.json.
ConfigPtr config_of(const std::string& document) {
  return make<ConfigPtr>([&](moe_config** o, moe_error** e) {
    return document.starts_with("{\"architecture\"")
               ? moe_config_create_from_hf(kNovelty, sizeof kNovelty - 1, document.data(), document.size(), o, e)
               : moe_config_create(document.data(), document.size(), o, e);
  });
}

TEST(Guide, DocumentsAreSelected) {
  const std::string text = guide();
  constexpr std::string_view kBegin = "```json\n";
  const auto machine = make<PlatformPtr>(
      [&](moe_platform** o, moe_error** e) { return moe_platform_create(kMachine, sizeof kMachine - 1, o, e); });
  int documents = 0;
  for (std::size_t at = 0; (at = text.find(kBegin, at)) != std::string::npos; ++documents) {
    at += kBegin.size();
    const std::string document = text.substr(at, text.find("```", at) - at);
    SCOPED_TRACE(document);
    const ConfigPtr config = config_of(document);
    ASSERT_NE(config, nullptr);
    const auto selection = make<SelectionPtr>([&](moe_selection** o, moe_error** e) {
      return moe_select_backend(nullptr, config.get(), machine.get(), 0, o, e);
    });
    ASSERT_NE(selection, nullptr);
    EXPECT_NE(std::string(moe_selection_kernel(selection.get())), "");
  }
  EXPECT_GE(documents, 10);
}

// In the guide a member stands in backticks.
void expect_described(const nlohmann::json& schema, const std::string& text, const std::string& where) {
  if (schema.is_array())
    for (const auto& part : schema) expect_described(part, text, where);
  if (!schema.is_object()) return;
  for (const auto& [key, value] : schema.items()) {
    if (key == "properties") {
      for (const auto& [name, member] : value.items()) {
        EXPECT_NE(text.find("`" + name + "`"), std::string::npos) << where << "/" << name;
      }
    }
    if (key != "hf_quantization_config" && key != "vllm_env" && key != "libs")
      expect_described(value, text, where + "/" + key);
  }
}

TEST(Guide, DescribesEveryMember) {
  const auto schema = nlohmann::json::parse(moe_config_schema_json());
  ASSERT_TRUE(schema.contains("properties"));
  expect_described(schema, guide(), "");
}

}  // namespace
}  // namespace moe::test::guide_test
