// Threads with the smallest stack that the library promises to do with: 64 KiB as pthread_attr_setstacksize gives them,
// of which the thread's own data (thread-local variables, of the whole process) takes a part.
#pragma once

#include <gtest/gtest.h>
#include <pthread.h>

#include <cstddef>
#include <cstring>

#include "support/rooms.h"
#include "support/sanitizers.h"

namespace moe::test {

// The frames of debug and sanitizer builds are larger. There a body only runs, on a larger stack.
#if defined(NDEBUG) && !MOE_SANITIZED
constexpr bool kReleaseFrames = true;
#else
constexpr bool kReleaseFrames = false;
#endif
constexpr std::size_t kSmallStack = std::size_t{64} << 10, kLargeStack = std::size_t{8} << 20;
// What the library may use of it: a host's signal handlers run on the same stack.
constexpr std::size_t kMostUsed = kSmallStack / 4 * 3;

// What a thread did not write to keeps its paint, from the end of the stack on.
class PaintedStack {
 public:
  [[gnu::noinline]] void paint() {
    pthread_attr_t attributes;
    void* low = nullptr;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
    if (pthread_attr_getstack(&attributes, &low, &size_) == 0) low_ = static_cast<unsigned char*>(low);
    pthread_attr_destroy(&attributes);
    auto* const here = static_cast<unsigned char*>(__builtin_frame_address(0)) - 1024;  // behind this function's frame
    if (low_ != nullptr && here > low_) std::memset(low_, kPaint, static_cast<std::size_t>(here - low_));
  }
  // Bytes from the first place that was written to the other end, the thread's data among them.
  [[gnu::noinline]] std::size_t used() const {
    std::size_t untouched = 0;
    while (untouched < size_ && low_[untouched] == kPaint) ++untouched;
    return size_ - untouched;
  }

 private:
  static constexpr unsigned char kPaint = 0xb7;
  unsigned char* low_ = nullptr;
  std::size_t size_ = 0;
};

// Runs body() on such a thread, which it kills if it needs more. The bytes of the stack that were used; 0 where frames
// are those of another build.
template <class Body>
std::size_t on_small_stack(Body&& body) {
  struct Job {
    Body& body;
    std::size_t used;
  } job{body, 0};
  pthread_attr_t attributes;
  pthread_t thread;
  EXPECT_EQ(pthread_attr_init(&attributes), 0);
  EXPECT_EQ(pthread_attr_setstacksize(&attributes, kReleaseFrames ? kSmallStack : kLargeStack), 0);
  const auto run = [](void* p) -> void* {
    auto& of = *static_cast<Job*>(p);
    PaintedStack stack;
    if (kReleaseFrames) stack.paint();
    of.body();
    if (kReleaseFrames) of.used = stack.used();
    return nullptr;
  };
  const int created = pthread_create(&thread, &attributes, run, &job);
  EXPECT_EQ(created, 0);
  if (created == 0) pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  return job.used;
}

}  // namespace moe::test
