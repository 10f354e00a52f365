// The layouts of int4 and int8 weights as configs ask for them: a platform, a backend, and what the layout takes.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <utility>

#include "support/wna16_model.h"

namespace moe::test {

struct Wna16Target {
  const char* name;
  nlohmann::json members;  // of the config
};

inline const std::array<Wna16Target, 9>& wna16_targets() {
  static const nlohmann::json hopper = {{"type", "cuda"}, {"capability", {9, 0}}, {"multiprocessor_count", 132}};
  static const std::array<Wna16Target, 9> targets = {{
      {"ours", {{"platform", {{"type", "cpu"}}}}},
      {"marlin", {{"platform", hopper}, {"moe_backend", "marlin"}}},
      {"marlin int8", {{"platform", hopper}, {"moe_backend", "marlin"}, {"marlin_input_dtype", "int8"}}},
      {"marlin fp8",
       {{"platform", {{"type", "cuda"}, {"capability", {8, 9}}}},
        {"moe_backend", "marlin"},
        {"marlin_input_dtype", "fp8"}}},
      {"trtllm",
       {{"platform", {{"type", "cuda"}, {"capability", {10, 0}}, {"libs", {{"flashinfer_trtllm_moe", true}}}}},
        {"vllm_env", {{"VLLM_USE_FLASHINFER_MOE_INT4", "1"}}},
        {"router_logits_dtype", "bfloat16"}}},
      {"xpu", {{"platform", {{"type", "xpu"}}}}},
      {"vnni", {{"platform", {{"type", "cpu"}}}, {"selection_policy", "vllm"}}},
      {"on_the_fly",
       {{"platform", {{"type", "rocm"}, {"gfx", "gfx942"}}},
        {"moe_backend", "emulation"},
        {"emulation_layout", "on_the_fly"}}},
      {"dense",
       {{"platform", {{"type", "rocm"}, {"gfx", "gfx942"}}},
        {"moe_backend", "emulation"},
        {"emulation_layout", "dense"}}},
  }};
  return targets;
}

// One conversion through the ABI.
struct Wna16Conversion {
  ConfigPtr config;
  SelectionPtr selection;
  WeightsPtr weights;
  PackedPtr packed;

  explicit Wna16Conversion(const Wna16Model& m) : config(make_config(m.config_text())) {
    if (config) selection = make_selection(config.get());
    if (selection) weights = stacked_weights(m, config.get());
  }
  Failure convert() {
    return failure([&](moe_error** e) {
      moe_packed* out = nullptr;
      const moe_status s = moe_convert_weights(nullptr, selection.get(), weights.get(), nullptr, &out, e);
      packed.reset(out);
      return s;
    });
  }
};

}  // namespace moe::test
