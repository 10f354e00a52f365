// Routing by scores: a float64 definition for softmax, batches, threads, strides, and single rules.
// The other rules have files of their own; route_property_test.cpp draws whole configs.
#include "run/route/route.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "support/rooms.h"
#include "support/routing.h"

namespace moe::test::route_test {
namespace {

// Runs tasks last to first, each on a thread of its own.
Check run_on_threads(void*, std::size_t count, TaskFn task, void* arg) {
  std::vector<std::thread> threads;
  for (std::size_t i = count; i-- > 0;) threads.emplace_back([=] { task(arg, i); });
  for (auto& t : threads) t.join();
  return ok();
}

// --- the definition in float64 --------------------------------------------------------------------

double sanitised(double x) {
  if (std::isnan(x)) return -std::numeric_limits<double>::infinity();
  return std::min(x, static_cast<double>(kMaxFloat));
}

void expect_definition(const Config& c, const std::vector<float>& row, const Routed& r, std::size_t t) {
  const auto k = static_cast<std::size_t>(c.top_k);
  std::vector<double> x;
  for (float f : row) x.push_back(sanitised(static_cast<double>(f)));
  std::vector<std::int32_t> order(x.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return x[static_cast<std::size_t>(a)] > x[static_cast<std::size_t>(b)]; });
  order.resize(k);
  const std::vector<std::int32_t> ids(r.ids.begin() + static_cast<std::ptrdiff_t>(t * k),
                                      r.ids.begin() + static_cast<std::ptrdiff_t>((t + 1) * k));
  ASSERT_EQ(ids, order) << "token " << t;

