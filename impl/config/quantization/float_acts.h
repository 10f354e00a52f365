// Activations that `compute` quantizes to floats (float_oracles.md 9.6).
#pragma once

#include "base/result.h"
#include "config/config.h"
#include "config/fields.h"

namespace moe::config {

// Whether the file's activations can be made so; `members`: of the layer's document.
Check check_float_acts(const fields::Members& members, const Config& config);
// Activations of a whole batch with one scale, which are not computed.
Error whole_batches_unsupported();

}  // namespace moe::config
