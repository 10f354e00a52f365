// What moe_apply, moe_apply_flat and moe_layer_workspace_size check alike.
#pragma once

#include <moe/moe.h>

#include <cstdint>

#include "base/result.h"
#include "run/layer.h"

namespace moe::api {

// Unknown numbers: invalid_argument. 2 is the batched mode of later versions: unsupported.
Result<ApplyMode> apply_mode(moe_apply_mode mode);
// 0 or more, and num_tokens * top_k slots fit what a call can number.
Check check_num_tokens(const Config& config, std::int64_t num_tokens, const char* name);

}  // namespace moe::api
