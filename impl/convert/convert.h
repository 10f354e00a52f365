// Checkpoint tensors -> packed bytes, expert by expert, through one plain form (layouts/rows.h).
//
// convert/ sees a TensorSource and a Layout, no config and no file. The same input gives the same
// bytes on every host and for every number of threads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/control.h"
#include "base/parallel.h"
#include "base/result.h"
#include "layouts/layout.h"
#include "scheme/checkpoint.h"
#include "scheme/scheme.h"
#include "scheme/tensor_source.h"

namespace moe::convert {

struct ConvertJob {
  Layout layout;                              // what to write
  const TensorSet* set = nullptr;             // how the source stores its weights
  W13Layout w13_layout = W13Layout::gate_up;  // row order of stacked w13 roles (w1 / w3 halves are placed by name)
  bool gated = true;
  bool symmetric = true;   // else there are zero points
  bool act_order = false;  // columns belong to groups by a g_idx
  // Of w2's first column in the whole matrix, which tensor parallelism cuts: without activation order a g_idx may count
  // from it (as files do) or from 0.
  std::int64_t w2_first_group = 0;
  ZeroPoints zero_points = ZeroPoints::as_stored;
  // As configured, -1 = channel-wise. Decides whether scales are rounded to bf16 where a group is as wide
  // as both matrices and the layout alone does not tell.
  Groups groups = {};
  std::array<std::int64_t, 2> block = {1, 1};  // rows and columns that share a scale (MatrixSize::block)
  std::vector<std::int64_t> experts{};         // the model's numbers in local order; size == layout.experts
  std::uint64_t max_temp_bytes = 0;            // 0: one expert's worth per thread
  // Called once per expert when its tensors are no longer used (MOE_CONVERT_RELEASE_SOURCES); may be null.
  void (*expert_done)(void* user, std::int64_t expert) = nullptr;
  void* expert_done_user = nullptr;
};

struct ConvertReport {
  std::uint64_t scales_rounded = 0;       // scales that the layout's type does not hold exactly
  std::uint64_t requantized_experts = 0;  // whose codes were recomputed
  // By Which: [experts], of p16 with LayoutVariant::input_scales.
  std::array<std::vector<float>, 2> input_scales = {};
};

// Writes layout.payload_bytes() bytes. On failure the content of `payload` is unspecified (the caller
// owns it until success). Bad values name their place: "w13_weight[e,n,k]".
Result<ConvertReport> convert_experts(const ConvertJob& job, const TensorSource& source, std::span<std::byte> payload,
                                      const Parallel& parallel, Control* control);

// The layout of the job, or where groups of activation order turn out to be of several sizes the one that can hold
// them. Reads the g_idx of all experts, on all threads, until one tells; reports progress 0 meanwhile.
Result<Layout> layout_that_fits(const ConvertJob& job, const TensorSource& source, const Parallel& parallel,
                                Control* control);

// Whether this build writes a layout (and reads it back).
bool can_write(LayoutKind kind);

}  // namespace moe::convert
