// Which weights a directory holds. For accidents, not against forgery.
#pragma once

#include <cstdint>
#include <string>

#include "base/control.h"
#include "base/parallel.h"
#include "base/result.h"
#include "model/checkpoint.h"

namespace moe::model {

// "fast:xxh3:..." of config.json, the files of quantization tools, the files' names, sizes and headers, and 16 pieces
// of 4 KiB of each file's data: headers and sizes alone are equal for every fine-tune of a model. full: "full:xxh3:..."
// of every byte. Of a converted checkpoint: its source's, "" where it was made with the other kind.
//
// bytes: of the phase, which the control is told (fingerprint_bytes).
std::uint64_t fingerprint_bytes(const Checkpoint& checkpoint, bool full);
Result<std::string> fingerprint(const Checkpoint& checkpoint, bool full, const Parallel& parallel, Control* control);

}  // namespace moe::model
