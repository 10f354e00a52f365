// Bit-exact conversions between float and the 16-bit formats: nearest even, NaN stays a quiet NaN.
//
// These are the definition. The vector forms of the kernels (vcvtps2ph, integer bf16 rounding) give
// the same bits; a test compares all of them.
#pragma once

#include <bit>
#include <cstdint>

namespace moe {

constexpr float bf16_to_f32(std::uint16_t b) { return std::bit_cast<float>(static_cast<std::uint32_t>(b) << 16); }

constexpr std::uint16_t f32_to_bf16(float x) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((u >> 16) | 0x40u);
  return static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

constexpr float f16_to_f32(std::uint16_t h) {
  const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000u) << 16;
  const std::uint32_t exponent = (h >> 10) & 31u;
  std::uint32_t mantissa = h & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa ? (mantissa << 13) | 0x400000u : 0u));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
  if (mantissa == 0) return std::bit_cast<float>(sign);
  std::uint32_t e = 113;  // denormal: shift the leading one up to the hidden bit
  while ((mantissa & 0x400u) == 0) {
    mantissa <<= 1;
    --e;
  }
  return std::bit_cast<float>(sign | (e << 23) | ((mantissa & 0x3ffu) << 13));
}

constexpr std::uint16_t f32_to_f16(float x) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(x);
  const auto sign = static_cast<std::uint16_t>((u >> 16) & 0x8000u);
  const std::uint32_t a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u | ((a >> 13) & 0x3ffu));
  if (a >= 0x47800000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // >= 2^16, also Inf
  if (a >= 0x38800000u) {                                                   // normal result, may round up to Inf
    const std::uint32_t r = a - 0x38000000u + 0xfffu + ((a >> 13) & 1u);
    return static_cast<std::uint16_t>(sign | (r >> 13));
  }
  if (a < 0x33000000u) return sign;              // below half of the smallest denormal
  const std::uint32_t shift = 126u - (a >> 23);  // 14..24 bits of the 24-bit significand fall off
  const std::uint32_t m = (a & 0x7fffffu) | 0x800000u;
  const std::uint32_t kept = m >> shift, rest = m & ((1u << shift) - 1u), half = 1u << (shift - 1u);
  return static_cast<std::uint16_t>(sign | (kept + (rest > half || (rest == half && (kept & 1u)) ? 1u : 0u)));
}

static_assert(f32_to_f16(65519.0f) == 0x7bff && f32_to_f16(65520.0f) == 0x7c00);
static_assert(f32_to_f16(5.9604645e-8f) == 1 && f32_to_f16(2.9802322e-8f) == 0 && f32_to_f16(2.9802326e-8f) == 1);
static_assert(f16_to_f32(1) == 5.9604644775390625e-8f && f16_to_f32(0x3c00) == 1.0f);
static_assert(f32_to_bf16(1.00390625f) == 0x3f80 && f32_to_bf16(1.01171875f) == 0x3f82);

}  // namespace moe
