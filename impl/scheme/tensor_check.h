// The check of one source tensor against what a checkpoint format wants: type, rank and extents,
// strides, bytes. Whoever takes tensors from outside (weights) or from a source (convert) calls it
// before the first byte is read.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/tensor.h"
#include "scheme/checkpoint.h"

namespace moe {

// Code::dtype or Code::shape with `subject`. `shape`: what is expected, all dimensions. Any strides >= 0 do.
Check check_tensor(const TensorView& tensor, const CheckpointTensor& row, std::span<const std::int64_t> shape,
                   std::string_view subject);

// A tensor that has another form of `shape` (CheckpointTensor::form) as a view of that shape; others as they are.
TensorView in_shape(const TensorView& t, const CheckpointTensor& row, std::span<const std::int64_t> shape);
// A tensor of a file as in_shape takes it: two codes of four bits are the byte that they lie in.
struct StoredTensor {
  DType dtype = DType::invalid;
  std::vector<std::int64_t> extents;
};
StoredTensor stored_tensor(DType dtype, std::span<const std::int64_t> extents, const CheckpointTensor& row);
// The same question about a tensor of a file: whether its extents are `shape` in one of its forms.
bool has_shape(std::span<const std::int64_t> extents, const CheckpointTensor& row, std::span<const std::int64_t> shape);

}  // namespace moe
