// Makes the n-th allocation of a stretch of code fail. Include in exactly one file of a test program: it
// replaces operator new and delete, and the malloc family. Where the program is linked with --wrap (see
// tests/CMakeLists.txt) that is for the rooms linked into it; under MOE_TEST_RELEASED, for the whole process, libmoe.so
// too.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "support/rooms.h"

#ifdef MOE_TEST_RELEASED  // a program's own malloc comes before that of the C library
#define MOE_NAMED(name) __asm__(name) __attribute__((visibility("default")))
#else
#define MOE_NAMED(name)
#endif
extern "C" {
void* __real_malloc(std::size_t size) MOE_NAMED("__libc_malloc");
void* __real_calloc(std::size_t count, std::size_t size) MOE_NAMED("__libc_calloc");
void* __real_realloc(void* p, std::size_t size) MOE_NAMED("__libc_realloc");
void* __real_aligned_alloc(std::size_t alignment, std::size_t size) MOE_NAMED("__libc_memalign");
void __real_free(void* p) MOE_NAMED("__libc_free");
void* __wrap_malloc(std::size_t size) MOE_NAMED("malloc");
void* __wrap_calloc(std::size_t count, std::size_t size) MOE_NAMED("calloc");
void* __wrap_realloc(void* p, std::size_t size) MOE_NAMED("realloc");
void* __wrap_aligned_alloc(std::size_t alignment, std::size_t size) MOE_NAMED("aligned_alloc");
void __wrap_free(void* p) MOE_NAMED("free");
}
#undef MOE_NAMED

namespace moe::test {

enum class FaultMode { once, from_then_on };

class AllocFault {
 public:
  // Counts allocations until stop(); allocation number `n` (from 0) fails, INT64_MAX = none.
  static void start(std::int64_t n, FaultMode mode) {
    mode_ = mode;
    countdown_ = n;
    fired_ = false;
    seen_ = 0;
    armed_ = true;
  }
  static void stop() { armed_ = false; }
  static bool fired() { return fired_; }
  static std::int64_t seen() { return seen_; }
  static std::int64_t live() { return live_; }  // blocks

  static bool refuses() {
    const bool now = decides();
    if (now) errno = ENOMEM;  // as malloc does: functions of the C library hand it on
    return now;
  }
  static bool decides() {
    if (!armed_.load(std::memory_order_relaxed)) return false;
    ++seen_;
    const std::int64_t left = countdown_--;
    const bool refuse = left == 0 || (left < 0 && mode_ == FaultMode::from_then_on);
    if (refuse) fired_ = true;
    return refuse;
  }
  static void* took(void* p) {
    if (p != nullptr) ++live_;
    return p;
  }
  static void gave(void* p) {
    if (p != nullptr) --live_;
  }

 private:
  inline static std::atomic<bool> armed_{false}, fired_{false};
  inline static std::atomic<FaultMode> mode_{FaultMode::once};
  inline static std::atomic<std::int64_t> countdown_{0}, seen_{0}, live_{0};
};

}  // namespace moe::test

using moe::test::AllocFault;

void* __wrap_malloc(std::size_t size) {
  return AllocFault::refuses() ? nullptr : AllocFault::took(__real_malloc(size));
}
void* __wrap_calloc(std::size_t count, std::size_t size) {
  return AllocFault::refuses() ? nullptr : AllocFault::took(__real_calloc(count, size));
}
void* __wrap_realloc(void* p, std::size_t size) {
  if (AllocFault::refuses()) return nullptr;
  void* q = __real_realloc(p, size);
  if (p == nullptr) AllocFault::took(q);
  return q;
}
void* __wrap_aligned_alloc(std::size_t alignment, std::size_t size) {
  return AllocFault::refuses() ? nullptr : AllocFault::took(__real_aligned_alloc(alignment, size));
}
void __wrap_free(void* p) {
  AllocFault::gave(p);
  __real_free(p);
}

namespace moe::test {
inline void* new_block(std::size_t size, std::size_t alignment = 0) noexcept {
  if (AllocFault::refuses()) return nullptr;
  const std::size_t n = size == 0 ? 1 : size;
  return AllocFault::took(
      alignment == 0 ? __real_malloc(n) : __real_aligned_alloc(alignment, (n + alignment - 1) / alignment * alignment));
}
inline void* must(void* p) {
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
}  // namespace moe::test

void* operator new(std::size_t n) { return moe::test::must(moe::test::new_block(n)); }
void* operator new[](std::size_t n) { return moe::test::must(moe::test::new_block(n)); }
void* operator new(std::size_t n, const std::nothrow_t&) noexcept { return moe::test::new_block(n); }
void* operator new[](std::size_t n, const std::nothrow_t&) noexcept { return moe::test::new_block(n); }
void* operator new(std::size_t n, std::align_val_t a) {
  return moe::test::must(moe::test::new_block(n, static_cast<std::size_t>(a)));
}
void* operator new[](std::size_t n, std::align_val_t a) {
  return moe::test::must(moe::test::new_block(n, static_cast<std::size_t>(a)));
}
void operator delete(void* p) noexcept { __wrap_free(p); }
void operator delete[](void* p) noexcept { __wrap_free(p); }
void operator delete(void* p, std::size_t) noexcept { __wrap_free(p); }
void operator delete[](void* p, std::size_t) noexcept { __wrap_free(p); }
void operator delete(void* p, std::align_val_t) noexcept { __wrap_free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { __wrap_free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { __wrap_free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { __wrap_free(p); }
