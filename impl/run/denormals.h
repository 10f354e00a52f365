// Flush-to-zero for the duration of a scope: results and operands below 2^-126 count as 0, as slow
// denormals never appear. Restores the thread's state, whatever it was. KeepDenormals is the opposite scope.
#pragma once

#include <cstdint>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace moe::run {

#if defined(__x86_64__)
using FloatState = std::uint32_t;          // MXCSR
constexpr FloatState kFlushBits = 0x8040;  // FTZ (results) and DAZ (operands)
inline FloatState float_state() { return _mm_getcsr(); }
inline void set_float_state(FloatState s) { _mm_setcsr(s); }
#elif defined(__aarch64__)
using FloatState = std::uint64_t;                          // FPCR
constexpr FloatState kFlushBits = std::uint64_t{1} << 24;  // FZ
inline FloatState float_state() {
  FloatState s;
  __asm__ volatile("mrs %0, fpcr" : "=r"(s));
  return s;
}
inline void set_float_state(FloatState s) { __asm__ volatile("msr fpcr, %0" : : "r"(s)); }
#else
using FloatState = std::uint32_t;
constexpr FloatState kFlushBits = 0;
inline FloatState float_state() { return 0; }
inline void set_float_state(FloatState) {}
#endif

class FlushDenormals {
 public:
  FlushDenormals() : before_(float_state()) { set_float_state(before_ | kFlushBits); }
  ~FlushDenormals() { set_float_state(before_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  FloatState before_;
};

class KeepDenormals {
 public:
  KeepDenormals() : before_(float_state()) {
    if ((before_ & kFlushBits) != 0) set_float_state(before_ & ~kFlushBits);
  }
  ~KeepDenormals() {
    if ((before_ & kFlushBits) != 0) set_float_state(before_);
  }
  KeepDenormals(const KeepDenormals&) = delete;
  KeepDenormals& operator=(const KeepDenormals&) = delete;

 private:
  FloatState before_;
};

}  // namespace moe::run
