// XXH3 through the inlined header of the xxhash package: nothing to link, nothing to export.
#include "io/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace moe::io {
namespace {

constexpr std::string_view kHashPrefix = "xxh3:", kHexDigits = "0123456789abcdef";

}  // namespace

std::uint64_t xxh3(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::string hash_text(std::uint64_t hash) {
  std::string text(kHashPrefix);
  for (int shift = 60; shift >= 0; shift -= 4) text += kHexDigits[hash >> shift & 15];
  return text;
}

std::optional<std::uint64_t> hash_from_text(std::string_view text) {
  if (text.size() != kHashPrefix.size() + 16 || !text.starts_with(kHashPrefix)) return std::nullopt;
  std::uint64_t hash = 0;
  for (const char c : text.substr(kHashPrefix.size())) {
    const std::size_t digit = kHexDigits.find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    hash = hash << 4 | digit;
  }
  return hash;
}

}  // namespace moe::io
