// SPDX-License-Identifier: Apache-2.0
//
// Error, Result, and what the other headers of moe.hpp are made of: owned handles, buffers, texts.
#pragma once

#include <moe/moe.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <variant>

#define LIBMOE_JOIN_(major, minor, rest) v##major##_##minor##rest
#define LIBMOE_JOIN(major, minor, rest) LIBMOE_JOIN_(major, minor, rest)
#if defined(__cpp_exceptions) || defined(_CPPUNWIND)
#define LIBMOE_EXCEPTIONS 1
#define LIBMOE_NAMESPACE LIBMOE_JOIN(MOE_VERSION_MAJOR, MOE_VERSION_MINOR, )  // v0_1
#else
#define LIBMOE_EXCEPTIONS 0
#define LIBMOE_NAMESPACE                            \
  LIBMOE_JOIN(MOE_VERSION_MAJOR, MOE_VERSION_MINOR, \
              _no_exceptions)  // the same names have other bodies: they must not meet at link time
#endif
#if defined(__GNUC__)
#define LIBMOE_VISIBLE __attribute__((visibility("default")))  // one type of exception for all libraries of a program
#else
#define LIBMOE_VISIBLE
#endif

namespace libmoe {
inline namespace LIBMOE_NAMESPACE {

/// Why a call failed. Copies share one object, so that copying and throwing it cannot fail.
class LIBMOE_VISIBLE Error : public std::exception {
 public:
  /// For callbacks: an error of their own.
  Error(moe_status status, std::string_view message) noexcept
      : Error(moe_error_create(status, message.data(), message.size())) {}
  /// Takes over an error of the library.
  explicit Error(moe_error* owned) noexcept : shared_(new (std::nothrow) Shared{owned}) {
    if (!shared_) moe_error_destroy(owned);  // what is left to say is MOE_ERR_OUT_OF_MEMORY
    if (shared_) shared_->describe();
  }
  Error(const Error& other) noexcept : std::exception(other), shared_(other.shared_) {
    if (shared_) shared_->owners.fetch_add(1, std::memory_order_relaxed);
  }
  Error& operator=(const Error& other) noexcept {
    Error copy(other);
    std::swap(shared_, copy.shared_);
    return *this;
  }
  ~Error() override {
    if (shared_ && shared_->owners.fetch_sub(1, std::memory_order_acq_rel) == 1) delete shared_;
  }

  moe_status status() const noexcept { return shared_ ? moe_error_status(shared_->error) : MOE_ERR_OUT_OF_MEMORY; }
  /// "MOE_ERR_IO"
  const char* name() const noexcept { return moe_status_name(status()); }
  const char* message() const noexcept { return shared_ ? moe_error_message(shared_->error) : "out of memory"; }
  /// Where: a JSON pointer, a role, a path, a parameter, or "".
  const char* subject() const noexcept { return shared_ ? moe_error_subject(shared_->error) : ""; }
  /// JSON: expected, actual, needed, errno, cause, candidates, as they apply.
  const char* details() const noexcept { return shared_ ? moe_error_details_json(shared_->error) : "{}"; }
  /// What the system said of a file: compares with std::errc::no_such_file_or_directory and the others; else empty.
  std::error_code code() const noexcept {
    const char* member = std::strstr(details(), "\"errno\":");  // within a text its quotation marks are escaped
    return {member ? std::atoi(member + 8) : 0, std::generic_category()};
  }
  /// "<subject>: <message>"
  const char* what() const noexcept override { return shared_ && shared_->text ? shared_->text.get() : message(); }
  const moe_error* get() const noexcept { return shared_ ? shared_->error : nullptr; }

 private:
  struct Shared {
    explicit Shared(moe_error* owned) noexcept : error(owned) {}
    Shared(const Shared&) = delete;
    ~Shared() { moe_error_destroy(error); }
    void describe() noexcept {
      const std::string_view subject = moe_error_subject(error), message = moe_error_message(error);
      if (subject.empty()) return;
      text.reset(new (std::nothrow) char[subject.size() + message.size() + 3]());
      if (!text) return;
      std::memcpy(text.get(), subject.data(), subject.size());
      std::memcpy(text.get() + subject.size(), ": ", 2);
      std::memcpy(text.get() + subject.size() + 2, message.data(), message.size());
    }
    moe_error* error;
    std::unique_ptr<char[]> text;
    std::atomic<long> owners{1};
  };
  Shared* shared_;
};

/// A value, or the Error that stands in its place. Ask before taking the value with `*` or `->`.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) noexcept : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) noexcept : state_(std::in_place_index<1>, std::move(error)) {}

  explicit operator bool() const noexcept { return state_.index() == 0; }
  T& operator*() & noexcept { return *std::get_if<0>(&state_); }
  const T& operator*() const& noexcept { return *std::get_if<0>(&state_); }
  T&& operator*() && noexcept { return std::move(*std::get_if<0>(&state_)); }
  T* operator->() noexcept { return std::get_if<0>(&state_); }
  const T* operator->() const noexcept { return std::get_if<0>(&state_); }
  /// Of a failure only.
  const Error& error() const noexcept { return *std::get_if<1>(&state_); }
#if LIBMOE_EXCEPTIONS
  /// The value; throws the error.
  T& value() & {
    if (!*this) throw error();
    return **this;
  }
  T value() && {
    if (!*this) throw error();
    return std::move(**this);
  }
#endif

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() noexcept = default;
  Result(Error error) noexcept : state_(std::in_place_index<1>, std::move(error)) {}

  explicit operator bool() const noexcept { return state_.index() == 0; }
  const Error& error() const noexcept { return *std::get_if<1>(&state_); }
#if LIBMOE_EXCEPTIONS
  void value() const {
    if (!*this) throw error();
  }
#endif

 private:
  std::variant<std::monostate, Error> state_;
};

/// A text for C, which ends at a NUL: a literal or a std::string, kept by the caller during the call.
class Text {
 public:
  Text(const char* text) noexcept : data_(text), size_(text ? std::strlen(text) : 0) {}
  Text(const std::string& text) noexcept : data_(text.c_str()), size_(text.size()) {}
  const char* get() const noexcept { return data_; }
  /// C would take only a part of it.
  bool cut() const noexcept { return data_ && std::strlen(data_) != size_; }

