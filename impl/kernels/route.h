// The work of routing on one row of logits, as a row of functions per ISA (routing.md 1, 4).
//
// A row is an array of route_row_floats(E) floats: E values, then padding so that whole steps of 16 lanes and
// reads that begin anywhere in the row stay inside it. Every function gives the same bits on every ISA
// (kernels/ref/route.cpp is the definition): keys with a correction bias contain scores, and ids must not
// depend on the machine.
//
// All other work of a call waits for its ids, so with a single token the time of routing adds to
// that of the layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/checked.h"
#include "base/dtype.h"
#include "base/platform.h"

namespace moe::kernels {

// 16 is the widest vector (AVX-512, float32). All instruction sets use it as the step, so that the
// 16 partial sums of softmax, and with them its bits, are the same everywhere. The extra step at
// the end is for group_scores and select, which load from the first expert of a group, at any
// offset.
constexpr std::size_t kRouteLanes = 16;
constexpr std::size_t route_row_floats(std::size_t n) { return round_up(n, kRouteLanes) + kRouteLanes; }

// The k best of what was offered so far: keys descending, equal keys in the order in which they came.
// Nothing is taken out again, so candidates must come in ascending order of their ids.
// Fixed arrays of the caller: routing allocates nothing per token. A sorted list beats a heap here
// because k is small (8 is usual) and almost all candidates fail against its last key.
struct Best {
  float* keys;        // [k]
  std::int32_t* ids;  // [k]
  std::size_t k;
  std::size_t n = 0;
};

// With a correction bias a group counts as the sum of its two best keys, without one as the best
// (routing.md 4); a config may say otherwise.
enum class GroupScore : std::uint8_t { largest, two_largest };

// keys of G groups of `per` neighbours -> out[G]: the largest, or the sum of the two largest (per >= 2).
// `keys` has the padding of a row, so that a step may read beyond the last group.
struct GroupArgs {
  const float* keys;
  std::size_t groups, per;
  GroupScore score;
  float* out;
};

// A row is used by one thread for one token at a time; it has no state.
struct RouteKernel {
  Isa isa = Isa::scalar;
  // Logits of any alignment -> float32; NaN becomes -inf, +inf the largest float, all floats past n -inf.
  // -inf as padding loses against every expert and adds exp(-inf) = 0 to a sum, so no loop has a
  // tail. The largest float for +inf keeps x - m finite: inf - inf would be a NaN in every score.
  void (*load)(DType dtype, const std::byte* src, std::size_t n, float* row) = nullptr;
  // Row -> scores, whole steps of 16. softmax: e = exp(x - m), e / S with S in 16 partial sums (lane n mod
  // 16, ascending), folded 8, 4, 2, 1; a row of only -inf: zeros. In-place is allowed.
  void (*softmax)(const float* row, std::size_t n, float* scores) = nullptr;
  // These two work lane by lane on padding too: -inf gives 0.
  void (*sigmoid)(const float* row, std::size_t n, float* scores) = nullptr;
  void (*sqrtsoftplus)(const float* row, std::size_t n, float* scores) = nullptr;
  // keys = scores + bias, whole steps of 16.
  void (*add)(const float* scores, const float* bias, std::size_t n, float* keys) = nullptr;
  void (*group_scores)(const GroupArgs& args) = nullptr;
  // Offers keys[0..count) as the candidates first, first + 1, ...
  // A call per group, or one for the whole row. Ascending ids make equal keys keep the lower id
  // first, which is the library's tie rule (routing.md 1).
  void (*select)(const float* keys, std::int32_t first, std::size_t count, Best& best) = nullptr;
};

// All rows of this build, best first; the last is the scalar one.
std::span<const RouteKernel* const> route_kernels();
// The best row that runs wherever code of `isa` runs.
// A layer routes within the instruction set of its kernel, so that a selection for one set runs no
// code of a better one.
const RouteKernel& route_kernel_within(Isa isa);
// The best row for a platform.
const RouteKernel& route_kernel_for(const Platform& platform);

}  // namespace moe::kernels
