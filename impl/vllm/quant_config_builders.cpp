// The builders and the table that names them. See quant_config_builders.h.
//
// Two kinds: those that go through make, where flags become group shapes and must survive the trip, and those that
// write the descriptors themselves. What a builder drops (a1_scale of mxfp4_mxfp8, block_shape of mxfp4_w4a8) is
// dropped by vLLM.
#include "vllm/quant_config_builders.h"

#include <array>
#include <string>

#include "base/text.h"

namespace moe::vllm {
namespace {

Error illegal(const std::string& why) { return fail(Code::invalid_config, "", "quantization config: " + why); }

std::string word(QuantType t) { return t == QuantType::none ? "none" : std::string(quant_type_name(t)); }

// Tags that make takes; weights may also be int4.
constexpr bool is_activation_tag(QuantType t) { return t >= QuantType::nvfp4 && t <= QuantType::mxfp8; }

struct Shapes {
  std::optional<GroupShape> a, w;
};

Shapes shapes_of_flags(const BuilderArgs& a) {
  if (a.block_shape) return {a.block_shape, a.block_shape};
  Shapes s;
  if (a.quant_dtype != QuantType::none) s.a = kPerTensor;
  if (a.per_act_token_quant) s.a = kPerToken;  // also for activations that are not quantized here
  if (a.per_out_ch_quant) s.w = kPerToken;
  return s;
}

QuantConfig frame(const BuilderArgs& a) {
  QuantConfig q;
  q.is_scale_swizzled = a.is_scale_swizzled;
  q.gemm1_alpha = a.gemm1_alpha;
  q.gemm1_beta = a.gemm1_beta;
  q.gemm1_clamp_limit = a.gemm1_clamp_limit;
  q.profile = a.profile;
  q.platform_fp8 = a.platform_fp8;
  return q;
}

// Unquantized activations of shape `act`, weights of a type and shape, with what the arguments hold of them.
QuantConfig weight_only(const BuilderArgs& a, std::optional<GroupShape> act, QuantType weight,
                        std::optional<GroupShape> shape) {
  QuantConfig q = frame(a);
  q.a1 = {.shape = act, .alpha_or_gscale = a.a1_gscale};
  q.a2 = {.shape = act, .alpha_or_gscale = a.a2_gscale};
  q.w1 = {.dtype = weight, .shape = shape, .scale = a.w1_scale, .zp = a.w1_zp, .bias = a.w1_bias};
  q.w2 = {.dtype = weight, .shape = shape, .scale = a.w2_scale, .zp = a.w2_zp, .bias = a.w2_bias};
  return q;
}

Result<QuantConfig> int_weights(const BuilderArgs& a, std::optional<GroupShape> shape) {
  if (a.weight_bits != 4 && a.weight_bits != 8)
    return illegal(cat("weights of ", a.weight_bits, " bits, expected 4 or 8"));
  return weight_only(a, shape, a.weight_bits == 4 ? QuantType::int4 : QuantType::int8, shape);
}

Result<QuantConfig> marlin(const BuilderArgs& a) {
  return int_weights(a, a.group_size == -1 ? std::nullopt : std::optional(GroupShape{1, a.group_size}));
}

// --- through make ---------------------------------------------------------------------------------------

Result<QuantConfig> made(BuilderArgs a, QuantType activations, QuantType weights) {
  a.quant_dtype = activations;
  a.weight_dtype = weights;
  return make_quant_config(a);
}

Result<QuantConfig> fp8_w8a8(const BuilderArgs& a) {
  return made(a, a.profile == Profile::april_2026 ? QuantType::fp8_e4m3fn : a.platform_fp8, QuantType::none);
}
Result<QuantConfig> int8_w8a8(const BuilderArgs& a) { return made(a, QuantType::int8, QuantType::none); }
Result<QuantConfig> int4_w4afp8(const BuilderArgs& a) { return made(a, QuantType::fp8_e4m3fn, QuantType::int4); }
Result<QuantConfig> nvfp4(const BuilderArgs& a) { return made(a, QuantType::nvfp4, QuantType::none); }
Result<QuantConfig> nvfp4_w4a16(const BuilderArgs& a) { return made(a, QuantType::none, QuantType::nvfp4); }
Result<QuantConfig> mxfp4(const BuilderArgs& a) { return made(a, QuantType::mxfp4, QuantType::none); }
Result<QuantConfig> ocp_mx(const BuilderArgs& a) {
  if (!is_ocp_mx(a.quant_dtype)) return illegal(word(a.quant_dtype) + " is no OCP-MX format");
  return make_quant_config(a);
}

// --- written out ----------------------------------------------------------------------------------------

Result<QuantConfig> int4_w4a16(const BuilderArgs& a) {
  return weight_only(a, a.block_shape, QuantType::int4, a.block_shape);
}
Result<QuantConfig> int8_w8a16(const BuilderArgs& a) {
  return weight_only(a, a.block_shape, QuantType::int8, a.block_shape);
}
// The activations have no shape, so no block shape is reported.
Result<QuantConfig> fp8_w8a16(const BuilderArgs& a) {
  return weight_only(a, std::nullopt, a.platform_fp8, a.block_shape);
}
QuantConfig mxfp4_weights(const BuilderArgs& a, QuantType activations) {
  QuantConfig q = weight_only(a, std::nullopt, QuantType::mxfp4, std::nullopt);
  q.a1.dtype = q.a2.dtype = activations;
  return q;
}
Result<QuantConfig> mxfp4_w4a16(const BuilderArgs& a) { return mxfp4_weights(a, QuantType::none); }
Result<QuantConfig> mxfp4_mxfp8(const BuilderArgs& a) { return mxfp4_weights(a, QuantType::mxfp8); }
Result<QuantConfig> mxfp4_w4a8(const BuilderArgs& a) {
  QuantConfig q = mxfp4_weights(a, QuantType::fp8);
  q.a1.scale = a.a1_scale;
  q.a2.scale = a.a2_scale;
  return q;
}

// --- the table ------------------------------------------------------------------------------------------

// clang-format off
using Names = std::string_view;
constexpr std::array kMake = {Names("quant_dtype"), Names("per_act_token_quant"), Names("per_out_ch_quant"), Names("block_shape")};
constexpr std::array kMakeByName = {
    Names("w1_scale"), Names("w2_scale"), Names("a1_scale"), Names("a2_scale"), Names("g1_alphas"), Names("g2_alphas"),
    Names("a1_gscale"), Names("a2_gscale"), Names("w1_bias"), Names("w2_bias"), Names("w1_zp"), Names("w2_zp"),
    Names("weight_dtype"), Names("is_scale_swizzled"), Names("gemm1_alpha"), Names("gemm1_beta"), Names("gemm1_clamp_limit")};
constexpr std::array kScales = {Names("w1_scale"), Names("w2_scale")};
constexpr std::array kFp8ByName = {
    Names("per_act_token_quant"), Names("per_out_ch_quant"), Names("block_shape"), Names("a1_scale"), Names("a2_scale"),
    Names("g1_alphas"), Names("g2_alphas"), Names("a1_gscale"), Names("a2_gscale"), Names("w1_bias"), Names("w2_bias"),
    Names("w1_zp"), Names("w2_zp"), Names("is_scale_swizzled"), Names("gemm1_alpha"), Names("gemm1_beta"), Names("gemm1_clamp_limit")};
constexpr std::array kInt8 = {Names("w1_scale"), Names("w2_scale"), Names("a1_scale"), Names("a2_scale"), Names("w1_bias"), Names("w2_bias"), Names("per_act_token_quant")};
constexpr std::array kGptq = {Names("w1_scale"), Names("w2_scale"), Names("weight_bits"), Names("group_size"), Names("w1_zp"), Names("w2_zp"), Names("w1_bias"), Names("w2_bias")};
constexpr std::array kAwq = {Names("w1_scale"), Names("w2_scale"), Names("w1_zp"), Names("w2_zp"), Names("weight_bits"), Names("group_size"), Names("w1_bias"), Names("w2_bias"), Names("a1_gscale"), Names("a2_gscale")};
constexpr std::array kIntA16 = {Names("w1_scale"), Names("w2_scale"), Names("w1_zp"), Names("w2_zp"), Names("block_shape")};
constexpr std::array kFp8A16 = {Names("w1_scale"), Names("w2_scale"), Names("block_shape")};
constexpr std::array kInt4Fp8 = {Names("w1_scale"), Names("w2_scale"), Names("g1_alphas"), Names("g2_alphas"), Names("per_act_token_quant"), Names("per_out_ch_quant"), Names("block_shape")};
constexpr std::array kMxfp4A16 = {Names("w1_scale"), Names("w2_scale"), Names("w1_bias"), Names("w2_bias")};
constexpr std::array kMxfp4A8 = {Names("w1_scale"), Names("w2_scale"), Names("a1_scale"), Names("a2_scale"), Names("w1_bias"), Names("w2_bias"), Names("block_shape")};
constexpr std::array kOcpMx = {Names("quant_dtype"), Names("w1_scale"), Names("w2_scale"), Names("weight_dtype"), Names("a1_scale"), Names("a2_scale"), Names("w1_bias"), Names("w2_bias"), Names("block_shape")};
constexpr std::array kNvfp4 = {Names("g1_alphas"), Names("g2_alphas"), Names("a1_gscale"), Names("a2_gscale"), Names("w1_scale"), Names("w2_scale"), Names("w1_bias"), Names("w2_bias"), Names("is_scale_swizzled")};
constexpr std::array kNvfp4A16 = {Names("g1_alphas"), Names("g2_alphas"), Names("w1_scale"), Names("w2_scale")};
constexpr std::array kBiased = {Names("w1_bias"), Names("w2_bias")};
constexpr std::array kBlock = {Names("block_shape")};
constexpr std::array kWna16 = {Names("w1_scale"), Names("w2_scale"), Names("group_size"), Names("num_bits"), Names("w1_zp"), Names("w2_zp"), Names("w1_bias"), Names("w2_bias"), Names("a1_gscale"), Names("a2_gscale"), Names("gemm1_clamp_limit"), Names("gemm1_alpha"), Names("gemm1_beta")};

constexpr std::array kBuilders = {
    QuantBuilder{"make",         make_quant_config,      kMake,     0, kMakeByName},
    QuantBuilder{"fp8_w8a8",     fp8_w8a8,               kScales,   2, kFp8ByName},
    QuantBuilder{"int8_w8a8",    int8_w8a8,              kInt8,     4, {}},
    QuantBuilder{"gptq_marlin",  marlin,                 kGptq,     4, {}},
    QuantBuilder{"awq_marlin",   marlin,                 kAwq,      6, {}},
    QuantBuilder{"int4_w4a16",   int4_w4a16,             kIntA16,   4, {}},
    QuantBuilder{"int8_w8a16",   int8_w8a16,             kIntA16,   4, {}},
    QuantBuilder{"fp8_w8a16",    fp8_w8a16,              kFp8A16,   2, {}},
    QuantBuilder{"int4_w4afp8",  int4_w4afp8,            kInt4Fp8,  4, {}},
    QuantBuilder{"mxfp4_w4a16",  mxfp4_w4a16,            kMxfp4A16, 2, {}},
    QuantBuilder{"mxfp4_mxfp8",  mxfp4_mxfp8,            kMxfp4A8,  2, {}},
    QuantBuilder{"mxfp4_w4a8",   mxfp4_w4a8,             kMxfp4A8,  2, {}},
    QuantBuilder{"ocp_mx",       ocp_mx,                 kOcpMx,    3, {}},
    QuantBuilder{"nvfp4",        nvfp4,                  kNvfp4,    6, {}},
    QuantBuilder{"nvfp4_w4a16",  nvfp4_w4a16,            kNvfp4A16, 4, {}},
    QuantBuilder{"mxfp4",        mxfp4,                  kScales,   2, {}},
    QuantBuilder{"biased",       biased_quant_config,    kBiased,   2, {}},
    QuantBuilder{"w4a8_int8",    w4a8_int8_quant_config, kBlock,    0, {}},
    QuantBuilder{"wna16",        wna16_quant_config,     kWna16,    4, {}},
};
// clang-format on

}  // namespace

Result<QuantConfig> make_quant_config(const BuilderArgs& a) {
  if (is_format_tag(a.quant_dtype) && !is_activation_tag(a.quant_dtype))
    return illegal("activations cannot be " + word(a.quant_dtype));
  if (is_format_tag(a.weight_dtype) && !is_activation_tag(a.weight_dtype) && a.weight_dtype != QuantType::int4)
    return illegal("weights cannot be " + word(a.weight_dtype));
  if (a.block_shape && (a.per_act_token_quant || a.per_out_ch_quant))
    return illegal("a block shape excludes scales per token and per output channel");
  const QuantType weight = a.weight_dtype == QuantType::none ? a.quant_dtype : a.weight_dtype;
  const Shapes s = shapes_of_flags(a);
  QuantConfig q = frame(a);
  q.a1 = {.dtype = a.quant_dtype, .shape = s.a, .scale = a.a1_scale, .alpha_or_gscale = a.a1_gscale};
  q.a2 = {.dtype = a.quant_dtype, .shape = s.a, .scale = a.a2_scale, .alpha_or_gscale = a.a2_gscale};
  q.w1 = {weight, s.w, a.w1_scale, a.g1_alphas, a.w1_zp, a.w1_bias};
  q.w2 = {weight, s.w, a.w2_scale, a.g2_alphas, a.w2_zp, a.w2_bias};
  // A block of [-1, -1] or [1, -1] would read back as per tensor or per token.
  if (q.per_act_token_quant() != a.per_act_token_quant || q.per_out_ch_quant() != a.per_out_ch_quant ||
      q.block_shape() != a.block_shape)
    return illegal(cat("block shape [", a.block_shape ? a.block_shape->row : 0, ", ",
                       a.block_shape ? a.block_shape->col : 0, "] means no block"));
  return q;
}

Result<QuantConfig> biased_quant_config(const BuilderArgs& a) {
  return weight_only(a, std::nullopt, QuantType::none, std::nullopt);
}

// Rows 0, as vLLM's oracle passes them.
Result<QuantConfig> wna16_quant_config(const BuilderArgs& a) { return int_weights(a, GroupShape{0, a.group_size}); }

// The scales lie inside the packed weights, so nothing is shown as quantized.
Result<QuantConfig> w4a8_int8_quant_config(const BuilderArgs& a) {
  return weight_only(a, a.block_shape, QuantType::none, a.block_shape);
}

Result<QuantConfig> int8_quant_config(const BuilderArgs& a) { return int8_w8a8(a); }

std::span<const QuantBuilder> quant_builders() { return kBuilders; }

const QuantBuilder* find_quant_builder(std::string_view name) {
  for (const QuantBuilder& b : kBuilders)
    if (b.name == name) return &b;
  return nullptr;
}

}  // namespace moe::vllm
