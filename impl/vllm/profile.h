// Whose answers: vLLM as it was in that month. Those of May 2026 are what libmoe selects by; November's are of 0.33.0.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace moe::vllm {

enum class Profile : std::uint8_t { april_2026, may_2026, november_2026 };
// "seed" is an older word for the first.
constexpr std::array<std::string_view, 4> kProfileNames = {"2026-04", "2026-05", "2026-11", "seed"};
constexpr Profile profile_at(std::size_t name) { return name == 3 ? Profile::april_2026 : static_cast<Profile>(name); }

}  // namespace moe::vllm
