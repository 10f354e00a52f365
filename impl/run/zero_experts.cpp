// The identity part of a batch. See zero_experts.h; the engine adds it.
#include "run/zero_experts.h"

#include "run/plan.h"

namespace moe {

void sum_zero_weights(const TensorView& ids, const TensorView& weights, std::int64_t first_zero, float* sums) {
  for (std::int64_t t = 0; t < ids.shape[0]; ++t) {
    sums[t] = 0.0f;
    for (std::int64_t j = 0; j < ids.shape[1]; ++j)
      if (id_at(ids, t, j) >= first_zero) sums[t] += weight_at(weights, t, j);
  }
}

}  // namespace moe
