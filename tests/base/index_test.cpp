// Access to containers by signed indices and by enumerations.
#include "base/index.h"
#include "support/rooms.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

namespace moe::test::index_test {
namespace {

enum class Fruit : std::uint8_t { apple, pear };
constexpr std::array<std::string_view, 2> kFruits = {"apple", "pear"};

static_assert(at(kFruits, Fruit::pear) == "pear");
static_assert(usize(std::int64_t{1} << 40) == std::size_t{1} << 40);
static_assert(std::is_same_v<decltype(at(kFruits, 0)), const std::string_view&>);

TEST(At, TakesIndicesOfEveryType) {
  const std::vector<int> v = {10, 11, 12};
  EXPECT_EQ(at(v, 2), 12);
  EXPECT_EQ(at(v, std::int64_t{1}), 11);
  EXPECT_EQ(at(v, std::uint8_t{0}), 10);
  EXPECT_EQ(at(std::string_view("pear"), std::int16_t{3}), 'r');
  EXPECT_EQ(at(kFruits, Fruit::apple), "apple");
}

TEST(At, IsThePlaceItself) {
  std::vector<int> v = {1, 2};
  at(v, 1) = 5;
  EXPECT_EQ(v[1], 5);
  at(std::span(v), 0) = 4;
  EXPECT_EQ(v[0], 4);
  int plain[2] = {6, 7};
  EXPECT_EQ(&at(plain, 1), plain + 1);
}

}  // namespace
}  // namespace moe::test::index_test
