// Layout identities. See layout.h. The address formula is checked at compile time: within one panel
// every piece of a byte is used at most once.
#include "layouts/layout.h"

#include <algorithm>
#include <array>

#include "base/index.h"
#include "base/text.h"
#include "layouts/families.h"

namespace moe {
namespace {

template <std::int64_t K, std::int64_t Group, bool Bias, Element E = Element::int4, Scales S = Scales::w4a8,
          std::int64_t ScaleRows = 1>
consteval bool bijective() {
  constexpr P16Matrix m{.element = E,
                        .scales = S,
                        .half_rows = 16,
                        .halves = 1,
                        .k = K,
                        .groups = Groups::of_size(Group, K),
                        .has_bias = Bias,
                        .scale_rows = ScaleRows};
  // In pieces of as many bits as every code has whole ones of: counting bits costs a compiler too many steps.
  constexpr int kBits = row_of(E).packed_bits, kPiece = kBits < 4 ? kBits : 4;
  static_assert(kBits % kPiece == 0 && 8 % kPiece == 0);
  std::array<bool, m.panel_bytes() * (8 / kPiece)> seen{};
  for (std::int64_t lane = 0; lane < kPanelRows; ++lane)
    for (std::int64_t k = 0; k < K; ++k) {
      const bool high = kBits == 4 && P16Matrix::nibble_high(k);
      const std::size_t first = m.code_offset(lane, k) * (8 / kPiece) + (high ? 1 : 0);
      for (std::size_t piece = first; piece < first + kBits / kPiece; ++piece) {
        if (piece >= seen.size() || seen[piece]) return false;
        seen[piece] = true;
      }
    }
  return true;
}

// One at a time: compilers limit the steps of a constant.
static_assert(bijective<128, 32, false>());
static_assert(bijective<96, 32, true>());
static_assert(bijective<128, 64, true>());
static_assert(bijective<192, 96, false>());
static_assert(bijective<46, 46, true>());
static_assert(bijective<46, 46, true, Element::bf16>());
static_assert(bijective<64, 64, false, Element::f16>());
static_assert(bijective<46, 46, true, Element::f32>());
static_assert(bijective<128, 32, true, Element::int8, Scales::bf16>());
static_assert(bijective<46, 46, true, Element::int8, Scales::f32>());
static_assert(bijective<128, 32, true, Element::e2m1, Scales::e8m0>());
static_assert(bijective<96, 16, true, Element::e2m1, Scales::e4m3>());
static_assert(bijective<128, 32, false, Element::e2m3, Scales::e8m0>());
static_assert(bijective<128, 128, true, Element::e4m3, Scales::f32, kAllRows>());
static_assert(bijective<96, 64, true, Element::e4m3, Scales::f32, 32>());

}  // namespace

std::string grouping_word(const P16Matrix& m) {
  if (m.source_groups().is_uneven()) return cat("u", m.source_count());
  const std::int64_t size = m.source_groups().size_in(m.columns());
  if (m.scale_rows > 1) return cat("b", m.scale_rows, "x", size);
  if (m.grouping() == Grouping::channel) return m.scale_rows == kAllRows ? "t" : "cw";
  // Groups of small floats with a byte of scale are what their formats say.
  return cat(!is_integer(m.element) && m.scales == Scales::f32 ? "b1x" : "g", size);
}

std::string Layout::id() const {
  if (const LayoutFamily* family = layout_family(kind)) return family->id(*this);
  const P16Kind* row = p16_kind(kind);
  if (row == nullptr) return "";
  std::string s = cat("p16/", row->word);
  if (w13.grouping() != Grouping::none) {
    s.append("-").append(grouping_word(w13));
    if (grouping_word(w2) != grouping_word(w13)) s.append(",").append(grouping_word(w2));
  }
  if (row->any_float) s += row_of(w13.scales).suffix;
  if (w13.has_zeros) s += "-zp";
  if (w13.has_order) s += "-ao";
  if (w13.has_bias) s += "-bias";
  if (variant.bit_compat_vllm) s += "-vllm";
  return s + "/1";
}

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

P16Matrix filled(P16Matrix m) {
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
  for (P16Matrix* m : {&l.w13, &l.w2}) {
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
    const P16Matrix m{.element = row.element,
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
