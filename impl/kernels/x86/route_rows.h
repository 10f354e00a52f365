// The x86 rows of routing functions; kernels/route.cpp lists them.
#pragma once

#include "kernels/route.h"

namespace moe::kernels {

// AVX-VNNI, AMX and BF16 machines take one of these two: routing has no integer products, so a file
// for each of them would only repeat this code.
extern const RouteKernel kRouteAvx512;  // needs avx512f, bw and vl of the cluster avx512vnni
extern const RouteKernel kRouteAvx2;

}  // namespace moe::kernels
