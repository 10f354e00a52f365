// FusedMoEQuantConfig: what the operands of the two products of a layer are (config.md 2, 5).
//
// Four descriptors: a1 and a2 are the inputs of GEMM 1 and 2, w1 and w2 the weights (w13 and w2). Of tensors only
// their presence counts. Everything derived is read from a1 and w1, never from a2 and w2; above all `block_shape`
// and `is_quantized` speak of the activations.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "vllm/group_shape.h"
#include "vllm/ocp_mx.h"
#include "vllm/profile.h"

namespace moe::vllm {

struct QuantDesc {
  QuantType dtype = QuantType::none;
  std::optional<GroupShape> shape = std::nullopt;
  bool scale = false, alpha_or_gscale = false, zp = false, bias = false;

  friend constexpr bool operator==(const QuantDesc&, const QuantDesc&) = default;
};

struct QuantConfig {
  QuantDesc a1, a2, w1, w2;
  bool is_scale_swizzled = true;
  std::optional<double> gemm1_alpha, gemm1_beta, gemm1_clamp_limit;
  Profile profile = Profile::april_2026;  // the fp8 dtype of fp8_w8a8 changed after it
  QuantType platform_fp8 = QuantType::fp8_e4m3fn;

  bool is_quantized() const { return a1.dtype != QuantType::none; }
  bool per_act_token_quant() const { return a1.shape == kPerToken; }
  bool per_out_ch_quant() const { return w1.shape == kPerToken; }
  bool is_per_tensor() const { return a1.shape == kPerTensor; }
  std::optional<GroupShape> block_shape() const;  // neither per tensor nor per token
  bool is_block_quantized() const { return block_shape().has_value(); }

  bool use_fp8_w8a8() const;
  bool use_int8_w8a8() const { return a1.dtype == QuantType::int8; }
  bool use_int8_w8a16() const { return weight_only(QuantType::int8); }
  bool use_fp8_w8a16() const { return weight_only(platform_fp8); }
  bool use_int4_w4a16() const { return weight_only(QuantType::int4); }
  bool use_nvfp4_w4a16() const { return weight_only(QuantType::nvfp4); }
  bool use_mxfp4_w4a16() const { return weight_only(QuantType::mxfp4); }
  bool use_mxfp4_w4a4() const { return a1.dtype == QuantType::mxfp4 && w1.dtype == QuantType::mxfp4; }
  bool use_nvfp4_w4a4() const { return a1.dtype == QuantType::nvfp4; }
  bool use_mxfp4_w4a8() const { return a1.dtype == QuantType::fp8 && w1.dtype == QuantType::mxfp4; }
  std::string_view ocp_mx_scheme() const { return vllm::ocp_mx_scheme(a1.dtype, w1.dtype).name; }

  // The name of tuning tables for this model dtype; "" = none.
  std::string_view config_name(QuantType model_dtype) const;
  // The end of a tuning table's file name, after "E=..,N=..,device_name=..".
  std::string tuning_suffix(QuantType model_dtype) const;
  // Scales of the activations: {rows, columns}; nullopt when they are not quantized. The batched form has the
  // experts before them.
  std::optional<std::array<std::int64_t, 2>> scale_shape(std::int64_t max_tokens, std::int64_t hidden_dim) const;
  std::optional<std::array<std::int64_t, 3>> batched_scale_shape(std::int64_t num_experts, std::int64_t max_tokens,
                                                                 std::int64_t hidden_dim) const;

 private:
  bool weight_only(QuantType weight) const { return !is_quantized() && w1.dtype == weight; }
};

}  // namespace moe::vllm
