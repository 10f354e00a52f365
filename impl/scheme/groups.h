// How the columns of a matrix share scales: all of a row (whole), so many at a time (even), or so many groups of any
// sizes, told by a list of each column's group (uneven). The one form of this everywhere; -1, as configs write it, and
// the numbers of a packed file are turned into it where they are read.
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
  // In a matrix of so many columns, where one group is the whole.
  static constexpr Groups of_size(std::int64_t size, std::int64_t columns) { return of_size(size).in(columns); }
  constexpr Groups in(std::int64_t columns) const { return is_even() && number_ >= columns ? whole() : *this; }

  constexpr bool is_whole() const { return kind_ == Kind::whole; }
  constexpr bool is_even() const { return kind_ == Kind::even; }
  constexpr bool is_uneven() const { return kind_ == Kind::uneven; }
  constexpr std::int64_t as_written() const { return is_even() ? number_ : -1; }  // in configs
  // Columns of a group, of a matrix of so many; not of uneven ones.
  constexpr std::int64_t size_in(std::int64_t columns) const { return is_even() ? number_ : columns; }
  // Of blocks the last one may be cut short.
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
