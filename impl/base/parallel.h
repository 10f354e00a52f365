// The one way to run work on several threads: run task(arg, i) for each i in [0, count), return when
// all are done. Tasks never wait for each other, so running them one after another is always right.
#pragma once

#include <cstddef>
#include <cstdint>

namespace moe {

using TaskFn = void (*)(void* arg, std::size_t index);

struct Parallel {
  int num_threads = 1;  // how many tasks can run at once
  void* self = nullptr;
  void (*run)(void* self, std::size_t count, TaskFn task, void* arg) = nullptr;  // nullptr: on this thread
  bool also_single = false;  // `run` does more than spread work (floating-point modes): give it single tasks too

  void operator()(std::size_t count, TaskFn task, void* arg) const {
    if (run != nullptr && count > (also_single ? 0u : 1u)) {
      run(self, count, task, arg);
      return;
    }
    for (std::size_t i = 0; i < count; ++i) task(arg, i);
  }
  // The same for a lambda `body(std::size_t index)`; must not throw.
  template <class F>
  void each(std::size_t count, F& body) const {
    (*this)(
        count, [](void* p, std::size_t i) { (*static_cast<F*>(p))(i); }, &body);
  }
  // body(part, begin, end) for nearly equal parts of [0, count), in the same places for any number of threads.
  template <class F>
  void parts(std::int64_t count, std::int64_t parts, const F& body) const {
    auto task = [&](std::size_t i) {
      const auto part = static_cast<std::int64_t>(i);
      body(part, count * part / parts, count * (part + 1) / parts);
    };
    each(static_cast<std::size_t>(parts), task);
  }
};

}  // namespace moe
