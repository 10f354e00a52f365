// JSON text in and out: what is refused and where, what a tree keeps, how it is written. nlohmann's own
// parser (a DOM, in tests only) is the second opinion on what is JSON.
#include "base/json.h"
#include "support/rooms.h"

#include <gtest/gtest.h>

#include <clocale>
#include <cmath>
#include <ctime>
#include <limits>
#include <new>
#include <nlohmann/json.hpp>

namespace moe::test::json_test {
namespace {

using json::Value;

std::size_t offset_of(const Error& e) {
  const auto details = nlohmann::json::parse("{" + e.details + "}");
  return details.at("offset").get<std::size_t>();
}

// CPU time, so that a busy machine does not fail a limit.
double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

struct Bad {
  std::string text;
  std::size_t offset;
  std::string part;  // of the message
};

void expect_refused(const Bad& bad) {
  const auto r = json::parse(bad.text);
  ASSERT_FALSE(r) << bad.text.substr(0, 60);
  EXPECT_EQ(r.error().code, Code::invalid_config);
  EXPECT_EQ(r.error().subject, "");
  EXPECT_EQ(offset_of(r.error()), bad.offset) << bad.text.substr(0, 60) << " -> " << r.error().message;
  EXPECT_NE(r.error().message.find(bad.part), std::string::npos) << r.error().message;
}

TEST(Json, RefusesWithTheByteOfTheFault) {
  const std::vector<Bad> cases = {
      {"", 0, "empty"},
      {" ", 1, "ends"},
      {"{", 1, "ends"},
      {"{\"a\":1", 6, "ends"},
      {"\"abc", 4, "ends"},
      {"\xef\xbb\xbf{}", 0, "byte order mark"},
      {std::string("{}\0", 3), 2, "NUL"},
      {std::string("\"a\0b\"", 5), 2, "NUL"},
      {std::string("\0", 1), 0, "NUL"},
      {"{}x", 2, "x"},
      {"{} {}", 3, "{}"},
      {"[1,]", 3, "]"},
      {"{\"a\":1,}", 7, "}"},
      {"// no\n{}", 0, "/"},
      {"[1 /* no */]", 3, "/*"},
      {"NaN", 0, "NaN"},
      {"-Infinity", 1, "Inf"},
      {"01", 1, "1"},
      {"+1", 0, "+1"},
      {"[1e999]", 1, "1e999"},
      {"[-1e999]", 1, "-1e999"},
      {"'a'", 0, "'a'"},
      {"\"\\ud800\"", 7, "\""},
      {"\"\\udc00\"", 6, "0"},
      {"\"\\ud800\\u0041\"", 12, "1"},
      {"\"\\x\"", 2, "x"},
      {"\"a\tb\"", 2, "\\u0009"},
      {"\"\xff\"", 1, "\\xff"},
      {"\"\xc3\"", 2, "\""},
      {"\"\xe0\x80\x80\"", 2, "\\x80"},
      {"\"\xed\xa0\x80\"", 2, "\\xa0"},
      {"\"\xf4\x90\x80\x80\"", 2, "\\x90"},
      {"{\"a\":1,\"b\":{\"c\":1,\"c\":2}}", 18, "\"c\""},
      {"{\"a\\\"\":1, \"a\\\"\":2}", 10, "twice"},
      {"{\"\\u0061\":1,\"a\":2}", 12, "twice"},
  };
  for (const Bad& bad : cases) expect_refused(bad);
}

TEST(Json, AgreesWithTheLibraryOnPlainCases) {
  for (const char* text : {"{}",
                           "[]",
                           "null",
                           "true",
                           "false",
                           "0",
                           "-0",
                           "1.5e3",
                           "[[],{}]",
                           " \t\r\n[1]\n ",
                           "\"\\u00e9\\/\\ud83d\\ude00\"",
                           "{\"a\":[1,2.5,\"x\",null,true,{\"b\":{}}]}",
                           "\"\x7f\"",
                           "[1,2",
                           "{a:1}",
                           "tru",
                           "-",
                           "1.",
                           ".5",
                           "1e",
                           "[,]"}) {
    EXPECT_EQ(static_cast<bool>(json::parse(text)), nlohmann::json::accept(text)) << text;
  }
}

TEST(Json, Depth) {
  const auto nested = [](int n) {
    return std::string(static_cast<std::size_t>(n), '[') + std::string(static_cast<std::size_t>(n), ']');
  };
  EXPECT_TRUE(json::parse(nested(32)));
  expect_refused({nested(33), 32, "deeper"});
  EXPECT_TRUE(json::parse(nested(40), {.max_bytes = 100, .max_depth = 40}));
  // Objects and arrays count alike.
  std::string mixed;
  for (int i = 0; i < 17; ++i) mixed += "[{\"a\":";
  EXPECT_EQ(offset_of(json::parse(mixed + "1").error()), 16 * 6U);
}

constexpr double kQuadraticTakesMore = 20.0;  // seconds, on an emulated CPU too

TEST(Json, BombsEndEarly) {
  const std::string bomb(5'000'000, '['), open_keys = [] {
    std::string s;
    while (s.size() < 5'000'000) s += "{\"a\":";
    return s;
  }();
  for (const std::string* text : {&bomb, &open_keys}) {
    for (const std::size_t most : {std::size_t{1} << 20, std::size_t{1} << 30}) {
      const double start = cpu_seconds();
      EXPECT_FALSE(json::parse(*text, {.max_bytes = most, .max_depth = 32}));
      EXPECT_LT(cpu_seconds() - start, 0.05);
    }
  }
}

TEST(Json, Size) {
  std::string text = "[" + std::string((1 << 20) - 2, ' ') + "]";
  EXPECT_TRUE(json::parse(text));
  expect_refused({text + " ", std::size_t{1} << 20, "1048577 bytes"});
}

TEST(Json, ManyKeys) {
  constexpr int kKeys = 100'000;
  std::string text = "{";
  for (int i = 0; i < kKeys; ++i) text += (i ? ",\"" : "\"") + std::to_string(i) + "\":0";
  const std::string unique = text + "}";
  const double start = cpu_seconds();
  const auto r = json::parse(unique, {.max_bytes = 4 << 20, .max_depth = 32});
  ASSERT_TRUE(r);
  EXPECT_EQ(r->object()->size(), static_cast<std::size_t>(kKeys));
  const auto twice = json::parse(text + ",\"77777\":0}", {.max_bytes = 4 << 20, .max_depth = 32});
  ASSERT_FALSE(twice);
  EXPECT_EQ(offset_of(twice.error()), text.size() + 1);
  EXPECT_LT(cpu_seconds() - start, kQuadraticTakesMore);
}

TEST(Json, Numbers) {
  const auto r = json::parse(
      "[9223372036854775807,-9223372036854775808,9223372036854775808,18446744073709551616,8.0,1e2,-0,-0.0,"
      "4.9e-324,1e-400,1.7976931348623157e308,0.1]");
  ASSERT_TRUE(r);
  const json::Array& a = *r->array();
  EXPECT_EQ(*a[0].integer(), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(*a[1].integer(), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(*a[2].real(), 0x1p63);
  EXPECT_EQ(*a[3].real(), 0x1p64);
  EXPECT_EQ(*a[4].real(), 8.0);
  EXPECT_EQ(*a[5].real(), 100.0);
  EXPECT_EQ(*a[6].integer(), 0);
  EXPECT_TRUE(std::signbit(*a[7].real()));
  EXPECT_EQ(*a[8].real(), std::numeric_limits<double>::denorm_min());
  EXPECT_EQ(*a[9].real(), 0.0);
  EXPECT_EQ(*a[10].real(), std::numeric_limits<double>::max());
  EXPECT_EQ(*a[11].real(), 0.1);
  EXPECT_EQ(a[0].real(), nullptr);
  EXPECT_EQ(a[4].integer(), nullptr);
}

TEST(Json, LocaleHasNoSay) {
  const std::string before = std::setlocale(LC_ALL, nullptr);
  for (const char* name : {"de_DE.UTF-8", "fr_FR.UTF-8", "C.UTF-8"}) {
    if (std::setlocale(LC_ALL, name) == nullptr) continue;  // C.UTF-8 is always there
    const auto r = json::parse("[1.5,2.25e1]");
    EXPECT_TRUE(r);
    EXPECT_EQ(r ? json::write(*r) : "", "[1.5,22.5]");
  }
  std::setlocale(LC_ALL, before.c_str());
}

TEST(Json, WritesShortestNumbersThatReadBack) {
  const std::pair<double, const char*> cases[] = {
      {7.0, "7.0"},    {0.1, "0.1"},     {-0.0, "-0.0"},      {1e30, "1e+30"},      {2.5, "2.5"},
      {1e-7, "1e-07"}, {1.702, "1.702"}, {100000.0, "1e+05"}, {12345.0, "12345.0"}, {5e-324, "5e-324"}};
  for (const auto& [d, text] : cases) {
    EXPECT_EQ(json::write(Value(d)), text);
    const auto back = json::parse(text);
    ASSERT_TRUE(back);
    ASSERT_NE(back->real(), nullptr) << text;
    EXPECT_EQ(*back->real(), d);
  }
  EXPECT_EQ(json::write(Value(7)), "7");
  EXPECT_EQ(json::write(Value(std::numeric_limits<std::int64_t>::min())), "-9223372036854775808");
  EXPECT_EQ(json::write(Value(std::nan(""))), "null");
}

TEST(Json, WritesStrings) {
  EXPECT_EQ(json::quote("\"\\\b\f\n\r\t/\x7f"), "\"\\\"\\\\\\b\\f\\n\\r\\t/\x7f\"");
  EXPECT_EQ(json::quote(std::string_view("\0\x01\x1f", 3)), "\"\\u0000\\u0001\\u001f\"");
  EXPECT_EQ(json::quote("caf\xc3\xa9 \xf0\x9f\x98\x80"), "\"caf\xc3\xa9 \xf0\x9f\x98\x80\"");
  for (int c = 0; c < 128; ++c) {
    const std::string s(1, static_cast<char>(c));
    EXPECT_EQ(nlohmann::json::parse(json::quote(s)).get<std::string>(), s);
    const auto back = json::parse(json::quote(s));
    ASSERT_TRUE(back);
    EXPECT_EQ(*back->string(), s);
  }
}

// Names of files and texts of callbacks may be no UTF-8; what is written parses all the same.
TEST(Json, WritesForeignBytes) {
  EXPECT_EQ(json::quote("a\xff"), "\"a\\\\xff\"");
  EXPECT_EQ(json::quote("\xc3"), "\"\\\\xc3\"");
  for (int a = 0; a < 256; ++a)
    for (int b = 0; b < 256; ++b) {
      const std::string s = {'x', static_cast<char>(a), static_cast<char>(b), 'y'};
      const auto back = nlohmann::json::parse(json::quote(s)).get<std::string>();
      if (nlohmann::json::accept("\"" + std::string(1, static_cast<char>(a)) + static_cast<char>(b) + "\"")) {
        EXPECT_EQ(back, a == '\\' ? back : s);
      }
      ASSERT_TRUE(json::parse(json::quote(s))) << a << " " << b;
    }
}

TEST(Json, WritesObjectsInEitherOrder) {
  const auto r = json::parse("{\"b\":1,\"\xc3\xa9\":2,\"a\":{\"z\":[],\"B\":{}},\"aa\":null}");
  ASSERT_TRUE(r);
  EXPECT_EQ(json::write(*r), "{\"b\":1,\"\xc3\xa9\":2,\"a\":{\"z\":[],\"B\":{}},\"aa\":null}");
  EXPECT_EQ(json::write(*r, json::MemberOrder::sorted),
            "{\"a\":{\"B\":{},\"z\":[]},\"aa\":null,\"b\":1,\"\xc3\xa9\":2}");
}

TEST(JsonWriter, PutsCommas) {
  json::Writer w;
  w.begin_object().member("a", 1).key("b").begin_array().end_array();
  w.key("c").begin_array().value("x").begin_object().end_object().begin_array().value(2).null().end_array().end_array();
  w.key("d").begin_object().member("e", true).end_object().member("f", false).end_object();
  EXPECT_EQ(w.take(), R"({"a":1,"b":[],"c":["x",{},[2,null]],"d":{"e":true},"f":false})");
}

TEST(JsonWriter, Values) {
  constexpr auto kMost = std::numeric_limits<std::uint64_t>::max();
  json::Writer w;
  w.begin_array().value(kMost).value(std::int8_t{-5}).value(2.0).value(std::nan("")).value(std::string("s\n"));
  w.value(std::string_view("v")).value(Value(json::Object{{"k", Value()}})).value(json::Text{"[1, 2]"});
  w.value(std::optional<int>()).value(std::optional<std::string_view>("o")).array(std::vector<int>{1, 2});
  w.array(std::optional<std::vector<int>>()).end_array();
  EXPECT_EQ(w.take(), R"([18446744073709551615,-5,2.0,null,"s\n","v",{"k":null},[1, 2],null,"o",[1,2],null])");
}

TEST(JsonWriter, MembersWithoutAnObject) {
  EXPECT_EQ(json::members("needed", 42), "\"needed\":42");
  EXPECT_EQ(json::members("a\"", "x", "b", json::Text{"{}"}, "c", 1.5), R"("a\"":"x","b":{},"c":1.5)");
  json::Writer w;
  w.begin_object().members({}).members({json::members("a", 1)}).members({}).member("b", 2).end_object();
  EXPECT_EQ(w.take(), R"({"a":1,"b":2})");
}

TEST(JsonWriter, AgreesWithWrite) {
  const auto r = json::parse(R"([{"a":[],"b":{}},[null,true,-1,0.5,"\u0001"],[[]]])");
  ASSERT_TRUE(r);
  json::Writer w;
  w.begin_object().key("v").array(*r->array()).end_object();
  EXPECT_EQ(w.take(), "{\"v\":" + json::write(*r) + "}");
}

TEST(Json, FindAndSet) {
  Value v;
  v.set("a", 1);
  v.set("b", "x").set("inner", true);
  v.set("a", 2);
  EXPECT_EQ(json::write(v), "{\"a\":2,\"b\":{\"inner\":true}}");
  EXPECT_EQ(v.find("c"), nullptr);
  EXPECT_EQ(Value(3).find("c"), nullptr);
}

TEST(Json, Pointers) {
  const auto r = json::parse(R"({"a":[10,{"b/c":1,"d~e":2,"":3}],"":4,"01":5})");
  ASSERT_TRUE(r);
  const std::pair<const char*, const char*> cases[] = {{"/a/0", "10"}, {"/a/1/b~1c", "1"}, {"/a/1/d~0e", "2"},
                                                       {"/a/1/", "3"}, {"/", "4"},         {"/01", "5"}};
  for (const auto& [pointer, text] : cases) {
    const Value* v = json::at_pointer(*r, pointer);
    ASSERT_NE(v, nullptr) << pointer;
    EXPECT_EQ(json::write(*v), text);
  }
  EXPECT_EQ(json::at_pointer(*r, ""), &*r);
  for (const char* nowhere : {"a", "/b", "/a/2", "/a/00", "/a/-", "/a/+1", "/a/-1", "/a/ 1", "/a/18446744073709551616",
                              "/a/1/d~2e", "/a/1/d~", "/a/0/x", "/a/"}) {
    EXPECT_EQ(json::at_pointer(*r, nowhere), nullptr) << nowhere;
  }
  EXPECT_EQ(json::escape_pointer("a/b~c~1"), "a~1b~0c~01");
}

// The examples of RFC 7396, appendix A.
TEST(Json, MergePatch) {
  const char* cases[][3] = {{R"({"a":"b"})", R"({"a":"c"})", R"({"a":"c"})"},
                            {R"({"a":"b"})", R"({"b":"c"})", R"({"a":"b","b":"c"})"},
                            {R"({"a":"b"})", R"({"a":null})", R"({})"},
                            {R"({"a":"b","b":"c"})", R"({"a":null})", R"({"b":"c"})"},
                            {R"({"a":["b"]})", R"({"a":"c"})", R"({"a":"c"})"},
                            {R"({"a":"c"})", R"({"a":["b"]})", R"({"a":["b"]})"},
                            {R"({"a":{"b":"c"}})", R"({"a":{"b":"d","c":null}})", R"({"a":{"b":"d"}})"},
                            {R"({"a":[{"b":"c"}]})", R"({"a":[1]})", R"({"a":[1]})"},
                            {R"(["a","b"])", R"(["c","d"])", R"(["c","d"])"},
                            {R"({"a":"b"})", R"(["c"])", R"(["c"])"},
                            {R"({"a":"foo"})", R"(null)", R"(null)"},
                            {R"({"a":"foo"})", R"("bar")", R"("bar")"},
                            {R"({"e":null})", R"({"a":1})", R"({"e":null,"a":1})"},
                            {R"([1,2])", R"({"a":"b","c":null})", R"({"a":"b"})"},
                            {R"({})", R"({"a":{"bb":{"ccc":null}}})", R"({"a":{"bb":{}}})"}};
  for (const auto& c : cases) {
    auto target = json::parse(c[0]);
    const auto patch = json::parse(c[1]);
    ASSERT_TRUE(target && patch);
    json::merge_patch(*target, *patch);
    EXPECT_EQ(json::write(*target), c[2]) << c[0] << " + " << c[1];
  }
}

TEST(Json, MergesLargeObjectsQuickly) {
  const auto key = [](int i) { return std::string("k").append(std::to_string(i)); };
  Value target, patch;
  json::Object a, b;
  for (int i = 0; i < 50'000; ++i) {
    a.emplace_back(key(i), Value(i));
    b.emplace_back(key(2 * i), i % 3 == 0 ? Value() : Value(-i));
  }
  target = Value(std::move(a));
  patch = Value(std::move(b));
  const double start = cpu_seconds();
  json::merge_patch(target, patch);
  EXPECT_LT(cpu_seconds() - start, kQuadraticTakesMore);
  EXPECT_EQ(target.find("k0"), nullptr);
  EXPECT_EQ(*target.find("k2")->integer(), -1);
  EXPECT_EQ(*target.find("k3")->integer(), 3);
  EXPECT_EQ(*target.find("k99998")->integer(), -49'999);
}

}  // namespace
}  // namespace moe::test::json_test
