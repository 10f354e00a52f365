// The shared steps (kernels/kernel.h) in AVX-512: body/elementwise.inl for 16 lanes.
#include <immintrin.h>

#include <bit>
#include <limits>

#include "base/exp.h"
#include "base/gelu.h"
#include "kernels/ref/elementwise.h"
#include "kernels/target.h"
#include "kernels/x86/steps.h"

#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 flags its own _mm512_undefined_* (GCC bug 105593)
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
MOE_TARGET_BEGIN("avx2,fma,f16c,avx512f,avx512bw,avx512vl")

namespace moe::kernels {
namespace {

#include "kernels/x86/vector_avx512.inl"

#include "kernels/body/elementwise.inl"

}  // namespace

const Elementwise avx512::kSteps = {.widen = widen, .activate = activate, .combine = combine, .narrow = narrow};

}  // namespace moe::kernels

MOE_TARGET_END
