// All compiled-in kernel rows, bound to kKernelIds by position. A new row is listed here once.
#include <array>

#include "kernels/kernel.h"
#include "kernels/ref/w4a8.h"
#if defined(__x86_64__)
#include "kernels/x86/rows.h"
#endif

namespace moe {
namespace {

constexpr int kScalarTileRows = 4;

const Kernel kW4a8Scalar = {.id = &kKernelIds[*kernel_index("w4a8_tok8_p16_scalar")],
                            .exact = true,
                            .tile_rows = kScalarTileRows,
                            .widen = ref::widen,
                            .quantise = ref::quantise,
                            .gemm = ref::gemm,
                            .activate = ref::activate,
                            .combine = ref::combine,
                            .narrow = ref::narrow};

constexpr const Kernel* kRows[] = {
#if defined(__x86_64__)
    &kW4a8Avx512Vnni,
    &kW4a8Avx2,
#endif
    &kW4a8Scalar,
};

}  // namespace

std::span<const Kernel* const> kernels() { return kRows; }

const Kernel* kernel_at(std::size_t index) {
  for (const Kernel* k : kRows)
    if (k->id == &kKernelIds[index]) return k;
  return nullptr;
}

}  // namespace moe
