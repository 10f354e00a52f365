// A loop over experts on several threads. The fault of the first bad expert is the answer for every number of threads:
// a fault stops the ones behind it, not those before.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

#include "base/control.h"
#include "base/index.h"
#include "base/parallel.h"
#include "base/result.h"

namespace moe {

class FirstFault {
 public:
  void note(std::int64_t expert, Error error) {
    const std::lock_guard lock(mutex_);
    if (expert >= expert_.load(std::memory_order_relaxed)) return;
    expert_.store(expert, std::memory_order_relaxed);
    error_ = std::move(error);
  }
  bool before(std::int64_t expert) const { return expert_.load(std::memory_order_relaxed) < expert; }
  std::optional<Error>& error() { return error_; }

 private:
  std::mutex mutex_;
  std::atomic<std::int64_t> expert_{INT64_MAX};
  std::optional<Error> error_;
};

inline std::size_t workers_for(std::int64_t experts, const Parallel& parallel) {
  return usize(std::clamp<std::int64_t>(experts, 1, std::max(parallel.num_threads, 1)));
}

// Check body(std::size_t worker, std::int64_t expert) for [begin, end), each worker's in ascending order. A control
// that is cancelled ends it early; the caller asks the control.
template <class Body>
Check each_expert(std::int64_t begin, std::int64_t end, std::size_t workers, const Parallel& parallel,
                  const Control* control, const Body& body) {
  FirstFault fault;
  std::atomic<std::int64_t> next{begin};
  auto work = [&](std::size_t worker) {
    for (std::int64_t e; (e = next.fetch_add(1, std::memory_order_relaxed)) < end;) {
      if (fault.before(e) || (control != nullptr && control->cancelled())) return;
      try {  // nothing may leave by exception
        Check done = body(worker, e);
        if (!done) fault.note(e, std::move(done.error()));
      } catch (const std::bad_alloc&) {
        fault.note(e, Error{Code::out_of_memory, "out of memory", {}, {}});
      }
    }
  };
  MOE_CHECK(parallel.each(workers, work));
  if (fault.error()) return std::move(*fault.error());
  return ok();
}

}  // namespace moe
