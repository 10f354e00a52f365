// The sections of a configuration document, read one after another in the order of config.md 13: the
// first fault in that order is the one reported. Each fills its part of the draft.
#pragma once

#include <array>
#include <initializer_list>
#include <string_view>

#include "base/index.h"
#include "config/config.h"
#include "config/fields.h"

namespace moe::config {

// A configuration while it is read, and what several sections need besides the values themselves.
struct Draft {
  Config config;
  std::string_view top_k_name, width_name;  // the names that the document uses
  std::int64_t width = 0;                   // as written under width_name
  RoutingChoice routing_choice = RoutingChoice::automatic;
  bool grouped = false;
  const json::Value* platform = nullptr;  // as given, for the lists that the answer echoes
};

// Rows of the layer that are sections: how they are read, and their part of the resolved document.
Check read_parallel(const fields::Members& members, Draft& draft);
Check read_routing(const fields::Members& members, Draft& draft);
// quantization or hf_quantization_config, then compute and the types of activations against it.
Check read_quantization(const fields::Members& members, Draft& draft);
Check read_platform(const fields::Members& members, Draft& draft);
// Whether the section has such a member.
bool is_parallel_member(std::string_view name);
bool is_routing_member(std::string_view name);
void write_parallel(const Draft& draft, json::Object& out);
void write_routing(const Draft& draft, json::Object& out);
void write_quantization(const Draft& draft, json::Object& out);
void write_platform(const Draft& draft, json::Object& out);

// The end of a tensor's name, or values: `counts` of them.
Check read_side_tensor(const fields::Members& members, std::string_view key, std::initializer_list<std::int64_t> counts,
                       SideTensor& out);
void write_side_tensor(std::string_view key, const SideTensor& t, json::Object& out);
// A finite float32.
Result<float> read_float(const json::Value& value, const std::string& pointer);

// Arguments of weights or of input_activations in the strict form.
enum class Operand : std::uint8_t { weights, activations };
Result<QuantArgs> read_quant_args(const json::Value& object, std::string pointer, Operand operand);
json::Value quant_args_value(const std::optional<QuantArgs>& args);
// The member group_size: null is absent, 0 is refused.
Result<std::optional<std::int64_t>> read_group_size(const fields::Members& members);
// A document of at most 1 MiB, or, with a checkpoint's own object, of as much as that may have.
Result<json::Value> parse_document(std::string_view text);
// Gives every setting of a checked document its first name (no setting comes under two).
void rename_aliases(json::Value& document);

template <class E, std::size_t n>
json::Value word_value(const std::array<std::string_view, n>& names, E e) {
  return json::Value(at(names, e));
}
template <class T>
json::Value or_null(const std::optional<T>& v) {
  return v ? json::Value(*v) : json::Value();
}

// The members of each group of ranks.
struct ParallelGroup {
  std::string_view size_name, rank_name;
  std::int64_t ParallelConfig::*size;
  std::int64_t ParallelConfig::*rank;
};
inline constexpr std::array<ParallelGroup, 3> kParallelGroups = {
    {{"tp_size", "tp_rank", &ParallelConfig::tp_size, &ParallelConfig::tp_rank},
     {"pcp_size", "pcp_rank", &ParallelConfig::pcp_size, &ParallelConfig::pcp_rank},
     {"dp_size", "dp_rank", &ParallelConfig::dp_size, &ParallelConfig::dp_rank}}};
// Sizes and ranks of a document flattened (config.md 7); ranks of groups of one are taken as 0.
ParallelConfig make_parallel(const ParallelConfig& given);
// What every answer about them has.
json::Object parallel_members(const ParallelConfig& p);

// The "2026-05" column of config.md 6. groups: 0 = none.
RoutingMethod routing_method(Scoring scoring, std::int64_t top_k, bool renormalize, std::int64_t groups, bool has_bias);
// The same with libmoe's own name where that column has none: "Sigmoid".
RoutingMethod named_routing_method(Scoring scoring, std::int64_t top_k, bool renormalize, std::int64_t groups,
                                   bool has_bias);

}  // namespace moe::config
