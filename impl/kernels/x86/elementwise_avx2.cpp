// The shared steps (kernels/kernel.h) in AVX2: body/elementwise.inl for 8 lanes.
#include <immintrin.h>

#include <bit>
#include <limits>

#include "base/exp.h"
#include "base/gelu.h"
#include "kernels/ref/elementwise.h"
#include "kernels/target.h"
#include "kernels/x86/steps.h"

MOE_TARGET_BEGIN("avx2,fma,f16c")

namespace moe::kernels {
namespace {

#include "kernels/x86/vector_avx2.inl"

#include "kernels/body/elementwise.inl"

}  // namespace

const Elementwise avx2::kSteps = {.widen = widen, .activate = activate, .combine = combine, .narrow = narrow};

}  // namespace moe::kernels

MOE_TARGET_END
