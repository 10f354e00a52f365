// The rules of routing that are not "top-k of scores", one token each. Only route.cpp calls them.
#pragma once

#include "run/route/route.h"

namespace moe::run {

// One token's results.
struct Slots {
  std::int32_t* ids;  // [k]
  float* weights;     // [k]
};

// `weights` holds the keys of the chosen experts, largest first, and is overwritten. row: the logits.
void softmax_of_chosen(float* weights, std::size_t k);
void vllm_weights(const Router& router, DType logits_dtype, const float* row, float* weights);
void sparse_mixer(const Router& router, const float* row, const Slots& out);
// `token`: the row in this call, which the draws are numbered by.
void simulate(const Router& router, std::size_t token, const Slots& out);
// Divides by the sum in output order, if that is positive.
void renormalize(float* weights, std::size_t k, float others = 0.0f, float least = 0.0f);

}  // namespace moe::run
