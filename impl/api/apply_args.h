// What moe_apply and moe_layer_workspace_size check alike.
#pragma once

#include <moe/moe.h>

#include <cstdint>

#include "base/result.h"
#include "run/layer.h"

namespace moe::api {

// Unknown numbers: invalid_argument. 2 is the batched mode of later versions: unsupported.
Result<ApplyMode> apply_mode(moe_apply_mode mode);

}  // namespace moe::api
