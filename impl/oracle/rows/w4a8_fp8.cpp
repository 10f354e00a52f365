// w4a8_fp8: int4 weights, 8-bit float activations quantized per token (float_oracles.md 2.7, 2.9). vLLM has no oracle
// for them: its compressed-tensors code takes one class on one GPU. So moe_describe has no question about them.
#include "oracle/float_configs.h"
#include "oracle/rows/row_classes.h"
#include "oracle/rows/steering.h"

namespace moe::oracle {
namespace {

constexpr Accepts kCutlass = {
    .request = "cutlass",
    .devices = {DeviceType::cuda},
    .capabilities = schemes::kHopper,
    .any_key = true,
    .eplb = false,
    .checkpoints = {Format::pack_quantized, Format::int_quantized},
    .only_group = 128,
    .size_multiple = 256,
    .needs = float_needs::cutlass_w4a8,
};
constexpr Accepts kOurCpu = [] {
  Accepts a = classes::our_cpu({Format::pack_quantized, Format::int_quantized}, {LayoutKind::p16_w4},
                               {ActFormat::blk16, ActFormat::f32});
  a.smallest_group = 16;
  return a;
}();

constexpr std::array kRows = {BackendRow{.backend = "CUTLASS",
                                         .name = "CutlassExpertsW4A8Fp8",
                                         .vllm = classes::writes<LayoutKind::float_cutlass_w4a8>(kCutlass)},
                              BackendRow{.backend = "CPU", .name = "", .vllm = classes::kNobody, .libmoe = kOurCpu}};

Steering steer(const Query& q) { return {.order = {is_our_cpu(q) ? "CPU" : "CUTLASS"}}; }

}  // namespace

constinit const Family families_of::w4a8_fp8 = {
    .id = OracleId::w4a8_fp8, .rows = kRows, .steer = steer, .quant_config = w4a8_fp8_config};

}  // namespace moe::oracle
