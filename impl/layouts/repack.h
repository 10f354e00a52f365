// Weights in a named layout -> one of ours, for a CPU that is to run them: what backend EMULATION does with a Marlin,
// XPU or VNNI layout (wna16.md 11). Both say the same numbers; the scales become float32, so nothing is rounded
// again.
//
// Only WNA16 layouts have a way here (wna16.md 11 names the backend); for all others
// repacked_layout() says nullopt.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "base/parallel.h"
#include "base/result.h"
#include "layouts/layout.h"
#include "layouts/p16/column_order.h"
#include "layouts/rows.h"

namespace moe {

// The p16 layout that holds what `from` says, any_groups: with activation order and groups of several sizes; nullopt
// where none does.
// any_groups is a second try: a g_idx may have groups of unequal sizes, which only its bytes tell,
// and the layout for those reserves memory for the worst case.
std::optional<Layout> repacked_layout(const Layout& from, bool any_groups = false);

// The panels of a matrix from all of its rows; `order_of_rows`: that of the halves' rows, empty: as they are.
// order_of_rows: with activation order on w2, rows of w13 are written in the order in which w2
// wants its columns, so the middle row needs no permutation at run time.
void write_p16_rows(const CanonicalRows& all, const P16& m, const ColumnOrder& order,
                    std::span<const std::int32_t> order_of_rows, std::byte* out);

// Fills the payload of `to`, which is repacked_layout(from). Faults of stored orders: Code::format; groups of several
// sizes that `to` has no space for: Code::unsupported.
// Expert by expert on all threads; each has one expert in plain form at a time.
Check repack_experts(const Layout& from, const std::byte* payload, const Layout& to, std::span<std::byte> out,
                     const Parallel& parallel);

// For one that makes panels when they are needed: panels [first, first + count) of a matrix of `to`, which has no
// activation order. `scratch` is panel_rows_for(to), by one caller at a time: nothing is allocated.
// bind/emulate.cpp does so: the other engine's bytes stay as they are, and a call makes the panels
// that it multiplies. The vectors of `scratch` have grown to the larger matrix before, so no call
// allocates.
CanonicalRows panel_rows_for(const Layout& to);
void repack_panels(const Layout& from, const std::byte* payload, const Layout& to, Which which, std::int64_t local,
                   std::int64_t first, std::int64_t count, CanonicalRows& scratch, std::byte* out);

}  // namespace moe
