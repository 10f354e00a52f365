// W4A8 on KleidiAI's weights with the dot products of Armv8.2: sdot multiplies two rows' eight codes, four k a lane.
#include <arm_neon.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/arm/steps.h"
#include "kernels/target.h"
#include "layouts/w4a8/kai.h"

MOE_TARGET_BEGIN("arch=armv8.2-a+dotprod")

namespace moe::kernels {
namespace {

constexpr int kTileRows = tile_rows("w4a8_tok8_kai_dotprod");

// acc[pair][n]: lanes are row 2*pair over k 0..3 and 4..7, then row 2*pair + 1.
template <int N>
inline void sums(const std::int8_t* w, const std::int8_t* codes, std::int64_t chunks, int32x4_t (&sum)[N][2]) {
  int32x4_t acc[4][N];
  for (auto& pair : acc)
    for (int32x4_t& v : pair) v = vdupq_n_s32(0);
  const int8x16_t upper = vdupq_n_s8(static_cast<std::int8_t>(0xf0));
  for (std::int64_t c = 0; c < chunks; ++c, w += 128, codes += 32 * N)
    for (int h = 0; h < 2; ++h) {
      int8x16_t a[N], b[N];  // k of the low nibbles, and of the high ones
      for (int n = 0; n < N; ++n) {
        const auto twice = [&](int block) {
          const int8x8_t eight = vld1_s8(codes + (block * N + n) * 8);
          return vcombine_s8(eight, eight);
        };
        a[n] = twice(h);
        b[n] = twice(h + 2);
      }
      for (int i = 0; i < 4; ++i) {
        const int8x16_t v = vld1q_s8(w + 64 * h + 16 * i), low = vshlq_n_s8(v, 4), high = vandq_s8(v, upper);
        for (int n = 0; n < N; ++n) acc[i][n] = vdotq_s32(vdotq_s32(acc[i][n], low, a[n]), high, b[n]);
      }
    }
  for (int n = 0; n < N; ++n)
    for (int i = 0; i < 2; ++i) sum[n][i] = vpaddq_s32(acc[2 * i][n], acc[2 * i + 1][n]);
}

#include "kernels/arm/kai_tile.inl"

}  // namespace

void dotprod::gemm_kai(const GemmArgs& a) { multiply_rows(a, std::make_integer_sequence<int, kTileRows>()); }

constinit const Kernel kernel_rows::w4a8_tok8_kai_dotprod =
    kernel_row("w4a8_tok8_kai_dotprod", neon::kSteps, neon::quantize_kai, dotprod::gemm_kai);

}  // namespace moe::kernels

MOE_TARGET_END
