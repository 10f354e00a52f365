// Oracle fp8: 8-bit floats with a scale per tensor, row or block (float_oracles.md 2.1).
#include <algorithm>

#include "oracle/float_configs.h"
#include "oracle/rows/row_classes.h"
#include "oracle/rows/steering.h"

namespace moe::oracle {
namespace {

using namespace classes;

constexpr std::array kGroupedGemm = {CapabilityRange{90, 99, 12030}, CapabilityRange{100, kNoEnd, 12080}};
constexpr std::array<std::string_view, 4> kCutlassAll2all = {kNvlinkAll2all[0], kNvlinkAll2all[1], kNvlinkAll2all[2],
                                                             "deepep_high_throughput"};
constexpr std::array<std::string_view, 3> kBatchedGfx = {"gfx90a", "gfx942", "gfx950"};
constexpr Machines kBatchedHardware = {
    .devices = {DeviceType::cuda, DeviceType::rocm}, .capabilities = schemes::kFrom89, .gfx = kBatchedGfx};

constexpr std::array kBlockSchemes = {schemes::kBlock};
constexpr std::array kCutlassSchemes = {schemes::kChannelToken, schemes::kTensorDynamic, schemes::kTensorStatic};
constexpr std::array kBatchedSchemes = {schemes::only_on(schemes::kBlock, kBatchedHardware),
                                        schemes::only_on(schemes::kChannelToken, kBatchedHardware),
                                        schemes::only_on(schemes::kTensorToken, kBatchedHardware),
                                        schemes::only_on(schemes::kTensorStatic, kBatchedHardware),
                                        schemes::only_on(schemes::kTensorDynamic, kBatchedHardware)};

// The word means the row of the layer's activation format.
constexpr Accepts in_format(Accepts a, std::string_view word) {
  a.request = word;
  a.request_in_format = true;
  return a;
}

constexpr Accepts kAiterFp8 = [] {
  Accepts a = kAiter;
  a.needs = float_needs::aiter;
  return a;
}();
constexpr Accepts kDeepGemmFp8 = [] {
  Accepts a = in_format(with_schemes(kDeepGemm, kBlockSchemes), "deep_gemm");
  a.needs = float_needs::deep_gemm;
  return a;
}();
constexpr Accepts kBatchedDeepGemm = [] {
  Accepts a = batched(kDeepGemmFp8);
  a.activations = {Activation::silu};
  a.all2all_refused = {};
  return a;
}();
constexpr Accepts kCutlass = {
    .request = "cutlass",
    .request_in_format = true,
    .devices = {DeviceType::cuda},
    .capabilities = kGroupedGemm,
    .ungated = false,
    .activations = {Activation::silu, Activation::gelu, Activation::swigluoai},
    .schemes = kCutlassSchemes,
    .all2all_refused = kCutlassAll2all,
};
constexpr Accepts kBatchedCutlass = [] {
  Accepts a = batched(kCutlass);
  a.all2all_refused = {};
  return a;
}();
constexpr Accepts kBatchedTriton = {
    .request = "triton",
    .request_in_format = true,
    .devices = {DeviceType::cuda, DeviceType::rocm},
    .activations = kNineActivations.without({Activation::swiglustep}),
    .schemes = kBatchedSchemes,
    .format = ActivationFormat::batched,
};
constexpr Accepts kVllmCpu = [] {
  Accepts a = with_schemes(kCpu, kBlockSchemes);
  a.needs = float_needs::vnni;
  return a;
}();
constexpr Accepts kOurCpu = [] {
  Accepts a = our_cpu({Format::float_quantized, Format::naive_quantized}, {LayoutKind::p16_e4m3},
                      {ActFormat::f32, ActFormat::bf16, ActFormat::e4m3});
  a.group_multiple = 32;
  return a;
}();

// clang-format off
constexpr std::array kRows = {
    BackendRow{.backend = "AITER",                .name = "AiterExperts",               .vllm = writes<LayoutKind::float_aiter>(kAiterFp8)},
    BackendRow{.backend = "FLASHINFER_TRTLLM",    .name = "TrtLlmFp8ExpertsMonolithic", .vllm = writes<LayoutKind::float_flashinfer_trtllm>(called(kTrtllmFp8Monolithic, "flashinfer_trtllm"))},
    BackendRow{.backend = "FLASHINFER_TRTLLM",    .name = "TrtLlmFp8ExpertsModular",    .vllm = writes<LayoutKind::float_flashinfer_trtllm>(called(kTrtllmFp8, "flashinfer_trtllm"))},
    BackendRow{.backend = "FLASHINFER_CUTLASS",   .name = "FlashInferExperts",          .vllm = writes<LayoutKind::float_flashinfer_cutlass>(called(kFlashInferCutlass, "flashinfer_cutlass"))},
    BackendRow{.backend = "DEEPGEMM",             .name = "TritonOrDeepGemmExperts",    .vllm = writes<LayoutKind::float_deep_gemm>(kDeepGemmFp8)},
    BackendRow{.backend = "VLLM_CUTLASS",         .name = "TritonOrCutlassExperts",     .vllm = writes<LayoutKind::float_plain>(kCutlass)},
    BackendRow{.backend = "TRITON",               .name = "TritonExperts",              .vllm = writes<LayoutKind::float_plain>(in_format(kTriton, "triton"))},
    BackendRow{.backend = "MARLIN",               .name = "MarlinExperts",              .vllm = writes<LayoutKind::float_marlin>(kMarlin)},
    BackendRow{.backend = "BATCHED_DEEPGEMM",     .name = "BatchedDeepGemmExperts",     .vllm = writes<LayoutKind::float_deep_gemm>(kBatchedDeepGemm)},
    BackendRow{.backend = "BATCHED_VLLM_CUTLASS", .name = "CutlassBatchedExpertsFp8",   .vllm = writes<LayoutKind::float_plain>(kBatchedCutlass)},
    BackendRow{.backend = "BATCHED_TRITON",       .name = "BatchedTritonExperts",       .vllm = writes<LayoutKind::float_plain>(kBatchedTriton)},
    BackendRow{.backend = "XPU",                  .name = "XPUExpertsFp8",              .vllm = writes<LayoutKind::float_xpu>(with_schemes(kXpu, kXpuFp8Schemes))},
    BackendRow{.backend = "XPU",                  .name = "XPUExpertsMxfp8",            .vllm = writes<LayoutKind::float_xpu>(with_schemes(kXpu, kXpuMxfp8Schemes))},
    BackendRow{.backend = "CPU",                  .name = "CPUExpertsFp8",              .vllm = writes<LayoutKind::float_vnni>(kVllmCpu), .libmoe = kOurCpu},
    BackendRow{.backend = "NONE",                 .name = "",                           .vllm = kNone},
};
// clang-format on

constexpr std::array<std::string_view, 2> kFlashInferBackends = {"FLASHINFER_TRTLLM", "FLASHINFER_CUTLASS"};
constexpr std::array<std::string_view, 2> kDeepGemmBackends = {"DEEPGEMM", "BATCHED_DEEPGEMM"};
constexpr std::array<std::string_view, 2> kCutlassBackends = {"VLLM_CUTLASS", "BATCHED_VLLM_CUTLASS"};
constexpr FlashInferSwitch kFlashInferSwitch = {.name = "VLLM_USE_FLASHINFER_MOE_FP8",
                                                .backends = kFlashInferBackends,
                                                .throughput = "FLASHINFER_CUTLASS",
                                                .latency = "FLASHINFER_TRTLLM"};
constexpr Refused kCutlassOff = {
    .kind = "disabled",
    .why = "vLLM's CUTLASS kernels serve checkpoints of compressed-tensors alone (allow_vllm_cutlass)"};

void to_front(Steering& s, std::string_view backend) {
  const auto it = std::find(s.order.begin(), s.order.end(), backend);
  if (it != s.order.end()) std::rotate(s.order.begin(), it, it + 1);
}

// The table's order, and what this layer and machine have first.
void list_of(const Query& q, Steering& s) {
  s.order = table_order(kRows);
  const bool blocks = q.weight_key == keys::kFp8Block && q.activation_key == keys::kFp8Group;
  if (q.platform.type == DeviceType::cuda && q.platform.capability == std::array<int, 2>{9, 0} && blocks)
    to_front(s, q.moe.parallel.ep_size > 1 ? "FLASHINFER_CUTLASS" : "TRITON");
  if (q.platform.type == DeviceType::xpu) to_front(s, "XPU");
  if (q.platform.type == DeviceType::cpu) to_front(s, "CPU");
}

// True: nothing else is read.
bool steer_deep_gemm(const Query& q, Steering& s) {
  if (!q.env_has("VLLM_USE_DEEP_GEMM") && !q.env_has("VLLM_MOE_USE_DEEP_GEMM")) return false;
  if (q.env_flag("VLLM_USE_DEEP_GEMM", true) && q.env_flag("VLLM_MOE_USE_DEEP_GEMM", true)) {
    s.needed = q.moe.parallel.batched() ? "BATCHED_DEEPGEMM" : "DEEPGEMM";
    return true;
  }
  drop(s, kDeepGemmBackends);
  return false;
}

Steering steer(const Query& q) {
  if (is_our_cpu(q)) return {.order = {"CPU"}};
  Steering s;
  list_of(q, s);
  if (!q.allow_vllm_cutlass) {
    drop(s, kCutlassBackends);
    if (q.moe.moe_backend == kCutlass.request) s.refused = kCutlassOff;
  }
  if (steer_flashinfer(q, kFlashInferSwitch, s) || steer_deep_gemm(q, s)) return s;
  if (q.env_flag("VLLM_TEST_FORCE_FP8_MARLIN", false)) {
    s.needed = "MARLIN";
    return s;
  }
  const bool gpu = q.platform.type == DeviceType::cuda || q.platform.type == DeviceType::rocm;
  if (!steer_aiter(q, s) && !gpu && q.layer == nullptr) s.order.emplace_back("NONE");
  return s;
}

QuantKey weight_key(const QuantArgs& w) {
  if (w.strategy == Strategy::channel) return keys::kFp8Channel;
  if (w.strategy == Strategy::tensor) return keys::kFp8Tensor;
  if (w.block_structure)
    return key_rows::fixed(KeyType::fp8, KeyType::fp32, {(*w.block_structure)[0], (*w.block_structure)[1]});
  return key_rows::fixed(KeyType::fp8, KeyType::fp32, {1, w.group_size.value_or(-1)});
}

// vLLM gives dynamic per-tensor activations of compressed-tensors the key of groups (float_oracles.md 5.2).
std::optional<QuantKey> activation_key(const Quantization& z, bool compressed_tensors) {
  if (!z.input_activations) return std::nullopt;
  const QuantArgs& a = *z.input_activations;
  if (z.weights->strategy == Strategy::block) return keys::kFp8Group;
  if (a.strategy == Strategy::token) return keys::kFp8Token;
  if (a.dynamic == Dynamic::no) return keys::kFp8Tensor;
  return compressed_tensors ? keys::kFp8Group : keys::kFp8DynamicTensor;
}

void set_keys(Query& q, const Config& c) {
  const Quantization& z = c.quantization;
  q.allow_vllm_cutlass = !z.file_method || *z.file_method == "compressed-tensors";
  q.weight_key = weight_key(*z.weights);
  q.activation_key = activation_key(z, q.allow_vllm_cutlass);
}

}  // namespace

constinit const Family families_of::fp8 = {
    .id = OracleId::fp8, .rows = kRows, .steer = steer, .set_keys = set_keys, .quant_config = fp8_config};

}  // namespace moe::oracle
