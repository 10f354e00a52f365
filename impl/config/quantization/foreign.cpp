// Members of foreign documents and patterns over module names. See hf.h.
#include "config/quantization/foreign.h"

#include <algorithm>

#include "base/text.h"

namespace moe::config {
namespace {

void add_literal(std::string& re, char c) {
  const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' ||
                     static_cast<unsigned char>(c) >= 0x80;
  if (!plain) re += '\\';
  re += c;
}

template <class T>
Result<T> required(Result<std::optional<T>> member, const std::string& pointer, const std::string& expected) {
  if (!member) return std::move(member.error());
  if (!*member) return fields::missing(pointer, expected);
  return **member;
}

}  // namespace

Result<Foreign> Foreign::open(const json::Value& value, std::string pointer) {
  if (value.object() == nullptr) return fields::unexpected(std::move(pointer), value, "an object");
  return Foreign(value, std::move(pointer));
}

const json::Value* Foreign::get(std::string_view key) const {
  const json::Value* v = value_->find(key);
  return v == nullptr || v->is_null() ? nullptr : v;
}

Result<std::optional<std::int64_t>> Foreign::integer(std::string_view key, fields::IntegerRange range) const {
  const json::Value* v = get(key);
  if (v == nullptr) return std::optional<std::int64_t>();
  MOE_TRY(const std::int64_t i, fields::integer_value(*v, at(key), range));
  return std::optional(i);
}

Result<std::optional<double>> Foreign::number(std::string_view key, fields::RealRange range) const {
  const json::Value* v = get(key);
  if (v == nullptr) return std::optional<double>();
  const auto x = fields::as_number(*v);
  if (!x || *x < range.low || *x > range.high || (range.open_low && *x <= range.low))
    return fields::unexpected(
        at(key), *v,
        cat("a number ", range.open_low ? "above " : "from ", json::write(range.low), " to ", json::write(range.high)));
  return x;
}

Result<std::optional<bool>> Foreign::boolean(std::string_view key) const {
  const json::Value* v = get(key);
  if (v == nullptr) return std::optional<bool>();
  MOE_TRY(const bool b, fields::boolean_value(*v, at(key)));
  return std::optional(b);
}

Result<std::optional<std::string_view>> Foreign::text(std::string_view key) const {
  const json::Value* v = get(key);
  if (v == nullptr) return std::optional<std::string_view>();
  if (v->string() == nullptr) return fields::unexpected(at(key), *v, "a string");
  return std::optional<std::string_view>(*v->string());
}

Result<std::optional<Foreign>> Foreign::object(std::string_view key) const {
  const json::Value* v = get(key);
  if (v == nullptr) return std::optional<Foreign>();
  MOE_TRY(Foreign o, open(*v, at(key)));
  return std::optional(std::move(o));
}

Result<std::vector<std::string_view>> Foreign::texts(std::string_view key) const {
  std::vector<std::string_view> all;
  const json::Value* v = get(key);
  if (v == nullptr) return all;
  if (v->array() == nullptr) return fields::unexpected(at(key), *v, "an array of strings");
  for (std::size_t i = 0; i < v->array()->size(); ++i) {
    const json::Value& entry = (*v->array())[i];
    if (entry.string() == nullptr) return fields::unexpected(cat(at(key), "/", i), entry, "a string");
    all.push_back(*entry.string());
  }
  return all;
}

Result<std::vector<std::int64_t>> Foreign::integers(std::string_view key, fields::IntegerRange range) const {
  std::vector<std::int64_t> all;
  const json::Value* v = get(key);
  if (v == nullptr) return all;
  if (v->array() == nullptr) return fields::unexpected(at(key), *v, "an array of integers");
  for (std::size_t i = 0; i < v->array()->size(); ++i) {
    MOE_TRY(const std::int64_t entry, fields::integer_value((*v->array())[i], cat(at(key), "/", i), range));
    all.push_back(entry);
  }
  return all;
}

Result<std::int64_t> Foreign::need_integer(std::string_view key, fields::IntegerRange range) const {
  return required(integer(key, range), at(key), fields::range_text(range));
}

Result<bool> Foreign::need_boolean(std::string_view key) const {
  return required(boolean(key), at(key), "true or false");
}

Result<std::string_view> Foreign::need_text(std::string_view key) const {
  return required(text(key), at(key), "a string");
}

// fnmatch as a pattern of regex.cpp: * -> .*, ? -> ., [!..] -> [^..], the rest literal, to the end.
std::string wildcard_pattern(std::string_view wildcard) {
  std::string re;
  bool closes = true;  // a bracket may; where one does not, none behind it does
  for (std::size_t i = 0; i < wildcard.size(); ++i) {
    const char c = wildcard[i];
    if (c == '*') {
      if (!re.ends_with(".*")) re += ".*";
      continue;
    }
    if (c == '?') {
      re += '.';
      continue;
    }
    std::size_t body = i + 1;
    const bool negated = c == '[' && body < wildcard.size() && wildcard[body] == '!';
    if (negated) ++body;
    const std::size_t close = c == '[' && closes ? wildcard.find(']', body + 1) : std::string_view::npos;
    if (close == std::string_view::npos) {
      closes = closes && c != '[';
      add_literal(re, c);
      continue;
    }
    re += negated ? "[^" : "[";
    for (std::size_t j = body; j < close; ++j) {
      const bool range = wildcard[j] == '-' && j > body && j + 1 < close;
      if (range)
        re += '-';
      else
        add_literal(re, wildcard[j]);
    }
    re += ']';
    i = close;
  }
  return re + "$";
}

std::string substring_pattern(std::string_view text) {
  std::string re = ".*";
  for (const char c : text) add_literal(re, c);
  return re;
}

namespace {

template <class T>
Result<T> placed(Result<T> result, const std::string& pointer) {
  if (result) return result;
  result.error().subject = pointer;
  result.error().message = cat(pointer, ": ", result.error().message);
  return result;
}

Error too_many(const std::string& pointer) {
  return fail(Code::unsupported, pointer, pointer + ": too many patterns, the limit of work on them is reached");
}

}  // namespace

template <class T>
Result<T> Matcher::limited(const std::string& pointer, const std::function<Result<T>(Work&)>& match) {
  if (left_ == 0) return too_many(pointer);
  Work work(std::min(left_, kOfOne));
  work.spend(kOfEach);
  Result<T> answer = placed(match(work), pointer);
  left_ -= work.spent();
  if (answer && work.is_spent()) return too_many(pointer);
  return answer;
}

Result<bool> Matcher::regex(std::string_view pattern, std::string_view text, const std::string& pointer, MatchEnd end) {
  return limited<bool>(pointer, [&](Work& work) { return re_match(pattern, text, end, work); });
}

Result<Hits> Matcher::names(std::string_view pattern, const LayerNames& layer, const std::string& pointer,
                            const MatchHow& how) {
  return limited<Hits>(pointer, [&](Work& work) {
    Result<Hits> hits = re_match_experts(pattern, layer, how, work);
    if (hits) work.spend(hits->size() / 4);  // of going through them
    return hits;
  });
}

}  // namespace moe::config
