// Sorting of columns by group. See column_order.h.
#include "convert/column_order.h"

#include <cstring>
#include <string>

namespace moe {

Result<std::vector<std::int32_t>> column_order(std::span<const std::int32_t> g_idx, std::int64_t group, bool is_w13,
                                               std::int64_t expert) {
  const auto columns = static_cast<std::int64_t>(g_idx.size());
  std::vector<std::int32_t> order(g_idx.size());
  std::vector<std::int64_t> next(static_cast<std::size_t>(columns / group));
  for (std::int64_t k = 0; k < columns; ++k) {
    const auto g = static_cast<std::size_t>(g_idx[static_cast<std::size_t>(k)]);
    if (next[g] < group)
      order[static_cast<std::size_t>(static_cast<std::int64_t>(g) * group + next[g])] = static_cast<std::int32_t>(k);
    ++next[g];
  }
  for (std::size_t g = 0; g < next.size(); ++g)
    if (next[g] != group) {
      const std::string place = std::string(is_w13 ? "w13" : "w2") + "_g_idx[" + std::to_string(expert) + "]";
      return fail(Code::unsupported, place,
                  place + ": group " + std::to_string(g) + " has " + std::to_string(next[g]) +
                      " columns; this layout takes groups of " + std::to_string(group) + " only");
    }
  return order;
}

void reorder_columns(CanonicalRows& rows, std::span<const std::int32_t> order, std::vector<std::int8_t>& row) {
  row.resize(order.size());
  for (std::int64_t r = 0; r < rows.count; ++r) {
    std::int8_t* codes = rows.codes.data() + r * rows.stride;
    std::memcpy(row.data(), codes, row.size());
    for (std::size_t k = 0; k < order.size(); ++k) codes[k] = row[static_cast<std::size_t>(order[k])];
  }
}

}  // namespace moe
