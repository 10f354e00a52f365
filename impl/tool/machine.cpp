// Facts of the machine from /proc, /sys and cgroups. What the library itself detects (instruction sets, cores) comes
// from moe_platform_to_json and moe_context_to_json.
#include "tool/machine.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string_view>

namespace moe_tool {
namespace {

std::string first_line(const std::string& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc{} || end == text.data()) return std::nullopt;
  return out;
}

// The value behind "key:" in a file of such lines, without the blanks before it.
std::string value_of(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::size_t end = line.find_last_not_of(" \t", colon == 0 ? 0 : colon - 1);
    if (std::string_view(line).substr(0, end + 1) != key) continue;
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

std::uint64_t kilobytes(const char* path, std::string_view key) {
  return 1024 * number(value_of(path, key)).value_or(0);
}

// Bytes of files that a control group has in memory. It counts them as used, but the system drops them where a program
// needs memory: a model that was read once would else leave nothing free.
std::uint64_t file_bytes(const std::string& path, bool version2) {
  std::uint64_t bytes = 0;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    for (const char* key : {"inactive_file ", "active_file "})
      if (const std::string name = (version2 ? "" : "total_") + std::string(key); line.starts_with(name))
        bytes += number(std::string_view(line).substr(name.size())).value_or(0);
  return bytes;
}

// Limit and use of the control groups from this process's own up to the root; version 2, else version 1.
struct GroupMemory {
  std::optional<std::uint64_t> limit, left;
};
GroupMemory group_memory() {
  GroupMemory out;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool version2 = controllers.empty();
    if (!version2 && controllers != "memory") continue;
    const std::string root = version2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    std::string path = line.substr(second + 1);
    for (;;) {
      const std::string folder = root + (path == "/" ? "" : path) + "/";
      const auto limit = number(first_line(folder + (version2 ? "memory.max" : "memory.limit_in_bytes")));
      const auto used = number(first_line(folder + (version2 ? "memory.current" : "memory.usage_in_bytes")));
      if (limit && *limit < std::uint64_t{1} << 60U) {
        out.limit = std::min(out.limit.value_or(*limit), *limit);
        const std::uint64_t held =
            used.value_or(0) - std::min(used.value_or(0), file_bytes(folder + "memory.stat", version2));
        const std::uint64_t left = *limit - std::min(*limit, held);
        out.left = std::min(out.left.value_or(left), left);
      }
      const std::size_t slash = path.find_last_of('/');
      if (slash == std::string::npos || path.size() <= 1) break;
      path.resize(std::max<std::size_t>(slash, 1));
    }
  }
  return out;
}

}  // namespace

MemoryState memory_state() {
  MemoryState out;
  out.total = kilobytes("/proc/meminfo", "MemTotal");
  out.available = kilobytes("/proc/meminfo", "MemAvailable");
  if (struct sysinfo info = {}; out.total == 0 && sysinfo(&info) == 0) {  // without /proc
    out.total = std::uint64_t{info.mem_unit} * info.totalram;
    out.available = std::uint64_t{info.mem_unit} * (info.freeram + info.bufferram);
  }
  const GroupMemory group = group_memory();
  if (group.limit && *group.limit < out.total) out.limit = group.limit;
  if (group.left) out.available = std::min(out.available, *group.left);
  return out;
}

std::string processor_name() {
  for (const std::string_view key : {"model name", "Model", "cpu model"})
    if (std::string value = value_of("/proc/cpuinfo", key); !value.empty()) return value;
  return "";
}

std::uint64_t last_level_cache_bytes() {
  std::uint64_t bytes = 0;
  std::set<std::string> seen;  // processors that share one cache
  for (long cpu = 0; cpu < sysconf(_SC_NPROCESSORS_CONF); ++cpu) {
    std::uint64_t largest = 0;
    std::string sharers;
    for (int index = 0; index < 8; ++index) {
      const std::string folder = fmt::format("/sys/devices/system/cpu/cpu{}/cache/index{}/", cpu, index);
      const std::string text = first_line(folder + "size");
      std::uint64_t size = number(text).value_or(0);
      if (text.ends_with('K')) size *= 1024;
      if (text.ends_with('M')) size *= 1024 * 1024;
      if (size <= largest) continue;
      largest = size;
      sharers = first_line(folder + "shared_cpu_list");
    }
    if (seen.insert(sharers).second) bytes += largest;
  }
  return bytes;
}

double load_average() {
  double load = 0;
  return getloadavg(&load, 1) == 1 ? load : 0;
}

std::uint64_t peak_memory_bytes() {
  rusage usage = {};
  return getrusage(RUSAGE_SELF, &usage) == 0 ? 1024 * static_cast<std::uint64_t>(usage.ru_maxrss) : 0;
}

std::string busy_warning(int threads) {
  const long processors = sysconf(_SC_NPROCESSORS_ONLN);
  const double load = load_average();
  const double free = static_cast<double>(processors) - load;
  if (processors <= 0 || free >= 0.75 * std::min<double>(threads, static_cast<double>(processors))) return "";
  return fmt::format("load average {:.1f} on {} processors: other programs run, figures will be low", load, processors);
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace moe_tool
