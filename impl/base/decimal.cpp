// The fewest digits that read back: the C library rounds exactly to every precision, and the first one that gives the
// same number again is taken. Below a power of two numbers lie closer than above it, so there the digits one higher may
// read back where the nearest ones don't.
#include "base/decimal.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>

#include "base/index.h"

namespace moe {
namespace {

__extension__ using Integer = unsigned __int128;

struct DecimalDigits {
  std::string text;  // without leading or trailing zeros
  int exponent = 0;  // of the last digit
};

template <class Float>
bool reads_back(const DecimalDigits& d, Float x) {
  const std::string plain = d.text + "e" + std::to_string(d.exponent);
  Float back = 0;
  std::from_chars(plain.data(), plain.data() + plain.size(), back);
  return back == x;
}

// Of x > 0. "d.dd..e+XX" comes with the decimal point of the host's locale, so its digits are picked out.
template <class Float>
DecimalDigits shortest_digits(Float x) {
  DecimalDigits nearest;
  for (int precision = 0; precision < std::numeric_limits<Float>::max_digits10; ++precision) {
    std::array<char, 32> text{};
    const int size = std::snprintf(text.data(), text.size(), "%.*e", precision, static_cast<double>(x));
    const std::string_view all(text.data(), usize(size));
    const std::size_t e = all.find('e');
    std::uint64_t number = 0;
    for (const char c : all.substr(0, e))
      if (c >= '0' && c <= '9') number = number * 10 + static_cast<std::uint64_t>(c - '0');
    const char* exponent = text.data() + e + (all[e + 1] == '+' ? 2 : 1);
    std::from_chars(exponent, text.data() + size, nearest.exponent);
    nearest.exponent -= precision;
    nearest.text = std::to_string(number);
    if (reads_back(nearest, x)) break;
    const DecimalDigits above{std::to_string(number + 1), nearest.exponent};
    if (reads_back(above, x)) return above;
  }
  return nearest;
}

std::string fixed(const DecimalDigits& d, double x) {
  const int length = static_cast<int>(d.text.size());
  if (d.exponent >= 0) {  // an integer of at most 22 digits: all of them, not the shortest and zeros
    std::string reversed;
    for (auto n = static_cast<Integer>(x); n != 0; n /= 10) reversed += static_cast<char>('0' + int(n % 10));
    return {reversed.rbegin(), reversed.rend()};
  }
  const int whole = length + d.exponent;
  if (whole <= 0) return "0." + std::string(usize(-whole), '0') + d.text;
  return d.text.substr(0, usize(whole)) + "." + d.text.substr(usize(whole));
}

std::string scientific(const DecimalDigits& d) {
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
  const std::string sign = std::signbit(x) ? "-" : "";
  x = std::fabs(x);
  if (x == 0) return sign + "0";
  const DecimalDigits d = shortest_digits(x);
  const int length = static_cast<int>(d.text.size());
  const int single = length == 1 ? 1 : 0;  // no point in its scientific form
  const bool is_fixed = d.exponent >= -(length + 3) + single && d.exponent <= 5 - single;  // the shorter; a tie: fixed
  return sign + (is_fixed ? fixed(d, static_cast<double>(x)) : scientific(d));
}

}  // namespace

std::string decimal(double x) { return text_of(x); }
std::string decimal(float x) { return text_of(x); }

std::string float_text(float x) {
  if (std::isnan(x)) return "NaN";
  if (std::isinf(x)) return x < 0 ? "-Inf" : "Inf";
  return decimal(x);
}

}  // namespace moe
