// Steps that several oracles take before they go through their lists: the switches of FlashInfer and AITER.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "oracle/backend.h"

namespace moe::oracle {

// vLLM's backends in the order of a table; rows without a class are not its.
std::vector<std::string_view> table_order(std::span<const BackendRow> rows);
// Takes backends from the list.
void drop(Steering& s, std::span<const std::string_view> backends);
// moe_backend names one: then vLLM reads no switch.
inline bool by_word(const Query& q) { return q.moe.moe_backend != "auto"; }
// libmoe's answer on a CPU is its own row; nothing of vLLM's list and switches is about it.
inline bool is_our_cpu(const Query& q) { return q.policy == Policy::libmoe && q.platform.type == DeviceType::cpu; }

// A switch that turns FlashInfer's backends on or off, and what VLLM_FLASHINFER_MOE_BACKEND then means.
struct FlashInferSwitch {
  std::string_view name;
  std::span<const std::string_view> backends;              // also the list where the switch alone is on
  std::string_view throughput, latency, masked_gemm = {};  // "": there is none
};
// True: the switch is on, and nothing else is read.
bool steer_flashinfer(const Query& q, const FlashInferSwitch& which, Steering& s);
// True: backend AITER is needed, and nothing else is read.
bool steer_aiter(const Query& q, Steering& s);

}  // namespace moe::oracle
