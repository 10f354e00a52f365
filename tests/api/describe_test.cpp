// moe_describe: topics, limits, and every golden question of the topics that are built.
#include <gtest/gtest.h>

#include "support/capi.h"

namespace moe::test {
namespace {

using nlohmann::json;

moe_status ask(const char* topic, const std::string& query, json* answer, Failure* why) {
  moe_buffer* out = nullptr;
  *why = failure([&](moe_error** e) { return moe_describe(topic, query.data(), query.size(), &out, e); });
  const BufferPtr owned(out);
  if (out != nullptr) *answer = json::parse(static_cast<const char*>(moe_buffer_data(out)));
  return why->status;
}

bool subset(const json& want, const json& have) {
  if (!want.is_object()) return want == have;
  for (const auto& [key, value] : want.items())
    if (!have.is_object() || !have.contains(key) || !subset(value, have[key])) return false;
  return true;
}

TEST(Describe, Topics) {
  json answer;
  Failure why;
  EXPECT_EQ(ask("horoscope", "{}", &answer, &why), MOE_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(why.subject, "topic");
  for (const char* topic : {"quant_config", "ocp_mx_scheme", "quant_key", "parallel_config", "routing_method",
                            "expert_map", "eplb_map", "align_block_size", "permute", "activation"})
    EXPECT_EQ(ask(topic, "{}", &answer, &why), MOE_ERR_UNSUPPORTED) << topic;
  moe_buffer* out = nullptr;
  const Failure null = failure([&](moe_error** e) { return moe_describe(nullptr, "{}", 2, &out, e); });
  EXPECT_EQ(null.status, MOE_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(null.subject, "topic");
  for (const char* topic : {"oracle", "checkpoint"}) {
    EXPECT_EQ(ask(topic, "{\"a\":1,}", &answer, &why), MOE_ERR_INVALID_CONFIG) << topic;
    EXPECT_EQ(why.subject, "");
    EXPECT_EQ(ask(topic, "[]", &answer, &why), MOE_ERR_INVALID_CONFIG) << topic;
    EXPECT_EQ(ask(topic, "{\"no_such_member\":1}", &answer, &why), MOE_ERR_INVALID_CONFIG) << topic;
  }
}

void check_oracle(const json& c) {
  json answer;
  Failure why;
  const moe_status s = ask("oracle", c["query"].dump(), &answer, &why);
  const json& expect = c["expect"];
  if (!expect.contains("error")) {
    EXPECT_EQ(s, MOE_OK) << c["id"] << why.message;
    EXPECT_TRUE(subset(expect, answer)) << c["id"] << answer.dump();
    return;
  }
  const bool unknown = expect["error"] == "unknown_backend";
  EXPECT_EQ(s, unknown ? MOE_ERR_INVALID_CONFIG : MOE_ERR_NO_BACKEND) << c["id"];
  if (unknown) {
    EXPECT_EQ(why.subject, "/moe/moe_backend") << c["id"];
  }
  EXPECT_TRUE(subset(expect, why.details)) << c["id"] << why.details.dump();
}

TEST(Describe, OracleVectors) {
  std::size_t cases = 0;
  for (const char* file : {"selection/w4a8_int8.json", "selection/int_wna16.json"}) {
    const json all = load_json(file);
    for (const json& c : all["cases"]) check_oracle(c);
    cases += all["cases"].size();
  }
  EXPECT_EQ(cases, 81U + 161U);
}

TEST(Describe, CheckpointVectors) {
  const json all = load_json("config/hf_resolution_cases.json");
  const json& cases = all.is_array() ? all : all["cases"];
  ASSERT_EQ(cases.size(), 47U);
  for (json c : cases) {
    const json resolved = c.value("resolved", json()), pointer = c.value("error_pointer", json());
    for (const char* answer : {"resolved", "error_pointer", "why"}) c.erase(answer);
    json answer;
    Failure why;
    const moe_status s = ask("checkpoint", c.dump(), &answer, &why);
    if (pointer.is_null()) {
      EXPECT_EQ(s, MOE_OK) << c.dump() << why.message;
      EXPECT_TRUE(subset(resolved, answer["resolved"])) << c.dump() << answer.dump();
    } else {
      EXPECT_NE(s, MOE_OK);
      EXPECT_EQ(why.subject, pointer) << c.dump() << why.message;
    }
  }
}

}  // namespace
}  // namespace moe::test
