// Scalar widening and rounding, the activations of config.md 10 (with the roundings of w4a8_int8.md 8.3 where
// a family asks for them), the routed sum (numerics.md 2).
//
// Every float operation is one statement of one rounding; exp is base/exp.h, gelu base/gelu.h.
#include "kernels/ref/elementwise.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "base/exp.h"
#include "base/float_formats.h"
#include "base/gelu.h"
#include "base/load.h"

namespace moe::kernels::ref {
namespace {

// The activation of one gate (or of an ungated value), one rounding.
float unary(Activation f, float v) {
  switch (f) {
    case Activation::gelu:
    case Activation::gelu_no_mul:
      return gelu_f32(v);
    case Activation::gelu_tanh:
    case Activation::gelu_tanh_no_mul:
      return gelu_tanh_f32(v);
    case Activation::relu2:
    case Activation::relu2_no_mul: {
      const float positive = max_or_b(0.0f, v);
      return positive * positive;
    }
    default:
      return v / (1.0f + exp_f32(-v));
  }
}

// round: what every operation is rounded to.
template <class Round>
float gated(const ActivateArgs& a, float g, float u, Round round) {
  const auto clamp_both = [&](float x) { return min_or_b(a.limit, max_or_b(-a.limit, x)); };
  if (a.activation == Activation::swigluoai || a.activation == Activation::swigluoai_uninterleave) {
    g = min_or_b(a.limit, g);
    u = clamp_both(u);
    const float t = round(g * a.alpha);
    const float s = round(1.0f / (1.0f + exp_f32(-t)));
    const float glu = round(g * s);
    return round(round(u + a.beta) * glu);
  }
  if (a.activation == Activation::swiglu_softcap || a.activation == Activation::situ) {
    const auto capped = [&](float x, float cap) { return cap == 0.0f ? x : round(soft_cap_f32(x, cap)); };
    return round(round(capped(g, a.alpha) / (1.0f + exp_f32(-g))) * capped(u, a.beta));
  }
  if (a.activation == Activation::swiglustep && a.clamp)
    return round(min_or_b(a.limit, round(unary(a.activation, g))) * clamp_both(u));
  if (a.activation == Activation::silu && a.clamp) {
    g = min_or_b(a.limit, g);
    u = clamp_both(u);
  }
  return round(round(unary(a.activation, g)) * u);
}

}  // namespace

float round_to(DType dtype, float x) {
  if (dtype == DType::bf16) return bf16_to_f32(f32_to_bf16(x));
  if (dtype == DType::f16) return f16_to_f32(f32_to_f16(x));
  return x;
}

void widen(DType dtype, const std::byte* src, std::int64_t count, float* dst) {
  for (std::int64_t i = 0; i < count; ++i)
    dst[i] = dtype == DType::f32    ? load<float>(src, i)
             : dtype == DType::bf16 ? bf16_to_f32(load<std::uint16_t>(src, i))
                                    : f16_to_f32(load<std::uint16_t>(src, i));
}

void narrow(DType dtype, const float* src, std::int64_t count, std::byte* dst) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float x = std::isnan(src[i]) ? std::bit_cast<float>(0x7fc00000u) : src[i];
    if (dtype == DType::f32) {
      std::memcpy(dst + 4 * i, &x, 4);
    } else {
      const std::uint16_t h = dtype == DType::bf16 ? f32_to_bf16(x) : f32_to_f16(x);
      std::memcpy(dst + 2 * i, &h, 2);
    }
  }
}

void activate(const ActivateArgs& a) {
  const bool steps = a.rounding == Rounding::stepwise, two = is_gated(a.activation);
  const auto round = [&](float x) { return steps ? round_to(a.dtype, x) : x; };
  for (int row = 0; row < a.rows; ++row) {
    for (std::int64_t i = 0; i < a.blocks * kPanelRows; ++i) {
      const std::int64_t block = i / kPanelRows * (two ? 2 : 1) * kPanelRows + i % kPanelRows;
      const float* y13 = a.y13 + row * a.ld + block;
      const float y = two ? gated(a, round(y13[0]), round(y13[kPanelRows]), round) : unary(a.activation, round(y13[0]));
      a.out[row * a.out_ld + i] = round_to(a.dtype, y);
    }
  }
}

void combine(const CombineArgs& a) {
  for (int row = 0; row < a.rows; ++row) {
    float* acc = a.acc + a.tokens[row] * a.acc_ld;
    const float* y = a.y + row * a.ld;
    const float w = a.weights == nullptr ? 1.0f : a.weights[row];
    for (std::int64_t i = 0; i < a.count; ++i)
      acc[i] = a.rounded ? round_to(a.dtype, acc[i] + round_to(a.dtype, round_to(a.dtype, y[i]) * w))
                         : std::fma(w, y[i], acc[i]);
  }
}

}  // namespace moe::kernels::ref
