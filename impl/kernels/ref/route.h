// The scalar definition of the row functions of routing (kernels/route.h). The vector rows use `load` and
// `group_scores` for what is shorter than a register.
#pragma once

#include "kernels/route.h"

namespace moe::kernels::ref {

// It takes no padding, so that vector rows can use it for the rest of a row that is no whole step.
void load_logits(DType dtype, const std::byte* src, std::size_t n, float* dst);  // without the floats past n
float log1p_exp(float x);                                                        // softplus; x itself above 20

}  // namespace moe::kernels::ref

namespace moe::kernels {

extern const RouteKernel kRouteScalar;

}  // namespace moe::kernels
