// The RMS norm of an expert's result (EngineSetup::expert_norm). The same bits on every machine: no lanes, one order.
#include <cmath>

#include "run/engine/engine_run.h"

namespace moe::run {

// y (1 + w), then divided by the root of its mean square, as MuseSpark does it.
void EngineRun::norm_slot(std::int32_t slot) const {
  if (cancelled()) return;
  float* y = w.results + slot * w.out_ld;
  double sum = 0;
  for (std::int64_t i = 0; i < s.hidden; ++i) {
    y[i] = y[i] * (1.0f + s.expert_norm[usize(i)]);
    sum += static_cast<double>(y[i]) * static_cast<double>(y[i]);
  }
  const auto mean = static_cast<float>(sum / static_cast<double>(s.hidden));
  const float scale = 1.0f / std::sqrt(mean + s.expert_norm_eps);
  for (std::int64_t i = 0; i < s.hidden; ++i) y[i] = y[i] * scale;
}

}  // namespace moe::run
