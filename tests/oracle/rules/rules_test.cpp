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

MaybeNeed lacks(OfConversion reason) { return UnmetNeed{reason, {"this", "that", ""}}; }

// No list says which reasons conversion may have: whatever is not met refuses.
TEST(Rules, WhateverIsNotMetRefuses) {
  struct Row {
    Reject reject;
    Rule rule;
  };
  const Row rows[] = {
      Row{Reject::not_built, Rule([](const Query&, const Trial&) { return lacks(Reject::not_built); })},
      Row{Reject::group_size, Rule([](const Query&, const Trial&) { return lacks(Reject::group_size); })},
      Row{Reject::shape, Rule([](const Query&, const Trial&) { return lacks(Reject::shape); })},
      Row{Reject::memory, Rule([](const Query&, const Trial&) { return lacks(Reject::memory); })},
      Row{Reject::shard_splits_group,
          Rule([](const Query&, const Trial&) { return lacks(Reject::shard_splits_group); })},
  };
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
