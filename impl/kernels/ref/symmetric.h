// Integer weights against symmetric integer activations (W8A8 per token; block32 with int4 or int8 weights; 16 bits for
// layers of bf16 and fp16 activations; MXFP4 and NVFP4 with both forms of blocks): the scalar rows, which define the
// families (kernels.md 3, numerics.md 2 `block32`).
//
//   per token   s = absmax(row) / 127, q = to_nearest_even(x * (127 / absmax));
//               per weight group g, ascending: a = fma(float(sum q*w), s_g, a); result a * s + bias
//   per block   the same of 32 columns; per block b, ascending: a = fma(float(sum q*w), s_w * s_b, a), s_w the scale
//               of the block's group or row; result a + bias
//
//   16 bits     as per block, of 128 columns, with grouped weights of as many of them as divide the groups; s = the
//               least power of 2 for which no code is above 32512, q = to_nearest_even(x / s). bf16 values down to 2^-6
//               of the largest power of 2 in their block are kept as they are, fp16 values down to 2^-3; the others
//               move by at most 2^-14 of it. No sum depends on the instruction set, and a code is two int8 digits, 255
//               * high + low, which the units for int8 products take.
//
//   e2m1        (MXFP4, NVFP4) w is twice the value, an integer; sums end with the weights' groups,
//               so those of 16 columns have two in a block of activations, which is never shorter
//               than 32 columns; both are added in ascending order. Result a * 0.5 + bias, NVFP4:
//               (a * 0.5) * tensor_scale + bias, each operation rounded by itself
//
// w = code - zero point: the sums are exact in int32, wherever a row subtracts.
//
// absmax below 2^-100 counts as 0: s = 0, q = 0. NaN or Inf: s = NaN, q = 0, so all results of the row are NaN.
//
// Why 2^-100: its reciprocal, and 127 times it, are finite, so no code is Inf * 0. Such rows are
// noise. Why a scale of NaN and not NaN codes: an integer has no NaN. One NaN scale poisons the
// results of its own row and of no other.
#pragma once

#include "kernels/kernel.h"

namespace moe::kernels::ref {

// max(|x|), or something that is not finite as soon as one value is not.
float absmax(const float* x, std::int64_t count);

struct SymmetricScale {
  float scale;  // multiplies the integer sums
  // 0 says that all codes are 0: an empty row or a poisoned one.
  float inverse;  // makes the codes
};
// of the largest magnitude; not finite: poisoned.
SymmetricScale symmetric_scale(float absmax);
// A power of two, because dividing bf16 or fp16 values by it is exact: values that have enough bits
// left are kept as they are.
SymmetricScale symmetric_scale16(float absmax);
std::int32_t symmetric_code(float x, float inverse);

// code = 255 * high + low, both in [-127, 127].
// Base 255 and not 256: with 256 the low digit would span -128 to 127 and the largest code would
// need a carry out of int8. With 255 both digits are in [-127, 127] and 127 * 255 + 127 = 32512 is
// reached.
struct Digits {
  std::int8_t high, low;
};
Digits digits_of(std::int32_t code);

void quantize_row(const QuantizeArgs& args);
void quantize_blocks(const QuantizeArgs& args);
// The same with other codes: what a block's scale is by its largest magnitude, and a value's code by the inverse.
using ScaleOf = SymmetricScale (*)(float absmax, const QuantizeArgs& args);
using CodeOf = std::int32_t (*)(float x, float inverse);
void quantize_blocks_with(const QuantizeArgs& args, ScaleOf scale_of, CodeOf code_of);
// These two walk panels number by number through p16_numbers.h, so they also check the addresses
// that vector rows compute by hand.
void gemm_row(const GemmArgs& args);
void gemm_blocks(const GemmArgs& args);

}  // namespace moe::kernels::ref
