// What a conversion does, from a selection and a set of weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/control.h"
#include "base/parallel.h"
#include "base/result.h"
#include "convert/convert.h"
#include "io/packed.h"
#include "oracle/selection.h"
#include "run/context/context.h"
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

// Where the block of a conversion is written.
struct BlockMemory {
  std::span<std::byte> bytes;  // packed_block_bytes(info) at least, at a multiple of kBlockAlignment
  std::string word;            // "owned", "caller"
  std::shared_ptr<const void> keep;
};
// New memory of a context, which may be null.
Result<BlockMemory> own_block(std::uint64_t bytes, const std::shared_ptr<Context>& context,
                              std::shared_ptr<const void> also_kept = nullptr);
// Converts the weights of the set and seals the block.
Result<Packed> convert_into(Conversion conversion, const WeightSet& set, BlockMemory block, const Parallel& parallel,
                            Control* control);

}  // namespace moe::bind
