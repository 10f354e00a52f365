// The lists `method` and `detect` of vectors/w4a8_int8/selection.json: which checkpoints are W4A8-int8, and
// what vLLM's quantization method does before and with the oracle (w4a8_int8.md 2.2, 2.3).
#include <gtest/gtest.h>

#include <string>

#include "oracle/query.h"
#include "oracle/select.h"
#include "support/rooms.h"
#include "support/vectors.h"

namespace moe::test::method_test {
namespace {

using Json = nlohmann::json;

QuantArgs args_of(const Json& j) {
  QuantArgs a;
  a.num_bits = j.at("num_bits").get<int>();
  a.type = j.at("type") == "int" ? NumType::integer : NumType::floating;
  for (std::size_t i = 0; i < kStrategyNames.size(); ++i)
    if (j.at("strategy") == std::string(kStrategyNames[i])) a.strategy = static_cast<Strategy>(i);
  if (j.contains("group_size") && !j.at("group_size").is_null()) a.group_size = j.at("group_size").get<std::int64_t>();
  a.symmetric = j.at("symmetric").get<bool>();
  a.dynamic = j.at("dynamic").get<bool>() ? Dynamic::yes : Dynamic::no;
  return a;
}

TEST(W4a8Detect, EveryCase) {
  const Json cases = load_json("w4a8_int8/selection.json").at("detect");
  ASSERT_EQ(cases.size(), 10u);
  for (const Json& c : cases) {
    SCOPED_TRACE(c.at("name").get<std::string>());
    Quantization q;
    q.weights = args_of(c.at("weights"));
    q.input_activations = args_of(c.at("input_activations"));
    EXPECT_EQ(q.is_w4a8_int8(), c.at("is_w4a8_int").get<bool>());
    EXPECT_EQ(oracle_of(q) == OracleId::w4a8_int8, c.at("is_w4a8_int").get<bool>());
  }
}

// The method: its own rule on the group size first, then the key it builds goes to the oracle.
Json method(const Json& c) {
  const auto group = c.at("group_size").get<std::int64_t>();
  const auto hidden = c.at("hidden_dim").get<std::int64_t>();
  const auto intermediate = c.at("intermediate_size_per_partition").get<std::int64_t>();
  if (!groups_fit(Groups::of_size(group), hidden, intermediate))
    return {{"error", "invalid_value"}, {"reason", "group_size"}};
  Query q;
  q.oracle = OracleId::w4a8_int8;
  q.platform.type = DeviceType::cpu;
  q.platform.arch = c.at("platform").at("arch") == "arm" ? Arch::aarch64 : Arch::x86_64;
  q.platform.libs = {{"torch_dyn_quant_4bit", c.at("platform").at("has_dyn_quant_ops").get<bool>()}};
  q.weight_key = w4a8_weight_key(Groups::of_size(group));
  const Outcome out = ask(q, {});
  if (out.answer == Answer::accepted)
    return {{"backend", std::string(out.winner()->row->backend)}, {"experts", std::string(out.winner()->row->name)}};
  return {{"error", out.answer == Answer::none ? "not_implemented" : "invalid_value"},
          {"reason", std::string(out.reason)}};
}

TEST(W4a8Method, EveryCase) {
  const Json cases = load_json("w4a8_int8/selection.json").at("method");
  ASSERT_EQ(cases.size(), 10u);
  for (const Json& c : cases) {
    SCOPED_TRACE(c.dump());
    EXPECT_EQ(c.at("platform").at("kind"), "cpu");
    const auto key = json::parse(c.at("weight_key").dump());
    ASSERT_TRUE(key);
    EXPECT_EQ(*parse_key(*key, ""),
              std::optional(w4a8_weight_key(Groups::of_size(c.at("group_size").get<std::int64_t>()))));
    EXPECT_EQ(method(c), c.at("expect"));
  }
}

}  // namespace
}  // namespace moe::test::method_test
