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

class Reference {
 public:
  explicit Reference(const TinyLayer& l) : l_(l), w13_(l.w13.values()), w2_(l.w2.values()) {}

  void check_token(const TokenArrays& c, std::int64_t t) const;

 private:
  struct Row {
    double sum, size;
  };
  // Row `r` of expert `e` times x; without its bias.
  static Row row(const Matrix& m, const std::vector<float>& values, std::int64_t e, std::int64_t r, const double* x) {
    const float* w = values.data() + (e * m.n + r) * m.k;
    Row out{};
    for (std::int64_t k = 0; k < m.k; ++k) {
      out.sum += static_cast<double>(w[k]) * x[k];
      out.size += std::fabs(static_cast<double>(w[k]));
    }
    return out;
  }
  double bias(const Matrix& m, std::int64_t e, std::int64_t r) const {
    return l_.bias ? static_cast<double>(m.bias[static_cast<std::size_t>(e * m.n + r)]) : 0.0;
  }

  const TinyLayer& l_;
  std::vector<float> w13_, w2_;
};

inline void Reference::check_token(const TokenArrays& c, std::int64_t t) const {
  const auto H = static_cast<std::size_t>(l_.H), I = static_cast<std::size_t>(l_.I);
  std::vector<double> x(H), want(H, 0.0), room(H, 1e-6), act(I), sizes(I);
  for (std::size_t k = 0; k < H; ++k)
    x[k] = static_cast<double>(number(l_.dtype, c.x, static_cast<std::size_t>(t) * H + k));
  for (std::int64_t j = 0; j < l_.top_k; ++j) {
    const std::int64_t e = c.ids[t * l_.top_k + j];
    const double weight = static_cast<double>(c.gates[t * l_.top_k + j]);
    if (e < 0) continue;
    for (std::size_t i = 0; i < I; ++i) {
      const auto r = static_cast<std::int64_t>(i);
      const double gate_bias = bias(l_.w13, e, r), up_bias = bias(l_.w13, e, l_.I + r);
      const Row gate = row(l_.w13, w13_, e, r, x.data()), up = row(l_.w13, w13_, e, l_.I + r, x.data());
      const double g = gate.sum + gate_bias;
      act[i] = g / (1 + std::exp(-g)) * (up.sum + up_bias);
      sizes[i] = (gate.size + std::fabs(gate_bias)) * (up.size + std::fabs(up_bias));
    }
    for (std::size_t h = 0; h < H; ++h) {
      const double b = bias(l_.w2, e, static_cast<std::int64_t>(h));
      const float* w = w2_.data() + (static_cast<std::size_t>(e) * H + h) * I;
      double sum = b, size = std::fabs(b);
      for (std::size_t i = 0; i < I; ++i) {
        sum += static_cast<double>(w[i]) * act[i];
        size += std::fabs(static_cast<double>(w[i])) * sizes[i];
      }
      want[h] += weight * sum;
      room[h] += weight * size / 32;
    }
  }
  for (std::size_t h = 0; h < H; ++h) {
    const auto got = static_cast<double>(number(l_.dtype, c.out, static_cast<std::size_t>(t) * H + h));
    MOE_REQUIRE(std::fabs(got - want[h]) <= room[h] || std::fabs(want[h]) > 3e4);
  }
}

}  // namespace moe::fuzz
