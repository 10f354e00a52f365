// Tables of experts and slots as properties over random batches (the golden cases run through moe_describe): every
// slot has one place, experts come in order, ties by slot, and maps agree with placement.
#include "vllm/expert_maps.h"
#include "support/rooms.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace moe::test::expert_maps_test {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

std::int64_t pick(std::mt19937& rng, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(rng);
}

Ids random_ids(std::int64_t slots, std::int64_t experts, std::mt19937& rng) {
  Ids ids(at(slots));
  for (std::int64_t& id : ids) id = static_cast<std::int64_t>(rng() % static_cast<std::uint32_t>(experts));
  return ids;
}

TEST(ExpertMaps, MapsOfAllRanksCoverEveryExpertOnce) {
  for (const Placement placement : {Placement::linear, Placement::round_robin})
    for (const auto& [experts, ranks] : {std::pair<std::int64_t, std::int64_t>{8, 2}, {7, 3}, {16, 16}, {61, 8}}) {
      Ids owners(at(experts), 0);
      for (std::int64_t r = 0; r < ranks; ++r) {
        const Ids map = expert_map(experts, ranks, r, placement), held = experts_of_rank(experts, ranks, r, placement);
        for (std::int64_t e = 0; e < experts; ++e) {
          if (map[at(e)] < 0) continue;
          ++owners[at(e)];
          EXPECT_EQ(held[at(map[at(e)])], e);
        }
      }
      EXPECT_EQ(owners, Ids(at(experts), 1)) << experts << " over " << ranks;
    }
}

TEST(ExpertMaps, RoundRobinTablesAreInverse) {
  for (const auto& [experts, ranks] : {std::pair<std::int64_t, std::int64_t>{8, 2}, {7, 3}, {61, 8}, {5, 5}}) {
    const RoundRobinTables t = round_robin_tables(experts, ranks, ranks - 1);
    for (std::int64_t e = 0; e < experts; ++e) {
      EXPECT_EQ(t.physical_to_global[at(t.global_to_physical[at(e)])], e);
      // The formula of the spec.
      const std::int64_t owner = e % ranks, base = experts / ranks, longer = experts % ranks;
      EXPECT_EQ(t.global_to_physical[at(e)], owner * base + std::min(owner, longer) + e / ranks);
    }
    EXPECT_EQ(t.local_to_global, experts_of_rank(experts, ranks, ranks - 1, Placement::round_robin));
  }
}

TEST(ExpertMaps, CopiesOfAnExpertShareItsTokens) {
  const EplbPlacement p = initial_eplb_placement(6, 9);
  EXPECT_EQ(p.replica_count, (Ids{3, 3, 3, 2, 2, 2}));
  std::vector<int> used(15, 0);
  for (std::int64_t row = 0; row < 600; ++row)
    for (std::int64_t e = 0; e < 6; ++e) {
      const std::int64_t physical = eplb_physical_id(p, row, e);
      EXPECT_EQ(p.physical_to_logical[at(physical)], e);
      ++used[at(physical)];
    }
  for (const int n : used) EXPECT_GT(n, 150);  // 200 or 300 each when evenly shared
  EXPECT_EQ(eplb_physical_id(p, 0, -1), -1);
  EXPECT_EQ(eplb_physical_id(p, 0, 6), -1);
}

TEST(ExpertMaps, AlignedBlocksHoldEverySlotOnce) {
  std::mt19937 rng(5);
  for (int round = 0; round < 200; ++round) {
    const std::int64_t experts = pick(rng, 1, 20), slots = pick(rng, 0, 59), block = pick(rng, 1, 9);
    const Ids ids = random_ids(slots, experts, rng);
    const AlignedBlocks a = align_block_size(
        ids, {.block_size = block, .num_experts = experts, .expert_map = {}, .pad_sorted_ids = round % 2 == 1});
    // As vLLM's moe_align_block_size makes room: a block less one for each expert, and no more than a block a slot.
    std::int64_t length = slots + experts * (block - 1);
    if (round % 2 == 1) length = (length + block - 1) / block * block;
    if (slots < experts) length = std::min(length, slots * block);
    EXPECT_EQ(static_cast<std::int64_t>(a.sorted_ids.size()), length);
    Ids seen(at(slots), 0);
    std::int64_t last = -1;
    for (std::size_t place = 0; place < a.sorted_ids.size(); ++place) {
      const std::int64_t slot = a.sorted_ids[place];
      if (slot == slots) continue;
      ++seen[at(slot)];
      EXPECT_EQ(a.expert_ids[place / at(block)], ids[at(slot)]);
      EXPECT_LT(static_cast<std::int64_t>(place), a.num_tokens_post_padded);
      EXPECT_GE(ids[at(slot)], last);
      last = ids[at(slot)];
    }
    EXPECT_EQ(seen, Ids(at(slots), 1));
    EXPECT_EQ(a.num_tokens_post_padded % block, 0);
    for (std::size_t b = at(a.num_tokens_post_padded / block); b < a.expert_ids.size(); ++b)
      EXPECT_EQ(a.expert_ids[b], -1);
  }
}

TEST(ExpertMaps, PermutationIsStableAndForeignSlotsComeLast) {
  std::mt19937 rng(6);
  for (int round = 0; round < 200; ++round) {
    const std::int64_t ranks = pick(rng, 1, 4), experts = ranks + pick(rng, 0, 11), slots = pick(rng, 0, 59);
    const Ids ids = random_ids(slots, experts, rng),
              map = expert_map(experts, ranks, ranks - 1, Placement::round_robin);
    const auto local =
        static_cast<std::int64_t>(experts_of_rank(experts, ranks, ranks - 1, Placement::round_robin).size());
    const Permutation p = permute(ids, experts, map, local);
    EXPECT_EQ(p.first_token_offset.front(), 0);
    for (std::int64_t e = 0; e < local; ++e) {
      EXPECT_EQ(p.first_token_offset[at(e + 1)] - p.first_token_offset[at(e)], p.tokens_per_expert[at(e)]);
      for (std::int64_t row = p.first_token_offset[at(e)]; row < p.first_token_offset[at(e + 1)]; ++row) {
        EXPECT_EQ(map[at(ids[at(p.src[at(row)])])], e);
        EXPECT_EQ(p.dst[at(p.src[at(row)])], row);
        if (row > p.first_token_offset[at(e)]) {
          EXPECT_LT(p.src[at(row - 1)], p.src[at(row)]);
        }
      }
    }
    for (std::int64_t row = p.first_token_offset.back(); row < slots; ++row) EXPECT_EQ(p.src[at(row)], slots);
    Ids places = p.dst;
    std::sort(places.begin(), places.end());
    for (std::int64_t i = 0; i < slots; ++i) EXPECT_EQ(places[at(i)], i);
  }
}

}  // namespace
}  // namespace moe::test::expert_maps_test
