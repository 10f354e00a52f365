// Every registry row against the scalar row of its layout and activation format, bit by bit: shapes, groups, tile
// sizes, fills. A new row is tested without touching this file.
#include <gtest/gtest.h>

#include <cmath>

#include "support/p16.h"
#include "support/rooms.h"
#include "support/share.h"

namespace moe::test::all_kernels_test {
namespace {

enum class Fill { random, extreme, small };

struct Case {
  std::int64_t rows, k, group;
  int halves;
  bool bias;
};

// Shapes with tails in N and K, every kind of group, odd group multiples of 32.
const Case kCases[] = {
    {16, 32, 32, 1, false},    {16, 64, 64, 2, true},    {13, 64, 32, 2, true},      {40, 256, 128, 1, true},
    {5, 34, 34, 1, true},      {7, 46, 46, 2, false},    {24, 192, 96, 1, true},     {24, 192, 32, 2, false},
    {33, 96, 96, 1, true},     {48, 160, 160, 1, false}, {80, 512, 128, 2, false},   {130, 320, 64, 1, false},
    {17, 1, 1, 1, true},       {96, 480, 96, 2, false},  {64, 1024, 1024, 1, false}, {35, 2048, 1024, 2, true},
    {48, 1280, 640, 1, false},  // groups of many passes of AMX
};

struct Data {
  P16 m;
  std::vector<std::byte> packed;
  std::vector<float> x;
};

Data make(const Case& c, int n, Fill fill, std::mt19937& rng) {
  Data d;
  d.m = {
      {.half_rows = c.rows, .halves = c.halves, .k = c.k, .groups = Groups::of_size(c.group, c.k), .has_bias = c.bias}};
  const auto rows = static_cast<std::size_t>(d.m.rows());
  std::uniform_int_distribution<int> code(-8, 7);
  std::uniform_real_distribution<float> unit(-1.0f, 1.0f);
  std::vector<std::int8_t> w(rows * static_cast<std::size_t>(c.k));
  for (std::int8_t& v : w)
    v = static_cast<std::int8_t>(fill == Fill::extreme ? (code(rng) > 0 ? 7 : -8)
                                 : fill == Fill::small ? code(rng) / 4
                                                       : code(rng));
  std::vector<float> scales(rows * static_cast<std::size_t>(d.m.group_count())), bias(rows);
  for (float& s : scales)
    s = fill == Fill::small ? std::copysign(0.5f, unit(rng)) : std::copysign(0.01f, unit(rng)) + unit(rng) * 0.1f;
  for (float& b : bias) b = unit(rng);
  d.packed = pack_p16(d.m, w, scales, c.bias ? bias : std::vector<float>{});
  d.x.resize(static_cast<std::size_t>(n * c.k));
  for (float& v : d.x)
    v = fill == Fill::extreme ? (unit(rng) > 0 ? 3.0f : -3.0f)
        : fill == Fill::small ? std::round(unit(rng) * 4)
                              : unit(rng) * 5;
  return d;
}

class Rows : public testing::TestWithParam<const Kernel*> {};

TEST_P(Rows, GemmGivesTheBitsOfTheScalarRow) {
  const Kernel& kernel = *GetParam();
  const Kernel& scalar = scalar_kernel();
  std::mt19937 rng(20261121);
  Turns turns;
  for (const Case& c : kCases) {
    for (int n = 1; n <= kernel.tile_rows; n += n < 18 ? 1 : 29) {
      for (const Fill fill : {Fill::random, Fill::extreme, Fill::small}) {
        if (!turns.next()) continue;
        const Data d = make(c, n, fill, rng);
        if (!takes(kernel, d.m)) continue;
        const TileShape shape{c.k, Groups::of_size(c.group, c.k)};
        const auto rule = n % 2 ? HalfRule::away : HalfRule::even;
        const auto tile = make_tile(kernel, shape, d.x.data(), n, rule);
        ASSERT_EQ(tile, make_tile(scalar, shape, d.x.data(), n, rule)) << kernel.id->name << " k " << c.k << " n " << n;
        const std::int64_t ld = d.m.panels() * kPanelRows + 3;
        std::vector<float> want(static_cast<std::size_t>(n * ld), -1.0f), got = want;
        multiply(scalar, {&d.m, d.packed.data(), d.m.panels(), tile.data(), n, shape, want.data(), ld, nullptr});
        const PrefetchPolicy prefetch{.in_order = fill == Fill::small, .pairs = fill != Fill::small};
        multiply(kernel, {&d.m, d.packed.data(), d.m.panels(), tile.data(), n, shape, got.data(), ld, d.packed.data(),
                          0, 0, 1, prefetch});
        ASSERT_EQ(0, std::memcmp(want.data(), got.data(), want.size() * 4))
            << kernel.id->name << " rows " << d.m.rows() << " k " << c.k << " g " << c.group << " n " << n;
      }
    }
  }
}

TEST_P(Rows, RandomShapes) {
  const Kernel& kernel = *GetParam();
  const Kernel& scalar = scalar_kernel();
  std::mt19937 rng(7);
  const auto pick = [&](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng); };
  for (int round = 0; round < rounds(1000); ++round) {
    Case c{pick(1, 70), 0, 0, pick(1, 2), pick(0, 1) == 1};
    if (pick(0, 2) == 0) {
      c.k = c.group = pick(1, 300);
    } else {
      c.group = 32 * pick(1, 6);
      c.k = c.group * pick(1, 5);
    }
    const int n = pick(1, kernel.tile_rows);
    const Data d = make(c, n, Fill::random, rng);
    if (!takes(kernel, d.m)) continue;
    const TileShape shape{c.k, Groups::of_size(c.group, c.k)};
    const auto tile = make_tile(scalar, shape, d.x.data(), n, HalfRule::away);
    const std::int64_t ld = d.m.panels() * kPanelRows;
    std::vector<float> want(static_cast<std::size_t>(n * ld)), got = want;
    multiply(scalar, {&d.m, d.packed.data(), d.m.panels(), tile.data(), n, shape, want.data(), ld, nullptr});
    multiply(kernel, {&d.m, d.packed.data(), d.m.panels(), tile.data(), n, shape, got.data(), ld, nullptr});
    ASSERT_EQ(0, std::memcmp(want.data(), got.data(), want.size() * 4))
        << kernel.id->name << " round " << round << " rows " << d.m.rows() << " k " << c.k << " g " << c.group << " n "
        << n;
  }
}

const float kSpecials[] = {0.0f,    -0.0f,   1e-45f,   -1e-45f, 1e-38f, 0x1p-126f, 65504.0f, 65519.9f,  65520.0f, 1e5f,
                           -1e30f,  3.4e38f, -3.4e38f, 88.7f,   -88.7f, -87.3f,    -104.0f,  0.5f,      1.5f,     2.5f,
                           6.1e-5f, 5.9e-8f, 2.9e-8f,  7.0f,    -7.0f,  1.0f,      INFINITY, -INFINITY, NAN,      -NAN};

TEST_P(Rows, QuantizeOddRows) {
  const Kernel& kernel = *GetParam();
  std::mt19937 rng(5);
  for (const std::int64_t k : {1, 7, 8, 31, 32, 33, 40, 46, 64, 100, 256})
    for (int round = 0; round < rounds(80); ++round) {
      std::vector<float> x(static_cast<std::size_t>(k));
      for (float& v : x) {
        v = static_cast<float>(static_cast<int>(rng() % 511) - 255) * 0.5f;  // many halves
        if (round % 4 == 1 && rng() % 16 == 0) v = kSpecials[rng() % std::size(kSpecials)];
        if (round % 4 == 2) v = 0.0f;
        if (round % 4 == 3) v *= 1e-39f;
      }
      for (const HalfRule rule : {HalfRule::away, HalfRule::even})
        ASSERT_EQ(make_tile(scalar_kernel(), {k, {}}, x.data(), 1, rule), make_tile(kernel, {k, {}}, x.data(), 1, rule))
            << k << " " << round;
    }
}

INSTANTIATE_TEST_SUITE_P(All, Rows, testing::ValuesIn(runnable_kernels(LayoutKind::p16_int4, ActFormat::tok8)),
                         [](const auto& param) { return std::string(param.param->id->name); });

// --- float weights ----------------------------------------------------------------------------------------

class FloatRows : public testing::TestWithParam<const Kernel*> {};

struct FloatData {
  P16 m;
  std::vector<float> w, bias, x;
  std::vector<std::byte> packed;
};

FloatData make_floats(const Kernel& kernel, std::int64_t rows, std::int64_t k, int n, bool poison, std::mt19937& rng) {
  std::normal_distribution<float> normal;
  FloatData d;
  d.m = {{.element = *p16_element(kernel.id->layout),
          .half_rows = rows,
          .halves = rng() % 2 == 0 ? 1 : 2,
          .k = k,
          .groups = Groups::of_size(k, k),
          .has_bias = rng() % 2 == 0}};
  const DType dtype = d.m.element == Element::f32    ? DType::f32
                      : d.m.element == Element::bf16 ? DType::bf16
                                                     : DType::f16;
  d.w.resize(static_cast<std::size_t>(d.m.rows() * k));
  for (float& v : d.w) v = ref::round_to(dtype, rng() % 64 == 0 ? normal(rng) * 1e-6f : normal(rng));
  d.bias.resize(static_cast<std::size_t>(d.m.rows()));
  for (float& v : d.bias) v = normal(rng);
  d.x.resize(static_cast<std::size_t>(n * k));
  for (float& v : d.x) v = normal(rng) * 3;
  if (poison) d.x[rng() % d.x.size()] = rng() % 2 == 0 ? NAN : INFINITY;
  d.packed = pack_p16_floats(d.m, d.w, d.bias);
  return d;
}

// Every row gives the scalar row's bits, and the scalar row is within the bound of any float32 sum.
TEST_P(FloatRows, RandomShapes) {
  const Kernel& kernel = *GetParam();
  const Kernel& scalar = scalar_of(kernel);
  std::mt19937 rng(20261121);
  const auto pick = [&](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng); };
  for (int round = 0; round < rounds(1000); ++round) {
    const int n = pick(1, kernel.tile_rows), k = pick(0, 9) == 0 ? pick(1, 1500) : pick(1, 200), rows = pick(1, 50);
    const bool poison = round % 8 == 7;
    const FloatData d = make_floats(kernel, rows, k, n, poison, rng);
    const TileShape shape{k, {}, ActFormat::f32};
    const auto tile = make_tile(kernel, shape, d.x.data(), n, HalfRule::away);
    const std::int64_t ld = d.m.panels() * kPanelRows + 1;
    std::vector<float> want(static_cast<std::size_t>(n * ld), -1.0f), got = want;
    multiply(scalar, {&d.m, d.packed.data(), d.m.panels(), tile.data(), n, shape, want.data(), ld, nullptr});
    multiply(kernel, {&d.m, d.packed.data(), d.m.panels(), tile.data(), n, shape, got.data(), ld, d.packed.data()});
    for (auto* v : {&want, &got})
      for (float& y : *v) y = std::isnan(y) ? NAN : y;
    ASSERT_EQ(0, std::memcmp(want.data(), got.data(), want.size() * 4))
        << kernel.id->name << " round " << round << " rows " << d.m.rows() << " k " << k << " n " << n;
    if (poison) continue;
    for (int r = 0; r < n; ++r)
      for (std::int64_t i = 0; i < d.m.rows(); ++i) {
        const auto row = static_cast<std::size_t>(i);
        double y = d.m.has_bias ? static_cast<double>(d.bias[row]) : 0.0, size = std::fabs(y);
        for (int j = 0; j < k; ++j) {
          const double term = static_cast<double>(d.x[static_cast<std::size_t>(r * k + j)]) *
                              static_cast<double>(d.w[row * static_cast<std::size_t>(k) + static_cast<std::size_t>(j)]);
          y += term;
          size += std::fabs(term);
        }
        const float value = got[static_cast<std::size_t>(r * ld + d.m.panel_of(i) * kPanelRows + d.m.lane_of(i))];
        ASSERT_LE(std::fabs(static_cast<double>(value) - y), (k + 4) * 0x1p-24 * size) << kernel.id->name << " k " << k;
      }
  }
}

std::vector<const Kernel*> float_rows() {
  std::vector<const Kernel*> rows;
  for (const LayoutKind kind : {LayoutKind::p16_bf16, LayoutKind::p16_f16, LayoutKind::p16_f32})
    for (const Kernel* k : runnable_kernels(kind, ActFormat::f32)) rows.push_back(k);
  return rows;
}

INSTANTIATE_TEST_SUITE_P(All, FloatRows, testing::ValuesIn(float_rows()),
                         [](const auto& param) { return std::string(param.param->id->name); });

TEST(Registry, EachRowIsFoundByItsId) {
  for (const Kernel* k : built_kernels()) {
    const auto index = kernel_index(k->id->name);
    ASSERT_TRUE(index);
    EXPECT_EQ(kernel_at(*index), k) << k->id->name;
  }
}

}  // namespace
}  // namespace moe::test::all_kernels_test
