// Shards cover a matrix once and chunks stay inside them; items are claimed once each, the own node's first.
#include "run/shards.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>
#include <vector>

namespace moe::test::shards_test {
namespace {

TEST(Shards, CoverEveryUnitOnceAndChunksStayInside) {
  for (const std::int64_t units : {1, 2, 3, 7, 16, 48, 128, 449})
    for (const std::int64_t grain : {1, 2})
      for (const std::int64_t chunk : {2, 4, 6, 450})
        for (const int nodes : {1, 2, 3, 4, 16}) {
          const Shards s(units, chunk, grain, nodes);
          std::int64_t at = 0, chunks = 0;
          for (int node = 0; node < nodes; ++node) {
            ASSERT_EQ(s.shard(node).begin, at);
            EXPECT_TRUE(node == 0 || at % grain == 0);
            for (std::int64_t i = 0; i < s.chunks(node); ++i) {
              const Range r = s.chunk(node, i);
              ASSERT_EQ(r.begin, at);
              ASSERT_GT(r.end, r.begin);
              ASSERT_LE(r.end - r.begin, chunk);
              ASSERT_LE(r.end, s.shard(node).end);
              at = r.end;
            }
            ASSERT_EQ(s.shard(node).end, at);
            chunks += s.chunks(node);
          }
          ASSERT_EQ(at, units);
          ASSERT_EQ(s.chunks(), chunks);
        }
}

TEST(Shards, AreOfNearlyEqualSize) {
  const Shards s(449, 8, 2, 3);
  for (int node = 0; node < 3; ++node) {
    EXPECT_GE(s.shard(node).end - s.shard(node).begin, 148);
    EXPECT_LE(s.shard(node).end - s.shard(node).begin, 151);
  }
}

// Every CPU on node `node` of `count`.
NodeMap all_on(int node, int count) {
  return {count, std::vector<std::uint16_t>(static_cast<std::size_t>(sysconf(_SC_NPROCESSORS_CONF)),
                                            static_cast<std::uint16_t>(node))};
}

TEST(Claims, OneNodeTakesItemsByTheirTickets) {
  const Shards s(10, 3, 1, 1);
  Claims c(s, 5, nullptr);
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
    const Shards s(9, 2, 1, 3);  // two chunks each
    Claims c(s, 4, &map);
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
  const Shards s(100, 3, 1, list_count(&map));
  for (int round = 0; round < 20; ++round) {
    Claims c(s, 7, &map);
    std::vector<std::vector<int>> seen;
    for (int node = 0; node < 3; ++node) seen.emplace_back(static_cast<std::size_t>(7 * s.chunks(node)));
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
  const Shards s(64, 1, 1, list_count(&map));
  Claims c(s, 1, &map);
  EXPECT_EQ(c.take(0).node, 40 % kMaxNodes);
  EXPECT_EQ(list_count(nullptr), 1);
}

}  // namespace
}  // namespace moe::test::shards_test
