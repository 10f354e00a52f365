// How kernels ask memory for weights.
#pragma once

#include <cstddef>

#include "base/float_rules.h"

namespace moe::kernels {

// Prefetch policy of calls that are bound by memory (few tokens per expert).
struct PrefetchPolicy {
  std::ptrdiff_t ahead = 4096;  // bytes of weights between fetch and use, whole lines; 0: nothing is fetched
  bool into_l2 = false;         // else into L1
  bool in_order = false;        // a single token's are not fetched but read in order, which the hardware foresees
  bool pairs = false;           // two panels at a time are two streams, not a share of the panels to come
};

// Of this machine.
PrefetchPolicy prefetch_policy_here();

}  // namespace moe::kernels
