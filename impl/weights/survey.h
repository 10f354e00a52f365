// What the files of a checkpoint hold of one layer, by names and types alone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/config.h"
#include "io/safetensors.h"

namespace moe::weights {

struct Survey {
  std::string prefix;                    // of its experts' tensors; empty: none was found
  std::vector<std::string> projections;  // gate, up and down as they are called there
  std::int64_t tensors = 0;
  std::uint64_t bytes = 0;
  bool only_floats = false;  // each is bf16, f16 or f32: no format of quantized weights has such tensors alone
  // Names near the experts that look like those of the router and of shared experts. A list, no promise.
  std::vector<std::string> routers, shared_experts;
};
// `entries`: all of the checkpoint.
Survey survey_layer(std::shared_ptr<const Config> config, io::SortedEntries entries);

}  // namespace moe::weights
