// Values that lie anywhere in memory, aligned or not.
#pragma once

#include <cstddef>
#include <cstring>

namespace moe {

// The value `index` of those that begin at p.
template <class T>
T load(const std::byte* p, std::size_t index = 0) {
  T v;
  std::memcpy(&v, p + index * sizeof(T), sizeof(T));
  return v;
}

}  // namespace moe
