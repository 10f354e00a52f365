// The scalar row on KleidiAI's layouts (layouts/w4a8/kai.h): the same numbers as the row on p16, and the definition of
// the rows of Arm. Runs on every machine.
#pragma once

#include "kernels/kernel.h"

namespace moe::kernels::ref {

// A row of qai8dxp (w4a8_int8.md 6.3): that of float32 values with HalfRule::away, of bf16 values with even.
// The tail beyond K repeats the last code. Its weights are 0, so the value does not matter, but the
// bytes are then equal to those that KleidiAI's own packing makes.
void quantize_kai(const QuantizeArgs& args);
void gemm_kai(const GemmArgs& args);

}  // namespace moe::kernels::ref
