// What ranks tell each other before rows (distributed.md 2).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace moe::dist {

struct RankHeader {
  std::int32_t rows = 0;    // that follow for this rank
  std::uint32_t tag = 0;    // which step of which call this is
  std::int32_t status = 0;  // of the sender
  std::uint32_t more = 0;   // 1: the sender has another chunk
};
static_assert(sizeof(RankHeader) == 16 && alignof(RankHeader) == 4);

enum class SyncStep : std::uint32_t { create = 1, created, attach, chunk, end, texts };

// 32 bits of what must be the same on all ranks.
std::uint32_t tag_of(SyncStep step, std::uint32_t call, std::uint64_t layer, std::uint64_t chunk);

// The status of this rank as it travels, and what another rank's becomes here.
Error peer_failed(int rank, std::int32_t status);
// What another rank sent cannot be.
Error bad_peer(int rank, const char* what);

}  // namespace moe::dist
