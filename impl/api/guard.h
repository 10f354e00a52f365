// The only place where an exception is turned into a status. (Bodies that run on other threads, each_expert.h and
// pool.cpp, catch bad_alloc because it must not leave a thread.) Every fallible entry runs its body through guard(); a
// body gives a Check, the caller gets a status and, if asked for, an error object. Out of memory becomes
// MOE_ERR_OUT_OF_MEMORY, any other exception MOE_ERR_INTERNAL: a bug, or, in programs that link libmoe.a, one that a
// callback let escape. (In libmoe.so that one ends the process: rule 12 of moe.h.)
#pragma once

#include <moe/moe.h>

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "base/float_state.h"
#include "base/result.h"
#include "base/text.h"

namespace moe::api {

// error.cpp: an owned error object, or the static out-of-memory one when there is no memory for it.
moe_error* new_error(const Error& error) noexcept;
moe_error* static_out_of_memory() noexcept;

// Gives status and error object of a failure. When there is no memory for the object, both say so.
inline moe_status deliver(const Error& error, moe_error** err) noexcept {
  if (err == nullptr) return static_cast<moe_status>(error.code);
  *err = new_error(error);
  return moe_error_status(*err);
}

template <class F>
moe_status guard(moe_error** err, F&& body) noexcept {
  if (err != nullptr) *err = nullptr;
  const DefaultFloats scope;
  try {
    const Check result = body();
    return result ? MOE_OK : deliver(result.error(), err);
  } catch (const std::bad_alloc&) {
    if (err != nullptr) *err = static_out_of_memory();
    return MOE_ERR_OUT_OF_MEMORY;
  } catch (...) {
    Error unexpected;  // its strings stay empty: nothing here can throw
    unexpected.code = Code::internal;
    return deliver(unexpected, err);
  }
}

// The same for accessors that return a plain value.
template <class T, class F>
T guard_value(T otherwise, F&& body) noexcept {
  const DefaultFloats scope;
  try {
    return body();
  } catch (...) {
    return otherwise;
  }
}

// Outputs are NULL / 0 whenever the call fails, so each entry clears them first.
template <class T>
void clear(T* out) noexcept {
  if (out != nullptr) *out = T{};
}

struct NamedPointer {
  const char* name;
  const void* pointer;
};

// The first step of every wall.
inline Check not_null(std::initializer_list<NamedPointer> pointers) {
  for (const NamedPointer& p : pointers)
    if (p.pointer == nullptr) return fail(Code::invalid_argument, p.name, cat(p.name, ": must not be NULL"));
  return ok();
}

// A callback is no object pointer, so it is asked for apart.
inline Check callback_given(bool given, const char* name) {
  if (!given) return fail(Code::invalid_argument, name, cat(name, ": must not be NULL"));
  return ok();
}

// A (ptr, len) pair of the ABI; nullptr is the empty text.
inline std::string_view text_of(const char* text, std::size_t length) noexcept {
  if (text == nullptr) return {};
  return {text, length == MOE_NUL_TERMINATED ? std::strlen(text) : length};
}

inline Check known_flags(std::uint64_t flags, std::uint64_t known) {
  if ((flags & ~known) != 0)
    return fail(Code::invalid_argument, "flags", cat("flags: unknown bits ", flags & ~known, "; known are ", known));
  return ok();
}

}  // namespace moe::api
