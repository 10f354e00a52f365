// How long something takes, added to a counter.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace moe::dist {

class Lap {
 public:
  explicit Lap(std::atomic<std::uint64_t>& nanoseconds) : nanoseconds_(nanoseconds) {}
  Lap(const Lap&) = delete;
  Lap& operator=(const Lap&) = delete;
  ~Lap() {
    const auto took = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin_);
    nanoseconds_.fetch_add(static_cast<std::uint64_t>(took.count()), std::memory_order_relaxed);
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::atomic<std::uint64_t>& nanoseconds_;
  const Clock::time_point begin_ = Clock::now();
};

}  // namespace moe::dist
