// The rows of oracles mxfp4 and mxfp4_deepseek_v4, which differ in their lists: 4-bit floats with a power of two per 32
// columns (float_oracles.md 2.4). A word that means several backends asks them in the order of this table.
//
// vLLM's layouts for triton_kernels, Humming and AITER's static fp8 are not public as bytes: its answer is given, and
// nothing is written.
#pragma once

#include <array>
#include <string_view>

#include "oracle/rows/row_classes.h"

namespace moe::oracle::mxfp4 {

inline constexpr std::array kTrtllmSchemes = {schemes::kMxfp4A16, schemes::kMxfp4Mxfp8};
inline constexpr std::array kA16Schemes = {schemes::kMxfp4A16}, kFp8Schemes = {schemes::kMxfp4Fp8},
                            kGroupSchemes = {schemes::kMxfp4Group}, kMxfp4Schemes = {schemes::kMxfp4Mxfp4};
inline constexpr std::array kAiterSwitch = {Switch{"VLLM_ROCM_USE_AITER", false}};
inline constexpr std::array kTritonKernelsGpus = {CapabilityRange{90, 109}};
inline constexpr std::array<std::string_view, 5> kTritonKernelsGfx = {"gfx90a", "gfx942", "gfx950", "gfx11*", "gfx12*"};

// A backend whose own activations have this key, asked for by these words.
constexpr Accepts with_own(Accepts a, const QuantKey& own, std::string_view word, std::string_view too) {
  a.own_activation = &own;
  a.request = word;
  a.request_too = too;
  return a;
}
constexpr Accepts in_format(Accepts a) {
  a.request_in_format = true;
  return a;
}
constexpr Accepts unwritten(Accepts a) {  // its answer is given, and nothing is written
  a.answer_only = true;
  return a;
}

inline constexpr Accepts kTrtllmModular = [] {
  Accepts a = classes::with_schemes(classes::kBlackwellFlashInfer, kTrtllmSchemes);
  a.request = "flashinfer_trtllm";
  a.ungated = false;
  a.activations = {Activation::swigluoai, Activation::silu};
  return a;
}();
inline constexpr Accepts kTrtllm =
    classes::without_data_parallel(classes::monolithic(kTrtllmModular, classes::kRenormalizing));
inline constexpr Accepts kAiterFp8 = [] {
  Accepts a = with_own(classes::kAiter, keys::kFp8Tensor, "aiter", "aiter_mxfp4_fp8");
  a.gfx = schemes::kGfx950;
  a.device_switches = kAiterSwitch;
  a.activations = {Activation::swigluoai};
  a.schemes = kFp8Schemes;
  a.all2all_refused = {};
  return classes::without_data_parallel(classes::monolithic(a, classes::kRenormalizing));
}();
inline constexpr Accepts kTriton = {
    .request = "triton",
    .devices = {DeviceType::cuda, DeviceType::rocm},
    .capabilities = kTritonKernelsGpus,
    .gfx = kTritonKernelsGfx,
    .device_library = "triton_kernels",
    .ungated = false,
    .activations = {Activation::swigluoai},
    .schemes = kA16Schemes,
};
inline constexpr Accepts kTritonMonolithic =
    classes::without_data_parallel(classes::monolithic(kTriton, classes::kRenormalizing));
inline constexpr Accepts kTritonUnfused = [] {
  Accepts a = classes::called(kTriton, "triton_unfused");
  a.activations = {Activation::silu, Activation::gelu, Activation::swigluoai, Activation::swiglustep};
  a.lora = true;
  return a;
}();
inline constexpr Accepts kCutlassBf16 = classes::called(classes::kFlashInferCutlass, "flashinfer_cutlass");
inline constexpr Accepts kDeepGemm = [] {
  Accepts a = with_own(classes::kDeepGemm, keys::kFp8Group, "deep_gemm", "");
  a.capabilities = classes::kBlackwell;
  a.schemes = kGroupSchemes;
  return a;
}();
inline constexpr Accepts kBatchedMarlin = [] {
  Accepts a = classes::batched(classes::kMarlin);
  a.lora = false;
  return a;
}();
inline constexpr Accepts kVllmCpu = [] {
  Accepts a = classes::called(classes::with_schemes(classes::kCpu, kA16Schemes), "cpu");
  a.activations = {Activation::silu, Activation::swigluoai};
  return a;
}();
inline constexpr Accepts kOurCpu =
    classes::our_cpu({Format::mxfp4_pack_quantized, Format::mxfp4_gpt_oss}, {LayoutKind::p16_mxfp4}, classes::kFp4Acts);
// vLLM's Humming asks about nothing but the layout of its products.
constexpr Accepts humming(GemmType type) {
  return {
      .request = "humming",
      .devices = EnumSet<DeviceType>::all(),
      .any_key = true,
      .gemm_type = type,
      .batch_invariant = true,
      .lora = true,
  };
}
inline constexpr Accepts kBatchedHumming = classes::batched(humming(GemmType::any));
// vLLM pads more on ROCm.
inline constexpr std::array kEmulated = {
    NamedChoice{.layout = LayoutKind::float_plain_rocm, .devices = {DeviceType::rocm}},
    NamedChoice{LayoutKind::float_plain}};
inline constexpr Accepts kEmulation = [] {
  Accepts a = classes::called(classes::kTriton, "emulation");
  a.any_key = true;
  a.other_layouts = kEmulated;
  a.needs = float_needs::sizes;
  return a;
}();
// Beside the oracle: vLLM takes it for files of compressed-tensors alone.
inline constexpr std::array kFamily100 = {CapabilityRange{100, 109}};
inline constexpr Accepts kCutlassMxfp4 = {
    .devices = {DeviceType::cuda},
    .capabilities = kFamily100,
    .activations = kCutlassFp4Activations,
    .schemes = kMxfp4Schemes,
    .own_activation = &keys::kMxfp4Dynamic,
    .expert_parallel = false,
};

// clang-format off
inline constexpr std::array kRows = {
    BackendRow{.backend = "FLASHINFER_TRTLLM_MXFP4_BF16",   .name = "TrtLlmMxfp4ExpertsMonolithic", .vllm = classes::writes<LayoutKind::float_flashinfer_trtllm>(kTrtllm)},
    BackendRow{.backend = "FLASHINFER_TRTLLM_MXFP4_BF16",   .name = "TrtLlmMxfp4ExpertsModular",    .vllm = classes::writes<LayoutKind::float_flashinfer_trtllm>(kTrtllmModular)},
    BackendRow{.backend = "FLASHINFER_TRTLLM_MXFP4_MXFP8",  .name = "TrtLlmMxfp4ExpertsMonolithic", .vllm = classes::writes<LayoutKind::float_flashinfer_trtllm>(with_own(kTrtllm, keys::kMxfp8Dynamic, "flashinfer_trtllm", "flashinfer_trtllm_afp8"))},
    BackendRow{.backend = "FLASHINFER_TRTLLM_MXFP4_MXFP8",  .name = "TrtLlmMxfp4ExpertsModular",    .vllm = classes::writes<LayoutKind::float_flashinfer_trtllm>(with_own(kTrtllmModular, keys::kMxfp8Dynamic, "flashinfer_trtllm", "flashinfer_trtllm_afp8"))},
    BackendRow{.backend = "AITER_MXFP4_BF16",               .name = "AiterExperts",                 .vllm = classes::writes<LayoutKind::float_aiter_a16w4>(classes::kAiter)},
    BackendRow{.backend = "AITER_MXFP4_FP8",                .name = "AiterW4A8ExpertsMonolithic",   .vllm = unwritten(kAiterFp8), .libmoe = kAiterFp8},
    BackendRow{.backend = "AITER_MXFP4_MXFP4",              .name = "AiterExperts",                 .vllm = classes::writes<LayoutKind::float_aiter>(with_own(classes::kAiter, keys::kMxfp4Dynamic, "aiter", "aiter_mxfp4_mxfp4"))},
    BackendRow{.backend = "TRITON",                         .name = "OAITritonMxfp4ExpertsMonolithic", .vllm = unwritten(kTritonMonolithic), .libmoe = kTritonMonolithic},
    BackendRow{.backend = "TRITON",                         .name = "OAITritonExperts",             .vllm = unwritten(kTriton), .libmoe = kTriton},
    BackendRow{.backend = "FLASHINFER_CUTLASS_MXFP4_BF16",  .name = "FlashInferExperts",            .vllm = classes::writes<LayoutKind::float_flashinfer_hopper>(kCutlassBf16)},
    BackendRow{.backend = "FLASHINFER_CUTLASS_MXFP4_MXFP8", .name = "FlashInferExperts",            .vllm = classes::writes<LayoutKind::float_flashinfer_cutlass>(with_own(kCutlassBf16, keys::kMxfp8Dynamic, "flashinfer_cutlass", "flashinfer_cutlass_afp8"))},
    BackendRow{.backend = "MARLIN",                         .name = "MarlinExperts",                .vllm = classes::writes<LayoutKind::float_marlin>(in_format(classes::kMarlin))},
    BackendRow{.backend = "BATCHED_MARLIN",                 .name = "BatchedMarlinExperts",         .vllm = classes::writes<LayoutKind::float_marlin>(in_format(kBatchedMarlin))},
    BackendRow{.backend = "XPU",                            .name = "XPUExpertsMXFp4",              .vllm = classes::writes<LayoutKind::float_plain>(classes::called(classes::with_schemes(classes::kXpu, kA16Schemes), "xpu"))},
    BackendRow{.backend = "CPU",                            .name = "CPUExpertsMxfp4",              .vllm = classes::writes<LayoutKind::float_vnni>(kVllmCpu), .libmoe = kOurCpu},
    BackendRow{.backend = "DEEPGEMM_MXFP4",                 .name = "DeepGemmFP4Experts",           .vllm = classes::writes<LayoutKind::float_deep_gemm>(kDeepGemm)},
    BackendRow{.backend = "TRITON_UNFUSED",                 .name = "UnfusedOAITritonExperts",      .vllm = unwritten(kTritonUnfused), .libmoe = kTritonUnfused},
    BackendRow{.backend = "HUMMING",                        .name = "BatchedHummingGroupedExperts", .vllm = unwritten(kBatchedHumming), .libmoe = kBatchedHumming},
    BackendRow{.backend = "HUMMING",                        .name = "HummingGroupedExperts",        .vllm = unwritten(humming(GemmType::grouped)), .libmoe = humming(GemmType::grouped)},
    BackendRow{.backend = "HUMMING",                        .name = "HummingIndexedExperts",        .vllm = unwritten(humming(GemmType::indexed)), .libmoe = humming(GemmType::indexed)},
    BackendRow{.backend = "EMULATION",                      .name = "OCP_MXQuantizationEmulationTritonExperts", .vllm = kEmulation},
    BackendRow{.backend = "CUTLASS",                        .name = "CutlassExpertsMxfp4",          .vllm = kCutlassMxfp4},
    BackendRow{.backend = "NONE",                           .name = "",                             .vllm = classes::kNone},
};
// clang-format on

}  // namespace moe::oracle::mxfp4
