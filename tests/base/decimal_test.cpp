// Texts of floating-point numbers: equal to std::to_chars for every kind of number.
#include "base/decimal.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <random>

#include "support/rooms.h"
#include "support/share.h"

namespace moe::test::decimal_test {
namespace {

template <class Float>
std::string expected(Float x) {
  std::array<char, 400> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), x).ptr};
}

// x and its neighbours, with both signs.
template <class Float>
void compare(Float x) {
  const Float infinity = std::numeric_limits<Float>::infinity();
  for (const Float y : {x, std::nextafter(x, infinity), std::nextafter(x, -infinity)}) {
    if (!std::isfinite(y)) continue;
    ASSERT_EQ(decimal(y), expected(y));
    ASSERT_EQ(decimal(-y), expected(-y));
  }
}

template <class Float>
class DecimalTest : public ::testing::Test {};
using Floats = ::testing::Types<float, double>;
TYPED_TEST_SUITE(DecimalTest, Floats);

TYPED_TEST(DecimalTest, AroundPowersOfTwoAndTen) {
  using Limits = std::numeric_limits<TypeParam>;
  Turns turns;
  for (int e = Limits::min_exponent - Limits::digits; e < Limits::max_exponent; ++e)
    if (turns.next()) compare(static_cast<TypeParam>(std::ldexp(1.0, e)));
  for (int e = Limits::min_exponent10; e <= Limits::max_exponent10; ++e)
    for (const double digits : {1.0, 1.5, 2.0, 5.0, 9.0, 1.702, 1.234567890123456})
      if (turns.next()) compare(static_cast<TypeParam>(digits * std::pow(10.0, e)));
  compare(TypeParam{0});
  compare(Limits::max());
  compare(Limits::denorm_min());
}

TYPED_TEST(DecimalTest, NumbersOfConfigs) {
  Turns turns;
  for (int i = 0; i <= 4000; ++i) {
    if (!turns.next()) continue;
    ASSERT_EQ(decimal(static_cast<TypeParam>(i)), expected(static_cast<TypeParam>(i)));
    compare(static_cast<TypeParam>(i / 1000.0));
  }
  EXPECT_EQ(decimal(static_cast<TypeParam>(0.1)), "0.1");
  EXPECT_EQ(decimal(static_cast<TypeParam>(100000)), "1e+05");
}

TYPED_TEST(DecimalTest, RandomBits) {
  using Bits = std::conditional_t<sizeof(TypeParam) == 8, std::uint64_t, std::uint32_t>;
  std::mt19937_64 random(20251121);
  for (int i = 0; i < rounds(4000); ++i) {
    const auto x = std::bit_cast<TypeParam>(static_cast<Bits>(random()));
    if (std::isfinite(x)) {
      ASSERT_EQ(decimal(x), expected(x));
    }
    // integers of up to 24 digits, which are written whole or not
    compare(static_cast<TypeParam>(std::ldexp(static_cast<double>(random() >> 11), static_cast<int>(random() % 28))));
  }
}

}  // namespace
}  // namespace moe::test::decimal_test
