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

}  // namespace moe
