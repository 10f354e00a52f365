// Facts about the activation functions by name (config.md 10): spelling, parameters and their defaults, the order of
// gate and up rows, the function without its product. What they compute is in kernels/.
//
// The facts here are those that config checks and that conversion needs. The formulas stand in
// numerics.md 3 and kernels/ref/elementwise.cpp, so a new activation is a row in both places.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "scheme/scheme.h"

namespace moe {

// transformers' word for the same function; it is read and never written.
constexpr std::string_view kActivationAlias = "gelu_pytorch_tanh", kAliasedActivation = "gelu_tanh";
// Exact names, and the alias.
std::optional<Activation> activation_from_name(std::string_view name);
std::string_view activation_name(Activation a);
// For messages: the list comes from the names and cannot go stale.
std::string activation_words();  // every name and alias, "silu, gelu, ..."

// A config that sets a parameter which its activation does not use is refused (config.md): ignoring
// it would hide a mistake.
struct ActivationParams {
  bool alpha_beta, limit;  // used at all
  // double, as JSON has them; they become float32 where a kernel takes them. silu has a limit only
  // when the config sets one, so it has no default.
  std::optional<double> default_alpha, default_beta, default_limit;
  bool caps = false;  // gate_cap and up_cap; without a default an absent one caps nothing
  std::optional<double> default_gate_cap = std::nullopt, default_up_cap = std::nullopt;
};
ActivationParams activation_params(Activation a);

// The default order of stacked rows; nullopt without a gate.
// swigluoai is GPT-OSS's function, and its checkpoints interleave gate and up. The same function
// over halves has a name of its own (swigluoai_uninterleave).
std::optional<W13Layout> usual_w13_layout(Activation a);
// The function of one input; names that have none are their own answer.
Activation without_mul(Activation a);

}  // namespace moe
