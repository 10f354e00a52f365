// XXH3, 64 bits. The implementation is the only file that sees xxhash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/float_rules.h"

namespace moe::io {

std::uint64_t xxh3(std::span<const std::byte> bytes);

}  // namespace moe::io
