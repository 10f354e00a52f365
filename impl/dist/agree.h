// Whether all ranks were given the same config and options, and if not, which member differs on which ranks.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "dist/comm.h"

namespace moe::dist {

// `text`: one JSON object. Made before the ranks meet: what the first exchange needs is then there.
class Agreement {
 public:
  Agreement(const Comm& comm, std::string text);

  // Collective; every rank gives the same answer: Code::config_mismatch with "pointer", "ranks", "expected", "actual".
  // `tag` is that of the headers before the texts.
  Check reach(Comm& comm, std::uint32_t tag);

 private:
  struct Summary {
    std::uint64_t hash = 0, size = 0;
    bool operator==(const Summary&) const = default;
  };

  Summary summary_of(int rank) const;
  // `longest`: bytes; `other`: the first rank whose summary is not that of rank 0.
  Check compare_texts(Comm& comm, std::uint32_t tag, std::size_t longest, int other);

  std::string text_;
  Summary mine_;
  Gathering summaries_;
};

}  // namespace moe::dist
