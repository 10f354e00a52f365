// Values that lie anywhere in memory, aligned or not.
#pragma once

#include <cstddef>
#include <cstring>

#include "base/index.h"

namespace moe {

// The value `index` of those that begin at p.
template <class T, Index I = std::size_t>
T load(const std::byte* p, I index = 0) {
  T v;
  std::memcpy(&v, p + usize(index) * sizeof(T), sizeof(T));
  return v;
}

}  // namespace moe
