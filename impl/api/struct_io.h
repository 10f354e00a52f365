// Structs that grow (rule 6 of moe.h). The caller says in struct_size what it compiled, n bytes:
//   n < v1 or n > 4096    MOE_ERR_INVALID_ARGUMENT
//   n < sizeof            the missing tail counts as zero
//   n > sizeof            the bytes beyond must be zero, else MOE_ERR_VERSION (inputs)
// Outputs get min(n, sizeof) bytes, and struct_size stays as the caller set it. Structs are read and
// written as bytes, so a misaligned one is no fault.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

#include "api/guard.h"
#include "base/text.h"

namespace moe::api {

constexpr std::size_t kMaxStructSize = 4096;
// Size in the first release; a struct that grows gets its old size here.
template <class T>
inline constexpr std::size_t kV1Size = sizeof(T);
template <>
inline constexpr std::size_t kV1Size<moe_layer_options> = offsetof(moe_layer_options, flags);

inline std::uint32_t stated_size(const void* p) noexcept {
  std::uint32_t n;
  std::memcpy(&n, p, sizeof n);
  return n;
}

template <class T>
bool usable_size(const T* p) noexcept {
  const std::uint32_t n = stated_size(p);
  return n >= kV1Size<T> && n <= kMaxStructSize;
}

// The members that the caller gave; nullopt when p is NULL or its size can't be believed. For what must
// be known before the checks: functions that end the use of something.
template <class T>
std::optional<T> peek_struct(const T* p) noexcept {
  if (p == nullptr || !usable_size(p)) return std::nullopt;
  T value{};
  std::memcpy(&value, p, std::min<std::size_t>(stated_size(p), sizeof(T)));
  return value;
}

template <class T>
Check check_struct_size(const T* p, const char* name) {
  if (usable_size(p)) return ok();
  return fail(Code::invalid_argument, name,
              cat(name, ": struct_size is ", stated_size(p), ", expected ", kV1Size<T>, " to ", kMaxStructSize));
}

template <class T>
Result<T> read_struct(const T* p, const char* name) {
  MOE_CHECK(check_struct_size(p, name));
  const std::size_t n = stated_size(p);
  const auto* bytes = reinterpret_cast<const unsigned char*>(p);
  for (std::size_t i = sizeof(T); i < n; ++i)
    if (bytes[i] != 0)
      return fail(Code::version, name,
                  cat(name, ": byte ", i, " of a struct of ", n, " bytes is set; this library knows ", sizeof(T)));
  return *peek_struct(p);
}

// `out` has a checked size.
template <class T>
void write_struct(T* out, const T& value) noexcept {
  constexpr std::size_t head = sizeof(std::uint32_t);
  const std::size_t n = std::min<std::size_t>(stated_size(out), sizeof(T));
  std::memcpy(reinterpret_cast<unsigned char*>(out) + head, reinterpret_cast<const unsigned char*>(&value) + head,
              n - head);
}

inline Check reserved_zero(std::uint32_t value, const char* name) {
  if (value != 0) return fail(Code::invalid_argument, name, cat(name, ": reserved0 must be 0, got ", value));
  return ok();
}

}  // namespace moe::api
