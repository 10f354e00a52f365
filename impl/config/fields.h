// Typed members of a JSON object. Every fault is Code::invalid_config with the pointer of the member,
// and says what was found and what was expected.
//
// Members checks the object's type and refuses unknown keys when it is opened; after that each getter
// checks one member. An absent member is not a fault: getters give nullopt or the fallback. A null is
// never "absent" here; callers that allow it look at get() first.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace moe::config::fields {

struct IntegerRange {
  std::int64_t low, high;
};
struct Bound {  // of a RealRange
  static constexpr bool from = false, above = true;
};
struct RealRange {
  double low, high;
  bool open_low = false;  // low itself is outside
};
using Words = std::span<const std::string_view>;

// "<pointer>: <message>"
Error fault(std::string pointer, const std::string& message);
// "<pointer>: found <value>, expected <expected>"
Error unexpected(std::string pointer, const json::Value& found, const std::string& expected);
// "<pointer>: missing, expected <expected>"
Error missing(std::string pointer, const std::string& expected);

// "an integer in [low, high]"
std::string range_text(IntegerRange range);
// Pointer of a member.
std::string child(std::string_view pointer, std::string_view key);
// A value in a message: short values as JSON, large ones by their kind and size.
std::string brief(const json::Value& value);
// "a, b or c"
std::string join(Words words);
// Integers and integral reals that fit int64; never booleans.
std::optional<std::int64_t> as_integer(const json::Value& value);
std::optional<double> as_number(const json::Value& value);
// A value that must be of a type, of our own documents and of foreign ones; `pointer` is what to blame.
Result<std::int64_t> integer_value(const json::Value& value, const std::string& pointer, IntegerRange range);
Result<bool> boolean_value(const json::Value& value, const std::string& pointer);
std::optional<std::size_t> index_of(Words words, std::string_view word);
std::string lower_ascii(std::string_view s);

class Members {
 public:
  // `object` nullptr: an absent object, in which every member is absent.
  static Result<Members> open(const json::Value* object, std::string pointer, Words known);

  const json::Value* get(std::string_view key) const { return object_ == nullptr ? nullptr : object_->find(key); }
  bool has(std::string_view key) const { return get(key) != nullptr; }
  std::string at(std::string_view key) const { return child(pointer_, key); }

  Result<std::optional<std::int64_t>> integer(std::string_view key, IntegerRange range) const;
  Result<std::int64_t> integer(std::string_view key, IntegerRange range, std::int64_t fallback) const;
  Result<std::optional<double>> number(std::string_view key, RealRange range) const;
  Result<double> number(std::string_view key, RealRange range, double fallback) const;
  Result<std::optional<bool>> boolean(std::string_view key) const;
  Result<bool> boolean(std::string_view key, bool fallback) const;
  Result<std::optional<std::string>> text(std::string_view key, std::size_t max_characters) const;
  Result<std::string> text(std::string_view key, std::size_t max_characters, std::string fallback) const;
  // Place of the word in the list.
  Result<std::optional<std::size_t>> word(std::string_view key, Words words) const;
  // For lists in the order of an enum.
  template <class E>
  Result<E> word(std::string_view key, Words words, E fallback) const {
    MOE_TRY(const std::optional<std::size_t> i, word(key, words));
    return i ? static_cast<E>(*i) : fallback;
  }

 private:
  Members(const json::Value* object, std::string pointer) : object_(object), pointer_(std::move(pointer)) {}

  const json::Value* object_;
  std::string pointer_;
};

}  // namespace moe::config::fields
