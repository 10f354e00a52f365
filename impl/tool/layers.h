// The layers of an opened model as commands see them: what each is, and which kernel it gets.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tool/options.h"
#include "tool/session.h"

namespace moe_tool {

struct ModelLayer {
  std::int64_t number = 0;
  std::string kind;             // "experts", "dense", "other"
  Json facts = Json::object();  // of moe_checkpoint_to_json
  ConfigHandle config;          // null: no config can be made of it, see `problem`
  SelectionHandle selection;    // null without a config
  std::string format;           // how its weights are quantized: "int4-g128", "bf16"
  std::string backend;
  std::string kernel;  // "" where none accepts it
  std::string layout;
  std::uint64_t packed_bytes = 0;
  Json candidates;      // of moe_selection_to_json; of a converted layer as its file lets them
  std::string problem;  // why it cannot be used, "" where it can
};

// All layers, or those in `numbers`, with the kernels of `target`.
std::vector<ModelLayer> layers_of(const OpenModel& model, const TargetMachine& target,
                                  const std::vector<std::int64_t>& numbers = {});
// The same of one config, such as a shape's.
void choose_kernel(const moe_context* context, const TargetMachine& target, ModelLayer& layer);
// The number of a layer that has experts: `asked`, or where it is negative the first one that is there. Throws where
// there is none.
std::int64_t layer_with_experts(const OpenModel& model, std::int64_t asked);

// A document of a layer, and "0-47" for layers that follow one another.
Json json_of(const ModelLayer& layer);
std::string range_text(std::int64_t first, std::int64_t last);

}  // namespace moe_tool
