// Scalar definition of W4A8-int8 on the p16 layout: quantization of a row (w4a8_int8.md 6) and the two
// KleidiAI matmul rows (7).
//
// Every float operation is written as one statement of one rounding; fma stands exactly where the
// definition has it (std::fma is correctly rounded everywhere).
#include "kernels/ref/w4a8.h"

#include <cmath>

#include "base/exp.h"
#include "base/float_formats.h"
#include "base/index.h"
#include "base/load.h"
#include "kernels/ref/elementwise.h"

namespace moe::kernels::ref {
namespace {

// Sum of code * activation over k in [k0, k1), weights as value + 8, for one row of the panel.
std::int32_t dot(const P16& m, const std::byte* panel, std::int64_t lane, const std::byte* tile, int n, int row,
                 std::int64_t k0, std::int64_t k1) {
  std::int32_t sum = 0;
  for (std::int64_t k = k0; k < k1; ++k) {
    const auto byte = static_cast<std::uint8_t>(panel[m.code_offset(lane, k)]);
    const int code = P16::nibble_high(k) ? byte >> 4 : byte & 15;
    const auto q = static_cast<std::int8_t>(tile[(k / kUnitK * n + row) * kUnitK + k % kUnitK]);
    sum += code * q;
  }
  return sum;
}

}  // namespace

RowScale row_scale(float rmin, float rmax, bool poisoned) {
  if (poisoned) return {1.0f, std::bit_cast<float>(0x7fc00000u), 0, true};
  float scale = rmin == rmax ? 1.0f : 255.0f / (rmax - rmin);
  if (std::isinf(scale)) scale = 1.0f, rmin = 0.0f, rmax = 0.0f;  // too small to scale: an all-zero row
  const float recip = scale != 0.0f ? 1.0f / scale : 0.0f;
  const float dmin = rmin * scale, dmax = rmax * scale;
  float zp = (-128.0f + dmin) + (127.0f + dmax) > 0.0f ? -128.0f - dmin : 127.0f - dmax;
  zp = min_or_b(max_or_b(zp, -128.0f), 127.0f);
  return {scale, recip, static_cast<std::int32_t>(std::nearbyint(zp)), false};
}

std::int8_t quant_code(float x, const RowScale& r, bool even) {
  if (r.poisoned) return 0;
  const float y = x * r.scale;
  const float t = std::trunc(y), rest = std::fabs(y - t);
  const bool up = rest > 0.5f || (rest == 0.5f && (!even || std::fmod(t, 2.0f) != 0.0f));
  const std::int32_t q = static_cast<std::int32_t>(t) + (up ? (y < 0.0f ? -1 : 1) : 0) + r.zp;
  return static_cast<std::int8_t>(q < -128 ? -128 : q > 127 ? 127 : q);
}

void quantize(const QuantizeArgs& a) {
  const TileShape& s = a.shape;
  float rmin = 0.0f, rmax = 0.0f;
  bool poisoned = false;
  for (std::int64_t k = 0; k < s.k; ++k) {
    poisoned |= !std::isfinite(a.x[k]);
    rmin = min_or_b(a.x[k], rmin);
    rmax = max_or_b(a.x[k], rmax);
  }
  const RowScale r = row_scale(rmin, rmax, poisoned);
  const std::int64_t even_end = a.rule == HalfRule::even ? s.k / 8 * 8 : 0;
  const QuantRow out = quant_row(s, a.out);
  for (std::int64_t g = 0; g < s.group_count(); ++g) out.corr[g * out.corr_stride] = 0;
  for (std::int64_t k = 0; k < s.units() * kUnitK; ++k) {
    const std::int8_t q = k < s.k ? quant_code(a.x[k], r, k < even_end) : std::int8_t{0};
    out.codes[k / kUnitK * out.code_stride + k % kUnitK] = q;
    if (k < s.k) out.corr[k / s.group() * out.corr_stride] += -8 * q;
  }
  *out.recip = r.recip;
  *out.z = -r.zp;
}

void gemm(const GemmArgs& a) {
  const P16& m = *a.matrix;
  const std::size_t corr_at = a.shape.code_bytes(a.n);
  const std::byte* recips = a.tile + corr_at + a.shape.group_count() * a.n * 4;
  const std::byte* zs = recips + a.n * 4;
  for (std::int64_t p = 0; p < a.panel_count; ++p) {
    const std::byte* panel = a.panels + usize(p) * m.panel_bytes();
    for (std::int64_t lane = 0; lane < kPanelRows; ++lane) {
      for (int row = 0; row < a.n; ++row) {
        const auto corr = [&](std::int64_t g) { return load<std::int32_t>(a.tile + corr_at, g * a.n + row); };
        const float s_a = load<float>(recips, row);
        const std::int32_t z = load<std::int32_t>(zs, row);
        float r = 0.0f;
        if (m.grouping() == Grouping::channel) {
          const std::int32_t i = dot(m, panel, lane, a.tile, a.n, row, 0, m.k) + corr(0) +
                                 z * load<std::int32_t>(panel + m.sum_offset(), lane);
          const float s = load<float>(panel, lane) * s_a;  // the header holds s_w / 16
          r = (16.0f * static_cast<float>(i)) * s;
        } else {
          for (std::int64_t g = 0; g < m.group_count(); ++g) {
            const std::int32_t i = dot(m, panel, lane, a.tile, a.n, row, g * m.group(), (g + 1) * m.group()) + corr(g);
            r = std::fma(static_cast<float>(i), bf16_to_f32(load<std::uint16_t>(panel + m.scale_offset(lane, g))), r);
          }
          r = std::fma(load<float>(panel + m.sum_offset(), lane), static_cast<float>(z), r);
          r = r * s_a;
        }
        const float bias = m.has_bias ? load<float>(panel + m.bias_offset(), lane) : 0.0f;
        a.out[row * a.ld + p * kPanelRows + lane] = r + bias;
      }
    }
  }
}

}  // namespace moe::kernels::ref

namespace moe::kernels {

constinit const Kernel kernel_rows::w4a8_tok8_p16_scalar =
    kernel_row("w4a8_tok8_p16_scalar", ref::kSteps, ref::quantize, ref::gemm);

}  // namespace moe::kernels
