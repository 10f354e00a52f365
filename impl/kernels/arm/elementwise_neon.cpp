// The shared steps (kernels/kernel.h) in NEON, which every AArch64 machine has: body/elementwise.inl for 4 lanes.
#include <arm_neon.h>

#include <bit>
#include <limits>

#include "base/exp.h"
#include "base/gelu.h"
#include "kernels/arm/steps.h"
#include "kernels/ref/elementwise.h"

namespace moe::kernels {
namespace {

#include "kernels/arm/vector_neon.inl"

#include "kernels/body/elementwise.inl"

}  // namespace

const Elementwise neon::kSteps = {.widen = widen, .activate = activate, .combine = combine, .narrow = narrow};

}  // namespace moe::kernels
