// The checked description of one MoE layer: what moe_config_create accepts, resolved.
//
// Plain values. `input` is the document as given with aliases renamed to their first name (merge
// patches it), `resolved` the canonical document (getters point into it, `canonical` is its text).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/platform.h"
#include "base/result.h"
#include "scheme/checkpoint.h"
#include "scheme/float_acts.h"
#include "scheme/groups.h"
#include "scheme/scheme.h"

namespace moe::config {

#define MOE_LIST(...) __VA_ARGS__
#define MOE_FIELD_LIST(Name, ...) constexpr auto k##Name##Names = std::to_array<std::string_view>({__VA_ARGS__});
#define MOE_FIELD_ENUM(Name, values, ...)    \
  enum class Name : std::uint8_t { values }; \
  MOE_FIELD_LIST(Name, __VA_ARGS__)
#define MOE_FIELDS_WORDS
#include "config/fields.inc"
#undef MOE_LIST

// The structs below have a member for each plain row of fields.inc, and those written out, which other code fills.

// A vector that the config holds, or whose tensor in the layer it names (by the end of its name).
struct SideTensor {
  std::string name;
  std::vector<float> values;

  bool wanted() const { return !name.empty() || !values.empty(); }
};

// FusedMoEParallelConfig: as the document gives it, and after make_parallel with flattened sizes (config.md 7).
struct ParallelConfig {
#define MOE_FIELDS_PARALLEL
#include "config/field_members.inc"
  std::int64_t sp_size = 1;
  std::string all2all_backend = "allgather_reducescatter";
  std::vector<std::int64_t> local_experts;  // empty: by expert_placement_strategy
  std::int64_t ep_size = 1, ep_rank = 0;    // flattened only
  bool use_ep = false;                      // flattened only
};

struct RoutingConfig {
#define MOE_FIELDS_ROUTING
#include "config/field_members.inc"
  RoutingMethod method = RoutingMethod::renormalize;
  Scoring scoring = Scoring::softmax;
  bool has_bias = false;
  std::vector<float> bias;  // inline values; empty when a tensor brings them
  SideTensor expert_scale;  // one value for each expert, or for all
  std::optional<std::string> simulation_strategy;
  std::optional<std::int64_t> seed;

  // A group's score is the sum of its two largest keys, else the largest.
  bool sums_two_of_group() const {
    return group_score == GroupScoring::two_largest || (group_score == GroupScoring::automatic && has_bias);
  }
  // Else the weights hold the factor: those that routing gives and those that a caller hands over.
  bool scales_output() const { return apply_routed_scale_to_output && !topk_weights_hold_factor.value_or(false); }
};

struct Config {
#define MOE_FIELDS_LAYER
#include "config/field_members.inc"
#define MOE_FIELDS_ACTIVATION_PARAMS  // effective: defaults filled in
#include "config/field_members.inc"
  std::vector<std::string> projection_names = {"gate_proj", "up_proj", "down_proj"};
  std::vector<std::string> stacked_names = {"gate_up_proj", "down_proj"};
  std::vector<std::string> ignored_tensors;
  SideTensor expert_norm;  // [H]
  // Class of the config.json from which `name` was guessed; files may use another prefix. Empty if the caller gave the
  // name.
  std::string named_by_class;
  // Another name that files may have for this layer, where `name` is such a guess: of multi-token prediction that has
  // its own numbers, the number behind those of all layers.
  std::string other_name;
  // Pointers of members, and of the keys of a config.json or of its options that say them: for messages.
  std::vector<std::pair<std::string, std::string>> file_keys;
  // What a config.json leaves open and was assumed, for the faults of its tensors: a sentence, "" where nothing was.
  std::string assumed;
  // intermediate_size is the whole width, as checkpoints have it: intermediate_size_per_partition * tp_size.
  std::int64_t intermediate_size_per_partition = 0;
  Activation activation = Activation::silu;
  std::optional<W13Layout> w13_layout;  // nullopt when not gated
  DType in_dtype = DType::bf16, out_dtype = DType::bf16, router_logits_dtype = DType::bf16;
  std::string moe_backend = "auto";  // normalised
  ParallelConfig parallel;
  std::int64_t num_physical_experts = 0, num_local_experts = 0;
  RoutingConfig routing;
  Quantization quantization;
  // The platform member as given: type and arch may be automatic; features empty optional = detect.
  DeviceType platform_type = DeviceType::automatic;
  Arch platform_arch = Arch::automatic;
  std::optional<FeatureSet> platform_features;
  Platform platform_facts;  // capability, gfx, cuda_version, libs, ... as given
  std::vector<std::pair<std::string, std::string>> vllm_env;

  json::Value input, resolved;
  std::string canonical;

  // "routing.x of the config", and by which key a config.json says so.
  std::string member_text(std::string_view pointer) const;
  // For the message when a rank's width is no multiple of a group, block or word of `lines` rows or columns. It says
  // what cuts the width and what to do. "" without tensor parallelism.
  std::string cut_hint(std::int64_t lines) const;

  // Columns of a correction bias: zero experts come after the real ones. Those of router logits: shared ones, too.
  std::int64_t router_columns() const { return num_experts + routing.num_zero_experts; }
  std::int64_t logit_columns() const { return router_columns() + routing.num_shared_logits; }
  // Ids and weights of a token: the chosen experts, then the fused shared ones.
  std::int64_t slots_per_token() const { return top_k + routing.num_fused_shared_experts; }
  // Experts with weights, and those that this rank holds; fused shared ones come last.
  std::int64_t num_weight_experts() const { return num_physical_experts + routing.num_fused_shared_experts; }
  std::int64_t num_held_experts() const { return num_local_experts + routing.num_fused_shared_experts; }

