// See wna16.h.
#include "kernels/ref/wna16.h"

#include <cmath>
#include <cstring>

#include "kernels/ref/symmetric.h"

namespace moe::ref {
namespace {

float weight_value(const P16Matrix& m, const std::byte* panel, std::int64_t lane, std::int64_t k, std::int64_t g) {
  const auto byte = static_cast<std::uint8_t>(panel[m.code_offset(lane, k)]);
  const int code = m.element == Element::int8 ? byte : P16Matrix::nibble_high(k) ? byte >> 4 : byte & 15;
  const int zero = m.has_zeros
                       ? static_cast<int>(panel[m.zero_offset() + static_cast<std::size_t>(g * kPanelRows + lane)])
                       : code_bias(m.element);
  return static_cast<float>(code - zero);
}

float dot(const P16Matrix& m, const std::byte* panel, std::int64_t lane, const float* x) {
  const std::int64_t run = run_length(m), end = m.group == m.k ? m.units() * kUnitK : m.k;
  float sum = 0.0f;
  for (std::int64_t k0 = 0; k0 < end; k0 += run) {
    const std::int64_t g = m.group == m.k ? 0 : k0 / m.group;
    float even = 0.0f, odd = 0.0f;
    for (std::int64_t k = k0; k < k0 + run; k += 2) {
      even = std::fma(x[k], weight_value(m, panel, lane, k, g), even);
      odd = std::fma(x[k + 1], weight_value(m, panel, lane, k + 1, g), odd);
    }
    sum = std::fma(even + odd, weight_scale(m, panel, lane, g), sum);
  }
  return sum;
}

}  // namespace

void gemm_wna16(const GemmArgs& a) {
  const P16Matrix& m = *a.matrix;
  const auto* rows = reinterpret_cast<const float*>(a.tile);
  for (std::int64_t p = 0; p < a.panel_count; ++p) {
    const std::byte* panel = a.panels + static_cast<std::size_t>(p) * m.panel_bytes();
    for (int row = 0; row < a.n; ++row)
      for (std::int64_t lane = 0; lane < kPanelRows; ++lane) {
        float bias = 0.0f;
        if (m.has_bias) std::memcpy(&bias, panel + m.bias_offset() + 4 * lane, 4);
        a.out[row * a.ld + p * kPanelRows + lane] = dot(m, panel, lane, rows + row * a.shape.padded()) + bias;
      }
  }
}

}  // namespace moe::ref
