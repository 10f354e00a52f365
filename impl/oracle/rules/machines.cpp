// What a machine must be for a row or a scheme. See machines.h.
#include "oracle/rules/machines.h"

#include <algorithm>

#include "base/index.h"
#include "base/text.h"

namespace moe::oracle {
namespace {

bool in_any(std::span<const CapabilityRange> ranges, int capability) {
  return ranges.empty() || std::any_of(ranges.begin(), ranges.end(), [&](const CapabilityRange& r) {
           return r.low <= capability && capability <= r.high;
         });
}

// "9.0", "10.x", "9.0 to 10.9", "7.5 or later"
std::string text_of(const CapabilityRange& r) {
  const auto exact = [](int c) { return cat(c / 10, ".", c % 10); };
  if (r.low == r.high) return exact(r.low);
  if (r.low % 10 == 0 && r.high == r.low + 9) return cat(r.low / 10, ".x");
  return exact(r.low) + (r.high == kNoEnd ? " or later" : " to " + exact(r.high));
}
std::string text_of(std::span<const CapabilityRange> ranges) {
  std::string s;
  for (const CapabilityRange& r : ranges) s += (s.empty() ? "" : ", ") + text_of(r);
  return s;
}

int capability_of(const Platform& p) {
  const std::array<int, 2> cap = p.capability.value_or(std::array<int, 2>{0, 0});
  return 10 * cap[0] + cap[1];
}

// "gfx12*" stands for all names that begin so.
bool gfx_in(std::span<const std::string_view> names, std::string_view gfx) {
  return names.empty() || std::any_of(names.begin(), names.end(), [&](std::string_view n) {
           return n.ends_with('*') ? gfx.starts_with(n.substr(0, n.size() - 1)) : gfx == n;
         });
}

// 12080: "12.8"
std::string toolkit_text(std::int64_t version) { return cat(version / 1000, ".", version % 1000 / 10); }

// The CUDA toolkit that the machine's capability asks for. A platform that does not name its own has 12.8.
MaybeWhy toolkit(const Accepts& a, const Platform& p) {
  const int capability = capability_of(p);
  const std::int64_t has = p.cuda_version.value_or(12080);
  for (const CapabilityRange& r : a.capabilities)
    if (r.low <= capability && capability <= r.high && has < r.toolkit)
      return Why{"CUDA " + toolkit_text(r.toolkit) + " for compute capability " + text_of(r),
                 "cuda_version is " + std::to_string(has), "/platform/cuda_version"};
  return std::nullopt;
}

}  // namespace

std::string joined(std::span<const std::string_view> words) {
  std::string s;
  for (const std::string_view w : words) s += (s.empty() ? "" : ", ") + std::string(w);
  return s;
}

bool is_one_of(const Machines& m, const Platform& p) {
  return m.devices.has(p.type) && (p.type != DeviceType::cuda || in_any(m.capabilities, capability_of(p))) &&
         (p.type != DeviceType::rocm || gfx_in(m.gfx, p.gfx.value_or("")));
}

std::optional<Why> device(const Query& q, const Trial& o) {
  const Accepts& a = *o.accepts;
  const Platform& p = q.platform;
  const std::string found = "the platform is " + platform_text(p);
  if (!a.devices.has(p.type)) return Why{"device " + names_in(a.devices, kDeviceNames), found, "/platform/type"};
  if (!a.archs.has(p.arch)) return Why{"architecture " + names_in(a.archs, kArchNames), found, "/platform/arch"};
  if (a.feature && !has(p.features, *a.feature))
    return Why{cat("feature ", at(kFeatureNames, *a.feature)), "platform.features does not have it",
               "/platform/features"};
  if (p.type == DeviceType::cuda && !in_any(a.capabilities, capability_of(p)))
    return Why{"compute capability " + text_of(a.capabilities), found, "/platform/capability"};
  if (p.type == DeviceType::cuda)
    if (MaybeWhy why = toolkit(a, p)) return why;
  if (p.type == DeviceType::rocm && !gfx_in(a.gfx, p.gfx.value_or("")))
    return Why{"architecture " + joined(a.gfx), found, "/platform/gfx"};
  if (!a.device_library.empty() && !p.lib(a.device_library))
    return Why{cat("library ", a.device_library), "platform.libs does not have it", "/platform/libs"};
  for (const Switch& s : a.device_switches) {
    if (q.env_flag(s.name, s.when_unset)) continue;
    const std::string value(q.env_value(s.name));
    return Why{std::string(s.name) + " = 1", value.empty() ? "it is not set" : "it is " + in_quotes(value),
               "/vllm_env"};
  }
  return std::nullopt;
}

std::string platform_text(const Platform& p) {
  std::string s(at(kDeviceNames, p.type));
  if (p.type == DeviceType::cuda)
    return s + (p.capability ? cat(" ", (*p.capability)[0], ".", (*p.capability)[1]) : " of unknown capability");
  if (p.type == DeviceType::rocm) return s + (p.gfx ? " " + *p.gfx : "");
  if (p.type == DeviceType::cpu)
    return s + (p.arch == Arch::automatic ? " of unknown architecture" : cat(" ", at(kArchNames, p.arch)));
  return s;
}

}  // namespace moe::oracle
