// Names and reading of a checkpoint's correction bias. See correction_bias.h.
#include "weights/correction_bias.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/float_at.h"
#include "base/index.h"
#include "base/tensor.h"
#include "base/text.h"

namespace moe::weights {
namespace {

// Below the module that holds router and experts.
constexpr std::array<std::string_view, 7> kNames = {
    "gate.e_score_correction_bias",         // DeepSeek-V3, GLM-4, Kimi, dots1
    "e_score_correction_bias",              // MiniMax-M2
    "moe_statics.e_score_correction_bias",  // Ernie-4.5
    "router.e_score_correction_bias",       // LongCat-Flash
    "gate.expert_bias",                     // Bailing
    "expert_bias",                          // LFM2
    "router_bias",                          // Step-3.5
};

// DeepSeek-V4's; elsewhere a gate's bias is its own.
constexpr std::string_view kFfnName = "gate.bias";
bool has_ffn_name(std::string_view prefix) { return prefix.ends_with("ffn."); }

}  // namespace

std::string router_prefix(std::string_view module) {
  const std::size_t dot = module.rfind('.');
  return dot == std::string_view::npos ? "" : std::string(module.substr(0, dot + 1));
}

std::vector<std::string> correction_bias_names(std::string_view prefix) {
  std::vector<std::string> names;
  for (const std::string_view name : kNames) names.push_back(cat(prefix, name));
  if (has_ffn_name(prefix)) names.push_back(cat(prefix, kFfnName));
  return names;
}

bool is_correction_bias(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return false;
  const std::string_view own = name.substr(prefix.size());
  return std::find(kNames.begin(), kNames.end(), own) != kNames.end() || (own == kFfnName && has_ffn_name(prefix));
}

Result<std::vector<float>> read_correction_bias(const CheckpointEntry& from, const Config& config) {
  const SafetensorsEntry& e = *from.entry;
  const std::int64_t columns = config.router_columns();
  if (e.dtype != DType::f32 && e.dtype != DType::f16 && e.dtype != DType::bf16)
    return fail(Code::dtype, e.name, cat(e.name, ": expected F32, F16 or BF16, got ", dtype_name(e.dtype)));
  const auto shape = e.shape();
  const bool row = shape.size() == 2 && shape[0] == 1;
  if ((shape.size() != 1 && !row) || shape.back() != columns)
    return fail(Code::shape, e.name,
                cat(e.name, ": expected shape [", columns, "] or [1, ", columns, "], got ", shape_text(shape)));
  std::vector<std::byte> bytes(usize(e.bytes));
  MOE_CHECK(from.file->read(e, 0, bytes));
  std::vector<float> values(usize(columns));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = float_at(e.dtype, bytes.data() + i * (bytes.size() / values.size()));
    if (std::isfinite(values[i])) continue;
    const std::string place = cat(e.name, "[", i, "]");
    return fail(Code::invalid_argument, place, place + ": must be a finite number");
  }
  return values;
}

}  // namespace moe::weights
