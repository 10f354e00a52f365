// How a program of impl/base/os/glibc_2_28.cpp begins and ends: everything that runs before main() and after it does so
// once, with the C library of this machine. (One without MOE_GLIBC_2_28 does the same.)
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

namespace {

constinit char said[64] = "";

void say(const char* word) { std::strcat(said, word); }

// In the order in which they run; nothing may allocate in the first.
void first(int, char**, char**) { say("first "); }
[[gnu::used, gnu::section(".preinit_array")]] void (*const before)(int, char**, char**) = first;
[[gnu::constructor(101)]] void early() { say("early "); }

[[gnu::constructor(102)]] void arguments(int count, char** arguments, char** environment) {
  if (count == 1 && arguments[0] != nullptr && environment == environ) say("arguments ");
}

struct Static {
  std::string text = "static ";
  Static() { say(text.c_str()); }
  ~Static() { say("unstatic "); }
} object;

// The last that runs: what was said by then.
[[gnu::destructor(101)]] void late() {
  if (std::strcmp(said, "first early arguments static main unstatic ") == 0) return;
  std::fprintf(stderr, "program start: %s\n", said);
  _exit(1);
}

}  // namespace

int main() {
  say("main ");
  Dl_info info = {};
  const void* place = dlsym(RTLD_DEFAULT, "dladdr");
  if (place == nullptr || dladdr(place, &info) == 0 || info.dli_fname == nullptr) return 1;
  try {
    throw std::string(info.dli_fname);
  } catch (const std::string& name) {
    std::printf("dladdr is of %s\n", name.c_str());
  }
  return 0;
}
