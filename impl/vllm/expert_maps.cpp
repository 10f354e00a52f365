// See expert_maps.h.
#include "vllm/expert_maps.h"

#include <algorithm>
#include <numeric>

#include "base/checked.h"
#include "base/index.h"

namespace moe::vllm {

Ids expert_map(std::int64_t num_experts, std::int64_t ep_size, std::int64_t ep_rank, Placement placement) {
  Ids map(usize(num_experts), -1);
  std::int64_t local = 0;
  for (const std::int64_t e : experts_of_rank(num_experts, ep_size, ep_rank, placement)) at(map, e) = local++;
  return map;
}

RoundRobinTables round_robin_tables(std::int64_t num_experts, std::int64_t ep_size, std::int64_t ep_rank) {
  RoundRobinTables t;
  t.global_to_physical.resize(usize(num_experts));
  for (std::int64_t rank = 0; rank < ep_size; ++rank)
    for (const std::int64_t e : experts_of_rank(num_experts, ep_size, rank, Placement::round_robin)) {
      at(t.global_to_physical, e) = static_cast<std::int64_t>(t.physical_to_global.size());
      t.physical_to_global.push_back(e);
    }
  t.local_to_global = experts_of_rank(num_experts, ep_size, ep_rank, Placement::round_robin);
  return t;
}

EplbPlacement initial_eplb_placement(std::int64_t num_logical, std::int64_t num_redundant) {
  EplbPlacement p;
  p.logical_to_physical.assign(usize(num_logical), Ids(usize(num_redundant + 1), -1));
  p.replica_count.assign(usize(num_logical), 0);
  for (std::int64_t physical = 0; physical < num_logical + num_redundant; ++physical) {
    const std::int64_t logical = physical % num_logical;
    p.physical_to_logical.push_back(logical);
    at(at(p.logical_to_physical, logical), at(p.replica_count, logical)++) = physical;
  }
  return p;
}

std::int64_t eplb_physical_id(const EplbPlacement& p, std::int64_t row, std::int64_t logical_id) {
  if (logical_id < 0 || logical_id >= static_cast<std::int64_t>(p.replica_count.size())) return -1;
  // Neighbouring rows take different copies: Knuth's multiplicative hash of the row.
  const std::uint32_t hash = static_cast<std::uint32_t>(row) * 2654435769U;
  return at(at(p.logical_to_physical, logical_id), hash % at(p.replica_count, logical_id));
}

std::int64_t aligned_length(std::int64_t slots, const AlignQuestion& q) {
  std::int64_t length = slots + q.num_experts * (q.block_size - 1);
  if (q.pad_sorted_ids) length = round_up(length, q.block_size);
  return slots < q.num_experts ? std::min(length, slots * q.block_size) : length;
}

AlignedBlocks align_block_size(std::span<const std::int64_t> ids, const AlignQuestion& q) {
  const auto slots = static_cast<std::int64_t>(ids.size());
  AlignedBlocks a;
  a.sorted_ids.assign(usize(aligned_length(slots, q)), slots);
  a.expert_ids.assign(ceil_div(a.sorted_ids.size(), usize(q.block_size)), -1);
  std::vector<Ids> slots_of(usize(q.num_experts));
  for (std::int64_t s = 0; s < slots; ++s) at(slots_of, at(ids, s)).push_back(s);
  for (std::int64_t e = 0; e < q.num_experts; ++e) {
    const Ids& held = at(slots_of, e);
    const std::int64_t begin = a.num_tokens_post_padded,
                       end = begin + round_up(static_cast<std::int64_t>(held.size()), q.block_size);
    std::copy(held.begin(), held.end(), a.sorted_ids.begin() + begin);
    const std::int64_t shown = q.expert_map.empty() ? e : at(q.expert_map, e);
    std::fill(a.expert_ids.begin() + begin / q.block_size, a.expert_ids.begin() + end / q.block_size, shown);
    a.num_tokens_post_padded = end;
  }
  return a;
}

Permutation permute(std::span<const std::int64_t> ids, std::int64_t num_experts,
                    std::span<const std::int64_t> expert_map, std::int64_t num_local) {
  const std::size_t slots = ids.size();
  Permutation p;
  p.tokens_per_expert.assign(usize(num_local), 0);
  p.first_token_offset.assign(usize(num_local) + 1, 0);
  Ids key(slots);  // foreign experts keep their order among themselves
  for (std::size_t s = 0; s < slots; ++s) {
    const std::int64_t local = expert_map.empty() ? ids[s] : at(expert_map, ids[s]);
    key[s] = local >= 0 ? local : ids[s] + num_experts;
    if (key[s] < num_local) ++at(p.tokens_per_expert, key[s]);
  }
  std::partial_sum(p.tokens_per_expert.begin(), p.tokens_per_expert.end(), p.first_token_offset.begin() + 1);
  p.src.resize(slots);
  std::iota(p.src.begin(), p.src.end(), std::int64_t{0});
  std::stable_sort(p.src.begin(), p.src.end(), [&](std::int64_t a, std::int64_t b) { return at(key, a) < at(key, b); });
  p.dst.resize(slots);
  for (std::size_t row = 0; row < slots; ++row) at(p.dst, p.src[row]) = static_cast<std::int64_t>(row);
  std::fill(p.src.begin() + p.first_token_offset.back(), p.src.end(), static_cast<std::int64_t>(slots));
  return p;
}

}  // namespace moe::vllm
