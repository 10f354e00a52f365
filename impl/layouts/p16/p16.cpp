// The addresses of p16.h are checked at compile time: within one panel every piece of a byte is used at most once.
#include "layouts/p16/p16.h"

#include <array>

namespace moe {
namespace {

template <std::int64_t K, std::int64_t Group, bool Bias, Element E = Element::int4, Scales S = Scales::w4a8,
          std::int64_t ScaleRows = 1>
consteval bool bijective() {
  constexpr P16 m{{.element = E,
                   .scales = S,
                   .half_rows = 16,
                   .halves = 1,
                   .k = K,
                   .groups = Groups::of_size(Group, K),
                   .has_bias = Bias,
                   .scale_rows = ScaleRows}};
  // In pieces of as many bits as every code has whole ones of: counting bits costs a compiler too many steps.
  constexpr int kBits = row_of(E).packed_bits, kPiece = kBits < 4 ? kBits : 4;
  static_assert(kBits % kPiece == 0 && 8 % kPiece == 0);
  std::array<bool, m.panel_bytes() * (8 / kPiece)> seen{};
  for (std::int64_t lane = 0; lane < kPanelRows; ++lane)
    for (std::int64_t k = 0; k < K; ++k) {
      const bool high = kBits == 4 && P16::nibble_high(k);
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
}  // namespace moe
