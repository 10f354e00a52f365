// Size arithmetic that cannot wrap. Every size that comes from outside passes through here.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <utility>

namespace moe {

template <std::integral T>
constexpr std::optional<T> checked_add(T a, T b) {
  T r{};
  if (__builtin_add_overflow(a, b, &r)) return std::nullopt;
  return r;
}

// Product of non-negative factors, at most PTRDIFF_MAX; nullopt when negative or larger.
constexpr std::optional<std::int64_t> checked_mul(std::initializer_list<std::int64_t> factors) {
  std::int64_t product = 1;
  for (std::int64_t f : factors) {
    if (f < 0) return std::nullopt;
    if (__builtin_mul_overflow(product, f, &product)) return std::nullopt;
  }
  return product;
}

// Smallest multiple of `step` (> 0) that is >= x; the caller knows that x + step fits.
template <std::integral T>
constexpr T round_up(T x, T step) {
  return (x + step - 1) / step * step;
}

template <std::integral T>
constexpr T ceil_div(T x, T step) {
  return (x + step - 1) / step;
}

// Value-preserving integer conversion, nullopt when the value does not fit.
template <std::integral To, std::integral From>
constexpr std::optional<To> narrow(From x) {
  if (!std::in_range<To>(x)) return std::nullopt;
  return static_cast<To>(x);
}

static_assert(!checked_mul({std::numeric_limits<std::int64_t>::max(), 2}));
static_assert(checked_mul({0, std::numeric_limits<std::int64_t>::max()}) == 0);
static_assert(!checked_mul({-1, 2}));

}  // namespace moe
