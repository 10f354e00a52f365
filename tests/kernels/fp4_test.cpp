// MXFP4 and NVFP4 weights: every row has the bits of the scalar row, for every tile size and number of panels; the
// scalar row is what float64 says of its codes and scales. A new row is tested without touching this file.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/ref/float_acts.h"
#include "support/p16.h"
#include "support/rooms.h"
#include "support/share.h"

namespace moe::test::fp4_test {
namespace {

constexpr double kValues[16] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6};  // by code

struct Case {
  P16 m;
  ActFormat act;
  std::vector<std::uint8_t> codes;
  std::vector<float> scales, tensor_scales, bias, x;
  std::vector<std::byte> packed;
  int n;
  int values = 0;  // TileShape::values

  TileShape shape() const { return {m.k, m.groups, act, m.sum_factor(), false, values, kMxActs}; }
  std::int64_t ld() const { return m.panels() * kPanelRows + n % 3; }
  std::size_t result(int row, std::int64_t weight_row) const {
    return static_cast<std::size_t>(row * ld() + m.panel_of(weight_row) * kPanelRows + m.lane_of(weight_row));
  }
  double weight(std::int64_t row, std::int64_t k) const {
    const std::int64_t group = m.groups.is_whole() ? 0 : k / m.group();
    const double value = kValues[codes[static_cast<std::size_t>(row * m.k + k)]] *
                         static_cast<double>(scales[static_cast<std::size_t>(row * m.group_count() + group)]);
    return m.has_tensor_scale()
               ? value * static_cast<double>(tensor_scales[static_cast<std::size_t>(row / m.half_rows)])
               : value;
  }
  void pack() { packed = pack_p16_codes(m, codes, scales, m.has_bias ? bias : std::vector<float>{}, tensor_scales); }
  std::string words() const {
    return "rows " + std::to_string(m.rows()) + ", k " + std::to_string(m.k) + ", group " + std::to_string(m.group()) +
           ", " + std::to_string(n) + " tokens";
  }
};

class Maker {
 public:
  explicit Maker(const Kernel& kernel) : kernel_(kernel), nv_(kernel.id->layout == LayoutKind::p16_nvfp4) {}

  int pick(int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng_); }
  float normal() { return normal_(rng_); }

  // all_powers: of e8m0 scales, which overflow and underflow then.
  Case make(int n, bool all_powers = false) {
    const std::int64_t own = nv_ ? 16 : 32, group = pick(0, 5) == 0 ? own * pick(2, 9) : own;
    std::int64_t k = group * (pick(0, 9) == 0 ? pick(1, 60) : pick(1, 12));
    const bool whole = pick(0, 19) == 0;
    if (whole) k = pick(1, 300);
    Case c;
    c.n = n;
    c.act = kernel_.id->act;
    c.values = kernel_.takes_values ? pick(1, 2) : 0;  // the input is bf16
    c.m = {{.element = Element::e2m1,
            .scales = nv_ ? Scales::e4m3 : Scales::e8m0,
            .half_rows = pick(1, 70),
            .halves = pick(1, 2),
            .k = k,
            .groups = whole ? Groups::whole() : Groups::of_size(group, k),
            .has_bias = pick(0, 1) == 1}};
    fill(c, all_powers);
    return c;
  }

