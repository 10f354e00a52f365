// Roles that repeat what the layer already knows. Layers of other engines have such tensors. Their numbers are checked;
// conversion does not use them.
#pragma once

#include <string>

#include "scheme/tensor_source.h"
#include "weights/layer_facts.h"
#include "weights/weight_set.h"

namespace moe::weights {

// weight_shape: rows and columns of the weights, of all experts ([E, 2]) or of one ([2]). A w13 may be told as a whole
// or as one of its halves, and a rank's part as the whole projection: vLLM keeps what the file said last.
Check check_shapes(const LayerFacts& facts, const NamedRole& role, const TensorView& given, const Place* one = nullptr);

// g_idx_sort_indices, where they are set: every column once, in an order of ascending groups.
struct SortIndices {
  Role role, groups;
  std::int64_t expert;
  const char* name;  // as the caller said
};
Check check_sorted(const WeightSet& set, const LayerFacts& facts, const SortIndices& which);

}  // namespace moe::weights
