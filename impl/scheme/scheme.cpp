// Names of routing methods (config.md 6). See scheme.h.
#include "scheme/scheme.h"

namespace moe {
namespace {

constexpr std::array kMethods = {
    RoutingMethodName{RoutingMethod::default_, "Default"},
    RoutingMethodName{RoutingMethod::renormalize, "Renormalize"},
    RoutingMethodName{RoutingMethod::deepseek_v3, "DeepSeekV3"},
    RoutingMethodName{RoutingMethod::llama4, "Llama4"},
    RoutingMethodName{RoutingMethod::renormalize_naive, "RenormalizeNaive"},
    RoutingMethodName{RoutingMethod::topk, "TopK"},
    RoutingMethodName{RoutingMethod::custom, "Custom"},
    RoutingMethodName{RoutingMethod::simulated, "Simulated"},
    RoutingMethodName{RoutingMethod::unspecified, "Unspecified"},
    RoutingMethodName{RoutingMethod::sigmoid_renorm, "SigmoidRenorm"},
    RoutingMethodName{RoutingMethod::minimax2, "MiniMax2"},
    RoutingMethodName{RoutingMethod::sigmoid, "Sigmoid"},
    RoutingMethodName{RoutingMethod::deepseek_v4, "DeepseekV4"},
    RoutingMethodName{RoutingMethod::sparse_mixer, "SparseMixer"},
};

}  // namespace

std::span<const RoutingMethodName> routing_method_names() { return kMethods; }

const char* routing_method_name(RoutingMethod m) {
  for (const RoutingMethodName& row : kMethods)
    if (row.method == m) return row.name;
  return "Unspecified";
}

std::optional<RoutingMethod> routing_method_from_name(std::string_view name) {
  for (const RoutingMethodName& row : kMethods)
    if (name == row.name) return row.method;
  return std::nullopt;
}

}  // namespace moe
