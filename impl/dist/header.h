// What ranks tell each other before rows (distributed.md 2).
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

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

// What must be the same on all ranks, in 32 bits. `made`: the number of the call that made the spread layer, so that
// ranks which take their layers in different orders see it.
struct CallPlace {
  std::uint32_t call = 0, made = 0;
  std::int64_t layer = 0, chunk = 0;
};
std::uint32_t tag_of(SyncStep step, const CallPlace& place);

// The status of this rank as it travels, and what another rank's becomes here.
Error peer_failed(int rank, std::int32_t status);
// What another rank sent cannot be.
Error bad_peer(int rank, const char* what);

// A step whose failure other ranks must hear of: no memory is an error as any other.
template <class Body>
auto taking_memory(Body body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return fail(Code::out_of_memory, "", "out of memory");
  }
}

}  // namespace moe::dist
