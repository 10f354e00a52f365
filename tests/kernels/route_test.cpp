// The row functions of routing: the scalar definition against float64, and every instruction set bit for bit
// against the scalar definition.
#include "kernels/route.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/float_formats.h"
#include "kernels/ref/route.h"
#include "support/rooms.h"
#include "support/share.h"

namespace moe::test::route_test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kMaxFloat = std::numeric_limits<float>::max();
constexpr std::size_t kSizes[] = {1, 2, 7, 8, 15, 16, 17, 31, 32, 60, 64, 100, 128, 255, 256, 257, 384, 512, 513};

using Row = std::vector<float>;

std::vector<const RouteKernel*> vector_rows() {
  std::vector<const RouteKernel*> rows;
  const Platform host = *detect_platform("");
  for (const RouteKernel* row : route_kernels())
    if (row->isa != Isa::scalar && host.runs(row->isa)) rows.push_back(row);
  return rows;
}

// Equal bits of the first n.
bool same(const Row& a, const Row& b, std::size_t n) { return std::memcmp(a.data(), b.data(), n * sizeof(float)) == 0; }

float odd_value(std::mt19937& g) {
  constexpr float kOdd[] = {-kInf, kMaxFloat, -kMaxFloat, 0.0f, -0.0f, 1e-40f, -1e-40f, 20.0f, 88.8f, -87.4f};
  std::normal_distribution<float> normal(0.0f, 12.0f);
  return g() % 6 == 0 ? kOdd[g() % std::size(kOdd)] : normal(g);
}

Row random_row(std::mt19937& g, std::size_t n) {
  Row x(route_row_floats(n), -kInf);
  for (std::size_t i = 0; i < n; ++i) x[i] = odd_value(g);
  return x;
}

using ScoreFn = void (*)(const float*, std::size_t, float*);
struct Score {
  const char* name;
  ScoreFn RouteKernel::*fn;
};
constexpr Score kScores[] = {{"softmax", &RouteKernel::softmax},
                             {"sigmoid", &RouteKernel::sigmoid},
                             {"sqrtsoftplus", &RouteKernel::sqrtsoftplus}};

// --- the definition -------------------------------------------------------------------------------------------

TEST(RouteDefinition, ElementwiseScoresAreWithinFourUlp) {
  double worst_sigmoid = 0, worst_softplus = 0;
  for (float x = -87.0f; x < 88.0f; x += 0.000713f) {
    Row row(route_row_floats(1), -kInf), out(row.size());
    row[0] = x;
    const double wide = static_cast<double>(x);
    kRouteScalar.sigmoid(row.data(), 1, out.data());
    const double sigmoid = 1 / (1 + std::exp(-wide));
    worst_sigmoid = std::max(worst_sigmoid, std::abs(static_cast<double>(out[0]) / sigmoid - 1));
    kRouteScalar.sqrtsoftplus(row.data(), 1, out.data());
    const double softplus = std::sqrt(x > 20 ? wide : std::log1p(std::exp(wide)));
    worst_softplus = std::max(worst_softplus, std::abs(static_cast<double>(out[0]) / softplus - 1));
  }
  EXPECT_LT(worst_sigmoid, 4 * 0x1p-24);
  EXPECT_LT(worst_softplus, 4 * 0x1p-24);
}

TEST(RouteDefinition, EndsOfTheRange) {
  Row row(route_row_floats(4), -kInf), out(row.size());
  row[0] = kMaxFloat;
  row[1] = -kMaxFloat;
  kRouteScalar.sigmoid(row.data(), 4, out.data());
  EXPECT_EQ((Row{out.begin(), out.begin() + 4}), (Row{1, 0, 0, 0}));
  kRouteScalar.sqrtsoftplus(row.data(), 4, out.data());
  EXPECT_EQ((Row{out.begin(), out.begin() + 4}), (Row{std::sqrt(kMaxFloat), 0, 0, 0}));
  kRouteScalar.softmax(row.data(), 4, out.data());
  EXPECT_EQ((Row{out.begin(), out.begin() + 4}), (Row{1, 0, 0, 0}));
  row[0] = row[1] = -kInf;
  kRouteScalar.softmax(row.data(), 4, out.data());
  EXPECT_EQ((Row{out.begin(), out.begin() + 4}), (Row{0, 0, 0, 0}));
}

TEST(RouteDefinition, GroupScores) {
  const Row keys = {3, 1, 2, -kInf, -kInf, -kInf, 5, 5, 4, 0, -1, -2};
  Row out(4);
  kRouteScalar.group_scores({keys.data(), 4, 3, GroupScore::largest, out.data()});
  EXPECT_EQ(out, (Row{3, -kInf, 5, 0}));
  kRouteScalar.group_scores({keys.data(), 4, 3, GroupScore::two_largest, out.data()});
  EXPECT_EQ(out, (Row{5, -kInf, 10, -1}));
}

// --- every instruction set ------------------------------------------------------------------------------------

TEST(RouteIsa, ThisMachineHasTheRowsOfItsFeatures) {
  const Platform host = *detect_platform("");
  EXPECT_EQ(vector_rows().size(), (host.runs(Isa::avx2) ? 1u : 0u) + (host.runs(Isa::avx512vnni) ? 1u : 0u));
  EXPECT_EQ(route_kernel_for(*detect_platform("scalar")).isa, Isa::scalar);
  EXPECT_EQ(route_kernel_within(Isa::scalar).isa, Isa::scalar);
  EXPECT_EQ(route_kernel_within(Isa::neon).isa, Isa::scalar);
#if defined(__x86_64__)
  EXPECT_EQ(route_kernel_within(Isa::avxvnni).isa, Isa::avx2);
  EXPECT_EQ(route_kernel_within(Isa::amxbf16).isa, Isa::avx512vnni);
#endif
}

