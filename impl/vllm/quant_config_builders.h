// The ways to make a QuantConfig (config.md 3): `make`, which derives group shapes from flags, and one builder per
// scheme. All take the same bag of arguments; a builder's row says which of them it reads, and in which order they
// may be given without names.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/result.h"
#include "vllm/quant_config.h"

namespace moe::vllm {

struct BuilderArgs {
  QuantType quant_dtype = QuantType::none, weight_dtype = QuantType::none;
  bool per_act_token_quant = false, per_out_ch_quant = false;
  std::optional<GroupShape> block_shape = std::nullopt;
  // Tensors: given or not.
  bool w1_scale = false, w2_scale = false, a1_scale = false, a2_scale = false;
  bool g1_alphas = false, g2_alphas = false, a1_gscale = false, a2_gscale = false;
  bool w1_bias = false, w2_bias = false, w1_zp = false, w2_zp = false;
  std::int64_t weight_bits = 0, group_size = -1;  // group_size -1 = one scale per output row
  bool is_scale_swizzled = true;
  std::optional<double> gemm1_alpha = std::nullopt, gemm1_beta = std::nullopt, gemm1_clamp_limit = std::nullopt;
  // What the answer is for.
  Profile profile = Profile::april_2026;
  QuantType platform_fp8 = QuantType::fp8_e4m3fn;
};

struct QuantBuilder {
  std::string_view name;
  // Fails with invalid_config and no subject.
  Result<QuantConfig> (*build)(const BuilderArgs& a);
  std::span<const std::string_view> positional;  // member names of BuilderArgs; "num_bits" is weight_bits
  std::size_t required;                          // of the positional ones
  std::span<const std::string_view> by_name;     // further arguments that have no position
};
std::span<const QuantBuilder> quant_builders();
const QuantBuilder* find_quant_builder(std::string_view name);  // nullptr when unknown

// Builders that the library itself uses.
Result<QuantConfig> make_quant_config(const BuilderArgs& a);
Result<QuantConfig> biased_quant_config(const BuilderArgs& a);
Result<QuantConfig> wna16_quant_config(const BuilderArgs& a);
Result<QuantConfig> w4a8_int8_quant_config(const BuilderArgs& a);
Result<QuantConfig> int8_quant_config(const BuilderArgs& a);

}  // namespace moe::vllm
