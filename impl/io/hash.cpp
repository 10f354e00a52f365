// XXH3 through the inlined header of the xxhash package: nothing to link, nothing to export.
#include "io/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace moe::io {

std::uint64_t xxh3(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

}  // namespace moe::io
