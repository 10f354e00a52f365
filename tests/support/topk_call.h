// moe_apply of some tokens whose experts and weights are given.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/capi.h"

namespace moe::test {

struct TopkTokens {
  moe_dtype dtype;  // of x and of the result
  std::int64_t count, H, K;
  const std::byte* x;       // [count, H]
  const std::int32_t* ids;  // [count, K]
  const float* weights;     // [count, K]
};

std::vector<std::byte> apply_topk(const moe_layer* layer, const TopkTokens& t);

}  // namespace moe::test
