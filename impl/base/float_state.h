// The floating-point state of a thread (rounding, traps, flushing of tiny numbers), and scopes that change it. A scope
// restores what was there, with the exception flags that the caller had. Each function of the C interface, each thread
// of a pool and each task on a thread of the host runs in DefaultFloats: the same bits for every caller, and no trap of
// the caller's.
#pragma once

#include <cstdint>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace moe {

#if defined(__x86_64__)
// MXCSR, and the control word of the x87 unit, whose rounding the C library asks for when it reads or prints numbers.
struct FloatState {
  std::uint32_t vector;
  std::uint16_t x87;
};
constexpr std::uint32_t kDefaultFloats = 0x1f80, kFloatFlags = 0x3f;  // to nearest, traps masked
constexpr std::uint32_t kFlushBits = 0x8040;                          // FTZ (results) and DAZ (operands)
constexpr std::uint16_t kDefaultX87 = 0x37f;
inline std::uint32_t float_control() { return _mm_getcsr(); }
inline void set_float_control(std::uint32_t s) { _mm_setcsr(s); }
inline FloatState float_state() {
  FloatState s{_mm_getcsr(), 0};
  __asm__ volatile("fnstcw %0" : "=m"(s.x87));
  return s;
}
inline void set_x87(std::uint16_t word) { __asm__ volatile("fldcw %0" : : "m"(word)); }
inline void set_default_floats(const FloatState& now) {
  if ((now.vector & ~kFloatFlags) != kDefaultFloats) _mm_setcsr(kDefaultFloats);
  if (now.x87 != kDefaultX87) set_x87(kDefaultX87);
}
inline void restore_floats(const FloatState& before) {
  _mm_setcsr(before.vector);
  if (before.x87 != kDefaultX87) set_x87(before.x87);
}
#elif defined(__aarch64__)
struct FloatState {
  std::uint64_t control, flags;  // FPCR, FPSR
};
constexpr std::uint64_t kFlushBits = std::uint64_t{1} << 24;  // FZ
inline std::uint64_t float_control() {
  std::uint64_t s;
  __asm__ volatile("mrs %0, fpcr" : "=r"(s));
  return s;
}
inline void set_float_control(std::uint64_t s) { __asm__ volatile("msr fpcr, %0" : : "r"(s)); }
inline FloatState float_state() {
  FloatState s{float_control(), 0};
  __asm__ volatile("mrs %0, fpsr" : "=r"(s.flags));
  return s;
}
inline void set_default_floats(const FloatState& now) {
  if (now.control != 0) set_float_control(0);
}
inline void restore_floats(const FloatState& before) {
  if (before.control != 0) set_float_control(before.control);
  __asm__ volatile("msr fpsr, %0" : : "r"(before.flags));
}
#else
struct FloatState {};
constexpr std::uint32_t kFlushBits = 0;
inline std::uint32_t float_control() { return 0; }
inline void set_float_control(std::uint32_t) {}
inline FloatState float_state() { return {}; }
inline void set_default_floats(const FloatState&) {}
inline void restore_floats(const FloatState&) {}
#endif

// To nearest, no trap, nothing flushed.
class DefaultFloats {
 public:
  DefaultFloats() : before_(float_state()) { set_default_floats(before_); }
  ~DefaultFloats() { restore_floats(before_); }
  DefaultFloats(const DefaultFloats&) = delete;
  DefaultFloats& operator=(const DefaultFloats&) = delete;

 private:
  FloatState before_;
};

// Results and operands below 2^-126 count as 0, or do not, for the duration of a scope.
template <bool flush>
class Denormals {
 public:
  Denormals() : before_(float_control()) { set_float_control(flush ? before_ | kFlushBits : before_ & ~kFlushBits); }
  ~Denormals() { set_float_control(before_); }
  Denormals(const Denormals&) = delete;
  Denormals& operator=(const Denormals&) = delete;

 private:
  decltype(float_control()) before_;
};
using FlushDenormals = Denormals<true>;
using KeepDenormals = Denormals<false>;

}  // namespace moe
