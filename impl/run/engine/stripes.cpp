// Cutting matrices over nodes and claiming items. See stripes.h.
#include "run/engine/stripes.h"

#include <algorithm>

#include "base/checked.h"
#include "base/index.h"

namespace moe::run {

Taper::Taper(std::int64_t units, std::int64_t threads, std::int64_t grain, std::int64_t most) : units_(units) {
  for (std::int64_t begin = 0; begin < units;) {
    const std::int64_t left = units - begin, part = threads == 1 ? most : left / (2 * threads);
    const std::int64_t size = std::max(grain, std::min(part, most) / grain * grain);
    if (count_ == 0 || at(stretches_, count_ - 1).size != size) at(stretches_, count_++) = {items_, begin, size};
    const bool last = threads == 1 || size == grain || count_ == std::ssize(stretches_);
    const std::int64_t round = last ? ceil_div(left, size) : threads;
    items_ += round;
    begin += round * size;
  }
}

Range Taper::item(std::int64_t index) const {
  if (index >= items_) return {units_, units_};
  int i = count_ - 1;
  while (at(stretches_, i).first > index) --i;
  const Stretch& s = at(stretches_, i);
  const std::int64_t begin = s.begin + (index - s.first) * s.size;
  return {begin, std::min(begin + s.size, units_)};
}

std::int64_t fair_units(std::int64_t units, std::int64_t dearest, std::int64_t total, std::int64_t threads) {
  if (threads == 1 || total == 0) return units;
  return std::clamp<std::int64_t>(units * total / (2 * threads * dearest), 1, units);
}

Stripes::Stripes(const PhaseWork& work) : work_(work) {
  for (int node = 0; node < work.nodes; ++node) {
    const Range r = stripe(node);
    // A list is no thread's alone as long as there are others: they help.
    const std::int64_t threads = work.threads == 1 ? 1 : std::max<std::int64_t>(2, work.threads / work.nodes);
    at(lists_, node) = Taper((r.end - r.begin) * work.times, threads, work.grain, work.most);
  }
}

Claims::Claims(const Stripes& stripes, const NodeMap* nodes) : nodes_(nodes), lists_used_(stripes.nodes()) {
  for (int node = 0; node < lists_used_; ++node) {
    lists_[node].next.store(0, std::memory_order_relaxed);
    lists_[node].count = stripes.items(node);
    total_ += lists_[node].count;
  }
}

// There are as many tickets as items: a thread that finds every list empty has a ticket too many.
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

}  // namespace moe::run
