// Tables of builders by backend. See float_configs.h.
#include "oracle/float_configs.h"

#include <algorithm>
#include <array>
#include <span>

#include "vllm/quant_config_builders.h"

namespace moe::oracle {
namespace {

struct Choice {
  std::string_view backend, builder;  // the name's end may be left out
};

// The last row serves the rest.
Result<QuantConfig> built(std::span<const Choice> table, const BuilderArgs& a, std::string_view backend) {
  if (backend.empty()) return fail(Code::no_backend, "", "no backend, no quantization config");
  const auto row =
      std::find_if(table.begin(), table.end() - 1, [&](const Choice& c) { return backend.starts_with(c.backend); });
  return find_quant_builder(row->builder)->build(a);
}

// What files of every format have.
BuilderArgs two_scales() {
  BuilderArgs a;
  a.w1_scale = a.w2_scale = true;
  return a;
}
// Their kernels take 16-bit activations.
bool is_weight_only(std::string_view backend) { return backend == "MARLIN" || backend == "CPU"; }

constexpr std::array kFp8 = {Choice{"MARLIN", "fp8_w8a16"}, Choice{"CPU", "fp8_w8a16"}, Choice{"", "fp8_w8a8"}};
constexpr std::array kMxfp8 = {Choice{"MARLIN", "fp8_w8a16"}, Choice{"CPU", "fp8_w8a16"}, Choice{"", "make"}};
constexpr std::array kNvfp4 = {Choice{"MARLIN", "nvfp4_w4a16"}, Choice{"CPU", "nvfp4_w4a16"}, Choice{"", "nvfp4"}};
constexpr std::array kMxfp4 = {Choice{"DEEPGEMM", "make"},
                               Choice{"FLASHINFER_TRTLLM_MXFP4_MXFP8", "mxfp4_mxfp8"},
                               Choice{"FLASHINFER_CUTLASS_MXFP4_MXFP8", "mxfp4_mxfp8"},
                               Choice{"AITER_MXFP4_FP8", "mxfp4_w4a8"},
                               Choice{"FLASHINFER_TRTLLM_MXFP4_BF16", "mxfp4_w4a16"},
                               Choice{"FLASHINFER_CUTLASS_MXFP4_BF16", "mxfp4_w4a16"},
                               Choice{"AITER_MXFP4_BF16", "mxfp4_w4a16"},
                               Choice{"MARLIN", "mxfp4_w4a16"},
                               Choice{"BATCHED_MARLIN", "mxfp4_w4a16"},
                               Choice{"TRITON", "mxfp4_w4a16"},
                               Choice{"CPU", "mxfp4_w4a16"},
                               Choice{"", "ocp_mx"}};
constexpr std::array kW4a8Fp8 = {Choice{"", "int4_w4afp8"}};

}  // namespace

Result<QuantConfig> fp8_config(const Config& c, std::string_view backend) {
  const QuantArgs& w = *c.quantization.weights;
  const std::optional<QuantArgs>& x = c.quantization.input_activations;
  BuilderArgs a = two_scales();
  if (!is_weight_only(backend)) a.gemm1_clamp_limit = c.limit;
  a.a1_scale = a.a2_scale = x && x->dynamic == Dynamic::no;
  if (w.block_structure) a.block_shape = GroupShape{(*w.block_structure)[0], (*w.block_structure)[1]};
  a.per_act_token_quant = !w.block_structure && x && x->strategy == Strategy::token;
  a.per_out_ch_quant = a.per_act_token_quant && w.strategy == Strategy::channel;
  // Its kernel takes the products of the scales.
  if (backend == "FLASHINFER_CUTLASS" && !w.block_structure)
    a.g1_alphas = a.g2_alphas = a.a1_gscale = a.a2_gscale = true;
  return built(kFp8, a, backend);
}

Result<QuantConfig> mxfp8_config(const Config&, std::string_view backend) {
  BuilderArgs a = two_scales();
  a.quant_dtype = QuantType::mxfp8;
  a.block_shape = GroupShape{1, 32};
  a.is_scale_swizzled = is_weight_only(backend);
  return built(kMxfp8, a, backend);
}

Result<QuantConfig> nvfp4_config(const Config&, std::string_view backend) {
  BuilderArgs a = two_scales();
  a.g1_alphas = a.g2_alphas = true;
  a.a1_gscale = a.a2_gscale = !is_weight_only(backend);
  a.is_scale_swizzled = backend != "FLASHINFER_TRTLLM" && backend != "FLASHINFER_CUTEDSL";
  return built(kNvfp4, a, backend);
}

Result<QuantConfig> mxfp4_config(const Config& c, std::string_view backend) {
  BuilderArgs a = two_scales();
  a.w1_bias = a.w2_bias = c.has_bias;
  a.gemm1_alpha = c.alpha;
  a.gemm1_beta = c.beta;
  a.gemm1_clamp_limit = c.limit;
  a.quant_dtype = QuantType::mxfp4;
  a.a1_scale = a.a2_scale = backend == "AITER_MXFP4_FP8";
  a.is_scale_swizzled = backend != "FLASHINFER_TRTLLM_MXFP4_MXFP8";
  if (backend.starts_with("DEEPGEMM")) {
    a.quant_dtype = QuantType::fp8_e4m3fn;
    a.weight_dtype = QuantType::mxfp4;
    a.block_shape = GroupShape{128, 128};
  }
  return built(kMxfp4, a, backend);
}

Result<QuantConfig> w4a8_fp8_config(const Config&, std::string_view backend) {
  BuilderArgs a = two_scales();
  a.g1_alphas = a.g2_alphas = true;
  a.per_act_token_quant = a.per_out_ch_quant = true;
  return built(kW4a8Fp8, a, backend);
}

}  // namespace moe::oracle
