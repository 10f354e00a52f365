// What the machine can do right now: read bandwidth and the peak rates of the instructions that kernels multiply with,
// measured in the same binary and between the repetitions of what is compared with them (ratios to same-run probes).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/platform.h"
#include "kernels/kernel_ids.h"
#include "support/rooms.h"

namespace moe::bench {

// GB/s of reading huge-page memory that no cache holds, with `threads` threads, 64-byte loads, prefetch 8 KiB ahead.
double read_bandwidth(int threads);

// One after another the parts of that memory, kPartBytes each (1 to 2 ms of reading, less than a time slice), and what
// the probe does to one.
inline constexpr std::size_t kPartBytes = std::size_t{32} << 20;
const std::byte* next_part();
void read_part(const std::byte* part);

// A loop of one multiplying instruction on registers.
struct PeakProbe {
  const char* name;
  Isa isa;
  double ops_per_round;  // multiply and add counted
  void (*loop)(std::int64_t rounds);
  std::int64_t rounds;  // about 2 ms
};
// Those that this processor runs and the system permits, whatever MOE_MAX_ISA says; fastest last.
std::span<const PeakProbe* const> peak_probes();
// TOPS on `threads` threads.
double peak(const PeakProbe& probe, int threads);
// The probe that bounds a kernel: by what its activations are and by its instruction set; nullptr: none.
const PeakProbe* probe_of(const KernelId& kernel);

// Involuntary context switches of this process so far: a repetition in which it grew is disturbed.
long involuntary_switches();
// How long the host of a virtual machine gave the processors to others so far, of all processors together; 0 where
// Linux does not tell. Reading it takes long enough for idle threads to fall asleep.
double stolen_seconds();

double seconds();  // a steady clock
int cpu_count();   // that this process may use

}  // namespace moe::bench
