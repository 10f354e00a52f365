// Oracle int8: int8 weights with a scale per output row, int8 activations quantised per token at run time
// (float_oracles.md 2.2). vLLM has Triton only, on NVIDIA from Turing on; its CPU kernel is not reachable there.
#include "oracle/backend.h"
#include "oracle/row_sets.h"

namespace moe {
namespace {

constexpr std::array kWeights = {key_named("kInt8StaticChannelSym")};
constexpr std::array kActivations = {key_named("kInt8DynamicTokenSym")};
constexpr std::array kFromTuring = {CapabilityRange{75, 999}};

constexpr Accepts kTriton = {
    .listed = EnumSet<DeviceType>::all(),
    .request = "triton",
    .devices = {DeviceType::cuda, DeviceType::rocm, DeviceType::xpu},
    .activations = kNineActivations,
    .weight_keys = kWeights,
    .activation_keys = kActivations,
    .scheme_capabilities = kFromTuring,
    .all2all_refused = kNvlinkAll2all,
    .batch_invariant = true,
    .lora = true,
    .checkpoints = {Format::int_quantized},
};
// libmoe alone: groups too, and activations per 32 columns.
constexpr Accepts kNobody = {.listed = {}, .devices = {}};
constexpr Accepts kCpu = {
    .listed = {DeviceType::cpu},
    .request = "cpu",
    .devices = {DeviceType::cpu},
    .archs = {Arch::x86_64, Arch::aarch64},
    .in_dtypes = {DType::f32, DType::bf16, DType::f16},
    .any_key = true,
    .batch_invariant = true,
    .checkpoints = {Format::int_quantized, Format::pack_quantized},
    .transposed = false,
    .group_multiple = 32,
    .layouts = {LayoutKind::p16_w8},
    .acts = {ActFormat::tok8, ActFormat::blk8},
};

constexpr std::array kRows = {BackendRow{.backend = "TRITON", .name = "TritonExperts", .vllm = kTriton},
                              BackendRow{.backend = "CPU", .name = "", .vllm = kNobody, .libmoe = kCpu}};

}  // namespace

std::span<const BackendRow> int8_rows() { return kRows; }

}  // namespace moe
