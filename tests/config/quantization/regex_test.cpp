// The matcher of "re:" patterns: the language, its limits, and linear time. See impl/config/quantization/regex.cpp.
// Expected answers are those of Python's re.match.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "base/text.h"
#include "config/config.h"
#include "config/quantization/foreign.h"
#include "support/rooms.h"

namespace moe::test::re_test {
namespace {

struct Case {
  std::string pattern, text;
  bool matches;
};

const std::vector<Case> kCases = {
    {"", "anything", true},
    {"", "", true},
    {"a", "", false},
    {"abc", "abcdef", true},
    {"abc", "xabc", false},
    {".*mlp.gate$", "model.layers.3.mlp.gate", true},
    {".*mlp.gate$", "model.layers.3.mlp.gate_proj", false},
    {".*experts.*", "model.layers.3.mlp.experts.0.gate_proj", true},
    {".*experts.*w[123]$", "model.layers.0.block_sparse_moe.experts.0.w3", true},
    {".*experts.*w[123]$", "model.layers.0.block_sparse_moe.experts.0.w4", false},
    {".*\\.3\\..*", "model.layers.3.mlp", true},
    {".*\\.3\\..*", "model.layers.30.mlp", false},
    {"model\\.layers\\.(?:0|1|2)\\.", "model.layers.2.mlp", true},
    {"model\\.layers\\.(?:0|1|2)\\.", "model.layers.12.mlp", false},
    {"(a|b|)c", "c", true},
    {"(a|b|)c", "bc", true},
    {"(a|b|)c", "dc", false},
    {"(ab)+$", "ababab", true},
    {"(ab)+$", "ababa", false},
    {"a{3}$", "aaa", true},
    {"a{3}$", "aaaa", false},
    {"a{2,}$", "a", false},
    {"a{2,}$", "aaaaa", true},
    {"a{1,3}$", "aaa", true},
    {"a{1,3}$", "aaaa", false},
    {"a{0,2}b", "b", true},
    {"a{,2}b$", "aab", true},
    {"a{0}b", "b", true},
    {"a{0}b", "ab", false},
    {"(ab){0,2}c", "ababc", true},
    {"(ab){0,2}c", "abababc", false},
    {"a{x}", "a{x}", true},
    {"a{}", "a{}", true},
    {"a*?b", "aaab", true},
    {"a+?b", "b", false},
    {"a??b", "ab", true},
    {"(a*)*b", "aaaab", true},
    {"(a|b*)*c", "abbac", true},
    {"()*a", "a", true},
    {"(){1000000}a", "a", true},
    {"^abc", "abc", true},
    {"a^b", "ab", false},
    {"(^|x)a", "a", true},
    {"abc$", "abc\n", true},
    {"abc$", "abc\n\n", false},
    {"abc$", "abcd", false},
    {"$", "", true},
    {"a.c", "a\nc", false},
    {"[^a]", "\n", true},
    {"[]a]+$", "]a]", true},
    {"[^]a]", "]", false},
    {"[a-c]+$", "abc", true},
    {"[a-c]", "d", false},
    {"[-a]", "-", true},
    {"[a-]", "-", true},
    {"[a\\-z]", "-", true},
    {"[a\\-z]", "m", false},
    {"[\\d_]+$", "12_3", true},
    {"[^\\d]", "5", false},
    {"[\\]]", "]", true},
    {"[.]", "x", false},
    {"[$^|(]+$", "^$(|", true},
    {"\\d+\\.\\d+$", "10.25", true},
    {"\\d", "x", false},
    {"\\D", "x", true},
    {"\\w+$", "aZ_09", true},
    {"\\w", "-", false},
    {"\\W", "-", true},
    {"\\s\\S", " x", true},
    {"\\s", "x", false},
    {"a\\*\\+\\?\\(\\)\\[\\]\\{\\}\\|\\^\\$\\\\", "a*+?()[]{}|^$\\", true},
    {"a\\tb", "a\tb", true},
    {"a-b_c", "a-b_c", true},
    {"\xC3\xA9.$", "\xC3\xA9\xE2\x82\xAC", true},  // e acute, then any one character (euro)
    {"[\xC3\xA0-\xC3\xAF]$", "\xC3\xA9", true},    // a range beyond ASCII
    {"[^\xC3\xA9]$", "\xC3\xA9", false},
    {"(((((a)))))", "a", true},
};

TEST(Re, AnswersAsPythonsMatch) {
  for (const Case& c : kCases) {
    const auto got = re_match(c.pattern, c.text);
    ASSERT_TRUE(got) << c.pattern << ": " << got.error().message;
    EXPECT_EQ(*got, c.matches) << "pattern " << c.pattern << " text " << c.text;
  }
}

// As re.match of (?:pattern)(?:(?<=\\.)|(?=\\.|$)).
TEST(Re, EndsWhereAModuleDoes) {
  const Case cases[] = {
      {"a", "a", true},      {"a", "a.b", true},      {"a", "ab", false},       {"a.", "a.b", true},
      {"a.*", "ab.c", true}, {"a$", "a.b", false},    {"a|ab", "ab.c", true},   {"", "a", false},
      {"", "", true},        {"a.b$", "a.b", true},   {"(a|a.b)c", "ac", true}, {"a\\.[bc]", "a.cd", false},
      {"a?", ".b", true},    {"x*?a", "xxa.b", true}, {"a", "b.a", false},      {".*b", "a.b.bc", true},
  };
  for (const Case& c : cases) {
    Work work(Matcher::kOfOne);
    const auto got = re_match(c.pattern, c.text, MatchEnd::module, work);
    ASSERT_TRUE(got) << c.pattern;
    EXPECT_EQ(*got, c.matches) << "pattern " << c.pattern << " text " << c.text;
  }
}

TEST(Re, RefusesWhatIsOutsideTheSubset) {
  for (const char* pattern : {"(?=a)", "(?!a)", "(?<=a)b", "(?<n>a)", "(?P<n>a)", "(?i)a", "(?#c)", "(a)\\1", "\\bword",
                              "a\\Z", "\\Aa", "\\x41", "\\u0041", "\\0", "[\\b]", "a++", "a*+", "a?+", "a{2}+"}) {
    const auto got = re_match(pattern, "a");
    ASSERT_FALSE(got) << pattern;
    EXPECT_EQ(got.error().code, Code::unsupported) << pattern;
    EXPECT_NE(got.error().message.find(in_quotes(pattern)), std::string::npos) << got.error().message;
  }
}

TEST(Re, RefusesMalformedPatterns) {
  for (const char* pattern :
       {"(", ")",   "(a",  "a)",   "(a|b", "[",     "[a",     "[]", "[z-a]", "[a-\\d]", "*",   "+a",
        "?", "{2}", "a|*", "(*a)", "a**",  "a*{2}", "a{3,2}", "^*", "$+",    "a\\",     "[a\\"}) {
    const auto got = re_match(pattern, "aaa");
    ASSERT_FALSE(got) << pattern;
    EXPECT_EQ(got.error().code, Code::invalid_config) << pattern;
  }
}

TEST(Re, LimitsLengthNestingAndRepetition) {
  EXPECT_TRUE(re_match(std::string(1024, 'a'), "b"));
  const auto refused = [](const std::string& pattern) {
    const auto got = re_match(pattern, "aaa");
    return !got && got.error().code == Code::unsupported;
  };
  EXPECT_TRUE(refused(std::string(1025, 'a')));
  EXPECT_TRUE(re_match(std::string(32, '(') + "a" + std::string(32, ')'), "a"));
  EXPECT_TRUE(refused(std::string(33, '(') + "a" + std::string(33, ')')));
  EXPECT_TRUE(refused(std::string(500, '(') + "a" + std::string(500, ')')));
  EXPECT_TRUE(refused(std::string(1000, '(')));
  EXPECT_TRUE(refused("a{4000}"));
  EXPECT_TRUE(refused("a{99999999999999999999999}"));
  EXPECT_TRUE(refused("((a{100}){100}){100}"));
  EXPECT_TRUE(re_match(std::string(20, '(') + "a" + std::string(20, ')'), "a"));
  EXPECT_TRUE(*re_match("a{2000}", std::string(2000, 'a')));
  EXPECT_FALSE(*re_match("a{2000}", std::string(1999, 'a')));
}

// Patterns that take exponential time by backtracking.
TEST(Re, HostilePatternsAreLinear) {
  const std::string text(600, 'a');
  const auto start = std::chrono::steady_clock::now();
  for (const char* pattern :
       {"(a*)*b", "(a|a)*b", "(a+)+$x", "((a?){30}){30}b", "(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)b", "([a-z]|\\w|.)*9"}) {
    const auto got = re_match(pattern, text);
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_FALSE(*got) << pattern;
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

// The names of a layer's experts at once: what each name by itself gives.
TEST(Re, NamesOfExperts) {
  const std::vector<std::string> projections = {"gate_proj", "up_proj", "w2"};
  for (const int experts : {1, 8, 10, 11, 234})
    for (const char* pattern :
         {".*", "m", "m$", "m\\.1", ".*\\.0\\.", ".*\\.1\\.", ".*\\.1", ".*\\.1\\d\\.up", ".*[0-9]*7\\.",
          ".*\\.\\d\\d\\.", "m.2[0-9]{2}.g", ".*\\.(1\\d|233)\\.gate_proj$", "m\\.\\d+\\.w2",
          "m\\.(.*)\\.(gate|up)_proj", "x", ".*3.*3", "^m.*2$", "(m\\.)?\\d{2,3}", "m\\.[^2]*$"})
      for (const bool module_too : {false, true}) {
        const LayerNames layer{"m", projections, experts};
        Work work(Matcher::kOfOne);
        const auto hits = re_match_experts(pattern, layer, {.module_too = module_too}, work);
        ASSERT_TRUE(hits) << pattern;
        EXPECT_GT(work.spent(), 0U);
        const bool whole = module_too && *re_match(pattern, layer.module);
        for (std::size_t i = 0; i < layer.count(); ++i)
          EXPECT_EQ(!hits->empty() && (*hits)[i], whole || *re_match(pattern, layer.name(i)))
              << pattern << " " << layer.name(i);
      }
}

// Steps over the names of many experts are those over the names of few.
TEST(Re, ManyExpertsCostNoMore) {
  const std::vector<std::string> projections = {"gate_proj", "up_proj", "down_proj"};
  for (const char* pattern :
       {".*layers\\.30\\..*", "model\\.layers\\.3\\.mlp\\.experts\\.7\\.up_proj", ".*experts\\.\\d+\\.x"}) {
    Work few(Matcher::kOfOne), many(Matcher::kOfOne);
    ASSERT_TRUE(re_match_experts(pattern, {"model.layers.3.mlp.experts", projections, 16}, {.module_too = true}, few));
    ASSERT_TRUE(
        re_match_experts(pattern, {"model.layers.3.mlp.experts", projections, 65536}, {.module_too = true}, many));
    EXPECT_LE(many.spent(), 2 * few.spent()) << pattern;
  }
}

}  // namespace
}  // namespace moe::test::re_test
