// Which tensor of a golden layer of tests/vectors/float is which role of its weights.
#pragma once

#include <vector>

namespace moe::test {

struct GoldenRole {
  const char *role, *tensor;
};

inline const std::vector<GoldenRole> kGptOssRoles = {
    {"w13_weight", "gate_up_proj_blocks"}, {"w13_scale", "gate_up_proj_scales"}, {"w13_bias", "gate_up_proj_bias"},
    {"w2_weight", "down_proj_blocks"},     {"w2_scale", "down_proj_scales"},     {"w2_bias", "down_proj_bias"}};
// NVFP4 with global scales that divide.
inline const std::vector<GoldenRole> kDivisorRoles = {{"w13", "w13_weight_packed"},
                                                      {"w13_weight_scale", "w13_weight_scale"},
                                                      {"w13_weight_global_scale", "w13_weight_global_scale"},
                                                      {"w13_input_global_scale", "w13_input_global_scale"},
                                                      {"w2", "w2_weight_packed"},
                                                      {"w2_weight_scale", "w2_weight_scale"},
                                                      {"w2_weight_global_scale", "w2_weight_global_scale"},
                                                      {"w2_input_global_scale", "w2_input_global_scale"}};

}  // namespace moe::test
