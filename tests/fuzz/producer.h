// Choices out of the bytes of a fuzz input; all zero when they have run out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "support/rooms.h"

namespace moe::fuzz {

class Producer {
 public:
  Producer(const std::uint8_t* data, std::size_t size) : at_(data), end_(data + size) {}

  bool empty() const { return at_ == end_; }
  std::uint8_t byte() { return empty() ? std::uint8_t{0} : *at_++; }
  bool flag() { return (byte() & 1) != 0; }
  std::uint32_t word() {
    std::uint32_t w = 0;
    for (int i = 0; i < 4; ++i) w = w << 8 | byte();
    return w;
  }
  std::size_t below(std::size_t n) { return byte() % n; }  // n <= 256
  template <class T, std::size_t N>
  const T& pick(const std::array<T, N>& choices) {
    static_assert(N <= 256);
    return choices[below(N)];
  }

 private:
  const std::uint8_t *at_, *end_;
};

// Numbers that need not be steered one by one.
class Noise {
 public:
  explicit Noise(std::uint32_t seed) : state_(seed | 1) {}
  std::uint32_t below(std::uint32_t n) {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 17;
    state_ ^= state_ << 5;
    return (state_ >> 3) % n;
  }

 private:
  std::uint32_t state_;
};

}  // namespace moe::fuzz
