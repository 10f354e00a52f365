// Cancellation and progress of one or more long calls. cancel() and the counters are lock-free
// atomics: safe in signal handlers and from any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/result.h"

namespace moe {

class Control {
 public:
  using ProgressFn = std::int32_t (*)(void* user, std::uint64_t done, std::uint64_t total);
  using ReleaseFn = void (*)(void* user);

  Control(ProgressFn progress, void* user, ReleaseFn destroy) : progress_(progress), user_(user), destroy_(destroy) {}
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;
  ~Control() {
    if (destroy_ != nullptr) destroy_(user_);
  }

  void cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }
  std::uint64_t done() const { return done_.load(std::memory_order_relaxed); }
  std::uint64_t total() const { return total_.load(std::memory_order_relaxed); }

  // Notes the counters only: for worker threads.
  void note(std::uint64_t done, std::uint64_t total) {
    done_.store(done, std::memory_order_relaxed);
    total_.store(total, std::memory_order_relaxed);
  }
  // Notes the counters and asks the callback; only on the thread that made the call. total 0: only asks.
  Check report(std::uint64_t done, std::uint64_t total) {
    if (total != 0) note(done, total);
    if (cancelled()) return fail(Code::cancelled, "", "the call was cancelled");
    if (progress_ == nullptr || total == 0) return ok();
    const std::int32_t s = progress_(user_, done, total);
    if (s == 0) return ok();
    cancel();
    if (s == static_cast<std::int32_t>(Code::cancelled))
      return fail(Code::cancelled, "", "the progress callback cancelled the call");
    return callback_failed(s);
  }

 private:
  static Error callback_failed(std::int32_t status);

  std::atomic<bool> cancelled_{false};
  std::atomic<std::uint64_t> done_{0}, total_{0};
  ProgressFn progress_;
  void* user_;
  ReleaseFn destroy_;
};

// nullptr is a control that is never cancelled.
inline Check report(Control* control, std::uint64_t done, std::uint64_t total) {
  return control == nullptr ? ok() : control->report(done, total);
}

}  // namespace moe
