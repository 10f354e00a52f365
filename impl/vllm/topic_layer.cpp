// moe_describe("parallel_config"), ("routing_method") and ("activation"): facts of a layer that follow from a few
// members of its configuration (describe.md 5, 6, 9).
#include <array>

#include "base/enum_set.h"
#include "base/index.h"
#include "base/text.h"
#include "config/sections.h"
#include "scheme/activation.h"
#include "vllm/profile.h"
#include "vllm/topics.h"

namespace moe::vllm {
namespace {

using fields::Members;

Result<std::optional<Profile>> read_profile(const Members& query) {
  MOE_TRY(const std::optional<std::size_t> i, query.word("profile", kProfileNames));
  return i ? std::optional(profile_at(*i)) : std::nullopt;
}

// --- parallel_config ------------------------------------------------------------------------------------

Result<ParallelConfig> read_parallel_query(const Members& query, std::optional<Profile> profile) {
  ParallelConfig s;
  for (const ParallelGroup& g : kParallelGroups) {
    MOE_TRY(s.*g.size, query.integer(g.size_name, {1, 65536}, 1));
    MOE_TRY(s.*g.rank, query.integer(g.rank_name, {0, 65535}, 0));
    if (s.*g.size > 1 && s.*g.rank >= s.*g.size)  // the rank of a group of one counts as 0
      return fields::fault(query.at(g.rank_name),
                           cat("found ", s.*g.rank, ", expected less than ", g.size_name, " = ", s.*g.size));
  }
  MOE_TRY(s.sp_size, query.integer("sp_size", {1, 65536}, 1));
  MOE_TRY(s.enable_expert_parallel, query.boolean("enable_expert_parallel", false));
  ParallelConfig p = make_parallel(s);
  MOE_TRY(p.enable_eplb, query.boolean("enable_eplb", false));
  MOE_TRY(const std::optional<std::size_t> all2all, query.word("all2all_backend", kAll2AllNames));
  if (all2all)
    p.all2all_backend = kAll2AllNames[*all2all];
  else if (profile == Profile::april_2026 && p.tp_size == 1 && p.ep_size == 1 && p.dp_size == 1 && p.pcp_size == 1)
    p.all2all_backend = "naive";  // make_no_parallel's
  return p;
}

// True where all-to-all kernels are in use and run one of these backends.
struct All2AllPredicate {
  std::string_view name, backend, or_backend;
  EnumSet<Profile> of;
  bool beside = true;  // in answers that name no profile, which show those of April and May side by side
};
constexpr EnumSet<Profile> kApril = {Profile::april_2026}, kMay = {Profile::may_2026},
                           kNovember = {Profile::november_2026}, kSinceMay = kMay | kNovember,
                           kAlways = kApril | kSinceMay;
constexpr std::array kAll2AllPredicates = {
    All2AllPredicate{"use_deepep_ht_kernels", "deepep_high_throughput", "", kAlways},
    All2AllPredicate{"use_deepep_ll_kernels", "deepep_low_latency", "", kAlways},
    All2AllPredicate{"use_fi_all2allv_kernels", "flashinfer_all2allv", "", kApril},
    All2AllPredicate{"use_naive_all2all_kernels", "naive", "allgather_reducescatter", kApril},
    All2AllPredicate{"use_mori_kernels", "mori", "", kApril | kMay},
    All2AllPredicate{"use_mori_kernels", "mori_high_throughput", "mori_low_latency", kNovember, false},
    All2AllPredicate{"use_batched_activation_format", "deepep_low_latency", "", kApril, false},
    All2AllPredicate{"use_batched_activation_format", "deepep_low_latency", "nixl_ep", kSinceMay},
    All2AllPredicate{"use_fi_nvl_two_sided_kernels", "flashinfer_nvlink_two_sided", "flashinfer_all2allv", kSinceMay},
    All2AllPredicate{"use_fi_nvl_one_sided_kernels", "flashinfer_nvlink_one_sided", "", kSinceMay},
    All2AllPredicate{"use_ag_rs_all2all_kernels", "allgather_reducescatter", "", kSinceMay},
    All2AllPredicate{"use_nixl_ep_kernels", "nixl_ep", "", kSinceMay},
    All2AllPredicate{"needs_round_robin_routing_tables", "deepep_low_latency", "nixl_ep", kSinceMay},
    All2AllPredicate{"use_deepep_v2_kernels", "deepep_v2", "", kNovember, false},
    All2AllPredicate{"use_moonep_kernels", "moonep", "", kNovember, false},
};

// --- routing_method -------------------------------------------------------------------------------------

// The "2026-04" column of config.md 6.
RoutingMethod april_routing_method(Scoring scoring, std::int64_t top_k, bool renormalize, std::int64_t groups,
                                   bool has_bias) {
  if (has_bias)
    return scoring == Scoring::sigmoid && groups > 0 ? RoutingMethod::deepseek_v3 : RoutingMethod::unspecified;
  if (scoring == Scoring::softmax) return renormalize ? RoutingMethod::renormalize : RoutingMethod::default_;
  return scoring == Scoring::sigmoid && top_k == 1 ? RoutingMethod::llama4 : RoutingMethod::unspecified;
}

// The column "later" of config.md 6.
RoutingMethod november_routing_method(Scoring scoring, bool renormalize, std::int64_t groups, bool has_bias) {
  if (scoring == Scoring::sqrtsoftplus) return renormalize ? RoutingMethod::deepseek_v4 : RoutingMethod::unspecified;
  const bool sigmoid = scoring == Scoring::sigmoid;
  if (has_bias) {
    if (!sigmoid || !renormalize) return RoutingMethod::unspecified;
    return groups > 0 ? RoutingMethod::deepseek_v3 : RoutingMethod::minimax2;
  }
  if (sigmoid) return renormalize ? RoutingMethod::sigmoid_renorm : RoutingMethod::sigmoid;
  if (scoring == Scoring::softmax) return renormalize ? RoutingMethod::renormalize_naive : RoutingMethod::default_;
  return RoutingMethod::unspecified;
}

Result<std::string> routing_numbers(const json::Value& query_value) {
  static constexpr std::array<std::string_view, 1> kMembers = {"names"};
  MOE_TRY(const Members query, Members::open(&query_value, "", kMembers));
  MOE_TRY(const bool names, query.boolean("names", false));
  if (!names) return fields::unexpected("/names", *query.get("names"), "true");
  json::Writer w;
  w.begin_object().key("numbers").begin_object();
  for (const RoutingMethodName& row : routing_method_names()) w.member(row.name, static_cast<std::int32_t>(row.method));
  return w.end_object().end_object().take();
}

// Absent and null: no groups.
Result<std::int64_t> read_groups(const Members& query) {
  const json::Value* v = query.get("num_expert_group");
  if (v == nullptr || v->is_null()) return std::int64_t{0};
  return query.integer("num_expert_group", {0, 65536}, 0);
}

}  // namespace

Result<std::string> describe_parallel_config(const json::Value& query_value) {
  static constexpr std::array<std::string_view, 11> kMembers = {
      "tp_size",         "tp_rank",     "pcp_size", "pcp_rank",
      "dp_size",         "dp_rank",     "sp_size",  "enable_expert_parallel",
      "all2all_backend", "enable_eplb", "profile"};
  MOE_TRY(const Members query, Members::open(&query_value, "", kMembers));
  MOE_TRY(const std::optional<Profile> profile, read_profile(query));
  MOE_TRY(const ParallelConfig p, read_parallel_query(query, profile));
  const bool november = profile == Profile::november_2026;
  const bool all2all = p.use_ep && (p.dp_size > 1 || (november && (p.pcp_size > 1 || p.sp_size > 1)));
  json::Writer w;
  w.begin_object();
  for (const json::Member& m : parallel_members(p)) w.member(m.first, m.second);
  w.member("is_sequence_parallel", p.sp_size > 1).member("use_all2all_kernels", all2all);
  for (const All2AllPredicate& row : kAll2AllPredicates)
    if (profile ? row.of.has(*profile) : row.beside)
      w.member(row.name, all2all && (p.all2all_backend == row.backend || p.all2all_backend == row.or_backend));
  if (november) w.member("use_passthrough_all2all", p.all2all_backend == "passthrough");
  return w.end_object().take();
}

Result<std::string> describe_routing_method(const json::Value& query_value) {
  static constexpr std::array<std::string_view, 6> kMembers = {
      "scoring_func", "top_k", "renormalize", "num_expert_group", "has_e_score_bias", "profile"};
  constexpr std::size_t kMaxWord = 512;
  if (query_value.find("names") != nullptr) return routing_numbers(query_value);
  MOE_TRY(const Members query, Members::open(&query_value, "", kMembers));
  if (!query.has("scoring_func")) return fields::missing("/scoring_func", "a string");
  if (!query.has("top_k")) return fields::missing("/top_k", "an integer in [1, 65536]");
  MOE_TRY(const std::optional<std::string> word, query.text("scoring_func", kMaxWord));
  MOE_TRY(const std::int64_t top_k, query.integer("top_k", {1, 65536}, 1));
  MOE_TRY(const bool renormalize, query.boolean("renormalize", true));
  MOE_TRY(const std::int64_t groups, read_groups(query));
  MOE_TRY(const bool has_bias, query.boolean("has_e_score_bias", false));
  MOE_TRY(const std::optional<Profile> profile, read_profile(query));

  RoutingMethod april = RoutingMethod::unspecified, may = april, november = april, method = april;
  if (const std::optional<std::size_t> i = fields::index_of(kScoringNames, *word)) {
    const auto scoring = static_cast<Scoring>(*i);
    april = april_routing_method(scoring, top_k, renormalize, groups, has_bias);
    may = routing_method(scoring, top_k, renormalize, groups, has_bias);
    november = november_routing_method(scoring, renormalize, groups, has_bias);
    method = named_routing_method(scoring, top_k, renormalize, groups, has_bias);
  }
  if (profile) method = std::array{april, may, november}[usize(*profile)];
  json::Writer w;
  w.begin_object().member("seed", routing_method_name(april)).member("2026-05", routing_method_name(may));
  w.member("2026-11", routing_method_name(november));
  w.member("method", routing_method_name(method)).member("number", static_cast<std::int32_t>(method));
  return w.end_object().take();
}

Result<std::string> describe_activation(const json::Value& query_value) {
  static constexpr std::array<std::string_view, 1> kMembers = {"activation"};
  MOE_TRY(const Members query, Members::open(&query_value, "", kMembers));
  const json::Value* v = query.get("activation");
  if (v == nullptr) return fields::missing("/activation", "one of " + activation_words());
  const std::optional<Activation> a = v->string() == nullptr ? std::nullopt : activation_from_name(*v->string());
  if (!a) return fields::unexpected("/activation", *v, "one of " + activation_words());
  const std::optional<W13Layout> layout = usual_w13_layout(*a);
  const ActivationParams params = activation_params(*a);
  json::Writer w;
  w.begin_object().member("name", activation_name(*a)).member("gated", is_gated(*a));
  w.member("without_mul", activation_name(without_mul(*a))).key("w13_layout");
  if (layout)
    w.value(at(kW13LayoutNames, *layout));
  else
    w.null();
  w.key("params").begin_object().member("alpha", params.default_alpha).member("beta", params.default_beta);
  return w.member("limit", params.default_limit).end_object().end_object().take();
}

}  // namespace moe::vllm
