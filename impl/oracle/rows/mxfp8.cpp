// Oracle mxfp8: 8-bit floats with a power of two per 32 columns (float_oracles.md 2.5). Backends and classes are those
// of fp8; vLLM reads no switch.
#include "oracle/float_configs.h"
#include "oracle/rows/row_classes.h"
#include "oracle/rows/steering.h"

namespace moe::oracle {
namespace {

using namespace classes;

constexpr Accepts kOurCpu =
    our_cpu({Format::mxfp8_quantized}, {LayoutKind::p16_mxfp8}, {ActFormat::f32, ActFormat::bf16, ActFormat::e4m3});

// clang-format off
constexpr std::array kRows = {
    BackendRow{.backend = "FLASHINFER_TRTLLM", .name = "TrtLlmFp8ExpertsMonolithic", .vllm = writes<LayoutKind::float_flashinfer_trtllm>(called(kTrtllmFp8Monolithic, "flashinfer_trtllm"))},
    BackendRow{.backend = "FLASHINFER_TRTLLM", .name = "TrtLlmFp8ExpertsModular",    .vllm = writes<LayoutKind::float_flashinfer_trtllm>(called(kTrtllmFp8, "flashinfer_trtllm"))},
    BackendRow{.backend = "MARLIN",            .name = "MarlinExperts",              .vllm = writes<LayoutKind::float_marlin>(kMarlin)},
    BackendRow{.backend = "XPU",               .name = "XPUExpertsFp8",              .vllm = writes<LayoutKind::float_xpu>(called(with_schemes(kXpu, kXpuFp8Schemes), "xpu"))},
    BackendRow{.backend = "XPU",               .name = "XPUExpertsMxfp8",            .vllm = writes<LayoutKind::float_xpu>(called(with_schemes(kXpu, kXpuMxfp8Schemes), "xpu"))},
    BackendRow{.backend = "CPU",               .name = "",                           .vllm = kNobody, .libmoe = kOurCpu},
};
// clang-format on

Steering steer(const Query& q) {
  if (is_our_cpu(q)) return {.order = {"CPU"}};
  return {.order = table_order(kRows)};
}

void set_keys(Query& q, const Config& c) {
  q.weight_key = keys::kMxfp8;
  if (c.quantization.input_activations) q.activation_key = keys::kMxfp8Dynamic;
}

}  // namespace

constinit const Family families_of::mxfp8 = {
    .id = OracleId::mxfp8, .rows = kRows, .steer = steer, .set_keys = set_keys, .quant_config = mxfp8_config};

}  // namespace moe::oracle
