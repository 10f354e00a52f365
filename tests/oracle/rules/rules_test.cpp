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

// No list says which reasons conversion may have: whatever is not met refuses.
template <Reject kReject>
void expect_refused() {
  constexpr Rule rule([](const Query&, const Trial&) { return MaybeNeed(UnmetNeed{kReject, {"this", "that", ""}}); });
  const Verdict refused = rule.ask(Query(), {});
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->reject(), kReject);
  EXPECT_EQ(refused->code(), "conversion");
}

TEST(Rules, WhateverIsNotMetRefuses) {
  expect_refused<Reject::not_built>();
  expect_refused<Reject::group_size>();
  expect_refused<Reject::shape>();
  expect_refused<Reject::memory>();
  expect_refused<Reject::shard_splits_group>();
  constexpr Rule met([](const Query&, const Trial&) { return MaybeNeed(); });
  EXPECT_FALSE(met.ask(Query(), {}));
}

}  // namespace
}  // namespace moe::test::rules_test
