// Expert by expert: both matrices in plain form, then panel by panel into p16. See repack.h.
#include "layouts/repack.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/each_expert.h"
#include "base/index.h"
#include "layouts/families.h"
#include "layouts/p16/column_order.h"
#include "layouts/p16/p16_layout.h"
#include "layouts/p16/write_p16.h"
#include "layouts/wna16/wna16.h"

namespace moe {
namespace {

// Row `from` of a whole matrix becomes row i of a panel.
void copy_row(const CanonicalRows& all, std::int64_t from, CanonicalRows& panel, std::int64_t i) {
  const auto copy = [&](const auto& source, auto& target, std::int64_t width) {
    if (!target.empty() && !source.empty())
      std::copy_n(source.begin() + from * width, width, target.begin() + i * width);
  };
  copy(all.codes, panel.codes, all.stride);
  copy(all.values, panel.values, all.stride);
  copy(all.scales, panel.scales, all.groups);
  copy(all.tensor_scales, panel.tensor_scales, 1);
  copy(all.zeros, panel.zeros, all.groups);
  copy(all.bias, panel.bias, 1);
}

struct Plain {
  CanonicalRows rows;
  ColumnOrder order;
};

Result<Plain> read_plain(const Layout& from, const std::byte* payload, std::int64_t local, Which which,
                         const Matrix& to) {
  Plain plain;
  plain.rows.shape(to.rows(), to);
  MOE_CHECK(layout_family(from.kind)->read({from, payload, local}, which, plain.rows));
  if (to.has_order) {
    MOE_TRY(plain.order, column_order(to, plain.rows.g_idx, which == Which::w13, local));
  }
  return plain;
}

Check repack_expert(const Layout& from, const std::byte* payload, const Layout& to, std::int64_t local,
                    std::byte* out) {
  MOE_TRY(const Plain w13, read_plain(from, payload, local, Which::w13, to.w13));
  MOE_TRY(const Plain w2, read_plain(from, payload, local, Which::w2, to.w2));
  const P16 m13{to.w13}, m2{to.w2};
  write_p16_rows(w13.rows, m13, w13.order, w2.order.rows(), out);
  write_p16_rows(w2.rows, m2, w2.order, {}, out + m13.bytes());
  const std::size_t used = m13.bytes() + m2.bytes();
  std::memset(out + used, 0, to.expert_stride() - used);
  return ok();
}

}  // namespace

void write_p16_rows(const CanonicalRows& all, const P16& m, const ColumnOrder& order,
                    std::span<const std::int32_t> order_of_rows, std::byte* out) {
  CanonicalRows rows, placed;
  rows.shape(kPanelRows, m);
  if (!order.empty()) placed.shape(kPanelRows, m, true);
  for (std::int64_t p = 0; p < ceil_div(m.half_rows, kPanelRows); ++p) {
    const std::int64_t row0 = p * kPanelRows, n = std::min(kPanelRows, m.half_rows - row0);
    for (int half = 0; half < m.halves; ++half, out += m.panel_bytes()) {
      for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t r = order_of_rows.empty() ? row0 + i : at(order_of_rows, row0 + i);
        copy_row(all, half * m.half_rows + r, rows, i);
      }
      rows.clear_from(n);
      if (!order.empty()) arrange_columns(rows, order, placed);
      write_p16_panel(m, order.empty() ? rows : placed, out);
    }
  }
  write_list(m, order, out);
}

std::optional<Layout> repacked_layout(const Layout& from, bool any_groups) {
  if (!is_wna16_kind(from.kind)) return std::nullopt;
  const Wna16Matrix w13 = wna16_matrix(from, Which::w13);
  const bool dense = from.kind == LayoutKind::wna16_dense;
  LayoutKind kind = w13.bits == 4 ? LayoutKind::p16_w4 : LayoutKind::p16_w8;
  if (dense)
    kind = w13.number == DType::f16    ? LayoutKind::p16_f16
           : w13.number == DType::bf16 ? LayoutKind::p16_bf16
                                       : LayoutKind::p16_f32;
  Layout to = p16_layout(kind, {.experts = from.experts,
                                .hidden = from.w13.k,
                                .intermediate = from.w2.k,
                                .groups = {},
                                .gated = from.w13.halves == 2,
                                .has_bias = w13.has_bias,
                                .scales = Scales::f32,
                                .has_zeros = from.w13.has_zeros || from.kind == LayoutKind::wna16_vnni,
                                .has_order = from.w13.has_order && !dense});
  if (dense) return to;
  to.w13.groups = from.w13.groups;
  to.w2.groups = from.w2.groups;
  for (Matrix* m : {&to.w13, &to.w2}) *m = filled(*m);
  to.w13.has_order = to.w2.has_order = to.w13.has_order || to.w2.has_order;
  return any_groups ? with_any_groups(to) : to;
}

Check repack_experts(const Layout& from, const std::byte* payload, const Layout& to, std::span<std::byte> out,
                     const Parallel& parallel) {
  const auto body = [&](std::size_t, std::int64_t local) {
    return repack_expert(from, payload, to, local, out.data() + usize(local) * to.expert_stride());
  };
  return each_expert(0, from.experts, workers_for(from.experts, parallel), parallel, nullptr, body);
}

CanonicalRows panel_rows_for(const Layout& to) {
  CanonicalRows rows;
  for (const Matrix* m : {&to.w13, &to.w2}) rows.shape(kPanelRows, *m);  // vectors keep what they have had
  return rows;
}

void repack_panels(const Layout& from, const std::byte* payload, const Layout& to, Which which, std::int64_t local,
                   std::int64_t first, std::int64_t count, CanonicalRows& scratch, std::byte* out) {
  const P16 m{to.matrix(which)};
  scratch.shape(kPanelRows, m);
  for (std::int64_t p = first; p < first + count; ++p, out += m.panel_bytes()) {
    const std::int64_t row0 = p / m.halves * kPanelRows, n = std::min(kPanelRows, m.half_rows - row0);
    read_wna16_rows({from, payload, local}, which, {p % m.halves * m.half_rows + row0, n}, scratch);
    scratch.clear_from(n);
    write_p16_panel(m, scratch, out);
  }
}

}  // namespace moe
