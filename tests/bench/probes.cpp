// The probes' tables, memory and threads. See probes.h. Threads are started per call and joined: nothing of them is
// left while a layer runs.
#include "bench/probes.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include "bench/probes_x86.h"
#include "kernels/x86/amx.h"
#include "support/rooms.h"
#endif

namespace moe::bench {
namespace {

// --- memory that no cache holds ------------------------------------------------------------------------

struct ProbeMemory {
  std::byte* data;
  std::size_t parts;

  ProbeMemory() {
    const auto l3 = static_cast<std::size_t>(std::max(sysconf(_SC_LEVEL3_CACHE_SIZE), 0L));
    parts = 16 + 2 * l3 / kPartBytes;  // walked before one comes again
    data = static_cast<std::byte*>(std::aligned_alloc(std::size_t{2} << 20, parts * kPartBytes));
    (void)madvise(data, parts * kPartBytes, MADV_HUGEPAGE);
    std::memset(data, 0x3c, parts * kPartBytes);  // as numbers of any type: ordinary ones
  }
};

#if !defined(__x86_64__)
void read_plain(const std::byte* p, std::size_t n) {
  std::uint64_t sum = 0, v;
  for (std::size_t i = 0; i < n; i += 8) {
    std::memcpy(&v, p + i, 8);
    sum ^= v;
  }
  volatile std::uint64_t sink = sum;
  (void)sink;
}
#endif

const Platform& host() {
  static const Platform platform = *detect_platform("");  // "": no cap, so no bad one
  return platform;
}

// --- threads ---------------------------------------------------------------------------------------------

// Median over `rounds` rounds of the time from the first start to the last end of body(thread). A round in which the
// system took a processor away is repeated, as long as there are others.
double timed(int threads, int rounds, const std::function<void(int)>& body) {
  std::vector<double> times, kept;
  std::barrier<> line(threads);
  std::vector<double> begin(static_cast<std::size_t>(threads)), end(begin);
  while (kept.size() < static_cast<std::size_t>(rounds) && times.size() < 4 * static_cast<std::size_t>(rounds)) {
    const auto work = [&](int i) {
      line.arrive_and_wait();
      begin[static_cast<std::size_t>(i)] = seconds();
      body(i);
      end[static_cast<std::size_t>(i)] = seconds();
    };
    const long before = involuntary_switches();
    std::vector<std::thread> pool;
    for (int i = 1; i < threads; ++i) pool.emplace_back(work, i);
    work(0);
    for (std::thread& t : pool) t.join();
    times.push_back(*std::max_element(end.begin(), end.end()) - *std::min_element(begin.begin(), begin.end()));
    if (involuntary_switches() == before) kept.push_back(times.back());
  }
  std::vector<double>& chosen = kept.empty() ? times : kept;
  std::sort(chosen.begin(), chosen.end());
  return chosen[chosen.size() / 2];
}

// --- peaks -----------------------------------------------------------------------------------------------

#if defined(__x86_64__)
// clang-format off
constexpr PeakProbe kFma256{"fma256",    Isa::avx2,       12 * 8 * 2.0,       loop_fma256,   600000};
constexpr PeakProbe kFma512{"fma512",    Isa::avx512vnni, 12 * 16 * 2.0,      loop_fma512,   600000};
constexpr PeakProbe kMadd  {"maddubs",   Isa::avx2,       12 * 32 * 2.0,       loop_maddubs,  600000};
constexpr PeakProbe kVnni256{"vnni256",  Isa::avxvnni,    12 * 32 * 2.0,      loop_vnni256,  600000};
constexpr PeakProbe kVnni512{"vnni512",  Isa::avx512vnni, 12 * 64 * 2.0,      loop_vnni512,  600000};
constexpr PeakProbe kDpBf16{"dpbf16",    Isa::avx512bf16, 12 * 32 * 2.0,      loop_dpbf16,   600000};
constexpr PeakProbe kAmxInt8{"amxint8",  Isa::amxint8,    4 * 16 * 16 * 128.0, loop_amx_int8, 80000};
constexpr PeakProbe kAmxBf16{"amxbf16",  Isa::amxbf16,    4 * 16 * 16 * 64.0, loop_amx_bf16, 80000};
// clang-format on
constexpr const PeakProbe* kPeaks[] = {&kFma256, &kFma512,  &kDpBf16,  &kAmxBf16,
                                       &kMadd,   &kVnni256, &kVnni512, &kAmxInt8};

// Rows of 16 bits are measured by the unit that would multiply such values as floats.
enum class Operand : std::uint8_t { int8, sixteen, bf16, f32 };
Operand operand(ActFormat act) {
  if (act == ActFormat::bf16) return Operand::bf16;
  if (act == ActFormat::blk16) return Operand::sixteen;
  return act == ActFormat::f32 || act == ActFormat::f16 ? Operand::f32 : Operand::int8;
}
struct Bound {
  Operand operand;
  Isa isa;
  const PeakProbe* probe;
};
constexpr Bound kBounds[] = {
    {Operand::int8, Isa::avx2, &kMadd},
    {Operand::int8, Isa::avxvnni, &kVnni256},
    {Operand::int8, Isa::avx512vnni, &kVnni512},
    {Operand::int8, Isa::amxint8, &kAmxInt8},
    {Operand::bf16, Isa::avx512bf16, &kDpBf16},
    {Operand::bf16, Isa::amxbf16, &kAmxBf16},
    {Operand::f32, Isa::avx2, &kFma256},
    {Operand::f32, Isa::avx512vnni, &kFma512},
    {Operand::sixteen, Isa::avx2, &kFma256},
    {Operand::sixteen, Isa::avxvnni, &kFma256},
    {Operand::sixteen, Isa::avx512vnni, &kDpBf16},
    {Operand::sixteen, Isa::avx512vnni, &kFma512},
    {Operand::sixteen, Isa::amxint8, &kAmxBf16},
};
#endif

}  // namespace

int cpu_count() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

long involuntary_switches() {
  rusage u{};
  getrusage(RUSAGE_SELF, &u);
  return u.ru_nivcsw;
}

double stolen_seconds() {
  std::ifstream stat("/proc/stat");
  std::string cpu;
  long ticks = 0;
  stat >> cpu;
  for (int column = 0; column < 8; ++column) stat >> ticks;  // user nice system idle iowait irq softirq steal
  return stat ? static_cast<double>(ticks) / static_cast<double>(sysconf(_SC_CLK_TCK)) : 0;
}

const std::byte* next_part() {
  static const ProbeMemory memory;
  static std::atomic<std::size_t> next = 0;
  return memory.data + next++ % memory.parts * kPartBytes;
}

void read_part(const std::byte* part) {
#if defined(__x86_64__)
  static const auto read = host().runs(Isa::avx512vnni) ? read_avx512 : read_avx2;
#else
  constexpr auto read = read_plain;
#endif
  read(part, kPartBytes);
}

double read_bandwidth(int threads) {
  next_part();  // the memory is made now
  const double t = timed(threads, 7, [](int) { read_part(next_part()); });
  return static_cast<double>(kPartBytes) * threads / t / 1e9;
}

std::span<const PeakProbe* const> peak_probes() {
  static const std::vector<const PeakProbe*> probes = [] {
    std::vector<const PeakProbe*> out;
#if defined(__x86_64__)
    for (const PeakProbe* p : kPeaks) {
      const bool amx = p->isa == Isa::amxint8 || p->isa == Isa::amxbf16;
      if (host().runs(p->isa) && (!amx || permit_amx())) out.push_back(p);
    }
#endif
    return out;
  }();
  return probes;
}

double peak(const PeakProbe& probe, int threads) {
  const double t = timed(threads, 5, [&probe](int) { probe.loop(probe.rounds); });
  return static_cast<double>(probe.rounds) * probe.ops_per_round * threads / t / 1e12;
}

const PeakProbe* probe_of(const KernelId& kernel) {
#if defined(__x86_64__)
  for (const Bound& b : kBounds)
    if (b.operand == operand(kernel.act) && b.isa == kernel.isa)
      for (const PeakProbe* p : peak_probes())
        if (p == b.probe) return p;
#endif
  (void)kernel;
  return nullptr;
}

}  // namespace moe::bench
