// Float weights and integer weights with scales against float32 rows on p16: the scalar rows, which define the families
// (bf16_f32, f16_f32, f32_f32, w4a16_f32, w8a16_f32, fp8_f32, mxfp8_f32, mxfp4_f32, nvfp4_f32).
//
// Per block of 32 columns one chain of fma in ascending order over x * weight, where an integer weight is
// float(code - zero); then a = fma(block, scale, a), for float weights a = a + block; the bias comes last. Padding up
// to a whole block takes part (its values are 0). Short chains keep the rounding error small, and leave the other rows
// as many independent sums as their machine needs. Where weights have groups that blocks of 32 don't fit into (NVFP4:
// 16), chains are shorter: of gcd(group, 32) columns. NVFP4's second scale multiplies the result before the bias.
#pragma once

#include "kernels/kernel.h"

namespace moe::kernels::ref {

// Also the length of MXFP8's and MXFP4's groups, so those take one scale per chain. Changing it
// changes the bits of all float rows.
constexpr std::int64_t kBlockK = 32;

// "Quantizes" to float32: the row as it is, zeros up to whole units of k.
// All x86 float32 rows use it as it is: a copy has nothing that vectors of an instruction set would
// do better than memcpy.
void copy_floats(const QuantizeArgs& args);
void gemm_float(const GemmArgs& args);

}  // namespace moe::kernels::ref
