// Tensor views: sizes and slices. See tensor.h.
#include "base/tensor.h"

#include "base/checked.h"
#include "base/index.h"
#include "base/text.h"

namespace moe {

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string s = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) s += cat(i ? ", " : "", shape[i]);
  return s + "]";
}

std::optional<std::int64_t> tensor_nbytes(DType dtype, std::span<const std::int64_t> shape) {
  const int bits = dtype_bits(dtype);
  if (bits == 0 || shape.size() > kMaxDims) return std::nullopt;
  std::int64_t outer = 1;
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) {
    const auto p = checked_mul({outer, shape[i]});
    if (!p) return std::nullopt;
    outer = *p;
  }
  const auto row_bits = checked_mul({shape.empty() ? 1 : shape.back(), bits});
  if (!row_bits) return std::nullopt;
  return checked_mul({outer, *row_bits / 8 + (*row_bits % 8 != 0 ? 1 : 0)});
}

TensorView row_major(DType dtype, std::initializer_list<std::int64_t> shape, const void* data) {
  TensorView t;
  t.dtype = dtype;
  t.ndim = static_cast<int>(shape.size());
  std::size_t i = 0;
  for (std::int64_t d : shape) t.shape[i++] = d;
  std::int64_t stride = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    t.strides[d] = stride;
    stride *= t.shape[d];
  }
  t.data = static_cast<std::byte*>(const_cast<void*>(data));
  t.nbytes = usize(tensor_nbytes(dtype, {t.shape.data(), shape.size()}).value_or(0));
  return t;
}

bool is_row_major(const TensorView& t) {
  std::int64_t stride = 1;
  for (int d = t.ndim; d-- > 0;) {
    if (at(t.shape, d) != 1 && at(t.strides, d) != stride) return false;
    stride *= at(t.shape, d);
  }
  return true;
}

TensorView slice0(const TensorView& t, std::int64_t index) {
  TensorView s = rows(t, index, 1);
  for (int d = 0; d + 1 < t.ndim; ++d) {
    at(s.shape, d) = at(t.shape, d + 1);
    at(s.strides, d) = at(t.strides, d + 1);
  }
  s.ndim = t.ndim - 1;
  at(s.shape, s.ndim) = 0;
  at(s.strides, s.ndim) = 0;
  return s;
}

TensorView rows(const TensorView& t, std::int64_t begin, std::int64_t count) {
  TensorView s = t;
  const std::size_t skip = usize(begin * t.strides[0] * dtype_bits(t.dtype) / 8);
  s.shape[0] = count;
  s.data = t.data + skip;
  s.nbytes = t.nbytes - skip;
  return s;
}

}  // namespace moe
