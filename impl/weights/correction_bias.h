// The correction bias that a checkpoint holds beside its router (checkpoints.md 2, routing.md 13).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "io/safetensors.h"

namespace moe::weights {

// The prefix, with its dot, under which a module's router is: "model.layers.0.mlp." of "model.layers.0.mlp.experts".
std::string router_prefix(std::string_view module);
// The names that models use for it under the router's prefix; is this one of them?
std::vector<std::string> correction_bias_names(std::string_view prefix);
bool is_correction_bias(std::string_view name, std::string_view prefix);
// Its values in float32: shape [C] or [1, C], C = columns of the router logits.
Result<std::vector<float>> read_correction_bias(const CheckpointEntry& from, const Config& config);

}  // namespace moe::weights
