// Placement by the rules of config/placement.cpp: the extra experts go to the first ranks. Of more ranks than experts
// the last ones hold none.
#include "dist/placement.h"

#include <algorithm>
#include <numeric>

#include "base/index.h"
#include "base/json.h"
#include "base/text.h"
#include "config/fields.h"

namespace moe::dist {
namespace {

Error cannot(const char* pointer, const char* what) {
  return fail(Code::unsupported, pointer, cat(pointer, ": ", what));
}

}  // namespace

std::int64_t ExpertPlaces::holder(int rank) const {
  return std::count_if(experts.begin(), experts.begin() + rank, [](const auto& held) { return !held.empty(); });
}

std::string local_patch(const DistOptions& o, const ExpertPlaces& places, int rank) {
  const std::int64_t ranks = places.holders();
  json::Writer w;
  w.begin_object();
  if (ranks > 1) {
    w.key("parallel").begin_object().member("tp_size", ranks).member("tp_rank", places.holder(rank));
    w.member("enable_expert_parallel", o.mode == Mode::ep);
    w.member("expert_placement_strategy", o.placement == Placement::linear ? "linear" : "round_robin");
    if (!o.table.empty()) w.key("local_experts").array(places.experts[usize(rank)]);
    w.end_object();
  }
  return w.end_object().take();
}

Check check_whole(const Config& c, const DistOptions& o) {
  const ParallelConfig& p = c.parallel;
  if (p.tp_size != 1 || p.ep_size != 1 || p.use_ep)
    return cannot("/parallel", "cuts the layer already; moe_dist_create takes the whole layer's config");
  if (p.num_redundant_experts != 0)
    return cannot("/parallel/num_redundant_experts", "redundant experts stay in one process");
  if (o.mode == Mode::tp && c.expert_norm.wanted())
    return cannot("/expert_norm", "mode tp cuts the rows that the norm needs whole");
  return ok();
}

namespace {

// Every expert on one rank.
Check check_table(const DistOptions& o, std::int64_t experts, int size) {
  if (std::ssize(o.table) != size)
    return config::fields::fault("/placement", cat("found lists of ", o.table.size(), " ranks, there are ", size));
  std::vector<int> owners(usize(experts), -1);
  for (std::size_t r = 0; r < o.table.size(); ++r)
    for (const std::int64_t e : o.table[r]) {
      if (e >= experts)
        return config::fields::fault("/placement", cat("found expert ", e, ", expected less than ", experts));
      if (owners[usize(e)] >= 0)
        return config::fields::fault("/placement",
                                     cat("expert ", e, " is on rank ", owners[usize(e)], " and on rank ", r));
      owners[usize(e)] = static_cast<int>(r);
    }
  const auto left = std::find(owners.begin(), owners.end(), -1);
  if (left == owners.end()) return ok();
  return config::fields::fault("/placement", cat("expert ", left - owners.begin(), " is on no rank"));
}

// Mode ep, by a rule.
Check place_by_rule(const Config& c, const DistOptions& o, ExpertPlaces& p) {
  const std::int64_t experts = c.num_weight_experts(), ranks = std::min(std::ssize(p.experts), experts);
  const auto place = [&](Placement placement) {
    for (std::int64_t r = 0; r < ranks; ++r)
      p.experts[usize(r)] = config::experts_of_rank(experts, ranks, r, placement);
  };
  place(o.placement);
  if (ranks == 1) return ok();
  MOE_TRY(const Config local, config::merge_config(c, local_patch(o, p, 0)));
  place(config::effective_placement(local));  // under policy vllm it may be another one than was asked for
  return ok();
}

}  // namespace

Result<ExpertPlaces> place_experts(const Config& c, const DistOptions& o, int size) {
  const std::int64_t experts = c.num_weight_experts();
  ExpertPlaces p;
  p.experts.resize(usize(size));
  p.owner.assign(usize(experts), -1);
  p.local.resize(usize(experts));
  if (o.mode == Mode::tp) {
    std::iota(p.local.begin(), p.local.end(), 0);
    for (auto& held : p.experts) {
      held.resize(usize(experts));
      std::iota(held.begin(), held.end(), 0);
    }
    return p;
  }
  if (o.table.empty()) {
    MOE_CHECK(place_by_rule(c, o, p));
  } else {
    MOE_CHECK(check_table(o, experts, size));
    p.experts = o.table;
  }
  for (std::size_t r = 0; r < p.experts.size(); ++r) {
    std::int32_t local = 0;
    for (const std::int64_t e : p.experts[r]) {
      p.owner[usize(e)] = static_cast<std::int32_t>(r);
      p.local[usize(e)] = local++;
    }
  }
  return p;
}

}  // namespace moe::dist
