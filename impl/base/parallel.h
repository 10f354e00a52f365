// The one way to run work on several threads: run task(arg, i) for each i in [0, count), return when
// all are done. Tasks never wait for each other, so running them one after another is always right.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include "base/index.h"
#include "base/result.h"

namespace moe {

using TaskFn = void (*)(void* arg, std::size_t index);

// Threads that a caller lends may fail to run every task (Code::callback): each use hands that on, and what the tasks
// should have written is unspecified. Own threads do not fail.
struct Parallel {
  int num_threads = 1;  // how many tasks can run at once
  void* self = nullptr;
  Check (*run)(void* self, std::size_t count, TaskFn task, void* arg) = nullptr;  // nullptr: on this thread
  bool also_single = false;  // `run` does more than spread work (floating-point modes): give it single tasks too

  Check operator()(std::size_t count, TaskFn task, void* arg) const {
    if (run != nullptr && count > (also_single ? 0u : 1u)) return run(self, count, task, arg);
    for (std::size_t i = 0; i < count; ++i) task(arg, i);
    return ok();
  }
  // The same for a lambda `body(std::size_t index)`; must not throw.
  template <class F>
  Check each(std::integral auto count, F& body) const {
    return (*this)(
        usize(count), [](void* p, std::size_t i) { (*static_cast<F*>(p))(i); }, &body);
  }
  // body(part, begin, end) for nearly equal parts of [0, count), in the same places for any number of threads.
  template <class F>
  Check parts(std::int64_t count, std::int64_t parts, const F& body) const {
    auto task = [&](std::size_t i) {
      const auto part = static_cast<std::int64_t>(i);
      body(part, count * part / parts, count * (part + 1) / parts);
    };
    return each(parts, task);
  }
};

}  // namespace moe
