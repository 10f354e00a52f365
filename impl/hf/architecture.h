// What a model's class says about its experts and is not in config.json: names on disk, which keys the file uses, what
// the class takes for granted, how it routes. One row per class of transformers (architectures.cpp).
//
// `otherwise` is what transformers 5.24.0 computes with when config.json lacks the key: files leave out what their
// class takes for granted. Where vLLM's class differs, the row has its value, too, and bit_compat vllm takes that.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "scheme/checkpoint.h"
#include "scheme/scheme.h"

namespace moe::hf {

using ProjectionNames = std::array<std::string_view, 3>;  // gate, up, down; w13, w2

// The keys that hold one number. They are spellings of one key and must agree. With first_counts they are different
// keys, and the first one that the file has counts.
struct SizeKey {
  std::array<std::string_view, 3> keys{};
  std::optional<std::int64_t> otherwise = {};  // nullopt: a file without them is refused
  bool first_counts = false;
  std::optional<std::int64_t> null = {};  // what null says, where it is no fault
};

// Which layers have experts.
enum class Layers : std::uint8_t {
  all,
  // [l] of a list of words is the row's word; without the list l >= first, l % step == 0, or a list of numbers
  words,
  // l >= first, l % step == 0
  from,
  // not in mlp_only_layers, (l + 1) % step == 0
  qwen,
  // l % period == offset, more than one expert
  jamba,
  // (l + 1) % moe_layer_interval == 0, between two layers
  ernie,
  // in moe_layers, else every interleave_moe_layer_step-th
  llama4,
  // a letter of hybrid_override_pattern or a word of a list
  nemotron,
};
struct LayerKeys {
  Layers rule = Layers::all;
  SizeKey first = {{}, 0};  // of words and from
  std::string_view step = {};
  std::string_view list = "mlp_layer_types", word = "sparse";
  std::string_view numbers = {};  // a list of layers, or a text "3,4,5", where the list of words is not there
  std::string_view count = "num_hidden_layers", count_alias = {};
  std::optional<std::int64_t> layers = {};  // without that key
  bool predicting = false;  // num_nextn_predict_layers more, all with experts, under the names of further layers
  std::string_view predicting_at = {};  // or counted from 0 below this name
  bool enabled_by_enable_moe_block = false;
};

struct BoolKey {
  std::string_view key;  // "": fixed
  bool otherwise = false;
  std::string_view alias = {};  // another spelling that the class reads
};
struct NumberKey {
  std::string_view key;
  std::optional<double> otherwise = {};
  std::string_view alias = {};
  std::optional<double> null = {};
};

// How routed_scaling_factor counts.
enum class Factor : std::uint8_t { none, weights, output };
// When there are groups: always, or with topk_method group_limited_greedy.
enum class GroupKeys : std::uint8_t { none, keys, unless_greedy };

struct Routing {
  std::string_view scoring_key = {};
  bool scoring_fixed = false;  // the class does not read the key: a file that says another word is refused
  Scoring scoring = Scoring::softmax;
  BoolKey renormalize = {"", true};
  std::optional<BoolKey> vllm_renormalize = {};
  double renormalize_eps = 0.0;       // what the class's code adds to the sum before it divides
  double vllm_renormalize_eps = 0.0;  // what vLLM's does
  NumberKey renormalize_min = {};
  BoolKey bias = {"", false};       // a correction bias; the key says true or noaux_tc where there is one
  std::string_view bias_name = {};  // of its tensor, where it is none of those that everybody knows
  GroupKeys groups = GroupKeys::none;
  SizeKey n_group = {.keys = {"n_group"}, .otherwise = 1, .null = 1};
  SizeKey topk_group = {.keys = {"topk_group"}, .otherwise = 1, .null = 1};
  std::string_view group_score = {};  // a word of routing.group_score
  bool masked_zero = false;
  Factor factor = Factor::none;
  NumberKey factor_key = {"routed_scaling_factor", 1.0};
  std::string_view method = {};
  std::optional<std::int64_t> hash_layers = {};  // layers that route by a table of token ids, if the file is silent
  bool on_input = false;
  bool bias_on_logits = false;
  std::string_view expert_scale = {};
  SizeKey zero_experts = {};  // with keys, or a fixed number
  bool zero_experts_give_nothing = false;
  SizeKey shared_logits = {};
  // The key of a p-norm: 1 is the sum, null none.
  std::string_view p_norm = {};
};

struct ActivationKeys {
  std::string_view key = "hidden_act";  // "": fixed
  std::string_view otherwise = "silu";
  NumberKey limit = {};
  std::string_view limits = {};  // a list, one of each layer: swiglustep with it, silu where it is 0, null or left out
  NumberKey alpha = {}, beta = {};
  NumberKey gate_cap = {}, up_cap = {};
  bool ungated = false;
};

struct Architecture {
  std::string_view name;
  std::string_view layers_at = "model.layers", block = "mlp.experts";  // <layers_at>.<number>.<block>
  bool any_text = false;         // its text model may be of any class: what that says of itself counts
  std::string_view holder = {};  // the object of config.json that has the members, if not text_config; a/b: b inside a
  ProjectionNames projections = {"gate_proj", "up_proj", "down_proj"};
  // The forms with all experts in one tensor: how they lie, what they are called, whether the class writes that form.
  StackedWeights stacked = StackedWeights::rows_first;
  ProjectionNames stack = {"gate_up_proj", "down_proj"};
  bool interleaved = false;  // rows of gate and up in such a tensor
  bool stacks = false;
  bool has_bias = false;
  SizeKey experts = {{"num_experts", "num_local_experts", "n_routed_experts"}};  // a fault names the first
  SizeKey top_k = {{"num_experts_per_tok"}};
  SizeKey width = {{"moe_intermediate_size"}};
  std::string_view width_is_dense_beside = {};  // a file with this key has the width under intermediate_size
  SizeKey hidden = {{"hidden_size", "d_model"}};
  LayerKeys where = {};
  ActivationKeys activation = {};
  Routing routing = {};
  std::string_view expert_norm = {};  // the end of a tensor's name
  NumberKey expert_norm_eps = {};
  std::string_view expert_dtype = {};  // the key that says what the experts are where the model's own object says fp8
};

// All that are read, and those that are known and are not: with why.
std::span<const Architecture> architectures();
struct Unread {
  std::string_view name, why;
};
std::span<const Unread> unread_architectures();

}  // namespace moe::hf
