// moe_describe("oracle") against vectors/selection: every case, answers compared by subset, failures by
// status, subject and the details that the vector fixes.
#include <gtest/gtest.h>

#include <string>

#include "oracle/selection.h"
#include "support/rooms.h"
#include "support/vectors.h"

namespace moe::test::golden_test {
namespace {

using nlohmann::json;

struct Golden {
  const char* file;
  std::size_t cases;
};

// Every member of `want` is in `have` with the same value.
void expect_subset(const json& have, const json& want) {
  for (const auto& [key, value] : want.items()) {
    ASSERT_TRUE(have.contains(key)) << key << " in " << have.dump();
    EXPECT_EQ(have[key], value) << key;
  }
}

// Rules of every answer, accepted or not.
void expect_sound(const json& candidates) {
  for (const json& c : candidates) {
    EXPECT_FALSE(c.at("backend").get<std::string>().empty());
    EXPECT_TRUE(c.at("experts").is_null() || !c.at("experts").get<std::string>().empty());
    EXPECT_EQ(c.at("accepted").get<bool>(), c.at("reason").is_null()) << c.dump();
    EXPECT_EQ(c.at("accepted").get<bool>(), c.at("detail").get<std::string>().empty()) << c.dump();
  }
}

void check_failure(const Error& e, const json& expect) {
  const json details = json::parse("{" + e.details + "}");
  EXPECT_FALSE(e.message.empty());
  EXPECT_EQ(details.at("error"), expect.at("error"));
  if (expect.at("error") == "unknown_backend") {
    EXPECT_EQ(e.code, Code::invalid_config);
    EXPECT_EQ(e.subject, "/moe/moe_backend");
    return;
  }
  EXPECT_EQ(e.code, Code::no_backend);
  expect_subset(details, expect);
  expect_sound(details.at("candidates"));
  for (const json& c : details.at("candidates")) EXPECT_FALSE(c.at("accepted").get<bool>());
}

void check_answer(const std::string& text, const json& expect) {
  const json answer = json::parse(text);
  expect_subset(answer, expect);
  EXPECT_EQ(answer.contains("warning"), expect.contains("warning"));
  expect_sound(answer.at("candidates"));
  for (const json& c : answer.at("candidates")) {  // the first that accepts is the answer
    if (!c.at("accepted").get<bool>()) continue;
    EXPECT_EQ(c.at("backend"), answer.at("backend"));
    EXPECT_EQ(c.at("experts"), answer.at("experts"));
    break;
  }
}

class GoldenSelection : public testing::TestWithParam<Golden> {};

TEST_P(GoldenSelection, EveryCase) {
  const json cases = load_json(std::string("selection/") + GetParam().file).at("cases");
  EXPECT_EQ(cases.size(), GetParam().cases);
  for (const json& c : cases) {
    SCOPED_TRACE(c.at("id").get<std::string>() + ": " + c.at("note").get<std::string>());
    const auto query = moe::json::parse(c.at("query").dump());
    ASSERT_TRUE(query) << query.error().message;
    const Result<std::string> answer = describe_oracle(*query);
    const json& expect = c.at("expect");
    ASSERT_EQ(static_cast<bool>(answer), !expect.contains("error")) << (answer ? *answer : answer.error().message);
    if (answer)
      check_answer(*answer, expect);
    else
      check_failure(answer.error(), expect);
  }
}

INSTANTIATE_TEST_SUITE_P(Vectors, GoldenSelection,
                         testing::Values(Golden{"w4a8_int8.json", 81}, Golden{"int_wna16.json", 161},
                                         Golden{"unquantized.json", 67}, Golden{"int8.json", 26},
                                         Golden{"fp8.json", 84}, Golden{"mxfp8.json", 34}, Golden{"nvfp4.json", 58},
                                         Golden{"mxfp4.json", 129}, Golden{"mxfp4_deepseek_v4.json", 66}),
                         [](const auto& p) {
                           const std::string file = p.param.file;
                           return file.substr(0, file.find('.'));
                         });

// What vLLM 0.33.0 itself answered on faked CPUs: [platform, oracle, activation, routing, in_dtype, backend, experts].
// "raise": the call raises.
json november_query(const json& row) {
  static const json platforms = json::parse(R"({
    "x86_amx": {"type": "cpu", "arch": "x86_64", "features": ["amx_tile", "amx_int8", "amx_bf16"]},
    "x86_amx_fp8": {"type": "cpu", "arch": "x86_64", "features": ["amx_tile", "amx_int8", "amx_bf16", "amx_fp8"]},
    "x86": {"type": "cpu", "arch": "x86_64", "features": []},
    "arm": {"type": "cpu", "arch": "aarch64", "features": ["dotprod", "i8mm", "bf16"],
            "libs": {"torch_dyn_quant_4bit": true}}})");
  static const json keys = json::parse(R"({
    "int8": ["kInt8StaticChannelSym", "kInt8DynamicTokenSym"], "fp8": ["kFp8Static128BlockSym", "kFp8Dynamic128Sym"],
    "fp8t": ["kFp8StaticTensorSym", "kFp8StaticTensorSym"], "fp8c": ["kFp8StaticChannelSym", "kFp8DynamicTokenSym"],
    "unquantized": [null, null], "mxfp4": ["kMxfp4Static", null], "mxfp4_deepseek_v4": ["kMxfp4Static", null],
    "int_wna16": ["kInt4Static", null], "nvfp4": ["kNvfp4Static", "kNvfp4Dynamic"],
    "mxfp8": ["kMxfp8Static", "kMxfp8Dynamic"], "w4a8_int8": ["kInt4W4A8StaticChannelSym", null]})");
  const auto oracle = row[1].get<std::string>();
  return {{"oracle", oracle.rfind("fp8", 0) == 0 ? "fp8" : oracle},
          {"profile", "2026-11"},
          {"platform", platforms.at(row[0].get<std::string>())},
          {"moe",
           {{"activation", row[2]},
            {"routing_method", row[3]},
            {"in_dtype", row[4]},
            {"hidden_dim", 2048},
            {"intermediate_size_per_partition", 1024},
            {"num_experts", 64},
            {"experts_per_token", 8}}},
          {"weight_key", keys.at(oracle)[0]},
          {"activation_key", keys.at(oracle)[1]}};
}

TEST(GoldenSelectionOfNovember, EveryCase) {
  const json rows = load_json("selection/vllm_0_33_cpu.json");
  ASSERT_EQ(rows.size(), 2374u);
  int others = 0;  // than those of May
  for (const json& row : rows) {
    SCOPED_TRACE(row.dump());
    json query = november_query(row);
    const Result<std::string> answer = describe_oracle(*moe::json::parse(query.dump()));
    if (row[5] == "raise") {
      ASSERT_FALSE(answer) << *answer;
      check_failure(answer.error(), {{"error", "none"}});
    } else {
      ASSERT_TRUE(answer) << answer.error().message;
      check_answer(*answer, {{"backend", row[5]}, {"experts", row[6]}});
    }
    query["profile"] = "2026-05";
    const Result<std::string> may = describe_oracle(*moe::json::parse(query.dump()));
    others += static_cast<bool>(may) != static_cast<bool>(answer) ||
              (may && json::parse(*may).at("experts") != json::parse(*answer).at("experts"));
  }
  EXPECT_GT(others, 300);
}

}  // namespace
}  // namespace moe::test::golden_test
