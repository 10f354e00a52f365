// What the Arm files share.
#pragma once

#include "kernels/kernel.h"

namespace moe::kernels {

namespace neon {
extern const Elementwise kSteps;
void quantize_kai(const QuantizeArgs& args);  // as ref::quantize_kai
}  // namespace neon
namespace dotprod {
void gemm_kai(const GemmArgs& args);  // tiles of one to four rows
}

}  // namespace moe::kernels
