// The correction bias tensor of moe_layer_options and moe_route_args: [G] or [1, G], G = columns of the router
// logits, float32, float16 or bfloat16.
#pragma once

#include <vector>

#include "api/tensor_check.h"
#include "config/config.h"

namespace moe::api {

// The row of a call; its shape is set by expect_bias.
TensorParam bias_param(const moe_tensor* given);
// After read_structs.
void expect_bias(TensorParam& param, const Config& config);
// The values of the checked row, none when it was not given. Code::invalid_argument, "correction_bias[i]", for a
// value that is not finite.
Result<std::vector<float>> bias_values(const TensorParam& param);

}  // namespace moe::api
