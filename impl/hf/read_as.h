// The row that a config.json is read with: that of its class, or what the option "architecture" names or describes.
#pragma once

#include <string>

#include "base/json.h"
#include "base/result.h"
#include "config/fields.h"
#include "hf/architecture.h"
#include "hf/hf.h"

namespace moe::hf {

// `row` has views into the options.
struct ReadAs {
  Architecture row;
  const json::Value* description = nullptr;  // an object of the options, at `pointer`
  std::string pointer = {};
};
Result<ReadAs> read_as(const ModelFile& file, const config::fields::Members& options);
// What a description says of the document itself (routing, biases, order of rows), and where faults of the rest are.
void put_description(const ReadAs& as, Built& built);

}  // namespace moe::hf
