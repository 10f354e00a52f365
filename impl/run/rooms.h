// Numbered places that threads take and give back; who finds none sleeps until one is free. A child of fork() finds
// some taken by threads that it does not have: what another process took is free.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/process_mark.h"
#include "run/wait.h"

namespace moe {

class Rooms {
 public:
  explicit Rooms(std::size_t count) : holders_(count) {}

  std::size_t count() const { return holders_.size(); }
  // Holders that wait for nothing end the wait.
  std::size_t take();
  void give(std::size_t room);

 private:
  bool try_take(std::size_t& room);

  const ProcessMark process_;
  std::vector<std::atomic<std::uint64_t>> holders_;  // process mark; 0: nobody
  FutexWord given_{0};                               // ++ for sleepers: what they sleep on
  FutexWord sleepers_{0};                            // a child of fork() may count its parent's: a wake for nobody
};

}  // namespace moe