  void fill(Case& c, bool all_powers) {
    const int kind = pick(0, 7);  // 0: the largest sums, of one sign
    const auto rows = static_cast<std::size_t>(c.m.rows());
    c.codes.resize(rows * static_cast<std::size_t>(c.m.k));
    const auto extreme = static_cast<std::uint8_t>(pick(0, 1) * 8 + 7);
    for (auto& code : c.codes) code = kind == 0 ? extreme : static_cast<std::uint8_t>(pick(0, 15));
    c.scales.resize(rows * static_cast<std::size_t>(c.m.group_count()));
    for (auto& s : c.scales)
      s = nv_          ? small_to_f32(kE4m3, static_cast<unsigned>(pick(0, 0x7e)))
          : all_powers ? e8m0_to_f32(static_cast<unsigned>(pick(0, 254)))
                       : std::ldexp(1.0f, pick(-20, 4));
    c.tensor_scales = {std::fabs(normal()) + 0.01f, 0x1p-100f};
    c.bias.resize(rows);
    for (auto& v : c.bias) v = normal();
    c.x.resize(static_cast<std::size_t>(c.n * c.m.k));
    const float all = static_cast<float>(pick(0, 1) * 2 - 1) * 32512.0f;  // the largest code
    for (auto& v : c.x)
      v = kind == 0 ? all : bf16_to_f32(f32_to_bf16(pick(0, 40) == 0 ? normal() * 1e-3f : normal() * 3));
    if (kind == 1) std::fill_n(c.x.begin(), c.m.k, pick(0, 1) == 0 ? 0.0f : 1e-31f);
    c.pack();
  }

 private:
  const Kernel& kernel_;
  bool nv_;
  std::mt19937 rng_{20261125};
  std::normal_distribution<float> normal_;
};

// NaNs are all alike.
std::vector<float> results(const Kernel& kernel, const Case& c, bool next = false,
                           const PrefetchPolicy& prefetch = {}) {
  const auto tile = make_tile(kernel, c.shape(), c.x.data(), c.n, HalfRule::even);
  std::vector<float> out(static_cast<std::size_t>(c.n * c.ld()), -1.0f);
  multiply(kernel, {&c.m, c.packed.data(), c.m.panels(), tile.data(), c.n, c.shape(), out.data(), c.ld(),
                    next ? c.packed.data() : nullptr, 0, 0, 1, prefetch});
  for (float& y : out) y = std::isnan(y) ? NAN : y;
  return out;
}

class Fp4Rows : public testing::TestWithParam<const Kernel*> {
 protected:
  const Kernel& kernel() const { return *GetParam(); }
  Maker maker_{*GetParam()};
  int pick(int lo, int hi) { return maker_.pick(lo, hi); }
};

TEST_P(Fp4Rows, BitsOfTheScalarRow) {
  for (int round = 0; round < rounds(400); ++round) {
    Case c = maker_.make(pick(1, kernel().tile_rows), round % 4 == 3);
    if (round % 8 == 7) c.x[static_cast<std::size_t>(pick(0, static_cast<int>(c.x.size()) - 1))] = NAN;
    if (!c.shape().has_values(c.n)) {
      ASSERT_EQ(make_tile(kernel(), c.shape(), c.x.data(), c.n, HalfRule::even),
                make_tile(scalar_of(kernel()), c.shape(), c.x.data(), c.n, HalfRule::even))
          << c.words();
    }
    const PrefetchPolicy prefetch{64 * pick(0, 200), pick(0, 1) == 1, pick(0, 1) == 1, pick(0, 1) == 1};
    const auto want = results(scalar_of(kernel()), c), got = results(kernel(), c, round % 2 == 0, prefetch);
    ASSERT_EQ(0, std::memcmp(want.data(), got.data(), want.size() * sizeof(float))) << round << ": " << c.words();
  }
}

// A packed file may hold any byte: also scales that conversion never writes, and padding that is none.
TEST_P(Fp4Rows, BitsOfTheScalarRowForAnyBytes) {
  for (int round = 0; round < rounds(200); ++round) {
    Case c = maker_.make(pick(1, kernel().tile_rows));
    const std::size_t changed = round % 2 == 0 ? c.m.scale_section() : c.m.panel_bytes();
    for (std::size_t at = 0; at < c.packed.size(); ++at)
      if (at % c.m.panel_bytes() < changed) c.packed[at] = static_cast<std::byte>(pick(0, 255));
    const auto want = results(scalar_of(kernel()), c), got = results(kernel(), c, round % 4 < 2);
    ASSERT_EQ(0, std::memcmp(want.data(), got.data(), want.size() * sizeof(float))) << round << ": " << c.words();
  }
}

