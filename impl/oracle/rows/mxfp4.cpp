// Oracle mxfp4, of gpt-oss and Quark (float_oracles.md 2.4), and what vLLM does with MXFP4 files of compressed-tensors,
// about which it asks no oracle (2.9). Rows: rows_mxfp4.h.
#include <algorithm>

#include "oracle/float_configs.h"
#include "oracle/rows/mxfp4.h"
#include "oracle/rows/steering.h"

namespace moe::oracle {
namespace {

using Backends = std::vector<std::string_view>;

constexpr Refused kConflict = {.kind = "conflict",
                               .why = "the checkpoint and the user name different keys of activations"};
constexpr Refused kNoSuchKey = {.reason = "activation_key",
                                .why = "moe_backend names no backend that takes activations of this key"};
constexpr Refused kNoBf16 = {.reason = "device",
                             .why = "VLLM_USE_FLASHINFER_MOE_MXFP4_BF16 needs compute capability 9.0 or 10.x"};

const QuantKey* own_key(std::string_view backend) {
  for (const BackendRow& row : mxfp4::kRows)
    if (row.backend == backend) return row.vllm.own_activation;
  return nullptr;
}

// Activations with a key: the backends of that key, and emulation, which takes any. Without one: those of 16 bits,
// where there are any.
Backends taking(const Backends& all, const std::optional<QuantKey>& activation) {
  Backends kept;
  std::copy_if(all.begin(), all.end(), std::back_inserter(kept), [&](std::string_view b) {
    const QuantKey* own = own_key(b);
    return activation ? b == "EMULATION" || (own != nullptr && *own == *activation) : own == nullptr;
  });
  return kept.empty() && !activation ? all : kept;
}

Backends meant_by(const Query& q) {
  Backends meant;
  for (const BackendRow& row : mxfp4::kRows)
    if (answers_to(q, row.accepts(q.policy), q.moe.moe_backend) && (meant.empty() || meant.back() != row.backend))
      meant.push_back(row.backend);
  return meant;
}

void steer_word(const Query& q, Steering& s) {
  const Backends meant = meant_by(q);
  s.named = taking(meant, q.activation_key);
  if (!meant.empty() && s.named->empty()) s.refused = kNoSuchKey;
}

// VLLM_USE_FLASHINFER_MOE_MXFP4_BF16 is set. True: nothing else is read.
bool steer_bf16(const Query& q, Steering& s) {
  if (!q.env_flag("VLLM_USE_FLASHINFER_MOE_MXFP4_BF16", false)) {
    std::erase(s.order, "FLASHINFER_TRTLLM_MXFP4_BF16");
    std::erase(s.order, "FLASHINFER_CUTLASS_MXFP4_BF16");
    return false;
  }
  const std::array<int, 2> capability = q.platform.capability.value_or(std::array<int, 2>{0, 0});
  if (capability == std::array<int, 2>{9, 0})
    s.needed = "FLASHINFER_CUTLASS_MXFP4_BF16";
  else if (capability[0] == 10)
    s.needed = "FLASHINFER_TRTLLM_MXFP4_BF16";
  else
    s.refused = kNoBf16;
  return true;
}

struct SwitchedOn {
  std::string_view name, backend;
};
constexpr std::array kSwitches = {
    SwitchedOn{"VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8", "FLASHINFER_TRTLLM_MXFP4_MXFP8"},
    SwitchedOn{"VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8_CUTLASS", "FLASHINFER_CUTLASS_MXFP4_MXFP8"},
    SwitchedOn{"VLLM_MXFP4_USE_MARLIN", "MARLIN"},
};

// True: nothing else is read.
bool steer_switches(const Query& q, Steering& s) {
  if (q.env_has("VLLM_USE_FLASHINFER_MOE_MXFP4_BF16") && steer_bf16(q, s)) return true;
  for (const SwitchedOn& row : kSwitches) {
    if (!q.env_flag(row.name, false)) continue;
    s.needed = row.backend;
    return true;
  }
  return false;
}

// One backend, whatever moe_backend says.
Steering beside_the_oracle(const Query& q) {
  const bool blackwell =
      q.platform.type == DeviceType::cuda && q.platform.capability && (*q.platform.capability)[0] == 10;
  Steering s;
  if (blackwell && q.layer->quantization.input_activations)
    s.needed = "CUTLASS";
  else
    s.needed = q.moe.parallel.batched() ? "BATCHED_MARLIN" : "MARLIN";
  s.order = {s.needed};
  s.word_unread = s.own_key = true;
  return s;
}

Steering steer(const Query& q) {
  if (is_our_cpu(q)) return {.order = {"CPU"}};
  if (q.layer != nullptr && q.layer->quantization.format != Format::mxfp4_gpt_oss) return beside_the_oracle(q);
  Steering s;
  s.order = taking({"FLASHINFER_TRTLLM_MXFP4_BF16", "FLASHINFER_TRTLLM_MXFP4_MXFP8", "AITER_MXFP4_BF16",
                    "AITER_MXFP4_FP8", "AITER_MXFP4_MXFP4", "TRITON", "FLASHINFER_CUTLASS_MXFP4_BF16",
                    "FLASHINFER_CUTLASS_MXFP4_MXFP8", "MARLIN", "BATCHED_MARLIN", "XPU"},
                   q.activation_key);
  s.own_key = true;
  if (q.user_activation && q.user_activation != q.activation_key) {
    s.refused = kConflict;
  } else if (by_word(q)) {
    steer_word(q, s);
  } else if (!steer_switches(q, s)) {
    const DeviceType device = q.platform.type;
    if (device == DeviceType::xpu) s.last = "XPU";
    if (device == DeviceType::cpu) s.last = "CPU";
    if ((device == DeviceType::tpu || device == DeviceType::oot) && q.layer == nullptr) s.order.emplace_back("NONE");
  }
  return s;
}

void set_keys(Query& q, const Config&) { q.weight_key = keys::kMxfp4; }

}  // namespace

constinit const Family families_of::mxfp4 = {
    .id = OracleId::mxfp4, .rows = mxfp4::kRows, .steer = steer, .set_keys = set_keys, .quant_config = mxfp4_config};

}  // namespace moe::oracle
