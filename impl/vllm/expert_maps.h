// Where experts and tokens go, as tables (routing.md 8-10): the map of a rank's experts, round-robin tables, redundant
// experts, and the two ways to order the slots of a batch by expert. For hosts that feed other kernels, and to check
// one's own against; moe_apply has its own plan.
//
// A slot is (token, j) as the number token*k + j. Ids have been checked to lie in [0, num_experts).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "config/config.h"

namespace moe::vllm {

using Ids = std::vector<std::int64_t>;

// map[global id] = local index, or -1.
Ids expert_map(std::int64_t num_experts, std::int64_t ep_size, std::int64_t ep_rank, Placement placement);

// "Physical" is an expert's place when the ranks' experts lie one after another.
struct RoundRobinTables {
  Ids global_to_physical, physical_to_global, local_to_global;
};
RoundRobinTables round_robin_tables(std::int64_t num_experts, std::int64_t ep_size, std::int64_t ep_rank);

// Logical experts are the checkpoint's; each has one or more physical copies.
struct EplbPlacement {
  Ids physical_to_logical;               // [logical + redundant]
  std::vector<Ids> logical_to_physical;  // [logical][redundant + 1], filled up with -1
  Ids replica_count;                     // [logical]
};
EplbPlacement initial_eplb_placement(std::int64_t num_logical, std::int64_t num_redundant);
// The copy that a slot of this row (of the call) takes; -1 for ids that are no logical expert.
std::int64_t eplb_physical_id(const EplbPlacement& p, std::int64_t row, std::int64_t logical_id);

// Experts ascending, each one's slots padded with `slots` to whole blocks.
struct AlignedBlocks {
  Ids sorted_ids, expert_ids;  // a slot per place, an expert per block (-1: foreign, or past the end)
  std::int64_t num_tokens_post_padded = 0;
};
struct AlignQuestion {
  std::int64_t block_size, num_experts;
  std::span<const std::int64_t> expert_map;  // empty: none
  bool pad_sorted_ids = false;
};
std::int64_t aligned_length(std::int64_t slots, const AlignQuestion& q);  // of sorted_ids
AlignedBlocks align_block_size(std::span<const std::int64_t> ids, const AlignQuestion& q);

// Slots by local expert, foreign ones last, ties by slot.
struct Permutation {
  Ids src;                 // [slots] slot of a row; `slots` for rows of foreign experts
  Ids dst;                 // [slots] row of a slot
  Ids first_token_offset;  // [local + 1]
  Ids tokens_per_expert;   // [local]
};
Permutation permute(std::span<const std::int64_t> ids, std::int64_t num_experts,
                    std::span<const std::int64_t> expert_map, std::int64_t num_local);

}  // namespace moe::vllm
