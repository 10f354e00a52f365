// Simulated routing: the formula of routing.md 2 written again, and what its draws look like.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "support/rooms.h"
#include "support/routing.h"

namespace moe::test::route_simulated_test {
namespace {

Config simulated(const char* strategy, std::int64_t experts, std::int64_t k, std::int64_t seed) {
  Config c = route_config(experts, k);
  c.routing.method = RoutingMethod::simulated;
  c.routing.simulation_strategy = strategy;
  c.routing.seed = seed;
  return c;
}

std::uint64_t draw(std::uint64_t z) {
  z += 0x9E3779B97F4A7C15ull;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ z >> 27) * 0x94D049BB133111EBull;
  return z ^ z >> 31;
}

TEST(RouteSimulated, TheGeneratorIsSplitmix64) {  // first output for seed 1234567, from its published test values
  EXPECT_EQ(draw(1234567), 6457827717110365317ull);
}

TEST(RouteSimulated, Uniform) {
  const std::int64_t E = 24, k = 5, T = 2000;
  for (const std::int64_t seed : {std::int64_t{0}, std::int64_t{42}, INT64_MAX}) {
    const Config c = simulated("uniform_random", E, k, seed);
    const Routed r = route_floats(c, std::vector<float>(static_cast<std::size_t>(E * T)));
    std::vector<int> counts(static_cast<std::size_t>(E));
    for (std::size_t s = 0; s < r.ids.size(); ++s) {
      const std::uint64_t n = draw(static_cast<std::uint64_t>(seed) + s);
      ASSERT_EQ(r.ids[s], static_cast<std::int32_t>(((n >> 32) * static_cast<std::uint64_t>(E)) >> 32));
      ASSERT_EQ(r.weights[s], 1.0f);
      ++counts[static_cast<std::size_t>(r.ids[s])];
    }
    for (int n : counts) EXPECT_NEAR(n, 10000 / 24, 110);  // five standard deviations
  }
}

TEST(RouteSimulated, Normal) {
  const std::int64_t E = 16, k = 4, T = 300;
  const Config c = simulated("normal_routing", E, k, 7);
  const Routed r = route_floats(c, std::vector<float>(static_cast<std::size_t>(E * T)));
  for (std::size_t t = 0; t < static_cast<std::size_t>(T); ++t) {
    double z1[4], sum = 0;
    for (std::size_t j = 0; j < 4; ++j) {
      const std::uint64_t n = draw(7 + t * 4 + j);
      const double u1 = (static_cast<double>(n >> 32) + 0.5) / 4294967296.0;
      const double u2 = (static_cast<double>(n & 0xffffffffu) + 0.5) / 4294967296.0;
      const double z0 = std::sqrt(-2 * std::log(u1)) * std::cos(2 * 3.14159265358979323846 * u2);
      z1[j] = std::abs(std::sqrt(-2 * std::log(u1)) * std::sin(2 * 3.14159265358979323846 * u2));
      sum += z1[j];
      EXPECT_EQ(r.ids[t * 4 + j], static_cast<std::int32_t>(std::floor(16 / (1 + std::exp(-z0)))));
    }
    for (std::size_t j = 0; j < 4; ++j) EXPECT_NEAR(r.weights[t * 4 + j], z1[j] / sum, 1e-6);
  }
}

TEST(RouteSimulated, LogitsAndKernelsDoNotMatter) {
  std::mt19937 g(1);
  for (const char* strategy : {"uniform_random", "normal_routing"}) {
    const Config c = simulated(strategy, 32, 4, 5);
    const Routed r = route_floats(c, random_logits(g, 32 * 9, Draw::odd));
    for (const RouteKernel* kernel : runnable_route_kernels())
      EXPECT_TRUE(route_floats(c, random_logits(g, 32 * 9, Draw::normal), {.kernel = kernel}) == r);
    EXPECT_FALSE(route_floats(simulated(strategy, 32, 4, 6), std::vector<float>(32 * 9)) == r);
  }
}

}  // namespace
}  // namespace moe::test::route_simulated_test
