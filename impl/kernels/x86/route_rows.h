// The x86 rows of routing functions; kernels/route.cpp lists them.
#pragma once

#include "kernels/route.h"

namespace moe::kernels {

extern const RouteKernel kRouteAvx512;  // needs avx512f, bw and vl of the cluster avx512vnni
extern const RouteKernel kRouteAvx2;

}  // namespace moe::kernels
