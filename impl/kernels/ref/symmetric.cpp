// See symmetric.h.
#include "kernels/ref/symmetric.h"
#include "kernels/ref/elementwise.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/index.h"
#include "layouts/p16/p16_numbers.h"

namespace moe::kernels::ref {
namespace {

// Codes of columns [k0, k1) and -bias times their sum, which may wrap: so do the sums that it corrects.
std::int32_t quantize_columns(const QuantizeArgs& a, const BlockRow& out, std::int64_t k0, std::int64_t k1,
                              float inverse, CodeOf code_of) {
  std::uint32_t sum = 0;
  for (std::int64_t k = k0; k < k1; ++k) {
    const std::int32_t q = code_of(a.x[k], inverse);
    std::int8_t* at = out.codes + k / kUnitK * out.code_stride + k % kUnitK;
    if (a.shape.planes() == 2) {
      const Digits digits = digits_of(q);
      at[0] = digits.high, at[kUnitK] = digits.low;
    } else {
      *at = static_cast<std::int8_t>(q);
    }
    sum += static_cast<std::uint32_t>(q);
  }
  return static_cast<std::int32_t>(0u - sum * static_cast<std::uint32_t>(a.shape.bias));
}

void clear_codes(const TileShape& s, const BlockRow& out) {
  for (std::int64_t u = 0; u < s.units(); ++u) std::memset(out.codes + u * out.code_stride, 0, s.piece());
}

// The integer that a weight's code stands for.
int weight_of(const P16& m, unsigned code, int zero) {
  if (m.element == Element::e2m1) return static_cast<int>(2.0f * small_value<Element::e2m1>(code));
  return static_cast<int>(code) - zero;
}

// Sum of value * activation code over k in [k0, k1), all of one group.
std::int32_t dot(const GemmArgs& a, const std::byte* panel, std::int64_t lane, int row, std::int64_t k0,
                 std::int64_t k1) {
  const int zero = zero_in(*a.matrix, panel, lane, k0 / a.matrix->group());
  std::int32_t sum = 0;
  for (std::int64_t k = k0; k < k1; ++k) {
    const auto* at = reinterpret_cast<const std::int8_t*>(a.tile) +
                     (k / kUnitK * a.n + row) * a.shape.planes() * kUnitK + k % kUnitK;
    const int q = a.shape.planes() == 2 ? 255 * at[0] + at[kUnitK] : at[0];
    sum += weight_of(*a.matrix, code_in(*a.matrix, panel, lane, k), zero) * q;
  }
  return sum;
}

float row_result(const GemmArgs& a, const std::byte* panel, std::int64_t lane, int row) {
  const P16& m = *a.matrix;
  const QuantRow r = quant_row(a.shape, {const_cast<std::byte*>(a.tile), a.n, row});
  float sum = 0.0f;
  for (std::int64_t g = 0; g < m.group_count(); ++g)
    sum = std::fma(static_cast<float>(dot(a, panel, lane, row, g * m.group(), (g + 1) * m.group())),
                   scale_in(m, panel, lane, g), sum);
  return sum * *r.recip;
}

float blocks_result(const GemmArgs& a, const std::byte* panel, std::int64_t lane, int row) {
  const P16& m = *a.matrix;
  const BlockRow r = block_row(a.shape, {const_cast<std::byte*>(a.tile), a.n, row});
  float sum = 0.0f;
  const std::int64_t columns = a.shape.summed_columns(), block = a.shape.scaled_columns();
  for (std::int64_t i = 0; i < a.shape.sum_count(); ++i) {  // the last one may be padding
    const std::int64_t k0 = i * columns, k1 = std::min(k0 + columns, m.k);
    const float scale = scale_in(m, panel, lane, k0 / m.group()) * r.scale[k0 / block * r.stride];
    sum = std::fma(static_cast<float>(dot(a, panel, lane, row, k0, k1)), scale, sum);
  }
  if (m.element != Element::e2m1) return sum;
  return m.has_tensor_scale() ? sum * 0.5f * load<float>(panel + m.tensor_scale_offset() + 4 * lane) : sum * 0.5f;
}

template <float (*Result)(const GemmArgs&, const std::byte*, std::int64_t, int)>
void gemm_with(const GemmArgs& a) {
  const P16& m = *a.matrix;
  for (std::int64_t p = 0; p < a.panel_count; ++p) {
    const std::byte* panel = a.panels + usize(p) * m.panel_bytes();
    for (std::int64_t lane = 0; lane < kPanelRows; ++lane)
      for (int row = 0; row < a.n; ++row) {
        const float bias = m.has_bias ? load<float>(panel + m.bias_offset() + 4 * lane) : 0.0f;
        a.out[row * a.ld + p * kPanelRows + lane] = Result(a, panel, lane, row) + bias;
      }
  }
}

}  // namespace

float absmax(const float* x, std::int64_t count) {
  float largest = 0.0f;
  for (std::int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(x[i])) return std::bit_cast<float>(0x7fc00000u);
    largest = std::fabs(x[i]) > largest ? std::fabs(x[i]) : largest;
  }
  return largest;
}

SymmetricScale symmetric_scale(float absmax) {
  if (!std::isfinite(absmax)) return {std::bit_cast<float>(0x7fc00000u), 0.0f};
  if (absmax < 0x1p-100f) return {0.0f, 0.0f};
  return {absmax / 127.0f, 127.0f / absmax};
}

