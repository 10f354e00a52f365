// Tags of steps, and errors about other ranks.
#include "dist/header.h"

#include <array>

#include "base/json.h"
#include "base/text.h"
#include "io/hash.h"

namespace moe::dist {

std::uint32_t tag_of(SyncStep step, std::uint32_t call, std::uint64_t layer, std::uint64_t chunk) {
  const std::array<std::uint64_t, 3> words = {static_cast<std::uint64_t>(step) << 32 | call, layer, chunk};
  return static_cast<std::uint32_t>(io::xxh3(std::as_bytes(std::span(words))));
}

Error peer_failed(int rank, std::int32_t status) {
  return fail(Code::peer, "comm", cat("comm: rank ", rank, " failed with status ", status),
              json::members("rank", rank, "peer_status", status));
}

Error bad_peer(int rank, const char* what) {
  return fail(Code::comm, "comm", cat("comm: rank ", rank, " sent ", what),
              json::members("reason", "protocol", "rank", rank));
}

}  // namespace moe::dist
