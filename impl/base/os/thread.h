// Threads of our own, and sleep until another thread wakes us.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/os/topology.h"

namespace moe {

// Private to the process.
using FutexWord = std::atomic<std::uint32_t>;
static_assert(sizeof(FutexWord) == 4 && FutexWord::is_always_lock_free, "a futex is a 32-bit word");

// Sleeps while word == seen; returns early for any reason the kernel has, so callers look again.
void futex_wait(FutexWord& word, std::uint32_t seen);
void futex_wake(FutexWord& word, int threads);

// Of the calling thread. Threads lie pages apart, those of a pool evenly: many have another number modulo a small one.
std::size_t thread_number();

// Threads of one function, with every signal blocked: signals belong to the program's own threads.
class Threads {
 public:
  explicit Threads(int most) : most_(most) { ids_.reserve(most > 0 ? static_cast<std::size_t>(most) : 0); }

  Threads(const Threads&) = delete;  // a copy would join them again
  Threads& operator=(const Threads&) = delete;

  // Once. A thread that cannot be created is one less. They run on `cpus`; empty: where the calling thread may.
  void start(const CpuList& cpus, void* (*run)(void*), void* arg) noexcept;
  // Nobody else does: in a child of fork() there are none to wait for.
  void join() noexcept;
  std::size_t size() const { return ids_.size(); }

 private:
  const int most_;
  std::vector<std::uintptr_t> ids_;
};

}  // namespace moe
