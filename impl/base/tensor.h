// Views of tensors that the caller owns.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>

#include "base/dtype.h"
#include "base/index.h"

namespace moe {

constexpr int kMaxDims = 6;

struct TensorView {
  DType dtype = DType::invalid;
  int ndim = 0;
  std::array<std::int64_t, kMaxDims> shape{};    // elements
  std::array<std::int64_t, kMaxDims> strides{};  // elements, always filled in (row-major when the caller gave none)
  std::byte* data = nullptr;
  std::size_t nbytes = 0;  // bytes at data

  std::int64_t numel() const {
    std::int64_t n = 1;
    for (int i = 0; i < ndim; ++i) n *= at(shape, i);
    return n;
  }
};

// "[8, 2048, 6]"
std::string shape_text(std::span<const std::int64_t> shape);
// Bytes of a row-major tensor (rows of sub-byte types fill whole bytes); nullopt when it overflows,
// a dimension is negative, ndim is out of [0, kMaxDims] or the type is unknown.
std::optional<std::int64_t> tensor_nbytes(DType dtype, std::span<const std::int64_t> shape);
// A row-major view; shape must be valid and small enough (already checked).
TensorView row_major(DType dtype, std::initializer_list<std::int64_t> shape, const void* data);
bool is_row_major(const TensorView& t);
// The slice t[index] along the first dimension.
TensorView slice0(const TensorView& t, std::int64_t index);
// Rows [begin, begin + count) along the first dimension.
TensorView rows(const TensorView& t, std::int64_t begin, std::int64_t count);

}  // namespace moe