  // Columns that share a scale: a group, or a block's.
  Groups weight_groups() const {
    if (!quantization.weights) return Groups::whole();
    const QuantArgs& w = *quantization.weights;
    if (w.block_structure) return Groups::even((*w.block_structure)[1]);
    return w.group_size && *w.group_size > 0 ? Groups::even(*w.group_size) : Groups::whole();
  }
  // What compute makes of activations with float weights (quantization/float_acts.cpp): 8-bit floats, and how; 4-bit
  // ones; with scales of the checkpoint's, which conversion then keeps.
  std::optional<FloatActs> float8_acts() const;
  bool takes_float4_acts() const;
  bool takes_input_scales() const;
  // vLLM scales the activations of a whole batch by its largest value; here a token's bits depend on no other one.
  bool scales_whole_batches() const;
  // How checkpoints hold the numbers of a projection. (Layers without quantization have no use for bits.)
  MatrixSize stored_numbers() const {
    MatrixSize m{.groups = weight_groups()};
    if (!quantization.weights) return m;
    m.num_bits = stored_bits(quantization.format, quantization.weights->num_bits);
    if (quantization.weights->block_structure) m.block = *quantization.weights->block_structure;
    return m;
  }
};

// --- parse.cpp: text -> Config (config.md 12, 13) ------------------------------------------------
Result<Config> parse_config(std::string_view text);
Result<Config> config_from_document(json::Value document);
// The document behind `config` with an RFC 7396 patch applied, checked again.
Result<Config> merge_config(const Config& config, std::string_view patch_text);
// draft 2020-12 schema of the document, static.
const char* config_schema_text();

// --- placement.cpp: which experts a rank holds (routing.md 9) --------------------------------------
// Global ids in local order.
std::vector<std::int64_t> experts_of_rank(std::int64_t num_experts, std::int64_t ep_size, std::int64_t ep_rank,
                                          Placement placement);
std::vector<std::int64_t> local_experts(const Config& config);
// The strategy in force: the one asked for, but under policy vllm its fall-backs to linear.
Placement effective_placement(const Config& config);

// Redundant experts (EPLB, routing.md 8) in their initial placement: physical expert p is a copy of logical
// expert p mod L. Checkpoints, routers and callers' ids are logical, places of experts physical.
struct ExpertCopies {
  std::int64_t logical = 0, physical = 0;
  std::int64_t logical_of(std::int64_t expert) const { return expert % logical; }
  std::int64_t count(std::int64_t id) const { return (physical - id + logical - 1) / logical; }
  // The copy that a slot of row `row` of a call takes: neighbouring rows take different ones.
  std::int64_t copy_for_row(std::int64_t row, std::int64_t id) const {
    if (physical == logical) return id;
    const std::uint32_t hash = static_cast<std::uint32_t>(row) * 2654435769u;
    return id + static_cast<std::int64_t>(hash % static_cast<std::uint64_t>(count(id))) * logical;
  }
};
inline ExpertCopies expert_copies(const Config& config) {
  return {config.num_weight_experts() - config.parallel.num_redundant_experts, config.num_weight_experts()};
}

// --- platform.cpp: the one platform schema ----------------------------------------------------------
enum class PlatformUse : std::uint8_t { config, standalone, query };  // query: capability and gfx may be left out
struct PlatformMember {
  DeviceType type = DeviceType::automatic;
  Arch arch = Arch::automatic;
  std::optional<FeatureSet> features;
  Platform facts;  // everything else
};
// `base`: the pointer prefix ("/platform", "" for a document of its own).
Result<PlatformMember> parse_platform(const json::Value& object, std::string_view base, PlatformUse use);
// moe_platform_create: text of a described machine, also what moe_platform_to_json wrote.
Result<Platform> platform_from_text(std::string_view text);
std::string platform_to_json(const Platform& platform);
// The platform a selection is made for when no handle is given: the config's member, else detection.
Result<Platform> effective_platform(const Config& config);

// --- quantization/: checkpoints' own quantization objects (checkpoints.md 3) ---------------------
// What the experts of an fp8 file are: 8-bit floats, or 4-bit ones (MXFP4). nullopt: another word.
constexpr std::string_view kExpertDtype = "expert_dtype";
constexpr const char* kExpertDtypes = "fp4 or fp8";
std::optional<DType> expert_dtype(std::string_view word);
// hf_quantization_config -> Quantization, nullopt for a layer that is not quantized.
// Pointers begin with "/hf_quantization_config". Experts that it treats unlike the others are refused by name.
struct HfQuantization {
  Quantization quantization;
  std::vector<std::string> suffixes;
};
Result<std::optional<HfQuantization>> resolve_hf_quantization(const json::Value& object, std::string_view module,
                                                              const std::vector<std::string>& projections,
                                                              std::int64_t experts);

// --- quantization/regex.cpp: patterns of "re:" targets, linear time
// ---------------------------------------------------- Match anchored at the start, as Python's re.match.
// Code::unsupported for constructs outside the subset.
Result<bool> re_match(std::string_view pattern, std::string_view text);

}  // namespace moe::config