  const double m = x[static_cast<std::size_t>(order[0])];
  // x - m is a float32 (a rounding of up to 2^-17 for large differences); all else has float64's room.
  const auto e = [m](double v) { return std::exp(static_cast<double>(static_cast<float>(v - m))); };
  double sum = 0;
  if (c.routing.renormalize) {
    for (auto id : order) sum += e(x[static_cast<std::size_t>(id)]);
  } else {
    for (double v : x) sum += e(v);
  }
  // Half an ulp per addition of the longest chain; 12 more for two exps, the division, the factor.
  const double chain = c.routing.renormalize ? static_cast<double>(k) : static_cast<double>(x.size()) / 16 + 5;
  const double bound = 0x1p-24 * (chain + 12);
  const double factor = c.routing.apply_routed_scale_to_output ? 1.0 : c.routing.routed_scaling_factor;
  for (std::size_t j = 0; j < k; ++j) {
    const double want = std::isinf(m) ? 0.0 : factor * e(x[static_cast<std::size_t>(order[j])]) / sum;
    EXPECT_NEAR(r.weights[t * k + j], want, bound * want + 2e-38 * factor) << "token " << t << " slot " << j;
  }
}

struct Shape {
  std::int64_t tokens, experts, k;
};
const std::vector<Shape> kShapes = {{1, 1, 1},   {3, 2, 1},     {2, 2, 2},    {5, 15, 3},  {4, 16, 16},  {3, 17, 4},
                                    {2, 60, 4},  {7, 128, 8},   {3, 255, 9},  {2, 256, 8}, {2, 257, 16}, {1, 512, 10},
                                    {1, 513, 7}, {1, 3000, 64}, {70, 384, 8}, {0, 8, 2}};

TEST(RouteBatch, IsTheDefinition) {
  std::mt19937 g(20240612);
  for (const Shape& s : kShapes)
    for (bool renormalize : {true, false})
      for (Draw draw : kDraws)
        for (double factor : {1.0, 2.5}) {
          Config c = route_config(s.experts, s.k, renormalize);
          c.routing.routed_scaling_factor = factor;
          const auto e = static_cast<std::size_t>(s.experts);
          const auto logits = random_logits(g, static_cast<std::size_t>(s.tokens) * e, draw);
          const Routed r = route_floats(c, logits);
          for (std::size_t t = 0; t < static_cast<std::size_t>(s.tokens); ++t)
            expect_definition(c,
                              {logits.begin() + static_cast<std::ptrdiff_t>(t * e),
                               logits.begin() + static_cast<std::ptrdiff_t>((t + 1) * e)},
                              r, t);
        }
}

TEST(RouteBatch, SixteenBitLogitsAreWidenedExactly) {
  std::mt19937 g(7);
  for (DType dtype : {DType::bf16, DType::f16})
    for (bool renormalize : {true, false})
      for (Draw draw : {Draw::normal, Draw::ties, Draw::odd}) {
        const Config c = route_config(77, 5, renormalize);
        const Logits l = logits_of(random_logits(g, 77 * 6, draw), 77, dtype);
        EXPECT_TRUE(route_batch(c, l) == route_floats(c, widened(l)));
      }
}

TEST(RouteBatch, BatchThreadsAndStridesChangeNoBit) {
  std::mt19937 g(11);
  const Parallel threads = {.num_threads = 4, .run = run_on_threads};
  for (bool renormalize : {true, false}) {
    const Config c = route_config(384, 8, renormalize);
    const auto logits = random_logits(g, 384 * 70, Draw::odd);
    const Routed whole = route_floats(c, logits);
    EXPECT_TRUE(route_floats(c, logits, {.parallel = threads}) == whole);
    Routed one_by_one;
    std::vector<float> spread(70 * 500, 1e30f);  // rows 500 apart, junk between them
    for (std::size_t t = 0; t < 70; ++t) {
      const std::vector<float> row(logits.begin() + static_cast<std::ptrdiff_t>(t * 384),
                                   logits.begin() + static_cast<std::ptrdiff_t>((t + 1) * 384));
      const Routed r = route_floats(c, row);
      one_by_one.ids.insert(one_by_one.ids.end(), r.ids.begin(), r.ids.end());
      one_by_one.weights.insert(one_by_one.weights.end(), r.weights.begin(), r.weights.end());
      std::copy(row.begin(), row.end(), spread.begin() + static_cast<std::ptrdiff_t>(t * 500));
    }
    EXPECT_TRUE(one_by_one == whole);
    EXPECT_TRUE(route_batch(c, logits_of(spread, 500)) == whole);
  }
}

// --- single rules ---------------------------------------------------------------------------------

TEST(RouteRules, EqualKeysGoToTheLowestExpertAndZerosAreEqual) {
  const Config c = route_config(6, 4, true);
  EXPECT_EQ(route_floats(c, {1, 1, 1, 1, 1, 1}).ids, (std::vector<std::int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(route_floats(c, {0, 2, 1, 2, 1, 2}).ids, (std::vector<std::int32_t>{1, 3, 5, 2}));
  EXPECT_EQ(route_floats(c, {-0.0f, 0.0f, -0.0f, 0.0f, -1, -1}).ids, (std::vector<std::int32_t>{0, 1, 2, 3}));
}

TEST(RouteRules, NaNLosesAndInfinityCountsAsTheLargestFloat) {
  for (bool renormalize : {true, false}) {
    const Config c = route_config(5, 3, renormalize);
    Routed r = route_floats(c, {kNaN, 1, kNaN, 2, 0});
    EXPECT_EQ(r.ids, (std::vector<std::int32_t>{3, 1, 4}));
    r = route_floats(c, {1, kInf, 2, kMaxFloat, kInf});
    EXPECT_EQ(r.ids, (std::vector<std::int32_t>{1, 3, 4}));
    for (float w : r.weights) EXPECT_NEAR(w, 1.0f / 3, 1e-7f);
    r = route_floats(c, {-kInf, kNaN, -kInf, 7, kNaN});  // one finite: the rest are ids without weight
    EXPECT_EQ(r.ids, (std::vector<std::int32_t>{3, 0, 1}));
    EXPECT_EQ(r.weights, (std::vector<float>{1, 0, 0}));
  }
}

TEST(RouteRules, RowsOfNothingGiveTheFirstExpertsAndNoWeight) {
  for (bool renormalize : {true, false})
    for (float x : {kNaN, -kInf}) {
      Config c = route_config(5, 3, renormalize);
      c.routing.routed_scaling_factor = 2.5;
      const Routed r = route_floats(c, std::vector<float>(5, x));
      EXPECT_EQ(r.ids, (std::vector<std::int32_t>{0, 1, 2}));
      EXPECT_EQ(r.weights, (std::vector<float>{0, 0, 0}));
    }
}

TEST(RouteRules, ATokenDoesNotSeeAnothersNaN) {
  std::mt19937 g(5);
  const Config c = route_config(64, 6, false);
  auto logits = random_logits(g, 64 * 3, Draw::normal);
  const Routed before = route_floats(c, logits);
  for (std::size_t e = 64; e < 128; ++e) logits[e] = kNaN;
  const Routed after = route_floats(c, logits);
  for (std::size_t i : {0u, 5u, 12u, 17u}) {
    EXPECT_EQ(after.ids[i], before.ids[i]);
    EXPECT_EQ(after.weights[i], before.weights[i]);
  }
}

TEST(RouteRules, FactorOnTheWeightsUnlessItIsForTheOutput) {
  const std::vector<float> logits = {0.5f, 2, -1, 1};
  for (bool renormalize : {true, false}) {
    Config c = route_config(4, 2, renormalize);
    const Routed plain = route_floats(c, logits);
    c.routing.routed_scaling_factor = 2.5;
    const Routed scaled = route_floats(c, logits);
    for (std::size_t j = 0; j < 2; ++j) EXPECT_EQ(scaled.weights[j], plain.weights[j] * 2.5f);
    c.routing.apply_routed_scale_to_output = true;
    EXPECT_TRUE(route_floats(c, logits) == plain);
  }
}

TEST(RouteRules, NaiveIsTheSameAsRenormalize) {
  std::mt19937 g(9);
  Config c = route_config(40, 4, true);
  const auto logits = random_logits(g, 400, Draw::normal);
  const Routed a = route_floats(c, logits);
  c.routing.method = RoutingMethod::renormalize_naive;
  EXPECT_TRUE(route_floats(c, logits) == a);
}

// The order of the sum of Default is part of its definition: 16 partial sums, folded 8, 4, 2, 1.
TEST(RouteRules, SumOverAllExpertsIsFoldedAsWritten) {
  constexpr float kTiny = 0x1p-25f;  // lost in 1 + tiny, not in a sum of many of them
  const float log_tiny = std::log(kTiny);
  std::vector<float> logits(64, log_tiny);
  logits[5] = 0.0f;
  const Config c = route_config(64, 1, false);
  // Partial sum 5 stays 1; the other fifteen have 4 tiny each and are folded before they meet it.
  const float e = [&] {
    const Config two = route_config(2, 2, true);
    const Routed r = route_floats(two, {0.0f, log_tiny});
    return r.weights[1];  // exp(log_tiny) / (1 + exp(log_tiny)) = exp(log_tiny) in float32
  }();
  std::vector<float> part(16, 0.0f);
  for (std::size_t i = 0; i < 64; ++i) part[i % 16] += i == 5 ? 1.0f : e;
  for (std::size_t half : {8u, 4u, 2u, 1u})
    for (std::size_t lane = 0; lane < half; ++lane) part[lane] += part[lane + half];
  EXPECT_EQ(route_floats(c, logits).weights[0], 1.0f / part[0]);
  float in_order = 0.0f;
  for (std::size_t i = 0; i < 64; ++i) in_order += i == 5 ? 1.0f : e;
  EXPECT_NE(1.0f / in_order, 1.0f / part[0]) << "the test would not tell the orders apart";
}

TEST(RouteRules, ScoresAreDistinctExpertsAlways) {
  std::mt19937 g(3);
  for (Draw draw : kDraws) {
    const Config c = route_config(48, 12, false);
    const Routed r = route_floats(c, random_logits(g, 48 * 50, draw));
    for (std::size_t t = 0; t < 50; ++t) {
      const std::set<std::int32_t> distinct(r.ids.begin() + static_cast<std::ptrdiff_t>(t * 12),
                                            r.ids.begin() + static_cast<std::ptrdiff_t>((t + 1) * 12));
      EXPECT_EQ(distinct.size(), 12u);
      EXPECT_GE(*distinct.begin(), 0);
      EXPECT_LT(*distinct.rbegin(), 48);
    }
  }
}

}  // namespace
}  // namespace moe::test::route_test
