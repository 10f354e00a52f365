// Activation order: the columns of a matrix sorted by group, so that groups are runs as everywhere else.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "convert/canonical.h"

namespace moe {

// The columns in ascending groups, within a group in their own order: place -> column. Each group must have `group`
// columns (Code::unsupported, "w13_g_idx[e]").
Result<std::vector<std::int32_t>> column_order(std::span<const std::int32_t> g_idx, std::int64_t group, bool is_w13,
                                               std::int64_t expert);

// Brings the codes of all rows into this order. `row`: room.
void reorder_columns(CanonicalRows& rows, std::span<const std::int32_t> order, std::vector<std::int8_t>& row);

}  // namespace moe
