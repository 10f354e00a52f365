// Cutting matrices over nodes and claiming items. See shards.h.
#include "run/shards.h"

#include <algorithm>

namespace moe {

Shards::Shards(std::int64_t units, std::int64_t chunk, std::int64_t grain, int nodes)
    : units_(units), chunk_(chunk), grain_(grain), nodes_(nodes) {}

std::int64_t Shards::chunks() const {
  std::int64_t sum = 0;
  for (int node = 0; node < nodes_; ++node) sum += chunks(node);
  return sum;
}

Range Shards::chunk(int node, std::int64_t index) const {
  const Range all = shard(node);
  const std::int64_t begin = all.begin + index * chunk_;
  return {begin, std::min(all.end, begin + chunk_)};
}

Claims::Claims(const Shards& shards, std::int64_t times, const NodeMap* nodes)
    : nodes_(nodes), lists_used_(shards.nodes()) {
  for (int node = 0; node < lists_used_; ++node) {
    lists_[node].next.store(0, std::memory_order_relaxed);
    lists_[node].count = times * shards.chunks(node);
    total_ += lists_[node].count;
  }
}

// There are as many tickets as items, so whoever finds every list empty is one too many.
Claim Claims::take(std::size_t ticket) {
  if (lists_used_ == 1) return {0, static_cast<std::int64_t>(ticket)};
  const int own = nodes_->here();
  for (int i = 0; i < lists_used_; ++i) {
    const int node = (own + i) % lists_used_;
    List& list = lists_[node];
    if (list.next.load(std::memory_order_relaxed) >= list.count) continue;
    const std::int64_t item = list.next.fetch_add(1, std::memory_order_relaxed);
    if (item < list.count) return {node, item};
  }
  return {0, -1};
}

}  // namespace moe
