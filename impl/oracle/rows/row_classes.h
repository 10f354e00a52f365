// vLLM's experts classes that several float oracles offer, as cells (float_oracles.md 3), the keys they compare, and
// libmoe's own CPU row. An oracle's table says by which word and where in the list.
#pragma once

#include <array>
#include <string_view>

#include "oracle/backend.h"
#include "oracle/rows/row_sets.h"
#include "oracle/rules/float_needs.h"

namespace moe::oracle {

namespace keys {
inline constexpr QuantKey kFp8Tensor = key_named("kFp8StaticTensorSym"),
                          kFp8Channel = key_named("kFp8StaticChannelSym"),
                          kFp8Block = key_named("kFp8Static128BlockSym"),
                          kFp8DynamicTensor = key_named("kFp8DynamicTensorSym"),
                          kFp8Token = key_named("kFp8DynamicTokenSym"), kFp8Group = key_named("kFp8Dynamic128Sym"),
                          kMxfp8 = key_named("kMxfp8Static"), kMxfp8Dynamic = key_named("kMxfp8Dynamic"),
                          kMxfp4 = key_named("kMxfp4Static"), kMxfp4Dynamic = key_named("kMxfp4Dynamic"),
                          kNvfp4 = key_named("kNvfp4Static"), kNvfp4Dynamic = key_named("kNvfp4Dynamic");
}  // namespace keys

namespace schemes {

inline constexpr Scheme kBlock = {keys::kFp8Block, keys::kFp8Group},
                        kChannelToken = {keys::kFp8Channel, keys::kFp8Token},
                        kTensorToken = {keys::kFp8Tensor, keys::kFp8Token},
                        kTensorStatic = {keys::kFp8Tensor, keys::kFp8Tensor},
                        kTensorDynamic = {keys::kFp8Tensor, keys::kFp8DynamicTensor},
                        kTensorA16 = {keys::kFp8Tensor, std::nullopt}, kMxfp8 = {keys::kMxfp8, keys::kMxfp8Dynamic},
                        kMxfp8A16 = {keys::kMxfp8, std::nullopt}, kNvfp4 = {keys::kNvfp4, keys::kNvfp4Dynamic},
                        kMxfp4A16 = {keys::kMxfp4, std::nullopt}, kMxfp4Mxfp8 = {keys::kMxfp4, keys::kMxfp8Dynamic},
                        kMxfp4Mxfp4 = {keys::kMxfp4, keys::kMxfp4Dynamic}, kMxfp4Fp8 = {keys::kMxfp4, keys::kFp8Tensor},
                        kMxfp4Group = {keys::kMxfp4, keys::kFp8Group};

constexpr Scheme only_on(Scheme s, Machines m) {
  s.on = m;
  return s;
}

inline constexpr std::array kFrom89 = {CapabilityRange{89, kNoEnd}}, kFrom90 = {CapabilityRange{90, kNoEnd}},
                            kFrom100 = {CapabilityRange{100, kNoEnd}}, kHopper = {CapabilityRange{90, 90}};
inline constexpr std::array<std::string_view, 1> kGfx950 = {"gfx950"};
inline constexpr std::array<std::string_view, 4> kFp8Gfx = {"gfx90a", "gfx942", "gfx950", "gfx12*"};
inline constexpr Machines kFp8Hardware = {
    .devices = {DeviceType::cuda, DeviceType::rocm, DeviceType::xpu}, .capabilities = kFrom89, .gfx = kFp8Gfx};

inline constexpr std::array kTriton = {only_on(kBlock, kFp8Hardware), only_on(kChannelToken, kFp8Hardware),
                                       only_on(kTensorToken, kFp8Hardware), only_on(kTensorStatic, kFp8Hardware),
                                       only_on(kTensorDynamic, kFp8Hardware)};
inline constexpr std::array kFlashInfer = {
    only_on(kTensorStatic, {.capabilities = kFrom90}), only_on(kBlock, {.capabilities = kHopper}),
    only_on(kMxfp4A16, {.capabilities = kHopper}), only_on(kMxfp4Mxfp8, {.capabilities = kFrom100}),
    only_on(kNvfp4, {.capabilities = kFrom100})};
inline constexpr std::array kAiter = {kBlock,
                                      kTensorStatic,
                                      kTensorDynamic,
                                      kChannelToken,
                                      only_on(kMxfp4A16, {.gfx = kGfx950}),
                                      only_on(kMxfp4Mxfp4, {.gfx = kGfx950})};
inline constexpr std::array kTrtllmFp8 = {kBlock, kMxfp8};

}  // namespace schemes

namespace classes {

inline constexpr std::array kBlackwell = {CapabilityRange{100, 109}};
inline constexpr std::array kFromTuring = {CapabilityRange{75, kNoEnd}};
inline constexpr std::array kFlashInferGpus = {CapabilityRange{90, 90}, CapabilityRange{100, 109},
                                               CapabilityRange{120, 129}};
inline constexpr std::array kDeepGemmGpus = {CapabilityRange{90, 90}, CapabilityRange{100, 109}};
inline constexpr std::array kDeepGemmSwitch = {Switch{"VLLM_USE_DEEP_GEMM", true}};
inline constexpr std::array<std::string_view, 2> kAiterGfx = {"gfx942", "gfx950"};
inline constexpr std::array kAiterSwitches = {Switch{"VLLM_ROCM_USE_AITER", false},
                                              Switch{"VLLM_ROCM_USE_AITER_MOE", true}};
inline constexpr std::array<std::string_view, 1> kAllgather = {"allgather_reducescatter"};
inline constexpr EnumSet<RoutingMethod> kTrtllmRouting = {
    RoutingMethod::deepseek_v3,    RoutingMethod::renormalize, RoutingMethod::renormalize_naive,
    RoutingMethod::sigmoid_renorm, RoutingMethod::minimax2,    RoutingMethod::simulated};
inline constexpr EnumSet<RoutingMethod> kRenormalizing = {RoutingMethod::renormalize, RoutingMethod::renormalize_naive};

// TritonExperts.
inline constexpr Accepts kTriton = {
    .devices = {DeviceType::cuda, DeviceType::rocm, DeviceType::xpu},
    .activations = kNineActivations,
    .schemes = schemes::kTriton,
    .all2all_refused = kNvlinkAll2all,
    .batch_invariant = true,
    .lora = true,
};
// FlashInferExperts.
inline constexpr Accepts kFlashInferCutlass = {
    .devices = {DeviceType::cuda},
    .capabilities = kFlashInferGpus,
    .device_library = "flashinfer",
    .activations = {Activation::silu, Activation::relu2_no_mul, Activation::swigluoai},
    .schemes = schemes::kFlashInfer,
};
// What all of FlashInfer's TensorRT-LLM and CuteDSL kernels ask of the machine.
inline constexpr Accepts kBlackwellFlashInfer = {
    .devices = {DeviceType::cuda},
    .capabilities = kBlackwell,
    .device_library = "flashinfer",
};
// TrtLlmFp8ExpertsModular.
inline constexpr Accepts kTrtllmFp8 = [] {
  Accepts a = kBlackwellFlashInfer;
  a.activations = {Activation::silu, Activation::relu2_no_mul};
  a.schemes = schemes::kTrtllmFp8;
  a.eplb = false;
  a.all2all_only = kAllgather;
  a.needs = float_needs::trtllm_fp8;
  return a;
}();
inline constexpr std::array kTrtllmFp8MonolithicSchemes = {schemes::kBlock,
                                                           [] {
                                                             Scheme s = schemes::kTensorStatic;
                                                             s.routing_too = {RoutingMethod::llama4};
                                                             return s;
                                                           }(),
                                                           schemes::kMxfp8};
// TrtLlmFp8ExpertsMonolithic.
inline constexpr Accepts kTrtllmFp8Monolithic = [] {
  Accepts a = kTrtllmFp8;
  a.schemes = kTrtllmFp8MonolithicSchemes;
  a.routing = kTrtllmRouting;
  return a;
}();
// A class that routes too: it runs alone on its rank.
constexpr Accepts monolithic(Accepts a, EnumSet<RoutingMethod> routing) {
  a.all2all = false;
  a.eplb = false;
  a.routing = routing;
  return a;
}
constexpr Accepts without_data_parallel(Accepts a) {
  a.data_parallel = false;
  return a;
}
constexpr Accepts batched(Accepts a) {
  a.format = ActivationFormat::batched;
  return a;
}
// What a row of an oracle writes: one named layout.
template <LayoutKind kKind>
inline constexpr std::array kWritten = {NamedChoice{kKind}};
template <LayoutKind kKind>
constexpr Accepts writes(Accepts a) {
  a.other_layouts = kWritten<kKind>;
  if (a.needs == nullptr) a.needs = float_needs::sizes;
  return a;
}
constexpr Accepts called(Accepts a, std::string_view word) {
  a.request = word;
  return a;
}

inline constexpr std::array kMarlinKeys = {keys::kFp8Block, keys::kFp8Channel, keys::kFp8Tensor,
                                           keys::kMxfp4,    keys::kMxfp8,      keys::kNvfp4};
// MarlinExperts: looks at the weights alone, so quantized activations become 16-bit ones without a word.
inline constexpr Accepts kMarlin = {
    .request = "marlin",
    .devices = {DeviceType::cuda},
    .capabilities = kFromTuring,
    .activations = kNineActivations,
    .weight_keys = kMarlinKeys,
    .any_activation_key = true,
    .all2all_refused = kNvlinkAll2all,
    .lora = true,
    .needs = float_needs::marlin,
};
// AiterExperts.
inline constexpr Accepts kAiter = {
    .request = "aiter",
    .devices = {DeviceType::rocm},
    .gfx = kAiterGfx,
    .device_library = "aiter",
    .device_switches = kAiterSwitches,
    .ungated = false,
    .activations = {Activation::silu, Activation::gelu, Activation::swigluoai},
    .schemes = schemes::kAiter,
    .all2all_refused = kNvlinkAll2all,
};
// What all DeepGEMM classes ask of the machine.
inline constexpr Accepts kDeepGemm = {
    .request = "deep_gemm",
    .devices = {DeviceType::cuda},
    .capabilities = kDeepGemmGpus,
    .device_library = "deep_gemm",
    .device_switches = kDeepGemmSwitch,
    .ungated = false,
    .activations = {Activation::silu, Activation::swiglustep},
    .all2all_refused = kNvlinkAll2all,
};
inline constexpr Accepts kXpu = {
    .devices = {DeviceType::xpu},
    .activations = {Activation::silu, Activation::gelu, Activation::swigluoai, Activation::relu2_no_mul},
};
constexpr Accepts with_schemes(Accepts a, std::span<const Scheme> schemes) {
  a.schemes = schemes;
  return a;
}
inline constexpr std::array kXpuFp8Schemes = {schemes::kTensorA16, schemes::kTensorDynamic};
inline constexpr std::array kXpuMxfp8Schemes = {schemes::kMxfp8A16, schemes::kMxfp8};
// What vLLM's CPU classes share: softmax routing, gated.
inline constexpr Accepts kCpu = {
    .devices = {DeviceType::cpu},
    .ungated = false,
    .activations = {Activation::silu},
    .routing = {RoutingMethod::default_, RoutingMethod::renormalize, RoutingMethod::renormalize_naive},
};
// vLLM has no backend for this device and says so: NONE, which has no class and is never a config's.
inline constexpr Accepts kNone = {
    .devices = {DeviceType::cpu, DeviceType::xpu, DeviceType::tpu, DeviceType::oot},
    .any_key = true,
    .format = ActivationFormat::any,
    .batch_invariant = true,
    .lora = true,
};

// A row of the other policy.
inline constexpr Accepts kNobody = {.listed = {}, .devices = {}};
// libmoe's own: every activation, routing and rank, any keys that the files have. `layouts` and `acts` of an oracle are
// what this build has for it; while they are empty, the row is refused at its layout.
constexpr Accepts our_cpu(EnumSet<Format> checkpoints, EnumSet<LayoutKind> layouts = {}, EnumSet<ActFormat> acts = {}) {
  return {
      .request = "cpu",
      .devices = {DeviceType::cpu},
      .archs = {Arch::x86_64, Arch::aarch64},
      .in_dtypes = {DType::f32, DType::bf16, DType::f16},
      .any_key = true,
      .batch_invariant = true,
      .checkpoints = checkpoints,
      .layouts = layouts,
      .acts = acts,
  };
}
// Of 4-bit floats, which run as integers do.
inline constexpr EnumSet<ActFormat> kFp4Acts = {ActFormat::blk16, ActFormat::f32, ActFormat::blk8, ActFormat::e2m1,
                                                ActFormat::e4m3};

}  // namespace classes

}  // namespace moe::oracle
