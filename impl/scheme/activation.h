// Facts about the activation functions by name (config.md 10): spelling, parameters and their defaults, the order of
// gate and up rows, the function without its product. What they compute is in kernels/.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "scheme/scheme.h"

namespace moe {

constexpr std::string_view kActivationAlias = "gelu_pytorch_tanh", kAliasedActivation = "gelu_tanh";
// Exact names, and the alias.
std::optional<Activation> activation_from_name(std::string_view name);
std::string_view activation_name(Activation a);
std::string activation_words();  // every name and alias, "silu, gelu, ..."

struct ActivationParams {
  bool alpha_beta, limit;  // used at all
  std::optional<double> default_alpha, default_beta, default_limit;
  bool caps = false;  // gate_cap and up_cap
};
constexpr double kDefaultGateCap = 4.0, kDefaultUpCap = 25.0;
ActivationParams activation_params(Activation a);

// The default order of stacked rows; nullopt without a gate.
std::optional<W13Layout> usual_w13_layout(Activation a);
// The function of one input; names that have none are their own answer.
Activation without_mul(Activation a);

}  // namespace moe
