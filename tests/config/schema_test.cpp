// The embedded JSON Schema is JSON and names the members that the checks know. What it accepts is
// compared with the checks by schema_agreement.py.
#include <gtest/gtest.h>

#include "config/documents.h"
#include "support/rooms.h"

namespace moe::test::schema_test {
namespace {

using nlohmann::json;

TEST(Schema, IsJsonForDraft2020) {
  const json schema = json::parse(config_schema_text());
  EXPECT_EQ(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
  EXPECT_EQ(config_schema_text(), config_schema_text());
  EXPECT_TRUE(moe::json::parse(config_schema_text()));
}

TEST(Schema, NamesTheMembersOfTheDocument) {
  const json schema = json::parse(config_schema_text());
  const auto known = [](const std::string& place, const std::string& key) {
    json d = layer_document();
    d[json::json_pointer(place)][key] = json::array({json::array()});  // no member takes this
    const auto c = parse_config(d.dump());
    return !c && c.error().message.find("unknown member") == std::string::npos;
  };
  const std::pair<const char*, const json*> places[] = {
      {"", &schema["properties"]},
      {"/activation_params", &schema["properties"]["activation_params"]["properties"]},
      {"/parallel", &schema["$defs"]["parallel"]["properties"]},
      {"/routing", &schema["$defs"]["routing"]["properties"]},
      {"/quantization", &schema["$defs"]["quantization"]["properties"]},
      {"/platform", &schema["$defs"]["platform"]["properties"]}};
  for (const auto& [place, properties] : places) {
    EXPECT_FALSE(known(place, "not a member"));
    EXPECT_GE(properties->size(), 3U);
    for (const auto& item : properties->items()) EXPECT_TRUE(known(place, item.key())) << place << "/" << item.key();
  }
  for (const json& name : schema["properties"]["vllm_env"]["propertyNames"]["enum"])
    EXPECT_TRUE(known("/vllm_env", name.get<std::string>())) << name;
}

TEST(Schema, ExamplesAreAccepted) {
  const json schema = json::parse(config_schema_text());
  ASSERT_EQ(schema["examples"].size(), 2U);
  for (const json& example : schema["examples"]) EXPECT_EQ(fault_of(example), "accepted");
}

}  // namespace
}  // namespace moe::test::schema_test
