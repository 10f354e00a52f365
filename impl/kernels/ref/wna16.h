// Integer weights against float32 rows (w4a16_f32_p16, w8a16_f32_p16): the scalar rows, which define the family.
//
// The columns are walked in runs of 64 (of 32, where groups are no multiple of 64), so that a run has one scale. In a
// run one fma chain takes the even and one the odd columns, each in ascending order, of x * float(code - zero); then
// a = fma(even + odd, s_g, a), and the bias comes last. Padding takes part (0 * value).
#pragma once

#include "kernels/kernel.h"

namespace moe::ref {

constexpr std::int64_t run_length(const P16Matrix& m) { return m.group == m.k || m.group % kUnitK == 0 ? kUnitK : 32; }
void gemm_wna16(const GemmArgs& args);

}  // namespace moe::ref
