// See float.h.
#include "kernels/ref/float.h"
#include "base/index.h"
#include "kernels/ref/elementwise.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/float_formats.h"
#include "kernels/ref/symmetric.h"

namespace moe::ref {
namespace {

// One weight, times a scale that its block shares.
struct Weight {
  const P16Matrix& m;
  const std::byte* panel;
  std::int64_t lane;

  std::int64_t group(std::int64_t k) const { return m.groups.is_whole() ? 0 : k / m.group(); }

  float value(std::int64_t k) const {
    const std::byte* at = panel + m.code_offset(lane, k);
    if (is_integer(m.element)) return static_cast<float>(code(*at, k) - zero(k));
    if (m.element == Element::f32) {
      float v;
      std::memcpy(&v, at, sizeof v);
      return v;
    }
    std::uint16_t h;
    std::memcpy(&h, at, sizeof h);
    return m.element == Element::bf16 ? bf16_to_f32(h) : f16_to_f32(h);
  }
  int code(std::byte at, std::int64_t k) const {
    const auto byte = static_cast<std::uint8_t>(at);
    return m.element == Element::int8 ? byte : P16Matrix::nibble_high(k) ? byte >> 4 : byte & 15;
  }
  int zero(std::int64_t k) const {
    if (!m.has_zeros) return code_bias(m.element);
    return static_cast<int>(panel[m.zero_offset() + usize(group(k) * kPanelRows + lane)]);
  }
  float bias() const {
    float bias = 0.0f;
    if (m.has_bias) std::memcpy(&bias, panel + m.bias_offset() + 4 * lane, 4);
    return bias;
  }
};

float dot(const Weight& w, const float* tile, int row, int n) {
  float sum = 0.0f;
  for (std::int64_t begin = 0; begin < w.m.k; begin += kBlockK) {
    float block = 0.0f;
    for (std::int64_t k = begin; k < begin + kBlockK; ++k)
      block = std::fma(tile[float_offset(k, row, n)], w.value(k), block);
    if (is_integer(w.m.element))
      sum = std::fma(block, weight_scale(w.m, w.panel, w.lane, w.group(begin)), sum);
    else
      sum = sum + block;
  }
  return sum + w.bias();
}

}  // namespace

void copy_floats(const QuantArgsRow& a) {
  auto* tile = reinterpret_cast<float*>(a.out.tile);
  for (std::int64_t k = 0; k < a.shape.units() * kUnitK; k += 16) {
    float* piece = tile + float_offset(k, a.out.row, a.out.n);
    const std::int64_t count = std::clamp<std::int64_t>(a.shape.k - k, 0, 16);
    std::copy_n(a.x + k, count, piece);
    std::fill(piece + count, piece + 16, 0.0f);
  }
}

void gemm_float(const GemmArgs& a) {
  const P16Matrix& m = *a.matrix;
  const auto* tile = reinterpret_cast<const float*>(a.tile);
  for (std::int64_t p = 0; p < a.panel_count; ++p) {
    const std::byte* panel = a.panels + usize(p) * m.panel_bytes();
    for (int row = 0; row < a.n; ++row)
      for (std::int64_t lane = 0; lane < kPanelRows; ++lane)
        a.out[row * a.ld + p * kPanelRows + lane] = dot({m, panel, lane}, tile, row, a.n);
  }
}

}  // namespace moe::ref

namespace moe {

constinit const Kernel kernel_rows::w4a16_f32_p16_scalar =
    kernel_row("w4a16_f32_p16_scalar", ref::kSteps, ref::copy_floats, ref::gemm_float);
constinit const Kernel kernel_rows::w8a16_f32_p16_scalar =
    kernel_row("w8a16_f32_p16_scalar", ref::kSteps, ref::copy_floats, ref::gemm_float);
constinit const Kernel kernel_rows::bf16_f32_p16_scalar =
    kernel_row("bf16_f32_p16_scalar", ref::kSteps, ref::copy_floats, ref::gemm_float);
constinit const Kernel kernel_rows::f16_f32_p16_scalar =
    kernel_row("f16_f32_p16_scalar", ref::kSteps, ref::copy_floats, ref::gemm_float);
constinit const Kernel kernel_rows::f32_f32_p16_scalar =
    kernel_row("f32_f32_p16_scalar", ref::kSteps, ref::copy_floats, ref::gemm_float);

}  // namespace moe
