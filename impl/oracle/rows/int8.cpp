// Oracle int8: int8 weights with a scale per output row, int8 activations quantized per token at run time
// (float_oracles.md 2.2). vLLM has Triton only, on NVIDIA from Turing on; its CPU kernel is not reachable there.
#include "oracle/backend.h"
#include "oracle/rows/row_sets.h"
#include "vllm/quant_config_builders.h"

namespace moe::oracle {
namespace {

constexpr std::array kFromTuring = {CapabilityRange{75, kNoEnd}};
constexpr std::array kSchemes = {Scheme{.weight = key_named("kInt8StaticChannelSym"),
                                        .activation = key_named("kInt8DynamicTokenSym"),
                                        .on = {.devices = {DeviceType::cuda}, .capabilities = kFromTuring}}};

constexpr Accepts kTriton = {
    .listed = EnumSet<DeviceType>::all(),
    .request = "triton",
    .devices = {DeviceType::cuda, DeviceType::rocm, DeviceType::xpu},
    .activations = kNineActivations,
    .schemes = kSchemes,
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

// vLLM knows channel-wise weights with activations per token; other pairs get keys that only libmoe's row takes.
void set_keys(Query& q, const Config& c) {
  q.weight_key = c.weight_groups().is_whole()
                     ? key_named("kInt8StaticChannelSym")
                     : key_rows::fixed(KeyType::int8, KeyType::fp32, {1, c.weight_groups().as_written()});
  q.activation_key = key_named("kInt8DynamicTokenSym");
}

Result<QuantConfig> quant_config(const Config& c, std::string_view) {
  BuilderArgs a;
  a.w1_scale = a.w2_scale = true;
  a.w1_bias = a.w2_bias = c.has_bias;
  a.per_act_token_quant = true;
  return int8_quant_config(a);
}

}  // namespace

constinit const Family families_of::int8 = {
    .id = OracleId::int8, .rows = kRows, .set_keys = set_keys, .quant_config = quant_config};

}  // namespace moe::oracle
