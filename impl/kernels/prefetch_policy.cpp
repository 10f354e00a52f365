// How machines like to be asked, measured with few tokens by moe_bench --benchmark_filter='stream/'. The first row that
// fits counts.
#include "kernels/prefetch_policy.h"

#include <string_view>

#include "base/cpu_features.h"
#include "base/os/hardware.h"

namespace moe::kernels {
namespace {

constexpr long kAnySize = 0, kLarge = 32 * 1024 + 1;  // of the L1

struct MachinePolicy {
  std::string_view vendor;  // "": any
  long l1_bytes;            // at least
  PrefetchPolicy prefetch;
};
// clang-format off
constexpr MachinePolicy kMachines[] = {
    // Emerald Rapids. A single token in order: -33 %
    {"GenuineIntel", kLarge,   {.ahead = 8192, .into_l2 = true}},
    // Zen 5. Two panels as two streams: +20 %
    {"AuthenticAMD", kLarge,   {.ahead = 8192, .pairs = true}},
    {"",             kLarge,   {.ahead = 8192}},
    // Zen 4. A single token in order: +10 to +33 %; 8 KB ahead: -10 %
    {"AuthenticAMD", kAnySize, {.ahead = 4096, .in_order = true}},
    {"",             kAnySize, {.ahead = 4096}},
};
// clang-format on

}  // namespace

PrefetchPolicy prefetch_policy_here() {
  const CpuFacts facts = cpu_facts();
  const long l1 = l1_bytes();
  for (const MachinePolicy& m : kMachines)
    if ((m.vendor.empty() || m.vendor == facts.vendor) && l1 >= m.l1_bytes) return m.prefetch;
  return {};
}

}  // namespace moe::kernels
