// Own exp and log against the double functions of the C library, and the exceptional ranges of numerics.md 2.
#include "base/exp.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "support/rooms.h"
#include "support/share.h"

namespace moe::test::exp_test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr double kMaxFloat = static_cast<double>(std::numeric_limits<float>::max());

float from_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }
std::uint32_t to_bits(float x) { return std::bit_cast<std::uint32_t>(x); }

double error_in_ulp(float got, double want) {
  int exponent = 0;
  (void)std::frexp(want, &exponent);
  return std::abs(static_cast<double>(got) - want) / std::ldexp(1.0, exponent - 24);
}

void expect_exp(float x) {
  const float got = exp_f32(x);
  const double want = std::exp(static_cast<double>(x));
  if (want > kMaxFloat) {
    EXPECT_EQ(got, kInf) << x;
  } else if (want < 0x1p-126) {
    EXPECT_EQ(to_bits(got), 0u) << x;
  } else {
    EXPECT_LT(error_in_ulp(got, want), 1.0) << x;
  }
}

TEST(ExpF32, StrideOverAllFloats) {
  // 2039 is prime: mantissas of every kind in every binade, 2.1 million of both signs (fewer in a share).
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += stride(2039)) {
    const float x = from_bits(static_cast<std::uint32_t>(bits));
    if (x == x) expect_exp(x);
  }
}

TEST(ExpF32, NeighboursOfEveryBoundary) {
  const double ln2 = std::log(2.0);
  for (int k = -128; k <= 129; ++k)
    for (double half : {0.0, 0.5}) {  // where the power of two changes, and where p passes 1
      const auto centre = static_cast<float>((k + half) * ln2);
      float x = centre;
      for (int i = 0; i < 64; ++i) x = std::nextafter(x, -kInf);
      for (int i = 0; i < 128; ++i, x = std::nextafter(x, kInf)) expect_exp(x);
    }
}

TEST(ExpF32, ExactlyWhereItOverflowsAndUnderflows) {
  using namespace exp_constants;
  EXPECT_LE(std::exp(static_cast<double>(kMaxFinite)), kMaxFloat);
  EXPECT_GT(std::exp(static_cast<double>(std::nextafter(kMaxFinite, kInf))), kMaxFloat);
  EXPECT_GE(std::exp(static_cast<double>(kMinNormal)), 0x1p-126);
  EXPECT_LT(std::exp(static_cast<double>(std::nextafter(kMinNormal, -kInf))), 0x1p-126);
  EXPECT_EQ(exp_f32(88.73f), kInf);
  EXPECT_EQ(exp_f32(kInf), kInf);
  EXPECT_EQ(to_bits(exp_f32(-kInf)), 0u);
  EXPECT_EQ(exp_f32(std::numeric_limits<float>::max()), kInf);
  EXPECT_EQ(exp_f32(std::numeric_limits<float>::lowest()), 0.0f);
}

TEST(ExpF32, ExactAtZeroAndNaNStays) {
  EXPECT_EQ(exp_f32(0.0f), 1.0f);
  EXPECT_EQ(exp_f32(-0.0f), 1.0f);
  EXPECT_EQ(exp_f32(std::numeric_limits<float>::denorm_min()), 1.0f);
  for (std::uint32_t bits : {0x7fc00000u, 0xffc00000u, 0x7fc12345u}) EXPECT_EQ(to_bits(exp_f32(from_bits(bits))), bits);
}

TEST(ExpF32, InRangeIsTheSameFunction) {
  for (float x = exp_constants::kMinNormal; x <= exp_constants::kMaxFinite; x += 0.0371f)
    EXPECT_EQ(to_bits(exp_in_range(x)), to_bits(exp_f32(x))) << x;
}

TEST(LogF32, StrideOverNormalFloats) {
  for (std::uint32_t bits = 0x00800000u; bits < 0x7f800000u; bits += 1021) {
    const float x = from_bits(bits);
    if (x != 1.0f) {
      EXPECT_LT(error_in_ulp(log_f32(x), std::log(static_cast<double>(x))), 1.0) << x;
    }
  }
}

TEST(LogF32, AroundOne) {
  EXPECT_EQ(log_f32(1.0f), 0.0f);
  for (std::uint32_t bits = 0x3f7f0000u; bits < 0x3f810000u; ++bits) {
    const float x = from_bits(bits);
    if (x != 1.0f) {
      EXPECT_LT(error_in_ulp(log_f32(x), std::log(static_cast<double>(x))), 1.0) << x;
    }
  }
}

}  // namespace
}  // namespace moe::test::exp_test
