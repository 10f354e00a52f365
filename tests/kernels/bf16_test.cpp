// bf16 weights against bf16 rows: rows of their own bits. Against float64 within the bound of a sum of their kind, the
// same bits for every tile size and number of panels, odd values stay in their row.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/p16.h"
#include "support/rooms.h"
#include "support/share.h"

namespace moe::test::bf16_test {
namespace {

float to_bf16(float v) { return bf16_to_f32(f32_to_bf16(v)); }

struct Case {
  P16 m;
  std::vector<float> w, bias, x;
  std::vector<std::byte> packed;
  int n;

  TileShape shape() const { return {m.k, {}, ActFormat::bf16}; }
  std::int64_t ld() const { return m.panels() * kPanelRows + n % 3; }
};

class Maker {
 public:
  int pick(int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng_); }
  float normal() { return to_bf16(normal_(rng_)); }

  Case make(int n) {
    Case c;
    c.n = n;
    c.m = {{.element = Element::bf16,
            .scales = Scales::none,
            .half_rows = pick(1, 90),
            .halves = pick(1, 2),
            .k = pick(0, 9) == 0 ? pick(1, 1500) : pick(1, 200)}};
    c.m.groups = {};
    c.m.has_bias = pick(0, 1) == 1;
    c.w.resize(static_cast<std::size_t>(c.m.rows() * c.m.k));
    for (auto& v : c.w) v = normal();
    c.bias.resize(static_cast<std::size_t>(c.m.rows()));
    for (auto& v : c.bias) v = normal();
    c.x.resize(static_cast<std::size_t>(n * c.m.k));
    for (auto& v : c.x) v = to_bf16(normal() * 3);
    c.packed = pack_p16_floats(c.m, c.w, c.m.has_bias ? c.bias : std::vector<float>{});
    return c;
  }

