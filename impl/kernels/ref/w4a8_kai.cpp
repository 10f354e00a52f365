// W4A8 on qsi4cxp and qsi4c32p weights, value by value. See w4a8_kai.h.
#include "kernels/ref/w4a8_kai.h"
#include "kernels/ref/elementwise.h"

#include <cmath>

#include "base/float_formats.h"
#include "base/index.h"
#include "base/load.h"
#include "kernels/ref/w4a8.h"
#include "layouts/w4a8/kai.h"

namespace moe::kernels::ref {
namespace {

int signed_nibble(unsigned nibble) { return static_cast<int>(nibble ^ 8u) - 8; }

// Sum of value * code over one group; `codes`: those of the group's first column.
std::int32_t dot(const KaiMatrix& m, const std::byte* group, std::int64_t lane, const std::int8_t* codes,
                 std::ptrdiff_t stride) {
  std::int32_t sum = 0;
  for (std::int64_t c = 0; c < m.chunks(); ++c)
    for (std::int64_t h = 0; h < 2; ++h)
      for (std::int64_t j = 0; j < 8; ++j) {
        const auto byte = static_cast<unsigned>(group[128 * c + 64 * h + 8 * lane + j]);
        sum += signed_nibble(byte & 15u) * codes[(4 * c + h) * stride + j];
        sum += signed_nibble(byte >> 4) * codes[(4 * c + 2 + h) * stride + j];
      }
  return sum;
}

// One weight row times one activation row (w4a8_int8.md 7).
float product(const KaiMatrix& m, const std::byte* tile, std::int64_t lane, const KaiRow& a) {
  float r = 0.0f;
  if (m.channel()) {
    const std::int32_t wsum = load<std::int32_t>(tile + m.sum_offset(), lane) / 16;
    const std::int32_t i = dot(m, tile, lane, a.codes, a.code_stride) + *a.z * wsum;
    const float s = load<float>(tile + m.scale_offset(0), lane) * *a.recip;
    r = (16.0f * static_cast<float>(i)) * s;
  } else {
    for (std::int64_t g = 0; g < m.group_count(); ++g) {
      const std::int32_t i =
          dot(m, tile + m.code_offset(g, 0), lane, a.codes + g * m.group / 8 * a.code_stride, a.code_stride);
      r = std::fma(static_cast<float>(i), bf16_to_f32(load<std::uint16_t>(tile + m.scale_offset(g), lane)), r);
    }
    r = std::fma(load<float>(tile + m.sum_offset(), lane), static_cast<float>(*a.z), r);
    r = r * *a.recip;
  }
  return r + load<float>(tile + m.bias_offset(), lane);
}

}  // namespace

void quantize_kai(const QuantizeArgs& a) {
  const TileShape& s = a.shape;
  float rmin = 0.0f, rmax = 0.0f;
  bool poisoned = false;
  for (std::int64_t k = 0; k < s.k; ++k) {
    poisoned |= !std::isfinite(a.x[k]);
    rmin = a.x[k] < rmin ? a.x[k] : rmin;
    rmax = a.x[k] > rmax ? a.x[k] : rmax;
  }
  const RowScale r = row_scale(rmin, rmax, poisoned);
  const std::int64_t even_end = a.rule == HalfRule::even ? s.k / 8 * 8 : 0;
  const KaiRow out = kai_row(s, a.out);
  for (std::int64_t k = 0; k < static_cast<std::int64_t>(s.code_bytes()); ++k)
    out.codes[k / 8 * out.code_stride + k % 8] = quant_code(a.x[k < s.k ? k : s.k - 1], r, k < even_end);
  *out.z = -r.zp;
  *out.recip = r.recip;
}

void gemm_kai(const GemmArgs& a) {
  const P16& p16 = *a.matrix;
  const KaiMatrix m(p16);
  for (std::int64_t p = 0; p < a.panel_count; ++p) {
    const std::int64_t half = (a.first + p) % p16.halves, row0 = (a.first + p) / p16.halves * kPanelRows;
    for (std::int64_t lane = 0; lane < kPanelRows; ++lane) {
      const bool real = row0 + lane < p16.half_rows;
      const std::int64_t n = half * p16.half_rows + row0 + lane;
      const std::byte* tile = a.panels + (real ? usize(n / kKaiRows) * m.tile_bytes() : 0);
      for (int row = 0; row < a.n; ++row) {
        const KaiRow codes = kai_row(a.shape, {const_cast<std::byte*>(a.tile), a.n, row});
        a.out[row * a.ld + p * kPanelRows + lane] = real ? product(m, tile, n % kKaiRows, codes) : 0.0f;
      }
    }
  }
}

}  // namespace moe::kernels::ref

namespace moe::kernels {

constinit const Kernel kernel_rows::w4a8_tok8_kai_scalar =
    kernel_row("w4a8_tok8_kai_scalar", ref::kSteps, ref::quantize_kai, ref::gemm_kai);

}  // namespace moe::kernels
