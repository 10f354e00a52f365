// SHA-256 (FIPS 180-4), for tensors of which the golden files keep only a digest.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "support/rooms.h"

namespace moe::test {

// 64 hexadecimal digits.
std::string sha256(std::span<const std::byte> bytes);

}  // namespace moe::test
