// See amx.h.
#include "kernels/x86/amx.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace moe::kernels {

bool permit_amx() noexcept {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace moe::kernels
