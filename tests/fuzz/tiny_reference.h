// What a silu layer of tiny.h gives, in float64: compared with one token's output. A result may be away by 1/32 of what
// the sum would be if every activation were 1 with the sign of its weight, which is more than rounding to 8 bits makes.
#pragma once

#include "fuzz/tiny.h"
#include "support/rooms.h"

namespace moe::fuzz {

struct TokenArrays {
  const void* x;  // [T, H]
  const std::int32_t* ids;
  const float* gates;
  const void* out;
};

inline void check_token(const TinyLayer& l, const TokenArrays& c, std::int64_t t) {
  std::vector<double> want(static_cast<std::size_t>(l.H), 0.0), room(want.size(), 1e-6);
  for (std::int64_t j = 0; j < l.top_k; ++j) {
    const std::int64_t e = c.ids[t * l.top_k + j];
    const double gate = static_cast<double>(c.gates[t * l.top_k + j]);
    if (e < 0) continue;
    const auto row = [&](std::int64_t r, double& size) {
      double sum = l.bias ? static_cast<double>(l.w13.bias[static_cast<std::size_t>(e * l.w13.n + r)]) : 0.0;
      size = std::fabs(sum);
      for (std::int64_t k = 0; k < l.H; ++k) {
        const auto w = static_cast<double>(l.w13.value(e, r, k));
        sum += w * static_cast<double>(number(l.dtype, c.x, static_cast<std::size_t>(t * l.H + k)));
        size += std::fabs(w);
      }
      return sum;
    };
    std::vector<double> act, sizes;
    for (std::int64_t i = 0; i < l.I; ++i) {
      double gate_size = 0, up_size = 0;
      const double g = row(i, gate_size), u = row(l.I + i, up_size);
      act.push_back(g / (1 + std::exp(-g)) * u);
      sizes.push_back(gate_size * up_size);
    }
    for (std::int64_t h = 0; h < l.H; ++h) {
      const double b = l.bias ? static_cast<double>(l.w2.bias[static_cast<std::size_t>(e * l.H + h)]) : 0.0;
      double sum = b, size = std::fabs(b);
      for (std::int64_t i = 0; i < l.I; ++i) {
        const auto w = static_cast<double>(l.w2.value(e, h, i)), a = act[static_cast<std::size_t>(i)];
        sum += w * a;
        size += std::fabs(w) * sizes[static_cast<std::size_t>(i)];
      }
      want[static_cast<std::size_t>(h)] += gate * sum;
      room[static_cast<std::size_t>(h)] += gate * size / 32;
    }
  }
  for (std::size_t h = 0; h < want.size(); ++h) {
    const auto got = static_cast<double>(number(l.dtype, c.out, static_cast<std::size_t>(t * l.H) + h));
    MOE_REQUIRE(std::fabs(got - want[h]) <= room[h] || std::fabs(want[h]) > 3e4);
  }
}

}  // namespace moe::fuzz
