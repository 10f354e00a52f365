// What a conversion does, from a selection and a set of weights.
#pragma once

#include <cstdint>

#include "base/control.h"
#include "base/parallel.h"
#include "base/result.h"
#include "convert/convert.h"
#include "io/packed.h"
#include "oracle/selection.h"
#include "weights/weight_set.h"

namespace moe::bind {

struct Conversion {
  PackedInfo info;  // of the block to be written
  ConvertJob job;
};

// Fails where the selection and the weights are of different layers, and where a tensor is missing. The selection
// decides the layout (a wider one where the groups of an expert need it), the set how its tensors are stored.
// any_name: the weights may be of another layer with the same config.
Result<Conversion> conversion_of(const Selection& selection, const WeightSet& set, bool any_name,
                                 std::uint64_t max_temp_bytes, const Parallel& parallel, Control* control);

}  // namespace moe::bind
