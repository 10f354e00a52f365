// Tensor views: sizes, slices, role names. See tensor.h.
#include "base/tensor.h"

#include "base/checked.h"
#include "base/index.h"
#include "base/text.h"

namespace moe {
namespace {

// The role's own name, then those that vLLM's and SGLang's layers give its tensor. A name stands in one row: what
// multiplies and what divides are roles of their own (weight_scale_2 and weight_global_scale), whatever tool wrote the
// file.
constexpr std::size_t kMostNames = 4;
constexpr std::array<std::array<const char*, kMostNames>, kRoleCount> kRoles = {{
    {"w13_weight", "w13", "w13_weight_packed", "w13_qweight"},
    {"w2_weight", "w2", "w2_weight_packed", "w2_qweight"},
    {"w13_scale", "w13_weight_scale", "w13_weight_scale_inv", "w13_scales"},
    {"w2_scale", "w2_weight_scale", "w2_weight_scale_inv", "w2_scales"},
    {"w13_scale_2", "w13_weight_scale_2"},
    {"w2_scale_2", "w2_weight_scale_2"},
    {"w13_zero_point", "w13_qzeros", "w13_weight_zero_point"},
    {"w2_zero_point", "w2_qzeros", "w2_weight_zero_point"},
    {"w13_g_idx", "w13_weight_g_idx"},
    {"w2_g_idx", "w2_weight_g_idx"},
    {"w13_bias", "w13_weight_bias"},
    {"w2_bias", "w2_weight_bias"},
    {"w13_input_scale", "w13_input_scale_2"},
    {"w2_input_scale", "w2_input_scale_2"},
    {"w13_global_scale", "w13_weight_global_scale"},
    {"w2_global_scale", "w2_weight_global_scale"},
    {"w13_input_global_scale"},
    {"w2_input_global_scale"},
    {"w13_weight_shape"},
    {"w2_weight_shape"},
    {"w13_g_idx_sort_indices"},
    {"w2_g_idx_sort_indices"},
}};

}  // namespace

const char* role_name(Role r) { return at(kRoles, r)[0]; }

std::optional<NamedRole> named_role(std::string_view name) {
  for (std::size_t i = 0; i < kRoles.size(); ++i)
    for (const char* known : kRoles[i])
      if (known != nullptr && name == known) return NamedRole(static_cast<Role>(i), known);
  return std::nullopt;
}

std::optional<Role> role_from_name(std::string_view name) {
  const auto found = named_role(name);
  return found ? std::optional(found->role) : std::nullopt;
}

std::vector<std::string_view> role_names() {
  std::vector<std::string_view> all;
  for (const auto& names : kRoles)
    for (const char* known : names)
      if (known != nullptr) all.emplace_back(known);
  return all;
}

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
