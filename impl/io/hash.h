// XXH3, 64 bits. The implementation is the only file that sees xxhash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/float_rules.h"

namespace moe::io {

std::uint64_t xxh3(std::span<const std::byte> bytes);
// "xxh3:" and 16 hexadecimal digits, and back; nullopt: no such text.
std::string hash_text(std::uint64_t hash);
std::optional<std::uint64_t> hash_from_text(std::string_view text);

}  // namespace moe::io
