// MOE_LOAD_*.
#pragma once

#include <moe/moe.h>

#include <cstdint>

#include "io/packed.h"

namespace moe::api {

constexpr std::uint64_t kLoadFlags = MOE_LOAD_MMAP | MOE_LOAD_PREFAULT | MOE_LOAD_VERIFY;

inline LoadFlags load_flags(std::uint64_t flags) {
  return {.mmap = (flags & MOE_LOAD_MMAP) != 0,
          .prefault = (flags & MOE_LOAD_PREFAULT) != 0,
          .verify = (flags & MOE_LOAD_VERIFY) != 0};
}

}  // namespace moe::api
