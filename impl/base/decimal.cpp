// Digits by the free-format algorithm of Steele and White with exact integers: x = r/s, and whatever lies less than
// low/s below it or high/s above it reads back as x (the bounds too when its significand is even, as ties go there).
// Digits are taken from r/s until what is left is inside these bounds.
#include "base/decimal.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace moe {
namespace {

__extension__ using Integer = unsigned __int128;

// An integer below 2^1216, least word first: the widest here is 2 * 2^1076 times a significand and ten.
class Wide {
 public:
  explicit Wide(std::uint64_t x) : words_{static_cast<std::uint32_t>(x), static_cast<std::uint32_t>(x >> 32)} {}

  Wide& operator*=(std::uint32_t factor) {
    std::uint64_t carry = 0;
    for (std::uint32_t& w : words_) {
      carry += std::uint64_t{w} * factor;
      w = static_cast<std::uint32_t>(carry);
      carry >>= 32;
    }
    return *this;
  }
  Wide& operator<<=(int bits) {
    for (; bits > 0; bits -= 31) *this *= 1U << (bits < 31 ? bits : 31);
    return *this;
  }
  Wide& operator+=(const Wide& b) { return add(b, 0, 0); }
  Wide& operator-=(const Wide& b) { return add(b, ~std::uint32_t{0}, 1); }
  friend Wide operator+(Wide a, const Wide& b) { return a += b; }
  friend std::strong_ordering operator<=>(const Wide& a, const Wide& b) {
    for (std::size_t i = kWords; i-- > 0;)
      if (a.words_[i] != b.words_[i]) return a.words_[i] <=> b.words_[i];
    return std::strong_ordering::equal;
  }

 private:
  Wide& add(const Wide& b, std::uint32_t flip, std::uint64_t carry) {  // a - b = a + ~b + 1
    for (std::size_t i = 0; i < kWords; ++i) {
      carry += std::uint64_t{words_[i]} + (b.words_[i] ^ flip);
      words_[i] = static_cast<std::uint32_t>(carry);
      carry >>= 32;
    }
    return *this;
  }

  static constexpr std::size_t kWords = 38;
  std::array<std::uint32_t, kWords> words_{};
};

struct Digits {
  std::string text;  // without leading or trailing zeros
  int exponent = 0;  // of the last digit
};

// Of significand * 2^exponent > 0; `lowest_of_binade`: the next number below is half as far as the one above.
Digits shortest_digits(std::uint64_t significand, int exponent, bool lowest_of_binade) {
  const int extra = lowest_of_binade ? 2 : 1;
  Wide r(significand), s(1), low(1), high(lowest_of_binade ? 2 : 1);
  const int up = exponent > 0 ? exponent : 0;
  r <<= up + extra;
  s <<= extra - (exponent < 0 ? exponent : 0);
  low <<= up;
  high <<= up;
  const bool even = significand % 2 == 0;
  const auto past_high = [&](const Wide& left) {
    const auto order = left + high <=> s;
    return order > 0 || (even && order == 0);
  };
  const auto next = [&] {
    for (Wide* w : {&r, &low, &high}) *w *= 10;
  };

  Digits out;
  for (; past_high(r); ++out.exponent) s *= 10;
  for (next(); !past_high(r); next()) --out.exponent;
  for (;; next()) {
    char digit = '0';
    for (; r >= s; ++digit) r -= s;
    --out.exponent;
    const auto below = r <=> low;
    const bool stop_here = below < 0 || (even && below == 0);  // the digit will do
    const bool stop_above = past_high(r);                      // so will the digit + 1
    const auto half = r + r <=> s;
    const bool nearer_above = half > 0 || (half == 0 && digit % 2 == 1);
    if (stop_above && (!stop_here || nearer_above)) ++digit;
    out.text += digit;
    if (stop_here || stop_above) return out;
  }
}

std::string fixed(const Digits& d, double x) {
  const int length = static_cast<int>(d.text.size());
  if (d.exponent >= 0) {  // an integer of at most 22 digits: all of them, not the shortest and zeros
    std::string reversed;
    for (auto n = static_cast<Integer>(x); n != 0; n /= 10) reversed += static_cast<char>('0' + int(n % 10));
    return {reversed.rbegin(), reversed.rend()};
  }
  const int whole = length + d.exponent;
  if (whole <= 0) return "0." + std::string(static_cast<std::size_t>(-whole), '0') + d.text;
  return d.text.substr(0, static_cast<std::size_t>(whole)) + "." + d.text.substr(static_cast<std::size_t>(whole));
}

std::string scientific(const Digits& d) {
  const int exponent = d.exponent + static_cast<int>(d.text.size()) - 1;
  std::string text = d.text.substr(0, 1);
  if (d.text.size() > 1) text += "." + d.text.substr(1);
  text += exponent < 0 ? "e-" : "e+";
  const int size = exponent < 0 ? -exponent : exponent;
  if (size < 10) text += '0';
  return text + std::to_string(size);
}

template <class Float>
std::string text_of(Float x) {
  constexpr int kDigits = std::numeric_limits<Float>::digits;
  constexpr int kLowest = std::numeric_limits<Float>::min_exponent - kDigits;
  const std::string sign = std::signbit(x) ? "-" : "";
  x = std::fabs(x);
  if (x == 0) return sign + "0";
  int exponent = 0;
  (void)std::frexp(x, &exponent);
  exponent = std::max(exponent - kDigits, kLowest);
  const auto significand = static_cast<std::uint64_t>(std::ldexp(x, -exponent));
  const Digits d =
      shortest_digits(significand, exponent, exponent > kLowest && significand == std::uint64_t{1} << (kDigits - 1));
  const int length = static_cast<int>(d.text.size());
  const int single = length == 1 ? 1 : 0;  // no point in its scientific form
  const bool is_fixed = d.exponent >= -(length + 3) + single && d.exponent <= 5 - single;  // the shorter; a tie: fixed
  return sign + (is_fixed ? fixed(d, static_cast<double>(x)) : scientific(d));
}

}  // namespace

std::string decimal(double x) { return text_of(x); }
std::string decimal(float x) { return text_of(x); }

}  // namespace moe
