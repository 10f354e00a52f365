// Where a checkpoint may have the experts of a layer: tools write the same layer under other names than its model.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors.h"
#include "scheme/checkpoint.h"
#include "weights/layer_facts.h"

namespace moe::weights {

// "model.layers" "3" "mlp.experts" of "model.layers.3.mlp.experts".
struct LayerPath {
  std::string_view layers, number, block;
};
std::optional<LayerPath> layer_path(std::string_view module);

// Owns its text.
struct ExpertPlace {
  std::string prefix;  // of the experts
  std::array<std::string_view, 3> projections{};
  const TensorSet* set = nullptr;
  Stack stack{};
  std::string layer;  // "model.layers.3.", empty: unknown
};
// True if two names can mean the same layer. Neither is empty. guessed: one name is a class's guess, so only the
// layer's number counts. Otherwise the names are equal, or both are usual names of a text model, which stand for each
// other.
bool may_be_one_layer(std::string_view a, std::string_view b, bool guessed);
// The module at a place, which the place outlives.
ExpertModule module_at(const LayerFacts& facts, const ExpertPlace& place);

// The places that are looked at, the config's own first. A module that the caller gave (here or in the config) is the
// only one, with every set of names that its tensors may have. Where a class's row or the usual name of a text model's
// layer is the module, the other prefixes and blocks follow that writers use for the same layer.
std::vector<ExpertPlace> expert_places(const LayerFacts& facts, const char* module);
// What is read of a file's names: all that may be of this layer.
io::NameFilter layer_filter(const LayerFacts& facts, const char* module);

}  // namespace moe::weights
