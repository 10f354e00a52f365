// Foreign text in messages: always valid UTF-8 on one line, cut between characters only, and told without ambiguity.
#include "base/text.h"
#include "support/rooms.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace moe::test::text_test {
namespace {

using nlohmann::json;

// By nlohmann's decoder, which knows nothing of ours.
bool is_utf8(const std::string& s) {
  try {
    return !json(s).dump().empty();
  } catch (const json::type_error&) {
    return false;
  }
}

// In valid UTF-8: C0, DEL, C1, U+061C, U+200E, U+200F, U+2028 to U+202E, U+2066 to U+2069.
bool steers(const std::string& s) {
  for (std::size_t i = 0; i < s.size(); ++i) {
    const auto at = [&](std::size_t k) { return i + k < s.size() ? static_cast<unsigned char>(s[i + k]) : 0u; };
    if (at(0) < 0x20 || at(0) == 0x7f || (at(0) == 0xc2 && at(1) < 0xa0)) return true;
    if (at(0) == 0xd8 && at(1) == 0x9c) return true;
    if (at(0) == 0xe2 && at(1) == 0x80 && (at(2) == 0x8e || at(2) == 0x8f)) return true;
    if (at(0) == 0xe2 && at(1) == 0x80 && at(2) >= 0xa8 && at(2) <= 0xae) return true;
    if (at(0) == 0xe2 && at(1) == 0x81 && at(2) >= 0xa6 && at(2) <= 0xa9) return true;
  }
  return false;
}

// The bytes that in_quotes() was given.
std::string unquoted(const std::string& q) {
  std::string out;
  for (std::size_t i = 1; i + 1 < q.size(); ++i) {
    if (q[i] != '\\') {
      out += q[i];
    } else if (const char kind = q.at(++i); kind == 'x') {
      out += static_cast<char>(std::stoi(q.substr(i + 1, 2), nullptr, 16));
      i += 2;
    } else if (kind == 'u') {
      out += json::parse("\"\\u" + q.substr(i + 1, 4) + "\"").get<std::string>();
      i += 4;
    } else {
      EXPECT_TRUE(kind == '"' || kind == '\\');
      out += kind;
    }
  }
  return out;
}

// Bytes and whole characters of all lengths, mixed; many that must be escaped.
std::string random_text(std::mt19937& random) {
  static const std::vector<std::string> pieces = {"a",
                                                  "\xc3\xa9",
                                                  "\xe2\x82\xac",
                                                  "\xf0\x9f\x98\x80",
                                                  std::string(1, '\0'),
                                                  "\n",
                                                  "\x1b[2J",
                                                  "\x7f",
                                                  "\xc2\x85",
                                                  "\xe2\x80\xae",
                                                  "\xe2\x81\xa6",
                                                  "\\",
                                                  "\"",
                                                  "\\x41",
                                                  "\\u0041",
                                                  "\xff",
                                                  "\xc3",
                                                  "\xe2\x82",
                                                  "\xf0\x9f",
                                                  "\x80",
                                                  "\xed\xa0\x80",
                                                  "\xc0\x80",
                                                  "\xf4\x90\x80\x80",
                                                  "\xef\xbf\xbd",
                                                  "\xef\xbb\xbf"};
  std::string s;
  for (std::size_t n = random() % 40; n > 0; --n)
    s += random() % 4 == 0 ? std::string(1, static_cast<char>(random() % 256)) : pieces[random() % pieces.size()];
  return s;
}

TEST(Text, Sequences) {
  struct Case {
    std::string bytes;
    std::size_t length;
  };
  for (const Case& c : {Case{"a", 1}, Case{std::string(1, '\0'), 1}, Case{"\xc3\xa9z", 2}, Case{"\xe2\x82\xacz", 3},
                        Case{"\xf0\x9f\x98\x80z", 4}, Case{"\x80", 0}, Case{"\xc3", 0}, Case{"\xc1\xbf", 0},
                        Case{"\xe0\x9f\xbf", 0}, Case{"\xed\xa0\x80", 0}, Case{"\xee\x80\x80", 3}, Case{"\xe2\x82", 0},
                        Case{"\xe2\x82z", 0}, Case{"\xf0\x8f\xbf\xbf", 0}, Case{"\xf4\x8f\xbf\xbf", 4},
                        Case{"\xf4\x90\x80\x80", 0}, Case{"\xf5\x80\x80\x80", 0}})
    EXPECT_EQ(utf8_length(c.bytes), c.length) << json(c.bytes).dump(-1, ' ', true, json::error_handler_t::replace);
}

TEST(Text, PrintableWritesWhatMustBeEscaped) {
  EXPECT_EQ(printable("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80"),
            "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80");
  EXPECT_EQ(printable(std::string("a\0b", 3)), "a\\u0000b");
  EXPECT_EQ(printable("\x1b[2J\n\x7f"), "\\u001b[2J\\u000a\\u007f");
  EXPECT_EQ(printable("\xc2\x85\xe2\x80\xa8\xe2\x80\xae\xe2\x81\xa6"), "\\u0085\\u2028\\u202e\\u2066");
  EXPECT_EQ(printable("no\xff\xfe"), "no\\xff\\xfe");
  EXPECT_EQ(printable("a\xe2\x82"), "a\\xe2\\x82");
  EXPECT_EQ(printable("C:\\x"), "C:\\x");
}

TEST(Text, QuotesAreCutBetweenCharacters) {
  EXPECT_EQ(in_quotes("name"), "\"name\"");
  EXPECT_EQ(in_quotes("a\"\\\n"), "\"a\\\"\\\\\\u000a\"");
  EXPECT_EQ(in_quotes("\xc3\xa9\xc3\xa9\xc3\xa9", 2), "\"\xc3\xa9\xc3\xa9\"... (3 characters)");
  for (const std::string character : {"a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"})
    for (std::size_t before = 0; before < 60; ++before) {
      std::string s(before, 'x');
      for (int i = 0; i < 60; ++i) s += character;
      const std::string q = in_quotes(s);
      EXPECT_TRUE(is_utf8(q)) << before;
      EXPECT_TRUE(q.ends_with("\"... (" + std::to_string(before + 60) + " characters)")) << q;
      EXPECT_EQ(in_quotes(s, before + 60), "\"" + s + "\"");
    }
}

TEST(Text, CatJoinsTextCharactersAndIntegers) {
  const std::string owned = "owned";
  const std::string_view none;
  EXPECT_EQ(cat(owned, ' ', std::string_view("seen"), none, " literal ", 'c', std::string("temporary")),
            "owned seen literal ctemporary");
  EXPECT_EQ(cat("group ", 7, " is outside [", std::int64_t{-3}, ", ", std::size_t{5}, ")"),
            "group 7 is outside [-3, 5)");
  EXPECT_EQ(cat(), "");
  EXPECT_EQ(cat(std::string_view("\0x", 2), 0), std::string("\0x0", 3));
}

TEST(Text, CatWritesIntegersAsTheStandardDoes) {
  constexpr auto kLow = std::numeric_limits<std::int64_t>::min();
  constexpr auto kHigh = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(cat(kLow, " ", kHigh), std::to_string(kLow) + " " + std::to_string(kHigh));
  EXPECT_EQ(cat(std::int8_t{-128}, std::uint8_t{65}), "-12865");  // bytes are numbers, only char is a character
  for (const int i : {-1000, -10, -1, 0, 1, 9, 10, 99, 12345}) EXPECT_EQ(cat(i), std::to_string(i));
}

TEST(TextProperty, AnyBytesBecomeOneLineOfUtf8) {
  std::mt19937 random(26);
  for (int i = 0; i < 20000; ++i) {
    const std::string s = random_text(random), p = printable(s);
    ASSERT_TRUE(is_utf8(p)) << p;
    ASSERT_FALSE(steers(p)) << p;
    ASSERT_EQ(printable(p), p);
    if (is_utf8(s) && !steers(s)) {
      ASSERT_EQ(p, s);
    }
  }
}

TEST(TextProperty, QuotesTellTheBytes) {
  std::mt19937 random(27);
  for (int i = 0; i < 20000; ++i) {
    const std::string s = random_text(random), q = in_quotes(s, 1000);
    ASSERT_TRUE(is_utf8(q) && !steers(q)) << q;
    ASSERT_EQ(unquoted(q), s) << q;
  }
}

TEST(TextProperty, FirstCharactersAreWhole) {
  std::mt19937 random(28);
  for (int i = 0; i < 2000; ++i) {
    const std::string s = random_text(random);
    for (std::size_t n = 0; n <= s.size(); ++n) {
      const std::string head(first_characters(s, n));
      ASSERT_EQ(character_count(head), std::min(n, character_count(s)));
      if (is_utf8(s)) {
        ASSERT_TRUE(is_utf8(head) && is_utf8(s.substr(head.size())));
      }
    }
  }
}

}  // namespace
}  // namespace moe::test::text_test
