// Scopes of the floating-point state: the default one inside, what was there behind it, flags included.
#include "base/float_state.h"

#include <gtest/gtest.h>

#include "support/float_states.h"
#include "support/rooms.h"

namespace moe::test::float_state_test {
namespace {

float third() {
  volatile float one = 1.0f, three = 3.0f;
  return one / three;
}
float tiny() {
  volatile float x = 0x1p-126f, four = 4.0f;
  return x / four;
}

TEST(FloatState, DefaultInsideAndTheCallersBehind) {
  const float nearest = third();
  for (const HostFloats& floats : host_floats()) {
    float inside = 0, small = 0;
    int rounding = -1;
    const FloatsLeft left = within(floats, [&] {
      const DefaultFloats scope;
      inside = third();
      small = tiny();
      rounding = std::fegetround();
    });
    EXPECT_EQ(inside, nearest) << floats.name;
    EXPECT_EQ(small, 0x1p-128f) << floats.name;
    EXPECT_EQ(rounding, FE_TONEAREST) << floats.name;
    EXPECT_EQ(left.control, floats.control) << floats.name;
    EXPECT_EQ(left.rounding, floats.rounding) << floats.name;
  }
}

TEST(FloatState, FlagsOfTheCallerStay) {
  std::feclearexcept(FE_ALL_EXCEPT);
  std::feraiseexcept(FE_DIVBYZERO);
  {
    const DefaultFloats scope;
    (void)third();  // inexact
  }
  EXPECT_EQ(std::fetestexcept(FE_ALL_EXCEPT), FE_DIVBYZERO);
  std::feclearexcept(FE_ALL_EXCEPT);
}

TEST(FloatState, FlushingIsAScopeToo) {
  {
    const FlushDenormals flushed;
    EXPECT_EQ(tiny(), 0.0f);
    const KeepDenormals kept;
    EXPECT_EQ(tiny(), 0x1p-128f);
  }
  EXPECT_EQ(tiny(), 0x1p-128f);
}

}  // namespace
}  // namespace moe::test::float_state_test
