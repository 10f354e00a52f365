// Tests, benchmarks and fuzzers use the names of every room (impl/base/rooms.h).
#pragma once

#include "base/rooms.h"

#define MOE_ALL_ROOMS      \
  using namespace config;  \
  using namespace vllm;    \
  using namespace hf;      \
  using namespace oracle;  \
  using namespace convert; \
  using namespace kernels; \
  using namespace io;      \
  using namespace weights; \
  using namespace run;     \
  using namespace bind;

namespace moe::test {
MOE_ALL_ROOMS
}
namespace moe::bench {
MOE_ALL_ROOMS
}
namespace moe::fuzz {
MOE_ALL_ROOMS
}

#undef MOE_ALL_ROOMS
