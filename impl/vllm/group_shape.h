// How many rows and columns of a matrix share one scale (config.md 1); -1 = the whole extent.
//
//   [-1, -1] one for all    [1, -1] one per row    [-1, 1] one per column    [1, g] one per row and g columns
//
// "One scale per output row" of a weight is [1, -1] in a QuantConfig and [-1, 1] in a QuantKey. Both are compared
// by value, so the two are kept as they are.
#pragma once

#include <cstdint>

namespace moe::vllm {

struct GroupShape {
  std::int64_t row = -1, col = -1;

  constexpr bool is_per_tensor() const { return row == -1 && col == -1; }
  constexpr bool is_per_token() const { return row == 1 && col == -1; }
  constexpr bool is_per_channel() const { return row == -1 && col == 1; }
  constexpr bool is_per_group() const { return row == 1 && col >= 1; }

  friend constexpr bool operator==(const GroupShape&, const GroupShape&) = default;
};

constexpr GroupShape kPerTensor = {-1, -1}, kPerToken = {1, -1}, kPerChannel = {-1, 1};

}  // namespace moe::vllm
