// A rule refuses with its own reason, or with that of what is not met.
#include <gtest/gtest.h>

#include "oracle/backend.h"
#include "support/rooms.h"

namespace moe::test::rules_test {
namespace {

constexpr Reason kLora = {Reject::lora, "lora"};

TEST(Rules, HaveOneReason) {
  const Query q;
  constexpr Rule always(kLora, [](const Query&, const Trial&) {
    return MaybeWhy(Why{"this", "there is that", "/at"});
  });
  const Verdict refused = always.ask(q, {});
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->reject(), Reject::lora);
  EXPECT_EQ(refused->code(), "lora");
  EXPECT_EQ(refused->detail(), "needs this; there is that");
  EXPECT_EQ(refused->subject(), "/at");
  constexpr Rule never(kLora, [](const Query&, const Trial&) { return MaybeWhy(); });
  EXPECT_FALSE(never.ask(q, {}));
}

// Constants, because Clang 14 calls what it should have computed.
constexpr OfConversion kNotBuilt = Reject::not_built;
constexpr OfConversion kGroupSize = Reject::group_size;
constexpr OfConversion kShape = Reject::shape;
constexpr OfConversion kMemory = Reject::memory;
constexpr OfConversion kShardSplitsGroup = Reject::shard_splits_group;

template <const OfConversion& kReason>
MaybeNeed lacks(const Query&, const Trial&) {
  return UnmetNeed{kReason, {"this", "that", ""}};
}

// No list says which reasons conversion may have: whatever is not met refuses.
TEST(Rules, WhateverIsNotMetRefuses) {
  struct Row {
    Reject reject;
    Rule rule;
  };
  const Row rows[] = {{Reject::not_built, Rule(lacks<kNotBuilt>)},
                      {Reject::group_size, Rule(lacks<kGroupSize>)},
                      {Reject::shape, Rule(lacks<kShape>)},
                      {Reject::memory, Rule(lacks<kMemory>)},
                      {Reject::shard_splits_group, Rule(lacks<kShardSplitsGroup>)}};
  for (const Row& row : rows) {
    const Verdict refused = row.rule.ask(Query(), {});
    ASSERT_TRUE(refused);
    EXPECT_EQ(refused->reject(), row.reject);
    EXPECT_EQ(refused->code(), "conversion");
  }
  constexpr Rule met([](const Query&, const Trial&) { return MaybeNeed(); });
  EXPECT_FALSE(met.ask(Query(), {}));
}

}  // namespace
}  // namespace moe::test::rules_test
