// Which output rows of a matrix, and with them which items of a phase, belong to which NUMA node
// (kernels.md 10), and how large the items are.
//
// Every matrix is cut by rows into one stripe per node: blocks of w13 (a gate and an up panel), panels of w2. A node's
// list is its stripe once for each expert. Items are pieces of a list whose sizes fall:
// large ones first, because starting at a new address costs about 20 KB of reading; small ones last, so that all
// threads end together even when some were interrupted. A thread takes the next item of its own node's list, and of the
// other nodes' when that one is empty, so no node waits while another has work. Who takes what changes no result; with
// one node a stripe is the whole matrix and the task's index is the item.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/index.h"
#include "base/os/topology.h"

namespace moe::run {

constexpr int kMaxNodes = 16;  // further nodes share lists with the first ones

inline int list_count(const NodeMap* nodes) {
  return nodes == nullptr || nodes->count < 2 ? 1 : nodes->count < kMaxNodes ? nodes->count : kMaxNodes;
}

struct Range {
  std::int64_t begin, end;
};

// 0 .. units-1 in items: rounds of one for each thread, half of its part of what is left, at most `most`, in multiples
// of `grain` (the very last item may end before). A single thread's are all the largest.
class Taper {
 public:
  Taper() = default;
  Taper(std::int64_t units, std::int64_t threads, std::int64_t grain, std::int64_t most);

  std::int64_t items() const { return items_; }
  Range item(std::int64_t index) const;  // empty beyond the last

 private:
  struct Stretch {
    std::int64_t first, begin, size;  // item, unit, units of each item
  };
  std::array<Stretch, 16> stretches_;  // of falling sizes; the last one goes on to the end
  int count_ = 0;
  std::int64_t units_ = 0, items_ = 0;
};

// How many units of a matrix an item may have, so that those of the dearest expert are no more than half of a thread's
// part of the work: a unit of that one costs `dearest`, one of each expert together `total`.
std::int64_t fair_units(std::int64_t units, std::int64_t dearest, std::int64_t total, std::int64_t threads);

// What there is to do in a phase.
struct PhaseWork {
  std::int64_t units, times;  // of a matrix (blocks, panels); experts whose matrices are walked one after another
  std::int64_t grain, most;   // of an item
  std::int64_t threads;
  int nodes;
};

class Stripes {
 public:
  explicit Stripes(const PhaseWork& work);

  int nodes() const { return work_.nodes; }
  Range stripe(int node) const { return {edge(node), edge(node + 1)}; }
  std::int64_t items(int node) const { return at(lists_, node).items(); }
  // A piece of the node's list: unit u of it is unit u % n of the stripe, of expert u / n, for stripes of n units.
  // Empty beyond the last item.
  Range item(int node, std::int64_t index) const { return at(lists_, node).item(index); }

 private:
  std::int64_t edge(int node) const {
    return node == work_.nodes ? work_.units : work_.units / work_.grain * node / work_.nodes * work_.grain;
  }

  PhaseWork work_;
  std::array<Taper, kMaxNodes> lists_;
};

// Hands out the items of a phase.
struct Claim {
  int node;
  std::int64_t item;
};

class Claims {
 public:
  Claims(const Stripes& stripes, const NodeMap* nodes);
  std::int64_t total() const { return total_; }
  // Called once for each ticket in [0, total()), by any thread: an item that no other call gets, -1 when there is none
  // left.
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

}  // namespace moe::run
