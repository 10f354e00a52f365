// Size arithmetic at its limits.
#include "base/checked.h"
#include "support/rooms.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace moe::test::checked_test {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();

TEST(CheckedAdd, GivesTheSumOrNothing) {
  EXPECT_EQ(checked_add<std::int64_t>(2, 3), 5);
  EXPECT_EQ(checked_add<std::int64_t>(kMax, -1), kMax - 1);
  EXPECT_EQ(checked_add<std::int64_t>(kMax, 1), std::nullopt);
  EXPECT_EQ(checked_add<std::int64_t>(kMin, -1), std::nullopt);
  EXPECT_EQ(checked_add<std::uint64_t>(UINT64_MAX, 1), std::nullopt);
  EXPECT_EQ(checked_add<std::uint64_t>(UINT64_MAX, 0), UINT64_MAX);
}

TEST(CheckedMul, GivesTheProductOrNothing) {
  EXPECT_EQ(checked_mul({}), 1);
  EXPECT_EQ(checked_mul({7}), 7);
  EXPECT_EQ(checked_mul({3, 5, 7}), 105);
  EXPECT_EQ(checked_mul({kMax, 1}), kMax);
  EXPECT_EQ(checked_mul({kMax, 2}), std::nullopt);
  EXPECT_EQ(checked_mul({std::int64_t{1} << 32, std::int64_t{1} << 31}), std::nullopt);  // 2^63
  EXPECT_EQ(checked_mul({std::int64_t{1} << 31, std::int64_t{1} << 31, 2}), std::nullopt);
  EXPECT_EQ(checked_mul({(std::int64_t{1} << 32) + 1, (std::int64_t{1} << 32) - 1}), std::nullopt);
}

TEST(CheckedMul, RefusesNegativeFactorsAlsoBesideZero) {
  EXPECT_EQ(checked_mul({-1}), std::nullopt);
  EXPECT_EQ(checked_mul({-1, -1}), std::nullopt);
  EXPECT_EQ(checked_mul({0, -1}), std::nullopt);
  EXPECT_EQ(checked_mul({0, kMax, kMax}), 0);
}

TEST(RoundUp, NextMultiple) {
  EXPECT_EQ(round_up(0, 64), 0);
  EXPECT_EQ(round_up(1, 64), 64);
  EXPECT_EQ(round_up(64, 64), 64);
  EXPECT_EQ(round_up(65, 64), 128);
  EXPECT_EQ(round_up<std::uint64_t>(97, 3), 99u);
}

TEST(CeilDiv, RoundsUp) {
  EXPECT_EQ(ceil_div(0, 7), 0);
  EXPECT_EQ(ceil_div(1, 7), 1);
  EXPECT_EQ(ceil_div(7, 7), 1);
  EXPECT_EQ(ceil_div(8, 7), 2);
}

TEST(Narrow, KeepsTheValueOrRefuses) {
  EXPECT_EQ((narrow<std::int32_t>(std::int64_t{1} << 31)), std::nullopt);
  EXPECT_EQ((narrow<std::int32_t>((std::int64_t{1} << 31) - 1)), 2147483647);
  EXPECT_EQ((narrow<std::uint64_t>(std::int64_t{-1})), std::nullopt);
  EXPECT_EQ((narrow<std::int8_t>(-128)), std::int8_t{-128});
  EXPECT_EQ((narrow<std::int8_t>(128)), std::nullopt);
  EXPECT_EQ((narrow<std::int64_t>(UINT64_MAX)), std::nullopt);
}

}  // namespace
}  // namespace moe::test::checked_test
