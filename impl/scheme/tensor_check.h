// The check of one source tensor against what a checkpoint format wants: type, rank and extents,
// strides, bytes. The room that takes a tensor, weights from outside or convert from a source,
// calls it before the first byte is read.
//
// Checked twice on purpose: a host may change a tensor between handing it over and conversion, and
// a source may be code of the host (a callback) that answers differently each time.
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
// Strides of 0 are fine (one number for all rows), negative ones are not: the first byte would not
// be the lowest address, and the check of bytes relies on that. All products are checked for
// overflow, since extents of a file may be any number.
Check check_tensor(const TensorView& tensor, const CheckpointTensor& row, std::span<const std::int64_t> shape,
                   std::string_view subject);

// A tensor that has another accepted shape (ShapeKind) as a view of `shape`; others as they are.
// It only rearranges extents and strides, no byte moves: a missing dimension gets the stride 0.
TensorView in_shape(const TensorView& t, const CheckpointTensor& row, std::span<const std::int64_t> shape);
// A tensor of a file as in_shape takes it: two codes of four bits are the byte that they lie in.
// safetensors counts F4 elements, formats count bytes of two codes; the two differ by a factor of 2
// in the last extent.
struct StoredTensor {
  DType dtype = DType::invalid;
  std::vector<std::int64_t> extents;
};
StoredTensor stored_tensor(DType dtype, std::span<const std::int64_t> extents, const CheckpointTensor& row);
// The same question about a tensor of a file: whether its extents are `shape` in one of its forms.
// For headers, where no data is there yet: files are refused when they are opened, not at
// conversion.
bool has_shape(std::span<const std::int64_t> extents, const CheckpointTensor& row, std::span<const std::int64_t> shape);

}  // namespace moe
