// What this machine is and has left: its processor, memory, limits and load, and how fast its memory is read.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace moe_tool {

struct MemoryState {
  std::uint64_t total = 0;             // of the machine
  std::uint64_t available = 0;         // what can be taken without swapping, within `limit`
  std::optional<std::uint64_t> limit;  // of the control group that this process is in
};
MemoryState memory_state();

std::string processor_name();            // "Intel(R) Xeon(R) ...", "" where the system does not say
std::uint64_t last_level_cache_bytes();  // of all of them together; 0 where the system does not say
double load_average();                   // of the last minute; 0 where the system does not say
std::uint64_t peak_memory_bytes();       // of this process

// Load that others make: figures taken now are low. The text says so, and is empty on a quiet machine.
std::string busy_warning(int threads);

struct Bandwidth {
  double bytes_a_second = 0;  // median of the passes
  double spread = 0;          // (largest - smallest) / median
  int threads = 0;            // that read: fewer than asked for where no more can be started
};
// Reads a block that is larger than the caches, each thread its own part of it, for about `seconds`.
Bandwidth read_bandwidth(int threads, double seconds);

double seconds_now();  // of a clock that only goes forward

}  // namespace moe_tool
