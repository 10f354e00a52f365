// Layers that are ready to run, with tokens to run them on: what bench measures and check compares.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "tool/library.h"

namespace moe_tool {

// What a call needs to know of a layer, from its resolved config.
struct CallSizes {
  std::int64_t hidden = 0;
  std::int64_t logits = 0;        // columns of router logits: experts, zero experts, shared ones
  std::int64_t experts = 0;       // of the model
  std::int64_t with_weights = 0;  // these and fused shared ones: smaller ids than those of zero experts
  std::int64_t chosen = 0;        // experts a token, fused shared ones among them
  moe_dtype in = MOE_DTYPE_BF16;
  moe_dtype out = MOE_DTYPE_BF16;
  bool routes = true;  // false: the caller gives expert ids and weights
};
CallSizes sizes_of(const Json& config);

// Numbers that repeat from run to run.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15 + 1) {}
  std::uint64_t bits();
  double uniform() { return static_cast<double>(bits() >> 11U) * 0x1p-53; }  // [0, 1)

 private:
  std::uint64_t state_;
};

// Bytes of a TokenBatch.
double memory_of_batch(const CallSizes& sizes, std::int64_t tokens);

// Inputs and outputs of calls of up to `tokens` tokens of a layer.
class TokenBatch {
 public:
  TokenBatch(const CallSizes& sizes, std::int64_t tokens, std::uint64_t seed);
  // Other logits, or other ids where the layer does not route: each call chooses other experts, as tokens of a model
  // do.
  void choose_again();
  void run(const moe_layer* layer, moe_control* control = nullptr);
  // What moe_route alone chooses from the same logits; none where it lacks a correction bias that only the layer has.
  std::optional<std::vector<std::int32_t>> route(moe_context* context, const moe_config* config) const;

  const std::vector<std::int32_t>& ids() const { return ids_; }  // [tokens, chosen]: what routing chose, or was given
  const std::vector<float>& weights() const { return weights_; }
  std::int64_t tokens() const { return tokens_; }
  double hidden(std::int64_t token, std::int64_t column) const;
  double out(std::int64_t token, std::int64_t column) const;

 private:
  CallSizes sizes_;
  std::int64_t tokens_;
  Random random_;
  std::vector<std::uint32_t> hidden_;  // of any type of number: bytes
  std::vector<std::uint32_t> out_;
  std::vector<float> logits_;
  std::vector<std::int32_t> ids_;
  std::vector<float> weights_;
};

}  // namespace moe_tool
