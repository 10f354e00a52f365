// Checks of the tensors of a call; see tensor_check.h for the order.
#include "api/tensor_check.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>

#include "api/struct_io.h"
#include "base/checked.h"
#include "base/index.h"
#include "base/json.h"
#include "base/text.h"

namespace moe::api {
namespace {

using Extents = std::span<const std::int64_t>;

Check check_known_dtype(const moe_tensor& t, const char* name) {
  if (t.dtype == MOE_DTYPE_INVALID) return fail(Code::dtype, name, cat(name, ": dtype is not set"));
  if (dtype_bits(static_cast<DType>(t.dtype)) == 0)
    return fail(Code::invalid_argument, name, cat(name, ": unknown dtype ", t.dtype));
  return ok();
}

Check check_accepted_dtype(const TensorParam& p) {
  if (((p.dtypes >> p.raw.dtype) & 1u) != 0) return ok();
  std::string list;
  for (int i = 1; i < 64; ++i)
    if (((p.dtypes >> i) & 1u) != 0) list += cat(list.empty() ? "" : " or ", dtype_name(static_cast<DType>(i)));
  return fail(Code::dtype, p.name,
              cat(p.name, ": expected ", list, ", got ", dtype_name(static_cast<DType>(p.raw.dtype))),
              json::members("expected", list, "actual", dtype_name(static_cast<DType>(p.raw.dtype))));
}

Check check_rank(const moe_tensor& t, const char* name) {
  if (t.ndim >= 0 && t.ndim <= MOE_MAX_DIMS) return ok();
  return fail(Code::shape, name, cat(name, ": ndim is ", t.ndim, ", expected 0 to ", MOE_MAX_DIMS));
}

std::uintptr_t address(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }

Extents dims_of(const moe_tensor& t) { return {t.shape, usize(t.ndim)}; }

Check check_extents(const moe_tensor& t, const char* name) {
  for (std::int64_t d : dims_of(t))
    if (d < 0) return fail(Code::shape, name, cat(name, ": negative extent in shape ", shape_text(dims_of(t))));
  if (!tensor_nbytes(static_cast<DType>(t.dtype), dims_of(t)))
    return fail(Code::shape, name, cat(name, ": shape ", shape_text(dims_of(t)), " is larger than the address space"));
  return ok();
}

Check shape_mismatch(const TensorParam& p, const std::array<std::int64_t, 2>& expected) {
  const auto rank = usize(p.ndim);
  const std::string want = shape_text({expected.data(), rank}), got = shape_text(dims_of(p.raw));
  return fail(Code::shape, p.name, cat(p.name, ": expected shape ", want, " (", p.letters, "), got ", got),
              json::members("expected", json::Text{want}, "actual", json::Text{got}));
}

Check check_expected_rank(const TensorParam& p) {
  MOE_CHECK(check_rank(p.raw, p.name));
  if (p.raw.ndim == p.ndim) return ok();
  return fail(Code::shape, p.name,
              cat(p.name, ": expected ", p.ndim, " dimensions (", p.letters, "), got ", p.raw.ndim));
}

// `tokens` is set by the first tensor that has T.
Check check_expected_shape(const TensorParam& p, std::int64_t& tokens) {
  MOE_CHECK(check_extents(p.raw, p.name));
  std::array<std::int64_t, 2> expected = p.shape;
  for (std::size_t d = 0; d < usize(p.ndim); ++d) {
    if (expected[d] == kTokens && tokens == kTokens) tokens = p.raw.shape[d];
    if (expected[d] == kTokens) expected[d] = tokens;
  }
  if (!std::equal(expected.begin(), expected.begin() + p.ndim, p.raw.shape)) return shape_mismatch(p, expected);
  return ok();
}

// Row-major strides of a shape whose byte count fits; false when a stride of an empty tensor does not.
bool fill_strides(Extents shape, std::int64_t* strides) {
  std::int64_t stride = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    strides[d] = stride;
    const auto next = checked_mul({stride, shape[d]});
    if (!next) return false;
    stride = *next;
  }
  return true;
}

// Bytes that shape and strides reach; nullopt when that overflows. Sub-byte rows fill whole bytes.
std::optional<std::int64_t> reach(const moe_tensor& t, Extents strides, bool row_major_strides) {
  const Extents shape = dims_of(t);
  const int bits = dtype_bits(static_cast<DType>(t.dtype));
  if (row_major_strides || bits % 8 != 0) return tensor_nbytes(static_cast<DType>(t.dtype), shape);
  std::int64_t last = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 0) return 0;
    const auto step = checked_mul({shape[d] - 1, strides[d]});
    const auto sum = step ? checked_add(last, *step) : std::nullopt;
    if (!sum) return std::nullopt;
    last = *sum;
  }
  const auto count = checked_add(last, std::int64_t{1});
  return count ? checked_mul({*count, bits / 8}) : std::nullopt;
}

