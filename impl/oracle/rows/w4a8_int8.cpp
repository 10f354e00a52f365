// Oracle w4a8_int8: int4 weights, int8 activations quantized inside the kernel (w4a8_int8.md 1).
// One backend. vLLM's runs on Arm only, with PyTorch's KleidiAI operators and four group sizes.
#include "oracle/backend.h"
#include "vllm/quant_config_builders.h"

namespace moe::oracle {
namespace {

constexpr std::array kKeys = {key_named("kInt4W4A8StaticChannelSym"), key_named("kInt4W4A8StaticGroup32Sym"),
                              key_named("kInt4W4A8StaticGroup64Sym"), key_named("kInt4W4A8StaticGroup128Sym"),
                              key_named("kInt4W4A8StaticGroupSym")};

// What PyTorch's pack operator makes of the weights (w4a8_int8.md 3.3).
constexpr std::array kTorchLayouts = {NamedChoice{LayoutKind::kai, Isa::dotprod}, NamedChoice{LayoutKind::torch_float}};
// Ours: on every Arm CPU, so that one packed set serves its kernels and KleidiAI's.
constexpr std::array kKleidiAi = {NamedChoice{LayoutKind::kai, Isa::scalar, Arch::aarch64}};

constexpr Accepts kVllm = {
    .listed = {DeviceType::cpu},
    .request = "cpu",
    .devices = {DeviceType::cpu},
    .archs = {Arch::aarch64},
    .ops_library = "torch_dyn_quant_4bit",
    .in_dtypes = {DType::f32, DType::bf16, DType::f16},
    .ungated = false,
    .activations = {Activation::silu, Activation::swigluoai, Activation::swiglustep},
    .weight_keys = kKeys,
    .expert_parallel = false,
    .hash_routing = false,
    .routing = {RoutingMethod::default_, RoutingMethod::renormalize, RoutingMethod::renormalize_naive},
    // what conversion takes
    .checkpoints = {Format::int_quantized, Format::pack_quantized},
    .transposed = false,
    .group_multiple = 32,
    .size_multiple = 2,
    .other_layouts = kTorchLayouts,
    .acts = {ActFormat::tok8},
};

constexpr Accepts kLibmoe = [] {
  Accepts a = kVllm;
  // wider than vLLM
  a.archs = {Arch::x86_64, Arch::aarch64};
  a.ops_library = "";
  a.activations = EnumSet<Activation>::all();
  a.ungated = true;
  a.any_key = true;  // every group size that the kernels below take
  a.expert_parallel = true;
  a.hash_routing = true;
  a.routing = EnumSet<RoutingMethod>::all();
  a.batch_invariant = true;
  // what our kernels take
  a.callers_factor = false;
  a.other_layouts = kKleidiAi;
  a.layouts = {LayoutKind::p16_int4};
  a.acts = {ActFormat::tok8, ActFormat::blk8};
  return a;
}();

constexpr std::array kRows = {
    BackendRow{.backend = "CPU_INT4", .name = "CPUExpertsInt4", .vllm = kVllm, .libmoe = kLibmoe}};

void set_keys(Query& q, const Config& c) { q.weight_key = w4a8_weight_key(c.weight_groups()); }

Result<QuantConfig> quant_config(const Config& c, std::string_view) {
  BuilderArgs a;
  a.block_shape = c.weight_groups().is_whole() ? kPerChannel : GroupShape{1, c.weight_groups().as_written()};
  return w4a8_int8_quant_config(a);
}

}  // namespace

constinit const Family families_of::w4a8_int8 = {.id = OracleId::w4a8_int8,
                                                 .rows = kRows,
                                                 .device_before_name = true,
                                                 .set_keys = set_keys,
                                                 .quant_config = quant_config};

}  // namespace moe::oracle
