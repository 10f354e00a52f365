// AArch64 features from the kernel's HWCAP words (they cover the processor and the operating system),
// vendor and model from the identification register that Linux shows in /sys.
#if defined(__aarch64__)
#include <sys/auxv.h>

#include <array>
#include <charconv>
#include <cstdint>

#include "base/cpu_features.h"
#include "base/os/topology.h"

namespace moe {
namespace {

struct Bit {
  Feature feature;
  unsigned long word;  // AT_HWCAP or AT_HWCAP2
  unsigned bit;
};

// Numbers of the kernel's ABI (asm/hwcap.h), written out because old headers lack the newer names.
// clang-format off
constexpr std::array<Bit, 9> kBits = {{
    {Feature::neon,    AT_HWCAP,   1},   // ASIMD
    {Feature::fp16,    AT_HWCAP,  10},   // ASIMDHP
    {Feature::dotprod, AT_HWCAP,  20},   // ASIMDDP
    {Feature::sve,     AT_HWCAP,  22},
    {Feature::sve2,    AT_HWCAP2,  1},
    {Feature::i8mm,    AT_HWCAP2, 13},
    {Feature::bf16,    AT_HWCAP2, 14},
    {Feature::sme,     AT_HWCAP2, 23},
    {Feature::sme2,    AT_HWCAP2, 37},
}};

struct Implementer {
  unsigned id;
  const char* name;
};
constexpr std::array<Implementer, 9> kImplementers = {{
    {0x41, "ARM"}, {0x42, "Broadcom"}, {0x46, "Fujitsu"}, {0x48, "HiSilicon"}, {0x4e, "NVIDIA"},
    {0x51, "Qualcomm"}, {0x61, "Apple"}, {0x6d, "Microsoft"}, {0xc0, "Ampere"},
}};
// clang-format on

}  // namespace

CpuFacts cpu_facts() {
  CpuFacts facts;
  for (const Bit& b : kBits)
    if (((getauxval(b.word) >> b.bit) & 1u) != 0) add(facts.features, b.feature);

  const auto midr = read_fact("/sys/devices/system/cpu/cpu0/regs/identification/midr_el1");  // "0x00000000410fd0c1"
  std::uint64_t id = 0;
  if (midr && midr->size() > 2) (void)std::from_chars(midr->data() + 2, midr->data() + midr->size(), id, 16);
  if (id == 0) return facts;
  for (const Implementer& i : kImplementers)
    if (i.id == ((id >> 24) & 0xff)) facts.vendor = i.name;
  std::array<char, 8> part{};
  const auto end = std::to_chars(part.data(), part.data() + part.size(), (id >> 4) & 0xfff, 16).ptr;
  facts.model = "part 0x" + std::string(part.data(), end);
  return facts;
}

}  // namespace moe
#endif
