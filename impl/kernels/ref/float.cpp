// See float.h.
#include "kernels/ref/float.h"
#include "kernels/ref/elementwise.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/index.h"
#include "layouts/p16/p16_numbers.h"

namespace moe::kernels::ref {
namespace {

// Whole blocks: behind the last column the tile is 0.
float dot(const P16& m, const std::byte* panel, std::int64_t lane, const float* tile, int row, int n) {
  float sum = 0.0f;
  const std::int64_t columns = m.groups.is_even() ? std::gcd(m.group(), kBlockK) : kBlockK;
  for (std::int64_t begin = 0; begin < round_up(m.k, kBlockK); begin += columns) {
    float block = 0.0f;
    for (std::int64_t k = begin; k < begin + columns; ++k)
      block = std::fma(tile[float_offset(k, row, n)], value_in(m, panel, lane, k), block);
    sum = is_value(m.element) ? sum + block : std::fma(block, scale_in(m, panel, lane, begin / m.group()), sum);
  }
  if (m.has_tensor_scale()) sum = sum * load<float>(panel + m.tensor_scale_offset() + 4 * lane);
  return sum + (m.has_bias ? load<float>(panel + m.bias_offset() + 4 * lane) : 0.0f);
}

}  // namespace

void copy_floats(const QuantizeArgs& a) {
  auto* tile = reinterpret_cast<float*>(a.out.tile);
  for (std::int64_t k = 0; k < a.shape.units() * kUnitK; k += 16) {
    float* piece = tile + float_offset(k, a.out.row, a.out.n);
    const std::int64_t count = std::clamp<std::int64_t>(a.shape.k - k, 0, 16);
    std::copy_n(a.x + k, count, piece);
    std::fill(piece + count, piece + 16, 0.0f);
  }
}

void gemm_float(const GemmArgs& a) {
  const P16& m = *a.matrix;
  const auto* tile = reinterpret_cast<const float*>(a.tile);
  for (std::int64_t p = 0; p < a.panel_count; ++p) {
    const std::byte* panel = a.panels + usize(p) * m.panel_bytes();
    for (int row = 0; row < a.n; ++row)
      for (std::int64_t lane = 0; lane < kPanelRows; ++lane)
        a.out[row * a.ld + p * kPanelRows + lane] = dot(m, panel, lane, tile, row, a.n);
  }
}

}  // namespace moe::kernels::ref

namespace moe::kernels {

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
constinit const Kernel kernel_rows::fp8_f32_p16_scalar =
    kernel_row("fp8_f32_p16_scalar", ref::kSteps, ref::copy_floats, ref::gemm_float);
constinit const Kernel kernel_rows::mxfp8_f32_p16_scalar =
    kernel_row("mxfp8_f32_p16_scalar", ref::kSteps, ref::copy_floats, ref::gemm_float);
constinit const Kernel kernel_rows::mxfp4_f32_p16_scalar =
    kernel_row("mxfp4_f32_p16_scalar", ref::kSteps, ref::copy_floats, ref::gemm_float);
constinit const Kernel kernel_rows::nvfp4_f32_p16_scalar =
    kernel_row("nvfp4_f32_p16_scalar", ref::kSteps, ref::copy_floats, ref::gemm_float);

}  // namespace moe::kernels
