// Layers without files, for bench --shape: the sizes of known models, and numbers for each format of weights.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tool/library.h"

namespace moe_tool {

struct ModelShape {
  const char* name;
  const char* format;  // that it is published in, or mostly run in
  std::int64_t layers, experts, top_k, hidden, intermediate;
  const char* more;  // members of the config document, after a comma
};
const std::vector<ModelShape>& shapes();
const ModelShape& shape_named(const std::string& name);

// A format of source weights: what the config says of it, and the tensors that a checkpoint has.
struct WeightFormat;
std::vector<std::string> format_names();
const WeightFormat& format_named(const std::string& name);

// The config document of a shape in a format.
std::string config_text(const ModelShape& shape, const WeightFormat& format);
// Its weights, made as they are asked for (moe_weights_create_from_source): every expert has the same numbers, which
// conversion and kernels cannot know.
WeightsHandle made_up_weights(const moe_config* config, const ModelShape& shape, const WeightFormat& format);

}  // namespace moe_tool
