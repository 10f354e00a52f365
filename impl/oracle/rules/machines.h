// The rules about the machine: device, capability, toolkit, libraries, switches.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "oracle/backend.h"

namespace moe::oracle {

// Values of a set, by their names.
template <class Enum, std::size_t N>
std::string names_in(const EnumSet<Enum>& set, const std::array<std::string_view, N>& names) {
  std::string s;
  for (std::size_t i = 0; i < N; ++i)
    if (set.has(static_cast<Enum>(i))) s += (s.empty() ? "" : ", ") + std::string(names[i]);
  return s.empty() ? "none" : s;
}
std::string joined(std::span<const std::string_view> words);

bool is_one_of(const Machines& machines, const Platform& p);
// The first rule: can this device run the class at all?
std::optional<Why> device(const Query& q, const Trial& offer);

}  // namespace moe::oracle