TEST(RouteIsa, LoadsAlike) {
  std::mt19937 g(1);
  for (const RouteKernel* k : vector_rows())
    for (DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (std::size_t n : kSizes) {
        const std::size_t size = dtype == DType::f32 ? 4 : 2;
        std::vector<std::byte> bytes(n * size + 1);
        for (auto& b : bytes) b = static_cast<std::byte>(g());  // all bit patterns, NaNs among them
        Row a(route_row_floats(n), 7), b = a;
        kRouteScalar.load(dtype, bytes.data() + 1, n, a.data());
        k->load(dtype, bytes.data() + 1, n, b.data());
        EXPECT_TRUE(same(a, b, a.size())) << n;
        for (float x : a) EXPECT_TRUE(x <= kMaxFloat);
      }
  Row row(route_row_floats(3));
  const Row odd = {kNaN, kInf, -kInf};
  kRouteScalar.load(DType::f32, reinterpret_cast<const std::byte*>(odd.data()), 3, row.data());
  EXPECT_EQ((Row{row.begin(), row.begin() + 4}), (Row{-kInf, kMaxFloat, -kInf, -kInf}));
}

TEST(RouteIsa, ScoresAreTheSameBits) {
  std::mt19937 g(2);
  for (const RouteKernel* k : vector_rows())
    for (const Score& s : kScores)
      for (std::size_t n : kSizes)
        for (int round = 0; round < rounds(40); ++round) {
          const Row x = random_row(g, n);
          Row a(x.size()), b(x.size());
          (kRouteScalar.*s.fn)(x.data(), n, a.data());
          (k->*s.fn)(x.data(), n, b.data());
          ASSERT_TRUE(same(a, b, n)) << s.name << " " << n;
          b = x;
          (k->*s.fn)(b.data(), n, b.data());  // in place
          ASSERT_TRUE(same(a, b, n)) << s.name << " " << n;
        }
}

// Every 499th float of both signs (fewer in a share), as keys with a bias contain these scores.
TEST(RouteIsa, ElementwiseScoresOfAllMagnitudes) {
  constexpr std::size_t kMany = 4096;
  const std::uint32_t step = stride(499);
  for (const RouteKernel* k : vector_rows()) {
    Row x(route_row_floats(kMany)), a(x.size()), b(x.size());
    std::uint32_t bits = 0;
    for (bool more = true; more;) {
      for (std::size_t i = 0; i < kMany; ++i) {
        const float v = std::bit_cast<float>(bits);
        x[i] = v == v ? std::min(v, kMaxFloat) : -kInf;
        more = more && bits + step > bits;
        bits += step;
      }
      for (const Score& s : {kScores[1], kScores[2]}) {
        (kRouteScalar.*s.fn)(x.data(), kMany, a.data());
        (k->*s.fn)(x.data(), kMany, b.data());
        ASSERT_TRUE(same(a, b, kMany)) << s.name;
      }
    }
  }
}

TEST(RouteIsa, GroupScoresAreEqual) {
  std::mt19937 g(3);
  for (const RouteKernel* k : vector_rows())
    for (std::size_t per : {1u, 2u, 3u, 8u, 15u, 16u, 17u, 20u, 32u, 48u, 65u})
      for (std::size_t groups : {1u, 2u, 8u, 13u})
        for (int round = 0; round < rounds(20); ++round) {
          Row keys = random_row(g, per * groups);
          if (g() % 2 == 0)
            for (float& x : keys) x = x > 0 ? 1.0f : 0.5f;  // ties inside groups
          for (GroupScore score : {GroupScore::largest, GroupScore::two_largest}) {
            if (score == GroupScore::two_largest && per < 2) continue;
            Row a(groups), b(groups);
            kRouteScalar.group_scores({keys.data(), groups, per, score, a.data()});
            k->group_scores({keys.data(), groups, per, score, b.data()});
            EXPECT_EQ(a, b) << per << " " << groups;
          }
        }
}

// In one go and in parts; k from 1 to more than there are.
TEST(RouteIsa, SelectionIsASortByKeyThenExpert) {
  std::mt19937 g(4);
  std::vector<const RouteKernel*> rows = vector_rows();
  rows.push_back(&kRouteScalar);
  for (const RouteKernel* kernel : rows)
    for (std::size_t n : kSizes)
      for (std::size_t k : {std::size_t{1}, std::size_t{2}, std::size_t{8}, std::size_t{10}, n})
        for (int round = 0; round < rounds(8); ++round) {
          if (k > n) continue;
          Row keys = random_row(g, n);
          if (g() % 2 == 0)
            for (std::size_t i = 0; i < n; ++i) keys[i] = static_cast<float>(g() % 3);
          std::vector<std::int32_t> want(n), ids(k, -1);
          for (std::size_t i = 0; i < n; ++i) want[i] = static_cast<std::int32_t>(i);
          std::stable_sort(want.begin(), want.end(), [&](auto a, auto b) {
            return keys[static_cast<std::size_t>(a)] > keys[static_cast<std::size_t>(b)];
          });
          want.resize(k);
          Row best_keys(k);
          Best best{.keys = best_keys.data(), .ids = ids.data(), .k = k};
          const std::size_t cut = g() % 3 == 0 ? 0 : g() % (n + 1);
          kernel->select(keys.data(), 0, cut, best);
          kernel->select(keys.data() + cut, static_cast<std::int32_t>(cut), n - cut, best);
          ASSERT_EQ(ids, want) << n << " " << k;
          for (std::size_t j = 0; j < k; ++j) EXPECT_EQ(best_keys[j], keys[static_cast<std::size_t>(ids[j])]);
        }
}

}  // namespace
}  // namespace moe::test::route_test
