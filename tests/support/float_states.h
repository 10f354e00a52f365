// Floating-point states that a host may be in: flushing, the other roundings, traps. Each is set for a scope.
#pragma once

#include <cfenv>
#include <cstdint>
#include <vector>

#include "base/float_state.h"
#include "support/rooms.h"
#include "support/sanitizers.h"

namespace moe::test {

struct HostFloats {
  const char* name;
  decltype(float_control()) control;
  int rounding = FE_TONEAREST;  // of the C library's functions, too (x87)
};

#if defined(__x86_64__)
// Flags that are up stay up: the library must not lower them, nor raise others.
inline std::vector<HostFloats> host_floats() {
  std::vector<HostFloats> all = {{"FTZ and DAZ", 0x9fc0},
                                 {"FTZ", 0x9f80},
                                 {"DAZ", 0x1fc0},
                                 {"up", 0x5f80, FE_UPWARD},
                                 {"down", 0x3f80, FE_DOWNWARD},
                                 {"towards zero", 0x7f80, FE_TOWARDZERO},
                                 {"a flag that is up", 0x1f84}};
  if (MOE_ASAN != 0 || MOE_TSAN != 0) return all;  // their own code may not trap
  all.push_back({"traps: invalid, division, overflow", 0x1f80 & ~0x680});
  all.push_back({"all traps", 0});
  return all;
}
constexpr std::uint32_t kNormalFloats = 0x1f80;
// Without the flags of exceptions.
inline std::uint32_t float_mode() { return float_control() & ~kFloatFlags; }
#elif defined(__aarch64__)
inline std::vector<HostFloats> host_floats() {
  return {{"flushing", std::uint64_t{1} << 24},
          {"up", std::uint64_t{1} << 22, FE_UPWARD},
          {"down", std::uint64_t{2} << 22, FE_DOWNWARD},
          {"towards zero", std::uint64_t{3} << 22, FE_TOWARDZERO}};
}
constexpr std::uint64_t kNormalFloats = 0;
inline std::uint64_t float_mode() { return float_control(); }
#endif

// Runs f in that state; returns the state that f leaves (control, rounding of the C library).
struct FloatsLeft {
  decltype(float_control()) control;
  int rounding;
};
template <class F>
FloatsLeft within(const HostFloats& floats, F&& f) {
  std::fesetround(floats.rounding);
  set_float_control(floats.control);
  f();
  const FloatsLeft left{float_control(), std::fegetround()};
  set_float_control(kNormalFloats);
  std::fesetround(FE_TONEAREST);
  set_float_control(kNormalFloats);
  return left;
}

}  // namespace moe::test
