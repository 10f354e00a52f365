// See process_mark.h.
#include "base/os/process_mark.h"

#include <sys/mman.h>
#include <unistd.h>

#include <new>

#include "base/os/hardware.h"

namespace moe {
namespace {

#if defined(MADV_WIPEONFORK)
// Emulators answer every advice with success and do nothing; a kernel knows which advice there is.
bool heeds_advice(void* page) { return madvise(page, page_bytes(), 0x7fff) != 0; }
#endif

}  // namespace

ProcessMark::ProcessMark() noexcept {
#if defined(MADV_WIPEONFORK)
  void* page = mmap(nullptr, page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return;
  if (!heeds_advice(page) || madvise(page, page_bytes(), MADV_WIPEONFORK) != 0) {
    (void)munmap(page, page_bytes());
    return;
  }
  page_ = new (page) Word(last_.load(std::memory_order_relaxed));
#endif
}

ProcessMark::~ProcessMark() {
  if (page_ != nullptr) (void)munmap(page_, page_bytes());
}

std::uint64_t ProcessMark::value() const noexcept {
  if (page_ == nullptr) return static_cast<std::uint64_t>(getpid());
  std::uint64_t mark = page_->load(std::memory_order_acquire);
  if (mark != 0) return mark;
  const std::uint64_t fresh = last_.fetch_add(1, std::memory_order_acq_rel) + 1;  // the page was wiped: a child
  return page_->compare_exchange_strong(mark, fresh, std::memory_order_acq_rel) ? fresh : mark;
}

}  // namespace moe
