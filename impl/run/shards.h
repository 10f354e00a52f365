// Which output rows of a matrix, and with them which items of a phase, belong to which NUMA node
// (spec/kernels.md 4.10).
//
// Every matrix is cut by rows into one shard per node: blocks of w13 (a gate and an up panel), panels of w2. An item of
// a phase lies inside one shard. A thread takes the next item of its own node's list, and of the other nodes' when that
// one is empty, so no node waits while another has work. Who takes what changes no result; with one node a shard is the
// whole matrix and the task's index is the item.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/topology.h"

namespace moe {

constexpr int kMaxNodes = 16;  // further nodes share lists with the first ones

inline int list_count(const NodeMap* nodes) {
  return nodes == nullptr || nodes->count < 2 ? 1 : nodes->count < kMaxNodes ? nodes->count : kMaxNodes;
}

struct Range {
  std::int64_t begin, end;
};

// Units 0 .. units-1 of a matrix (blocks, panels), cut into shards and these into chunks of at most `chunk` units. All
// but the last shard and chunk end at a multiple of `grain`.
class Shards {
 public:
  Shards() = default;
  Shards(std::int64_t units, std::int64_t chunk, std::int64_t grain, int nodes);

  int nodes() const { return nodes_; }
  Range shard(int node) const { return {edge(node), edge(node + 1)}; }
  std::int64_t chunks(int node) const { return (edge(node + 1) - edge(node) + chunk_ - 1) / chunk_; }
  std::int64_t chunks() const;  // of all nodes
  Range chunk(int node, std::int64_t index) const;

 private:
  std::int64_t edge(int node) const { return node == nodes_ ? units_ : units_ / grain_ * node / nodes_ * grain_; }

  std::int64_t units_ = 0, chunk_ = 1, grain_ = 1;
  int nodes_ = 1;
};

// Hands out the items of a phase: `times` of each chunk (one per expert), item i of a node being chunk i %
// chunks(node).
struct Claim {
  int node;
  std::int64_t item;
};

class Claims {
 public:
  Claims(const Shards& shards, std::int64_t times, const NodeMap* nodes);
  std::int64_t total() const { return total_; }
  // Called once for each ticket in [0, total()), by any thread: an item that nobody else gets. One call too many (a
  // caller's parallel_for that runs a task twice) gets item -1.
  Claim take(std::size_t ticket);

 private:
  struct alignas(64) List {  // a cache line: threads of different nodes write to different ones
    std::atomic<std::int64_t> next;
    std::int64_t count;
  };
  const NodeMap* nodes_;
  int lists_used_;
  std::int64_t total_ = 0;
  List lists_[kMaxNodes];
};

}  // namespace moe
