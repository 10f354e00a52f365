// What a rank does with rows that came: looks at their ids, runs its experts on them, and lays the results where they
// are sent from; those of its own tokens where they are added.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/result.h"
#include "dist/memory.h"
#include "dist/origin.h"
#include "run/layer.h"

namespace moe::dist {

// Ids of all rows, before any is used; counts what goes back. A rank that sent what it may not is named.
Check read_rows(const Spread& spread, Memory& m);
// engine_rows: of a run. layer: null when there are no rows. It fails as Parallel does. pack_ns: what copies of results
// take is added.
Check run_rows(const Spread& spread, const run::Layer* layer, std::int64_t engine_rows, std::span<std::byte> workspace,
               Memory& m, const Parallel& parallel, std::atomic<std::uint64_t>& pack_ns);

}  // namespace moe::dist
