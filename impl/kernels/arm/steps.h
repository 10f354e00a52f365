// What the Arm files share.
#pragma once

#include "kernels/kernel.h"

namespace moe::kernels {

namespace neon {
extern const Elementwise kSteps;
void quantise_kai(const QuantArgsRow& args);  // as ref::quantise_kai
}  // namespace neon
namespace dotprod {
void gemm_kai(const GemmArgs& args);  // tiles of one to four rows
}

}  // namespace moe::kernels
