// What the oracles of vLLM 0.33.0 (November 2026) answer on CPUs: profile "2026-11" of moe_describe. Conversion and
// kernels do not depend on it.
//
// A CPU class asks for AMX tiles, Arm or nothing of the machine and checks a few members of the layer. The classes of
// other devices stand here by name, so that moe_backend finds them and an answer lists what was asked: on a CPU each is
// refused by its device.
#include <array>

#include "oracle/backend.h"
#include "oracle/rows/row_classes.h"
#include "oracle/rows/steering.h"

namespace moe::oracle {
namespace {

constexpr EnumSet<DeviceType> kCpus = {DeviceType::cpu};

constexpr Accepts elsewhere(std::string_view word = "") {
  return {.listed = kCpus, .request = word, .devices = {DeviceType::cuda, DeviceType::rocm, DeviceType::xpu}};
}
constexpr Accepts unlisted(Accepts a) {
  a.listed = {};
  return a;
}
constexpr BackendRow of_gpus(std::string_view backend, std::string_view name, std::string_view word = "") {
  return {.backend = backend, .name = name, .vllm = elsewhere(word)};
}
constexpr BackendRow by_word_only(std::string_view backend, std::string_view name, std::string_view word) {
  return {.backend = backend, .name = name, .vllm = unlisted(elsewhere(word))};
}

// What all CPU classes have in common.
constexpr Accepts cpu(EnumSet<Activation> activations, EnumSet<RoutingMethod> routing) {
  return {.listed = kCpus, .devices = kCpus, .ungated = false, .activations = activations, .routing = routing};
}
constexpr Accepts with_keys(Accepts a, std::span<const QuantKey> keys) {
  a.weight_keys = keys;
  return a;
}
constexpr Accepts with_pairs(Accepts a, std::span<const Scheme> schemes) {
  a.schemes = schemes;
  return a;
}
constexpr Accepts amx(Accepts a) {
  a.archs = {Arch::x86_64};
  a.feature = Feature::amx_tile;
  return a;
}
constexpr Accepts arm(Accepts a) {
  a.archs = {Arch::aarch64};
  return a;
}
constexpr Accepts zen(Accepts a) {  // AMD's package for PyTorch
  a.device_library = "zentorch";
  a.use_ep = false;
  return a;
}

constexpr EnumSet<Activation> kSiluGeluTanh = {Activation::silu, Activation::gelu_tanh},
                              kSiluGelus = {Activation::silu, Activation::gelu, Activation::gelu_tanh},
                              kFour = kSiluGelus.with({Activation::swigluoai});
constexpr EnumSet<RoutingMethod> kAnyRouting = EnumSet<RoutingMethod>::all(),
                                 kSoftmaxes = {RoutingMethod::default_, RoutingMethod::renormalize,
                                               RoutingMethod::renormalize_naive},
                                 kAndDeepseekV4 = kSoftmaxes.with({RoutingMethod::deepseek_v4}),
                                 kAndDeepseek = kAndDeepseekV4.with({RoutingMethod::deepseek_v3});

constexpr std::array kInt8 = {Scheme{key_named("kInt8StaticChannelSym"), key_named("kInt8DynamicTokenSym")}};
constexpr std::array kBlocks = {schemes::kBlock};
constexpr std::array kMxfp8 = {schemes::kMxfp8};
constexpr std::array kMxfp4Keys = {keys::kMxfp4};
constexpr std::array kInt4Keys = {key_named("kInt4Static")};
constexpr std::array kZenInt4Keys = {key_named("kInt4Static"), key_named("kInt4Static32")};

// --- unquantized --------------------------------------------------------------------------------------------

// I is padded, but where gate and up are interleaved.
constexpr Accepts unquantized(Accepts a) {
  a.hidden_step = a.intermediate_step = 32;
  a.stepped_for = {Activation::swigluoai};
  return a;
}
constexpr Accepts only_bf16(Accepts a) {
  a.in_dtypes = {DType::bf16};
  return a;
}
constexpr Accepts kPlain = unquantized(cpu(kFour, kAnyRouting));

constexpr std::array kUnquantized = {
    by_word_only("FlashInfer TRTLLM", "TrtLlmBf16Experts", "flashinfer_trtllm"),
    by_word_only("FlashInfer CUTLASS", "FlashInferExperts", "flashinfer_cutlass"),
    by_word_only("ROCm AITER", "AiterExperts", "aiter"),
    by_word_only("TRITON", "TritonExperts", "triton"),
    by_word_only("BATCHED_TRITON", "BatchedTritonExperts", "batched_triton"),
    by_word_only("MOONEP", "MoonEPExperts", ""),
    BackendRow{.backend = "CPU", .name = "X86CPUUnquantizedExperts", .vllm = only_bf16(amx(kPlain))},
    BackendRow{.backend = "CPU", .name = "ArmCPUUnquantizedExperts", .vllm = only_bf16(arm(kPlain))},
    BackendRow{.backend = "CPU", .name = "CPUUnquantizedExperts", .vllm = kPlain},
};

// Words of quantized layers alone mean nothing here. With LoRA, Triton's class is taken unasked.
Steering steer_unquantized(const Query& q) {
  Steering s;
  s.order = {"CPU"};
  if (q.moe.is_lora_enabled) s.unchecked = "TRITON";
  if (q.moe.parallel.uses_all2all() && q.moe.parallel.all2all_backend == "moonep") s.needed = "MOONEP";
  if (q.moe.moe_backend == "humming" || q.moe.moe_backend == "marlin" || !s.needed.empty()) s.word_unread = true;
  return s;
}

// --- fp8, mxfp8 ---------------------------------------------------------------------------------------------

constexpr Accepts kFp8 = with_pairs(amx(cpu(kSiluGelus, kAndDeepseek)), kBlocks);
constexpr Accepts kFp8W8A8 = [] {
  Accepts a = with_pairs(cpu(kSiluGeluTanh, kAndDeepseek), kBlocks);
  a.feature = Feature::amx_fp8;
  return a;
}();
constexpr Accepts kNone = {.listed = kCpus,
                           .devices = kCpus,
                           .any_key = true,
                           .format = ActivationFormat::any,
                           .batch_invariant = true,
                           .lora = true};

constexpr std::array kFp8Rows = {
    BackendRow{.backend = "CPU_W8A8", .name = "CPUExpertsFp8W8A8", .vllm = kFp8W8A8},
    BackendRow{.backend = "CPU", .name = "CPUExpertsFp8", .vllm = kFp8},
    of_gpus("AITER", "AiterExperts", "aiter"),
    of_gpus("FLASHINFER_TRTLLM", "TrtLlmFp8ExpertsMonolithic", "flashinfer_trtllm"),
    of_gpus("FLASHINFER_TRTLLM", "TrtLlmFp8ExpertsModular", "flashinfer_trtllm"),
    of_gpus("FLASHINFER_CUTLASS", "FlashInferExperts", "flashinfer_cutlass"),
    of_gpus("DEEPGEMM", "TritonOrDeepGemmExperts", "deep_gemm"),
    of_gpus("VLLM_CUTLASS", "TritonOrCutlassExperts", "cutlass"),
    of_gpus("TRITON", "TritonExperts", "triton"),
    of_gpus("MARLIN", "MarlinExperts", "marlin"),
    of_gpus("HUMMING", "BatchedHummingGroupedExperts", "humming"),
    of_gpus("BATCHED_DEEPGEMM", "BatchedDeepGemmExperts"),
    of_gpus("BATCHED_VLLM_CUTLASS", "CutlassBatchedExpertsFp8"),
    of_gpus("BATCHED_TRITON", "BatchedTritonExperts"),
    of_gpus("XPU", "XPUExpertsFp8"),
    of_gpus("HPC", "HPCExperts", "hpc"),
    BackendRow{.backend = "NONE", .name = "", .vllm = kNone},
};

constexpr std::array<std::string_view, 2> kDeepGemm = {"DEEPGEMM", "BATCHED_DEEPGEMM"};
constexpr std::array<std::string_view, 2> kCutlass = {"VLLM_CUTLASS", "BATCHED_VLLM_CUTLASS"};
constexpr Refused kCutlassOff = {
    .kind = "disabled",
    .why = "vLLM's CUTLASS kernels serve checkpoints of compressed-tensors alone (allow_vllm_cutlass)"};

Steering steer_fp8(const Query& q) {
  Steering s = {.order = table_order(kFp8Rows)};
  s.order.emplace_back("NONE");
  if (!q.allow_vllm_cutlass) {
    drop(s, kCutlass);
    if (q.moe.moe_backend == "cutlass") s.refused = kCutlassOff;
  }
  if (q.env_has("VLLM_USE_DEEP_GEMM") || q.env_has("VLLM_MOE_USE_DEEP_GEMM")) {
    if (q.env_flag("VLLM_USE_DEEP_GEMM", true) && q.env_flag("VLLM_MOE_USE_DEEP_GEMM", true)) {
      s.needed = q.moe.parallel.batched() ? "BATCHED_DEEPGEMM" : "DEEPGEMM";
      return s;
    }
    drop(s, kDeepGemm);
  }
  (void)steer_aiter(q, s);
  return s;
}

// Weights become bfloat16 on the way; it runs everywhere.
constexpr Accepts kMxfp8Emulation = [] {
  Accepts a = with_pairs({.listed = kCpus, .devices = EnumSet<DeviceType>::all()}, kMxfp8);
  a.activations = kNineActivations.with({Activation::swigluoai_uninterleave, Activation::situ});
  a.all2all_refused = kNvlinkAll2all;
  a.batch_invariant = a.lora = true;
  return a;
}();
constexpr std::array kMxfp8Rows = {
    of_gpus("FLASHINFER_TRTLLM", "TrtLlmFp8ExpertsMonolithic", "flashinfer_trtllm"),
    of_gpus("FLASHINFER_TRTLLM", "TrtLlmFp8ExpertsModular", "flashinfer_trtllm"),
    of_gpus("DEEPGEMM", "DeepGemmExperts", "deep_gemm"),
    of_gpus("MARLIN", "MarlinExperts", "marlin"),
    of_gpus("XPU", "XPUExpertsMxfp8", "xpu"),
    of_gpus("AITER_MXFP8", "AiterMxfp8Experts", "aiter"),
    of_gpus("HUMMING", "BatchedHummingGroupedExperts", "humming"),
    of_gpus("TRITON_MXFP8", "Mxfp8NativeTritonExperts", "triton"),
    BackendRow{.backend = "EMULATION", .name = "Mxfp8EmulationTritonExperts", .vllm = kMxfp8Emulation},
};

// --- int8, int4 ---------------------------------------------------------------------------------------------

constexpr Accepts kInt8Amx = [] {
  Accepts a = with_pairs(amx(cpu(kSiluGeluTanh, kSoftmaxes)), kInt8);
  a.hidden_step = 32;
  return a;
}();
constexpr Accepts kInt8Arm = [] {
  Accepts a = with_pairs(arm(cpu(kFour, kSoftmaxes)), kInt8);
  a.in_dtypes = {DType::f32, DType::f16, DType::bf16};
  a.hidden_step = a.intermediate_step = 32;
  return a;
}();
constexpr std::array kInt8Rows = {
    of_gpus("TRITON", "TritonExperts", "triton"),
    of_gpus("HUMMING", "BatchedHummingGroupedExperts", "humming"),
    BackendRow{.backend = "CPU", .name = "ZenCPUExpertsInt8", .vllm = zen(with_pairs(cpu(kFour, kSoftmaxes), kInt8))},
    BackendRow{.backend = "CPU", .name = "ArmCPUExpertsInt8", .vllm = kInt8Arm},
    BackendRow{.backend = "CPU", .name = "CPUExpertsInt8", .vllm = kInt8Amx},
};

constexpr std::array kInt4Rows = {
    BackendRow{.backend = "ZEN_CPU",
               .name = "ZentorchExpertsInt4",
               .vllm = zen(with_keys(cpu(kFour, kSoftmaxes.with({RoutingMethod::custom})), kZenInt4Keys))},
    BackendRow{
        .backend = "CPU", .name = "CPUExpertsInt4", .vllm = with_keys(amx(cpu(kSiluGeluTanh, kSoftmaxes)), kInt4Keys)},
    by_word_only("RDNA3", "Rdna3WNA16Experts", "rdna3"),
    by_word_only("FLASHINFER_TRTLLM", "TrtLlmMxint4ExpertsMonolithic", "flashinfer_trtllm"),
    by_word_only("MARLIN", "MarlinExperts", "marlin"),
    by_word_only("TRITON", "TritonWNA16Experts", "triton"),
    by_word_only("HUMMING", "BatchedHummingGroupedExperts", "humming"),
    by_word_only("EMULATION", "Int4EmulationTritonExperts", "emulation"),
};

// --- mxfp4, nvfp4 -------------------------------------------------------------------------------------------

// Its activations stay in 16 bits, whatever the checkpoint says.
constexpr Accepts kMxfp4 = [] {
  Accepts a = with_keys(amx(cpu(kFour, kAndDeepseekV4)), kMxfp4Keys);
  a.request = "cpu";
  a.any_activation_key = true;
  return a;
}();
constexpr BackendRow of_gpus_too(std::string_view backend, std::string_view name, std::string_view word,
                                 std::string_view word_too) {
  BackendRow row = of_gpus(backend, name, word);
  row.vllm.request_too = word_too;
  return row;
}
// clang-format off
constexpr std::array kMxfp4Rows = {
    of_gpus_too("FLASHINFER_TRTLLM_MXFP4_BF16",  "TrtLlmMxfp4ExpertsMonolithic", "flashinfer_trtllm", ""),
    of_gpus_too("FLASHINFER_TRTLLM_MXFP4_MXFP8", "TrtLlmMxfp4ExpertsMonolithic", "flashinfer_trtllm", "flashinfer_trtllm_afp8"),
    of_gpus_too("AITER_MXFP4_BF16",              "AiterMxfp4Experts",            "aiter", ""),
    of_gpus_too("AITER_TRITON_MXFP4_BF16",       "AiterW4A16ExpertsMonolithic",  "aiter", "aiter_triton_mxfp4_bf16"),
    of_gpus_too("AITER_MXFP4_FP8",               "AiterW4A8ExpertsMonolithic",   "aiter", "aiter_mxfp4_fp8"),
    of_gpus_too("AITER_MXFP4_MXFP4",             "AiterMxfp4Experts",            "aiter", "aiter_mxfp4_mxfp4"),
    of_gpus("TRITON",                            "OAITritonMxfp4ExpertsMonolithic", "triton"),
    of_gpus_too("FLASHINFER_CUTLASS_MXFP4_BF16",  "FlashInferExperts",           "flashinfer_cutlass", ""),
    of_gpus_too("FLASHINFER_CUTLASS_MXFP4_MXFP8", "FlashInferExperts",           "flashinfer_cutlass", "flashinfer_cutlass_afp8"),
    of_gpus("CUTLASS_MXFP4_MXFP4",               "CutlassExpertsMxfp4"),
    of_gpus("MARLIN",                            "MarlinExperts",                "marlin"),
    of_gpus("BATCHED_MARLIN",                    "BatchedMarlinExperts"),
    of_gpus("HUMMING",                           "BatchedHummingGroupedExperts", "humming"),
    of_gpus("XPU",                               "XPUExpertsMxFp4",              "xpu"),
    BackendRow{.backend = "CPU", .name = "CPUExpertsMxfp4", .vllm = kMxfp4},
    of_gpus("EMULATION",                         "OCP_MXQuantizationEmulationTritonExperts", "emulation"),
    by_word_only("B12X_MXFP4_MXFP8",             "B12xExperts",                  "b12x"),
    by_word_only("B12X_MXFP4_BF16",              "B12xExperts",                  "b12x"),
    by_word_only("DEEPGEMM_MXFP4",               "DeepGemmFP4Experts",           "deep_gemm"),
    by_word_only("AITER_TRITON_MXFP4_MXFP4",     "AiterW4A4ExpertsMonolithic",   "aiter_triton_mxfp4_mxfp4"),
    by_word_only("TRITON_UNFUSED",               "UnfusedOAITritonExperts",      "triton_unfused"),
    by_word_only("FLASHINFER_MOE_EP_CUTEDSL",    "FlashInferMoeEpExperts",       "flashinfer_moe_ep_cutedsl"),
    by_word_only("FLASHINFER_MOE_EP_DEEP_GEMM",  "FlashInferMoeEpExperts",       "flashinfer_moe_ep_mega_deep_gemm"),
};
constexpr std::array kNvfp4Rows = {
    of_gpus("FLASHINFER_TRTLLM",          "TrtLlmNvFp4ExpertsMonolithic",            "flashinfer_trtllm"),
    of_gpus("FLASHINFER_CUTEDSL",         "FlashInferCuteDSLExperts",                "flashinfer_cutedsl"),
    of_gpus("FLASHINFER_CUTEDSL_BATCHED", "FlashInferCuteDSLBatchedExperts"),
    of_gpus("FLASHINFER_CUTLASS",         "FlashInferExperts",                       "flashinfer_cutlass"),
    of_gpus("VLLM_CUTLASS",               "CutlassExpertsFp4",                       "cutlass"),
    of_gpus("MARLIN",                     "MarlinExperts",                           "marlin"),
    of_gpus("HUMMING",                    "BatchedHummingGroupedExperts",            "humming"),
    of_gpus("EMULATION",                  "Nvfp4QuantizationEmulationTritonExperts", "emulation"),
    by_word_only("B12X",                      "B12xExperts",            "b12x"),
    by_word_only("FLASHINFER_B12X",           "FlashInferB12xExperts",  "flashinfer_b12x"),
    by_word_only("FLASHINFER_MOE_EP_CUTEDSL", "FlashInferMoeEpExperts", "flashinfer_moe_ep_cutedsl"),
};
// clang-format on

constexpr Refused kConflict = {.kind = "conflict",
                               .why = "the checkpoint and the user name different keys of activations"};

Steering steer_mxfp4(const Query& q) {
  Steering s;
  for (const BackendRow& row : kMxfp4Rows)
    if (row.vllm.listed.has(q.platform.type)) s.order.push_back(row.backend);
  if (q.user_activation && q.user_activation != q.activation_key) s.refused = kConflict;
  return s;
}
Steering steer_deepseek_v4(const Query&) { return {.order = {"CPU"}}; }

constexpr std::array kFamilies = {
    Family{.id = OracleId::unquantized, .rows = kUnquantized, .steer = steer_unquantized},
    Family{.id = OracleId::fp8, .rows = kFp8Rows, .steer = steer_fp8},
    Family{.id = OracleId::mxfp8, .rows = kMxfp8Rows},
    Family{.id = OracleId::int8, .rows = kInt8Rows},
    Family{.id = OracleId::int_wna16, .rows = kInt4Rows},
    Family{.id = OracleId::mxfp4, .rows = kMxfp4Rows, .steer = steer_mxfp4},
    Family{.id = OracleId::mxfp4_deepseek_v4, .rows = kMxfp4Rows, .steer = steer_deepseek_v4},
    Family{.id = OracleId::nvfp4, .rows = kNvfp4Rows},
};

}  // namespace

std::span<const Family> families_november_2026() { return kFamilies; }

}  // namespace moe::oracle
