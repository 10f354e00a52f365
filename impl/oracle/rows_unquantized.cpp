// Oracle unquantized: weights and activations in the layer's own type (float_oracles.md 2.6, 3, 4).
//
// On a CPU, a TPU or an out-of-tree device vLLM has one implementation without an experts class and asks nothing, not
// even moe_backend. libmoe's own CPU row is asked like any other: it says what its kernels take.
#include <algorithm>

#include "oracle/backend.h"
#include "oracle/row_sets.h"
#include "vllm/quant_config_builders.h"

namespace moe::oracle {
namespace {

constexpr std::array<std::string_view, 1> kAllgather = {"allgather_reducescatter"};
constexpr std::array kFlashInfer = {CapabilityRange{90, 90}, CapabilityRange{100, 109}, CapabilityRange{120, 129}};
constexpr std::array kBlackwell = {CapabilityRange{100, 109}};
constexpr std::array<std::string_view, 2> kAiterGfx = {"gfx942", "gfx950"};
constexpr std::array kAiterSwitches = {Switch{"VLLM_ROCM_USE_AITER", false}, Switch{"VLLM_ROCM_USE_AITER_MOE", true}};

constexpr Accepts kAiter = {
    .listed = {DeviceType::rocm},
    .request = "aiter",
    .devices = {DeviceType::rocm},
    .gfx = kAiterGfx,
    .device_library = "aiter",
    .device_switches = kAiterSwitches,
    .ungated = false,
    .activations = {Activation::silu, Activation::gelu, Activation::swigluoai},
    .all2all_refused = kNvlinkAll2all,
};
constexpr Accepts kTrtllm = {
    .listed = {DeviceType::cuda},
    .request = "flashinfer_trtllm",
    .devices = {DeviceType::cuda},
    .capabilities = kBlackwell,
    .device_library = "flashinfer",
    .ungated = false,
    .activations = {Activation::silu},
    .eplb = false,
    .all2all_only = kAllgather,
    .routing = {RoutingMethod::deepseek_v3, RoutingMethod::llama4, RoutingMethod::renormalize,
                RoutingMethod::renormalize_naive},
};
constexpr Accepts kFlashInferCutlass = {
    .listed = {DeviceType::cuda},
    .request = "flashinfer_cutlass",
    .devices = {DeviceType::cuda},
    .capabilities = kFlashInfer,
    .device_library = "flashinfer",
    .activations = {Activation::silu, Activation::relu2_no_mul, Activation::swigluoai},
};
constexpr Accepts kTriton = {
    .listed = {DeviceType::cuda, DeviceType::rocm},
    .request = "triton",
    .request_in_format = true,
    .devices = {DeviceType::cuda, DeviceType::rocm, DeviceType::xpu},
    .activations = kNineActivations,
    .all2all_refused = kNvlinkAll2all,
    .batch_invariant = true,
    .lora = true,
};
constexpr Accepts kBatchedTriton = {
    .listed = {DeviceType::cuda, DeviceType::rocm},
    .request = "triton",
    .request_in_format = true,
    .devices = {DeviceType::cuda, DeviceType::rocm},
    .activations = kNineActivations.without({Activation::swiglustep}),
    .format = ActivationFormat::batched,
};
constexpr Accepts kXpu = {
    .listed = {DeviceType::xpu},
    .devices = {DeviceType::xpu},
    .activations = {Activation::silu, Activation::gelu, Activation::swigluoai, Activation::relu2_no_mul},
};

constexpr Accepts anything_on(DeviceType device) {
  return {
      .listed = {device},
      .only_choice = true,
      .devices = {device},
      .any_key = true,
      .format = ActivationFormat::any,
      .batch_invariant = true,
      .lora = true,
  };
}

constexpr Accepts kLibmoeCpu = {
    .listed = {DeviceType::cpu},
    .request = "cpu",
    .devices = {DeviceType::cpu},
    .archs = {Arch::x86_64, Arch::aarch64},
    .in_dtypes = {DType::f32, DType::bf16, DType::f16},
    .batch_invariant = true,
    .checkpoints = {Format::none},
    .layouts = {LayoutKind::p16_bf16, LayoutKind::p16_f16, LayoutKind::p16_f32},
    .acts = {ActFormat::f32, ActFormat::bf16},
};

// clang-format off
constexpr std::array kRows = {
    BackendRow{.backend = "AITER",              .name = "AiterExperts",         .vllm = kAiter},
    BackendRow{.backend = "FLASHINFER_TRTLLM",  .name = "TrtLlmBf16Experts",    .vllm = kTrtllm},
    BackendRow{.backend = "FLASHINFER_CUTLASS", .name = "FlashInferExperts",    .vllm = kFlashInferCutlass},
    BackendRow{.backend = "TRITON",             .name = "TritonExperts",        .vllm = kTriton},
    BackendRow{.backend = "BATCHED_TRITON",     .name = "BatchedTritonExperts", .vllm = kBatchedTriton},
    BackendRow{.backend = "XPU",                .name = "XPUExperts",           .vllm = kXpu},
    BackendRow{.backend = "CPU",                .name = "",                     .vllm = anything_on(DeviceType::cpu), .libmoe = kLibmoeCpu},
    BackendRow{.backend = "TPU",                .name = "",                     .vllm = anything_on(DeviceType::tpu)},
    BackendRow{.backend = "OOT",                .name = "",                     .vllm = anything_on(DeviceType::oot)},
};
// clang-format on

using Order = std::vector<std::string_view>;

// The device's list; under data parallelism FlashInfer's CUTLASS kernels come last.
Order list_of(const Query& q) {
  Order order;
  for (const BackendRow& row : kRows)
    if (row.accepts(q.policy).listed.has(q.platform.type)) order.push_back(row.backend);
  const auto it = std::find(order.begin(), order.end(), "FLASHINFER_CUTLASS");
  if (q.moe.parallel.dp_size > 1 && it != order.end()) std::rotate(it, it + 1, order.end());
  return order;
}

// VLLM_USE_FLASHINFER_MOE_FP16 is set: off takes both backends from the list; on with a kind asks for that one, on
// alone leaves nothing else.
void steer_flashinfer(const Query& q, Steering& s) {
  if (!q.env_flag("VLLM_USE_FLASHINFER_MOE_FP16", false)) {
    std::erase_if(s.order, [](std::string_view b) { return b.starts_with("FLASHINFER"); });
    return;
  }
  s.order = {"FLASHINFER_TRTLLM", "FLASHINFER_CUTLASS"};
  if (!q.env_has("VLLM_FLASHINFER_MOE_BACKEND")) return;
  const std::string_view kind = q.env_value("VLLM_FLASHINFER_MOE_BACKEND");
  const bool blackwell = q.platform.capability && (*q.platform.capability)[0] == 10;
  if (kind == "throughput" || (kind == "latency" && !blackwell))
    s.needed = "FLASHINFER_CUTLASS";
  else if (kind == "latency")
    s.needed = "FLASHINFER_TRTLLM";
  else
    s.refused_kind = "bad_flashinfer_backend";  // masked_gemm is CuteDSL, which has no unquantized kernel
}

Steering steer(const Query& q) {
  Steering s;
  s.order = list_of(q);
  if (q.moe.is_lora_enabled) s.unchecked = "TRITON";
  if (q.env_has("VLLM_USE_FLASHINFER_MOE_FP16")) {
    steer_flashinfer(q, s);
    if (q.env_flag("VLLM_USE_FLASHINFER_MOE_FP16", false)) return s;  // on: nothing else is read
  }
  if (q.env_has("VLLM_ROCM_USE_AITER") || q.env_has("VLLM_ROCM_USE_AITER_MOE")) {
    if (q.env_flag("VLLM_ROCM_USE_AITER", false) && q.env_flag("VLLM_ROCM_USE_AITER_MOE", true))
      s.needed = "AITER";
    else
      std::erase(s.order, "AITER");
  }
  return s;
}

Result<QuantConfig> quant_config(const Config& c) {
  QuantArguments a;
  a.w1_bias = a.w2_bias = c.has_bias;
  return c.has_bias ? biased_quant_config(a) : make_quant_config(a);
}

}  // namespace

constinit const Family families_of::unquantized = {
    .id = OracleId::unquantized, .rows = kRows, .steer = steer, .quant_config = quant_config};

}  // namespace moe::oracle
