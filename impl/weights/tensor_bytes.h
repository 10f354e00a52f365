// Tensors without gaps between rows: row-major views and copies.
#pragma once

#include <cstdint>
#include <span>

#include "base/buffer.h"
#include "base/result.h"
#include "scheme/tensor_source.h"

namespace moe::weights {

// A row-major view of `data`.
TensorView dense_view(DType dtype, std::span<const std::int64_t> shape, const Buffer& data);
// Copies `from` row-major to `out`. Elements are whole bytes.
void copy_dense(const TensorView& from, std::byte* out);
// A row-major copy that owns its bytes.
Result<TensorLease> dense_copy(const TensorView& from);

}  // namespace moe::weights
