// How many of their cases the tests take: all of them, or one of MOE_TEST_SHARE where a case costs many times as much
// (sanitizers, emulated CPUs; CMakePresets.json and gates/qemu_gate.sh set it). What is drawn at random, and lists of
// combinations, are cut; golden files and refusals are not.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

#include "support/rooms.h"

namespace moe::test {

inline int share() {
  static const int n = [] {
    const char* text = std::getenv("MOE_TEST_SHARE");
    const int value = text != nullptr ? std::atoi(text) : 1;
    return value > 1 ? value : 1;
  }();
  return n;
}

// Of `all` rounds of random cases.
inline int rounds(int all) { return (all + share() - 1) / share(); }

// A step over bit patterns that takes the share, odd so that it meets all of them.
inline std::uint32_t stride(std::uint32_t all) { return (all * static_cast<std::uint32_t>(share())) | 1u; }

// Of each `share()` cases that are asked for, one: the first of all, so that there is one, then not always the same
// place, since neighbours often differ in one option.
class Turns {
 public:
  explicit Turns(std::uint32_t seed = 0) : state_(seed) {}
  bool next() {
    const bool mine = at_ == chosen_;
    if (++at_ == share()) draw();
    return mine;
  }

 private:
  void draw() {
    state_ = state_ * 1664525u + 1013904223u;
    chosen_ = static_cast<int>((state_ >> 16) % static_cast<std::uint32_t>(share()));
    at_ = 0;
  }
  std::uint32_t state_;
  int at_ = 0, chosen_ = 0;
};

// Of a list of cases: one of each `share()` neighbours, at least one.
template <class T>
std::vector<T> some_of(std::vector<T> all, std::uint32_t seed = 0) {
  const auto step = static_cast<std::size_t>(share());
  std::vector<T> kept;
  for (std::size_t i = 0; i < all.size(); i += step) {
    seed = seed * 1664525u + 1013904223u;
    kept.push_back(std::move(all[i + (seed >> 16) % std::min(step, all.size() - i)]));
  }
  return kept;
}

}  // namespace moe::test
