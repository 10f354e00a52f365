// The known name that an unknown one is likely to mean: for messages.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace moe {

// Letters to insert, delete or replace.
std::size_t edits(std::string_view a, std::string_view b);
// A third of the letters differ at most, or half of the shorter name begins the other one.
bool looks_like(std::string_view a, std::string_view b, std::size_t distance);

// " (did you mean name?)" with the nearest of `known`, whatever its case and hyphens; "": none looks like it.
std::string did_you_mean(std::string_view name, std::span<const std::string_view> known);

}  // namespace moe
