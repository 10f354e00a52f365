// FP8 and MXFP8 weights: exact rows have the bits of the scalar one; rows of their own bits are within the bound of any
// float32 sum. All of them have the same bits for every tile size and number of panels, and odd values stay in their
// row. A new row is tested without touching this file.
#include "support/float8.h"

#include <gtest/gtest.h>

#include <limits>

#include "support/share.h"

namespace moe::test::float8_test {
namespace {

class Float8Rows : public testing::TestWithParam<const Kernel*> {
 protected:
  const Kernel& kernel() const { return *GetParam(); }
  Float8Maker maker_{*GetParam()};
  Float8Case draw(Powers powers) { return maker_.make(maker_.pick(1, kernel().tile_rows), powers); }
};

class ExactFloat8Rows : public Float8Rows {};

TEST_P(ExactFloat8Rows, BitsOfTheScalarRow) {
  for (int round = 0; round < rounds(1000); ++round) {
    const Float8Case c = draw(static_cast<Powers>(round % 3));
    if (c.act == ActFormat::e4m3) {
      ASSERT_EQ(make_tile(scalar_of(kernel()), c.shape(), c.x.data(), c.n, HalfRule::away),
                make_tile(kernel(), c.shape(), c.x.data(), c.n, HalfRule::away))
          << c.words();
    }
    const auto want = results(scalar_of(kernel()), c), got = results(kernel(), c, round % 2 == 0);
    ASSERT_EQ(0, std::memcmp(want.data(), got.data(), want.size() * sizeof(float))) << c.words();
  }
}

// The forward bound of the float families (numerics.md 1): any order of float32 sums, and what a flushed subnormal may
// cost, before the scales or behind them.
TEST_P(Float8Rows, WithinTheBoundOfAnyOrder) {
  for (int round = 0; round < rounds(300); ++round) {
    const Float8Case c = draw(round % 3 == 0 ? Powers::low : Powers::near);
    const auto out = results(kernel(), c, round % 2 == 0);
    const std::vector<double> x = c.inputs();
    double error2 = 0, size2 = 0;
    for (int r = 0; r < c.n; ++r)
      for (std::int64_t n = 0; n < c.m.rows(); ++n) {
        double y = c.m.has_bias ? static_cast<double>(c.bias[static_cast<std::size_t>(n)]) : 0.0, size = std::fabs(y),
               flushed = 0;
        for (std::int64_t k = 0; k < c.m.k; ++k) {
          const double term = x[static_cast<std::size_t>(r * c.m.k + k)] * c.weight(n, k);
          y += term;
          size += std::fabs(term);
          flushed += 0x1p-126 * std::max(1.0, std::fabs(c.scale(n, k)));
        }
        const double error = static_cast<double>(out[c.result(r, n)]) - y;
        const auto roundings = static_cast<double>(c.m.k + c.m.group_count() + 6);
        ASSERT_LE(std::fabs(error), roundings * 0x1p-24 * size + flushed) << c.words();
        error2 += error * error;
        size2 += y * y;
      }
    if (size2 > 0x1p-200) {
      ASSERT_LE(error2, size2 * 0x1p-36) << c.words();
    }
  }
}

// A row's bits depend neither on the rows beside it nor on how many panels a call has.
TEST_P(Float8Rows, BitsOfARowAlone) {
  for (int round = 0; round < rounds(300); ++round) {
    const Float8Case c = draw(static_cast<Powers>(round % 3));
    const auto all = results(kernel(), c, true);
    const int r = maker_.pick(0, c.n - 1);
    const auto tile = make_tile(kernel(), c.shape(), c.x.data() + r * c.m.k, 1, HalfRule::away);
    for (std::int64_t p = 0; p < c.m.panels(); ++p) {
      float one[kPanelRows];
      multiply(kernel(), {&c.m, c.packed.data() + static_cast<std::size_t>(p) * c.m.panel_bytes(), 1, tile.data(), 1,
                          c.shape(), one, kPanelRows, nullptr});
      for (float& y : one) y = std::isnan(y) ? NAN : y;
      ASSERT_EQ(0, std::memcmp(one, all.data() + r * c.ld() + p * kPanelRows, sizeof one)) << c.words();
    }
  }
}

TEST_P(Float8Rows, OddValuesStayInTheirRow) {
  for (int round = 0; round < rounds(60); ++round) {
    Float8Case c = maker_.make(maker_.pick(2, kernel().tile_rows), Powers::near);
    const auto before = results(kernel(), c);
    const int bad = maker_.pick(0, c.n - 1);
    constexpr float kOdd[] = {NAN, INFINITY, -INFINITY};
    c.x[static_cast<std::size_t>(bad * c.m.k + maker_.pick(0, static_cast<int>(c.m.k) - 1))] = kOdd[round % 3];
    const auto after = results(kernel(), c);
    for (int r = 0; r < c.n; ++r)
      for (std::int64_t n = 0; n < c.m.rows(); ++n) {
        if (r != bad)
          ASSERT_EQ(before[c.result(r, n)], after[c.result(r, n)]) << c.words();
        else
          ASSERT_FALSE(std::isfinite(after[c.result(r, n)]) && round % 3 == 0) << c.words();
      }
  }
}

// Each code that is a number, alone in a sum, comes out as what it is, subnormal ones and with each power too.
TEST_P(Float8Rows, EveryCode) {
  constexpr std::int64_t kK = 64;
  const bool mx = kernel().id->layout == LayoutKind::p16_mxfp8;
  const int n = std::min(kernel().tile_rows, static_cast<int>(kK));
  Float8Case c;
  c.act = kernel().id->act;
  c.n = n;
  c.halves = c.act == ActFormat::e4m3 && kernel().takes_halves;
  c.floats = mx ? kMxActs : FloatActs{FloatScale::group, 32, true};  // 1 is 1
  c.m = {{.element = Element::e4m3, .scales = mx ? Scales::e8m0 : Scales::f32, .half_rows = 16, .halves = 1, .k = kK}};
  c.m.groups = Groups::of_size(32, kK);
  c.codes.resize(16 * kK);
  for (std::size_t i = 0; i < c.codes.size(); ++i) c.codes[i] = static_cast<std::uint8_t>((i & 0x7f) == 0x7f ? 0 : i);
  for (const int power : {0, -3, 100, -100, -117, -118, -127, 119}) {
    c.scales.assign(32, std::ldexp(1.0f, power));
    c.packed = pack_p16_codes(c.m, c.codes, c.scales, {});
    for (int first = 0; first < kK; first += n) {
      c.x.assign(static_cast<std::size_t>(n * kK), 0.0f);
      for (int r = 0; r < n && first + r < kK; ++r) c.x[static_cast<std::size_t>(r * kK + first + r)] = 1.0f;
      const auto out = results(kernel(), c);
      for (int r = 0; r < n && first + r < kK; ++r)
        for (std::int64_t row = 0; row < 16; ++row)
          ASSERT_EQ(out[c.result(r, row)], static_cast<float>(c.weight(row, first + r)))
              << "2^" << power << ", row " << row << ", column " << first + r;
    }
  }
}

std::vector<const Kernel*> float8_rows(bool exact_only = false) {
  std::vector<const Kernel*> rows;
  for (const LayoutKind layout : {LayoutKind::p16_e4m3, LayoutKind::p16_mxfp8})
    for (const ActFormat act : {ActFormat::e4m3, ActFormat::bf16, ActFormat::f32})
      for (const Kernel* k : runnable_kernels(layout, act))
        if (!exact_only || k->exact) rows.push_back(k);
  return rows;
}

std::string name_of(const testing::TestParamInfo<const Kernel*>& row) { return std::string(row.param->id->name); }
INSTANTIATE_TEST_SUITE_P(All, Float8Rows, testing::ValuesIn(float8_rows()), name_of);
INSTANTIATE_TEST_SUITE_P(All, ExactFloat8Rows, testing::ValuesIn(float8_rows(true)), name_of);

}  // namespace
}  // namespace moe::test::float8_test
