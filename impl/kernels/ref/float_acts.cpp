// See float_acts.h.
#include "kernels/ref/float_acts.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/float_formats.h"
#include "base/index.h"
#include "kernels/ref/elementwise.h"
#include "kernels/ref/float.h"

namespace moe::kernels::ref {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kLargest8 = 448.0f, kLeastScale = 1.0f / (448.0f * 512.0f), kLeastAbsmax = 1e-10f;

// The exponent of a positive number's power of two as e8m0 has it, the number rounded up.
unsigned e8m0_above(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const unsigned exponent = bits >> 23, mantissa = bits & 0x7fffffu;
  const bool rest = exponent == 0 ? mantissa > 0x400000u : mantissa != 0;
  return std::min(exponent + (rest ? 1u : 0u), 254u);
}

// 2^(127 - code), which is a normal number up to 253: no amax of float32 gives more.
float inverse_of_e8m0(unsigned code) { return power_of_two(127 - static_cast<int>(code)); }

}  // namespace

Float8Scale float8_scale(const FloatActs& acts, float absmax, float given) {
  if (!std::isfinite(absmax)) return {kNaN, kNaN};
  switch (acts.scale) {
    case FloatScale::tensor:
      return {given, 1.0f / given};
    case FloatScale::token:
      return {std::max(absmax / kLargest8, kLeastScale), 0.0f};
    case FloatScale::mx: {
      const unsigned code = e8m0_above(absmax * (1.0f / kLargest8));
      return {e8m0_to_f32(code), inverse_of_e8m0(code)};
    }
    case FloatScale::group:
      break;
  }
  const float scale = std::max(absmax, kLeastAbsmax) / kLargest8;
  return {acts.ue8m0 ? e8m0_to_f32(e8m0_above(std::max(scale, kLeastAbsmax))) : scale, 0.0f};
}

float float8_value(float x, const Float8Scale& s) {
  if (std::isnan(s.scale)) return s.scale;
  const float v = s.inverse == 0.0f ? x / s.scale : x * s.inverse;
  return small_to_f32(kE4m3, f32_to_small(kE4m3, v)) + 0.0f;  // -0 becomes 0
}

SymmetricScale mxfp4_scale(float absmax) {
  if (!std::isfinite(absmax)) return {kNaN, 0.0f};
  // Half of an element's last digit is added: from 1.75 times a power of two on it is the next one.
  const std::uint32_t exponent = (std::bit_cast<std::uint32_t>(absmax) + 0x200000u) >> 23;
  const unsigned code = exponent > 2 ? exponent - 2 : 0;
  return {e8m0_to_f32(code) * 0.5f, inverse_of_e8m0(code)};
}

SymmetricScale nvfp4_scale(float absmax, float given) {
  if (!std::isfinite(absmax)) return {kNaN, 0.0f};
  const float up = 1.0f / given, down = 1.0f / up;
  const float s = small_to_f32(kE4m3, f32_to_small(kE4m3, up * (absmax * (1.0f / 6.0f))));
  const float scale = s * down, inverse = 1.0f / scale;
  return std::isfinite(inverse) ? SymmetricScale{scale * 0.5f, inverse} : SymmetricScale{0.0f, 0.0f};
}

std::int32_t e2m1_code(float x, float inverse) {
  if (inverse == 0.0f) return 0;
  return static_cast<std::int32_t>(2.0f * small_to_f32(kE2m1, f32_to_small(kE2m1, x * inverse)));
}

void quantize_float8(const QuantizeArgs& a) {
  const std::int64_t columns = a.shape.scaled_columns();
  auto* tile = reinterpret_cast<float*>(a.out.tile);
  for (std::int64_t k0 = 0; k0 < a.shape.k; k0 += columns) {
    const std::int64_t k1 = std::min(k0 + columns, a.shape.k);
    const Float8Scale scale = float8_scale(a.shape.floats, absmax(a.x + k0, k1 - k0), a.input_scale);
    for (std::int64_t k = k0; k < k1; ++k)
      tile[float_offset(k, a.out.row, a.out.n)] = float8_value(a.x[k], scale) * scale.scale;
  }
  for (std::int64_t k = a.shape.k; k < a.shape.units() * kUnitK; ++k) tile[float_offset(k, a.out.row, a.out.n)] = 0.0f;
}

void quantize_mxfp4(const QuantizeArgs& a) {
  quantize_blocks_with(
      a, [](float largest, const QuantizeArgs&) { return mxfp4_scale(largest); }, e2m1_code);
}
void quantize_nvfp4(const QuantizeArgs& a) {
  quantize_blocks_with(
      a, [](float largest, const QuantizeArgs& args) { return nvfp4_scale(largest, args.input_scale); }, e2m1_code);
}

}  // namespace moe::kernels::ref

namespace moe::kernels {

constinit const Kernel kernel_rows::fp8_e4m3_p16_scalar =
    kernel_row("fp8_e4m3_p16_scalar", ref::kSteps, ref::quantize_float8, ref::gemm_float);
constinit const Kernel kernel_rows::mxfp8_e4m3_p16_scalar =
    kernel_row("mxfp8_e4m3_p16_scalar", ref::kSteps, ref::quantize_float8, ref::gemm_float);
constinit const Kernel kernel_rows::mxfp4_e4m3_p16_scalar =
    kernel_row("mxfp4_e4m3_p16_scalar", ref::kSteps, ref::quantize_float8, ref::gemm_float);
constinit const Kernel kernel_rows::mxfp4_e2m1_p16_scalar =
    kernel_row("mxfp4_e2m1_p16_scalar", ref::kSteps, ref::quantize_mxfp4, ref::gemm_blocks);
constinit const Kernel kernel_rows::nvfp4_e2m1_p16_scalar =
    kernel_row("nvfp4_e2m1_p16_scalar", ref::kSteps, ref::quantize_nvfp4, ref::gemm_blocks);

}  // namespace moe::kernels
