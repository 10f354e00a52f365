// Machines, a small layer and what every list of candidates keeps to: of the tests of moe_select_backend.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "oracle/select.h"
#include "oracle/selection.h"
#include "support/rooms.h"
#include "support/vectors.h"

namespace moe::test {

inline Platform machine(DeviceType type, Arch arch, std::initializer_list<Feature> features) {
  Platform p;
  p.type = type;
  p.arch = arch;
  for (const Feature f : features) p.features.set(static_cast<std::size_t>(f));
  return p;
}
inline Platform avx512() {
  using enum Feature;
  return machine(DeviceType::cpu, Arch::x86_64, {scalar, avx2, fma, f16c, avx512f, avx512bw, avx512vl, avx512_vnni});
}
inline Platform amx() {
  Platform p = avx512();
  for (const Feature f : {Feature::amx_tile, Feature::amx_int8}) p.features.set(static_cast<std::size_t>(f));
  return p;
}
inline Platform avx2() {
  return machine(DeviceType::cpu, Arch::x86_64, {Feature::scalar, Feature::avx2, Feature::fma, Feature::f16c});
}
inline Platform plain_x86() { return machine(DeviceType::cpu, Arch::x86_64, {Feature::scalar}); }
inline Platform arm() {
  Platform p = machine(DeviceType::cpu, Arch::aarch64, {Feature::scalar, Feature::neon, Feature::dotprod});
  p.libs = {{"torch_dyn_quant_4bit", true}};
  return p;
}
inline Platform arm_with(Feature f, bool on) {
  Platform p = arm();
  p.features.set(static_cast<std::size_t>(f), on);
  return p;
}
inline Platform hopper() {
  Platform p = machine(DeviceType::cuda, Arch::x86_64, {});
  p.capability = std::array<int, 2>{9, 0};
  return p;
}

// A small W4A8 layer with RFC 7396 changes.
inline std::shared_ptr<const Config> layer(const std::string& patch = "{}") {
  nlohmann::json doc = {{"num_experts", 8},
                        {"top_k", 2},
                        {"hidden_dim", 256},
                        {"intermediate_size", 128},
                        {"quantization", {{"scheme", "W4A8"}, {"group_size", 32}}}};
  doc.merge_patch(nlohmann::json::parse(patch));
  Result<Config> c = parse_config(doc.dump());
  EXPECT_TRUE(c) << c.error().message << " at " << c.error().subject << " in " << doc.dump();
  return c ? std::make_shared<const Config>(*std::move(c)) : nullptr;
}

inline Result<Selection> select(const std::string& patch, const Platform& p, SelectFlags flags = {}) {
  return select_backend(layer(patch), p, flags);
}

// Every refusal has a reason and a detail, every acceptance neither; priorities ascend.
inline void expect_sound(const std::vector<Candidate>& candidates) {
  EXPECT_FALSE(candidates.empty());
  std::int32_t last = -1;
  for (const Candidate& c : candidates) {
    EXPECT_EQ(c.reason == Reject::none, c.detail.empty()) << c.backend << " " << c.kernel;
    EXPECT_FALSE(c.chosen && c.reason != Reject::none);
    EXPECT_GT(c.priority, candidates.size() == 1 ? -1 : last);
    last = c.priority;
  }
}

}  // namespace moe::test
