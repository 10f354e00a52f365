// Error objects and owned bytes: moe_error_*, moe_status_name.
//
// An error object is made once and never changes. Its details are one JSON object:
//   {"status":"MOE_ERR_SHAPE","status_code":4,"message":..,"subject":.., members of Error::details}
// Every text becomes printable() here: what comes from files, documents and callbacks may be any bytes, a NUL too.
// When memory is out there is one static object; ending it does nothing.
#include <moe/moe.h>

#include <memory>
#include <new>
#include <string>

#include "api/guard.h"
#include "api/handle.h"
#include "base/code_names.h"
#include "base/json.h"
#include "base/text.h"

struct moe_error {
  std::uint64_t magic;
  moe_status status;
  const char* message;
  const char* subject;
  const char* details;
};

namespace moe::api {
namespace {

#define MOE_CODE(code, status) \
  static_assert(static_cast<moe_status>(Code::code) == (status), "Code has the numbers of moe_status");
#include "base/code_names.inc"
#undef MOE_CODE

constexpr std::uint64_t kMagic = magic_of(1);

// Never written: destroy knows it by its address.
constexpr moe_error kOutOfMemory = {
    kMagic, MOE_ERR_OUT_OF_MEMORY, "out of memory", "",
    R"({"status":"MOE_ERR_OUT_OF_MEMORY","status_code":11,"message":"out of memory","subject":""})"};

struct OwnedError : moe_error {
  std::string message_text, subject_text, details_text;
};

bool is_error(const moe_error* e) noexcept {
  return e != nullptr && reinterpret_cast<std::uintptr_t>(e) % alignof(moe_error) == 0 && e->magic == kMagic;
}

// Inside, messages are "<subject>: <what is wrong>". The subject has an accessor of its own, so callers get the rest.
std::string_view without_subject(std::string_view message, std::string_view subject) {
  if (subject.empty() || !message.starts_with(subject)) return message;
  const std::string_view rest = message.substr(subject.size());
  return rest.starts_with(": ") ? rest.substr(2) : message;
}

moe_error* make_error(moe_status status, std::string_view message, std::string_view subject, std::string_view details) {
  auto e = std::make_unique<OwnedError>();
  e->magic = kMagic;
  e->status = status;
  e->message_text = printable(without_subject(message, subject));
  if (e->message_text.empty() && status == MOE_ERR_INTERNAL) e->message_text = "internal error";
  e->subject_text = printable(subject);
  json::Writer w;
  w.begin_object().member("status", moe_status_name(status)).member("status_code", status);
  w.member("message", e->message_text).member("subject", e->subject_text);
  // What printable() still escapes in JSON stands in strings, where JSON writes it the same way.
  e->details_text = w.members({printable(details)}).end_object().take();
  e->message = e->message_text.c_str();
  e->subject = e->subject_text.c_str();
  e->details = e->details_text.c_str();
  return e.release();
}

}  // namespace

moe_error* static_out_of_memory() noexcept { return const_cast<moe_error*>(&kOutOfMemory); }

moe_error* new_error(const Error& error) noexcept {
  return guard_value(static_out_of_memory(), [&] {
    return make_error(static_cast<moe_status>(error.code), error.message, error.subject, error.details);
  });
}

}  // namespace moe::api

using moe::api::guard_value;
using moe::api::is_error;
using moe::api::kOutOfMemory;
using moe::api::static_out_of_memory;

const char* moe_status_name(moe_status status) { return moe::name_of(status); }

moe_error* moe_error_create(moe_status status, const char* message, size_t message_len) {
  return guard_value(static_out_of_memory(), [&] {
    return moe::api::make_error(status == MOE_OK ? MOE_ERR_INTERNAL : status, moe::api::text_of(message, message_len),
                                {}, {});
  });
}

moe_status moe_error_status(const moe_error* err) {
  if (err == nullptr) return MOE_OK;
  return is_error(err) ? err->status : MOE_ERR_INVALID_HANDLE;
}

const char* moe_error_message(const moe_error* err) { return is_error(err) ? err->message : ""; }
const char* moe_error_subject(const moe_error* err) { return is_error(err) ? err->subject : ""; }
const char* moe_error_details_json(const moe_error* err) { return is_error(err) ? err->details : "{}"; }

void moe_error_destroy(moe_error* err) {
  if (!is_error(err) || err == &kOutOfMemory) return;
  auto* owned = static_cast<moe::api::OwnedError*>(err);
  *const_cast<volatile std::uint64_t*>(&owned->magic) = moe::api::kDead;
  delete owned;
}
