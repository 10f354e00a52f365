// Forward reader of JSON. See json_cursor.h.
#include "io/json_cursor.h"

#include <charconv>

#include "base/index.h"
#include "base/text.h"

namespace moe::io {
namespace {

constexpr int kMaxDepth = 32;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// ASCII in a string that stands for itself.
bool is_plain(char c) {
  const auto u = static_cast<unsigned char>(c);
  return u >= 0x20 && u < 0x80 && c != '"' && c != '\\';
}

void append_utf8(std::string& out, std::uint32_t c) {
  const auto put = [&](std::uint32_t b) { out += static_cast<char>(static_cast<unsigned char>(b)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xc0 | c >> 6), put(0x80 | (c & 63));
  } else if (c < 0x10000) {
    put(0xe0 | c >> 12), put(0x80 | (c >> 6 & 63)), put(0x80 | (c & 63));
  } else {
    put(0xf0 | c >> 18), put(0x80 | (c >> 12 & 63)), put(0x80 | (c >> 6 & 63)), put(0x80 | (c & 63));
  }
}

}  // namespace

void JsonCursor::fail(std::string_view what) {
  if (!ok()) return;
  fault_ = what;
  fault_ += " at byte ";
  fault_ += std::to_string(at_);
}

void JsonCursor::skip_blanks() {
  while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r'))
    ++at_;
}

void JsonCursor::expect(char c) {
  skip_blanks();
  if (!ok()) return;
  if (at_ < text_.size() && text_[at_] == c) {
    ++at_;
    return;
  }
  fail(cat("expected '", c, "'"));
}

bool JsonCursor::next(char close, bool& first) {
  skip_blanks();
  if (!ok()) return false;
  if (peek() == close) {
    ++at_;
    return false;
  }
  if (!first) expect(',');
  first = false;
  skip_blanks();
  return ok();
}

std::string JsonCursor::key() {
  std::string s = string();
  expect(':');
  return s;
}

std::uint32_t JsonCursor::hex4() {
  std::uint32_t v = 0;
  if (text_.size() - at_ < 4) {
    fail("incomplete \\u escape");
    return 0;
  }
  const auto [end, ec] = std::from_chars(text_.data() + at_, text_.data() + at_ + 4, v, 16);
  if (ec != std::errc() || end != text_.data() + at_ + 4) {
    fail("bad \\u escape");
    return 0;
  }
  at_ += 4;
  return v;
}

void JsonCursor::escape(std::string& out) {
  constexpr std::string_view kLetters = "\"\\/bfnrt", kValues = "\"\\/\b\f\n\r\t";
  const char c = peek();
  ++at_;
  if (const auto i = kLetters.find(c); i != std::string_view::npos) {
    out += kValues[i];
    return;
  }
  if (c != 'u') return fail("unknown escape");
  std::uint32_t v = hex4();
  if (v >= 0xdc00 && v < 0xe000) return fail("lone surrogate");
  if (v >= 0xd800 && v < 0xdc00) {
    if (text_.substr(at_, 2) != "\\u") return fail("lone surrogate");
    at_ += 2;
    const std::uint32_t low = hex4();
    if (low < 0xdc00 || low > 0xdfff) return fail("lone surrogate");
    v = 0x10000 + ((v - 0xd800) << 10) + (low - 0xdc00);
  }
  append_utf8(out, v);
}

bool JsonCursor::utf8(std::string& out) {
  const std::size_t n = utf8_length(text_.substr(at_));
  out += text_.substr(at_, n);
  at_ += n;
  return n != 0;
}

std::string JsonCursor::string() {
  std::string out;
  expect('"');
  while (ok()) {
    const std::size_t plain = at_;  // text that stands for itself, at once
    while (at_ < text_.size() && is_plain(text_[at_])) ++at_;
    out += text_.substr(plain, at_ - plain);
    if (at_ >= text_.size()) {
      fail("unterminated string");
      break;
    }
    const auto c = static_cast<unsigned char>(text_[at_]);
    if (c == '"') {
      ++at_;
      return out;
    }
    if (c == '\\') {
      ++at_;
      escape(out);
    } else if (c < 0x20) {
      fail("control character in a string");
    } else if (!utf8(out)) {
      fail("invalid UTF-8");
    }
  }
  return {};
}

std::int64_t JsonCursor::integer() {
  skip_blanks();
  if (!ok()) return 0;
  std::int64_t v = 0;
  const char* begin = text_.data() + at_;
  const auto [end, ec] = std::from_chars(begin, text_.data() + text_.size(), v);
  if (!is_digit(peek()) || ec != std::errc() || (peek() == '0' && end != begin + 1)) {
    fail("expected an integer of 0 or more");
    return 0;
  }
  at_ += usize(end - begin);
  if (peek() == '.' || peek() == 'e' || peek() == 'E') fail("expected an integer");
  return v;
}

void JsonCursor::number() {
  const auto digits = [&] {
    if (!is_digit(peek())) fail("expected a digit");
    while (is_digit(peek())) ++at_;
  };
  if (peek() == '-') ++at_;
  if (peek() == '0')
    ++at_;
  else
    digits();
  if (peek() == '.') ++at_, digits();
  if (peek() == 'e' || peek() == 'E') {
    ++at_;
    if (peek() == '+' || peek() == '-') ++at_;
    digits();
  }
}

void JsonCursor::skip_value(int depth) {
  skip_blanks();
  if (!ok()) return;
  const char c = peek();
  if (c == '{' || c == '[') {
    if (depth >= kMaxDepth) return fail("nested too deep");
    ++at_;
    const char close = c == '{' ? '}' : ']';
    for (bool first = true; next(close, first);) {
      if (c == '{') (void)key();
      skip_value(depth + 1);
    }
    return;
  }
  if (c == '"') {
    (void)string();
    return;
  }
  for (const std::string_view word : {std::string_view("true"), std::string_view("false"), std::string_view("null")})
    if (text_.substr(at_, word.size()) == word) {
      at_ += word.size();
      return;
    }
  if (c == '-' || is_digit(c)) return number();
  fail("expected a value");
}

void JsonCursor::end() {
  skip_blanks();
  if (ok() && at_ != text_.size()) fail("unexpected text");
}

}  // namespace moe::io
