// Zero ("identity") experts of LongCat-Flash (routing.md 7): ids from num_experts on. They have no weights; their
// part of a token's output is the token itself times the sum of their weights.
#pragma once

#include "base/parallel.h"
#include "base/tensor.h"

namespace moe::run {

struct ZeroIds {
  std::int64_t begin, end;
};

// sums[t] = sum of the weights of token t's slots whose id is a zero expert's, in slot order; 0 without one.
Check sum_zero_weights(const TensorView& ids, const TensorView& weights, ZeroIds zero, float* sums,
                       const Parallel& parallel);

}  // namespace moe::run
