// SPDX-License-Identifier: Apache-2.0
//
// View (a small std::span), and tensors: views of memory that the caller owns.
#pragma once

#include <moe/cpp/error.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <type_traits>

namespace libmoe {
inline namespace LIBMOE_NAMESPACE {

/// `size` elements that the caller owns; std::span turns into it and back.
template <class T>
class View {
 public:
  constexpr View() noexcept = default;
  constexpr View(T* data, std::size_t size) noexcept : data_(data), size_(size) {}
  /// A braced list, for the length of one call.
  constexpr View(std::initializer_list<std::remove_const_t<T>> list) noexcept : View(list.begin(), list.size()) {}
  /// A vector, an array, a span.
  template <class C, class = std::enable_if_t<std::is_convertible_v<
                         std::remove_pointer_t<decltype(std::data(std::declval<C&>()))> (*)[], T (*)[]>>>
  constexpr View(C&& range) noexcept : data_(std::data(range)), size_(std::size(range)) {}

  constexpr T* data() const noexcept { return data_; }
  constexpr std::size_t size() const noexcept { return size_; }
  constexpr bool empty() const noexcept { return size_ == 0; }
  constexpr T* begin() const noexcept { return data_; }
  constexpr T* end() const noexcept { return data_ + size_; }
  constexpr T& operator[](std::size_t i) const noexcept { return data_[i]; }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

using Shape = View<const std::int64_t>;

/// The type of a tensor of T; bfloat16 and 8-bit floats have no C++ type and are named.
template <class T>
constexpr moe_dtype dtype_of() noexcept {
  using U = std::remove_cv_t<T>;
  static_assert(std::is_arithmetic_v<U>, "name the moe_dtype of these elements");
  if constexpr (std::is_same_v<U, bool>) return MOE_DTYPE_BOOL;
  static_assert(std::is_integral_v<U> || std::is_same_v<U, float> || std::is_same_v<U, double>,
                "name the moe_dtype of these elements");
  if constexpr (std::is_floating_point_v<U>) return sizeof(U) == 4 ? MOE_DTYPE_F32 : MOE_DTYPE_F64;
  constexpr moe_dtype is_signed[] = {0, MOE_DTYPE_I8, MOE_DTYPE_I16, 0, MOE_DTYPE_I32, 0, 0, 0, MOE_DTYPE_I64};
  constexpr moe_dtype is_unsigned[] = {0, MOE_DTYPE_U8, MOE_DTYPE_U16, 0, MOE_DTYPE_U32, 0, 0, 0, MOE_DTYPE_U64};
  return std::is_signed_v<U> ? is_signed[sizeof(U)] : is_unsigned[sizeof(U)];
}

inline std::string_view dtype_name(moe_dtype dtype) noexcept { return moe_dtype_name(dtype); }
/// Also "torch.bfloat16" and "BF16"; MOE_DTYPE_INVALID when unknown.
inline moe_dtype dtype_from_name(Text name) noexcept {
  return name.cut() ? MOE_DTYPE_INVALID : moe_dtype_from_name(name.get());
}
/// Bytes of a row-major tensor, -1 on bad arguments.
inline std::int64_t tensor_nbytes(moe_dtype dtype, Shape shape) noexcept {
  if (shape.size() > MOE_MAX_DIMS) return -1;
  return moe_tensor_nbytes(dtype, static_cast<std::int32_t>(shape.size()), shape.data());
}

/// A tensor that is read. Default-made: absent. The library checks shape and strides against the bytes.
class ConstTensor {
 public:
  ConstTensor() noexcept = default;
  ConstTensor(const void* data, std::size_t nbytes, moe_dtype dtype, Shape shape, Shape strides = {}) noexcept {
    raw_.struct_size = sizeof raw_;
    raw_.dtype = dtype;
    raw_.ndim = static_cast<std::int32_t>(shape.size());          // too many are refused by the library
    raw_.data = nbytes == 0 ? nullptr : const_cast<void*>(data);  // nbytes 0 would mean "as many as the shape needs"
    raw_.nbytes = nbytes;
    for (std::size_t i = 0; i < shape.size() && i < MOE_MAX_DIMS; ++i) raw_.shape[i] = shape[i];
    for (std::size_t i = 0; i < strides.size() && i < MOE_MAX_DIMS; ++i) raw_.strides[i] = strides[i];
  }
  /// A vector, an array or a span of numbers.
  template <class C, class E = std::remove_pointer_t<decltype(std::data(std::declval<const C&>()))>>
  ConstTensor(const C& range, Shape shape, Shape strides = {}) noexcept
      : ConstTensor(range, dtype_of<E>(), shape, strides) {}
  /// The same whose elements are the bits of `dtype`.
  template <class C, class E = std::remove_pointer_t<decltype(std::data(std::declval<const C&>()))>>
  ConstTensor(const C& range, moe_dtype dtype, Shape shape, Shape strides = {}) noexcept
      : ConstTensor(std::data(range), std::size(range) * sizeof(E), dtype, shape, strides) {}
  explicit ConstTensor(const moe_tensor& raw) noexcept : raw_(raw) {}

  /// A view of a DLPack DLManagedTensorVersioned on the CPU; its owner calls the deleter.
  static Result<ConstTensor> try_from_dlpack(const void* managed) noexcept {
    moe_tensor raw{};
    raw.struct_size = sizeof raw;
    if (Result<void> done = detail::call(moe_tensor_from_dlpack, managed, &raw); !done) return done.error();
    return ConstTensor(raw);
  }
#if LIBMOE_EXCEPTIONS
  static ConstTensor from_dlpack(const void* managed) { return try_from_dlpack(managed).value(); }
#endif

  bool absent() const noexcept { return raw_.struct_size == 0; }
  moe_dtype dtype() const noexcept { return raw_.dtype; }
  Shape shape() const noexcept { return {raw_.shape, static_cast<std::size_t>(raw_.ndim)}; }
  /// In elements; empty where they were left out: row-major without gaps.
  Shape strides() const noexcept {
    bool apart = false;
    for (const std::int64_t stride : raw_.strides) apart = apart || stride != 0;
    return {raw_.strides, apart ? shape().size() : 0};
  }
  const void* data() const noexcept { return raw_.data; }
  std::size_t nbytes() const noexcept {
    const std::int64_t needed = raw_.nbytes ? 0 : moe_tensor_nbytes(raw_.dtype, raw_.ndim, raw_.shape);
    return raw_.nbytes ? static_cast<std::size_t>(raw_.nbytes) : needed > 0 ? static_cast<std::size_t>(needed) : 0;
  }
  /// The elements, and what lies in the gaps if strides() says so, of a type as large as they are.
  template <class T>
  View<const T> as() const noexcept {
    return {static_cast<const T*>(raw_.data), nbytes() / sizeof(T)};
  }
  /// For calls of moe.h; NULL when absent.
  const moe_tensor* get() const noexcept { return absent() ? nullptr : &raw_; }

 protected:
  moe_tensor raw_{};
};

/// A tensor that is written.
class Tensor : public ConstTensor {
 public:
  Tensor() noexcept = default;
  Tensor(void* data, std::size_t nbytes, moe_dtype dtype, Shape shape, Shape strides = {}) noexcept
      : ConstTensor(data, nbytes, dtype, shape, strides) {}
  template <class C, class E = std::remove_pointer_t<decltype(std::data(std::declval<C&>()))>,
            class = std::enable_if_t<!std::is_const_v<E>>>
  Tensor(C&& range, Shape shape, Shape strides = {}) noexcept : ConstTensor(range, shape, strides) {}
  template <class C, class E = std::remove_pointer_t<decltype(std::data(std::declval<C&>()))>,
            class = std::enable_if_t<!std::is_const_v<E>>>
  Tensor(C&& range, moe_dtype dtype, Shape shape, Shape strides = {}) noexcept
      : ConstTensor(range, dtype, shape, strides) {}

  void* data() const noexcept { return raw_.data; }
};

}  // namespace LIBMOE_NAMESPACE
}  // namespace libmoe
