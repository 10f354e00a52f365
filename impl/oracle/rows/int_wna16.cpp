// Oracle int_wna16: int4 or int8 weights, 16-bit activations (wna16.md 1.4, 1.5).
//
// Our CPU row takes all checkpoint formats, zero points, activation order also where tensor parallelism cuts it, and
// groups of 16 columns or more. The layouts of the other rows are those of
// layouts/wna16/wna16_layout.h, but for HUMMING; what they need beyond vLLM's checks is in wna16_needs.cpp.
#include "oracle/backend.h"
#include "oracle/rows/row_sets.h"
#include "vllm/quant_config_builders.h"

namespace moe::oracle {
namespace {

constexpr std::array kInt4Keys = {key_named("kInt4Static"), key_named("kInt4Static32"), key_named("kInt4StaticAsym"),
                                  key_named("kInt4Static32Asym")};
constexpr std::array kAllKeys = {kInt4Keys[0], kInt4Keys[1], kInt4Keys[2], kInt4Keys[3], key_named("kInt8Static")};
constexpr std::array kTrtllmKeys = {key_named("kInt4Static32")};
constexpr std::array kXpuKeys = {key_named("kInt4Static"), key_named("kInt4Static32")};
constexpr std::array kCpuKeys = {key_named("kInt4Static")};
constexpr std::array kInt8Keys = {key_named("kInt8Static")};

constexpr std::array kFromTuring = {CapabilityRange{75, 999}}, kBlackwell = {CapabilityRange{100, 109}};
constexpr std::array kTrtllmSwitch = {Switch{"VLLM_USE_FLASHINFER_MOE_INT4", false}};
constexpr std::array<std::string_view, 1> kAllgather = {"allgather_reducescatter"};

// vLLM's GPU list is also what it tries on devices that no row runs on.
constexpr EnumSet<DeviceType> kGpuList = {DeviceType::cuda, DeviceType::rocm, DeviceType::tpu, DeviceType::oot};
constexpr EnumSet<Format> kFormats = {Format::pack_quantized, Format::gptq, Format::awq};

constexpr std::array kMarlinLayout = {NamedChoice{LayoutKind::wna16_marlin}};
constexpr std::array kTrtllmLayout = {NamedChoice{LayoutKind::wna16_trtllm}};
constexpr std::array kXpuLayout = {NamedChoice{LayoutKind::wna16_xpu}};
constexpr std::array kVnniLayout = {NamedChoice{LayoutKind::wna16_vnni}};
constexpr std::array kOnTheFlyLayout = {NamedChoice{LayoutKind::wna16_on_the_fly}};
constexpr std::array kDenseLayout = {NamedChoice{LayoutKind::wna16_dense}};

constexpr Accepts kMarlin = {
    .listed = kGpuList,
    .request = "marlin",
    .devices = {DeviceType::cuda},
    .capabilities = kFromTuring,
    .activations = kNineActivations,
    .weight_keys = kAllKeys,
    .all2all_refused = kNvlinkAll2all,
    .lora = true,
    .checkpoints = kFormats,
    .other_layouts = kMarlinLayout,
};
constexpr Accepts kBatchedMarlin = [] {
  Accepts a = kMarlin;
  a.request = "";  // "marlin" never means this one
  a.format = ActivationFormat::batched;
  a.lora = false;
  return a;
}();
constexpr Accepts kTrtllm = {
    .listed = kGpuList,
    .request = "flashinfer_trtllm",
    .devices = {DeviceType::cuda},
    .capabilities = kBlackwell,
    .device_library = "flashinfer_trtllm_moe",
    .device_switches = kTrtllmSwitch,
    .ungated = false,
    .activations = {Activation::silu, Activation::swigluoai},
    .weight_keys = kTrtllmKeys,
    .eplb = false,
    .all2all_only = kAllgather,
    .routing = {RoutingMethod::renormalize, RoutingMethod::renormalize_naive, RoutingMethod::deepseek_v3,
                RoutingMethod::llama4, RoutingMethod::simulated},
    .float32_logits = {RoutingMethod::deepseek_v3, RoutingMethod::simulated},
    .checkpoints = kFormats,
    .other_layouts = kTrtllmLayout,
};
constexpr Accepts kXpu = {
    .listed = {DeviceType::xpu},
    .devices = {DeviceType::xpu},
    .activations = {Activation::silu, Activation::gelu, Activation::gelu_tanh, Activation::swigluoai,
                    Activation::relu2_no_mul},
    .weight_keys = kXpuKeys,
    .checkpoints = kFormats,
    .other_layouts = kXpuLayout,
};
constexpr Accepts kCpu = {
    .listed = {DeviceType::cpu},
    .devices = {DeviceType::cpu},
    .ungated = false,
    .activations = {Activation::silu},
    .weight_keys = kCpuKeys,
    .routing = {RoutingMethod::default_, RoutingMethod::renormalize, RoutingMethod::renormalize_naive},
    .checkpoints = kFormats,
    .other_layouts = kVnniLayout,
};
constexpr Accepts kOurCpu = [] {
  Accepts a = kCpu;
  a.request = "cpu";
  a.ungated = true;
  a.activations = EnumSet<Activation>::all();
  a.weight_keys = kAllKeys;
  a.routing = EnumSet<RoutingMethod>::all();
  a.batch_invariant = true;
  a.archs = {Arch::x86_64, Arch::aarch64};
  a.in_dtypes = {DType::f32, DType::bf16, DType::f16};
  a.smallest_group = 16;
  a.cuts_order = true;
  a.checkpoints = EnumSet<Format>::all();  // what is read of them, scheme/tensor_sets.cpp says
  a.other_layouts = {};
  a.layouts = {LayoutKind::p16_w4, LayoutKind::p16_w8, LayoutKind::p16_int4};  // int4: with compute a8
  a.acts = {ActFormat::blk16, ActFormat::f32, ActFormat::tok8, ActFormat::blk8};
  return a;
}();
// Its layout is another package's: vLLM's answer is given, but nothing is written.
constexpr Accepts kHumming = [] {
  Accepts a = kMarlin;
  a.other_layouts = {};
  a.answer_only = true;
  a.request = "humming";
  a.any_key = true;
  a.lora = false;
  return a;
}();
constexpr Accepts kBatchedHumming = [] {
  Accepts a = kHumming;
  a.format = ActivationFormat::batched;
  return a;
}();
constexpr Accepts unwritten(Accepts a) {  // in a selection that conversion can follow
  a.answer_only = false;
  return a;
}
constexpr Accepts emulation(std::span<const QuantKey> keys, std::span<const NamedChoice> layout) {
  Accepts a = kMarlin;
  a.other_layouts = layout;
  a.request = "emulation";
  a.devices = {DeviceType::cuda, DeviceType::rocm};
  a.capabilities = {};
  a.weight_keys = keys;
  a.batch_invariant = true;
  return a;
}
constexpr Accepts on_cpu_too(Accepts a) {
  a.devices = a.devices.with({DeviceType::cpu});
  a.listed = a.listed.with({DeviceType::cpu});
  return a;
}

// clang-format off
constexpr std::array kRows = {
    BackendRow{.backend = "FLASHINFER_TRTLLM", .name = "TrtLlmMxint4ExpertsMonolithic", .vllm = kTrtllm},
    BackendRow{.backend = "MARLIN",            .name = "MarlinExperts",                 .vllm = kMarlin},
    BackendRow{.backend = "BATCHED_MARLIN",    .name = "BatchedMarlinExperts",          .vllm = kBatchedMarlin},
    BackendRow{.backend = "XPU",               .name = "XPUExpertsWNA16",               .vllm = kXpu},
    BackendRow{.backend = "CPU",               .name = "CPUExpertsInt4",                .vllm = kCpu, .libmoe = kOurCpu},
    BackendRow{.backend = "HUMMING",           .name = "BatchedHummingGroupedExperts",  .vllm = kBatchedHumming, .libmoe = unwritten(kBatchedHumming)},
    BackendRow{.backend = "HUMMING",           .name = "HummingGroupedExperts",         .vllm = kHumming, .libmoe = unwritten(kHumming)},
    BackendRow{.backend = "HUMMING",           .name = "HummingIndexedExperts",         .vllm = kHumming, .libmoe = unwritten(kHumming)},
    BackendRow{.backend = "EMULATION",         .name = "TritonWNA16OTFExperts",         .vllm = emulation(kAllKeys, kOnTheFlyLayout),  .libmoe = on_cpu_too(emulation(kAllKeys, kOnTheFlyLayout))},
    BackendRow{.backend = "EMULATION",         .name = "Int4EmulationTritonExperts",    .vllm = emulation(kInt4Keys, kDenseLayout), .libmoe = on_cpu_too(emulation(kInt4Keys, kDenseLayout))},
    BackendRow{.backend = "EMULATION",         .name = "Int8EmulationTritonExperts",    .vllm = emulation(kInt8Keys, kDenseLayout), .libmoe = on_cpu_too(emulation(kInt8Keys, kDenseLayout))},
};
// clang-format on

void set_keys(Query& q, const Config& c) {
  const QuantArgs& w = *c.quantization.weights;
  const bool by_format = read_as(c.quantization.format) != Format::pack_quantized;  // gptq and awq have one key each
  const bool by_vllm = c.selection_policy == Policy::vllm && q.platform.type == DeviceType::cpu;
  std::string_view name = w.symmetric ? "kInt4Static" : "kInt4StaticAsym";
  if (w.num_bits == 8)
    name = "kInt8Static";
  else if (by_format || by_vllm)
    name = "kInt4Static";
  else if (c.weight_groups() == Groups::even(32))
    name = w.symmetric ? "kInt4Static32" : "kInt4Static32Asym";
  q.weight_key = key_named(name);
}

Result<QuantConfig> quant_config(const Config& c, std::string_view) {
  const QuantArgs& w = *c.quantization.weights;
  const std::int64_t g = c.weight_groups().as_written();
  // Integer activations bring one global scale where a matrix has more than one group (wna16.md 3.3).
  const bool global = c.marlin_input_dtype == MarlinInput::int8 && g != -1;
  BuilderArgs a;
  a.w1_scale = a.w2_scale = true;
  a.w1_zp = a.w2_zp = !w.symmetric;
  a.w1_bias = a.w2_bias = c.has_bias;
  a.a1_gscale = global && c.hidden_dim > g;
  a.a2_gscale = global && c.intermediate_size_per_partition > g;
  a.weight_bits = w.num_bits;
  a.group_size = g;
  a.gemm1_alpha = c.alpha;
  a.gemm1_beta = c.beta;
  a.gemm1_clamp_limit = c.limit;
  return wna16_quant_config(a);
}

// The first stage of vLLM's oracle (wna16.md, S1): four backends, no zero points, and moe_backend is not read.
constexpr std::array kFirstKeys = {kInt4Keys[0], kInt4Keys[1], key_named("kInt8Static")};
constexpr Accepts first_stage(Accepts a) {
  a.weight_keys = kFirstKeys;
  return a;
}
constexpr std::array kFirstRows = {
    BackendRow{.backend = "FLASHINFER_TRTLLM", .name = "TrtLlmMxint4ExpertsMonolithic", .vllm = kTrtllm},
    BackendRow{.backend = "MARLIN", .name = "MarlinExperts", .vllm = first_stage(kMarlin)},
    BackendRow{.backend = "BATCHED_MARLIN", .name = "BatchedMarlinExperts", .vllm = first_stage(kBatchedMarlin)},
    BackendRow{.backend = "XPU", .name = "XPUExpertsWNA16", .vllm = kXpu}};

Steering first_steer(const Query& q) {
  Steering s;
  s.word_unread = true;
  for (const BackendRow& row : kFirstRows)
    if (row.vllm.listed.has(q.platform.type)) s.order.push_back(row.backend);
  return s;
}

}  // namespace

constinit const Family families_of::int_wna16_april_2026 = {.id = OracleId::int_wna16,
                                                            .rows = kFirstRows,
                                                            .steer = first_steer,
                                                            .set_keys = set_keys,
                                                            .quant_config = quant_config};

constinit const Family families_of::int_wna16 = {.id = OracleId::int_wna16,
                                                 .rows = kRows,
                                                 .named = OnMissingDevice::warn_and_auto,
                                                 .set_keys = set_keys,
                                                 .quant_config = quant_config};

}  // namespace moe::oracle
