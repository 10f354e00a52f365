// How the columns of a row share scales. Whole: all columns share one. Even: groups of equal size. Uneven: groups of
// any sizes; a list tells each column's group. All code uses this class. The -1 of configs and the numbers of a packed
// file become a Groups where they are read.
//
// Why a class: a bare group_size means a whole row when it is -1 and when it is K, and code that
// forgets the first divides by -1. Here a size is only given for a number of columns.
#pragma once

#include <cstdint>

namespace moe {

class Groups {
 public:
  constexpr Groups() = default;  // whole
  static constexpr Groups whole() { return {}; }
  static constexpr Groups even(std::int64_t size) { return {Kind::even, size}; }
  // The sizes are in a list (g_idx) and differ between experts; a layout only knows how many there
  // are.
  static constexpr Groups uneven(std::int64_t count) { return {Kind::uneven, count}; }
  // Of a config's number: -1 is whole.
  static constexpr Groups of_size(std::int64_t size) { return size == -1 ? whole() : even(size); }
  // For a matrix of `columns` columns: a group as wide as the matrix is whole.
  // w13 and w2 have one group_size but other K, so the same config may be whole in one and even in
  // the other. Layout ids, kernels and W4A8's choice of path look at the result.
  static constexpr Groups of_size(std::int64_t size, std::int64_t columns) { return of_size(size).in(columns); }
  constexpr Groups in(std::int64_t columns) const { return is_even() && number_ >= columns ? whole() : *this; }

  constexpr bool is_whole() const { return kind_ == Kind::whole; }
  constexpr bool is_even() const { return kind_ == Kind::even; }
  constexpr bool is_uneven() const { return kind_ == Kind::uneven; }
  // -1 for uneven ones, too: a config has no word for them but act_order.
  constexpr std::int64_t as_written() const { return is_even() ? number_ : -1; }  // in configs
  // The columns of one group, in a matrix of `columns` columns. Uneven groups have no such number.
  constexpr std::int64_t size_in(std::int64_t columns) const { return is_even() ? number_ : columns; }
  // The number of groups. The last block of columns may be shorter than the others.
  // Only block scales of FP8 cut the last one short; other formats have groups that divide K.
  constexpr std::int64_t count_in(std::int64_t columns) const {
    if (is_even()) return number_ >= columns ? 1 : (columns + number_ - 1) / number_;
    return is_whole() ? 1 : number_;
  }

  friend constexpr bool operator==(const Groups&, const Groups&) = default;

 private:
  enum class Kind : std::uint8_t { whole, even, uneven };
  // Private, so that a number without its kind cannot become groups.
  constexpr Groups(Kind kind, std::int64_t number) : kind_(kind), number_(number) {}

  Kind kind_ = Kind::whole;
  std::int64_t number_ = 0;  // even: columns of a group; uneven: how many groups
};

}  // namespace moe
