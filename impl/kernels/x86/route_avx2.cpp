// Routing one row of logits with AVX2: 8 lanes at a time. The definition is kernels/ref/route.cpp.
#include <immintrin.h>

#include <bit>
#include <limits>

#include "base/exp.h"
#include "kernels/ref/route.h"
#include "kernels/target.h"
#include "kernels/x86/route_rows.h"

MOE_TARGET_BEGIN("avx2,fma,f16c")

namespace moe::kernels {
namespace {

#include "kernels/x86/vector_avx2.inl"

inline unsigned bits_of(V::M m) { return static_cast<unsigned>(_mm256_movemask_ps(m)); }
inline V::F sqrt_lanes(V::F x) { return _mm256_sqrt_ps(x); }

#include "kernels/body/route.inl"

}  // namespace

const RouteKernel kRouteAvx2 = {.isa = Isa::avx2,
                                .load = load,
                                .softmax = softmax,
                                .sigmoid = sigmoid,
                                .sqrtsoftplus = sqrtsoftplus,
                                .add = add,
                                .group_scores = group_scores,
                                .select = select};

}  // namespace moe::kernels

MOE_TARGET_END