 private:
  const char* data_;
  std::size_t size_;
};

/// The owner of one handle.
template <class Raw, void(MOE_CALL* Destroy)(Raw*)>
class Handle {
 public:
  using raw_type = Raw;
  Handle() noexcept = default;
  /// Takes over a handle of moe.h.
  explicit Handle(Raw* owned) noexcept : raw_(owned) {}

  Raw* get() const noexcept { return raw_.get(); }
  Raw* release() noexcept { return raw_.release(); }
  explicit operator bool() const noexcept { return raw_ != nullptr; }

 private:
  struct End {
    void operator()(Raw* raw) const noexcept { Destroy(raw); }
  };
  std::unique_ptr<Raw, End> raw_;
};

namespace detail {

// What a call of moe.h takes for an argument of ours.
template <class A>
A raw(A plain) noexcept {
  return plain;
}
inline const char* raw(const Text& text) noexcept { return text.get(); }

// A text of which C would take only a part, else null.
template <class A>
const char* cut(const A&) noexcept {
  return nullptr;
}
inline const char* cut(const Text& text) noexcept { return text.cut() ? text.get() : nullptr; }

inline Error cut_error(const char* text) noexcept {
  char message[128];
  std::snprintf(message, sizeof message, "a text with a NUL character inside, behind \"%.64s\"", text);
  return Error(MOE_ERR_INVALID_ARGUMENT, message);
}

/// Calls a function whose last parameter is the error.
template <class F, class... A>
Result<void> call(F function, const A&... arguments) noexcept {
  const char* part = nullptr;
  if (((part = cut(arguments)) || ...)) return cut_error(part);
  moe_error* error = nullptr;
  if (function(raw(arguments)..., &error) != MOE_OK) return Error(error);
  return {};
}

/// The same for a function that gives a handle before it.
template <class T, class F, class... A>
Result<T> make(F function, const A&... arguments) noexcept {
  typename T::raw_type* made = nullptr;
  if (Result<void> done = call(function, arguments..., &made); !done) return done.error();
  return T(made);
}

/// Runs what a callback does; an exception becomes an error.
template <class F>
moe_status guarded(F&& body, moe_error** error = nullptr) noexcept {
  const auto give = [error](moe_status status, std::string_view text) noexcept {
    if (error) *error = moe_error_create(status, text.data(), text.size());
    return status;
  };
#if LIBMOE_EXCEPTIONS
  try {
    return body(give);
  } catch (const Error& thrown) {
    return give(thrown.status(), thrown.what());
  } catch (const std::bad_alloc&) {
    return give(MOE_ERR_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& thrown) {
    return give(MOE_ERR_CALLBACK, thrown.what());
  } catch (...) {
    return give(MOE_ERR_CALLBACK, "an exception that is no std::exception");
  }
#else
  return body(give);
#endif
}

/// A number of moe.h as the enum of this header; one that it does not know as `unknown`.
template <class E>
E known(std::underlying_type_t<E> value, E last, E unknown) noexcept {
  return value < 0 || value > static_cast<std::underlying_type_t<E>>(last) ? unknown : static_cast<E>(value);
}

/// A callback's function on the heap, as the `user` of moe.h; null without memory.
template <class F>
std::unique_ptr<F> boxed(F&& function) noexcept {
  return std::unique_ptr<F>(new (std::nothrow) F(std::move(function)));
}
template <class F>
void MOE_CALL unbox(void* user) {
  delete static_cast<F*>(user);
}
inline Error no_memory() noexcept { return Error(MOE_ERR_OUT_OF_MEMORY, "no memory for a callback"); }

}  // namespace detail

/// Owned bytes or text of the library.
class Buffer : public Handle<moe_buffer, moe_buffer_destroy> {
 public:
  using Handle::Handle;
  /// alignment: a power of two, 0 for 64.
  static Result<Buffer> try_create(std::size_t size, std::size_t alignment = 0) noexcept {
    return detail::make<Buffer>(moe_buffer_create, size, alignment);
  }

