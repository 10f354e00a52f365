// How kernels ask memory for weights.
//
// With few tokens a layer is a stream through its weights, and its speed is that of memory. How far
// ahead of the use a line must be asked for depends on the machine: its latency times its
// bandwidth, and what its own prefetchers already do. prefetch_policy.cpp has the measured rows.
#pragma once

#include <cstddef>

#include "base/float_rules.h"

namespace moe::kernels {

// Prefetch policy of calls that are bound by memory (few tokens per expert).
struct PrefetchPolicy {
  // Too near, and a line comes late; too far, and it has left the cache again before its use. In
  // whole lines of 64 bytes, because each fetch asks for a line.
  std::ptrdiff_t ahead = 4096;  // bytes of weights between fetch and use, whole lines; 0: nothing is fetched
  // Only rows of prefetch_policy.cpp that were measured to be faster so have it.
  bool into_l2 = false;   // else into L1
  bool in_order = false;  // a single token's are not fetched but read in order, which the hardware foresees
  // Only where several tokens take two panels at once: each stream is then half as far ahead, so
  // that the lines in flight stay the same.
  bool pairs = false;  // two panels at a time are two streams, not a share of the panels to come
};

// Of this machine.
// Asks for CPUID and the size of the L1, so a layer calls it once, when it is made.
PrefetchPolicy prefetch_policy_here();

}  // namespace moe::kernels
