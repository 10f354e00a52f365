// Typed members of a JSON object; see fields.h.
#include "config/fields.h"

#include <algorithm>
#include <cmath>

#include "base/index.h"
#include "base/nearest.h"
#include "base/text.h"

namespace moe::config::fields {
namespace {

std::string real_text(double d) { return json::write(json::Value(d)); }

}  // namespace

std::string range_text(IntegerRange r) {
  if (r.low == r.high) return cat("the integer ", r.low);
  return cat("an integer in [", r.low, ", ", r.high, "]");
}

Error fault(std::string pointer, const std::string& message) {
  std::string text = cat(pointer.empty() ? "the document" : std::string_view(pointer), ": ", message);
  return fail(Code::invalid_config, std::move(pointer), std::move(text));
}

Error unexpected(std::string pointer, const json::Value& found, const std::string& expected) {
  return fault(std::move(pointer), cat("found ", brief(found), ", expected ", expected));
}

Error missing(std::string pointer, const std::string& expected) {
  return fault(std::move(pointer), "missing, expected " + expected);
}

std::string child(std::string_view pointer, std::string_view key) {
  std::string out(pointer);
  out += '/';
  return out += json::escape_pointer(key);
}

std::string brief(const json::Value& value) {
  if (const json::Array* a = value.array()) return cat("an array of ", a->size(), " elements");
  if (const json::Object* o = value.object()) return cat("an object of ", o->size(), " members");
  if (const std::string* s = value.string()) return in_quotes(*s);
  return json::write(value);
}

std::string join(Words words) {
  std::string out;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i != 0) out += i + 1 == words.size() ? " or " : ", ";
    out += words[i];
  }
  return out;
}

std::optional<std::int64_t> as_integer(const json::Value& value) {
  if (const std::int64_t* i = value.integer()) return *i;
  const double* d = value.real();
  if (d == nullptr || std::trunc(*d) != *d || !(*d >= -0x1p63 && *d < 0x1p63)) return std::nullopt;
  return static_cast<std::int64_t>(*d);
}

std::optional<double> as_number(const json::Value& value) {
  if (const std::int64_t* i = value.integer()) return static_cast<double>(*i);
  if (const double* d = value.real()) return *d;
  return std::nullopt;
}

Result<std::int64_t> integer_value(const json::Value& value, const std::string& pointer, IntegerRange range) {
  const std::optional<std::int64_t> i = as_integer(value);
  if (!i || *i < range.low || *i > range.high) return unexpected(pointer, value, range_text(range));
  return *i;
}

Result<bool> boolean_value(const json::Value& value, const std::string& pointer) {
  if (value.boolean() == nullptr) return unexpected(pointer, value, "true or false");
  return *value.boolean();
}

std::optional<std::size_t> index_of(Words words, std::string_view word) {
  const auto it = std::find(words.begin(), words.end(), word);
  if (it == words.end()) return std::nullopt;
  return usize(it - words.begin());
}

std::string lower_ascii(std::string_view s) {
  std::string out(s);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

Result<Members> Members::open(const json::Value* object, std::string pointer, Words known) {
  if (object == nullptr) return Members(nullptr, std::move(pointer));
  const json::Object* members = object->object();
  if (members == nullptr) return unexpected(std::move(pointer), *object, "an object");
  for (const auto& [key, value] : *members) {
    if (!index_of(known, key)) {
      const std::string meant = did_you_mean(key, known);
      return fault(child(pointer, key), cat("unknown member ", brief(json::Value(key)), meant,
                                            meant.empty() ? cat(", known here: ", join(known)) : ""));
    }
  }
  return Members(object, std::move(pointer));
}

Result<std::optional<std::int64_t>> Members::integer(std::string_view key, IntegerRange range) const {
  const json::Value* v = get(key);
  if (v == nullptr) return std::optional<std::int64_t>();
  MOE_TRY(const std::int64_t i, integer_value(*v, at(key), range));
  return std::optional(i);
}

Result<std::int64_t> Members::integer(std::string_view key, IntegerRange range, std::int64_t fallback) const {
  MOE_TRY(const std::optional<std::int64_t> i, integer(key, range));
  return i.value_or(fallback);
}

Result<std::optional<double>> Members::number(std::string_view key, RealRange range) const {
  const json::Value* v = get(key);
  if (v == nullptr) return std::optional<double>();
  const std::optional<double> d = as_number(*v);
  if (!d || !(*d >= range.low && *d <= range.high) || (range.open_low && *d == range.low)) {
    return unexpected(
        at(key), *v,
        cat("a number in ", range.open_low ? "(" : "[", real_text(range.low), ", ", real_text(range.high), "]"));
  }
  return d;
}

Result<double> Members::number(std::string_view key, RealRange range, double fallback) const {
  MOE_TRY(const std::optional<double> d, number(key, range));
  return d.value_or(fallback);
}

Result<std::optional<bool>> Members::boolean(std::string_view key) const {
  const json::Value* v = get(key);
  if (v == nullptr) return std::optional<bool>();
  MOE_TRY(const bool b, boolean_value(*v, at(key)));
  return std::optional(b);
}

Result<bool> Members::boolean(std::string_view key, bool fallback) const {
  MOE_TRY(const std::optional<bool> b, boolean(key));
  return b.value_or(fallback);
}

Result<std::optional<std::string>> Members::text(std::string_view key, std::size_t max_characters) const {
  const json::Value* v = get(key);
  if (v == nullptr) return std::optional<std::string>();
  const std::string* s = v->string();
  if (s == nullptr || character_count(*s) > max_characters) {
    return unexpected(at(key), *v, cat("a string of at most ", max_characters, " characters"));
  }
  return std::optional<std::string>(*s);
}

Result<std::string> Members::text(std::string_view key, std::size_t max_characters, std::string fallback) const {
  MOE_TRY(std::optional<std::string> s, text(key, max_characters));
  return s ? *std::move(s) : std::move(fallback);
}

Result<std::optional<std::size_t>> Members::word(std::string_view key, Words words) const {
  const json::Value* v = get(key);
  if (v == nullptr) return std::optional<std::size_t>();
  const std::string* s = v->string();
  const std::optional<std::size_t> i = s == nullptr ? std::nullopt : index_of(words, *s);
  if (!i) return unexpected(at(key), *v, cat(join(words), s == nullptr ? "" : did_you_mean(*s, words)));
  return i;
}

}  // namespace moe::config::fields
