// The places of columns in a layout with lists (layouts/p16/p16.h): sorted by group, groups filled up to whole steps.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "layouts/p16/p16.h"
#include "layouts/rows.h"

namespace moe {

struct ColumnOrder {
  std::vector<std::int32_t> columns;  // [k] of the layout: the checkpoint's column, -1: none. Empty: as they are
  std::vector<std::int32_t> groups;   // [groups] of the layout: the checkpoint's group, -1: none

  bool empty() const { return columns.empty(); }
  // The columns alone: the order of the rows that make them.
  std::vector<std::int32_t> rows() const;
};

// Columns in ascending groups, within a group in their own order. g_idx: the group of each column, empty: groups of one
// size, one behind another. Where the layout has groups of one size, none may have more columns (Code::unsupported,
// "w13_g_idx[e]").
Result<ColumnOrder> column_order(const Matrix& matrix, std::span<const std::int32_t> g_idx, bool is_w13,
                                 std::int64_t expert);
// True if column_order() cannot fail for this g_idx: every group fits the layout's group size.
bool holds_groups(const Matrix& matrix, std::span<const std::int32_t> g_idx);

// Rows of the checkpoint -> rows of the layout: `out` is shaped for places.
void arrange_columns(const CanonicalRows& rows, const ColumnOrder& order, CanonicalRows& out);
// The list behind the panels: m.bytes() - m.order_offset() bytes.
void write_list(const P16& m, const ColumnOrder& order, std::byte* out);

}  // namespace moe
