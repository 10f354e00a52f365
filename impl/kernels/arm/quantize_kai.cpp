// Rows of activations into qai8dxp with NEON, which every AArch64 machine has.
#include <arm_neon.h>

#include "kernels/arm/steps.h"
#include "kernels/ref/w4a8.h"

namespace moe::kernels::neon {
namespace {

struct ValueRange {
  float low, high;
  bool poisoned;
};

ValueRange range_of(const float* x, std::int64_t k) {
  float32x4_t low = vdupq_n_f32(0.0f), high = low;
  uint32x4_t largest = vdupq_n_u32(0);  // of the bits without sign: from those of Inf on there is no number
  std::int64_t i = 0;
  for (; i + 4 <= k; i += 4) {
    const float32x4_t v = vld1q_f32(x + i);
    low = vminq_f32(low, v);
    high = vmaxq_f32(high, v);
    largest = vmaxq_u32(largest, vreinterpretq_u32_f32(vabsq_f32(v)));
  }
  for (; i < k; ++i) {
    const float32x4_t v = vsetq_lane_f32(x[i], vdupq_n_f32(0.0f), 0);
    low = vminq_f32(low, v);
    high = vmaxq_f32(high, v);
    largest = vmaxq_u32(largest, vreinterpretq_u32_f32(vabsq_f32(v)));
  }
  // + 0: no negative zero
  return {vminvq_f32(low) + 0.0f, vmaxvq_f32(high) + 0.0f, vmaxvq_u32(largest) >= 0x7f800000u};
}

template <bool kEven>
inline int8x8_t codes_of(const float* x, float32x4_t scale, int32x4_t zp) {
  const float32x4_t a = vmulq_f32(vld1q_f32(x), scale), b = vmulq_f32(vld1q_f32(x + 4), scale);
  const int32x4_t i = vaddq_s32(kEven ? vcvtnq_s32_f32(a) : vcvtaq_s32_f32(a), zp);
  const int32x4_t j = vaddq_s32(kEven ? vcvtnq_s32_f32(b) : vcvtaq_s32_f32(b), zp);
  return vqmovn_s16(vcombine_s16(vqmovn_s32(i), vqmovn_s32(j)));
}

template <bool kEven>
void write_blocks(const float* x, std::int64_t blocks, const ref::RowScale& r, const KaiRow& out) {
  const float32x4_t scale = vdupq_n_f32(r.scale);
  const int32x4_t zp = vdupq_n_s32(r.zp);
  for (std::int64_t b = 0; b < blocks; ++b)
    vst1_s8(out.codes + b * out.code_stride, codes_of<kEven>(x + 8 * b, scale, zp));
}

}  // namespace

void quantize_kai(const QuantizeArgs& a) {
  const TileShape& s = a.shape;
  const ValueRange range = range_of(a.x, s.k);
  const ref::RowScale r =
      ref::row_scale(range.poisoned ? 0.0f : range.low, range.poisoned ? 0.0f : range.high, range.poisoned);
  const KaiRow out = kai_row(s, a.out);
  const std::int64_t whole = range.poisoned ? 0 : s.k / 8;
  if (a.rule == HalfRule::even)
    write_blocks<true>(a.x, whole, r, out);
  else
    write_blocks<false>(a.x, whole, r, out);
  // the last columns and the padding, halves away from zero whatever the rule
  for (std::int64_t k = 8 * whole; k < static_cast<std::int64_t>(s.code_bytes()); ++k)
    out.codes[k / 8 * out.code_stride + k % 8] = ref::quant_code(a.x[k < s.k ? k : s.k - 1], r, false);
  *out.z = -r.zp;
  *out.recip = r.recip;
}

}  // namespace moe::kernels::neon
