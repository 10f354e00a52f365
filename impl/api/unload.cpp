// libmoe.so alone, where the C++ runtime is inside it (MOE_BUNDLE_LIBSTDCXX): gives back what the runtime keeps for the
// day that there is no memory to throw with. Each load of the library allocates it, and nothing else ever frees it.
#include "base/float_rules.h"

namespace __gnu_cxx {
// Weak: another runtime has none. Hidden: it is never the one of the program's own runtime.
[[gnu::weak, gnu::visibility("hidden")]] void __freeres();
}  // namespace __gnu_cxx

namespace {
// The lowest priority there is: after the destructors of all objects, which may throw and catch.
[[gnu::destructor(101)]] void free_exception_pool() {
  if (&__gnu_cxx::__freeres != nullptr) __gnu_cxx::__freeres();
}
}  // namespace
