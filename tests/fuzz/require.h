// What a fuzz target demands: a broken promise ends the program in every build.
#pragma once

#include <cstdio>
#include <cstdlib>

#define MOE_REQUIRE(condition)                                                     \
  do {                                                                             \
    if (!(condition)) {                                                            \
      std::fprintf(stderr, "%s:%d: broken: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                \
    }                                                                              \
  } while (false)
