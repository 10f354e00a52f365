// Names of routing methods (config.md 6). See scheme.h.
#include "scheme/scheme.h"

namespace moe {
namespace {

struct MethodName {
  RoutingMethod method;
  const char* name;
};

constexpr std::array kMethods = {
    MethodName{RoutingMethod::default_, "Default"},
    MethodName{RoutingMethod::renormalize, "Renormalize"},
    MethodName{RoutingMethod::deepseek_v3, "DeepSeekV3"},
    MethodName{RoutingMethod::llama4, "Llama4"},
    MethodName{RoutingMethod::renormalize_naive, "RenormalizeNaive"},
    MethodName{RoutingMethod::topk, "TopK"},
    MethodName{RoutingMethod::custom, "Custom"},
    MethodName{RoutingMethod::simulated, "Simulated"},
    MethodName{RoutingMethod::unspecified, "Unspecified"},
    MethodName{RoutingMethod::sigmoid_renorm, "SigmoidRenorm"},
    MethodName{RoutingMethod::minimax2, "MiniMax2"},
    MethodName{RoutingMethod::sigmoid, "Sigmoid"},
    MethodName{RoutingMethod::deepseek_v4, "DeepseekV4"},
    MethodName{RoutingMethod::sparse_mixer, "SparseMixer"},
};

}  // namespace

const char* routing_method_name(RoutingMethod m) {
  for (const MethodName& row : kMethods)
    if (row.method == m) return row.name;
  return "Unspecified";
}

std::optional<RoutingMethod> routing_method_from_name(std::string_view name) {
  for (const MethodName& row : kMethods)
    if (name == row.name) return row.method;
  return std::nullopt;
}

}  // namespace moe
