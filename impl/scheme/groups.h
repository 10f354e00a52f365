// How the columns of a row share scales. Whole: all columns share one. Even: groups of equal size. Uneven: groups of
// any sizes; a list tells each column's group. All code uses this class. The -1 of configs and the numbers of a packed
// file become a Groups where they are read.
#pragma once

#include <cstdint>

namespace moe {

class Groups {
 public:
  constexpr Groups() = default;  // whole
  static constexpr Groups whole() { return {}; }
  static constexpr Groups even(std::int64_t size) { return {Kind::even, size}; }
  static constexpr Groups uneven(std::int64_t count) { return {Kind::uneven, count}; }
  // Of a config's number: -1 is whole.
  static constexpr Groups of_size(std::int64_t size) { return size == -1 ? whole() : even(size); }
  // For a matrix of `columns` columns: a group as wide as the matrix is whole.
  static constexpr Groups of_size(std::int64_t size, std::int64_t columns) { return of_size(size).in(columns); }
  constexpr Groups in(std::int64_t columns) const { return is_even() && number_ >= columns ? whole() : *this; }

  constexpr bool is_whole() const { return kind_ == Kind::whole; }
  constexpr bool is_even() const { return kind_ == Kind::even; }
  constexpr bool is_uneven() const { return kind_ == Kind::uneven; }
  constexpr std::int64_t as_written() const { return is_even() ? number_ : -1; }  // in configs
  // The columns of one group, in a matrix of `columns` columns. Uneven groups have no such number.
  constexpr std::int64_t size_in(std::int64_t columns) const { return is_even() ? number_ : columns; }
  // The number of groups. The last block of columns may be shorter than the others.
  constexpr std::int64_t count_in(std::int64_t columns) const {
    if (is_even()) return number_ >= columns ? 1 : (columns + number_ - 1) / number_;
    return is_whole() ? 1 : number_;
  }

  friend constexpr bool operator==(const Groups&, const Groups&) = default;

 private:
  enum class Kind : std::uint8_t { whole, even, uneven };
  constexpr Groups(Kind kind, std::int64_t number) : kind_(kind), number_(number) {}

  Kind kind_ = Kind::whole;
  std::int64_t number_ = 0;  // even: columns of a group; uneven: how many groups
};

}  // namespace moe
