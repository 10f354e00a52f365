// Activations as 8-bit and 4-bit floats (float_oracles.md 9.1): the scale of some columns from their largest magnitude,
// and the scalar quantizers, which define what rows of e4m3 and e2m1 hold.
//
//   e4m3   v = x / s (a given scale: x * (1 / s)), to the nearest number of e4m3, halves to even, beyond 448: 448; the
//          row holds v * s as a float32, or bf16 units v and s
//   e2m1   twice the nearest number of x * inverse, halves to even, beyond 6: 6; the row's scale is half of theirs
//
// A scale belongs to columns of the row alone, so a token's bits depend on no other token. NaN or Inf: the scale is NaN
// and with it all results of the row.
#pragma once

#include "kernels/kernel.h"
#include "kernels/ref/symmetric.h"

namespace moe::kernels::ref {

struct Float8Scale {
  float scale;
  float inverse;  // x * inverse makes the value of the code; 0: x / scale does
};
Float8Scale float8_scale(const FloatActs& acts, float absmax, float given);
// The number of e4m3 nearest to x of that scale.
float float8_value(float x, const Float8Scale& scale);

// MXFP4 in mode `even`.
SymmetricScale mxfp4_scale(float absmax);
// NVFP4; `given`: the checkpoint's scale of the input, which multiplies the scales of groups.
SymmetricScale nvfp4_scale(float absmax, float given);
// Twice the number of e2m1 that is nearest to x * inverse.
std::int32_t e2m1_code(float x, float inverse);

void quantize_float8(const QuantizeArgs& args);  // into float32
void quantize_mxfp4(const QuantizeArgs& args);
void quantize_nvfp4(const QuantizeArgs& args);

}  // namespace moe::kernels::ref
