// gelu(x) in float32, both forms, with the same bits on every machine: base/exp.h, multiply, add, divide.
//
//   gelu       x * Phi(x) = max(x, 0) - |x| * Q(|x|),  Q(z) = erfc(z / sqrt 2) / 2 = exp(-z^2 / 2) * R(t),
//              t = 1 / (1 + 0.3 z), R of degree 8 without constant term, least squares in relative error (1.5e-7)
//   gelu_tanh  x * (1 + tanh(v)) / 2 = x / (1 + exp(-2v)),  v = sqrt(2 / pi) * (x + 0.044715 x^3)
//
// From z = 16 on Q is 0, so Inf stays Inf; NaN stays NaN. Error: below 1e-6 absolute (tests/base/gelu_test.cpp).
#pragma once

#include <cmath>

#include "base/exp.h"

namespace moe {

namespace gelu_constants {
constexpr float kFar = 16.0f;
constexpr float kT = 0.3f;
// R = t * (kR[0] + t * (kR[1] + ...))
constexpr float kR[] = {0.11962929425475609f, 0.12075402700529733f, 0.09991304348704722f, 0.12856312792341176f,
                        -0.0536865261149545f, 0.2063566909432847f,  -0.1572049653678112f, 0.03567523507720306f};
constexpr int kDegree = 8;
constexpr float kCube = 0.044715f;
constexpr float kTwoSqrt2OverPi = 1.5957691216057308f;
}  // namespace gelu_constants

inline float gelu_f32(float x) {
  namespace c = gelu_constants;
  const float size = std::fabs(x);
  const float z = c::kFar < size ? c::kFar : size;
  const float t = 1.0f / (1.0f + c::kT * z);
  float r = c::kR[c::kDegree - 1];
  for (int i = c::kDegree - 2; i >= 0; --i) r = r * t + c::kR[i];
  const float q = (r * t) * exp_f32(-((0.5f * z) * z));
  const float positive = 0.0f > x ? 0.0f : x;
  return positive - z * q;
}

inline float gelu_tanh_f32(float x) {
  namespace c = gelu_constants;
  const float v = c::kTwoSqrt2OverPi * (x + c::kCube * ((x * x) * x));
  return x / (1.0f + exp_f32(-v));
}

// c * tanh(x / c), by tanh(v) = (1 - e) / (1 + e) with e = exp(-2 |v|). Near 0 that difference has few digits, and four
// steps of the continued fraction of tanh have all of them.
inline float soft_cap_f32(float x, float c) {
  const float v = x / c, q = v * v;
  if (std::abs(v) < 0.5f) return x * ((105.0f + 10.0f * q) / (105.0f + q * (45.0f + q)));
  const float e = exp_f32(-2.0f * std::abs(v));
  return std::copysign(c * ((1.0f - e) / (1.0f + e)), x);
}

}  // namespace moe
