// Threads that look after a transport while they compute: MPI moves bytes only while it is called, and only the thread
// that makes the call may do that. Between its tasks it asks `look`, not more often than kEvery.
#pragma once

#include <chrono>
#include <cstddef>

#include "base/os/thread.h"
#include "base/parallel.h"

namespace moe::dist {

template <class Look>
class Polling {
 public:
  Polling(const Parallel& inner, Look look) : inner_(inner), look_(look) {}
  Polling(const Polling&) = delete;
  Polling& operator=(const Polling&) = delete;

  // Valid as long as this is.
  Parallel parallel() { return {inner_.num_threads, this, run, inner_.also_single}; }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::microseconds kEvery{100};
  struct Job {
    Polling& polling;
    TaskFn task;
    void* arg;
  };

  static Check run(void* self, std::size_t count, TaskFn task, void* arg) {
    Job job{*static_cast<Polling*>(self), task, arg};
    return job.polling.inner_(
        count,
        [](void* p, std::size_t i) {
          const Job& j = *static_cast<const Job*>(p);
          j.task(j.arg, i);
          j.polling.tick();
        },
        &job);
  }
  void tick() {
    if (thread_number() != caller_) return;
    const Clock::time_point now = Clock::now();
    if (now < next_) return;
    next_ = now + kEvery;
    look_();
  }

  const Parallel inner_;
  Look look_;
  const std::size_t caller_ = thread_number();
  Clock::time_point next_{};  // the first task's end is a look
};

}  // namespace moe::dist