constexpr std::int64_t kMostBytes = std::int64_t{1} << 60;  // their bits fit 64-bit arithmetic too

// Strides, byte count and address: the last steps, which make the view.
Result<TensorView> finish_view(const moe_tensor& t, const char* name) {
  const Extents shape = dims_of(t);
  const auto rank = shape.size();
  TensorView v;
  v.dtype = static_cast<DType>(t.dtype);
  v.ndim = t.ndim;
  std::copy(shape.begin(), shape.end(), v.shape.begin());
  for (std::size_t d = 0; d < rank; ++d)
    if (t.strides[d] < 0)
      return fail(Code::shape, name, cat(name, ": negative stride in ", shape_text({t.strides, rank})));
  std::int64_t dense[MOE_MAX_DIMS] = {};
  if (!fill_strides(shape, dense))
    return fail(Code::shape, name, cat(name, ": strides of shape ", shape_text(shape), " overflow"));
  const bool none = std::all_of(t.strides, t.strides + rank, [](std::int64_t s) { return s == 0; });
  std::copy(none ? dense : t.strides, (none ? dense : t.strides) + rank, v.strides.begin());
  const int bits = dtype_bits(v.dtype);
  const bool row_major_strides = none || is_row_major(v);
  if (bits % 8 != 0 && !row_major_strides)
    return fail(
        Code::shape, name,
        cat(name, ": ", dtype_name(v.dtype), " tensors have no gaps, got strides ", shape_text({t.strides, rank})));
  const auto needed = reach(t, {v.strides.data(), rank}, row_major_strides);
  if (!needed || *needed > kMostBytes)
    return fail(Code::shape, name, cat(name, ": strides ", shape_text({t.strides, rank}), " leave the address space"));
  if (t.nbytes != 0 && t.nbytes < static_cast<std::uint64_t>(*needed))
    return fail(Code::shape, name, cat(name, ": shape and strides need ", *needed, " bytes, nbytes is ", t.nbytes),
                json::members("needed", *needed));
  if (t.nbytes > static_cast<std::uint64_t>(kMostBytes))
    return fail(Code::shape, name, cat(name, ": nbytes ", t.nbytes, " is larger than the address space"));
  if (t.data == nullptr && (*needed != 0 || t.nbytes != 0))
    return fail(Code::invalid_argument, name, cat(name, ": data is NULL, but ", *needed, " bytes are needed"));
  const auto element = static_cast<std::uintptr_t>(std::max(1, bits % 8 == 0 ? bits / 8 : 1));
  if (reinterpret_cast<std::uintptr_t>(t.data) % element != 0)
    return fail(Code::invalid_argument, name,
                cat(name, ": data is not aligned to its elements of ", element, " bytes"));
  v.data = static_cast<std::byte*>(t.data);
  v.nbytes = usize(t.nbytes != 0 ? t.nbytes : static_cast<std::uint64_t>(*needed));
  if (!checked_add(address(v.data), std::uintptr_t{v.nbytes}))
    return fail(Code::shape, name, cat(name, ": ", v.nbytes, " bytes at this address leave the address space"));
  return v;
}

// Rows of activations are read with stride 1; strides of extents of one are never used and made regular.
Check check_row_strides(TensorParam& p) {
  TensorView& v = p.view;
  if (v.ndim == 0) return ok();
  const auto last = usize(v.ndim - 1);
  if (v.shape[last] <= 1) v.strides[last] = 1;
  if (v.strides[last] != 1)
    return fail(Code::shape, p.name, cat(p.name, ": the last stride must be 1, got ", v.strides[last]));
  if (v.ndim != 2) return ok();
  if (v.shape[0] <= 1) v.strides[0] = std::max<std::int64_t>(v.shape[1], 1);
  if (p.writable && v.strides[0] < v.shape[1])
    return fail(Code::shape, p.name,
                cat(p.name, ": rows overlap: stride ", v.strides[0], " of rows of ", v.shape[1], " elements"));
  return ok();
}

}  // namespace