  void* data() const noexcept { return moe_buffer_data(get()); }
  std::size_t size() const noexcept { return moe_buffer_size(get()); }
  std::string_view text() const noexcept { return {static_cast<const char*>(data()), size()}; }

#if LIBMOE_EXCEPTIONS
  static Buffer create(std::size_t size, std::size_t alignment = 0) { return try_create(size, alignment).value(); }
#endif
};

namespace detail {
/// A function that gives text: buffer and error are its last parameters.
template <class F, class... A>
Result<Buffer> text(F function, const A&... arguments) noexcept {
  return make<Buffer>(function, arguments...);
}
}  // namespace detail

inline std::int32_t version_number() noexcept { return moe_version_number(); }
inline std::string_view version_string() noexcept { return moe_version_string(); }
inline std::int32_t abi_version() noexcept { return moe_abi_version(); }
inline bool has_feature(Text name) noexcept { return moe_has_feature(name.get()) != 0; }
inline std::string_view build_info_json() noexcept { return moe_build_info_json(); }
inline std::string_view abi_json() noexcept { return moe_abi_json(); }
inline std::string_view status_name(moe_status status) noexcept { return moe_status_name(status); }
inline std::string_view reject_name(moe_reject reason) noexcept { return moe_reject_name(reason); }

}  // namespace LIBMOE_NAMESPACE
}  // namespace libmoe
