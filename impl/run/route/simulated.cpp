// Simulated routing, for measurements without a router (routing.md 2). The draw of slot s = t*k + j is
// splitmix64(seed + s), so a call repeats and a slot does not depend on the others.
//
//   uniform_random   id uniform in [0, E), repeats allowed; weight 1
//   normal_routing   two normal variates by Box-Muller in float64: the first chooses the expert through a
//                    sigmoid, the magnitude of the second is the weight, normalised over the token
#include <algorithm>
#include <cmath>
#include <numbers>

#include "run/route/rules.h"

namespace moe::run {
namespace {

constexpr std::uint64_t splitmix64(std::uint64_t z) {
  z += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// 32 random bits as a number inside (0, 1).
double unit(std::uint64_t bits) { return (static_cast<double>(bits & 0xffffffffu) + 0.5) * 0x1p-32; }

}  // namespace

void simulate(const Router& r, std::size_t token, const Slots& out) {
  const bool uniform = r.rule == RouteRule::uniform_random;
  for (std::size_t j = 0; j < r.k; ++j) {
    const std::uint64_t n = splitmix64(r.seed + token * r.k + j);
    if (uniform) {
      out.ids[j] = static_cast<std::int32_t>(((n >> 32) * r.experts) >> 32);
      out.weights[j] = 1.0f;
      continue;
    }
    const double radius = std::sqrt(-2.0 * std::log(unit(n >> 32))), angle = 2.0 * std::numbers::pi * unit(n);
    const double z0 = radius * std::cos(angle), z1 = radius * std::sin(angle);
    const double place = std::floor(1.0 / (1.0 + std::exp(-z0)) * static_cast<double>(r.experts));
    out.ids[j] = static_cast<std::int32_t>(std::min(place, static_cast<double>(r.experts - 1)));
    out.weights[j] = static_cast<float>(std::fabs(z1));
  }
  if (!uniform) renormalize(out.weights, r.k);
}

}  // namespace moe::run
