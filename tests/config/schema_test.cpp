// The embedded JSON Schema is JSON and names the members that the checks know. What it accepts is
// compared with the checks by schema_agreement.py.
#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <string>

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

// The bounds of an integer: those of the schema of a member, or of the elements of its arrays.
struct Bounds {
  std::int64_t least, most;
  bool of_elements = false;
};
std::optional<Bounds> bounds_of(const json& schema) {
  if (schema.contains("minimum") && schema.contains("maximum") && schema.value("type", json()) == "integer")
    return Bounds{schema["minimum"], schema["maximum"]};
  if (schema.contains("items")) {
    std::optional<Bounds> bounds = bounds_of(schema["items"]);
    if (bounds) bounds->of_elements = true;
    return bounds;
  }
  for (const json& choice : schema.value("anyOf", json::array()))
    if (const auto bounds = bounds_of(choice)) return bounds;
  return std::nullopt;
}

// What is just beyond them is refused, and the message names the same bounds (of group_size in its own words).
TEST(Schema, BoundsAreThoseOfTheReaders) {
  const json schema = json::parse(config_schema_text());
  const json& defs = schema["$defs"];
  json quantized = layer_document();
  quantized["quantization"] = {
      {"format", "naive-quantized"},
      {"weights", {{"num_bits", 8}, {"type", "float"}, {"strategy", "block"}, {"block_structure", {128, 128}}}}};
  int found = 0;
  for (const auto& [place, members] :
       {std::pair(std::string(), schema["properties"]),
        std::pair(std::string("/parallel"), defs["parallel"]["properties"]),
        std::pair(std::string("/routing"), defs["routing"]["properties"]),
        std::pair(std::string("/platform"), defs["platform"]["properties"]),
        std::pair(std::string("/quantization/weights"), defs["weight_args"]["properties"])})
    for (const auto& [key, member] : members.items()) {
      const std::optional<Bounds> bounds = bounds_of(member);
      if (!bounds) continue;
      const std::string most = std::to_string(bounds->most);
      const std::string range = key == "group_size" ? most : "[" + std::to_string(bounds->least) + ", " + most + "]";
      const bool ends = bounds->most == std::numeric_limits<std::int64_t>::max();  // nothing is beyond
      for (const std::int64_t beyond : {bounds->least - 1, ends ? bounds->least - 1 : bounds->most + 1}) {
        json d = quantized;
        json& value = d[json::json_pointer(place)][key];
        value = bounds->of_elements ? json{beyond, beyond} : json(beyond);
        const auto c = parse_config(d.dump());
        ASSERT_FALSE(c) << d;
        if (c.error().message.find("the same setting as") != std::string::npos) continue;  // another name
        EXPECT_NE(c.error().message.find(range), std::string::npos) << place << "/" << key << c.error().message;
        ++found;
      }
    }
  EXPECT_GT(found, 40);
}

TEST(Schema, ExamplesAreAccepted) {
  const json schema = json::parse(config_schema_text());
  ASSERT_EQ(schema["examples"].size(), 2U);
  for (const json& example : schema["examples"]) EXPECT_EQ(fault_of(example), "accepted");
}

}  // namespace
}  // namespace moe::test::schema_test
