// Words that the conditions of layouts share: wna16_needs.cpp, float_needs.cpp.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "oracle/backend.h"

namespace moe::oracle {

constexpr const char* kHidden = "/hidden_dim";
constexpr const char* kIntermediate = "/intermediate_size_per_partition";

inline MaybeNeed multiple(std::string_view what, std::int64_t step, std::int64_t size, const char* subject) {
  if (size % step == 0) return std::nullopt;
  return UnmetNeed{Reject::alignment, {cat(what, " in multiples of ", step), cat("it is ", size), subject}};
}
inline MaybeNeed multiple_hidden(std::int64_t step, std::int64_t size) {
  return multiple("hidden_dim", step, size, kHidden);
}
inline MaybeNeed multiple_intermediate(std::int64_t step, std::int64_t size) {
  return multiple("intermediate_size_per_partition", step, size, kIntermediate);
}

// The first that is not met.
template <class... Needs>
MaybeNeed first(Needs... needs) {
  MaybeNeed found;
  (void)((found = std::move(needs), found.has_value()) || ...);
  return found;
}

}  // namespace moe::oracle
