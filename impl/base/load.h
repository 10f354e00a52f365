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

// A number of memory that another thread may write, read once: what is checked is what is used. (A compiler may read
// plain memory again.)
template <class T>
T load_once(const std::byte* p) {
  T v = load<T>(p);
  __asm__ volatile("" : "+r"(v));
  return v;
}

}  // namespace moe
