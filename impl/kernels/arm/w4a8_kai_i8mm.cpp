// W4A8 on KleidiAI's weights with the matrix products of Armv8.6: smmla multiplies eight codes of two rows with those
// of two tokens. A single token takes the row of dot products.
#include <arm_neon.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/arm/steps.h"
#include "kernels/target.h"
#include "layouts/w4a8/kai.h"

MOE_TARGET_BEGIN("arch=armv8.2-a+dotprod+i8mm")

namespace moe::kernels {
namespace {

constexpr int kTileRows = tile_rows("w4a8_tok8_kai_i8mm");

// acc[pair][t]: rows 2*pair and 2*pair + 1, for tokens 2t and 2t + 1 each. An odd last token stands for two.
template <int N>
inline void sums(const std::int8_t* w, const std::int8_t* codes, std::int64_t chunks, int32x4_t (&sum)[N][2]) {
  constexpr int kPairs = (N + 1) / 2;
  int32x4_t acc[4][kPairs];
  for (auto& pair : acc)
    for (int32x4_t& v : pair) v = vdupq_n_s32(0);
  const int8x16_t upper = vdupq_n_s8(static_cast<std::int8_t>(0xf0));
  for (std::int64_t c = 0; c < chunks; ++c, w += 128, codes += 32 * N)
    for (int h = 0; h < 2; ++h) {
      int8x16_t a[kPairs], b[kPairs];  // k of the low nibbles, and of the high ones
      for (int t = 0; t < kPairs; ++t) {
        const auto pair_of = [&](int block) {
          const std::int8_t* first = codes + (block * N + 2 * t) * 8;
          if (2 * t + 1 < N) return vld1q_s8(first);
          const int8x8_t eight = vld1_s8(first);
          return vcombine_s8(eight, eight);
        };
        a[t] = pair_of(h);
        b[t] = pair_of(h + 2);
      }
      for (int i = 0; i < 4; ++i) {
        const int8x16_t v = vld1q_s8(w + 64 * h + 16 * i), low = vshlq_n_s8(v, 4), high = vandq_s8(v, upper);
        for (int t = 0; t < kPairs; ++t) acc[i][t] = vmmlaq_s32(vmmlaq_s32(acc[i][t], low, a[t]), high, b[t]);
      }
    }
  for (int n = 0; n < N; ++n)
    for (int i = 0; i < 2; ++i) {
      const int32x4_t a = acc[2 * i][n / 2], b = acc[2 * i + 1][n / 2];
      sum[n][i] = n % 2 == 0 ? vuzp1q_s32(a, b) : vuzp2q_s32(a, b);
    }
}

#include "kernels/arm/kai_tile.inl"

void gemm_kai(const GemmArgs& a) {
  if (a.n == 1)
    dotprod::gemm_kai(a);
  else
    multiply_rows(a, std::make_integer_sequence<int, kTileRows>());
}

}  // namespace

constinit const Kernel kernel_rows::w4a8_tok8_kai_i8mm =
    kernel_row("w4a8_tok8_kai_i8mm", neon::kSteps, neon::quantize_kai, gemm_kai);

}  // namespace moe::kernels

MOE_TARGET_END
