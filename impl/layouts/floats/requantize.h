// New codes where a layout has no place for a checkpoint's scales, on the plain form of a whole matrix.
//
// These are the only functions that change codes of weights. The plain form says so
// (`requantized`), and reports pass it on. p16 has a place for every scale and comes here only for
// vLLM's bytes (may_share_scales in p16_layout.h).
#pragma once

#include <cstdint>

#include "base/result.h"
#include "layouts/rows.h"

namespace moe {

// Gate and up come to have one scale, the larger. through_f16: vLLM's way, which rounds scales and products to
// float16 and does so also where the scales are equal. half_codes: codes mean half of their values (AMD's 8-bit
// floats), scales are doubled already. Fault: invalid_argument, subject w13_scale, where no finite codes come of it.
// The larger, so that no code grows beyond 448. half_codes: a code of -0 would be NaN in AMD's
// format, so it becomes 0.
Check share_scale(CanonicalRows& rows, bool through_f16, bool half_codes);

// Gate and up of NVFP4 come to have one second scale. The larger, where they differ by more than 1e-5 of it: the other
// half's scales of groups are made for it, and those that are not exact are counted. Else, and for vLLM's bytes
// always, gate's.
// Below 1e-5 the difference is that of one number rounded twice, and bytes stay as they are
// (float_layouts.md).
void share_tensor_scale(CanonicalRows& rows, bool as_vllm);

// Blocks of 128 rows and columns come to have scales that are powers of two; the number of rows is a multiple of 128.
// DeepGEMM's packed scales are exponents alone. The power is the least one for which no code is
// above 448, the largest of e4m3; codes are rounded once more for it.
void use_power_scales(CanonicalRows& rows);

// The scales of int4 groups as 8-bit floats with a sign times a number of their row, above 0, which stays 8 times below
// the largest code: a product with an int4 value is an 8-bit float, too. Scales become code * number; rounded ones are
// counted.
// CUTLASS multiplies int4 by an e4m3 scale and keeps the product in e4m3: scale codes of at most 56
// (an eighth of 448) times 8 cannot overflow.
struct SplitScales {
  std::vector<std::uint8_t> codes;  // [count][groups]
  std::vector<float> rows;          // [count]
};
SplitScales split_scales(CanonicalRows& rows);

}  // namespace moe
