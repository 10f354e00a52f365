// moe_describe: topics, limits, and the golden questions of oracle and checkpoint.
#include <gtest/gtest.h>

#include "support/describe.h"
#include "support/rooms.h"

namespace moe::test::describe_test {
namespace {

using nlohmann::json;

TEST(Describe, Topics) {
  const Failure unknown = describe("horoscope", "{}").why;
  EXPECT_EQ(unknown.status, MOE_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(unknown.subject, "topic");
  moe_buffer* out = nullptr;
  const Failure null = failure([&](moe_error** e) { return moe_describe(nullptr, "{}", 2, &out, e); });
  EXPECT_EQ(null.status, MOE_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(null.subject, "topic");
}

// The rules of every query.
TEST(Describe, EveryTopicReadsStrictly) {
  for (const char* topic : {"oracle", "quant_config", "ocp_mx_scheme", "quant_key", "parallel_config", "routing_method",
                            "expert_map", "eplb_map", "align_block_size", "permute", "activation", "checkpoint"}) {
    const std::string deep = std::string("{\"a\":") + std::string(40, '[') + std::string(40, ']') + "}";
    for (const std::string& text :
         {std::string("{\"a\":1,}"), std::string("[]"), std::string("null"), std::string("7"), std::string(),
          std::string("{\"a\":1,\"a\":1}"), deep, std::string("\xef\xbb\xbf{}")}) {
      const Failure why = describe(topic, text).why;
      EXPECT_EQ(why.status, MOE_ERR_INVALID_CONFIG) << topic << " " << text;
      EXPECT_EQ(why.subject, "") << topic << " " << text;
    }
    const Failure why = describe(topic, "{\"no/such~member\":1}").why;
    EXPECT_EQ(why.status, MOE_ERR_INVALID_CONFIG) << topic;
    // "checkpoint" cannot tell which of its two forms this is.
    EXPECT_EQ(why.subject, std::string(topic) == "checkpoint" ? "" : "/no~1such~0member") << topic;
  }
}

void check_oracle(const json& c) {
  const auto [why, answer] = describe("oracle", c["query"].dump());
  const moe_status s = why.status;
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
  for (const char* file : {"selection/w4a8_int8.json", "selection/int_wna16.json", "selection/unquantized.json",
                           "selection/int8.json", "selection/fp8.json", "selection/mxfp8.json", "selection/nvfp4.json",
                           "selection/mxfp4.json", "selection/mxfp4_deepseek_v4.json"}) {
    const json all = load_json(file);
    for (const json& c : all["cases"]) check_oracle(c);
    cases += all["cases"].size();
  }
  EXPECT_EQ(cases, 81U + 161U + 464U);
}

TEST(Describe, CheckpointVectors) {
  const json all = load_json("config/hf_resolution_cases.json");
  const json& cases = all.is_array() ? all : all["cases"];
  ASSERT_EQ(cases.size(), 47U);
  for (json c : cases) {
    const json resolved = c.value("resolved", json()), pointer = c.value("error_pointer", json());
    for (const char* answer : {"resolved", "error_pointer", "why"}) c.erase(answer);
    const auto [why, answer] = describe("checkpoint", c.dump());
    const moe_status s = why.status;
    if (pointer.is_null()) {
      EXPECT_EQ(s, MOE_OK) << c.dump() << why.message;
      EXPECT_TRUE(subset(resolved, answer.at("resolved"))) << c.dump() << answer.dump();
    } else {
      EXPECT_NE(s, MOE_OK);
      EXPECT_EQ(why.subject, pointer.get<std::string>()) << c.dump() << why.message;
    }
  }
}

}  // namespace
}  // namespace moe::test::describe_test
