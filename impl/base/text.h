// Messages: put together by cat(), and text that others wrote (names, paths, values of documents) in them.
//
// Messages are valid UTF-8 on one line, whatever stood in a file: every one leaves through printable(). A name or
// value inside a message is written by in_quotes(), so that it cannot be taken for the message's own words.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/float_rules.h"

namespace moe {

// Not bool, which has no text, nor char, which is one.
template <class T>
concept Integer = std::integral<T> && !std::same_as<T, bool> && !std::same_as<T, char>;

// What cat() joins: text, a character, or an integer in decimal. It points to what it was made of.
class Piece {
 public:
  Piece(std::string_view s) : text_(s.data()), number_(s.size()) {}  // NOLINT(google-explicit-constructor)
  template <std::same_as<char> C>
  explicit Piece(const C& c) : text_(&c), number_(1) {}
  template <Integer I>
  explicit Piece(I i)
      : number_(static_cast<std::uint64_t>(i)), kind_(std::signed_integral<I> ? Kind::integer : Kind::natural) {}

  // The text; digits go to `buffer`.
  std::string_view in(char (&buffer)[24]) const;

 private:
  enum class Kind : std::uint8_t { text, integer, natural };
  const char* text_ = nullptr;
  std::uint64_t number_;  // the size of a text
  Kind kind_ = Kind::text;
};

std::string cat(std::initializer_list<Piece> pieces);
// cat("group ", g, " is outside [", begin, ", ", end, ")")
template <class... Parts>
std::string cat(const Parts&... parts) {
  return cat({Piece(parts)...});
}

// Bytes of the UTF-8 sequence at the start of s, 0 when it is none (RFC 3629: no surrogates, nothing overlong,
// nothing above U+10FFFF). s is not empty.
std::size_t utf8_length(std::string_view s);
// Characters of s; a byte that is no UTF-8 counts as one.
std::size_t character_count(std::string_view s);
// At most `count` characters of s, whole ones only.
std::string_view first_characters(std::string_view s, std::size_t count);

// s with a byte that is no UTF-8 as \xNN, and with a character that would steer a terminal or end a line as \uNNNN:
// control characters, line separators, and those that change the direction of writing.
std::string printable(std::string_view s);
// At most `most` characters of s in quotation marks, printable, with \" and \\: "name" or "nam"... (1000 characters).
std::string in_quotes(std::string_view s, std::size_t most = 48);

}  // namespace moe
