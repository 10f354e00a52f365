// Layout identities. See layout.h. The address formula is checked at compile time: within one panel
// every nibble is used at most once.
#include "scheme/layout.h"

#include <array>

namespace moe {
namespace {

template <std::int64_t K, std::int64_t Group, bool Bias, Element E = Element::int4>
consteval bool bijective() {
  constexpr P16Matrix m{.element = E, .half_rows = 16, .halves = 1, .k = K, .group = Group, .has_bias = Bias};
  std::array<bool, m.panel_bytes() * 2> seen{};
  for (std::int64_t lane = 0; lane < kPanelRows; ++lane)
    for (std::int64_t k = 0; k < K; ++k) {
      const bool high = E == Element::int4 && P16Matrix::nibble_high(k);
      for (std::size_t i = 0; i < element_bits(E) / 4; ++i) {
        const std::size_t nibble = m.code_offset(lane, k) * 2 + (high ? 1 : 0) + i;
        if (nibble >= seen.size() || seen[nibble]) return false;
        seen[nibble] = true;
      }
    }
  return true;
}
static_assert(bijective<128, 32, false>() && bijective<96, 32, true>());
static_assert(bijective<128, 64, true>() && bijective<192, 96, false>() && bijective<46, 46, true>());
static_assert(bijective<46, 46, true, Element::bf16>() && bijective<64, 64, false, Element::f16>());
static_assert(bijective<46, 46, true, Element::f32>());

std::string grouping_word(const P16Matrix& m) {
  if (m.grouping() == Grouping::channel) return "cw";
  return std::string("g").append(std::to_string(m.group));
}

constexpr std::array kElementNames = {"int4", "bf16", "f16", "f32"};

}  // namespace

std::string Layout::id() const {
  if (!p16_element(kind)) return "";
  std::string s = std::string("p16/") + kElementNames[static_cast<std::size_t>(w13.element)];
  if (w13.grouping() != Grouping::none) {
    s.append("-").append(grouping_word(w13));
    if (grouping_word(w2) != grouping_word(w13)) s.append(",").append(grouping_word(w2));
  }
  if (w13.has_bias) s += "-bias";
  return s + "/1";
}

Layout p16_layout(LayoutKind kind, const LayoutShape& s) {
  const Element element = p16_element(kind).value_or(Element::int4);
  const auto group = [&](std::int64_t k) { return s.group == -1 || element != Element::int4 ? k : s.group; };
  Layout l;
  l.kind = kind;
  l.w13 = {.element = element,
           .half_rows = s.intermediate,
           .halves = s.gated ? 2 : 1,
           .k = s.hidden,
           .group = group(s.hidden),
           .has_bias = s.has_bias};
  l.w2 = {.element = element,
          .half_rows = s.hidden,
          .halves = 1,
          .k = s.intermediate,
          .group = group(s.intermediate),
          .has_bias = s.has_bias};
  l.experts = s.experts;
  return l;
}

}  // namespace moe
