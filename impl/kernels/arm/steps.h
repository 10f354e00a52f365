// What the Arm files share.
#pragma once

#include "kernels/kernel.h"

namespace moe::kernels {

// Plain NEON serves both product rows below: quantizing and activations need no dot products.
namespace neon {
extern const Elementwise kSteps;
void quantize_kai(const QuantizeArgs& args);  // as ref::quantize_kai
}  // namespace neon
// The i8mm row calls this one for a single token: smmla multiplies two rows by two tokens, and half
// of its work would be for nothing.
namespace dotprod {
void gemm_kai(const GemmArgs& args);  // tiles of one to four rows
}

}  // namespace moe::kernels
