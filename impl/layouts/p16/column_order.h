// The places of columns in a layout with lists (layouts/p16/p16.h): sorted by group, groups filled up to whole steps.
//
// Two reasons lead to a list. act_order: GPTQ sorts columns by importance while it quantizes, so
// the columns of a group lie anywhere. Filling up: a group of 40 columns takes 64 places. The
// kernel sees the same in both cases, whole groups in a row, and the engine gathers the input by
// the list.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "layouts/p16/p16.h"
#include "layouts/rows.h"

namespace moe {

// int32, as it is stored: no checkpoint has 2^31 columns (the config allows 2^20).
struct ColumnOrder {
  std::vector<std::int32_t> columns;  // [k] of the layout: the checkpoint's column, -1: none. Empty: as they are
  std::vector<std::int32_t> groups;   // [groups] of the layout: the checkpoint's group, -1: none

  bool empty() const { return columns.empty(); }
  // The columns alone: the order of the rows that make them.
  // w13's rows are written in this order, so the middle row comes out in w2's order; only its empty
  // places are spread in at run time.
  std::vector<std::int32_t> rows() const;
};

// Columns in ascending groups, within a group in their own order. g_idx: the group of each column, empty: groups of one
// size, one behind another. Where the layout has groups of one size, none may have more columns (Code::unsupported,
// "w13_g_idx[e]").
// The order within a group is free for the result of integer sums, but must be one and the same for
// float sums: ascending, so that equal checkpoints give equal bytes.
Result<ColumnOrder> column_order(const Matrix& matrix, std::span<const std::int32_t> g_idx, bool is_w13,
                                 std::int64_t expert);
// True if column_order() cannot fail for this g_idx: every group fits the layout's group size.
// Asked first where a choice exists: a layout for any groups is larger.
bool holds_groups(const Matrix& matrix, std::span<const std::int32_t> g_idx);

// Rows of the checkpoint -> rows of the layout: `out` is shaped for places.
void arrange_columns(const CanonicalRows& rows, const ColumnOrder& order, CanonicalRows& out);
// The list behind the panels: m.bytes() - m.order_offset() bytes.
// Its tail up to 64 bytes is 0, as all padding.
void write_list(const P16& m, const ColumnOrder& order, std::byte* out);

}  // namespace moe
