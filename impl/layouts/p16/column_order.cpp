// Sorting of columns by group. See column_order.h.
#include "layouts/p16/column_order.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/index.h"
#include "base/text.h"

namespace moe {
namespace {

std::vector<std::int64_t> group_sizes(const Matrix& m, std::span<const std::int32_t> g_idx) {
  if (g_idx.empty()) return std::vector<std::int64_t>(usize(m.source_count()), m.columns() / m.source_count());
  std::vector<std::int64_t> sizes(usize(m.source_count()));
  for (const std::int32_t g : g_idx) ++at(sizes, g);
  return sizes;
}

}  // namespace

std::vector<std::int32_t> ColumnOrder::rows() const {
  std::vector<std::int32_t> list = columns;
  std::erase(list, -1);
  return list;
}

bool holds_groups(const Matrix& m, std::span<const std::int32_t> g_idx) {
  const std::vector<std::int64_t> sizes = group_sizes(m, g_idx);
  return m.source_groups().is_uneven() ||
         std::all_of(sizes.begin(), sizes.end(), [&](std::int64_t n) { return n <= m.group(); });
}

Result<ColumnOrder> column_order(const Matrix& m, std::span<const std::int32_t> g_idx, bool is_w13,
                                 std::int64_t expert) {
  std::vector<std::int64_t> next = group_sizes(m, g_idx);  // becomes the place of the group's next column
  ColumnOrder order;
  order.columns.assign(usize(m.k), -1);
  order.groups.assign(usize(m.group_count()), -1);
  std::int64_t steps = 0;
  for (std::size_t g = 0; g < next.size(); ++g) {
    const std::int64_t size = next[g], first = steps;
    steps += m.source_groups().is_uneven() ? ceil_div(size, m.group()) : 1;
    if (size > (steps - first) * m.group()) {
      const std::string place = cat(is_w13 ? "w13" : "w2", "_g_idx[", expert, "]");
      return fail(Code::unsupported, place,
                  cat(place, ": group ", g, " has ", size, " columns; this layout takes groups of ",
                      m.columns() / m.source_count(), " only"));
    }
    for (std::int64_t i = first; i < steps; ++i) at(order.groups, i) = static_cast<std::int32_t>(g);
    next[g] = first * m.group();
  }
  for (std::int64_t k = 0; k < m.columns(); ++k) {
    const std::int64_t g = g_idx.empty() ? k / (m.columns() / m.source_count()) : at(g_idx, k);
    at(order.columns, at(next, g)++) = static_cast<std::int32_t>(k);
  }
  return order;
}

void arrange_columns(const CanonicalRows& rows, const ColumnOrder& order, CanonicalRows& out) {
  for (std::int64_t r = 0; r < rows.count; ++r) {
    const std::int8_t* from = rows.row(r);
    std::int8_t* to = out.codes.data() + r * out.stride;
    for (std::size_t k = 0; k < order.columns.size(); ++k)
      to[k] = order.columns[k] < 0 ? std::int8_t{0} : from[order.columns[k]];
    for (std::size_t g = 0; g < order.groups.size(); ++g) {
      if (order.groups[g] < 0) continue;
      const auto at = usize(r * out.groups) + g;
      const auto source = usize(r * rows.groups + order.groups[g]);
      out.scales[at] = rows.scales[source];
      if (!out.zeros.empty()) out.zeros[at] = rows.zeros[source];
    }
  }
  out.bias = rows.bias;
}

void write_list(const P16& m, const ColumnOrder& order, std::byte* out) {
  if (!m.has_order) return;
  const std::size_t bytes = order.columns.size() * sizeof(std::int32_t);
  std::memcpy(out, order.columns.data(), bytes);
  std::memset(out + bytes, 0, m.bytes() - m.order_offset() - bytes);
}

}  // namespace moe
