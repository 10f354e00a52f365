// What the operating system says about this machine: CPUs that may be used, quota, cores, caches, memory.
//
// Read from /sys, /proc, the affinity mask and cgroups v1 and v2. A file that is missing, empty or
// strange leaves its fact out; nothing here fails. `root` is put before every path: "" for this
// machine, a directory with the same files in tests.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/float_rules.h"

namespace moe {

using CpuList = std::vector<int>;  // ascending, distinct

constexpr int kMaxCpu = 65535;
// "0-3,8" as the kernel writes it; nullopt when it is anything else or names a CPU above kMaxCpu. "" is empty.
std::optional<CpuList> parse_cpu_list(std::string_view text);
std::string cpu_list_text(const CpuList& cpus);

// At most 64 KiB of a file without its trailing white space; nullopt when it cannot be read.
std::optional<std::string> read_fact(const std::string& path);

// The affinity mask of the calling thread; empty when it cannot be asked for.
CpuList allowed_cpus();
// CPUs' worth of time that cgroups leave this process, the smallest on the way to the root; nullopt: no limit.
std::optional<double> cpu_quota(const std::string& root);
// Those of `cpus` that are the first of their physical core.
CpuList one_per_core(const CpuList& cpus, const std::string& root);

// The NUMA nodes that have some of a set of CPUs, numbered from 0 in the order of their ids.
struct NodeMap {
  int count = 1;
  std::vector<std::uint16_t> of_cpu;  // empty: all on one
  int here() const;                   // the node that the calling thread is on at this moment; no system call
};
NodeMap node_map(const CpuList& cpus, const std::string& root);

// "cores", "threads", "allowed_cpus", "quota_cpus", "numa", "cache", "memory_bytes", "page_sizes", "os" as
// JSON members, those that are known, separated by commas.
std::string topology_members(const std::string& root);

}  // namespace moe
