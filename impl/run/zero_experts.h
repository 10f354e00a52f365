// Zero ("identity") experts of LongCat-Flash (routing.md 7): ids from num_experts on. They have no weights; their
// part of a token's output is the token itself times the sum of their weights.
#pragma once

#include "base/parallel.h"
#include "base/tensor.h"

namespace moe {

// sums[t] = sum of the weights of token t's slots whose id is first_zero or more, in slot order; 0 without one.
void sum_zero_weights(const TensorView& ids, const TensorView& weights, std::int64_t first_zero, float* sums,
                      const Parallel& parallel);

}  // namespace moe
