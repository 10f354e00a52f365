// Tags of steps, and errors about other ranks.
#include "dist/header.h"

#include <array>

#include "base/code_names.h"
#include "base/json.h"
#include "base/text.h"
#include "io/hash.h"

namespace moe::dist {

std::uint32_t tag_of(SyncStep step, const CallPlace& p) {
  const std::array<std::uint64_t, 4> words = {static_cast<std::uint64_t>(step) << 32 | p.call, p.made,
                                              static_cast<std::uint64_t>(p.layer), static_cast<std::uint64_t>(p.chunk)};
  return static_cast<std::uint32_t>(io::xxh3(std::as_bytes(std::span(words))));
}

Error peer_failed(int rank, std::int32_t status) {
  return fail(Code::peer, "comm",
              cat("comm: rank ", rank, " failed with ", name_of(status), " (", status, "); its own error says more"),
              json::members("rank", rank, "peer_status", status));
}

Error bad_peer(int rank, const char* what) {
  return fail(Code::comm, "comm", cat("comm: rank ", rank, " sent ", what),
              json::members("reason", "protocol", "rank", rank));
}

}  // namespace moe::dist
