// A description for the option "architecture", made of tensors' names and shapes and of config.json's keys.
#pragma once

#include <string>

#include "base/json.h"
#include "base/result.h"

namespace moe::hf {

// {"architecture": .., "unsure": [sentences], "router": [names], "nearest": [names]} (describe.md 10). What cannot be
// told is left out of the description and has a sentence. `pointer`: of the tensors.
Result<std::string> infer_architecture(const json::Value& hf_config, const json::Value& tensors,
                                       const std::string& pointer);

}  // namespace moe::hf
