// x86-64 features: CPUID says what the processor has, XGETBV which register state the operating system
// saves. A feature counts only with both: a kernel that does not save ZMM or tile state faults on use.
// Tile state further needs a permission per process, asked for by the layer that wants it (selection.md 2).
#if defined(__x86_64__)
#include <cpuid.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "base/cpu_features.h"

namespace moe {
namespace {

enum Reg : std::uint8_t { eax, ebx, ecx, edx };
using Leaf = std::array<unsigned, 4>;

// State components of XCR0.
constexpr std::uint64_t kYmm = 0x6;          // SSE and AVX
constexpr std::uint64_t kZmm = kYmm | 0xe0;  // and opmask, ZMM_Hi256, Hi16_ZMM
constexpr std::uint64_t kTiles = 0x60000;    // bits 17 (XTILECFG) and 18 (XTILEDATA)

struct Bit {
  Feature feature;
  std::uint8_t leaf, subleaf;
  Reg reg;
  std::uint8_t bit;
  std::uint64_t state;
};

// clang-format off
constexpr std::array<Bit, 15> kBits = {{
    {Feature::fma,         1, 0, ecx, 12, kYmm},
    {Feature::f16c,        1, 0, ecx, 29, kYmm},
    {Feature::avx2,        7, 0, ebx,  5, kYmm},
    {Feature::avx_vnni,    7, 1, eax,  4, kYmm},
    {Feature::avx512f,     7, 0, ebx, 16, kZmm},
    {Feature::avx512bw,    7, 0, ebx, 30, kZmm},
    {Feature::avx512vl,    7, 0, ebx, 31, kZmm},
    {Feature::avx512_vbmi, 7, 0, ecx,  1, kZmm},
    {Feature::avx512_vnni, 7, 0, ecx, 11, kZmm},
    {Feature::avx512_fp16, 7, 0, edx, 23, kZmm},
    {Feature::avx512_bf16, 7, 1, eax,  5, kZmm},
    {Feature::amx_bf16,    7, 0, edx, 22, kTiles},
    {Feature::amx_tile,    7, 0, edx, 24, kTiles},
    {Feature::amx_int8,    7, 0, edx, 25, kTiles},
    {Feature::amx_fp8,    30, 1, eax,  4, kTiles},
}};
// clang-format on

Leaf cpuid(unsigned leaf, unsigned subleaf) {
  Leaf r{};
  // Zeros for leaves and subleaves that the processor does not have.
  if (__get_cpuid_count(leaf, subleaf, &r[eax], &r[ebx], &r[ecx], &r[edx]) == 0) return Leaf{};
  return r;
}

std::uint64_t xcr0() {
  constexpr unsigned kOsxsave = 1u << 27;
  if ((cpuid(1, 0)[ecx] & kOsxsave) == 0) return 0;
  std::uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<std::uint64_t>(high) << 32) | low;
}

std::string text_of(const std::array<unsigned, 12>& words, std::size_t count) {
  std::array<char, 49> chars{};
  std::memcpy(chars.data(), words.data(), count * 4);
  std::string s = chars.data();
  while (!s.empty() && s.back() == ' ') s.pop_back();
  return s.substr(std::min(s.find_first_not_of(' '), s.size()));
}

}  // namespace

CpuFacts cpu_facts() {
  CpuFacts facts;
  const std::uint64_t state = xcr0();
  const unsigned subleaves = cpuid(7, 0)[eax];
  for (const Bit& b : kBits) {
    if (b.leaf == 7 && b.subleaf > subleaves) continue;
    const bool there = ((cpuid(b.leaf, b.subleaf)[b.reg] >> b.bit) & 1u) != 0;
    if (there && (state & b.state) == b.state) add(facts.features, b.feature);
  }
  const Leaf id = cpuid(0, 0);
  facts.vendor = text_of({id[ebx], id[edx], id[ecx]}, 3);
  std::array<unsigned, 12> brand{};
  for (unsigned i = 0; i < 3; ++i) {
    const Leaf part = cpuid(0x80000002u + i, 0);
    for (std::size_t r = 0; r < 4; ++r) brand[i * 4 + r] = part[r];
  }
  facts.model = text_of(brand, 12);
  return facts;
}

}  // namespace moe
#endif
