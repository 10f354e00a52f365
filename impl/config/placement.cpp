// Which experts a rank holds (routing.md 9). With E experts over n ranks the first E mod n ranks have
// one expert more than the others.
//
//   linear        rank r: one run of neighbours, after those of the ranks before
//   round_robin   rank r: r, r + n, r + 2n, ...
#include <algorithm>

#include "base/index.h"
#include "config/config.h"

namespace moe::config {

std::vector<std::int64_t> experts_of_rank(std::int64_t num_experts, std::int64_t ep_size, std::int64_t ep_rank,
                                          Placement placement) {
  std::vector<std::int64_t> experts;
  if (num_experts <= 0 || ep_size <= 0 || ep_rank < 0 || ep_rank >= ep_size) return experts;
  const std::int64_t base = num_experts / ep_size, longer = num_experts % ep_size;
  const std::int64_t count = base + (ep_rank < longer ? 1 : 0);
  const bool linear = placement == Placement::linear;
  const std::int64_t first = linear ? ep_rank * base + std::min(ep_rank, longer) : ep_rank;
  const std::int64_t step = linear ? 1 : ep_size;
  experts.reserve(usize(count));
  for (std::int64_t i = 0; i < count; ++i) experts.push_back(first + i * step);
  return experts;
}

std::vector<std::int64_t> local_experts(const Config& config) {
  const ParallelConfig& p = config.parallel;
  std::vector<std::int64_t> experts =
      !p.local_experts.empty()
          ? p.local_experts
          : experts_of_rank(config.num_physical_experts, p.ep_size, p.ep_rank, effective_placement(config));
  // Fused shared experts exclude expert parallelism: every rank that has them has all experts.
  for (std::int64_t e = config.num_physical_experts; e < config.num_weight_experts(); ++e) experts.push_back(e);
  return experts;
}

Placement effective_placement(const Config& c) {
  const ParallelConfig& p = c.parallel;
  if (c.selection_policy == Policy::libmoe || p.expert_placement_strategy == Placement::linear)
    return p.expert_placement_strategy;
  const bool all2all = p.dp_size > 1 && p.use_ep;
  const bool low_latency = p.all2all_backend == "deepep_low_latency" || p.all2all_backend == "nixl_ep";
  const bool falls_back = p.ep_size == 1 || c.routing.num_expert_group.value_or(0) <= 1 ||
                          p.num_redundant_experts != 0 || p.enable_eplb || (all2all && !low_latency);
  return falls_back ? Placement::linear : Placement::round_robin;
}

}  // namespace moe::config
