// The identity part of a batch. See zero_experts.h; the engine adds it.
#include "run/engine/zero_experts.h"

#include "run/route/plan.h"

namespace moe::run {

Check sum_zero_weights(const TensorView& ids, const TensorView& weights, ZeroIds zero, float* sums,
                       const Parallel& parallel) {
  const std::int64_t tokens = ids.shape[0], width = ids.shape[1];
  return parallel.parts(tokens, slot_parts(tokens * width), [&](std::int64_t, std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      sums[t] = 0.0f;
      for (std::int64_t j = 0; j < width; ++j)
        if (const std::int64_t id = id_at(ids, t, j); id >= zero.begin && id < zero.end)
          sums[t] += weight_at(weights, t, j);
    }
  });
}

}  // namespace moe::run