SymmetricScale symmetric_scale16(float absmax) {
  constexpr float kLargest = 127 * 255 + 127;
  if (!std::isfinite(absmax)) return {std::bit_cast<float>(0x7fc00000u), 0.0f};
  if (absmax < 0x1p-100f) return {0.0f, 0.0f};
  float scale = std::bit_cast<float>((std::bit_cast<std::uint32_t>(absmax) & 0x7f800000u) - (14u << 23));
  if (absmax > kLargest * scale) scale *= 2.0f;
  return {scale, 1.0f / scale};
}

std::int32_t symmetric_code(float x, float inverse) {
  return static_cast<std::int32_t>(inverse == 0.0f ? 0.0f : std::nearbyint(x * inverse));
}

Digits digits_of(std::int32_t code) {
  const std::int32_t high = (code + 127 * 255 + 127) / 255 - 127;  // to the nearest
  return {static_cast<std::int8_t>(high), static_cast<std::int8_t>(code - 255 * high)};
}

void quantize_row(const QuantizeArgs& a) {
  const TileShape& s = a.shape;
  const SymmetricScale scale = symmetric_scale(absmax(a.x, s.k));
  const QuantRow out = quant_row(s, a.out);
  const BlockRow codes{out.codes, out.code_stride, nullptr, nullptr, 0};
  clear_codes(s, codes);
  for (std::int64_t g = 0; g < s.group_count(); ++g)
    out.corr[g * out.corr_stride] =
        quantize_columns(a, codes, g * s.group(), (g + 1) * s.group(), scale.inverse, symmetric_code);
  *out.recip = scale.scale;
  *out.z = 0;
}

void quantize_blocks(const QuantizeArgs& a) {
  const auto scale_of = [](float largest, const QuantizeArgs& args) {
    return args.shape.planes() == 2 ? symmetric_scale16(largest) : symmetric_scale(largest);
  };
  quantize_blocks_with(a, scale_of, symmetric_code);
}

void quantize_blocks_with(const QuantizeArgs& a, ScaleOf scale_of, CodeOf code_of) {
  const TileShape& s = a.shape;
  const BlockRow out = block_row(s, a.out);
  clear_codes(s, out);
  const std::int64_t columns = s.scaled_columns(), summed = s.summed_columns();
  for (std::int64_t b = 0; b < s.scale_count(); ++b) {
    const std::int64_t k0 = b * columns, k1 = std::min(k0 + columns, s.k);
    const SymmetricScale scale = scale_of(k0 < k1 ? absmax(a.x + k0, k1 - k0) : 0.0f, a);
    for (std::int64_t k = k0; k < k0 + columns; k += summed)  // behind the last column: 0
      out.corr[k / summed * out.stride] = quantize_columns(a, out, k, std::min(k + summed, k1), scale.inverse, code_of);
    out.scale[b * out.stride] = scale.scale;
  }
}

void gemm_row(const GemmArgs& a) { gemm_with<row_result>(a); }
void gemm_blocks(const GemmArgs& a) { gemm_with<blocks_result>(a); }

}  // namespace moe::kernels::ref

namespace moe::kernels {

constinit const Kernel kernel_rows::w4a8_blk8_p16_scalar =
    kernel_row("w4a8_blk8_p16_scalar", ref::kSteps, ref::quantize_blocks, ref::gemm_blocks);
constinit const Kernel kernel_rows::w4a8_blk8_p16_scalar_zp =
    kernel_row("w4a8_blk8_p16_scalar_zp", ref::kSteps, ref::quantize_blocks, ref::gemm_blocks);
constinit const Kernel kernel_rows::w8a8_tok8_p16_scalar =
    kernel_row("w8a8_tok8_p16_scalar", ref::kSteps, ref::quantize_row, ref::gemm_row);
constinit const Kernel kernel_rows::w8a8_blk8_p16_scalar =
    kernel_row("w8a8_blk8_p16_scalar", ref::kSteps, ref::quantize_blocks, ref::gemm_blocks);
constinit const Kernel kernel_rows::w4a16_blk16_p16_scalar =
    kernel_row("w4a16_blk16_p16_scalar", ref::kSteps, ref::quantize_blocks, ref::gemm_blocks);
constinit const Kernel kernel_rows::w8a16_blk16_p16_scalar =
    kernel_row("w8a16_blk16_p16_scalar", ref::kSteps, ref::quantize_blocks, ref::gemm_blocks);
constinit const Kernel kernel_rows::mxfp4_blk8_p16_scalar =
    kernel_row("mxfp4_blk8_p16_scalar", ref::kSteps, ref::quantize_blocks, ref::gemm_blocks);
constinit const Kernel kernel_rows::mxfp4_blk16_p16_scalar =
    kernel_row("mxfp4_blk16_p16_scalar", ref::kSteps, ref::quantize_blocks, ref::gemm_blocks);
constinit const Kernel kernel_rows::nvfp4_blk8_p16_scalar =
    kernel_row("nvfp4_blk8_p16_scalar", ref::kSteps, ref::quantize_blocks, ref::gemm_blocks);
constinit const Kernel kernel_rows::nvfp4_blk16_p16_scalar =
    kernel_row("nvfp4_blk16_p16_scalar", ref::kSteps, ref::quantize_blocks, ref::gemm_blocks);

}  // namespace moe::kernels
