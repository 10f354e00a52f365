// Threads that a host lends by a parallel_for of its own, and what keeps the library safe when that function errs:
//
//   an item twice, also at the same time    the second run returns at once
//   an item left out, an index beyond all   Code::callback
//   returns before its items are done       waits for those that run, starts no other, then Code::callback
//   an item after it has returned           returns at once: the host never holds memory of a call, only of this object
//
// An object serves calls on any threads at once. It outlives the host's threads: they may come late until they are
// told to end (ContextHooks).
#pragma once

#include <atomic>
#include <cstddef>

#include "base/parallel.h"
#include "base/result.h"

namespace moe::run {

struct HostParallel {
  int num_threads = 1;
  void* user = nullptr;
  void (*parallel_for)(void* user, std::size_t count, TaskFn task, void* arg) = nullptr;
};

class HostThreads {
 public:
  explicit HostThreads(const HostParallel& host) : host_(host) {}
  HostThreads(const HostThreads&) = delete;
  HostThreads& operator=(const HostThreads&) = delete;
  ~HostThreads();

  const HostParallel& host() const { return host_; }
  // Allocates nothing if as many jobs of this size have run at once before.
  Check run(std::size_t count, TaskFn task, void* arg);

 private:
  struct Job;
  Job* take(std::size_t count) noexcept;  // nullptr: out of memory

  const HostParallel host_;
  std::atomic<Job*> jobs_{nullptr};  // all there have been; they go with this object
};

}  // namespace moe::run
