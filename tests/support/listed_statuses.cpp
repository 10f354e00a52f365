// Every call of a fallible function by a test goes through here (the linker's --wrap, tests/CMakeLists.txt): a status
// that the function's list does not have ends the program. So no test can pass on one, whatever it expects. Nothing is
// allocated: tests count allocations and make them fail. Calls through the shared library: ffi_library.h.
#include <moe/moe.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>

namespace {

moe_status listed(const char* function, moe_status status, std::initializer_list<moe_status> statuses) {
  if (std::find(statuses.begin(), statuses.end(), status) != statuses.end()) return status;
  std::fprintf(stderr, "%s gave %s, which its list in moe.h does not have\n", function, moe_status_name(status));
  std::abort();
}

}  // namespace

#define MOE_LISTED(name, parameters, arguments, ...) \
  extern "C" moe_status __real_##name parameters;    \
  extern "C" moe_status __wrap_##name parameters;    \
  extern "C" moe_status __wrap_##name parameters { return listed(#name, __real_##name arguments, {__VA_ARGS__}); }
#include "listed_statuses.inc"
