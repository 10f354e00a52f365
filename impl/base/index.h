// Counts and places are signed in this library, those of the standard library are not: the step from one to the other.
// Always inlined, so that target regions (kernels/target.h) may call it.
#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>

#include "base/float_rules.h"

namespace moe {

template <class T>
concept Index = std::integral<T> || std::is_enum_v<T>;

// A count, index or offset in bytes that is known not to be negative.
template <Index T>
[[gnu::always_inline]] constexpr std::size_t usize(T n) {
  return static_cast<std::size_t>(n);
}

// items[i] for an index of any type, also an enumeration that names the rows of a table. The checks of
// _GLIBCXX_ASSERTIONS see it: below 0 is far behind the end.
template <class Items, Index T>
[[gnu::always_inline]] constexpr decltype(auto) at(Items&& items, T i) {
  return items[usize(i)];
}

}  // namespace moe
