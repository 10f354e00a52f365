// Errors as values: Result<T> is a T or an Error; nothing below the api room throws on purpose.
//
// Code has the numbers of moe_status (the api room checks that with static_asserts), so an Error
// crosses the ABI without a table. Only std::bad_alloc may travel as an exception; api/guard.h
// turns it into out_of_memory.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>

#include "base/float_rules.h"

namespace moe {

enum class Code : std::int32_t {
  ok = 0,
  invalid_argument = 1,
  invalid_config = 2,
  invalid_handle = 3,
  shape = 4,
  dtype = 5,
  missing_weight = 6,
  unexpected_weight = 7,
  no_backend = 8,
  unsupported = 9,
  buffer_too_small = 10,
  out_of_memory = 11,
  io = 12,
  format = 13,
  version = 14,
  cancelled = 15,
  comm = 16,
  callback = 17,
  busy = 18,
  state = 19,
  peer = 20,
  config_mismatch = 21,
  comm_poisoned = 22,
  internal = 99
};

struct Error {
  Code code = Code::internal;
  std::string message;  // "<subject>: <what is wrong>", one English line with the numbers in it
  std::string subject;  // JSON pointer, "w13_scale[17]", parameter name, path, or ""
  std::string details;  // further members of moe_error_details_json, by json::members()
};

inline Error fail(Code code, std::string subject, std::string message, std::string details = {}) {
  return Error{code, std::move(message), std::move(subject), std::move(details)};
}

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  explicit operator bool() const { return state_.index() == 0; }
  T& operator*() & { return *std::get_if<0>(&state_); }
  const T& operator*() const& { return *std::get_if<0>(&state_); }
  T&& operator*() && { return std::move(*std::get_if<0>(&state_)); }
  T* operator->() { return std::get_if<0>(&state_); }
  const T* operator->() const { return std::get_if<0>(&state_); }
  Error& error() { return *std::get_if<1>(&state_); }
  const Error& error() const { return *std::get_if<1>(&state_); }

 private:
  std::variant<T, Error> state_;
};

struct Done {};
using Check = Result<Done>;  // a step that gives nothing but its success
inline Check ok() { return Done{}; }

}  // namespace moe

#define MOE_CONCAT2(a, b) a##b
#define MOE_CONCAT(a, b) MOE_CONCAT2(a, b)
// MOE_TRY(auto x, expression): x is the value, or the enclosing function returns the error.
// NOLINTBEGIN(bugprone-macro-parentheses): a declaration cannot stand in parentheses
#define MOE_TRY(declaration, expression)                                                         \
  auto MOE_CONCAT(moe_try_, __LINE__) = (expression);                                            \
  if (!MOE_CONCAT(moe_try_, __LINE__)) return std::move(MOE_CONCAT(moe_try_, __LINE__).error()); \
  declaration = *std::move(MOE_CONCAT(moe_try_, __LINE__))
// NOLINTEND(bugprone-macro-parentheses)
// MOE_CHECK(expression): go on if it succeeded, else return its error.
#define MOE_CHECK(expression)                                          \
  do {                                                                 \
    auto moe_check_result = (expression);                              \
    if (!moe_check_result) return std::move(moe_check_result.error()); \
  } while (false)
