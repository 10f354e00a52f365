// Oracle unquantized: weights and activations in the layer's own type (float_oracles.md 2.6, 3, 4).
//
// On a CPU, a TPU or an out-of-tree device vLLM has one implementation without an experts class and asks nothing, not
// even moe_backend. libmoe's own CPU row is asked like any other: it says what its kernels take.
#include <algorithm>

#include "oracle/backend.h"
#include "oracle/rows/row_classes.h"
#include "oracle/rows/steering.h"
#include "vllm/quant_config_builders.h"

namespace moe::oracle {
namespace {

constexpr Accepts unquantized(Accepts a, EnumSet<DeviceType> listed, std::string_view word) {
  a.schemes = {};
  a.listed = listed;
  a.request = word;
  return a;
}
constexpr Accepts kTrtllm = [] {
  Accepts a = unquantized(classes::kBlackwellFlashInfer, {DeviceType::cuda}, "flashinfer_trtllm");
  a.ungated = false;
  a.activations = {Activation::silu};
  a.eplb = false;
  a.all2all_only = classes::kAllgather;
  a.routing = {RoutingMethod::deepseek_v3, RoutingMethod::llama4, RoutingMethod::renormalize,
               RoutingMethod::renormalize_naive};
  a.needs = float_needs::bf16_sizes;
  return a;
}();
constexpr Accepts kTriton = [] {
  Accepts a = unquantized(classes::kTriton, {DeviceType::cuda, DeviceType::rocm}, "triton");
  a.request_in_format = true;
  return a;
}();
constexpr Accepts kBatchedTriton = {
    .listed = {DeviceType::cuda, DeviceType::rocm},
    .request = "triton",
    .request_in_format = true,
    .devices = {DeviceType::cuda, DeviceType::rocm},
    .activations = kNineActivations.without({Activation::swiglustep}),
    .format = ActivationFormat::batched,
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

constexpr Accepts kVllmCpu = [] {
  Accepts a = classes::writes<LayoutKind::float_vnni>(anything_on(DeviceType::cpu));
  a.needs = float_needs::sgl_kernel;
  return a;
}();
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
    BackendRow{.backend = "AITER",              .name = "AiterExperts",         .vllm = classes::writes<LayoutKind::float_aiter>(unquantized(classes::kAiter, {DeviceType::rocm}, "aiter"))},
    BackendRow{.backend = "FLASHINFER_TRTLLM",  .name = "TrtLlmBf16Experts",    .vllm = classes::writes<LayoutKind::float_flashinfer_trtllm>(kTrtllm)},
    BackendRow{.backend = "FLASHINFER_CUTLASS", .name = "FlashInferExperts",    .vllm = classes::writes<LayoutKind::float_flashinfer_cutlass>(unquantized(classes::kFlashInferCutlass, {DeviceType::cuda}, "flashinfer_cutlass"))},
    BackendRow{.backend = "TRITON",             .name = "TritonExperts",        .vllm = classes::writes<LayoutKind::float_plain>(kTriton)},
    BackendRow{.backend = "BATCHED_TRITON",     .name = "BatchedTritonExperts", .vllm = classes::writes<LayoutKind::float_plain>(kBatchedTriton)},
    BackendRow{.backend = "XPU",                .name = "XPUExperts",           .vllm = classes::writes<LayoutKind::float_xpu>(unquantized(classes::kXpu, {DeviceType::xpu}, ""))},
    BackendRow{.backend = "CPU",                .name = "",                     .vllm = kVllmCpu, .libmoe = kLibmoeCpu},
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

// VLLM_USE_FLASHINFER_MOE_FP16: masked_gemm would be CuteDSL, which has no unquantized kernel.
constexpr std::array<std::string_view, 2> kFlashInferBackends = {"FLASHINFER_TRTLLM", "FLASHINFER_CUTLASS"};
constexpr FlashInferSwitch kFlashInferSwitch = {.name = "VLLM_USE_FLASHINFER_MOE_FP16",
                                                .backends = kFlashInferBackends,
                                                .throughput = "FLASHINFER_CUTLASS",
                                                .latency = "FLASHINFER_TRTLLM"};

Steering steer(const Query& q) {
  Steering s;
  s.order = list_of(q);
  if (q.moe.is_lora_enabled) s.unchecked = "TRITON";
  if (!steer_flashinfer(q, kFlashInferSwitch, s)) steer_aiter(q, s);
  return s;
}

Result<QuantConfig> quant_config(const Config& c, std::string_view) {
  BuilderArgs a;
  a.w1_bias = a.w2_bias = c.has_bias;
  return c.has_bias ? biased_quant_config(a) : make_quant_config(a);
}

}  // namespace

constinit const Family families_of::unquantized = {
    .id = OracleId::unquantized, .rows = kRows, .steer = steer, .quant_config = quant_config};

}  // namespace moe::oracle
