// Check of a source tensor. See tensor_check.h.
#include "scheme/tensor_check.h"

#include <algorithm>
#include <optional>
#include <string>

#include "base/checked.h"
#include "base/index.h"
#include "base/json.h"
#include "base/text.h"

namespace moe {
namespace {

// Bytes from the first to the last element, 0 when there is none; nullopt on overflow or a negative number.
std::optional<std::int64_t> bytes_spanned(const TensorView& t) {
  std::int64_t last = 0;
  for (int d = 0; d < t.ndim; ++d) {
    if (at(t.shape, d) == 0) return 0;
    const auto step = checked_mul({at(t.shape, d) - 1, at(t.strides, d)});
    const auto sum = step ? checked_add(last, *step) : std::nullopt;
    if (!sum) return std::nullopt;
    last = *sum;
  }
  const auto count = checked_add(last, std::int64_t{1});
  return count ? checked_mul({*count, dtype_bits(t.dtype) / 8}) : std::nullopt;
}

std::span<const std::int64_t> extents(const std::array<std::int64_t, kMaxDims>& a, int ndim) {
  return {a.data(), usize(std::clamp(ndim, 0, kMaxDims))};
}

// Where the dimensions of `shape` are among those of a tensor in another form: -1 is one that it lacks. nullopt: it has
// none of them.
using Places = std::array<int, kMaxDims>;
std::optional<Places> places_in(std::span<const std::int64_t> got, const CheckpointTensor& row,
                                std::span<const std::int64_t> shape) {
  Places at{};
  if (shape.empty() || shape.size() > kMaxDims) return std::nullopt;
  const std::size_t last = shape.size() - 1;
  for (std::size_t i = 0; i <= last; ++i) at[i] = static_cast<int>(i);
  const bool lacks_last = got.size() == last && std::equal(got.begin(), got.end(), shape.begin());
  switch (row.shape_kind) {
    case ShapeKind::vector: {
      if (got.size() != last || last == 0) return std::nullopt;
      const std::size_t groups = row.axes[0] == Axis::groups ? last - 1 : last;
      if (shape[groups] != 1) return std::nullopt;
      for (std::size_t i = 0, from = 0; i <= last; ++i) {
        at[i] = i == groups ? -1 : static_cast<int>(from++);
        if (i != groups && got[usize(at[i])] != shape[i]) return std::nullopt;
      }
      return at;
    }
    case ShapeKind::scalar:  // a checkpoint's activations are quantized for both halves at once
      at[last] = -1;
      return lacks_last && (shape[last] == 1 || is_number(row.kind)) ? std::optional(at) : std::nullopt;
    case ShapeKind::blocks:
      return std::nullopt;  // joined: in_blocks()
    case ShapeKind::spread: {
      if (got.size() != shape.size() + 2) return std::nullopt;
      const std::size_t first = last - 1;
      at[last] = static_cast<int>(last + 1);
      const bool ones = got[first + 1] == 1 && got[first + 3] == 1;
      const bool same = std::equal(got.begin(), got.begin() + static_cast<std::ptrdiff_t>(last), shape.begin());
      return ones && same && got[first + 2] == shape[last] ? std::optional(at) : std::nullopt;
    }
    case ShapeKind::axes:
      break;
  }
  return std::nullopt;
}

// [..., K/32, 16] of a shape [..., K/2].
bool in_blocks(std::span<const std::int64_t> got, const CheckpointTensor& row, std::span<const std::int64_t> shape) {
  if (row.shape_kind != ShapeKind::blocks || shape.empty() || got.size() != shape.size() + 1) return false;
  const std::size_t last = shape.size() - 1;
  return std::equal(got.begin(), got.begin() + static_cast<std::ptrdiff_t>(last), shape.begin()) &&
         got[last + 1] == kBlockBytes && got[last] == shape[last] / kBlockBytes && shape[last] % kBlockBytes == 0;
}

// Whether a tensor has two codes of four bits in each byte that its format counts.
bool counts_codes(DType dtype, const CheckpointTensor& row) {
  return dtype == DType::f4_e2m1fn && row.kind == TensorKind::weight && row.allows(DType::u8);
}

// Two codes of four bits as a byte, where they lie as bytes do.
TensorView as_bytes(const TensorView& t) {
  if (t.ndim < 1 || t.ndim > kMaxDims) return t;
  const int last = t.ndim - 1;
  TensorView v = t;
  v.dtype = DType::u8;
  if (at(t.strides, last) != 1 || at(t.shape, last) % 2 != 0) return t;
  at(v.shape, last) /= 2;
  for (int d = 0; d < last; ++d) {
    if (at(t.strides, d) % 2 != 0) return t;
    at(v.strides, d) /= 2;
  }
  return v;
}

}  // namespace

Check check_tensor(const TensorView& t, const CheckpointTensor& row, std::span<const std::int64_t> shape,
                   std::string_view subject) {
  const std::string name(subject);
  if (!row.allows(t.dtype))
    return fail(Code::dtype, name, cat(name, ": expected ", row.dtypes_text(), ", got ", dtype_name(t.dtype)));
  const auto got = extents(t.shape, t.ndim);
  if (t.ndim != static_cast<int>(shape.size()) || !std::equal(shape.begin(), shape.end(), got.begin()))
    return fail(Code::shape, name, cat(name, ": expected shape ", shape_text(shape), ", got ", shape_text(got)),
                json::members("expected", json::Text{shape_text(shape)}, "actual", json::Text{shape_text(got)}));
  const auto strides = extents(t.strides, t.ndim);
  if (std::any_of(strides.begin(), strides.end(), [](std::int64_t s) { return s < 0; }))
    return fail(Code::shape, name, cat(name, ": strides must not be negative, got ", shape_text(strides)));
  const auto bytes = bytes_spanned(t);
  if (!bytes) return fail(Code::shape, name, cat(name, ": strides ", shape_text(strides), " reach beyond any memory"));
  if (static_cast<std::uint64_t>(*bytes) > t.nbytes)
    return fail(Code::shape, name,
                cat(name, ": shape ", shape_text(shape), " with strides ", shape_text(strides), " needs ", *bytes,
                    " bytes, got ", t.nbytes));
  if (*bytes > 0 && t.data == nullptr) return fail(Code::invalid_argument, name, name + ": data is NULL");
  return ok();
}

TensorView in_shape(const TensorView& given, const CheckpointTensor& row, std::span<const std::int64_t> shape) {
  const TensorView t = counts_codes(given.dtype, row) ? as_bytes(given) : given;
  if (in_blocks(extents(t.shape, t.ndim), row, shape)) {
    const int last = t.ndim - 1;
    if (at(t.strides, last - 1) != at(t.strides, last) * kBlockBytes) return t;
    TensorView v = t;
    v.ndim = last;
    at(v.shape, last - 1) = shape[usize(last - 1)];
    at(v.strides, last - 1) = at(t.strides, last);
    at(v.shape, last) = at(v.strides, last) = 0;
    return v;
  }
  const std::optional<Places> places = places_in(extents(t.shape, t.ndim), row, shape);
  if (!places) return t;
  TensorView v = t;
  v.ndim = static_cast<int>(shape.size());
  v.shape = v.strides = {};
  for (std::size_t i = 0; i < shape.size(); ++i) {
    v.shape[i] = shape[i];
    const int from = (*places)[i];
    v.strides[i] = from < 0 ? 0 : at(t.strides, from);
  }
  return v;
}

StoredTensor stored_tensor(DType dtype, std::span<const std::int64_t> extents, const CheckpointTensor& row) {
  StoredTensor t{dtype, {extents.begin(), extents.end()}};
  if (!counts_codes(dtype, row) || extents.empty() || extents.back() % 2 != 0) return t;
  t.dtype = DType::u8;
  t.extents.back() /= 2;
  return t;
}

bool has_shape(std::span<const std::int64_t> got, const CheckpointTensor& row, std::span<const std::int64_t> shape) {
  return (got.size() == shape.size() && std::equal(got.begin(), got.end(), shape.begin())) ||
         places_in(got, row, shape).has_value() || in_blocks(got, row, shape);
}

}  // namespace moe
