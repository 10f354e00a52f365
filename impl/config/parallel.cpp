// The member "parallel", and the sizes that follow from it: FusedMoEParallelConfig (config.md 7), the
// experts of this rank and the width of an expert on it.
//
//   flat size = dp*pcp*tp,  flat rank = (dp_rank*pcp + pcp_rank)*tp + tp_rank
//   expert parallel: ep = flat, tp = 1;   otherwise tp = flat, ep = 1
#include <array>

#include "base/checked.h"
#include "base/text.h"
#include "config/field_rows.h"
#include "config/sections.h"

namespace moe::config {
namespace {

using fields::Members;

using Owner = ParallelConfig;

// The ranks are read now, and each of them has to be one of its group.
Check read_sp_size(const Members& members, ParallelConfig& p) {
  for (const ParallelGroup& g : kParallelGroups) {
    if (p.*g.rank < p.*g.size) continue;
    return fields::fault(members.at(g.rank_name),
                         cat("found ", p.*g.rank, ", expected less than ", g.size_name, " = ", p.*g.size));
  }
  MOE_TRY(p.sp_size, members.integer("sp_size", {1, 65536}, 1));
  if (p.sp_size == 1 || p.sp_size == p.tp_size) return ok();
  return fields::fault(members.at("sp_size"), cat("found ", p.sp_size, ", expected 1 or tp_size = ", p.tp_size));
}
void write_sp_size(const ParallelConfig& p, json::Object& out) { out.emplace_back("sp_size", p.sp_size); }

Check read_all2all(const Members& members, ParallelConfig& p) {
  MOE_TRY(const std::optional<std::size_t> i, members.word("all2all_backend", kAll2AllNames));
  if (i) p.all2all_backend = kAll2AllNames[*i];
  return ok();
}
void write_all2all(const ParallelConfig& p, json::Object& out) {
  out.emplace_back("all2all_backend", p.all2all_backend);
}

Check read_local_experts(const Members& members, ParallelConfig& p) {
  const json::Value* v = members.get("local_experts");
  if (v == nullptr) return ok();
  const std::string pointer = members.at("local_experts");
  if (v->array() == nullptr || v->array()->empty())
    return fields::unexpected(pointer, *v, "an array of the numbers of experts, ascending");
  for (const json::Value& item : *v->array()) {
    MOE_TRY(const std::int64_t expert,
            fields::integer_value(item, fields::child(pointer, cat(p.local_experts.size())), {0, 65535}));
    if (!p.local_experts.empty() && expert <= p.local_experts.back())
      return fields::fault(fields::child(pointer, cat(p.local_experts.size())),
                           cat("found ", expert, " behind ", p.local_experts.back(), ", expected them ascending"));
    p.local_experts.push_back(expert);
  }
  return ok();
}
void write_local_experts(const ParallelConfig& p, json::Object& out) {
  if (p.local_experts.empty()) return;
  json::Array experts;
  for (const std::int64_t e : p.local_experts) experts.emplace_back(e);
  out.emplace_back("local_experts", std::move(experts));
}

// clang-format off
constexpr fields::Field<Owner> kFields[] = {
#define MOE_FIELD_PLACE(parallel) parallel
#define MOE_FIELDS_PARALLEL
#include "config/field_rows.inc"
};
// clang-format on

Check check_experts(const Members& members, const Config& c) {
  const ParallelConfig& p = c.parallel;
  if (p.num_redundant_experts > 0 && !p.enable_eplb) {
    return fields::fault(members.at("num_redundant_experts"),
                         cat("found ", p.num_redundant_experts, ", expected 0 without enable_eplb"));
  }
  if (p.enable_eplb && !p.use_ep) {
    return fields::fault(members.at("enable_eplb"), "found true, expected expert parallelism over more than one rank");
  }
  if (p.ep_size > c.num_physical_experts) {
    return fields::fault(
        members.at("enable_expert_parallel"),
        cat("found ", p.ep_size, " ranks, expected at most one per expert, which are ", c.num_physical_experts));
  }
  if (p.enable_eplb && c.num_physical_experts % p.ep_size != 0) {
    return fields::fault(members.at("num_redundant_experts"),
                         cat("found ", p.num_redundant_experts, ", so ", c.num_physical_experts,
                             " physical experts, expected a multiple of the ", p.ep_size, " ranks"));
  }
  return ok();
}

Check check_local_experts(const Members& members, const Config& c) {
  const ParallelConfig& p = c.parallel;
  if (p.local_experts.empty()) return ok();
  const std::string pointer = members.at("local_experts");
  if (!p.use_ep || p.enable_eplb)
    return fields::fault(pointer,
                         "found a list, expected expert parallelism over more than one rank, without enable_eplb");
  if (p.local_experts.back() < c.num_experts) return ok();
  return fields::fault(pointer,
                       cat("found ", p.local_experts.back(), ", expected less than num_experts = ", c.num_experts));
}

Check divide_width(Draft& draft) {
  Config& c = draft.config;
  const std::int64_t tp = c.parallel.tp_size;
  const std::string pointer = fields::child("", draft.width_name);
  if (draft.width_name != "intermediate_size_per_partition") {
    if (draft.width % tp != 0) {
      return fields::fault(pointer, cat("found ", draft.width, ", expected a multiple of the flattened tp_size ", tp));
    }
    c.intermediate_size = draft.width;
    c.intermediate_size_per_partition = draft.width / tp;
    return ok();
  }
  const std::optional<std::int64_t> whole = checked_mul({draft.width, tp});
  if (!whole) {
    return fields::fault(pointer,
                         cat("found ", draft.width, " on each of ", tp, " ranks, expected a whole width below 2^63"));
  }
  c.intermediate_size = *whole;
  c.intermediate_size_per_partition = draft.width;
  return ok();
}

}  // namespace

ParallelConfig make_parallel(const ParallelConfig& given) {
  ParallelConfig p = given;
  p.tp_size = p.ep_size = 1;
  p.tp_rank = p.ep_rank = 0;
  p.pcp_rank = given.pcp_size > 1 ? given.pcp_rank : 0;
  p.dp_rank = given.dp_size > 1 ? given.dp_rank : 0;
  const std::int64_t tp_rank = given.tp_size > 1 ? given.tp_rank : 0;
  const std::int64_t size = given.dp_size * given.pcp_size * given.tp_size;  // <= 2^48
  const std::int64_t rank = (p.dp_rank * given.pcp_size + p.pcp_rank) * given.tp_size + tp_rank;
  p.use_ep = given.enable_expert_parallel && size > 1;
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

bool is_parallel_member(std::string_view name) { return fields::index_of(fields::names_of(kFields), name).has_value(); }

Check read_parallel(const Members& layer, Draft& draft) {
  Config& c = draft.config;
  MOE_TRY(const Members members, fields::open_fields(layer.get("parallel"), "/parallel", kFields));
  MOE_CHECK(fields::read_fields(members, kFields, c.parallel));
  c.parallel = make_parallel(c.parallel);
  c.num_physical_experts = c.num_experts + c.parallel.num_redundant_experts;
  MOE_CHECK(check_experts(members, c));
  MOE_CHECK(check_local_experts(members, c));
  const std::int64_t ranks = c.parallel.ep_size;
  c.num_local_experts = c.num_physical_experts / ranks + (c.parallel.ep_rank < c.num_physical_experts % ranks ? 1 : 0);
  if (!c.parallel.local_experts.empty()) c.num_local_experts = std::ssize(c.parallel.local_experts);
  return divide_width(draft);
}

void write_parallel(const Draft& draft, json::Object& out) {
  const Config& c = draft.config;
  json::Value members = fields::write_fields(kFields, c.parallel);
  for (auto& [name, value] : parallel_members(c.parallel)) members.set(name, std::move(value));  // flattened
  out.emplace_back("parallel", std::move(members));
  out.emplace_back("num_logical_experts", c.num_experts);
  out.emplace_back("num_physical_experts", c.num_physical_experts);
  out.emplace_back("num_local_experts", c.num_local_experts);
}

}  // namespace moe::config
