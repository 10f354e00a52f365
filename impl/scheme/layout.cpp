// Layout identities. See layout.h. The address formula is checked at compile time: within one panel
// every nibble is used exactly once.
#include "scheme/layout.h"

#include <array>

namespace moe {
namespace {

template <std::int64_t K, std::int64_t Group, bool Bias>
consteval bool bijective() {
  constexpr P16Matrix m{.half_rows = 16, .halves = 1, .k = K, .group = Group, .has_bias = Bias};
  std::array<bool, m.panel_bytes() * 2> seen{};
  for (std::int64_t lane = 0; lane < kPanelRows; ++lane)
    for (std::int64_t k = 0; k < K; ++k) {
      const std::size_t nibble = m.code_offset(lane, k) * 2 + (P16Matrix::nibble_high(k) ? 1 : 0);
      if (nibble >= seen.size() || seen[nibble]) return false;
      seen[nibble] = true;
    }
  return true;
}
static_assert(bijective<128, 32, false>() && bijective<96, 32, true>());
static_assert(bijective<128, 64, true>() && bijective<192, 96, false>() && bijective<46, 46, true>());

std::string grouping_word(const P16Matrix& m) {
  if (m.grouping() == Grouping::channel) return "cw";
  return std::string("g").append(std::to_string(m.group));
}

}  // namespace

std::string Layout::id() const {
  if (kind != LayoutKind::p16_int4) return "";
  std::string s = "p16/int4-" + grouping_word(w13);
  if (grouping_word(w2) != grouping_word(w13)) s.append(",").append(grouping_word(w2));
  if (w13.has_bias) s += "-bias";
  return s + "/1";
}

Layout p16_int4_layout(const LayoutShape& s) {
  const auto group = [&](std::int64_t k) { return s.group == -1 ? k : s.group; };
  Layout l;
  l.kind = LayoutKind::p16_int4;
  l.w13 = {.half_rows = s.intermediate,
           .halves = s.gated ? 2 : 1,
           .k = s.hidden,
           .group = group(s.hidden),
           .has_bias = s.has_bias};
  l.w2 = {
      .half_rows = s.hidden, .halves = 1, .k = s.intermediate, .group = group(s.intermediate), .has_bias = s.has_bias};
  l.experts = s.experts;
  return l;
}

}  // namespace moe
