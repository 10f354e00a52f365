// Messages, and foreign text made fit for them. See text.h.
#include "base/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>

#include "base/index.h"

namespace moe {
namespace {

struct CharacterRange {
  std::uint32_t first, last;
};
constexpr std::array<CharacterRange, 6> kSteering = {{
    {0x00, 0x1f},    // C0
    {0x7f, 0x9f},    // DEL and C1
    {0x61c, 0x61c},  // marks of the direction, here and in the next row
    {0x200e, 0x200f},
    {0x2028, 0x202e},  // line and paragraph separators, embeddings and overrides of the direction
    {0x2066, 0x2069},  // isolates
}};

bool is_steering(std::uint32_t c) {
  return std::any_of(kSteering.begin(), kSteering.end(), [c](CharacterRange r) { return r.first <= c && c <= r.last; });
}

// The character of a sequence of utf8_length().
std::uint32_t decode(std::string_view sequence) {
  const auto lead = static_cast<unsigned char>(sequence[0]);
  std::uint32_t c = sequence.size() == 1 ? lead : lead & (0x7fu >> sequence.size());
  for (const char tail : sequence.substr(1)) c = c << 6 | (static_cast<unsigned char>(tail) & 0x3fu);
  return c;
}

// `prefix` and the number in `digits` hexadecimal digits: \x1b
void append_hex(std::string& out, std::string_view prefix, std::uint32_t number, int digits) {
  out += prefix;
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += "0123456789abcdef"[number >> shift & 15];
}

// The characters of `marked` get a backslash before them.
void append_printable(std::string& out, std::string_view s, std::string_view marked) {
  while (!s.empty()) {
    const std::size_t n = utf8_length(s);
    const std::string_view sequence = s.substr(0, std::max<std::size_t>(n, 1));
    if (n == 0) {
      append_hex(out, "\\x", static_cast<unsigned char>(s[0]), 2);
    } else if (const std::uint32_t c = decode(sequence); is_steering(c)) {
      append_hex(out, "\\u", c, 4);
    } else {
      if (marked.find(s[0]) != std::string_view::npos) out += '\\';
      out += sequence;
    }
    s.remove_prefix(sequence.size());
  }
}

}  // namespace

std::string_view Piece::in(char (&buffer)[24]) const {
  char* const end = buffer + sizeof buffer;
  switch (kind_) {
    case Kind::text:
      return {text_, usize(number_)};
    case Kind::integer:
      return {buffer, std::to_chars(buffer, end, static_cast<std::int64_t>(number_)).ptr};
    case Kind::natural:
      return {buffer, std::to_chars(buffer, end, number_).ptr};
  }
  return {};
}

std::string cat(std::initializer_list<Piece> pieces) {
  char buffer[24];
  std::size_t size = 0;
  for (const Piece& p : pieces) size += p.in(buffer).size();
  std::string out;
  out.reserve(size);
  for (const Piece& p : pieces) out += p.in(buffer);
  return out;
}

std::size_t utf8_length(std::string_view s) {
  const auto byte = [&s](std::size_t i) { return i < s.size() ? static_cast<unsigned char>(s[i]) : 0u; };
  const unsigned a = byte(0), b = byte(1);
  if (a < 0x80) return 1;
  const auto tail = [&byte](std::size_t i) { return (byte(i) & 0xc0u) == 0x80u; };
  if (a >= 0xc2 && a <= 0xdf) return tail(1) ? 2 : 0;
  if (a >= 0xe0 && a <= 0xef) {
    const bool range = (a != 0xe0 || b >= 0xa0) && (a != 0xed || b < 0xa0);
    return range && tail(1) && tail(2) ? 3 : 0;
  }
  if (a >= 0xf0 && a <= 0xf4) {
    const bool range = (a != 0xf0 || b >= 0x90) && (a != 0xf4 || b < 0x90);
    return range && tail(1) && tail(2) && tail(3) ? 4 : 0;
  }
  return 0;
}

std::size_t character_count(std::string_view s) {
  std::size_t count = 0;
  for (; !s.empty(); ++count) s.remove_prefix(std::max<std::size_t>(utf8_length(s), 1));
  return count;
}

std::string_view first_characters(std::string_view s, std::size_t count) {
  std::size_t end = 0;
  for (; count > 0 && end < s.size(); --count) end += std::max<std::size_t>(utf8_length(s.substr(end)), 1);
  return s.substr(0, end);
}

std::string printable(std::string_view s) {
  std::string out;
  out.reserve(s.size());
  append_printable(out, s, {});
  return out;
}

std::string in_quotes(std::string_view s, std::size_t most) {
  const std::string_view head = first_characters(s, most);
  std::string out = "\"";
  append_printable(out, head, "\"\\");
  out += '"';
  if (head.size() != s.size()) out += cat("... (", character_count(s), " characters)");
  return out;
}

}  // namespace moe
