// gelu_f32, gelu_tanh_f32 and soft_cap_f32 against the C library's erf and tanh in float64.
#include "base/gelu.h"
#include "support/rooms.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace moe::test::gelu_test {
namespace {

TEST(Gelu, AgreesWithErfAndTanh) {
  double worst = 0;
  for (int i = -200000; i <= 200000; ++i) {
    const float x = static_cast<float>(i) * 1e-4f;
    const auto d = static_cast<double>(x);
    const double want = 0.5 * d * std::erfc(-d / std::sqrt(2.0));
    const double tanh_want = 0.5 * d * (1 + std::tanh(std::sqrt(2 / 3.14159265358979324) * (d + 0.044715 * d * d * d)));
    worst = std::max({worst, std::fabs(static_cast<double>(gelu_f32(x)) - want) / (1e-6 + 4e-6 * std::fabs(want)),
                      std::fabs(static_cast<double>(gelu_tanh_f32(x)) - tanh_want) / (1e-6 + 4e-6 * std::fabs(want))});
  }
  EXPECT_LT(worst, 0.5);
}

// In relation to the value itself, also near 0, where 1 - exp has few digits.
TEST(Gelu, SoftCapAgreesWithTanh) {
  for (const float c : {0.001f, 4.0f, 25.0f, 1e6f})
    for (int i = -30000; i <= 30000; ++i) {
      const float v = std::copysign(std::exp2(static_cast<float>(std::abs(i)) * 1e-3f - 26.0f), static_cast<float>(i));
      const float x = i == 0 ? 0.0f : v * c;
      const double want = static_cast<double>(c) * std::tanh(static_cast<double>(x) / static_cast<double>(c));
      ASSERT_LE(std::fabs(static_cast<double>(soft_cap_f32(x, c)) - want), 4e-7 * std::fabs(want)) << x << " " << c;
    }
  constexpr float kInf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(soft_cap_f32(kInf, 4.0f), 4.0f);
  EXPECT_EQ(soft_cap_f32(-kInf, 4.0f), -4.0f);
  EXPECT_TRUE(std::signbit(soft_cap_f32(-0.0f, 4.0f)));
  EXPECT_TRUE(std::isnan(soft_cap_f32(std::numeric_limits<float>::quiet_NaN(), 4.0f)));
}

TEST(Gelu, NonFinite) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const auto gelu : {gelu_f32, gelu_tanh_f32}) {
    EXPECT_EQ(gelu(kInf), kInf);
    EXPECT_TRUE(std::isnan(gelu(std::numeric_limits<float>::quiet_NaN())));
    EXPECT_EQ(gelu(0.0f), 0.0f);
    EXPECT_EQ(gelu(-1e20f), 0.0f);
  }
  EXPECT_EQ(gelu_f32(-kInf), 0.0f);
}

}  // namespace
}  // namespace moe::test::gelu_test
