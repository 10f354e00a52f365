// The scalar steps that all families share, the definition of every other set (kernels/kernel.h).
//
// Tests compare all other sets with these bit by bit, so a change here is a change of the library's
// results: numerics.md has to say it first.
#pragma once

#include "kernels/kernel.h"

namespace moe::kernels::ref {

void widen(DType dtype, const std::byte* src, std::int64_t count, float* dst);
void activate(const ActivateArgs& args);
void combine(const CombineArgs& args);
void narrow(DType dtype, const float* src, std::int64_t count, std::byte* dst);
inline constexpr Elementwise kSteps = {.widen = widen, .activate = activate, .combine = combine, .narrow = narrow};

// Both orders of operands matter: like minps/maxps they give b when a comparison with NaN is false.
// A clamp that is written min_or_b(limit, x) lets a NaN through, as PyTorch's clamp does. std::fmin
// would drop the NaN.
inline float min_or_b(float a, float b) { return a < b ? a : b; }
inline float max_or_b(float a, float b) { return a > b ? a : b; }

// x as a value of dtype (f32: x itself).
// Through the 16 bits and back, so that the value is exactly what a tensor of dtype would have
// held.
float round_to(DType dtype, float x);

}  // namespace moe::kernels::ref
