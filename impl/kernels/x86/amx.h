// What makes a row of AMX, which is there once the system permits its tiles. Rows share their walk too (amx_tiles.inl).
//
// The elementwise steps are those of AVX-512: AMX has products of tiles only, and every machine
// with AMX has AVX-512.
#pragma once

#include "base/os/hardware.h"
#include "kernels/x86/steps.h"

namespace moe::kernels {

// `ready` asks Linux for the tile state, once per process. Without that leave the first tile
// instruction ends the process with a signal, on a processor whose CPUID reports AMX.
constexpr Kernel amx_row(std::string_view name, void (*quantize)(const QuantizeArgs&), void (*gemm)(const GemmArgs&),
                         std::size_t scratch_bytes = 0) {
  Kernel k = kernel_row(name, avx512::kSteps, quantize, gemm);
  k.scratch_bytes = scratch_bytes;
  k.ready = permit_amx;
  return k;
}

}  // namespace moe::kernels
