// Quantization objects of the tools that write checkpoints, one file each, and the words that their results are made
// of. A tool's function reads its object for one layer and gives the strict form: which numbers the weights are, and
// which container (Format) the tensors lie in. Most tools write containers of others, so a new one is a table of its
// words.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/quantization/foreign.h"
#include "config/quantization/quantization.h"

namespace moe::config {

constexpr fields::IntegerRange kGroupRange = {-1, 65536};
// 0 is no group size.
Result<std::int64_t> check_group(std::int64_t group, const std::string& pointer);

QuantArgs quant_args(int bits, NumType type, Strategy strategy);
// group -1: a scale for each row.
QuantArgs integer_weights(int bits, std::int64_t group, bool symmetric);

Resolved unquantized();
// The strict form with its storage filled in; `suffixes`: tensors of a projection.
Resolved resolved(QuantArgs weights, std::optional<QuantArgs> activations, Format format,
                  std::vector<std::string> suffixes, std::optional<ZeroPoints> zero_points = std::nullopt);
// The same of a named scheme (find_preset).
Resolved resolved(std::string_view preset, std::vector<std::string> suffixes);

// A member of a rule for some modules where it has it, else of the whole object.
struct Overlaid {
  const Foreign& whole;
  const Foreign* rule = nullptr;

  const Foreign& of(std::string_view key) const { return rule != nullptr && rule->has(key) ? *rule : whole; }
};

Resolved resolve_auto_round(const Foreign& h, const LayerNames& layer);
Resolved resolve_bitsandbytes(const Foreign& h, const LayerNames& layer);
Resolved resolve_modelopt(const Foreign& h, const LayerNames& layer);
Resolved resolve_quark(const Foreign& h, const LayerNames& layer);
Resolved resolve_torchao(const Foreign& h, const LayerNames& layer);

// ModelOpt keeps the object of a model whose experts it quantized again, and adds what they are now: those of the
// layers that quantized_layers names, else of all that `ignore` does not. nullopt: the layer's experts are as the
// object says.
Result<std::optional<Resolved>> requantized_experts(const Foreign& h, const LayerNames& layer);

}  // namespace moe::config
