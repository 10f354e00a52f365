// All codes of the 16-bit formats against definitions by value, and rounding against the nearest of the
// two neighbouring codes, computed in double (exact: every value here has at most 24 bits).
#include "base/float_formats.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "support/rooms.h"
#include "support/share.h"
#include "support/vectors.h"

namespace moe::test::float_formats_test {
namespace {

struct Format {
  const char* name;
  int exponent_bits, mantissa_bits;
  float (*widen)(std::uint16_t);
  std::uint16_t (*round)(float);

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  unsigned infinity() const { return ((1u << exponent_bits) - 1u) << mantissa_bits; }
};

class SixteenBits : public testing::TestWithParam<Format> {};

// What a finite code stands for, by the definition of binary interchange formats. Also gives the code of
// infinity the value it would have if its binade were an ordinary one.
double value_of(const Format& f, unsigned code) {
  const unsigned magnitude = code & 0x7fffu;
  const int exponent = static_cast<int>(magnitude >> f.mantissa_bits);
  const int mantissa = static_cast<int>(magnitude & ((1u << f.mantissa_bits) - 1u));
  const double scaled = exponent == 0
                            ? std::ldexp(mantissa, 1 - f.bias() - f.mantissa_bits)
                            : std::ldexp(mantissa + (1 << f.mantissa_bits), exponent - f.bias() - f.mantissa_bits);
  return (code & 0x8000u) != 0 ? -scaled : scaled;
}

TEST_P(SixteenBits, EveryCodeHasItsValue) {
  const Format& f = GetParam();
  for (unsigned code = 0; code < 0x10000u; ++code) {
    const float x = f.widen(static_cast<std::uint16_t>(code));
    const unsigned magnitude = code & 0x7fffu;
    EXPECT_EQ(std::signbit(x), (code & 0x8000u) != 0) << code;
    if (magnitude > f.infinity()) {
      EXPECT_TRUE(std::isnan(x)) << code;
    } else if (magnitude == f.infinity()) {
      EXPECT_TRUE(std::isinf(x)) << code;
    } else {
      EXPECT_EQ(static_cast<double>(x), value_of(f, code)) << code;
    }
  }
}

TEST_P(SixteenBits, EveryCodeComesBack) {
  const Format& f = GetParam();
  for (unsigned code = 0; code < 0x10000u; ++code) {
    const std::uint16_t back = f.round(f.widen(static_cast<std::uint16_t>(code)));
    if ((code & 0x7fffu) > f.infinity()) {  // a NaN stays one, with its sign, and is quiet
      EXPECT_GT(back & 0x7fffu, f.infinity()) << code;
      EXPECT_EQ(back & 0x8000u, code & 0x8000u) << code;
      EXPECT_NE(back & (1u << (f.mantissa_bits - 1)), 0u) << code;
    } else {
      EXPECT_EQ(back, code);
    }
  }
}

// The codes below and above |x|, then the nearer one, the even one in the middle.
unsigned nearest_code(const Format& f, double magnitude) {
  unsigned low = 0, high = f.infinity();
  if (magnitude >= value_of(f, high)) return high;
  while (high - low > 1) {
    const unsigned middle = (low + high) / 2;
    (value_of(f, middle) <= magnitude ? low : high) = middle;
  }
  const double below = magnitude - value_of(f, low), above = value_of(f, high) - magnitude;
  if (below != above) return below < above ? low : high;
  return low % 2 == 0 ? low : high;
}

void expect_rounded(const Format& f, float x) {
  const unsigned want = nearest_code(f, std::abs(static_cast<double>(x))) | (std::signbit(x) ? 0x8000u : 0u);
  EXPECT_EQ(f.round(x), want) << x;
}

TEST_P(SixteenBits, MiddlesAndTheirNeighbours) {
  const Format& f = GetParam();
  const float inf = std::numeric_limits<float>::infinity();
  Turns turns;
  for (unsigned code = 0; code < f.infinity(); ++code) {
    if (!turns.next()) continue;
    const auto middle = static_cast<float>((value_of(f, code) + value_of(f, code + 1)) / 2);
    for (float x : {middle, std::nextafter(middle, inf), std::nextafter(middle, -inf)}) {
      expect_rounded(f, x);
      expect_rounded(f, -x);
    }
  }
}

TEST_P(SixteenBits, StrideOverAllFloats) {
  const Format& f = GetParam();
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += stride(15013)) {
    const float x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    if (x == x) expect_rounded(f, x);
  }
}

TEST_P(SixteenBits, NaNsOfEveryPayloadStayQuietNaNs) {
  const Format& f = GetParam();
  for (std::uint32_t payload = 1; payload < 0x800000u; payload += stride(997))
    for (std::uint32_t sign : {0u, 0x80000000u}) {
      const std::uint16_t h = f.round(std::bit_cast<float>(sign | 0x7f800000u | payload));
      EXPECT_GT(h & 0x7fffu, f.infinity());
      EXPECT_EQ((h & 0x8000u) != 0, sign != 0);
      EXPECT_NE(h & (1u << (f.mantissa_bits - 1)), 0u);
    }
}

INSTANTIATE_TEST_SUITE_P(Formats, SixteenBits,
                         testing::Values(Format{"bf16", 8, 7, bf16_to_f32, f32_to_bf16},
                                         Format{"f16", 5, 10, f16_to_f32, f32_to_f16}),
                         [](const auto& test) { return test.param.name; });

// --- eight bits and fewer, against the golden tables and roundings ------------------------------------------------

struct Small {
  const char* name;
  SmallFloat format;
};

class SmallFloats : public testing::TestWithParam<Small> {};

bool same(float a, float b) {
  return std::isnan(a) ? std::isnan(b) : std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

TEST_P(SmallFloats, EveryCodeHasItsValueAndComesBack) {
  const auto& [name, f] = GetParam();
  const auto table = load_vectors("float/formats.safetensors").at(std::string("table_") + name).as<float>();
  ASSERT_EQ(table.size(), f.codes());
  for (unsigned code = 0; code < f.codes(); ++code) {
    EXPECT_TRUE(same(small_to_f32(f, code), table[code])) << code;
    EXPECT_EQ(f.is_finite(code), std::isfinite(table[code])) << code;
    if (f.is_finite(code)) {
      EXPECT_EQ(f32_to_small(f, table[code]), code);
    }
  }
}

TEST_P(SmallFloats, MiddlesAndTheirNeighbours) {
  const auto& [name, f] = GetParam();
  for (unsigned code = 0; code < f.largest; ++code) {
    const float a = small_to_f32(f, code), b = small_to_f32(f, code + 1), middle = (a + b) / 2;
    const unsigned even = code % 2 == 0 ? code : code + 1;
    EXPECT_EQ(f32_to_small(f, middle), even) << code;
    EXPECT_EQ(f32_to_small(f, std::nextafter(middle, 0.0f)), code) << code;
    EXPECT_EQ(f32_to_small(f, std::nextafter(middle, b)), code + 1) << code;
    EXPECT_EQ(f32_to_small(f, -std::nextafter(middle, b)), f.magnitudes() + code + 1) << code;
  }
}

TEST_P(SmallFloats, RoundingSaturates) {
  const auto& [name, f] = GetParam();
  const VecFile file = load_vectors("float/formats.safetensors");
  const auto x = file.at("x").as<float>();
  const auto want = file.at(std::string("sat_") + name).as<std::uint8_t>();
  for (std::size_t i = 0; i < x.size(); ++i) {
    const unsigned got = f32_to_small(f, x[i]);
    if (std::isnan(x[i]) && !std::isfinite(small_to_f32(f, want[i]))) {
      EXPECT_TRUE(std::isnan(small_to_f32(f, got))) << i;
    } else {
      EXPECT_EQ(got, want[i]) << x[i];
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, SmallFloats,
                         testing::Values(Small{"e4m3fn", kE4m3}, Small{"e5m2", kE5m2}, Small{"e2m1", kE2m1},
                                         Small{"e2m3", kE2m3}, Small{"e3m2", kE3m2}),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(E8m0, EveryCodeHasItsValueAndComesBack) {
  const auto table = load_vectors("float/formats.safetensors").at("table_e8m0").as<float>();
  for (unsigned code = 0; code < 256; ++code) {
    EXPECT_TRUE(same(e8m0_to_f32(code), table[code])) << code;
    if (code < 255) {
      EXPECT_EQ(f32_to_e8m0(table[code]), code);
    }
  }
}

}  // namespace
}  // namespace moe::test::float_formats_test
