// SparseMixer against a plain float64 form of routing.md 6, and its odd rows.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "support/rooms.h"
#include "support/routing.h"

namespace moe::test::route_sparse_mixer_test {
namespace {

Config sparse_mixer_config(std::int64_t experts, double eps = 0.01) {
  Config c = route_config(experts, 2);
  c.routing.method = RoutingMethod::sparse_mixer;
  c.routing.jitter_eps = eps;
  return c;
}

// One pick of a row of finite logits; `masked` may hold -inf. nan weight: a logit too near the threshold to tell.
struct Pick {
  std::size_t id;
  double weight;
};
Pick pick(const std::vector<float>& x, const std::vector<double>& masked, double eps) {
  std::size_t id = 0;
  for (std::size_t i = 1; i < x.size(); ++i)
    if (masked[i] > masked[id]) id = i;
  const double top = masked[id];
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double v = static_cast<double>(x[i]), gap = (top - v) / std::max(std::abs(v), top);
    if (std::abs(gap - 2 * eps) < 1e-6) return {id, std::nan("")};
    if (!(gap > 2 * eps)) sum += std::exp(masked[i] - top);
  }
  return {id, 1 / sum};
}

TEST(RouteSparseMixer, IsTheDefinition) {
  std::mt19937 g(3);
  std::normal_distribution<float> normal(3.0f, 1.0f), near(3.0f, 0.02f);
  int compared = 0;
  for (const double eps : {0.01, 0.1, 0.4})
    for (int round = 0; round < 2000; ++round) {
      std::vector<float> x(16);
      for (float& v : x) v = round % 2 == 0 ? normal(g) : near(g);
      const Config c = sparse_mixer_config(16, eps);
      const Routed r = route_floats(c, x);
      std::vector<double> masked(x.begin(), x.end());
      for (std::size_t j = 0; j < 2; ++j) {
        const Pick p = pick(x, masked, static_cast<double>(static_cast<float>(eps)));
        ASSERT_EQ(r.ids[j], static_cast<std::int32_t>(p.id));
        masked[p.id] = -static_cast<double>(kInf);
        if (std::isnan(p.weight)) continue;
        ASSERT_NEAR(r.weights[j], p.weight, 2e-6);
        ++compared;
      }
    }
  EXPECT_GT(compared, 11000);
}

TEST(RouteSparseMixer, TiesNothingAndInfinity) {
  const Config c = sparse_mixer_config(4);
  Routed r = route_floats(c, {1, 1, 1, 1});
  EXPECT_EQ(r.ids, (std::vector<std::int32_t>{0, 1}));
  EXPECT_NEAR(r.weights[0], 0.25f, 1e-7f);
  EXPECT_NEAR(r.weights[1], 1.0f / 3, 1e-7f);
  r = route_floats(c, {kNaN, -kInf, kNaN, kNaN});
  EXPECT_EQ(r.ids, (std::vector<std::int32_t>{0, 1}));
  EXPECT_EQ(r.weights, (std::vector<float>{0, 0}));
  r = route_floats(c, {kNaN, kNaN, 5, -kInf});  // one expert with mass; the other id is valid and distinct
  EXPECT_EQ(r.ids, (std::vector<std::int32_t>{2, 0}));
  EXPECT_EQ(r.weights, (std::vector<float>{1, 0}));
  r = route_floats(c, {0, kInf, -3, kMaxFloat});
  EXPECT_EQ(r.ids, (std::vector<std::int32_t>{1, 3}));
  EXPECT_EQ(r.weights, (std::vector<float>{0.5f, 1}));
  r = route_floats(c, {0, 0, -1, -2});  // the gap of zeros is 0 / 0: kept
  EXPECT_EQ(r.weights[0], 0.5f);
}

TEST(RouteSparseMixer, SameOnEveryIsa) {
  std::mt19937 g(4);
  const Config c = sparse_mixer_config(33);
  const auto x = random_logits(g, 33 * 50, Draw::odd);
  const Routed r = route_floats(c, x);
  for (const RouteKernel* kernel : runnable_route_kernels()) EXPECT_TRUE(route_floats(c, x, {.kernel = kernel}) == r);
}

}  // namespace
}  // namespace moe::test::route_sparse_mixer_test
