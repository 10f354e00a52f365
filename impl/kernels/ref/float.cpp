// Scalar definition of float weights: per unit of 64 k one fma chain over the even and one over the odd k, in
// ascending order; their sum is added to the result; the bias comes last. Padding takes part (0 * 0).
#include "kernels/ref/float.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/float_formats.h"

namespace moe::ref {
namespace {

float element(const P16Matrix& m, const std::byte* panel, std::int64_t lane, std::int64_t k) {
  const std::byte* at = panel + m.code_offset(lane, k);
  if (m.element == Element::f32) {
    float v;
    std::memcpy(&v, at, sizeof v);
    return v;
  }
  std::uint16_t h;
  std::memcpy(&h, at, sizeof h);
  return m.element == Element::bf16 ? bf16_to_f32(h) : f16_to_f32(h);
}

float dot(const P16Matrix& m, const std::byte* panel, std::int64_t lane, const float* x) {
  float sum = 0.0f;
  for (std::int64_t u = 0; u < m.units() * kUnitK; u += kUnitK) {
    float even = 0.0f, odd = 0.0f;
    for (std::int64_t k = u; k < u + kUnitK; k += 2) {
      even = std::fma(x[k], element(m, panel, lane, k), even);
      odd = std::fma(x[k + 1], element(m, panel, lane, k + 1), odd);
    }
    sum = sum + (even + odd);
  }
  return sum;
}

}  // namespace

void copy_floats(const QuantArgsRow& a) {
  float* row = float_row(a.shape, a.out);
  std::copy_n(a.x, a.shape.k, row);
  std::fill(row + a.shape.k, row + a.shape.padded(), 0.0f);
}

void gemm_float(const GemmArgs& a) {
  const P16Matrix& m = *a.matrix;
  const auto* rows = reinterpret_cast<const float*>(a.tile);
  for (std::int64_t p = 0; p < a.panel_count; ++p) {
    const std::byte* panel = a.panels + static_cast<std::size_t>(p) * m.panel_bytes();
    for (int row = 0; row < a.n; ++row) {
      for (std::int64_t lane = 0; lane < kPanelRows; ++lane) {
        float bias = 0.0f;
        if (m.has_bias) std::memcpy(&bias, panel + m.bias_offset() + 4 * lane, 4);
        a.out[row * a.ld + p * kPanelRows + lane] = dot(m, panel, lane, rows + row * a.shape.padded()) + bias;
      }
    }
  }
}

}  // namespace moe::ref
