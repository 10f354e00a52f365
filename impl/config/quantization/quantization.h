// Quantization of a layer as values: the named schemes, the on-disk format that follows from the
// arguments, and the rules that tie groups to sizes. Shared by the strict form (quantization.cpp)
// and the checkpoints' own objects (hf.cpp).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "config/config.h"
#include "scheme/scheme.h"

namespace moe::config {

constexpr bool is_grouped(Strategy s) { return s == Strategy::group || s == Strategy::tensor_group; }

struct Preset {
  std::string_view name;
  std::optional<QuantArgs> weights, input_activations;
  Format format = Format::none;
};

// Names of config.md 12 in its order; find_preset compares without case, nullptr when unknown.
std::span<const Preset> presets();
const Preset* find_preset(std::string_view name);

// The container that follows from the arguments when no format is given (config.md 12).
Format infer_format(const std::optional<QuantArgs>& weights, const std::optional<QuantArgs>& input_activations);

// Fills zero_point_convention and is_transposed from weights and format; given values win.
void fill_storage(Quantization& q, std::optional<ZeroPoints> zero_points, std::optional<bool> transposed);

// Whether two answers about a layer's experts are one scheme; nullopt: not quantized.
bool same_scheme(const std::optional<HfQuantization>& a, const std::optional<HfQuantization>& b);

// As the canonical document writes it, nulls included.
json::Value quantization_value(const Quantization& q);

// Groups and blocks must divide hidden_dim and intermediate_size_per_partition. The pointers are the
// members to blame for a group and for a block.
Check check_sizes(const Quantization& q, const Config& config, const std::string& group_pointer,
                  const std::string& block_pointer);

}  // namespace moe::config
