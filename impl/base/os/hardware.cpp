// See hardware.h.
#include "base/os/hardware.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <charconv>

#include "base/index.h"
#include "base/os/topology.h"

namespace moe {

std::size_t page_bytes() { return usize(sysconf(_SC_PAGESIZE)); }

void prefer_huge_pages(void* memory, std::size_t size) { (void)madvise(memory, size, MADV_HUGEPAGE); }

long l1_bytes() {
#ifdef _SC_LEVEL1_DCACHE_SIZE
  return sysconf(_SC_LEVEL1_DCACHE_SIZE);
#else  // musl leaves it to the kernel: "48K", of the first cache of CPU 0, that of data
  const auto text = read_fact("/sys/devices/system/cpu/cpu0/cache/index0/size");
  long kib = 0;
  if (text) (void)std::from_chars(text->data(), text->data() + text->size(), kib);
  return kib * 1024;
#endif
}

bool permit_amx() noexcept {
#ifdef SYS_arch_prctl
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

}  // namespace moe
