// Bit-exact conversions between float and the formats of 16 and fewer bits (float_formats.md 1, 2): nearest even; NaN
// stays a quiet NaN in those of 16 bits.
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

// A sign, an exponent and a mantissa in at most eight bits.
struct SmallFloat {
  int exponent_bits = 0, mantissa_bits = 0, bias = 0;
  unsigned largest = 0;   // code of the largest finite number; the codes above it are Inf or NaN
  unsigned infinity = 0;  // its code, 0: there is none

  constexpr unsigned magnitudes() const { return 1u << (exponent_bits + mantissa_bits); }
  constexpr unsigned codes() const { return 2 * magnitudes(); }
  constexpr unsigned magnitude(unsigned code) const { return code & (magnitudes() - 1); }
  constexpr bool is_finite(unsigned code) const { return magnitude(code) <= largest; }
};
inline constexpr SmallFloat kE4m3 = {4, 3, 7, 0x7e}, kE5m2 = {5, 2, 15, 0x7b, 0x7c};
inline constexpr SmallFloat kE2m1 = {2, 1, 1, 7}, kE2m3 = {2, 3, 1, 0x1f}, kE3m2 = {3, 2, 3, 0x1f};

// 2^e of a normal number.
constexpr float power_of_two(int e) { return std::bit_cast<float>(static_cast<std::uint32_t>(e + 127) << 23); }

constexpr float small_to_f32(const SmallFloat& f, unsigned code) {
  const unsigned magnitude = f.magnitude(code);
  const std::uint32_t sign = code >= f.magnitudes() ? 0x80000000u : 0;
  if (!f.is_finite(code)) return std::bit_cast<float>(sign | (magnitude == f.infinity ? 0x7f800000u : 0x7fc00000u));
  const int exponent = static_cast<int>(magnitude >> f.mantissa_bits), leading = exponent == 0 ? 0 : 1;
  const unsigned hidden = static_cast<unsigned>(leading) << f.mantissa_bits;
  const unsigned mantissa = (magnitude & ((1u << f.mantissa_bits) - 1)) + hidden;
  const float value = static_cast<float>(mantissa) * power_of_two(exponent + 1 - leading - f.bias - f.mantissa_bits);
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | sign);
}

// What is beyond the largest number becomes it, Inf too; so does NaN where the format has none, else 0x7f and the sign.
constexpr unsigned f32_to_small(const SmallFloat& f, float x) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(x), a = u & 0x7fffffffu;
  const unsigned sign = u >> 31 != 0 ? f.magnitudes() : 0;
  if (a > 0x7f800000u) return f.largest + 1 == f.magnitudes() ? f.largest : sign | (f.magnitudes() - 1);
  const int exponent = static_cast<int>(a >> 23) - 127, least = 1 - f.bias;
  const int below = exponent < least ? least - exponent : 0;  // a subnormal of the format
  if (below > 24) return sign;
  const int shift = 23 - f.mantissa_bits + below;
  const std::uint64_t m = (a & 0x7fffffu) | 0x800000u, kept = m >> shift;
  const std::uint64_t rest = m & ((std::uint64_t{1} << shift) - 1), half = std::uint64_t{1} << (shift - 1);
  const std::uint64_t rounded = kept + (rest > half || (rest == half && (kept & 1) != 0) ? 1 : 0);
  const std::uint64_t binades = below != 0 ? 0 : static_cast<std::uint64_t>(exponent - least);
  const std::uint64_t code = (binades << f.mantissa_bits) + rounded;  // a carry moves on to the next binade
  return sign | (code > f.largest ? f.largest : static_cast<unsigned>(code));
}

static_assert(small_to_f32(kE4m3, 0x7e) == 448 && small_to_f32(kE4m3, 1) == 0x1p-9f && small_to_f32(kE2m1, 15) == -6);
static_assert(f32_to_small(kE4m3, 464.1f) == 0x7e && f32_to_small(kE2m1, -2.5f) == 0xc &&
              f32_to_small(kE2m1, 5.1f) == 7);

// The scales of MX formats: 2^(code - 127), and 255 is NaN.
constexpr float e8m0_to_f32(unsigned code) {
  return std::bit_cast<float>(code == 0 ? 0x00400000u : code == 255 ? 0x7fc00000u : code << 23);
}
// Of a power of two from 2^-127 on.
constexpr unsigned f32_to_e8m0(float power) { return std::bit_cast<std::uint32_t>(power) >> 23; }

}  // namespace moe
