// Integer weights with scales against rows of float32 and of 16 bits: the bits of the scalar row; against float64
// within the bound of any float32 sum, with the same bits for every tile size and number of panels.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/p16.h"
#include "support/rooms.h"
#include "support/share.h"

namespace moe::test::wna16_test {
namespace {

struct Case {
  P16 m;
  std::vector<std::int8_t> w;
  std::vector<float> scales, bias, x;
  std::vector<std::uint8_t> zeros;
  std::vector<std::byte> packed;
  int n;

  ActFormat act;
  int values;  // TileShape::values

  TileShape shape() const { return {m.k, m.groups, act, m.sum_factor(), false, values}; }
  std::int64_t ld() const { return m.panels() * kPanelRows + n % 3; }
  float weight(std::int64_t row, std::int64_t k) const {
    const auto at = static_cast<std::size_t>(row * m.group_count() + (m.groups.is_whole() ? 0 : k / m.group()));
    const int zero = m.has_zeros ? zeros[at] - code_bias(m.element) : 0;
    return static_cast<float>(w[static_cast<std::size_t>(row * m.k + k)] - zero) * scales[at];
  }
};

class Maker {
 public:
  explicit Maker(const Kernel& kernel)
      : layout_(kernel.id->layout),
        act_(kernel.id->act),
        takes_values_(kernel.takes_values),
        takes_zeros_(kernel.id->takes_zeros()) {
    for (const std::int64_t group : {32, 32, 64, 96, 128, 160, 192})
      if (kernel.id->takes(Groups::of_size(group))) groups_.push_back(group);
  }

  int pick(int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng_); }
  float normal() { return normal_(rng_); }

  Case make(int n) {
    Case c;
    c.n = n;
    c.act = act_;
    c.values = takes_values_ ? pick(1, 2) : 0;  // the input is bf16
    std::int64_t k = pick(0, 9) == 0 ? pick(1, 1200) : pick(1, 200), group = k;
    if (pick(0, 2) != 0) {
      group = groups_[static_cast<std::size_t>(pick(0, static_cast<int>(groups_.size()) - 1))];
      k = group * pick(1, pick(0, 9) == 0 ? 12 : 5);
    }
    constexpr Scales kScales[] = {Scales::f32, Scales::bf16, Scales::f16};
    c.m = {{.element = *p16_element(layout_),
            .scales = kScales[pick(0, 2)],
            .has_zeros = takes_zeros_ && pick(0, 1) == 1,
            .half_rows = pick(1, 90),
            .halves = pick(1, 2),
            .k = k,
            .groups = Groups::of_size(group, k),
            .has_bias = pick(0, 1) == 1}};
    fill(c);
    return c;
  }

 private:
  void fill(Case& c) {
    const int bias = code_bias(c.m.element);
    const auto rows = static_cast<std::size_t>(c.m.rows());
    c.w.resize(rows * static_cast<std::size_t>(c.m.k));
    for (auto& v : c.w) v = static_cast<std::int8_t>(pick(-bias, bias - 1));
    c.scales.resize(rows * static_cast<std::size_t>(c.m.group_count()));
    for (auto& v : c.scales) {
      v = pick(0, 30) == 0 ? (pick(0, 1) == 0 ? 0.0f : -0.0f) : normal() * 0.05f;
      if (c.m.scales == Scales::bf16) v = bf16_to_f32(f32_to_bf16(v));
      if (c.m.scales == Scales::f16) v = f16_to_f32(f32_to_f16(v));
    }
    c.zeros.resize(c.m.has_zeros ? c.scales.size() : 0);
    for (auto& v : c.zeros) v = static_cast<std::uint8_t>(pick(0, 2 * bias - 1));
    c.bias.resize(rows);
    for (auto& v : c.bias) v = normal();
    c.x.resize(static_cast<std::size_t>(c.n * c.m.k));
    for (auto& v : c.x) {
      v = pick(0, 50) == 0 ? normal() * 1e-39f : normal() * 3;
      if (act_ == ActFormat::blk16) v = bf16_to_f32(f32_to_bf16(v));
    }
    c.packed = pack_plain(c.m, c.w, c.scales, c.zeros, c.m.has_bias ? c.bias : std::vector<float>{});
  }

