// See thread.h.
#include "base/os/thread.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>
#include <memory>

namespace moe {
namespace {

struct FreeCpuSet {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};

}  // namespace

void futex_wait(FutexWord& word, std::uint32_t seen) {
  (void)syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}

void futex_wake(FutexWord& word, int threads) {
  (void)syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, threads, nullptr, nullptr, 0);
}

std::size_t thread_number() { return std::bit_cast<std::uintptr_t>(pthread_self()) >> 12; }

void Threads::start(const CpuList& cpus, void* (*run)(void*), void* arg) noexcept {
  sigset_t all, before;
  sigfillset(&all);
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return;
  std::unique_ptr<cpu_set_t, FreeCpuSet> set;
  std::size_t set_bytes = 0;
  if (!cpus.empty()) {
    const int limit = cpus.back() + 1;
    set.reset(CPU_ALLOC(limit));
    set_bytes = CPU_ALLOC_SIZE(limit);
  }
  if (set != nullptr) {
    CPU_ZERO_S(set_bytes, set.get());
    for (int cpu : cpus) CPU_SET_S(cpu, set_bytes, set.get());
#ifdef __GLIBC__
    (void)pthread_attr_setaffinity_np(&attributes, set_bytes, set.get());
#endif
  }
  if (pthread_sigmask(SIG_SETMASK, &all, &before) == 0) {
    for (int i = 0; i < most_; ++i) {
      pthread_t thread;
      if (pthread_create(&thread, &attributes, run, arg) != 0) break;
#ifndef __GLIBC__  // musl has no such attribute: the thread moves once it is there
      if (set != nullptr) (void)pthread_setaffinity_np(thread, set_bytes, set.get());
#endif
      ids_.push_back(std::bit_cast<std::uintptr_t>(thread));  // reserved
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  (void)pthread_attr_destroy(&attributes);
}

void Threads::join() noexcept {
  for (const std::uintptr_t id : ids_) (void)pthread_join(std::bit_cast<pthread_t>(id), nullptr);
  ids_.clear();
}

}  // namespace moe
