// Threads of one process as ranks: for one rank, and for tests. A receiver copies from the sender's buffer.
#pragma once

#include <memory>
#include <vector>

#include "dist/transport.h"

namespace moe::dist {

constexpr int kMostThreadRanks = 1024;

// Connected transports of ranks 0..size-1. When one is destroyed, the operations of the others that need it fail.
std::vector<std::unique_ptr<Transport>> make_threads(int size);

}  // namespace moe::dist
