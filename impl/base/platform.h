// What a machine is: device type, architecture, instruction sets. Detected (CPUID + XGETBV, HWCAP) or
// described by the caller; selection and conversion work for any platform, running needs this one.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/index.h"
#include "base/result.h"

namespace moe {

enum class DeviceType : std::uint8_t { automatic, cpu, cuda, rocm, xpu, tpu, oot };
enum class Arch : std::uint8_t { automatic, x86_64, aarch64, riscv64, ppc64le, s390x };
constexpr std::array<std::string_view, 7> kDeviceNames = {"auto", "cpu", "cuda", "rocm", "xpu", "tpu", "oot"};
constexpr std::array<std::string_view, 6> kArchNames = {"auto", "x86_64", "aarch64", "riscv64", "ppc64le", "s390x"};

// CPU features. config/schema.cpp makes the words of the schema from this list.
enum class Feature : std::uint8_t {
  scalar,
  avx2,
  fma,
  f16c,
  avx512f,
  avx512bw,
  avx512vl,
  avx512_vnni,
  avx_vnni,
  avx512_bf16,
  avx512_fp16,
  avx512_vbmi,
  amx_tile,
  amx_int8,
  amx_bf16,
  amx_fp8,
  neon,
  dotprod,
  i8mm,
  bf16,
  fp16,
  sve,
  sve2,
  sme,
  sme2,
  rvv
};
constexpr std::array<std::string_view, 26> kFeatureNames = {
    "scalar",      "avx2",     "fma",         "f16c",        "avx512f",     "avx512bw", "avx512vl",
    "avx512_vnni", "avx_vnni", "avx512_bf16", "avx512_fp16", "avx512_vbmi", "amx_tile", "amx_int8",
    "amx_bf16",    "amx_fp8",  "neon",        "dotprod",     "i8mm",        "bf16",     "fp16",
    "sve",         "sve2",     "sme",         "sme2",        "rvv"};
using FeatureSet = std::bitset<kFeatureNames.size()>;
std::optional<Feature> feature_from_name(std::string_view name);
inline bool has(const FeatureSet& s, Feature f) { return s.test(usize(f)); }
inline void add(FeatureSet& s, Feature f) { s.set(usize(f)); }

// ISA words of kernel names and MOE_MAX_ISA (selection.md 2), each a cluster of features, in order per
// architecture: a cap drops all later words of its architecture.
enum class Isa : std::uint8_t {
  scalar,
  avx2,
  avxvnni,
  avx512vnni,
  avx512bf16,
  avx512fp16,
  amxint8,
  amxbf16,  // x86
  neon,
  dotprod,
  i8mm,
  sve  // Arm
};
constexpr std::array<std::string_view, 12> kIsaNames = {"scalar",     "avx2",       "avxvnni", "avx512vnni",
                                                        "avx512bf16", "avx512fp16", "amxint8", "amxbf16",
                                                        "neon",       "dotprod",    "i8mm",    "sve"};
// The features that a kernel of this ISA needs.
FeatureSet isa_features(Isa isa);
// The architecture of an ISA word; automatic for scalar (runs everywhere).
Arch isa_arch(Isa isa);

struct Platform {
  DeviceType type = DeviceType::cpu;
  Arch arch = Arch::automatic;
  FeatureSet features;
  bool native = false;  // this machine, detected
  // Facts of accelerators, as described; nullopt / empty = not given.
  std::optional<std::array<int, 2>> capability;
  std::optional<std::string> gfx;
  std::optional<std::int64_t> cuda_version;
  std::optional<std::int64_t> multiprocessor_count;
  std::vector<std::pair<std::string, bool>> libs;
  std::int64_t num_threads = 0, numa_node = -1;  // reported only
  // Report of a detected machine (moe_platform_to_json): members as JSON text, "" when described.
  std::string report;

  bool lib(std::string_view name) const;
  bool runs(Isa isa) const;
};

// This machine, capped by the environment variable MOE_MAX_ISA; an unknown word there is
// invalid_argument with subject "MOE_MAX_ISA". `max_isa` nullptr = read the environment.
Result<Platform> detect_platform(const char* max_isa = nullptr);
// The architecture this library was compiled for.
Arch native_arch();

}  // namespace moe
