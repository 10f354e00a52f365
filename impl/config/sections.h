// The sections of a configuration document, read one after another in the order of config.md 13: the
// first fault in that order is the one reported. Each fills its part of the draft.
#pragma once

#include <array>
#include <string_view>

#include "config/config.h"
#include "config/fields.h"

namespace moe {

// Words of the document in the order of their enums.
constexpr std::array<std::string_view, 2> kPolicyNames = {"libmoe", "vllm"};
constexpr std::array<std::string_view, 3> kComputeNames = {"auto", "a16", "a8"};
constexpr std::array<std::string_view, 3> kActivationQuantNames = {"auto", "per_token", "block32"};
constexpr std::array<std::string_view, 3> kMarlinInputNames = {"none", "int8", "fp8"};
constexpr std::array<std::string_view, 2> kEmulationNames = {"on_the_fly", "dense"};
constexpr std::array<std::string_view, 2> kPlacementNames = {"linear", "round_robin"};
constexpr std::array<std::string_view, 10> kAll2AllNames = {"naive",
                                                            "pplx",
                                                            "allgather_reducescatter",
                                                            "deepep_high_throughput",
                                                            "deepep_low_latency",
                                                            "flashinfer_all2allv",
                                                            "flashinfer_nvlink_two_sided",
                                                            "flashinfer_nvlink_one_sided",
                                                            "mori",
                                                            "nixl_ep"};

// What several sections need besides the values themselves.
struct Draft {
  Config config;
  std::string_view top_k_name, width_name;  // the names that the document uses
  std::int64_t width = 0;                   // as written under width_name
};

Check read_parallel(const json::Value& document, Draft& draft);
Check read_routing(const json::Value& document, Draft& draft);
// quantization or hf_quantization_config.
Check read_quantization(const json::Value& document, Draft& draft);
// Arguments of weights or of input_activations in the strict form.
enum class Operand : std::uint8_t { weights, activations };
Result<QuantArgs> read_quant_args(const json::Value& object, std::string pointer, Operand operand);
// The member group_size: null is absent, 0 is refused.
Result<std::optional<std::int64_t>> read_group_size(const fields::Members& members);
// Gives every setting of a checked document its first name (no setting comes under two).
void rename_aliases(json::Value& document);
// The canonical document (config.md 16); `document` for what is echoed as given.
json::Value resolved_document(const Config& config, const json::Value& document);

struct ParallelSizes {
  std::int64_t tp_size = 1, pcp_size = 1, dp_size = 1, sp_size = 1;
  std::int64_t tp_rank = 0, pcp_rank = 0, dp_rank = 0;
  bool enable_expert_parallel = false;
};
// The members of each group of ranks.
struct ParallelGroup {
  std::string_view size_name, rank_name;
  std::int64_t ParallelSizes::*size;
  std::int64_t ParallelSizes::*rank;
};
inline constexpr std::array<ParallelGroup, 3> kParallelGroups = {
    {{"tp_size", "tp_rank", &ParallelSizes::tp_size, &ParallelSizes::tp_rank},
     {"pcp_size", "pcp_rank", &ParallelSizes::pcp_size, &ParallelSizes::pcp_rank},
     {"dp_size", "dp_rank", &ParallelSizes::dp_size, &ParallelSizes::dp_rank}}};
// Sizes and ranks flattened (config.md 7); ranks of groups of one are taken as 0.
ParallelConfig make_parallel(const ParallelSizes& sizes);
// What every answer about them has.
json::Object parallel_members(const ParallelConfig& p);

// The "2026-05" column of config.md 6. groups: 0 = none.
RoutingMethod routing_method(Scoring scoring, std::int64_t top_k, bool renormalize, std::int64_t groups, bool has_bias);
// The same with libmoe's own name where that column has none: "Sigmoid".
RoutingMethod named_routing_method(Scoring scoring, std::int64_t top_k, bool renormalize, std::int64_t groups,
                                   bool has_bias);

}  // namespace moe
