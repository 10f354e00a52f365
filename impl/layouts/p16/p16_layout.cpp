// See p16_layout.h.
#include "layouts/p16/p16_layout.h"

#include <algorithm>
#include <vector>

#include "base/checked.h"
#include "base/index.h"

namespace moe {

bool is_order(std::span<const std::int32_t> list, std::int64_t columns) {
  std::vector<bool> seen(usize(columns));
  std::int64_t named = 0;
  for (const std::int32_t i : list) {
    if (i == -1) continue;
    if (i < 0 || i >= columns || seen[usize(i)]) return false;
    seen[usize(i)] = true;
    ++named;
  }
  return named == columns;
}

namespace {

// Columns of which groups have whole steps, so that no step of a kernel has two scales that it does not know of.
constexpr std::int64_t group_step(Scales scales) { return scales == Scales::e4m3 ? 16 : 32; }

}  // namespace

Matrix filled(Matrix m) {
  const std::int64_t step = group_step(m.scales);
  const std::int64_t count = m.group_count();
  if (is_value(m.element) || m.groups.is_whole() || (m.groups.is_even() && m.group() % step == 0)) return m;
  m.source = {.count = m.k, .groups = m.groups};
  m.has_order = true;
  if (m.groups.is_even()) {
    m.groups = Groups::even(round_up(m.group(), step));
    m.k = count * m.group();
  } else {  // at worst each group holds one column more than whole steps
    const std::int64_t begun = std::min(count, m.k);
    m.k = (begun + (m.k - begun) / step) * step;
    m.groups = Groups::of_size(step, m.k);
  }
  return m;
}

Layout with_any_groups(const Layout& layout) {
  Layout l = layout;
  if (!p16_element(l.kind) || !l.w13.has_order) return l;
  for (Matrix* m : {&l.w13, &l.w2}) {
    const std::int64_t count = m->source_count();
    if (m->source_groups().is_uneven() || count == 1) continue;  // one group has all columns
    m->k = m->columns();
    m->groups = Groups::uneven(count);
    *m = filled(*m);
  }
  return l;
}

Layout p16_layout(LayoutKind kind, const LayoutShape& s) {
  const P16Kind& row = *p16_kind(kind);
  const bool has_codes = !is_value(row.element);
  // One matrix has a list when the other has.
  const std::int64_t size = s.groups.as_written();
  const bool fills =
      s.groups.is_even() && size % group_step(row.scales) != 0 && !(size == s.hidden && size == s.intermediate);
  const auto matrix = [&](std::int64_t half_rows, int halves, std::int64_t k, Groups groups) {
    const Matrix m{.element = row.element,
                   .scales = row.any_float ? s.scales : row.scales,
                   .has_zeros = is_integer(row.element) && row.any_float && s.has_zeros,
                   .half_rows = half_rows,
                   .halves = halves,
                   .k = k,
                   .groups = has_codes ? groups.in(k) : Groups::whole(),
                   .has_bias = s.has_bias,
                   .has_order = has_codes && (s.has_order || fills),
                   .scale_rows = has_codes ? s.scale_rows : 1};
    return filled(m);
  };
  return {.kind = kind,
          .w13 = matrix(s.intermediate, s.gated ? 2 : 1, s.hidden, s.groups),
          .w2 = matrix(s.hidden, 1, s.intermediate, s.w2_groups.value_or(s.groups)),
          .experts = s.experts};
}

}  // namespace moe