// Against float64: of the codes that activations became, so that only float32 sums are between them; and of the
// activations themselves.
TEST_P(Fp4Rows, WithinTheBoundOfAnyOrder) {
  for (int round = 0; round < rounds(200); ++round) {
    const Case c = maker_.make(pick(1, kernel().tile_rows));
    const TileShape shape = c.shape();
    auto tile = make_tile(scalar_of(kernel()), shape, c.x.data(), c.n, HalfRule::even);
    const auto out = results(kernel(), c, round % 2 == 0);
    for (int r = 0; r < c.n; ++r) {
      std::vector<double> x(static_cast<std::size_t>(c.m.k));
      for (std::int64_t k = 0; k < c.m.k; ++k) {
        const auto at = static_cast<std::size_t>(k);
        x[at] = static_cast<double>(c.x[static_cast<std::size_t>(r * c.m.k + k)]);
        if (c.act == ActFormat::f32) continue;
        if (c.act == ActFormat::e4m3) {
          x[at] = static_cast<double>(load<float>(tile.data() + 4 * float_offset(k, r, c.n)));
          continue;
        }
        const BlockRow row = block_row(shape, {tile.data(), c.n, r});
        const std::int8_t* code = row.codes + k / kUnitK * row.code_stride + k % kUnitK;
        const auto scale = static_cast<double>(row.scale[k / shape.scaled_columns() * row.stride]);
        const bool digits = c.act == ActFormat::blk16;
        const double kept = (digits ? 255 * code[0] + code[kUnitK] : code[0]) * scale;
        // Numbers of e2m1 lie further apart at its end, and a small group of NVFP4 has a scale of few bits.
        const bool few = c.act == ActFormat::e2m1;
        ASSERT_LE(std::fabs(kept - x[at]), std::max((few ? 2.04 : 0.51) * scale, few ? std::fabs(x[at]) : 0) + 0x1p-100)
            << c.words();
        x[at] = kept;
      }
      for (std::int64_t n = 0; n < c.m.rows(); ++n) {
        double y = c.m.has_bias ? static_cast<double>(c.bias[static_cast<std::size_t>(n)]) : 0.0, size = std::fabs(y);
        for (std::int64_t k = 0; k < c.m.k; ++k) {
          const double term = x[static_cast<std::size_t>(k)] * c.weight(n, k);
          y += term;
          size += std::fabs(term);
        }
        const double error = static_cast<double>(out[c.result(r, n)]) - y;
        ASSERT_LE(std::fabs(error), static_cast<double>(c.m.k + 6) * 0x1p-24 * size + 0x1p-120) << c.words();
      }
    }
  }
}

