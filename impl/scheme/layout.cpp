// Layout identities. See layout.h. The address formula is checked at compile time: within one panel
// every nibble is used at most once.
#include "scheme/layout.h"

#include <array>

#include "scheme/layout_named.h"

namespace moe {
namespace {

template <std::int64_t K, std::int64_t Group, bool Bias, Element E = Element::int4, Scales S = Scales::w4a8>
consteval bool bijective() {
  constexpr P16Matrix m{
      .element = E, .scales = S, .half_rows = 16, .halves = 1, .k = K, .group = Group, .has_bias = Bias};
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
static_assert(bijective<128, 32, true, Element::int8, Scales::bf16>() &&
              bijective<46, 46, true, Element::int8, Scales::f32>());

// By LayoutKind and Scales.
constexpr std::array kKindNames = {"", "int4", "", "bf16", "f16", "f32", "w4", "w8"};
constexpr std::array kScaleNames = {"", "", "-f32", "-bf16", "-f16"};

}  // namespace

std::string grouping_word(const P16Matrix& m) {
  if (m.grouping() == Grouping::channel) return "cw";
  return std::string("g").append(std::to_string(m.group));
}

std::string Layout::id() const {
  if (const NamedLayout* named = named_layout(kind)) return named->id(*this);
  if (!p16_element(kind)) return "";
  std::string s = std::string("p16/") + kKindNames[static_cast<std::size_t>(kind)];
  if (w13.grouping() != Grouping::none) {
    s.append("-").append(grouping_word(w13));
    if (grouping_word(w2) != grouping_word(w13)) s.append(",").append(grouping_word(w2));
  }
  s += kScaleNames[static_cast<std::size_t>(w13.scales)];
  if (w13.has_zeros) s += "-zp";
  if (w13.has_order) s += "-ao";
  if (w13.has_bias) s += "-bias";
  return s + "/1";
}

bool is_order(std::span<const std::int32_t> list) {
  std::vector<bool> seen(list.size());
  for (const std::int32_t i : list) {
    if (i < 0 || static_cast<std::size_t>(i) >= list.size() || seen[static_cast<std::size_t>(i)]) return false;
    seen[static_cast<std::size_t>(i)] = true;
  }
  return true;
}

Layout p16_layout(LayoutKind kind, const LayoutShape& s) {
  const Element element = p16_element(kind).value_or(Element::int4);
  const bool plain = kind == LayoutKind::p16_w4 || kind == LayoutKind::p16_w8;
  const auto matrix = [&](std::int64_t half_rows, int halves, std::int64_t k) {
    return P16Matrix{.element = element,
                     .scales = plain                 ? s.scales
                               : is_integer(element) ? Scales::w4a8
                                                     : Scales::none,
                     .has_zeros = plain && s.has_zeros,
                     .half_rows = half_rows,
                     .halves = halves,
                     .k = k,
                     .group = s.group == -1 || !is_integer(element) ? k : s.group,
                     .has_bias = s.has_bias,
                     .has_order = is_integer(element) && s.has_order};
  };
  return {.kind = kind,
          .w13 = matrix(s.intermediate, s.gated ? 2 : 1, s.hidden),
          .w2 = matrix(s.hidden, 1, s.intermediate),
          .experts = s.experts};
}

}  // namespace moe
