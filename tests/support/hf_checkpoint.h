// Checkpoint directories of tests/vectors/hf: config.json and golden results of one layer are stored, the weights
// follow from a rule (tests/vectors/hf/README.md).
#pragma once

#include <string>

#include "support/rooms.h"
#include "support/temp_dir.h"

namespace moe::test {

// Writes what transformers saved of the case: config.json and model.safetensors, or several files with an index.
void write_hf_checkpoint(const std::string& hf_case, const TempDir& dir);

}  // namespace moe::test
