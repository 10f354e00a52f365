// The member "parallel", and the sizes that follow from it: FusedMoEParallelConfig (config.md 7), the
// experts of this rank and the width of an expert on it.
//
//   flat size = dp*pcp*tp,  flat rank = (dp_rank*pcp + pcp_rank)*tp + tp_rank
//   expert parallel: ep = flat, tp = 1;   otherwise tp = flat, ep = 1
#include <array>

#include "base/checked.h"
#include "config/fields.h"
#include "config/sections.h"

namespace moe {
namespace {

using fields::Members;

// clang-format off
constexpr std::array<std::string_view, 12> kMembers = {
    "tp_size", "tp_rank", "pcp_size", "pcp_rank", "dp_size", "dp_rank", "sp_size", "enable_expert_parallel",
    "all2all_backend", "enable_eplb", "num_redundant_experts", "expert_placement_strategy"};
// clang-format on

Result<ParallelSizes> read_sizes(const Members& members) {
  ParallelSizes s;
  for (const ParallelGroup& g : kParallelGroups) {
    MOE_TRY(s.*g.size, members.integer(g.size_name, {1, 65536}, 1));
  }
  for (const ParallelGroup& g : kParallelGroups) {
    MOE_TRY(s.*g.rank, members.integer(g.rank_name, {0, 65535}, 0));
  }
  for (const ParallelGroup& g : kParallelGroups) {
    if (s.*g.rank < s.*g.size) continue;
    return fields::fault(members.at(g.rank_name), "found " + std::to_string(s.*g.rank) + ", expected less than " +
                                                      std::string(g.size_name) + " = " + std::to_string(s.*g.size));
  }
  MOE_TRY(s.sp_size, members.integer("sp_size", {1, 65536}, 1));
  if (s.sp_size != 1 && s.sp_size != s.tp_size) {
    return fields::fault(members.at("sp_size"), "found " + std::to_string(s.sp_size) +
                                                    ", expected 1 or tp_size = " + std::to_string(s.tp_size));
  }
  return s;
}

Check check_experts(const Members& members, const Config& c) {
  const ParallelConfig& p = c.parallel;
  if (p.num_redundant_experts > 0 && !p.enable_eplb) {
    return fields::fault(members.at("num_redundant_experts"),
                         "found " + std::to_string(p.num_redundant_experts) + ", expected 0 without enable_eplb");
  }
  if (p.enable_eplb && !p.use_ep) {
    return fields::fault(members.at("enable_eplb"), "found true, expected expert parallelism over more than one rank");
  }
  if (p.ep_size > c.num_physical_experts) {
    return fields::fault(members.at("enable_expert_parallel"),
                         "found " + std::to_string(p.ep_size) + " ranks, expected at most one per expert, which are " +
                             std::to_string(c.num_physical_experts));
  }
  if (p.enable_eplb && c.num_physical_experts % p.ep_size != 0) {
    return fields::fault(members.at("num_redundant_experts"), "found " + std::to_string(p.num_redundant_experts) +
                                                                  ", so " + std::to_string(c.num_physical_experts) +
                                                                  " physical experts, expected a multiple of the " +
                                                                  std::to_string(p.ep_size) + " ranks");
  }
  return ok();
}

Check divide_width(Draft& draft) {
  Config& c = draft.config;
  const std::int64_t tp = c.parallel.tp_size;
  const std::string pointer = fields::child("", draft.width_name);
  if (draft.width_name != "intermediate_size_per_partition") {
    if (draft.width % tp != 0) {
      return fields::fault(pointer, "found " + std::to_string(draft.width) +
                                        ", expected a multiple of the flattened tp_size " + std::to_string(tp));
    }
    c.intermediate_size = draft.width;
    c.intermediate_size_per_partition = draft.width / tp;
    return ok();
  }
  const std::optional<std::int64_t> whole = checked_mul({draft.width, tp});
  if (!whole) {
    return fields::fault(pointer, "found " + std::to_string(draft.width) + " on each of " + std::to_string(tp) +
                                      " ranks, expected a whole width below 2^63");
  }
  c.intermediate_size = *whole;
  c.intermediate_size_per_partition = draft.width;
  return ok();
}

}  // namespace

ParallelConfig make_parallel(const ParallelSizes& s) {
  ParallelConfig p;
  p.pcp_size = s.pcp_size;
  p.dp_size = s.dp_size;
  p.sp_size = s.sp_size;
  p.pcp_rank = s.pcp_size > 1 ? s.pcp_rank : 0;
  p.dp_rank = s.dp_size > 1 ? s.dp_rank : 0;
  const std::int64_t tp_rank = s.tp_size > 1 ? s.tp_rank : 0;
  const std::int64_t size = s.dp_size * s.pcp_size * s.tp_size;  // <= 2^48
  const std::int64_t rank = (p.dp_rank * s.pcp_size + p.pcp_rank) * s.tp_size + tp_rank;
  p.use_ep = s.enable_expert_parallel && size > 1;
  (p.use_ep ? p.ep_size : p.tp_size) = size;
  (p.use_ep ? p.ep_rank : p.tp_rank) = rank;
  return p;
}

json::Object parallel_members(const ParallelConfig& p) {
  return {{"tp_size", p.tp_size},
          {"pcp_size", p.pcp_size},
          {"dp_size", p.dp_size},
          {"ep_size", p.ep_size},
          {"tp_rank", p.tp_rank},
          {"pcp_rank", p.pcp_rank},
          {"dp_rank", p.dp_rank},
          {"ep_rank", p.ep_rank},
          {"sp_size", p.sp_size},
          {"use_ep", p.use_ep},
          {"all2all_backend", p.all2all_backend},
          {"enable_eplb", p.enable_eplb}};
}

Check read_parallel(const json::Value& document, Draft& draft) {
  Config& c = draft.config;
  MOE_TRY(const Members members, Members::open(document.find("parallel"), "/parallel", kMembers));
  MOE_TRY(ParallelSizes sizes, read_sizes(members));
  MOE_TRY(sizes.enable_expert_parallel, members.boolean("enable_expert_parallel", false));
  c.parallel = make_parallel(sizes);
  MOE_TRY(c.parallel.enable_eplb, members.boolean("enable_eplb", false));
  MOE_TRY(const std::optional<std::size_t> all2all, members.word("all2all_backend", kAll2AllNames));
  if (all2all) c.parallel.all2all_backend = kAll2AllNames[*all2all];
  MOE_TRY(c.parallel.num_redundant_experts, members.integer("num_redundant_experts", {0, 65536}, 0));
  MOE_TRY(c.parallel.expert_placement_strategy,
          members.word("expert_placement_strategy", kPlacementNames, Placement::linear));
  c.num_physical_experts = c.num_experts + c.parallel.num_redundant_experts;
  MOE_CHECK(check_experts(members, c));
  const std::int64_t ranks = c.parallel.ep_size;
  c.num_local_experts = c.num_physical_experts / ranks + (c.parallel.ep_rank < c.num_physical_experts % ranks ? 1 : 0);
  return divide_width(draft);
}

}  // namespace moe
