// Router logits -> expert ids and weights (routing.md 1, decisions 7.4).
#pragma once

#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "base/parallel.h"
#include "base/result.h"
#include "config/config.h"

namespace moe {

struct RouteArgs {
  std::int64_t num_tokens = 0;
  DType logits_dtype = DType::f32;
  const std::byte* logits = nullptr;  // [T, num_experts]
  std::int64_t row_stride = 0;        // elements between rows
  std::int32_t* ids = nullptr;        // [T, top_k], dense
  float* weights = nullptr;           // [T, top_k], dense
};

// What routing of this config needs that is not built: Code::unsupported with the pointer ("/routing/method").
Check check_route_supported(const Config& config);
// All arguments checked before. Allocates nothing for num_experts <= 65536 beyond its stack frame.
void route(const Config& config, const RouteArgs& args, const Parallel& parallel) noexcept;

}  // namespace moe
