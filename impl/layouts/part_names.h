// What tensors of other engines' layouts are called: parts of w13 and w2, of families wna16 and floats.
//
// One table for all layouts, since hosts ask by name (moe_packed_get) and should not need to know
// the layout to do so. A part that a layout lacks is then MISSING_WEIGHT instead of an unknown
// name.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/enum_set.h"
#include "base/index.h"
#include "layouts/matrix.h"

namespace moe {

// In the order in which tensors lie in the payload.
// The order is part of the packing, because it decides offsets in stored payloads: a new part must
// not come between parts that a layout has already.
enum class LayoutPart : std::uint8_t {
  // packed codes, or values
  weight,
  scale,
  // NVFP4: the scale of a projection's scales; W4A8 with fp8 activations: the scale of a row's
  scale_2,
  // act_order: the group of each column, and the stable order that sorts columns by it
  g_idx,
  g_idx_sort_indices,
  zero_point,
  // Marlin with int8 activations: what its int16 scales are units of
  input_global_scale,
  // static activations
  input_scale,
  // FlashInfer: weight scale * activation scale, one product per expert, ready for the epilogue
  alpha,
  bias,
  workspace  // one for both matrices
};
// A constant of its own, as C++20 cannot count enumerators; the assertion below catches a row that
// is missing or out of place.
constexpr std::size_t kLayoutParts = 11;

// Both names are written out, not put together: names are constants of the program and are compared
// and handed out without memory of their own.
struct NamePair {
  std::string_view w13, w2;

  constexpr std::string_view of(Which which) const { return which == Which::w13 ? w13 : w2; }
};
// vllms are the names of parameters of vLLM's layers, brief the short words of a host's functions.
// A host may ask by the word that its code already has.
struct PartNames {
  LayoutPart part;
  NamePair tensor;
  NamePair brief = {}, vllms = {};  // other spellings, short and vLLM's, where there are some
};
inline constexpr std::array<PartNames, kLayoutParts> kPartNames = {{
    {LayoutPart::weight, {"w13_weight", "w2_weight"}, {"w13", "w2"}, {"w13_qweight", "w2_qweight"}},
    {LayoutPart::scale, {"w13_scale", "w2_scale"}, {"s13", "s2"}, {"w13_scales", "w2_scales"}},
    {LayoutPart::scale_2, {"w13_scale_2", "w2_scale_2"}, {"g13", "g2"}},
    {LayoutPart::g_idx, {"w13_g_idx", "w2_g_idx"}},
    {LayoutPart::g_idx_sort_indices, {"w13_g_idx_sort_indices", "w2_g_idx_sort_indices"}},
    {LayoutPart::zero_point, {"w13_zero_point", "w2_zero_point"}, {}, {"w13_qzeros", "w2_qzeros"}},
    {LayoutPart::input_global_scale, {"w13_input_global_scale", "w2_input_global_scale"}},
    {LayoutPart::input_scale, {"w13_input_scale", "w2_input_scale"}, {"a13", "a2"}},
    {LayoutPart::alpha, {"w13_alpha", "w2_alpha"}, {"g1_alphas", "g2_alphas"}},
    {LayoutPart::bias, {"w13_bias", "w2_bias"}, {"b13", "b2"}},
    {LayoutPart::workspace, {"workspace", "workspace"}},
}};
static_assert([] {
  for (std::size_t i = 0; i < kPartNames.size(); ++i)
    if (usize(kPartNames[i].part) != i) return false;
  return true;
}());

constexpr std::string_view part_name(Which which, LayoutPart part) { return at(kPartNames, part).tensor.of(which); }

// The parts of a family, and those of which moe_packed_get also takes another spelling.
// A family opts in to spellings: "w13_scales" of a layout that vLLM has no such parameter for would
// be a wrong answer rather than a convenience.
struct FamilyParts {
  EnumSet<LayoutPart> parts = {}, brief = {}, vllms = {};

  // The name of a tensor, from one of its spellings; "" for others.
  constexpr std::string_view name_of(std::string_view spelled) const {
    for (const PartNames& row : kPartNames)
      for (const Which which : {Which::w13, Which::w2}) {
        const auto is = [&](EnumSet<LayoutPart> set, const NamePair& names) {
          return set.has(row.part) && !spelled.empty() && names.of(which) == spelled;
        };
        if (is(parts, row.tensor) || is(brief, row.brief) || is(vllms, row.vllms)) return row.tensor.of(which);
      }
    return {};
  }
};

}  // namespace moe
