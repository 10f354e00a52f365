// The sizes of a layer, and those of real models that are measured.
#pragma once

#include <cstdint>

#include "support/rooms.h"

namespace moe::bench {

struct Workload {
  const char* name;
  std::int64_t experts, top_k, hidden, intermediate;
};

inline constexpr Workload kQwen3 = {"qwen3-30b-a3b", 128, 8, 2048, 768};
inline constexpr Workload kGptOss = {"gpt-oss-20b", 32, 4, 2880, 2880};
inline constexpr Workload kMixtral = {"mixtral-8x7b", 8, 2, 4096, 14336};
inline constexpr Workload kDeepseek = {"deepseek-v3-64", 64, 8, 7168, 2048};  // 64 of its 256 experts

}  // namespace moe::bench
