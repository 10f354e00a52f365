// Oracle nvfp4: 4-bit floats with an 8-bit float per 16 columns and a scale per tensor (float_oracles.md 2.3).
#include "oracle/float_configs.h"
#include "oracle/rows/row_classes.h"
#include "oracle/rows/steering.h"

namespace moe::oracle {
namespace {

using namespace classes;

constexpr std::array kFamily120 = {CapabilityRange{120, 129}};
constexpr std::array kCutlassGpus = {CapabilityRange{100, 119}, CapabilityRange{120, 129}};
constexpr std::array kSchemes = {schemes::kNvfp4};
constexpr EnumSet<RoutingMethod> kTrtllmRoutingToo = kTrtllmRouting.with({RoutingMethod::llama4});

constexpr Accepts kB12x = {
    .request = "b12x",
    .devices = {DeviceType::cuda},
    .capabilities = kFamily120,
    .device_library = "b12x",
    .activations = {Activation::silu, Activation::swigluoai},
    .schemes = kSchemes,
    .expert_parallel = false,
    .eplb = false,
    .use_ep = false,
    .all2all = false,
    .needs = float_needs::swizzled,
};
constexpr Accepts kTrtllm = [] {
  Accepts a = called(with_schemes(kBlackwellFlashInfer, kSchemes), "flashinfer_trtllm");
  a.activations = {Activation::silu, Activation::relu2_no_mul, Activation::gelu};
  a.needs = float_needs::trtllm_nvfp4;
  return a;
}();
constexpr Accepts kCuteDsl = [] {
  Accepts a = called(with_schemes(kBlackwellFlashInfer, kSchemes), "flashinfer_cutedsl");
  a.request_in_format = true;
  a.ungated = false;
  a.activations = {Activation::silu};
  a.needs = float_needs::interleaved;
  return a;
}();
constexpr Accepts kBatchedCuteDsl = [] {
  Accepts a = batched(kCuteDsl);
  a.needs = float_needs::swizzled;
  return a;
}();
constexpr Accepts kFlashInferNvfp4 = [] {
  Accepts a = called(kFlashInferCutlass, "flashinfer_cutlass");
  a.needs = float_needs::swizzled;
  return a;
}();
constexpr Accepts kCutlass = {
    .request = "cutlass",
    .devices = {DeviceType::cuda},
    .capabilities = kCutlassGpus,
    .activations = kCutlassFp4Activations,
    .schemes = kSchemes,
    .expert_parallel = false,
    .needs = float_needs::swizzled,
};
constexpr Accepts kOurCpu =
    our_cpu({Format::nvfp4_pack_quantized, Format::nvfp4_pairs}, {LayoutKind::p16_nvfp4}, kFp4Acts);

// clang-format off
constexpr std::array kRows = {
    BackendRow{.backend = "B12X",                       .name = "B12xExperts",                              .vllm = writes<LayoutKind::float_b12x>(kB12x)},
    BackendRow{.backend = "FLASHINFER_TRTLLM",          .name = "TrtLlmNvFp4ExpertsMonolithic",             .vllm = writes<LayoutKind::float_flashinfer_trtllm>(monolithic(kTrtllm, kTrtllmRoutingToo))},
    BackendRow{.backend = "FLASHINFER_TRTLLM",          .name = "TrtLlmNvFp4ExpertsModular",                .vllm = writes<LayoutKind::float_flashinfer_trtllm>(kTrtllm)},
    BackendRow{.backend = "FLASHINFER_CUTEDSL",         .name = "FlashInferCuteDSLExperts",                 .vllm = writes<LayoutKind::float_cutedsl>(kCuteDsl)},
    BackendRow{.backend = "FLASHINFER_CUTEDSL_BATCHED", .name = "FlashInferCuteDSLBatchedExperts",          .vllm = writes<LayoutKind::float_cutedsl_batched>(kBatchedCuteDsl)},
    BackendRow{.backend = "FLASHINFER_CUTLASS",         .name = "FlashInferExperts",                        .vllm = writes<LayoutKind::float_flashinfer_cutlass>(kFlashInferNvfp4)},
    BackendRow{.backend = "VLLM_CUTLASS",               .name = "CutlassExpertsFp4",                        .vllm = writes<LayoutKind::float_vllm_cutlass>(kCutlass)},
    BackendRow{.backend = "MARLIN",                     .name = "MarlinExperts",                            .vllm = writes<LayoutKind::float_marlin>(kMarlin)},
    BackendRow{.backend = "EMULATION",                  .name = "Nvfp4QuantizationEmulationTritonExperts",  .vllm = writes<LayoutKind::float_plain>(called(with_schemes(kTriton, kSchemes), "emulation"))},
    BackendRow{.backend = "CPU",                        .name = "",                                         .vllm = kNobody, .libmoe = kOurCpu},
};
// clang-format on

// The order in which the switch alone asks them, which is not the table's.
constexpr std::array<std::string_view, 4> kFlashInferBackends = {"FLASHINFER_TRTLLM", "FLASHINFER_CUTLASS",
                                                                 "FLASHINFER_CUTEDSL", "FLASHINFER_CUTEDSL_BATCHED"};
constexpr FlashInferSwitch kFlashInferSwitch = {.name = "VLLM_USE_FLASHINFER_MOE_FP4",
                                                .backends = kFlashInferBackends,
                                                .throughput = "FLASHINFER_CUTLASS",
                                                .latency = "FLASHINFER_TRTLLM",
                                                .masked_gemm = "FLASHINFER_CUTEDSL"};

Steering steer(const Query& q) {
  if (is_our_cpu(q)) return {.order = {"CPU"}};
  Steering s = {.order = table_order(kRows)};
  if (steer_flashinfer(q, kFlashInferSwitch, s)) return s;
  if (q.env_flag("VLLM_TEST_FORCE_FP8_MARLIN", false)) s.needed = "MARLIN";
  return s;
}

void set_keys(Query& q, const Config& c) {
  q.weight_key = keys::kNvfp4;
  if (c.quantization.input_activations) q.activation_key = keys::kNvfp4Dynamic;
}

}  // namespace

constinit const Family families_of::nvfp4 = {
    .id = OracleId::nvfp4, .rows = kRows, .steer = steer, .set_keys = set_keys, .quant_config = nvfp4_config};

}  // namespace moe::oracle
