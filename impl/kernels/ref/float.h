// The scalar rows of float weights on p16 with float32 rows (bf16_f32_p16, f16_f32_p16, f32_f32_p16): the
// definition of the family.
#pragma once

#include "kernels/kernel.h"

namespace moe::ref {

// "Quantises" to float32: the row as it is, zeros up to whole units of k.
void copy_floats(const QuantArgsRow& args);
void gemm_float(const GemmArgs& args);

}  // namespace moe::ref
