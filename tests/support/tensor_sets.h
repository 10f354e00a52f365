// The way in which checkpoints of a format store weights; the first, where there are several.
#pragma once

#include "scheme/checkpoint.h"
#include "support/rooms.h"

namespace moe::test {

inline const TensorSet* set_of(Format format) {
  for (const TensorSet& set : tensor_sets())
    if (set.format == format) return &set;
  return nullptr;
}

}  // namespace moe::test
