// W8A8 per token, block32 and 16-bit activations with int4 and int8 weights: every row gives the bits of the scalar
// row, codes and results; the scalar row is what the products of its codes and scales say.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/ref/symmetric.h"
#include "layouts/p16/p16_numbers.h"
#include "support/p16.h"
#include "support/rooms.h"
#include "support/share.h"

namespace moe::test::symmetric_test {
namespace {

std::vector<const Kernel*> symmetric_rows() {
  std::vector<const Kernel*> rows;
  constexpr std::pair<LayoutKind, ActFormat> kFamilies[] = {
      {LayoutKind::p16_int4, ActFormat::blk8}, {LayoutKind::p16_w8, ActFormat::tok8},
      {LayoutKind::p16_w4, ActFormat::blk8},   {LayoutKind::p16_w8, ActFormat::blk8},
      {LayoutKind::p16_w4, ActFormat::blk16},  {LayoutKind::p16_w8, ActFormat::blk16}};
  for (const auto& [layout, act] : kFamilies)
    for (const Kernel* k : runnable_kernels(layout, act)) rows.push_back(k);
  return rows;
}

class Symmetric : public testing::TestWithParam<const Kernel*> {
 protected:
  const Kernel& kernel() const { return *GetParam(); }
  const Kernel& scalar() const { return scalar_of(kernel()); }
};

float weight_value(const P16& m, const std::byte* panel, std::int64_t lane, std::int64_t k) {
  const auto byte = static_cast<std::uint8_t>(panel[m.code_offset(lane, k)]);
  const int code = m.element == Element::int8 ? byte : P16::nibble_high(k) ? byte >> 4 : byte & 15;
  const auto zero_at = m.zero_offset() + static_cast<std::size_t>(k / m.group() * kPanelRows + lane);
  return static_cast<float>(code - (m.has_zeros ? static_cast<int>(panel[zero_at]) : code_bias(m.element)));
}

// Result of one row of the tile and one row of the panel, in double.
double product(const P16& m, const std::byte* panel, std::int64_t lane, const TileShape& s,
               const std::vector<std::byte>& tile, int n, int row, double& size) {
  auto* at = const_cast<std::byte*>(tile.data());
  const QuantRow token = quant_row(s, {at, n, row});
  const BlockRow block = block_row(s, {at, n, row});
  float bias = 0.0f;
  if (m.has_bias) std::memcpy(&bias, panel + m.bias_offset() + 4 * lane, 4);
  double sum = static_cast<double>(bias);
  size = std::fabs(sum);
  for (std::int64_t k = 0; k < m.k; ++k) {
    const float s_a = s.act == ActFormat::tok8 ? *token.recip : block.scale[k / s.scaled_columns() * block.stride];
    const std::int8_t* code = block.codes + k / kUnitK * block.code_stride + k % kUnitK;
    const double q = s.act == ActFormat::blk16 ? 255.0 * code[0] + code[kUnitK] : code[0];
    const double term = q * static_cast<double>(s_a) * static_cast<double>(weight_value(m, panel, lane, k)) *
                        static_cast<double>(scale_in(m, panel, lane, k / m.group()));
    sum += term;
    size += std::fabs(term);
  }
  return sum;
}

// The largest sums that there can be: all weights as far from value 0 as codes and zero points allow.
void make_extreme(const P16& m, std::vector<std::byte>& packed, bool high) {
  const auto most = static_cast<std::byte>(m.element == Element::int4 ? 16 : 255);
  for (std::int64_t p = 0; p < m.panels(); ++p) {
    std::byte* panel = packed.data() + static_cast<std::size_t>(p) * m.panel_bytes();
    for (std::int64_t lane = 0; lane < kPanelRows; ++lane)
      for (std::int64_t k = 0; k < m.k; ++k) panel[m.code_offset(lane, k)] = static_cast<std::byte>(high ? 255 : 0);
    if (m.has_zeros) std::fill_n(panel + m.zero_offset(), m.group_count() * kPanelRows, high ? std::byte{0} : most);
  }
}

TEST_P(Symmetric, RandomShapes) {
  std::mt19937 rng(20261121);
  const auto pick = [&](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng); };
  std::normal_distribution<float> normal;
  for (int round = 0; round < rounds(1000); ++round) {
    const bool zeros = pick(0, 1) == 1 && kernel().id->takes_zeros();
    MatrixShape c{pick(1, 70), 0, 0, pick(1, 2), pick(0, 1) == 1, static_cast<Scales>(pick(2, 4)), zeros};
    if (pick(0, 2) == 0) {
      c.k = c.group = pick(1, 300);
    } else {
      c.group = round % 50 == 1 ? 640 : 32 * pick(1, 6);  // 640: many passes of AMX
      c.k = c.group * pick(1, 5);
    }
    const int n = pick(1, kernel().tile_rows);
    const P16 m = matrix_for(kernel(), c);
    if (!takes(kernel(), m)) continue;
    auto packed = random_panels(m, rng);
    std::vector<float> x(static_cast<std::size_t>(n * c.k));
    for (float& v : x) v = normal(rng) * 3;
    if (round % 8 == 5) {
      make_extreme(m, packed, pick(0, 1) == 1);
      std::fill(x.begin(), x.end(), pick(0, 1) == 1 ? 32512.0f : -32512.0f);  // the largest code of 16 bits
    }
    if (round % 8 == 7) x[rng() % x.size()] = rng() % 2 == 0 ? NAN : -INFINITY;
    if (round % 8 == 3) std::fill_n(x.begin(), c.k, rng() % 2 == 0 ? 0.0f : 1e-31f);
    const TileShape shape = tile_shape(kernel(), m);
    const auto tile = make_tile(scalar(), shape, x.data(), n, HalfRule::even),
               own = make_tile(kernel(), shape, x.data(), n, HalfRule::even);
    if (!shape.has_values(n)) {
      ASSERT_EQ(tile, own) << kernel().id->name << " k " << c.k << " g " << c.group << " n " << n;
    }
    const std::int64_t ld = m.panels() * kPanelRows + 3;
    std::vector<float> want(static_cast<std::size_t>(n * ld), -1.0f), got = want;
    multiply(scalar(), {&m, packed.data(), m.panels(), tile.data(), n, shape, want.data(), ld, nullptr});
    const PrefetchPolicy prefetch{64 * pick(0, 200), pick(0, 1) == 1, pick(0, 1) == 1, pick(0, 1) == 1};
    multiply(kernel(),
             {&m, packed.data(), m.panels(), own.data(), n, shape, got.data(), ld, packed.data(), 0, 0, 1, prefetch});
    for (auto* v : {&want, &got})
      for (float& y : *v) y = std::isnan(y) ? NAN : y;
    ASSERT_EQ(0, std::memcmp(want.data(), got.data(), want.size() * 4))
        << kernel().id->name << " round " << round << " rows " << m.rows() << " k " << c.k << " g " << c.group << " n "
        << n << " zeros " << zeros;
    if (round % 8 == 7) continue;
    for (int r = 0; r < n; ++r)
      for (std::int64_t i = 0; i < m.rows(); i += 5) {
        const std::byte* panel = packed.data() + static_cast<std::size_t>(m.panel_of(i)) * m.panel_bytes();
        double size = 0;
        const double y = product(m, panel, m.lane_of(i), shape, tile, n, r, size);
        const float value = got[static_cast<std::size_t>(r * ld + m.panel_of(i) * kPanelRows + m.lane_of(i))];
        ASSERT_LE(std::fabs(static_cast<double>(value) - y), 0x1p-18 * size) << kernel().id->name << " k " << c.k;
      }
  }
}

// Halves go to the even code, tiny rows count as zero, NaN and Inf poison their own scale.
TEST_P(Symmetric, OddRows) {
  std::mt19937 rng(5);
  const float specials[] = {0.0f, -0.0f, 1e-45f, 0x1p-101f, 0x1p-100f, 3.4e38f, -3.4e38f, INFINITY, NAN};
  const std::int32_t factors[] = {code_bias(*p16_element(kernel().id->layout)), 1};
  for (const std::int64_t k : {1, 7, 31, 32, 33, 63, 64, 65, 100, 256})
    for (int round = 0; round < rounds(60); ++round) {
      std::vector<float> x(static_cast<std::size_t>(k));
      for (float& v : x) {
        v = static_cast<float>(static_cast<int>(rng() % 509) - 254) * 0.5f;
        if (round % 3 == 1 && rng() % 16 == 0) v = specials[rng() % std::size(specials)];
        if (round % 3 == 2) v *= 1e-32f;
      }
      if (round % 3 == 0) x[0] = kernel().id->act == ActFormat::blk16 ? 32512.0f : 127.0f;  // a scale of exactly 1
      const TileShape shape{k, {}, kernel().id->act, factors[round % 2]};
      ASSERT_EQ(make_tile(scalar(), shape, x.data(), 1, HalfRule::even),
                make_tile(kernel(), shape, x.data(), 1, HalfRule::even))
          << k << " " << round;
    }
}

TEST(SymmetricScale, Definition) {
  EXPECT_EQ(ref::symmetric_scale(127.0f).scale, 1.0f);
  EXPECT_EQ(ref::symmetric_scale(0x1p-101f).scale, 0.0f);
  EXPECT_GT(ref::symmetric_scale(0x1p-100f).scale, 0.0f);
  EXPECT_TRUE(std::isnan(ref::symmetric_scale(INFINITY).scale));
  EXPECT_EQ(ref::symmetric_code(0.5f, 1.0f), 0);
  EXPECT_EQ(ref::symmetric_code(1.5f, 1.0f), 2);
  EXPECT_EQ(ref::symmetric_code(-2.5f, 1.0f), -2);
  EXPECT_EQ(ref::symmetric_code(-127.0f, 1.0f), -127);
  EXPECT_EQ(ref::symmetric_scale16(32512.0f).scale, 1.0f);
  EXPECT_EQ(ref::symmetric_scale16(32513.0f).scale, 2.0f);
  EXPECT_EQ(ref::symmetric_scale16(16384.0f).scale, 1.0f);
  EXPECT_EQ(ref::symmetric_scale16(0.0f).scale, 0.0f);
  EXPECT_EQ(ref::symmetric_scale16(3.4e38f).scale, 0x1p114f);
  EXPECT_TRUE(std::isnan(ref::symmetric_scale16(NAN).scale));
}

TEST(Digits, AreNearestAndSmall) {
  for (int code = -32512; code <= 32512; ++code) {
    const ref::Digits d = ref::digits_of(code);
    ASSERT_EQ(255 * d.high + d.low, code);
    ASSERT_TRUE(d.high >= -127 && d.high <= 127 && d.low >= -127 && d.low <= 127) << code;
    ASSERT_EQ(std::nearbyint(static_cast<float>(code) * (1.0f / 255)), d.high);  // as vector rows find it
  }
}

// bf16 values are kept as they are down to 2^-6 of the largest power of two of their block, fp16 values down to 2^-3;
// what is smaller moves by at most 2^-14 of it.
TEST(SixteenBits, KeepsValuesOfSixteenBits) {
  constexpr std::int64_t kColumns = 256, kBlock = 128;
  const TileShape shape{kColumns, Groups::even(kBlock), ActFormat::blk16, 8};
  ASSERT_EQ(shape.scaled_columns(), kBlock);
  std::mt19937 rng(7);
  for (const auto& [bits, reach] : {std::pair{8u, 6u}, std::pair{11u, 3u}})
    for (int round = 0; round < rounds(1000); ++round) {
      const unsigned deeper = round % 2 == 0 ? 0 : 12;
      std::vector<float> x(kColumns);
      const int exponent = static_cast<int>(rng() % 120) - 60;
      for (float& v : x) {
        const auto mantissa = static_cast<float>((1u << (bits - 1)) + rng() % (1u << (bits - 1)));
        const auto down = static_cast<int>(bits - 1 + rng() % (reach + 1 + deeper));
        v = std::ldexp(mantissa, exponent - down) * (rng() % 2 == 0 ? 1.0f : -1.0f);
      }
      x[0] = x[kBlock] = std::ldexp(1.5f, exponent);
      const Kernel& kernel = *kernel_at(*kernel_index("w4a16_blk16_p16_scalar"));
      const auto tile = make_tile(kernel, shape, x.data(), 1, HalfRule::even);
      const BlockRow row = block_row(shape, {const_cast<std::byte*>(tile.data()), 1, 0});
      for (std::int64_t k = 0; k < kColumns; ++k) {
        const std::int8_t* code = row.codes + k / kUnitK * row.code_stride + k % kUnitK;
        const float kept = static_cast<float>(255 * code[0] + code[kUnitK]) * row.scale[k / kBlock * row.stride];
        const float was = x[static_cast<std::size_t>(k)];
        if (std::fabs(was) >= std::ldexp(1.0f, exponent - static_cast<int>(reach)))
          ASSERT_EQ(kept, was) << round << " " << k;
        else
          ASSERT_LE(std::fabs(kept - was), std::ldexp(1.0f, exponent - 14)) << round << " " << k;
      }
    }
}

INSTANTIATE_TEST_SUITE_P(All, Symmetric, testing::ValuesIn(symmetric_rows()),
                         [](const auto& param) { return std::string(param.param->id->name); });

}  // namespace
}  // namespace moe::test::symmetric_test
