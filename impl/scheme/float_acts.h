// How rows of activations become 8-bit floats (e4m3), as a file or a config asks for it (float_oracles.md 9.1, 9.6).
#pragma once

#include <cstdint>

namespace moe {

// What shares a scale.
//
// tensor   a number of the checkpoint's for each expert and matrix; codes are x * (1 / s)
// token    the row: s = amax / 448, at least 1 / (448 * 512)
// group    `columns` columns: s = amax / 448, amax at least 1e-10
// mx       32 columns: s = 2^k, the least with which no code is beyond 448
enum class FloatScale : std::uint8_t { tensor, token, group, mx };

struct FloatActs {
  FloatScale scale = FloatScale::token;
  std::int64_t columns = 0;  // of group and mx, a multiple of 32; the last group may be shorter
  bool ue8m0 = false;        // of group: s is rounded up to a power of two

  // Codes times their scales are bf16 numbers then.
  constexpr bool powers_of_two() const { return scale == FloatScale::mx || ue8m0; }
  constexpr bool is_grouped() const { return columns != 0; }

  friend bool operator==(const FloatActs&, const FloatActs&) = default;
};
inline constexpr FloatActs kMxActs = {FloatScale::mx, 32, false};

}  // namespace moe
