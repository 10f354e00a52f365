// A pattern of regex.cpp as the program of a Thompson automaton.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace moe::config {

enum class Op : std::uint8_t { literal, any, set, split, jump, at_start, at_end, match };

struct Inst {
  Op op;
  char32_t literal = 0;       // Op::literal
  std::size_t set = 0;        // Op::set: index into Program::sets
  std::int32_t x = 0, y = 0;  // Op::split, Op::jump (x): relative targets
};
using Fragment = std::vector<Inst>;

struct CharSet {
  using Range = std::pair<char32_t, char32_t>;  // inclusive
  bool negated = false;
  std::vector<Range> ranges;

  // Sorted and disjoint, so that a look-up costs log(ranges).
  void normalise() {
    std::sort(ranges.begin(), ranges.end());
    std::vector<Range> merged;
    for (const Range& r : ranges) {
      if (merged.empty() || r.first > merged.back().second)
        merged.push_back(r);
      else
        merged.back().second = std::max(merged.back().second, r.second);
    }
    ranges = std::move(merged);
  }
  bool has(char32_t c) const {
    const auto above = std::upper_bound(ranges.begin(), ranges.end(), Range{c, ~char32_t{0}});
    return (above != ranges.begin() && c <= std::prev(above)->second) != negated;
  }
};

struct Program {
  Fragment code;
  std::vector<CharSet> sets;
  std::size_t work = 0;  // units that it took to make it (Work)
};

// UTF-8 to code points; a stray byte stands for itself.
std::u32string code_points(std::string_view s);

// Code::unsupported for what is outside the subset, or too long.
Result<Program> compile_pattern(std::string_view pattern);

}  // namespace moe::config
