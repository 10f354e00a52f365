// The tree of json.h: access, writing, pointers and merge patches. No parser here.
//
// Real numbers get a ".0" where they would look like integers, so that the kind of a number survives a round trip.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "base/decimal.h"
#include "base/json.h"
#include "base/text.h"

namespace moe::json {
namespace {

void append_quoted(std::string& out, std::string_view s) {
  constexpr std::string_view kHex = "0123456789abcdef";
  constexpr std::string_view kEscaped = "\"\\\b\f\n\r\t";
  constexpr std::string_view kLetter = "\"\\bfnrt";
  out += '"';
  for (std::size_t at = 0; at < s.size(); ++at) {
    const char c = s[at];
    const auto u = static_cast<unsigned char>(c);
    if (const std::size_t i = kEscaped.find(c); i != std::string_view::npos) {
      out += '\\';
      out += kLetter[i];
    } else if (u < 0x20) {
      out += "\\u00";
      out += kHex[u >> 4];
      out += kHex[u & 15];
    } else if (const std::size_t n = utf8_length(s.substr(at)); n != 0) {
      out += s.substr(at, n);
      at += n - 1;
    } else {
      out += "\\\\x";
      out += kHex[u >> 4];
      out += kHex[u & 15];
    }
  }
  out += '"';
}

// One token of a pointer with its escapes undone; false for an escape that is none.
bool unescape_pointer(std::string_view token, std::string& key) {
  key.clear();
  for (std::size_t i = 0; i < token.size(); ++i) {
    if (token[i] != '~') {
      key += token[i];
      continue;
    }
    if (++i == token.size() || (token[i] != '0' && token[i] != '1')) return false;
    key += token[i] == '0' ? '~' : '/';
  }
  return true;
}

const Value* element(const Array& array, std::string_view index) {
  std::size_t i = 0;
  if (index.empty() || (index.size() > 1 && index[0] == '0')) return nullptr;
  const auto [end, status] = std::from_chars(index.data(), index.data() + index.size(), i);
  if (status != std::errc() || end != index.data() + index.size() || i >= array.size()) return nullptr;
  return &array[i];
}

}  // namespace

const Value* Value::find(std::string_view key) const {
  if (const Object* o = object()) {
    for (const Member& m : *o)
      if (m.first == key) return &m.second;
  }
  return nullptr;
}

Value* Value::find(std::string_view key) { return const_cast<Value*>(std::as_const(*this).find(key)); }

Value& Value::set(std::string key, Value value) {
  if (object() == nullptr) v_ = Object();
  if (Value* old = find(key)) return *old = std::move(value);
  return object()->emplace_back(std::move(key), std::move(value)).second;
}

void Writer::comma() {
  if (!first_) out_ += ',';
  first_ = false;
}

Writer& Writer::begin(char bracket) {
  comma();
  out_ += bracket;
  first_ = true;
  return *this;
}

Writer& Writer::end(char bracket) {
  out_ += bracket;
  first_ = false;
  return *this;
}

Writer& Writer::key(std::string_view name) {
  value(name);
  out_ += ':';
  first_ = true;
  return *this;
}

Writer& Writer::value(Text t) {
  comma();
  out_ += t.json;
  return *this;
}

Writer& Writer::integer(Piece digits) {
  char buffer[24];
  return value(Text{digits.in(buffer)});
}

Writer& Writer::value(double d) {
  if (!std::isfinite(d)) return null();  // JSON has no word for these
  std::string s = decimal(d);
  if (s.find_first_of(".e") == std::string::npos) s += ".0";
  return value(Text{s});
}

Writer& Writer::value(std::string_view s) {
  comma();
  append_quoted(out_, s);
  return *this;
}

Writer& Writer::value(const Value& v, MemberOrder order) {
  if (const bool* b = v.boolean()) return value(*b);
  if (const std::int64_t* i = v.integer()) return value(*i);
  if (const double* d = v.real()) return value(*d);
  if (const std::string* s = v.string()) return value(*s);
  if (const Array* a = v.array()) {
    begin_array();
    for (const Value& element : *a) value(element, order);
    return end_array();
  }
  const Object* o = v.object();
  if (o == nullptr) return null();
  std::vector<const Member*> members;
  members.reserve(o->size());
  for (const Member& m : *o) members.push_back(&m);
  if (order == MemberOrder::sorted)
    std::sort(members.begin(), members.end(), [](const Member* a, const Member* b) { return a->first < b->first; });
  begin_object();
  for (const Member* m : members) key(m->first).value(m->second, order);
  return end_object();
}

std::string write(const Value& value, MemberOrder order) { return Writer().value(value, order).take(); }

std::string escape_pointer(std::string_view key) {
  std::string out;
  for (const char c : key) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

const Value* at_pointer(const Value& root, std::string_view pointer) {
  const Value* at = &root;
  std::string key;
  while (!pointer.empty()) {
    if (pointer.front() != '/') return nullptr;
    pointer.remove_prefix(1);
    const std::size_t end = std::min(pointer.find('/'), pointer.size());
    if (!unescape_pointer(pointer.substr(0, end), key)) return nullptr;
    pointer.remove_prefix(end);
    at = at->array() != nullptr ? element(*at->array(), key) : at->find(key);
    if (at == nullptr) return nullptr;
  }
  return at;
}

void merge_patch(Value& target, const Value& patch) {
  const Object* changes = patch.object();
  if (changes == nullptr) {
    target = patch;
    return;
  }
  if (target.object() == nullptr) target = Value(Object());
  Object& members = *target.object();
  // The patch's keys are distinct, so what it appends is never looked up: an index of the members
  // that were there is enough, and two objects of 10^5 members merge in n log n.
  std::vector<std::size_t> order(members.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return members[a].first < members[b].first; });
  std::vector<bool> gone(members.size(), false);
  for (const auto& [key, change] : *changes) {
    const auto it = std::lower_bound(order.begin(), order.end(), key,
                                     [&](std::size_t i, const std::string& k) { return members[i].first < k; });
    const bool there = it != order.end() && members[*it].first == key;
    if (change.is_null()) {
      if (there) gone[*it] = true;
    } else if (there) {
      merge_patch(members[*it].second, change);
    } else {
      Value fresh;
      merge_patch(fresh, change);  // drops the nulls inside
      members.emplace_back(key, std::move(fresh));
    }
  }
  Object kept;
  kept.reserve(members.size());
  for (std::size_t i = 0; i < members.size(); ++i)
    if (i >= gone.size() || !gone[i]) kept.push_back(std::move(members[i]));
  members = std::move(kept);
}

}  // namespace moe::json
