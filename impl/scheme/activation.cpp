// See activation.h.
#include "scheme/activation.h"

#include <algorithm>

#include "base/index.h"
#include "base/text.h"

namespace moe {
std::optional<Activation> activation_from_name(std::string_view name) {
  const auto it =
      std::find(kActivationNames.begin(), kActivationNames.end(), name == kActivationAlias ? kAliasedActivation : name);
  if (it == kActivationNames.end()) return std::nullopt;
  return static_cast<Activation>(it - kActivationNames.begin());
}

std::string_view activation_name(Activation a) { return at(kActivationNames, a); }

std::string activation_words() {
  std::string s;
  for (const std::string_view name : kActivationNames) {
    s += cat(s.empty() ? "" : ", ", name);
    if (name == kAliasedActivation) s.append(", ").append(kActivationAlias);
  }
  return s;
}

ActivationParams activation_params(Activation a) {
  switch (a) {
    case Activation::swigluoai:
    case Activation::swigluoai_uninterleave:
      return {true, true, 1.702, 1.0, 7.0};
    case Activation::swiglustep:
      return {false, true, std::nullopt, std::nullopt, 7.0};
    case Activation::swiglu_softcap:
      return {false, false, std::nullopt, std::nullopt, std::nullopt, true, 4.0, 25.0};
    case Activation::situ:
      return {false, false, std::nullopt, std::nullopt, std::nullopt, true};
    case Activation::silu:
      return {false, true, std::nullopt, std::nullopt, std::nullopt};
    default:
      return {false, false, std::nullopt, std::nullopt, std::nullopt};
  }
}

std::optional<W13Layout> usual_w13_layout(Activation a) {
  if (!is_gated(a)) return std::nullopt;
  return a == Activation::swigluoai ? W13Layout::interleaved : W13Layout::gate_up;
}

Activation without_mul(Activation a) {
  switch (a) {
    case Activation::silu:
      return Activation::silu_no_mul;
    case Activation::gelu:
      return Activation::gelu_no_mul;
    case Activation::gelu_tanh:
      return Activation::gelu_tanh_no_mul;
    case Activation::relu2:
      return Activation::relu2_no_mul;
    default:
      return a;
  }
}

}  // namespace moe
