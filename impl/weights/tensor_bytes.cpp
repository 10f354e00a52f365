// Tensor bytes of a WeightSet: reading rectangles from files, cutting views, joining gate and up. See tensor_bytes.h,
// state.h.
#include "weights/tensor_bytes.h"

#include <algorithm>
#include <cstring>

#include "base/index.h"
#include "weights/state.h"

namespace moe::weights {
namespace {

constexpr std::int64_t kReadBlock = std::int64_t{1} << 20;

// Columns of consecutive rows, a block of whole rows at a time: a file is read once, in order.
Check read_columns(const FilePart& f, std::int64_t row_bytes, std::int64_t skip, std::int64_t take, std::byte* out) {
  const std::int64_t at_once = std::max<std::int64_t>(kReadBlock / row_bytes, 1);
  MOE_TRY(const Buffer block, Buffer::create(usize(std::min(at_once, f.part.rows) * row_bytes)));
  for (std::int64_t r = 0; r < f.part.rows; r += at_once) {
    const std::int64_t n = std::min(at_once, f.part.rows - r);
    MOE_CHECK(f.from.file->read(*f.from.entry, static_cast<std::uint64_t>((f.part.row0 + r) * row_bytes),
                                block.bytes().first(usize(n * row_bytes))));
    for (std::int64_t i = 0; i < n; ++i)
      std::memcpy(out + (r + i) * take, block.data() + i * row_bytes + skip, usize(take));
  }
  return ok();
}

}  // namespace

TensorView dense_view(DType dtype, std::span<const std::int64_t> shape, const Buffer& data) {
  TensorView v;
  v.dtype = dtype;
  v.ndim = static_cast<int>(shape.size());
  std::int64_t stride = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    v.shape[d] = shape[d];
    v.strides[d] = stride;
    stride *= shape[d];
  }
  v.data = data.data();
  v.nbytes = data.size();
  return v;
}

namespace {

// One element as [rows, 1].
TensorView repeated(const TensorView& one, std::int64_t rows) {
  TensorView v = one;
  v.ndim = 2;
  v.shape[0] = rows;
  v.shape[1] = 1;
  v.strides[0] = v.strides[1] = 0;
  return v;
}

}  // namespace

TensorView cut(const TensorView& whole, const Part& p) {
  if (p.repeats) return repeated(whole, p.rows);
  TensorView v = rows(whole, p.row0, p.rows);
  if (whole.ndim < 2) return v;
  const std::size_t skip = usize(p.col0 * v.strides[1] * dtype_bits(v.dtype) / 8);
  v.data += skip;
  v.nbytes -= skip;
  v.shape[1] = p.cols;
  return v;
}

Result<TensorLease> read_part(const FilePart& f) {
  const SafetensorsEntry& e = *f.from.entry;
  const std::int64_t size = dtype_bits(f.dtype) / 8;
  if (f.part.repeats) {
    MOE_TRY(Buffer one, Buffer::create(usize(size)));
    MOE_CHECK(f.from.file->read(e, 0, one.bytes()));
    const TensorView view = repeated(dense_view(f.dtype, std::array<std::int64_t, 1>{1}, one), f.part.rows);
    return TensorLease(view, std::move(one));
  }
  const std::int64_t row_bytes = f.part.whole_cols * size, take = f.part.cols * size;
  MOE_TRY(Buffer buffer, Buffer::create(usize(f.part.rows * take)));
  if (take == row_bytes)
    MOE_CHECK(f.from.file->read(e, static_cast<std::uint64_t>(f.part.row0 * row_bytes), buffer.bytes()));
  else
    MOE_CHECK(read_columns(f, row_bytes, f.part.col0 * size, take, buffer.data()));
  const std::array shape{f.part.rows, f.part.cols};
  const TensorView view = dense_view(f.dtype, std::span(shape).first(usize(f.part.ndim)), buffer);
  return TensorLease(view, std::move(buffer));
}

void copy_dense(const TensorView& from, std::byte* out) {
  if (from.ndim == 0 || is_row_major(from)) {
    const std::size_t bytes = usize(from.numel() * dtype_bits(from.dtype) / 8);
    if (bytes != 0) std::memcpy(out, from.data, bytes);
    return;
  }
  if (from.ndim > 1) {
    const std::int64_t each = from.shape[0] == 0 ? 0 : from.numel() / from.shape[0] * dtype_bits(from.dtype) / 8;
    for (std::int64_t i = 0; i < from.shape[0]; ++i) copy_dense(slice0(from, i), out + i * each);
    return;
  }
  const std::int64_t size = dtype_bits(from.dtype) / 8;
  for (std::int64_t i = 0; i < from.shape[0]; ++i)
    std::memcpy(out + i * size, from.data + i * from.strides[0] * size, usize(size));
}

Result<TensorLease> dense_copy(const TensorView& from) {
  const std::span shape(from.shape.data(), usize(from.ndim));
  MOE_TRY(Buffer copy, Buffer::create(usize(from.numel() * dtype_bits(from.dtype) / 8)));
  copy_dense(from, copy.data());
  const TensorView view = dense_view(from.dtype, shape, copy);
  return TensorLease(view, std::move(copy));
}

Result<TensorLease> join_halves(const TensorView& gate, const TensorView& up, W13Layout order, int n_axis) {
  const auto axis = usize(n_axis);
  std::array<std::int64_t, 2> shape{gate.shape[0], gate.ndim == 2 ? gate.shape[1] : 1};
  const std::int64_t n = shape[axis], size = dtype_bits(gate.dtype) / 8;
  shape[axis] = 2 * n;
  MOE_TRY(Buffer buffer, Buffer::create(usize(shape[0] * shape[1] * size)));
  const TensorView view = dense_view(gate.dtype, std::span(shape).first(usize(gate.ndim)), buffer);
  for (int half = 0; half < 2; ++half) {
    const TensorView& from = half == 0 ? gate : up;
    const bool second = (half == 1) != (order == W13Layout::up_gate);
    const bool interleaved = order == W13Layout::interleaved;
    const std::int64_t first = interleaved ? half : second ? n : 0, step = interleaved ? 2 : 1;
    for (std::int64_t i = 0; i < from.shape[0]; ++i) {
      const std::int64_t row = axis == 0 ? first + step * i : i;
      const TensorView to = slice0(view, row), line = slice0(from, i);
      if (axis == 0)
        copy_dense(line, to.data);
      else if (!interleaved)
        copy_dense(line, to.data + first * size);
      else
        for (std::int64_t c = 0; c < n; ++c)
          std::memcpy(to.data + (first + 2 * c) * size, line.data + c * line.strides[0] * size, usize(size));
    }
  }
  return TensorLease(view, std::move(buffer));
}

}  // namespace moe::weights
