// The check of one source tensor against what a checkpoint format wants: type, rank and extents,
// strides, bytes. Whoever takes tensors from outside (weights) or from a source (convert) calls it
// before the first byte is read.
#pragma once

#include <span>
#include <string_view>

#include "base/result.h"
#include "base/tensor.h"
#include "scheme/checkpoint.h"

namespace moe {

// Code::dtype or Code::shape with `subject`. `shape`: what is expected, all dimensions. Any strides >= 0 do.
Check check_tensor(const TensorView& tensor, const CheckpointTensor& row, std::span<const std::int64_t> shape,
                   std::string_view subject);

}  // namespace moe
