// Waiting for another thread: the short spin before sleep (base/os/thread.h).
#pragma once

#include <chrono>

namespace moe::run {

inline void spin_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// True as soon as done() is, false after spin_us. The clock is read every 32 turns only.
template <class F>
bool spin_until(int spin_us, F done) {
  if (done()) return true;
  if (spin_us <= 0) return false;
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(spin_us);
  do {
    for (int i = 0; i < 32; ++i) {
      if (done()) return true;
      spin_pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

}  // namespace moe::run
