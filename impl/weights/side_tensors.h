// Vectors of a checkpoint that belong to the layer but to no expert: the router's correction bias, a scale for each
// expert's routing weight, the norm of the experts' output (checkpoints.md 2, routing.md 13).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "io/safetensors.h"

namespace moe::weights {

enum class Side : std::uint8_t { correction_bias, expert_scale, expert_norm };

// The prefix, with its dot, under which a module's router is: "model.layers.0.mlp." of "model.layers.0.mlp.experts".
std::string router_prefix(std::string_view module);
// Where a layer's router may be; `layer`: the layer's prefix, "model.layers.0.", "": unknown.
struct RouterPlace {
  std::string router, layer;
  friend auto operator<=>(const RouterPlace&, const RouterPlace&) = default;
};
// What a name is below a router's prefix and in its layer (a prefix, "": none), for this config or by the names that
// models use.
std::optional<Side> side_of(const Config& config, std::string_view name, std::string_view router,
                            std::string_view layer);
// Whether the config has a use for it. false: it is no loss; an error: it would be left out silently.
Result<bool> is_wanted(const Config& config, Side side, const std::string& name);
// unexpected_weight for a vector with a value for each expert that is none of these and not of the router's matrix: it
// would change what is chosen, or by how much it counts.
Check check_known_vector(const Config& config, const SafetensorsEntry& entry, const RouterPlace& place);
// Its values in float32: [n] or [1, n], finite.
Result<std::vector<float>> read_side(const CheckpointEntry& from, const Config& config, Side side);

}  // namespace moe::weights