 private:
  std::mt19937 rng_{20261121};
  std::normal_distribution<float> normal_;
};

std::vector<float> results(const Kernel& kernel, const Case& c, bool next = false) {
  const auto tile = make_tile(kernel, c.shape(), c.x.data(), c.n, HalfRule::away);
  std::vector<float> out(static_cast<std::size_t>(c.n * c.ld()), -1.0f);
  multiply(kernel, {&c.m, c.packed.data(), c.m.panels(), tile.data(), c.n, c.shape(), out.data(), c.ld(),
                    next ? c.packed.data() : nullptr});
  return out;
}

std::string words(const Case& c) {
  return "rows " + std::to_string(c.m.rows()) + " k " + std::to_string(c.m.k) + " n " + std::to_string(c.n);
}

float at(const Case& c, const std::vector<float>& out, int r, std::int64_t n) {
  return out[static_cast<std::size_t>(r * c.ld() + c.m.panel_of(n) * kPanelRows + c.m.lane_of(n))];
}

class Bf16Rows : public testing::TestWithParam<const Kernel*> {};

// The forward bound of the float families (numerics.md 1): any order of float32 sums, and what a flushed subnormal may
// cost.
TEST_P(Bf16Rows, WithinTheBoundOfAnyOrder) {
  const Kernel& kernel = *GetParam();
  Maker maker;
  for (int round = 0; round < rounds(1000); ++round) {
    const Case c = maker.make(maker.pick(1, kernel.tile_rows));
    const auto out = results(kernel, c, round % 2 == 0);
    double error2 = 0, size2 = 0;
    for (int r = 0; r < c.n; ++r)
      for (std::int64_t n = 0; n < c.m.rows(); ++n) {
        double y = c.m.has_bias ? static_cast<double>(c.bias[static_cast<std::size_t>(n)]) : 0.0, size = std::fabs(y);
        for (std::int64_t k = 0; k < c.m.k; ++k) {
          const double term = static_cast<double>(c.x[static_cast<std::size_t>(r * c.m.k + k)]) *
                              static_cast<double>(c.w[static_cast<std::size_t>(n * c.m.k + k)]);
          y += term;
          size += std::fabs(term);
        }
        const double error = static_cast<double>(at(c, out, r, n)) - y, k = static_cast<double>(c.m.k);
        ASSERT_LE(std::fabs(error), (k + 4) * 0x1p-24 * size + k * 0x1p-126) << words(c);
        error2 += error * error;
        size2 += y * y;
      }
    ASSERT_LE(error2, size2 * 0x1p-40) << words(c);  // in practice: far below the 2^-7 that is asked for
  }
}

// A row's bits depend neither on the rows beside it nor on how many panels a call has.
TEST_P(Bf16Rows, BitsOfARowAlone) {
  const Kernel& kernel = *GetParam();
  Maker maker;
  for (int round = 0; round < rounds(300); ++round) {
    const Case c = maker.make(maker.pick(1, kernel.tile_rows));
    const auto all = results(kernel, c, true);
    const int r = maker.pick(0, c.n - 1);
    const auto tile = make_tile(kernel, c.shape(), c.x.data() + r * c.m.k, 1, HalfRule::away);
    for (std::int64_t p = 0; p < c.m.panels(); ++p) {
      float one[kPanelRows];
      multiply(kernel, {&c.m, c.packed.data() + static_cast<std::size_t>(p) * c.m.panel_bytes(), 1, tile.data(), 1,
                        c.shape(), one, kPanelRows, nullptr});
      ASSERT_EQ(0, std::memcmp(one, all.data() + r * c.ld() + p * kPanelRows, sizeof one)) << words(c);
    }
  }
}

TEST_P(Bf16Rows, OddValuesStayInTheirRow) {
  const Kernel& kernel = *GetParam();
  Maker maker;
  for (int round = 0; round < rounds(60); ++round) {
    Case c = maker.make(maker.pick(2, kernel.tile_rows));
    const auto before = results(kernel, c);
    const int bad = maker.pick(0, c.n - 1);
    constexpr float kOdd[] = {NAN, INFINITY, -INFINITY};
    c.x[static_cast<std::size_t>(bad * c.m.k + maker.pick(0, static_cast<int>(c.m.k) - 1))] = kOdd[round % 3];
    const auto after = results(kernel, c);
    for (int r = 0; r < c.n; ++r)
      for (std::int64_t n = 0; n < c.m.rows(); ++n) {
        if (r != bad)
          ASSERT_EQ(at(c, before, r, n), at(c, after, r, n)) << words(c);
        else
          ASSERT_FALSE(std::isfinite(at(c, after, r, n)) && round % 3 == 0) << words(c);
      }
  }
}

// The tile holds the nearest bf16 values, ties to even, zeros behind K.
TEST_P(Bf16Rows, Quantize) {
  const Kernel& kernel = *GetParam();
  std::mt19937 rng(3);
  for (const std::int64_t k : {1, 2, 15, 31, 32, 33, 63, 64, 65, 100, 256})
    for (int n = 1; n <= kernel.tile_rows; n += 3) {
      std::vector<float> x(static_cast<std::size_t>(n * k));
      for (float& v : x) {
        v = std::bit_cast<float>(static_cast<std::uint32_t>(rng()));
        if (std::isnan(v)) v = std::numeric_limits<float>::quiet_NaN();
      }
      const TileShape shape{k, {}, ActFormat::bf16};
      const auto tile = make_tile(kernel, shape, x.data(), n, HalfRule::away);
      for (int r = 0; r < n; ++r)
        for (std::int64_t i = 0; i < shape.units() * kUnitK; ++i) {
          std::uint16_t got;
          std::memcpy(&got, tile.data() + ((i / 32 * n + r) * 32 + i % 32) * 2, 2);
          ASSERT_EQ(got, i < k ? f32_to_bf16(x[static_cast<std::size_t>(r * k + i)]) : 0) << k << " " << i;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, Bf16Rows, testing::ValuesIn(runnable_kernels(LayoutKind::p16_bf16, ActFormat::bf16)),
                         [](const auto& param) { return std::string(param.param->id->name); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Bf16Rows);  // a machine without AVX512-BF16 has none

}  // namespace
}  // namespace moe::test::bf16_test
