// The kernel rows of the Arm files, and what they share. registry.cpp lists the rows.
#pragma once

#include "kernels/kernel.h"

namespace moe {

namespace neon {
extern const Elementwise kSteps;
void quantise_kai(const QuantArgsRow& args);  // as ref::quantise_kai
}  // namespace neon
namespace dotprod {
void gemm_kai(const GemmArgs& args);  // tiles of one to four rows
}

extern const Kernel kW4a8KaiI8mm, kW4a8KaiDotprod;

}  // namespace moe
