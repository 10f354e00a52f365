// Which layers of a model have experts, and the config of each.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hf/architecture.h"
#include "hf/hf.h"

namespace moe::hf {

constexpr std::int64_t kMostLayers = 65536;

struct LayerRule {
  std::int64_t count = 0;            // layers, those of multi-token prediction included
  std::int64_t predicted = 0;        // of them
  std::int64_t first = 0, step = 1;  // l >= first and (l + shift) % step == 0
  std::int64_t shift = 0;
  std::int64_t last = kMostLayers;
  std::vector<std::int64_t> dense = {};  // sorted; whatever else is said
  std::vector<bool> listed = {};         // of each layer; empty: the rest decides

  bool has_experts(std::int64_t l) const;
};

// `experts`: the keys of their number, which may be a list with 0 for layers that have none.
Result<LayerRule> layer_rule(const ModelFile& file, const LayerKeys& keys, const SizeKey& experts = {});
// The layer asked for, or the first with experts.
Result<std::int64_t> layer_index(const ModelFile& file, const LayerRule& rule, std::optional<std::int64_t> asked,
                                 const std::string& asked_pointer);

// All layers of a config.json. `options` are those of moe_config_create_from_hf without layer_index.
struct ModelLayers {
  std::string class_name;  // as the file has it; else that of the row it is read with
  LayerRule rule;
};
Result<ModelLayers> model_layers(const json::Value& hf, const json::Value& options);
// How many layers a file says it has, of a class that is not known; 0: it does not say.
std::int64_t told_layers(const json::Value& hf);
// One layer of it, as moe_config_create_from_hf makes it. in_files: where a checkpoint has its experts.
Result<Config> config_of_layer(const json::Value& hf, const json::Value& options, std::int64_t layer,
                               const NamesInFiles& in_files = {});
// Whether the file itself has a quantization object.
bool tells_quantization(const json::Value& hf);

}  // namespace moe::hf
