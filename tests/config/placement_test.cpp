// Placement of experts over ranks against the golden expert maps.
#include <gtest/gtest.h>

#include "config/config.h"
#include "support/rooms.h"
#include "support/vectors.h"

namespace moe::test::placement_test {
namespace {

TEST(Placement, GoldenExpertMaps) {
  const auto golden = load_json("routing/expert_map_cases.json");
  ASSERT_GE(golden["cases"].size(), 10U);
  for (const auto& c : golden["cases"]) {
    const auto placement = c["strategy"] == "linear" ? Placement::linear : Placement::round_robin;
    const auto num_experts = c["num_experts"].get<std::int64_t>();
    const std::vector<std::int64_t> experts =
        experts_of_rank(num_experts, c["ep_size"].get<std::int64_t>(), c["ep_rank"].get<std::int64_t>(), placement);
    EXPECT_EQ(static_cast<std::int64_t>(experts.size()), c["num_local"].get<std::int64_t>()) << c;
    std::vector<int> map(static_cast<std::size_t>(num_experts), -1);
    for (std::size_t i = 0; i < experts.size(); ++i) map[static_cast<std::size_t>(experts[i])] = static_cast<int>(i);
    if (c["map"].is_array()) {
      EXPECT_EQ(map, c["map"].get<std::vector<int>>()) << c;
    }
    if (c.contains("local_to_global")) {
      EXPECT_EQ(experts, c["local_to_global"].get<std::vector<std::int64_t>>()) << c;
    }
  }
}

TEST(Placement, EveryExpertOnce) {
  for (const Placement p : {Placement::linear, Placement::round_robin})
    for (std::int64_t n = 1; n <= 20; ++n)
      for (std::int64_t ranks = 1; ranks <= n; ++ranks) {
        std::vector<int> seen(static_cast<std::size_t>(n), 0);
        for (std::int64_t r = 0; r < ranks; ++r)
          for (const std::int64_t e : experts_of_rank(n, ranks, r, p)) ++seen[static_cast<std::size_t>(e)];
        EXPECT_EQ(seen, std::vector<int>(static_cast<std::size_t>(n), 1));
      }
}

// The initial placement of redundant experts in closed form, and the copy of each slot.
TEST(Placement, GoldenCopies) {
  const auto golden = load_json("routing/eplb_cases.json");
  ASSERT_EQ(golden["cases"].size(), 3U);
  for (const auto& c : golden["cases"]) {
    const auto logical = c["num_logical"].get<std::int64_t>();
    const ExpertCopies copies{logical, logical + c["num_redundant"].get<std::int64_t>()};
    for (std::int64_t e = 0; e < logical; ++e)
      EXPECT_EQ(copies.count(e), c["replica_count"][static_cast<std::size_t>(e)].get<std::int64_t>());
    const auto& physical = c["physical_to_logical"];
    ASSERT_EQ(static_cast<std::int64_t>(physical.size()), copies.physical);
    for (std::int64_t p = 0; p < copies.physical; ++p)
      EXPECT_EQ(copies.logical_of(p), physical[static_cast<std::size_t>(p)].get<std::int64_t>());
    for (std::size_t t = 0; t < c["topk_ids"].size(); ++t)
      for (std::size_t j = 0; j < c["topk_ids"][t].size(); ++j) {
        const auto id = c["topk_ids"][t][j].get<std::int64_t>();
        if (id < 0) continue;
        EXPECT_EQ(copies.copy_for_row(static_cast<std::int64_t>(t), id), c["physical_ids"][t][j].get<std::int64_t>());
      }
  }
  EXPECT_EQ((ExpertCopies{8, 8}.copy_for_row(12345, 7)), 7);
}

TEST(Placement, OutsideIsEmpty) {
  EXPECT_TRUE(experts_of_rank(0, 1, 0, Placement::linear).empty());
  EXPECT_TRUE(experts_of_rank(8, 0, 0, Placement::linear).empty());
  EXPECT_TRUE(experts_of_rank(8, 2, 2, Placement::linear).empty());
  EXPECT_TRUE(experts_of_rank(8, 2, -1, Placement::round_robin).empty());
}

}  // namespace
}  // namespace moe::test::placement_test
