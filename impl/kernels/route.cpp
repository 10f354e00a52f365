// Which row of routing functions runs: the rows of this build, best first.
#include "kernels/route.h"

#include "kernels/ref/route.h"
#if defined(__x86_64__)
#include "kernels/x86/route_rows.h"
#endif

namespace moe::kernels {
namespace {

constexpr const RouteKernel* kRows[] = {
#if defined(__x86_64__)
    &kRouteAvx512,
    &kRouteAvx2,
#endif
    &kRouteScalar,
};

}  // namespace

std::span<const RouteKernel* const> route_kernels() { return kRows; }

const RouteKernel& route_kernel_within(Isa isa) {
  const FeatureSet have = isa_features(isa);
  for (const RouteKernel* row : kRows)
    if ((have & isa_features(row->isa)) == isa_features(row->isa)) return *row;
  return kRouteScalar;
}

const RouteKernel& route_kernel_for(const Platform& platform) {
  for (const RouteKernel* row : kRows)
    if (platform.runs(row->isa)) return *row;
  return kRouteScalar;
}

}  // namespace moe::kernels
