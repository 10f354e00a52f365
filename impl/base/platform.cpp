// Platforms: names, the feature clusters of ISA words, detection of this machine and its cap by
// MOE_MAX_ISA. What the processor has comes from platform_x86.cpp or os/platform_arm.cpp.
#include "base/platform.h"

#include <algorithm>
#include <cstdlib>
#include <initializer_list>

#include "base/cpu_features.h"
#include "base/index.h"
#include "base/json.h"
#include "base/os/topology.h"
#include "base/text.h"

namespace moe {
namespace {

constexpr FeatureSet set_of(std::initializer_list<Feature> features) {
  unsigned long long bits = 0;
  for (Feature f : features) bits |= 1ull << static_cast<unsigned>(f);
  return FeatureSet(bits);
}

// The ISA words: `own` are the features that this word adds to the word it builds on; `loose` are
// features that no kernel row asks for yet and that make sense only where this word is there.
struct Word {
  Arch arch;
  Isa base;
  FeatureSet own, loose;
};

// clang-format off
constexpr std::array<Word, kIsaNames.size()> kWords = {{
    {Arch::automatic, Isa::scalar,     set_of({Feature::scalar}), FeatureSet()},
    {Arch::x86_64,    Isa::scalar,     set_of({Feature::avx2, Feature::fma, Feature::f16c}), FeatureSet()},
    {Arch::x86_64,    Isa::avx2,       set_of({Feature::avx_vnni}), FeatureSet()},
    {Arch::x86_64,    Isa::avx2,       set_of({Feature::avx512f, Feature::avx512bw, Feature::avx512vl, Feature::avx512_vnni}),
                                       set_of({Feature::avx512_vbmi})},
    {Arch::x86_64,    Isa::avx512vnni, set_of({Feature::avx512_bf16}), FeatureSet()},
    {Arch::x86_64,    Isa::avx512vnni, set_of({Feature::avx512_fp16}), FeatureSet()},
    {Arch::x86_64,    Isa::avx512vnni, set_of({Feature::amx_tile, Feature::amx_int8}), FeatureSet()},
    {Arch::x86_64,    Isa::avx512bf16, set_of({Feature::amx_tile, Feature::amx_bf16}), FeatureSet()},
    {Arch::aarch64,   Isa::scalar,     set_of({Feature::neon}), FeatureSet()},
    {Arch::aarch64,   Isa::neon,       set_of({Feature::dotprod}), set_of({Feature::fp16})},
    {Arch::aarch64,   Isa::dotprod,    set_of({Feature::i8mm}), set_of({Feature::bf16})},
    {Arch::aarch64,   Isa::i8mm,       set_of({Feature::sve}), set_of({Feature::sve2, Feature::sme, Feature::sme2})},
}};
// clang-format on

const Word& word_of(Isa isa) { return at(kWords, isa); }

std::optional<Isa> isa_from_name(std::string_view name) {
  const auto* it = std::find(kIsaNames.begin(), kIsaNames.end(), name);
  if (it == kIsaNames.end()) return std::nullopt;
  return static_cast<Isa>(it - kIsaNames.begin());
}

// Takes away what only words after the cap need. A cap of another architecture caps nothing.
FeatureSet capped(const FeatureSet& detected, Isa cap, Arch arch) {
  if (cap == Isa::scalar) return detected & set_of({Feature::scalar});
  if (word_of(cap).arch != arch) return detected;
  FeatureSet later, kept;
  for (std::size_t i = 0; i < kWords.size(); ++i) {
    if (kWords[i].arch != arch) continue;
    const auto isa = static_cast<Isa>(i);
    (isa > cap ? later : kept) |= isa_features(isa) | kWords[i].loose;
  }
  return detected & ~(later & ~kept);
}

struct Detected {
  FeatureSet features;
  std::string report;
};

Detected detect() {
  const CpuFacts facts = cpu_facts();
  Detected d;
  d.features = facts.features | set_of({Feature::scalar});
  json::Writer w;
  if (!facts.vendor.empty()) w.member("vendor", facts.vendor);
  if (!facts.model.empty()) w.member("model", facts.model);
  d.report = w.members({topology_members("")}).take();
  return d;
}

}  // namespace

std::optional<Feature> feature_from_name(std::string_view name) {
  const auto* it = std::find(kFeatureNames.begin(), kFeatureNames.end(), name);
  if (it == kFeatureNames.end()) return std::nullopt;
  return static_cast<Feature>(it - kFeatureNames.begin());
}

FeatureSet isa_features(Isa isa) {
  FeatureSet s = word_of(isa).own;
  while (word_of(isa).base != Isa::scalar) {
    isa = word_of(isa).base;
    s |= word_of(isa).own;
  }
  return s;
}

Arch isa_arch(Isa isa) { return word_of(isa).arch; }

bool Platform::lib(std::string_view name) const {
  return std::any_of(libs.begin(), libs.end(), [&](const auto& l) { return l.first == name && l.second; });
}

bool Platform::runs(Isa isa) const {
  if (type != DeviceType::cpu) return false;
  if (isa == Isa::scalar) return true;
  const FeatureSet needed = isa_features(isa);
  return isa_arch(isa) == arch && (features & needed) == needed;
}

Arch native_arch() {
#if defined(__x86_64__)
  return Arch::x86_64;
#elif defined(__aarch64__)
  return Arch::aarch64;
#elif defined(__riscv) && __riscv_xlen == 64
  return Arch::riscv64;
#elif defined(__powerpc64__) && defined(__LITTLE_ENDIAN__)
  return Arch::ppc64le;
#elif defined(__s390x__)
  return Arch::s390x;
#else
  return Arch::automatic;
#endif
}

Result<Platform> detect_platform(const char* max_isa) {
  if (max_isa == nullptr) max_isa = std::getenv("MOE_MAX_ISA");
  static const Detected detected = detect();
  Platform p;
  p.type = DeviceType::cpu;
  p.arch = native_arch();
  p.native = true;
  p.features = detected.features;
  p.report = detected.report;
  if (max_isa == nullptr || *max_isa == '\0') return p;
  const auto cap = isa_from_name(max_isa);
  if (!cap) {
    std::string words;
    for (std::string_view name : kIsaNames) {
      words += ' ';
      words += name;
    }
    return fail(Code::invalid_argument, "MOE_MAX_ISA",
                cat("MOE_MAX_ISA: unknown instruction set ", in_quotes(max_isa), ", expected one of:", words));
  }
  p.features = capped(p.features, *cap, p.arch);
  return p;
}

#if !defined(__x86_64__) && !defined(__aarch64__)
CpuFacts cpu_facts() { return {}; }
#endif

}  // namespace moe
