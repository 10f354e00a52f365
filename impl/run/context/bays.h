// Numbered places that threads take and give back; who finds none sleeps until one is free. A child of fork() finds
// some taken by threads that it does not have: what another process took is free.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/os/process_mark.h"
#include "base/os/thread.h"

namespace moe::run {

class Bays {
 public:
  struct alignas(64) Holder {               // a cache line: threads in different bays write to different ones
    std::atomic<std::uint64_t> process{0};  // mark; 0: free
  };

  explicit Bays(std::size_t count) : process_(std::in_place), own_(count), holders_(own_) {}
  // Of one call, whose items are in one process: nothing is allocated.
  explicit Bays(std::span<Holder> holders);

  std::size_t count() const { return holders_.size(); }
  // Holders that wait for nothing end the wait. A thread finds the bay that it had before, unless another is there:
  // its caches know it.
  std::size_t take();
  void give(std::size_t bay);

 private:
  bool try_take(std::size_t& bay);

  const std::optional<ProcessMark> process_;
  std::vector<Holder> own_;
  const std::span<Holder> holders_;
  FutexWord given_{0};     // ++ for sleepers: what they sleep on
  FutexWord sleepers_{0};  // a child of fork() may count its parent's: a wake that wakes none
};

}  // namespace moe::run