  LayoutKind layout_;
  ActFormat act_;
  bool takes_values_, takes_zeros_;
  std::vector<std::int64_t> groups_;  // that the row takes
  std::mt19937 rng_{20261121};
  std::normal_distribution<float> normal_;
};

// NaNs are all alike.
std::vector<float> results(const Kernel& kernel, const Case& c, bool next) {
  const auto tile = make_tile(kernel, c.shape(), c.x.data(), c.n, HalfRule::away);
  std::vector<float> out(static_cast<std::size_t>(c.n * c.ld()), -1.0f);
  multiply(kernel, {&c.m, c.packed.data(), c.m.panels(), tile.data(), c.n, c.shape(), out.data(), c.ld(),
                    next ? c.packed.data() : nullptr});
  for (float& v : out) v = std::isnan(v) ? std::numeric_limits<float>::quiet_NaN() : v;
  return out;
}

std::string words(const Case& c) {
  return "rows " + std::to_string(c.m.rows()) + " k " + std::to_string(c.m.k) + " g " + std::to_string(c.m.group()) +
         " n " + std::to_string(c.n) + (c.m.has_zeros ? " zeros" : "") + " scales " +
         std::to_string(static_cast<int>(c.m.scales));
}

// Result of tile row r and matrix row n.
float at(const Case& c, const std::vector<float>& out, int r, std::int64_t n) {
  return out[static_cast<std::size_t>(r * c.ld() + c.m.panel_of(n) * kPanelRows + c.m.lane_of(n))];
}

// The largest power of two in the block of 16-bit codes that has column k of row r.
double largest(const Case& c, int r, std::int64_t k) {
  const std::int64_t columns = c.shape().scaled_columns(), begin = k / columns * columns;
  float most = 0;
  for (std::int64_t i = begin; i < std::min(begin + columns, c.m.k); ++i)
    most = std::max(most, std::fabs(c.x[static_cast<std::size_t>(r * c.m.k + i)]));
  return most == 0 ? 0 : std::ldexp(1.0, std::ilogb(most));
}

class Wna16Rows : public testing::TestWithParam<const Kernel*> {};

class ExactWna16Rows : public Wna16Rows {};

TEST_P(ExactWna16Rows, BitsOfTheScalarRow) {
  const Kernel& kernel = *GetParam();
  Maker maker(kernel);
  for (int round = 0; round < rounds(1000); ++round) {
    Case c = maker.make(maker.pick(1, kernel.tile_rows));
    if (round % 8 == 7) c.x[static_cast<std::size_t>(maker.pick(0, static_cast<int>(c.x.size()) - 1))] = NAN;
    const auto want = results(scalar_of(kernel), c, false), got = results(kernel, c, round % 2 == 0);
    ASSERT_EQ(0, std::memcmp(want.data(), got.data(), want.size() * 4)) << round << ": " << words(c);
  }
}

TEST_P(Wna16Rows, WithinTheBoundOfAnyOrder) {
  const Kernel& kernel = *GetParam();
  const ActFormat act = kernel.id->act;
  Maker maker(kernel);
  for (int round = 0; round < rounds(200); ++round) {
    const Case c = maker.make(maker.pick(1, kernel.tile_rows));
    const auto out = results(kernel, c, false);
    for (int r = 0; r < c.n; ++r)
      for (std::int64_t n = 0; n < c.m.rows(); ++n) {
        double moved = 0, y = c.m.has_bias ? static_cast<double>(c.bias[static_cast<std::size_t>(n)]) : 0.0,
               size = std::fabs(y);
        for (std::int64_t k = 0; k < c.m.k; ++k) {
          const double term =
              static_cast<double>(c.x[static_cast<std::size_t>(r * c.m.k + k)]) * static_cast<double>(c.weight(n, k));
          y += term;
          if (act == ActFormat::blk16)
            moved += 0x1p-14 * largest(c, r, k) * std::fabs(static_cast<double>(c.weight(n, k)));
          size += std::fabs(term);
        }
        // weight() is rounded once more than (code - zero) * scale; codes of 16 bits are not always the value
        ASSERT_LE(std::fabs(static_cast<double>(at(c, out, r, n)) - y),
                  static_cast<double>(c.m.k + 5) * 0x1p-24 * size + moved + 0x1p-90)
            << words(c);
      }
  }
}

TEST_P(Wna16Rows, OddValuesStayInTheirRow) {
  const Kernel& kernel = *GetParam();
  Maker maker(kernel);
  for (int round = 0; round < rounds(60); ++round) {
    Case c = maker.make(maker.pick(2, kernel.tile_rows));
    const auto before = results(kernel, c, false);
    const int bad = maker.pick(0, c.n - 1);
    constexpr float kOdd[] = {NAN, INFINITY, -INFINITY};
    c.x[static_cast<std::size_t>(bad * c.m.k + maker.pick(0, static_cast<int>(c.m.k) - 1))] = kOdd[round % 3];
    const auto after = results(kernel, c, false);
    for (int r = 0; r < c.n; ++r)
      for (std::int64_t n = 0; n < c.m.rows(); ++n) {
        if (r != bad)
          ASSERT_EQ(at(c, before, r, n), at(c, after, r, n)) << words(c);
        else
          ASSERT_FALSE(std::isfinite(at(c, after, r, n)) && round % 3 == 0) << words(c);
      }
  }
}

// A row's bits depend neither on the rows beside it nor on how many panels a call has.
TEST_P(Wna16Rows, BitsOfARowAlone) {
  const Kernel& kernel = *GetParam();
  Maker maker(kernel);
  for (int round = 0; round < rounds(60); ++round) {
    const Case c = maker.make(kernel.tile_rows);
    const auto all = results(kernel, c, false);
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

std::vector<const Kernel*> wna16_rows(bool exact_only) {
  std::vector<const Kernel*> rows;
  for (const LayoutKind kind : {LayoutKind::p16_w4, LayoutKind::p16_w8})
    for (const ActFormat act : {ActFormat::f32, ActFormat::blk16})
      for (const Kernel* k : runnable_kernels(kind, act))
        if (k->exact || !exact_only) rows.push_back(k);
  return rows;
}

std::string name_of(const testing::TestParamInfo<const Kernel*>& param) { return std::string(param.param->id->name); }

INSTANTIATE_TEST_SUITE_P(All, Wna16Rows, testing::ValuesIn(wna16_rows(false)), name_of);
INSTANTIATE_TEST_SUITE_P(All, ExactWna16Rows, testing::ValuesIn(wna16_rows(true)), name_of);

}  // namespace
}  // namespace moe::test::wna16_test
