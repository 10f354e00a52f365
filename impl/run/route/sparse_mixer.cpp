// SparseMixer of Phi-3.5-MoE (routing.md 6): two experts, chosen one after the other. Each weight is the
// softmax of the expert among those whose logit is not further below it than 2 * eps of the larger magnitude;
// the second choice no longer sees the first. In float32, sums in ascending order of experts, on every ISA.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/exp.h"
#include "base/index.h"
#include "run/route/rules.h"

namespace moe::run {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// The first largest logit besides `taken` (-1: none).
std::int32_t largest(const float* row, std::size_t n, std::int32_t taken) {
  std::int32_t best = taken == 0 ? 1 : 0;
  for (auto i = usize(best) + 1; i < n; ++i)
    if (static_cast<std::int32_t>(i) != taken && row[i] > row[best]) best = static_cast<std::int32_t>(i);
  return best;
}

float weight_of(const float* row, std::size_t n, std::int32_t chosen, std::int32_t taken, float eps) {
  const float top = row[chosen];
  if (top == -kInf) return 0.0f;
  float sum = 0.0f;
  for (std::size_t i = 0; i < n; ++i) {
    if (static_cast<std::int32_t>(i) == taken) continue;
    const float scale = std::max(std::fabs(row[i]), top);
    const bool dropped = (top - row[i]) / scale > 2.0f * eps;  // 0 / 0 at a top of 0: kept
    if (!dropped) sum += exp_f32(row[i] - top);
  }
  return 1.0f / sum;
}

}  // namespace

void sparse_mixer(const Router& r, const float* row, const Slots& out) {
  std::int32_t taken = -1;
  for (std::size_t j = 0; j < 2; ++j) {
    out.ids[j] = largest(row, r.columns, taken);
    out.weights[j] = weight_of(row, r.columns, out.ids[j], taken, r.jitter_eps);
    taken = out.ids[j];
  }
}

}  // namespace moe::run
