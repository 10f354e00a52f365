// The work of routing on one row of logits, as a row of functions per ISA (routing.md 1, 4).
//
// A row is an array of route_row_floats(E) floats: E values, then padding so that whole steps of 16 lanes and
// reads that begin anywhere in the row stay inside it. Every function gives the same bits on every ISA
// (kernels/ref/route.cpp is the definition): keys with a correction bias contain scores, and ids must not
// depend on the machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/checked.h"
#include "base/dtype.h"
#include "base/platform.h"

namespace moe::kernels {

constexpr std::size_t kRouteLanes = 16;
constexpr std::size_t route_row_floats(std::size_t n) { return round_up(n, kRouteLanes) + kRouteLanes; }

// The k best of what was offered so far: keys descending, equal keys in the order in which they came.
// Nothing is taken out again, so candidates must come in ascending order of their ids.
struct Best {
  float* keys;        // [k]
  std::int32_t* ids;  // [k]
  std::size_t k;
  std::size_t n = 0;
};

enum class GroupScore : std::uint8_t { largest, two_largest };

// keys of G groups of `per` neighbours -> out[G]: the largest, or the sum of the two largest (per >= 2).
struct GroupArgs {
  const float* keys;
  std::size_t groups, per;
  GroupScore score;
  float* out;
};

struct RouteKernel {
  Isa isa = Isa::scalar;
  // Logits of any alignment -> float32; NaN becomes -inf, +inf the largest float, all floats past n -inf.
  void (*load)(DType dtype, const std::byte* src, std::size_t n, float* row) = nullptr;
  // Row -> scores, whole steps of 16. softmax: e = exp(x - m), e / S with S in 16 partial sums (lane n mod
  // 16, ascending), folded 8, 4, 2, 1; a row of only -inf: zeros. In-place is allowed.
  void (*softmax)(const float* row, std::size_t n, float* scores) = nullptr;
  void (*sigmoid)(const float* row, std::size_t n, float* scores) = nullptr;
  void (*sqrtsoftplus)(const float* row, std::size_t n, float* scores) = nullptr;
  // keys = scores + bias, whole steps of 16.
  void (*add)(const float* scores, const float* bias, std::size_t n, float* keys) = nullptr;
  void (*group_scores)(const GroupArgs& args) = nullptr;
  // Offers keys[0..count) as the candidates first, first + 1, ...
  void (*select)(const float* keys, std::int32_t first, std::size_t count, Best& best) = nullptr;
};

// All rows of this build, best first; the last is the scalar one.
std::span<const RouteKernel* const> route_kernels();
// The best row that runs wherever code of `isa` runs.
const RouteKernel& route_kernel_within(Isa isa);
// The best row for a platform.
const RouteKernel& route_kernel_for(const Platform& platform);

}  // namespace moe::kernels
