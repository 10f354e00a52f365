// The layouts that configs ask for.
#include "support/wna16_targets.h"
#include "support/rooms.h"

namespace moe::test {

const std::array<Wna16Target, 9>& wna16_targets() {
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

}  // namespace moe::test
