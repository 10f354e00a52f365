// Strict reading of one JSON object through a table of its members: unknown members, missing required
// ones and wrong types fail with Code::invalid_config and the pointer of the member. Not fields::Members, whose faults
// come in the order of the reader and tell what was found: these come in the order of the query and say what must be.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "base/text.h"
#include "config/fields.h"

namespace moe::vllm {

inline Error bad_member(const std::string& at, const std::string& expected) {
  return fail(Code::invalid_config, at, cat(at.empty() ? "the query" : at, ": must be ", expected));
}

// An integer, also one written as 8.0; beyond 2^53 a double names no single integer.
inline std::optional<std::int64_t> as_integer(const json::Value& v) {
  if (v.real() != nullptr && std::fabs(*v.real()) > 0x1p53) return std::nullopt;
  return fields::as_integer(v);
}

template <class T>
struct MemberRow {
  std::string_view name;
  Check (*read)(T& out, const json::Value& value, const std::string& at);
  bool required = false;
};

template <class T>
Check read_members(const json::Value& value, const std::string& at, std::span<const MemberRow<T>> table, T& out) {
  const json::Object* object = value.object();
  if (object == nullptr) return bad_member(at, "an object");
  for (const auto& [key, member] : *object) {
    const MemberRow<T>* found = nullptr;
    for (const MemberRow<T>& row : table)
      if (row.name == key) found = &row;
    const std::string pointer = fields::child(at, key);
    if (found == nullptr)
      return fail(Code::invalid_config, pointer, cat("unknown member ", in_quotes(key), " of the query"));
    MOE_CHECK(found->read(out, member, pointer));
  }
  for (const MemberRow<T>& row : table)
    if (row.required && value.find(row.name) == nullptr)
      return fail(Code::invalid_config, cat(at, "/", row.name), cat("the query lacks \"", row.name, "\""));
  return ok();
}

// Readers for the usual types: read_bool<&T::member>.
template <class>
struct MemberOf;
template <class T, class V>
struct MemberOf<V T::*> {
  using Owner = T;
};
template <auto M>
using OwnerOf = typename MemberOf<decltype(M)>::Owner;

template <auto M>
Check read_bool(OwnerOf<M>& out, const json::Value& v, const std::string& at) {
  const bool* b = v.boolean();
  if (b == nullptr) return bad_member(at, "true or false");
  out.*M = *b;
  return ok();
}

template <auto M>
Check read_string(OwnerOf<M>& out, const json::Value& v, const std::string& at) {
  const std::string* s = v.string();
  if (s == nullptr) return bad_member(at, "a string");
  out.*M = *s;
  return ok();
}

// Integers >= Min.
template <auto M, std::int64_t Min>
Check read_integer(OwnerOf<M>& out, const json::Value& v, const std::string& at) {
  const std::optional<std::int64_t> i = as_integer(v);
  if (!i || *i < Min) return bad_member(at, cat("an integer of at least ", Min));
  out.*M = *i;
  return ok();
}

}  // namespace moe::vllm
