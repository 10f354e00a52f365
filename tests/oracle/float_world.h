// Layers with float weights and machines for them, of the tests of the float oracles.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "oracle/select_world.h"
#include "oracle/selection.h"
#include "support/rooms.h"

namespace moe::test {

// A layer of 8 experts, H = I = 256, with RFC 7396 changes.
inline std::shared_ptr<const Config> float_layer(const nlohmann::json& patch) {
  nlohmann::json doc = {{"num_experts", 8}, {"top_k", 2}, {"hidden_dim", 256}, {"intermediate_size", 256}};
  doc.merge_patch(patch);
  Result<Config> c = parse_config(doc.dump());
  EXPECT_TRUE(c) << c.error().message << " at " << c.error().subject << " in " << doc.dump();
  return c ? std::make_shared<const Config>(*std::move(c)) : nullptr;
}
inline Result<Selection> explain_float(const nlohmann::json& patch, const Platform& p) {
  return select_backend(float_layer(patch), p, {.explain_only = true});
}

inline nlohmann::json scheme(const char* name) { return {{"quantization", {{"scheme", name}}}}; }
// One patch of two.
inline nlohmann::json with(nlohmann::json a, const nlohmann::json& b) {
  a.update(b, true);
  return a;
}
inline nlohmann::json gpt_oss(const char* activation = "swigluoai") {
  return {{"quantization", {{"scheme", "MXFP4A16"}, {"format", "mxfp4-gpt-oss"}}}, {"activation", activation}};
}
inline nlohmann::json blocks(int rows, int columns) {
  return {
      {"quantization",
       {{"weights", {{"num_bits", 8}, {"type", "float"}, {"strategy", "block"}, {"block_structure", {rows, columns}}}},
        {"input_activations",
         {{"num_bits", 8}, {"type", "float"}, {"strategy", "group"}, {"group_size", 128}, {"dynamic", true}}}}}};
}

inline Platform gpu(int major, int minor = 0) {
  Platform p = machine(DeviceType::cuda, Arch::x86_64, {});
  p.capability = std::array<int, 2>{major, minor};
  p.libs = {{"flashinfer", true}, {"deep_gemm", true}, {"triton_kernels", true}, {"b12x", true}};
  return p;
}
inline Platform rocm(const char* gfx) {
  Platform p = machine(DeviceType::rocm, Arch::x86_64, {});
  p.gfx = gfx;
  p.libs = {{"aiter", true}, {"triton_kernels", true}};
  return p;
}
inline Platform other(DeviceType type) { return machine(type, Arch::x86_64, {}); }

// The first candidate of this class, or of this backend.
inline const Candidate* candidate(const Selection& s, const std::string& name) {
  for (const Candidate& c : s.candidates)
    if (c.experts == name || c.backend == name) return &c;
  return nullptr;
}
// The backend that wins, or would if its layout were written: the first that only the layout keeps back.
inline std::string answer_of(const nlohmann::json& patch, const Platform& p) {
  const auto s = explain_float(patch, p);
  EXPECT_TRUE(s);
  if (s->winner) return s->backend_name();
  for (const Candidate& c : s->candidates)
    if (c.reason == Reject::not_built && c.subject.empty()) return c.backend;
  return "none";
}

}  // namespace moe::test
