// Reader of /sys, /proc and cgroups. See topology.h.
#include "base/os/topology.h"

#include <sched.h>
#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <utility>

#include "base/index.h"
#include "base/json.h"
#include "base/os/file.h"
#include "base/os/hardware.h"
#include "base/text.h"

namespace moe {
namespace {

std::string_view trim(std::string_view s) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\0'; };
  while (!s.empty() && blank(s.front())) s.remove_prefix(1);
  while (!s.empty() && blank(s.back())) s.remove_suffix(1);
  return s;
}

// Takes what stands before `mark` off the text (all of it when there is no mark).
std::string_view take_until(std::string_view& text, char mark) {
  const std::size_t n = std::min(text.find(mark), text.size());
  const std::string_view head = text.substr(0, n);
  text.remove_prefix(std::min(n + 1, text.size()));
  return head;
}

std::optional<std::int64_t> number(std::string_view s) {
  s = trim(s);
  std::int64_t v = 0;
  const auto [end, fault] = std::from_chars(s.data(), s.data() + s.size(), v);
  if (fault != std::errc() || end != s.data() + s.size()) return std::nullopt;
  return v;
}

std::optional<std::int64_t> number_in(const std::string& path) {
  const auto text = read_fact(path);
  return text ? number(*text) : std::nullopt;
}

std::optional<CpuList> cpus_in(const std::string& path) {
  const auto text = read_fact(path);
  return text ? parse_cpu_list(*text) : std::nullopt;
}

// "node12" with prefix "node" -> 12, for all names of a directory, ascending.
std::vector<std::int64_t> numbered_entries(const std::string& directory, std::string_view prefix) {
  std::vector<std::int64_t> found;
  const auto names = directory_names(directory);
  if (!names) return found;
  for (std::string_view name : *names) {
    if (name.substr(0, prefix.size()) != prefix) continue;
    name.remove_prefix(prefix.size());
    const auto n = number(take_until(name, 'k'));  // "hugepages-2048kB"
    if (n && *n >= 0) found.push_back(*n);
  }
  std::sort(found.begin(), found.end());
  return found;
}

// The line "MemTotal:   123 kB" of a meminfo file, in bytes. NUMA files put "Node 0 " before the key.
std::optional<std::int64_t> memory_total(const std::string& path) {
  const auto text = read_fact(path);
  if (!text) return std::nullopt;
  const std::size_t at = text->find("MemTotal:");
  if (at == std::string::npos) return std::nullopt;
  std::string_view rest = trim(std::string_view(*text).substr(at + 9));
  const auto kib = number(take_until(rest, ' '));
  if (!kib || *kib < 0 || *kib > INT64_MAX / 1024) return std::nullopt;
  return *kib * 1024;
}

// --- quota ------------------------------------------------------------------------------------------

std::optional<double> ratio(std::optional<std::int64_t> quota, std::optional<std::int64_t> period) {
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

std::optional<double> quota_v2(const std::string& directory) {  // "max 100000" or "150000 100000"
  const auto text = read_fact(directory + "/cpu.max");
  if (!text) return std::nullopt;
  std::string_view rest = *text;
  const auto quota = number(take_until(rest, ' '));
  return ratio(quota, number(rest));
}

std::optional<double> quota_v1(const std::string& directory) {  // -1: no limit
  return ratio(number_in(directory + "/cpu.cfs_quota_us"), number_in(directory + "/cpu.cfs_period_us"));
}

// The smallest quota of `path` and all directories above it. Inside a container the path may be the host's
// and not exist here: its parents then lead to the mount's root, which is the container's own group.
std::optional<double> smallest_on_the_way(const std::string& mount, std::string path,
                                          std::optional<double> (*read)(const std::string&)) {
  std::optional<double> smallest;
  for (;;) {
    while (!path.empty() && path.back() == '/') path.pop_back();
    const auto q = read(mount + path);
    if (q && (!smallest || *q < *smallest)) smallest = q;
    if (path.empty()) return smallest;
    const std::size_t slash = path.rfind('/');
    path.resize(slash == std::string::npos ? 0 : slash);
  }
}

bool lists(std::string_view controllers, std::string_view name) {
  while (!controllers.empty())
    if (take_until(controllers, ',') == name) return true;
  return false;
}

// --- report -----------------------------------------------------------------------------------------

template <class T>
void add_known(json::Writer& w, std::string_view name, const std::optional<T>& value) {
  if (value) w.member(name, *value);
}

// "48K" and "32768K" of index*/size, in bytes: the caches that CPU 0 uses.
void add_caches(json::Writer& w, const std::string& root) {
  json::Object found;
  const std::string base = root + "/sys/devices/system/cpu/cpu0/cache/index";
  for (int i = 0; i < 8; ++i) {
    const std::string dir = cat(base, i);
    const auto type = read_fact(dir + "/type"), size = read_fact(dir + "/size");
    const auto level = number_in(dir + "/level");
    if (!type || !size || !level || size->empty() || *type == "Instruction") continue;
    const std::int64_t unit = size->back() == 'K' ? 1024 : size->back() == 'M' ? 1024 * 1024 : 1;
    const auto count = number(std::string_view(*size).substr(0, size->size() - (unit == 1 ? 0 : 1)));
    if (!count || *count < 0 || *count > INT64_MAX / unit) continue;
    static constexpr std::array<std::string_view, 3> kNames = {"l1d", "l2", "l3"};
    if (*level >= 1 && *level <= 3) found.emplace_back(at(kNames, *level - 1), *count * unit);
  }
  if (!found.empty()) w.member("cache", json::Value(std::move(found)));
}

void add_numa_nodes(json::Writer& w, const std::string& root) {
  const std::string base = root + "/sys/devices/system/node";
  const auto ids = numbered_entries(base, "node");
  if (ids.empty()) return;
  w.key("numa").begin_array();
  for (const std::int64_t id : ids) {
    const std::string dir = cat(base, "/node", id);
    w.begin_object().member("id", id);
    const auto cpus = cpus_in(dir + "/cpulist");
    if (cpus) w.member("cpus", cpu_list_text(*cpus));
    add_known(w, "memory_bytes", memory_total(dir + "/meminfo"));
    w.end_object();
  }
  w.end_array();
}

}  // namespace

std::optional<CpuList> parse_cpu_list(std::string_view text) {
  CpuList cpus;
  text = trim(text);
  if (!text.empty() && text.back() == ',') return std::nullopt;
  while (!text.empty()) {
    std::string_view part = take_until(text, ',');
    const bool range = part.find('-') != std::string_view::npos;
    const std::string_view first_text = take_until(part, '-');
    const auto first = number(first_text), last = range ? number(part) : first;
    if (!first || !last || *first < 0 || *last < *first || *last > kMaxCpu) return std::nullopt;
    for (std::int64_t c = *first; c <= *last; ++c) cpus.push_back(static_cast<int>(c));
    if (cpus.size() > std::size_t{4} * kMaxCpu) return std::nullopt;
  }
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

std::string cpu_list_text(const CpuList& cpus) {
  std::string s;
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t j = i;
    while (j + 1 < cpus.size() && cpus[j + 1] == cpus[j] + 1) ++j;
    if (!s.empty()) s += ",";
    s += std::to_string(cpus[i]);
    if (j > i) s += "-";
    if (j > i) s += std::to_string(cpus[j]);
    i = j + 1;
  }
  return s;
}

std::optional<std::string> read_fact(const std::string& path) {
  struct Close {
    void operator()(std::FILE* f) const { (void)std::fclose(f); }
  };
  const std::unique_ptr<std::FILE, Close> file(std::fopen(path.c_str(), "re"));
  if (file == nullptr) return std::nullopt;
  constexpr std::size_t kLimit = std::size_t{64} << 10;
  std::string text;
  std::array<char, 1024> block{};
  while (text.size() < kLimit) {
    const std::size_t n = std::fread(block.data(), 1, block.size(), file.get());
    text.append(block.data(), n);
    if (n < block.size()) break;
  }
  if (std::ferror(file.get()) != 0) return std::nullopt;
  return std::string(trim(text));
}

CpuList allowed_cpus() {
  CpuList cpus;
  // The kernel refuses masks that are shorter than its own: try larger ones.
  for (std::size_t capacity = 1024; capacity <= std::size_t{kMaxCpu} + 1; capacity *= 4) {
    std::vector<unsigned long> words(capacity / (8 * sizeof(unsigned long)));
    auto* set = reinterpret_cast<cpu_set_t*>(words.data());
    const std::size_t bytes = words.size() * sizeof(unsigned long);
    if (sched_getaffinity(0, bytes, set) != 0) continue;
    for (std::size_t c = 0; c < capacity; ++c)
      if (CPU_ISSET_S(c, bytes, set)) cpus.push_back(static_cast<int>(c));
    break;
  }
  return cpus;
}

std::optional<double> cpu_quota(const std::string& root) {
  // Lines "id:controllers:path"; id 0 without controllers is the unified hierarchy (v2).
  const auto text = read_fact(root + "/proc/self/cgroup");
  std::string_view rest = text ? std::string_view(*text) : std::string_view();
  std::optional<double> smallest;
  const auto note = [&smallest](std::optional<double> q) {
    if (q && (!smallest || *q < *smallest)) smallest = q;
  };
  while (!rest.empty()) {
    std::string_view line = take_until(rest, '\n');
    (void)take_until(line, ':');
    const std::string_view controllers = take_until(line, ':');
    const std::string path(trim(line));
    if (controllers.empty()) {
      note(smallest_on_the_way(root + "/sys/fs/cgroup", path, quota_v2));
    } else if (lists(controllers, "cpu")) {
      for (const std::string& name : {std::string(controllers), std::string("cpu")})
        note(smallest_on_the_way(cat(root, "/sys/fs/cgroup/", name), path, quota_v1));
    }
  }
  return smallest;
}

CpuList one_per_core(const CpuList& cpus, const std::string& root) {
  CpuList first;
  for (int cpu : cpus) {
    const std::string dir = cat(root, "/sys/devices/system/cpu/cpu", cpu, "/topology/");
    auto siblings = cpus_in(dir + "core_cpus_list");
    if (!siblings) siblings = cpus_in(dir + "thread_siblings_list");  // before Linux 5.3
    const bool taken = siblings && std::any_of(siblings->begin(), siblings->end(), [&](int s) {
                         return s < cpu && std::binary_search(cpus.begin(), cpus.end(), s);
                       });
    if (!taken) first.push_back(cpu);
  }
  return first;
}

int NodeMap::here() const {
  const int cpu = count < 2 ? -1 : sched_getcpu();
  return cpu >= 0 && cpu < std::ssize(of_cpu) ? at(of_cpu, cpu) : 0;
}

NodeMap node_map(const CpuList& cpus, const std::string& root) {
  NodeMap map{0, {}};
  const std::string base = root + "/sys/devices/system/node";
  for (const std::int64_t id : numbered_entries(base, "node")) {
    const CpuList of_node = cpus_in(cat(base, "/node", id, "/cpulist")).value_or(CpuList{});
    bool ours = false;
    for (const int cpu : of_node) {
      if (!std::binary_search(cpus.begin(), cpus.end(), cpu)) continue;
      if (std::ssize(map.of_cpu) <= cpu) map.of_cpu.resize(usize(cpu) + 1);
      at(map.of_cpu, cpu) = static_cast<std::uint16_t>(map.count);
      ours = true;
    }
    map.count += ours;
  }
  return map.count < 2 ? NodeMap{} : map;
}

std::string topology_members(const std::string& root) {
  json::Writer w;
  const auto online = cpus_in(root + "/sys/devices/system/cpu/online");
  if (online && !online->empty()) {
    w.member("cores", one_per_core(*online, root).size());
    w.member("threads", online->size());
  }
  const CpuList allowed = allowed_cpus();
  if (!allowed.empty()) w.member("allowed_cpus", cpu_list_text(allowed));
  add_known(w, "quota_cpus", cpu_quota(root));
  add_numa_nodes(w, root);
  add_caches(w, root);
  add_known(w, "memory_bytes", memory_total(root + "/proc/meminfo"));
  std::vector<std::int64_t> pages = {static_cast<std::int64_t>(page_bytes())};
  for (std::int64_t kib : numbered_entries(root + "/sys/kernel/mm/hugepages", "hugepages-"))
    if (kib <= INT64_MAX / 1024) pages.push_back(kib * 1024);
  w.key("page_sizes").array(pages);
  utsname os{};
  if (uname(&os) == 0) w.member("os", cat(os.sysname, " ", os.release));
  return w.take();
}

}  // namespace moe
