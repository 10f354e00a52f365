// JSON in and out. The implementation is the only file that sees nlohmann-json, and only its SAX
// interface (its DOM wraps integers silently and can terminate when memory is short).
//
// parse() is strict: RFC 8259, UTF-8 without BOM, no duplicate keys, no NaN/Infinity (unless asked), no number
// beyond double range, no NUL, limits on bytes and depth. The tree is read by the config and oracle
// rooms and never travels further down.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "base/text.h"

namespace moe::json {

class Value;
using Array = std::vector<Value>;
using Member = std::pair<std::string, Value>;
using Object = std::vector<Member>;  // in the order of the text; keys are distinct

class Value {
 public:
  Value() = default;                                  // null
  Value(bool b) : v_(b) {}                            // NOLINT(google-explicit-constructor)
  Value(int i) : v_(static_cast<std::int64_t>(i)) {}  // NOLINT(google-explicit-constructor)
  Value(std::int64_t i) : v_(i) {}                    // NOLINT(google-explicit-constructor)
  Value(double d) : v_(d) {}                          // NOLINT(google-explicit-constructor)
  Value(std::string s) : v_(std::move(s)) {}          // NOLINT(google-explicit-constructor)
  Value(std::string_view s) : v_(std::string(s)) {}   // NOLINT(google-explicit-constructor)
  Value(const char* s) : v_(std::string(s)) {}        // NOLINT(google-explicit-constructor)
  Value(Array a) : v_(std::move(a)) {}                // NOLINT(google-explicit-constructor)
  Value(Object o) : v_(std::move(o)) {}               // NOLINT(google-explicit-constructor)

  bool is_null() const { return v_.index() == 0; }
  const bool* boolean() const { return std::get_if<bool>(&v_); }
  const std::int64_t* integer() const { return std::get_if<std::int64_t>(&v_); }
  const double* real() const { return std::get_if<double>(&v_); }  // written with fraction or exponent, or beyond int64
  const std::string* string() const { return std::get_if<std::string>(&v_); }
  const Array* array() const { return std::get_if<Array>(&v_); }
  Array* array() { return std::get_if<Array>(&v_); }
  const Object* object() const { return std::get_if<Object>(&v_); }
  Object* object() { return std::get_if<Object>(&v_); }

  // Member of an object; nullptr when absent or when this is no object.
  const Value* find(std::string_view key) const;
  Value* find(std::string_view key);
  // Sets or replaces a member; makes this an object if it is null.
  Value& set(std::string key, Value value);

  friend bool operator==(const Value&, const Value&) = default;

 private:
  // Not trivially copyable on purpose: libstdc++ takes a variant of trivial types, strings and vectors
  // for one that can never be empty, and after a copy that threw std::bad_alloc destroys what is not there.
  struct Null {
    Null() = default;
    Null(const Null&) noexcept {}
    Null& operator=(const Null&) noexcept { return *this; }
    friend bool operator==(const Null&, const Null&) = default;
  };
  std::variant<Null, bool, std::int64_t, double, std::string, Array, Object> v_;
};

struct Limits {
  std::size_t max_bytes = std::size_t{1} << 20;
  int max_depth = 32;
  bool python = false;  // NaN, Infinity and -Infinity may stand where a value does: empty texts, which no reader takes
                        // for numbers
};

// Fails with Code::invalid_config, subject "", details "\"offset\":N" (byte of the fault).
Result<Value> parse(std::string_view text, const Limits& limits = {});

// `sorted`: members in byte order of their keys (the canonical form).
enum class MemberOrder { as_is, sorted };
// What is JSON already.
struct Text {
  std::string_view json;
};

// Writes JSON from front to back: one line without blanks, commas where they belong. Members outside of any object make
// what Error::details holds.
//
// A string has seven short escapes, and \u00xx for other control characters. A byte that is no UTF-8 is written as the
// text \xNN (as in base/text.h), so that what is written always parses. Doubles have the shortest form that reads back,
// always with a fraction or exponent.
class Writer {
 public:
  Writer& begin_object() { return begin('{'); }
  Writer& end_object() { return end('}'); }
  Writer& begin_array() { return begin('['); }
  Writer& end_array() { return end(']'); }
  Writer& key(std::string_view name);

  Writer& null() { return value(Text{"null"}); }
  Writer& value(bool b) { return value(Text{b ? "true" : "false"}); }
  Writer& value(double d);
  Writer& value(std::string_view s);
  Writer& value(const std::string& s) { return value(std::string_view(s)); }
  Writer& value(const char* s) { return value(std::string_view(s)); }
  Writer& value(const Value& v, MemberOrder order = MemberOrder::as_is);
  Writer& value(Text t);
  template <Integer I>
  Writer& value(I i) {
    return integer(Piece(i));
  }
  template <class T>
  Writer& value(const std::optional<T>& v) {
    return v ? value(*v) : null();
  }
  template <class Range>
  Writer& array(const Range& elements) {
    begin_array();
    for (const auto& element : elements) value(element);
    return end_array();
  }
  template <class Range>
  Writer& array(const std::optional<Range>& elements) {
    return elements ? array(*elements) : null();
  }
  template <class T>
  Writer& member(std::string_view name, const T& v) {
    return key(name).value(v);
  }

  // Members that are JSON already, without their object; "" is none.
  Writer& members(Text t) { return t.json.empty() ? *this : value(t); }

  std::string take() { return std::move(out_); }

 private:
  Writer& begin(char bracket);
  Writer& end(char bracket);
  Writer& integer(Piece digits);
  void comma();

  std::string out_;
  bool first_ = true;  // nothing before what comes next asks for a comma
};

std::string write(const Value& value, MemberOrder order = MemberOrder::as_is);
// A string as a JSON literal with quotes.
inline std::string quote(std::string_view s) { return Writer().value(s).take(); }
// For Error::details: members("needed", 42, "errno", 2).
template <class T, class... More>
std::string members(std::string_view name, const T& value, const More&... more) {
  Writer w;
  w.member(name, value);
  if constexpr (sizeof...(more) != 0) w.members(Text{members(more...)});
  return w.take();
}
// One token of a JSON pointer: "~" -> "~0", "/" -> "~1".
std::string escape_pointer(std::string_view key);
// Follows an RFC 6901 pointer; nullptr when it leads nowhere.
const Value* at_pointer(const Value& root, std::string_view pointer);
// RFC 7396.
void merge_patch(Value& target, const Value& patch);

}  // namespace moe::json
