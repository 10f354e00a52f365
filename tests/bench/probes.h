// What the machine can do right now: read bandwidth and the rate of the int8 dot product, measured in the same
// binary and between the repetitions of what is compared with them (spec: ratios to same-run probes).
#pragma once

#include <cstddef>

namespace moe::bench {

// GB/s of reading 512 MiB of huge-page memory with `threads` threads, 64-byte loads, prefetch 8 KiB ahead.
double read_bandwidth(int threads);

// TOPS (multiply and add counted) of vpdpbusd in registers on `threads` threads; 0 without AVX-512 VNNI.
double dot_peak(int threads);

// Involuntary context switches of this process so far: a repetition in which it grew is disturbed.
long involuntary_switches();

double seconds();  // a steady clock

}  // namespace moe::bench
