// What follows from the four descriptors of a layer. See quant_config.h.
#include "vllm/quant_config.h"

#include "base/checked.h"
#include "base/text.h"

namespace moe::vllm {

std::optional<GroupShape> QuantConfig::block_shape() const {
  if (!a1.shape || a1.shape->is_per_tensor() || a1.shape->is_per_token()) return std::nullopt;
  return a1.shape;
}

bool QuantConfig::use_fp8_w8a8() const {
  return a1.dtype == (profile == Profile::april_2026 ? QuantType::fp8_e4m3fn : platform_fp8);
}

std::string_view QuantConfig::config_name(QuantType model_dtype) const {
  if (use_fp8_w8a8()) return "fp8_w8a8";
  if (use_fp8_w8a16()) return "fp8_w8a16";
  if (use_int8_w8a16()) return "int8_w8a16";
  if (use_int4_w4a16()) return "int4_w4a16";
  if (!ocp_mx_scheme().empty()) return "";
  return model_dtype == QuantType::fp32 ? "float32" : "";
}

std::string QuantConfig::tuning_suffix(QuantType model_dtype) const {
  std::string s;
  if (const std::string_view name = config_name(model_dtype); !name.empty()) s.append(",dtype=").append(name);
  if (const auto block = block_shape(); block && block->row != 0 && block->col != 0)
    s += cat(",block_shape=[", block->row, ",", block->col, "]");
  return s + ".json";
}

std::optional<std::array<std::int64_t, 2>> QuantConfig::scale_shape(std::int64_t max_tokens,
                                                                    std::int64_t hidden_dim) const {
  if (!is_quantized()) return std::nullopt;
  // A block as wide as the matrix (-1) has one column.
  if (const auto block = block_shape())
    return std::array{max_tokens, block->col > 0 ? ceil_div(hidden_dim, block->col) : std::int64_t{1}};
  return std::array{per_act_token_quant() ? max_tokens : std::int64_t{1}, std::int64_t{1}};
}

std::optional<std::array<std::int64_t, 3>> QuantConfig::batched_scale_shape(std::int64_t num_experts,
                                                                            std::int64_t max_tokens,
                                                                            std::int64_t hidden_dim) const {
  const auto shape = scale_shape(max_tokens, hidden_dim);
  if (!shape) return std::nullopt;
  return std::array{num_experts, (*shape)[0], (*shape)[1]};
}

}  // namespace moe::vllm