// Every code with every scale that there is, alone in its sum: exactly what the definition's few operations give.
TEST_P(Fp4Rows, EveryCodeAndScale) {
  const bool nv = kernel().id->layout == LayoutKind::p16_nvfp4;
  const unsigned scales = nv ? 0x7f : 0xff;
  Case c;
  c.act = kernel().id->act;
  c.n = kernel().tile_rows;
  c.values = kernel().takes_values ? 1 : 0;
  const std::int64_t group = nv ? 16 : 32, groups = nv ? 7 : 3;
  c.m = {{.element = Element::e2m1,
          .scales = nv ? Scales::e4m3 : Scales::e8m0,
          .half_rows = 16,
          .halves = 1,
          .k = group * groups,
          .groups = Groups::even(group)}};
  c.tensor_scales = {0.7f};
  for (int i = 0; i < 16; ++i)
    c.codes.insert(c.codes.end(), static_cast<std::size_t>(c.m.k), static_cast<std::uint8_t>(i));
  using kernels::ref::SymmetricScale;
  const bool narrow = c.act == ActFormat::e2m1;
  const SymmetricScale narrow_one = nv ? kernels::ref::nvfp4_scale(1, kInputScale) : kernels::ref::mxfp4_scale(1);
  const float scale_of_one = narrow ? narrow_one.scale : c.act == ActFormat::blk16 ? 0x1p-14f : 1.0f / 127.0f;
  const int code_of_one = narrow                      ? kernels::ref::e2m1_code(1, narrow_one.inverse)
                          : c.act == ActFormat::blk16 ? 1 << 14
                                                      : 127;
  for (unsigned first = 0; first < scales; ++first) {
    std::vector<float> of_group(static_cast<std::size_t>(groups));
    for (std::size_t g = 0; g < of_group.size(); ++g) {
      const unsigned byte = static_cast<unsigned>(first + 11 * g) % scales;
      of_group[g] = nv ? small_to_f32(kE4m3, byte) : e8m0_to_f32(byte);
    }
    c.scales.clear();
    for (int i = 0; i < 16; ++i) c.scales.insert(c.scales.end(), of_group.begin(), of_group.end());
    c.pack();
    c.x.assign(static_cast<std::size_t>(c.n * c.m.k), 0.0f);
    const auto column = [&](int r) {
      return (first * 5 + static_cast<unsigned>(r) * 17) % static_cast<unsigned>(c.m.k);
    };
    for (int r = 0; r < c.n; ++r) c.x[static_cast<std::size_t>(r * c.m.k + column(r))] = 1.0f;
    const auto out = results(kernel(), c);
    for (int r = 0; r < c.n; ++r)
      for (int i = 0; i < 16; ++i) {
        const float s = of_group[static_cast<std::size_t>(column(r) / group)];
        const auto value = static_cast<float>(kValues[i]);
        float want = value * s;
        if (c.act != ActFormat::f32 && c.act != ActFormat::e4m3)
          want = (static_cast<float>(code_of_one) * (2.0f * value)) * (s * scale_of_one) * 0.5f;
        if (nv) want = want * 0.7f;
        ASSERT_EQ(out[c.result(r, i)], want) << "code " << i << ", scale " << s << ", column " << column(r);
      }
  }
}

// A row's bits depend neither on the rows beside it nor on how many panels a call has.
TEST_P(Fp4Rows, BitsOfARowAlone) {
  for (int round = 0; round < rounds(100); ++round) {
    const Case c = maker_.make(pick(1, kernel().tile_rows));
    const auto all = results(kernel(), c, true);
    const int r = pick(0, c.n - 1);
    const auto tile = make_tile(kernel(), c.shape(), c.x.data() + r * c.m.k, 1, HalfRule::even);
    for (std::int64_t p = 0; p < c.m.panels(); ++p) {
      float one[kPanelRows];
      multiply(kernel(), {&c.m, c.packed.data() + static_cast<std::size_t>(p) * c.m.panel_bytes(), 1, tile.data(), 1,
                          c.shape(), one, kPanelRows, nullptr});
      ASSERT_EQ(0, std::memcmp(one, all.data() + r * c.ld() + p * kPanelRows, sizeof one)) << c.words();
    }
  }
}

TEST_P(Fp4Rows, OddValuesStayInTheirRow) {
  for (int round = 0; round < rounds(60); ++round) {
    Case c = maker_.make(pick(2, kernel().tile_rows));
    const auto before = results(kernel(), c);
    const int bad = pick(0, c.n - 1);
    constexpr float kOdd[] = {NAN, INFINITY, -INFINITY};
    c.x[static_cast<std::size_t>(bad * c.m.k + pick(0, static_cast<int>(c.m.k) - 1))] = kOdd[round % 3];
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

std::vector<const Kernel*> fp4_rows() {
  std::vector<const Kernel*> rows;
  for (const LayoutKind layout : {LayoutKind::p16_mxfp4, LayoutKind::p16_nvfp4})
    for (const ActFormat act : {ActFormat::blk8, ActFormat::blk16, ActFormat::e2m1, ActFormat::e4m3, ActFormat::f32})
      for (const Kernel* k : runnable_kernels(layout, act)) rows.push_back(k);
  return rows;
}

INSTANTIATE_TEST_SUITE_P(All, Fp4Rows, testing::ValuesIn(fp4_rows()),
                         [](const auto& param) { return std::string(param.param->id->name); });

}  // namespace
}  // namespace moe::test::fp4_test
