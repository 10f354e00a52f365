// Why a candidate of selection is refused.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/text.h"

namespace moe::oracle {

// Numbers of moe_reject in moe.h (the api room checks that).
enum class Reject : std::int32_t {
#define MOE_REJECT(id, name) id,
#include "oracle/rejects.inc"
};
const char* reject_name(Reject r);  // "MOE_REJECT_ISA"; "MOE_REJECT_UNKNOWN" for others

void a_refusal_needs_a_reason();  // never defined: calling it in a constant is the compile error

// A reason with code "conversion": a number alone, because Clang 14 crashes on aggregates that hold a Reason.
struct OfConversion {
  consteval OfConversion(Reject r) : reject(r) {
    if (r == Reject::none) a_refusal_needs_a_reason();
  }
  Reject reject;
};

// Why a row is refused, as a number for libmoe and as the code of the golden vectors. A reason without
// either does not compile.
struct Reason {
  consteval Reason(Reject r, std::string_view c) : reject(r), code(c) {
    if (r == Reject::none || c.empty()) a_refusal_needs_a_reason();
  }
  constexpr Reason(OfConversion r) : reject(r.reject), code("conversion") {}
  Reject reject;
  std::string_view code;
};

struct Why {
  std::string needs, found;  // "device cpu", "the platform is cuda 9.0"
  std::string subject;       // pointer into the canonical config, a feature, or ""
};

// The only way to say no: the detail is never empty.
class Refusal {
 public:
  Refusal(const Reason& reason, Why why)
      : reason_(reason),
        detail_(printable(cat("needs ", why.needs, "; ", why.found))),
        subject_(std::move(why.subject)) {}
  Reject reject() const { return reason_.reject; }
  std::string_view code() const { return reason_.code; }
  const std::string& detail() const { return detail_; }
  const std::string& subject() const { return subject_; }

 private:
  Reason reason_;
  std::string detail_, subject_;
};
using Verdict = std::optional<Refusal>;  // nullopt: accepted

// What a layout asks of a layer beyond the oracle's own checks.
struct UnmetNeed {
  OfConversion reason;
  Why why;
};

using MaybeWhy = std::optional<Why>;  // nullopt: nothing is missing
using MaybeNeed = std::optional<UnmetNeed>;

}  // namespace moe::oracle
