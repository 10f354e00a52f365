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

}  // namespace
}  // namespace moe::test::golden_test
