// Router logits -> expert ids and weights (routing.md 1-7, numerics.md 4, routing.md 13). Per token:
//
//   keys     the logits in float32, NaN -> -inf, +inf -> largest float; with a correction bias: score + bias
//   groups   those with the best score stay: largest key, or with a bias the sum of the two largest
//   top-k    by key, descending, equal keys by ascending expert
//   weights  the scores without bias; renormalized in output order; times the factor
//
// A Router is a config made ready for this: built once per layer, or per moe_route.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "base/parallel.h"
#include "base/result.h"
#include "base/tensor.h"
#include "config/config.h"
#include "kernels/route.h"

namespace moe::run {

enum class RouteRule : std::uint8_t {
  scores,          // top-k of scores: every method but those below
  vllm,            // bit_compat vllm without groups: in the logits' dtype (w4a8_int8.md 10)
  hash,            // the caller's ids, weights from the scores
  sparse_mixer,    // two experts, each with a softmax of its own
  uniform_random,  // simulated
  normal_routing,
  caller,  // custom: nothing to do here
};
enum class RouteScore : std::uint8_t { softmax, sigmoid, sqrtsoftplus, logit };

struct Router {
  RouteRule rule = RouteRule::scores;
  RouteScore score = RouteScore::softmax;
  const RouteKernel* kernel = nullptr;
  std::size_t experts = 0;           // real ones
  std::size_t columns = 0;           // of the logits: zero experts come after the real ones,
  std::size_t shared_logits = 0;     // then those of shared experts, which renormalize counts
  std::size_t k = 0, shared = 0;     // chosen slots, then slots of fused shared experts
  std::size_t groups = 1, kept = 1;  // 1: no group selection
  GroupScore group_score = GroupScore::largest;
  bool zero_masked = false;  // experts of groups that do not stay: key 0
  bool renormalize = false;
  float renormalize_eps = 0.0f, renormalize_min = 0.0f;
  bool bias_on_logits = false;
  bool lacks_bias = false, lacks_scale = false;  // the config wants one and none was given
  float factor = 1.0f;
  DType weights_dtype = DType::f32;  // whose values they have: the input's, where they are on the input
  float jitter_eps = 0.0f;
  std::uint64_t seed = 0;
  std::vector<float> bias;          // a row of [columns], empty: none
  std::vector<float> expert_scale;  // [experts], empty: none

  std::size_t width() const { return k + shared; }
};

// Where a correction bias and the experts' scales can come from besides the config; empty: not given.
struct RouterSources {
  std::span<const float> option;  // correction_bias of moe_layer_options, moe_route_args
  std::span<const float> loaded;  // the correction bias of the checkpoint, kept in the packed weights
  std::span<const float> scale;   // found and kept in the same way
};
// Code::unexpected_weight, "correction_bias": two sources, or one for a config without bias.
Result<Router> make_router(const Config& config, const RouteKernel& kernel, const RouterSources& sources);
// Asked by each call that routes: custom routing (unsupported), a bias or scale that is missing (missing_weight).
Check check_router(const Router& router);
// Hash routing: ids [T, >= k] in [0, columns). Code::invalid_argument, "<name>[t,j]".
Check check_hash_ids(const Router& router, const TensorView& ids, const char* name, const Parallel& parallel = {});

struct RouteArgs {
  std::int64_t num_tokens = 0;
  DType logits_dtype = DType::f32;
  const std::byte* logits = nullptr;  // [T, columns + shared_logits]
  std::int64_t row_stride = 0;        // elements between rows
  const TensorView* hash_ids = nullptr;
  std::int32_t* ids = nullptr;   // [T, width], dense
  float* weights = nullptr;      // [T, width], dense
  std::byte* scratch = nullptr;  // 64-byte aligned
};

std::size_t route_scratch_bytes(const Router& router, std::int64_t num_tokens);
// All arguments checked before; fails as `parallel` does. Allocates nothing.
Check route(const Router& router, const RouteArgs& args, const Parallel& parallel);

}  // namespace moe::run
