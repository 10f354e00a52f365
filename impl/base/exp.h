// exp(x) in float32 with the same bits on every machine: no libm, no fma, no table.
//
//   t = x*log2(e) + M,  M = 1.5*2^23   the low bits of t now hold k = round-half-even(x*log2 e)
//   r = (x - k*ln2_hi) - k*ln2_lo      ln2_hi has 9 bits, so k*ln2_hi is exact;  |r| <= 0.3467
//   p = 1 + (r + r^2 * q(r))           q: degree 4, minimax for (e^r - 1 - r) / r^2
//   exp(x) = bits(p) + (bits(t) << 23) adds k to the exponent; M's low 9 bits are 0, so nothing else moves
//
// Each line is one multiply, add, subtract, shift or integer add per lane, so the vector kernels do
// the same in the same order; they compute all lanes and select the four exceptional ranges last.
// For finite results p < 1 where k = 128 and p >= 1 where k = -126: one integer add always suffices.
// Largest error: below 1 ulp (tests/base/exp_test.cpp).
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

namespace moe {

namespace exp_constants {
constexpr float kMaxFinite = 0x1.62e42ep+6f;   // 88.722832: the next float overflows
constexpr float kMinNormal = -0x1.5d589ep+6f;  // -87.33654: the next float down is below 2^-126
constexpr float kLog2E = 0x1.715476p+0f;
constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23
constexpr float kLn2Hi = 0.693359375f;
constexpr float kLn2Lo = -0x1.bd0106p-13f;  // ln 2 - ln2_hi
constexpr float kQ0 = 0x1.fffffcp-2f;
constexpr float kQ1 = 0x1.555492p-3f;
constexpr float kQ2 = 0x1.5558f2p-5f;
constexpr float kQ3 = 0x1.1239e2p-7f;
constexpr float kQ4 = 0x1.6a2434p-10f;
}  // namespace exp_constants

// For kMinNormal <= x <= kMaxFinite; anything else gives any value. What vector loops compute in all lanes.
constexpr float exp_in_range(float x) {
  namespace c = exp_constants;
  const float t = x * c::kLog2E + c::kMagic;
  const float k = t - c::kMagic;
  const float r = (x - k * c::kLn2Hi) - k * c::kLn2Lo;
  const float r2 = r * r;
  float q = c::kQ4;
  q = q * r + c::kQ3;
  q = q * r + c::kQ2;
  q = q * r + c::kQ1;
  q = q * r + c::kQ0;
  const float p = 1.0f + (r + r2 * q);
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(p) + (std::bit_cast<std::uint32_t>(t) << 23));
}

constexpr float exp_f32(float x) {
  namespace c = exp_constants;
  if (x != x) return x;
  if (x > c::kMaxFinite) return std::numeric_limits<float>::infinity();
  if (x < c::kMinNormal) return 0.0f;
  return exp_in_range(x);
}

// The natural logarithm of a normal positive x, multiply, add and one division, below 1 ulp:
//   x = m * 2^k, m in (0.707, 1.414];  s = (m - 1) / (m + 1);  ln m = 2 atanh s = 2s + s^3 (2/3 + s^2 2/5 + ...)
constexpr float log_f32(float x) {
  namespace c = exp_constants;
  constexpr std::uint32_t kHalfSqrt2 = 0x3f3504f3u;  // 0.70710677
  const std::uint32_t above = std::bit_cast<std::uint32_t>(x) - kHalfSqrt2;
  const float k = static_cast<float>(static_cast<std::int32_t>(above) >> 23);
  const float m = std::bit_cast<float>((above & 0x7fffffu) + kHalfSqrt2);
  const float f = m - 1.0f;
  const float s = f / (m + 1.0f);
  const float z = s * s;
  float q = 2.0f / 11.0f;
  q = q * z + 2.0f / 9.0f;
  q = q * z + 2.0f / 7.0f;
  q = q * z + 2.0f / 5.0f;
  q = q * z + 2.0f / 3.0f;
  // 2s = f - s f, with f exact: the rounding of s only touches the small term.
  return k * c::kLn2Hi + (f - (s * (f - z * q) - k * c::kLn2Lo));
}

static_assert(exp_f32(0.0f) == 1.0f && exp_f32(-0.0f) == 1.0f);
static_assert(exp_f32(exp_constants::kMaxFinite) < std::numeric_limits<float>::infinity());
static_assert(exp_f32(exp_constants::kMinNormal) >= std::numeric_limits<float>::min());
static_assert(log_f32(1.0f) == 0.0f);

}  // namespace moe
