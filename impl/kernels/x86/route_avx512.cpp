// Routing one row of logits with AVX-512: 16 lanes at a time. The definition is kernels/ref/route.cpp.
#include <immintrin.h>

#include <bit>
#include <limits>

#include "base/exp.h"
#include "kernels/ref/route.h"
#include "kernels/target.h"
#include "kernels/x86/route_rows.h"

MOE_TARGET_BEGIN("avx512f,avx512bw,avx512vl,avx2,fma,f16c")

namespace moe::kernels {
namespace {

#include "kernels/x86/vector_avx512.inl"

inline unsigned bits_of(V::M m) { return m; }
inline V::F sqrt_lanes(V::F x) { return _mm512_sqrt_ps(x); }

#include "kernels/body/route.inl"

}  // namespace

const RouteKernel kRouteAvx512 = {.isa = Isa::avx512vnni,
                                  .load = load,
                                  .softmax = softmax,
                                  .sigmoid = sigmoid,
                                  .sqrtsoftplus = sqrtsoftplus,
                                  .add = add,
                                  .group_scores = group_scores,
                                  .select = select};

}  // namespace moe::kernels

MOE_TARGET_END