TensorParam topk_ids_out(const moe_tensor* given, std::uint64_t dtypes) {
  return {.name = "out_topk_ids", .given = given, .dtypes = dtypes, .ndim = 2, .letters = "[T, K]", .writable = true};
}
TensorParam topk_weights_out(const moe_tensor* given) {
  return {.name = "out_topk_weights",
          .given = given,
          .dtypes = dtype_bit(DType::f32),
          .ndim = 2,
          .letters = "[T, K]",
          .writable = true};
}

Result<moe_tensor> read_tensor_struct(const moe_tensor* tensor, const char* name) {
  MOE_TRY(const moe_tensor t, read_struct(tensor, name));
  if (t.flags != 0) return fail(Code::invalid_argument, name, cat(name, ": flags must be 0, got ", t.flags));
  return t;
}

Check read_structs(std::span<TensorParam> params) {
  for (TensorParam& p : params) {
    if (p.given == nullptr) continue;
    MOE_TRY(p.raw, read_tensor_struct(p.given, p.name));
  }
  return ok();
}

Result<std::int64_t> check_tensors(std::span<TensorParam> params) {
  std::int64_t tokens = kTokens;
  const auto each = [&](auto&& step) -> Check {
    for (TensorParam& p : params) {
      if (p.given == nullptr) continue;
      Check result = step(p);
      if (!result) return result;
    }
    return ok();
  };
  const auto strides_and_bytes = [](TensorParam& p) -> Check {
    MOE_TRY(p.view, finish_view(p.raw, p.name));
    return check_row_strides(p);
  };
  MOE_CHECK(each([](TensorParam& p) { return check_known_dtype(p.raw, p.name); }));
  MOE_CHECK(each(check_accepted_dtype));
  MOE_CHECK(each(check_expected_rank));
  MOE_CHECK(each([&](TensorParam& p) { return check_expected_shape(p, tokens); }));
  MOE_CHECK(each(strides_and_bytes));
  return tokens == kTokens ? 0 : tokens;
}

Result<TensorView> view_of(const moe_tensor& tensor, const char* name) {
  MOE_CHECK(check_known_dtype(tensor, name));
  MOE_CHECK(check_rank(tensor, name));
  MOE_CHECK(check_extents(tensor, name));
  return finish_view(tensor, name);
}

Result<TensorView> read_tensor(const moe_tensor* tensor, const char* name) {
  MOE_TRY(const moe_tensor t, read_tensor_struct(tensor, name));
  return view_of(t, name);
}

std::size_t extent(const TensorView& view) {
  const int bits = dtype_bits(view.dtype);
  if (bits % 8 != 0) return view.nbytes;
  std::int64_t last = 0;
  for (std::size_t d = 0; d < usize(view.ndim); ++d) {
    if (view.shape[d] == 0) return 0;
    last += (view.shape[d] - 1) * view.strides[d];
  }
  return usize((last + 1) * (bits / 8));
}

bool same_tensor(const TensorView& a, const TensorView& b) {
  return a.data == b.data && a.dtype == b.dtype && a.ndim == b.ndim && a.shape == b.shape && a.strides == b.strides;
}

bool overlaps(const TensorView& a, const void* data, std::size_t bytes) {
  const std::size_t n = extent(a);
  if (n == 0 || bytes == 0) return false;
  return address(a.data) < address(data) + bytes && address(data) < address(a.data) + n;
}

bool overlaps(const TensorView& a, const TensorView& b) {
  if (!overlaps(a, b.data, extent(b))) return false;
  if (a.ndim != 2 || b.ndim != 2) return true;
  const auto bytes = [](const TensorView& v, std::int64_t n) { return usize(n) * usize(dtype_bits(v.dtype)) / 8; };
  const std::size_t step = bytes(a, a.strides[0]), width_a = bytes(a, a.shape[1]), width_b = bytes(b, b.shape[1]);
  if (step == 0 || step != bytes(b, b.strides[0])) return true;
  const std::uintptr_t from_a = (address(b.data) - address(a.data)) % step;  // where b's rows begin within a's
  const std::size_t distance =
      address(b.data) >= address(a.data) ? from_a : (step - (address(a.data) - address(b.data)) % step) % step;
  return distance < width_a || distance + width_b > step;
}

moe_tensor tensor_of(const TensorView& view) {
  moe_tensor t{};
  t.struct_size = sizeof t;
  t.dtype = static_cast<moe_dtype>(view.dtype);
  t.ndim = view.ndim;
  t.data = view.data;
  t.nbytes = view.nbytes;
  std::copy(view.shape.begin(), view.shape.end(), t.shape);
  std::copy(view.strides.begin(), view.strides.end(), t.strides);
  return t;
}

}  // namespace moe::api
