// Items cover a list once and get smaller, stripes cover a matrix; items are claimed once each, the own node's first.
#include "run/engine/stripes.h"
#include "support/rooms.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <thread>
#include <vector>

namespace moe::test::stripes_test {
namespace {

// One list of `units`, each in an item of its own when there are many threads.
PhaseWork work(std::int64_t units, std::int64_t times, int nodes, std::int64_t threads = 4096) {
  return {.units = units, .times = times, .grain = 1, .most = units, .threads = threads, .nodes = nodes};
}

TEST(Taper, CoversEveryUnitOnceInItemsThatGetSmaller) {
  for (const std::int64_t units : {0, 1, 2, 3, 7, 48, 128, 449, 6144})
    for (const std::int64_t threads : {1, 2, 3, 16, 500})
      for (const std::int64_t grain : {1, 2})
        for (const std::int64_t most : {2, 6, 48, 10000}) {
          const Taper t(units, threads, grain, most);
          std::int64_t at = 0, before = most;
          for (std::int64_t i = 0; i < t.items(); ++i) {
            const Range r = t.item(i);
            ASSERT_EQ(r.begin, at);
            ASSERT_GT(r.end, r.begin);
            ASSERT_LE(r.end - r.begin, before);
            ASSERT_TRUE(r.end == units || (r.end - r.begin) % grain == 0);
            before = r.end - r.begin, at = r.end;
          }
          ASSERT_EQ(at, units);
          EXPECT_EQ(t.item(t.items()).begin, units);
          EXPECT_EQ(t.item(t.items() + 7).end, units);
        }
}

// What a thread that comes last has to do while the others wait is small beside its part of the whole, and few items
// do it.
TEST(Taper, IsFineAtTheEndOnly) {
  for (const std::int64_t threads : {2, 16}) {
    const std::int64_t units = 384;  // eight experts of Qwen3-30B-A3B
    const Taper t(units, threads, 1, 48);
    EXPECT_LE(t.items(), 12 * threads);
    for (std::int64_t i = t.items() - threads; i < t.items(); ++i) EXPECT_EQ(t.item(i).end - t.item(i).begin, 1);
  }
  EXPECT_EQ(Taper(384, 1, 1, 48).items(), 8);  // nobody waits
}

// When threads take the items in order, each as soon as it is free, all end within a block of each other: also when one
// expert has most of the rows, since its blocks take longer.
TEST(Taper, EndsTogetherWhenExpertsCostDifferently) {
  constexpr std::int64_t kUnits = 48;
  std::vector<std::int64_t> zipf, hot(16, 32), equal(128, 64);
  for (std::int64_t r = 1; r <= 128; ++r) zipf.push_back(std::max<std::int64_t>(32, 820 / r));
  hot[0] = 1000;
  for (const auto& costs : {zipf, hot, equal})
    for (const std::int64_t threads : {1, 2, 4, 8, 16, 32}) {
      const std::int64_t total = std::accumulate(costs.begin(), costs.end(), std::int64_t{0});
      const Taper t(kUnits * std::ssize(costs), threads, 1, fair_units(kUnits, costs[0], total, threads));
      std::vector<std::int64_t> busy(static_cast<std::size_t>(threads), 0);
      for (std::int64_t i = 0; i < t.items(); ++i) {
        std::int64_t& first = *std::min_element(busy.begin(), busy.end());
        for (std::int64_t unit = t.item(i).begin; unit < t.item(i).end; ++unit)
          first += costs[static_cast<std::size_t>(unit / kUnits)];
      }
      const auto fair = static_cast<double>(kUnits * total) / static_cast<double>(threads);
      EXPECT_LE(static_cast<double>(*std::max_element(busy.begin(), busy.end())),
                1.05 * fair + static_cast<double>(costs[0]))
          << costs.size() << " experts, the first of cost " << costs[0] << ", " << threads << " threads";
    }
}

TEST(Stripes, CoverEveryUnitOnceAndItemsStayInside) {
  for (const std::int64_t units : {1, 2, 3, 7, 16, 48, 128, 449})
    for (const std::int64_t grain : {1, 2})
      for (const std::int64_t times : {1, 5})
        for (const int nodes : {1, 2, 3, 4, 16}) {
          const Stripes s(
              {.units = units, .times = times, .grain = grain, .most = 6, .threads = 2 * nodes, .nodes = nodes});
          std::int64_t at = 0;
          for (int node = 0; node < nodes; ++node) {
            const Range stripe = s.stripe(node);
            ASSERT_EQ(stripe.begin, at);
            EXPECT_TRUE(node == 0 || at % grain == 0);
            std::int64_t unit = 0;
            for (std::int64_t i = 0; i < s.items(node); ++i) {
              ASSERT_EQ(s.item(node, i).begin, unit);
              unit = s.item(node, i).end;
            }
            ASSERT_EQ(unit, times * (stripe.end - stripe.begin));
            at = stripe.end;
          }
          ASSERT_EQ(at, units);
        }
}

TEST(Stripes, AreOfNearlyEqualSize) {
  const Stripes s({.units = 449, .times = 1, .grain = 2, .most = 8, .threads = 3, .nodes = 3});
  for (int node = 0; node < 3; ++node) {
    EXPECT_GE(s.stripe(node).end - s.stripe(node).begin, 148);
    EXPECT_LE(s.stripe(node).end - s.stripe(node).begin, 151);
  }
}

// Every CPU on node `node` of `count`.
NodeMap all_on(int node, int count) {
  return {count, std::vector<std::uint16_t>(static_cast<std::size_t>(sysconf(_SC_NPROCESSORS_CONF)),
                                            static_cast<std::uint16_t>(node))};
}

TEST(Claims, OneNodeTakesItemsByTheirTickets) {
  const Stripes s(work(4, 5, 1));
  Claims c(s, nullptr);
  ASSERT_EQ(c.total(), 20);
  for (const std::size_t ticket : {7u, 0u, 19u}) {
    const Claim got = c.take(ticket);
    EXPECT_EQ(got.node, 0);
    EXPECT_EQ(got.item, static_cast<std::int64_t>(ticket));
  }
}

TEST(Claims, TheOwnNodeFirstThenTheNextOnes) {
  for (const int own : {0, 1, 2}) {
    const NodeMap map = all_on(own, 3);
    const Stripes s(work(6, 4, 3));  // two units each
    Claims c(s, &map);
    ASSERT_EQ(c.total(), 24);
    for (std::size_t ticket = 0; ticket < 24; ++ticket) {
      const Claim got = c.take(ticket);
      EXPECT_EQ(got.node, (own + static_cast<int>(ticket) / 8) % 3);
      EXPECT_EQ(got.item, static_cast<std::int64_t>(ticket % 8));
    }
    EXPECT_EQ(c.take(24).item, -1);
  }
}

TEST(Claims, EachItemOnceFromManyThreads) {
  NodeMap map{3, {}};
  for (int cpu = 0; cpu < 64; ++cpu) map.of_cpu.push_back(static_cast<std::uint16_t>(cpu % 3));
  const Stripes s(work(100, 7, list_count(&map)));
  for (int round = 0; round < 20; ++round) {
    Claims c(s, &map);
    std::vector<std::vector<int>> seen;
    for (int node = 0; node < 3; ++node) seen.emplace_back(static_cast<std::size_t>(s.items(node)));
    std::atomic<std::size_t> ticket{0};
    std::vector<std::thread> team;
    for (int n = 0; n < 4; ++n)
      team.emplace_back([&] {
        for (std::size_t t; (t = ticket++) < static_cast<std::size_t>(c.total());) {
          const Claim got = c.take(t);
          if (got.item >= 0) ++seen[static_cast<std::size_t>(got.node)][static_cast<std::size_t>(got.item)];
        }
      });
    for (auto& t : team) t.join();
    for (const auto& items : seen)
      for (const int n : items) ASSERT_EQ(n, 1);
  }
}

TEST(Claims, MoreNodesThanListsShareThem) {
  NodeMap map = all_on(40, 64);
  EXPECT_EQ(list_count(&map), kMaxNodes);
  const Stripes s(work(64, 1, list_count(&map)));
  Claims c(s, &map);
  EXPECT_EQ(c.take(0).node, 40 % kMaxNodes);
  EXPECT_EQ(list_count(nullptr), 1);
}

}  // namespace
}  // namespace moe::test::stripes_test
