// What all AMX rows share beside their walk (amx_tiles.inl): the permission of the system, and what makes a row.
#pragma once

#include "base/float_rules.h"
#include "kernels/x86/steps.h"

namespace moe::kernels {

// Asks Linux for the tile data state, for the whole process; false where it is refused or unknown. Cheap when granted.
bool permit_amx() noexcept;

constexpr Kernel amx_row(std::string_view name, void (*quantise)(const QuantArgsRow&), void (*gemm)(const GemmArgs&),
                         std::size_t scratch_bytes = 0) {
  Kernel k = kernel_row(name, avx512::kSteps, quantise, gemm);
  k.scratch_bytes = scratch_bytes;
  k.ready = permit_amx;
  return k;
}

}  // namespace moe::kernels
