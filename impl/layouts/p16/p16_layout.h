// Layouts of p16 from the sizes of a layer, and their groups: what becomes of those that kernels cannot step through.
//
// Conversion, selection and emulation make layouts here, so that the same checkpoint gets the same
// id and bytes on every way.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "layouts/layout.h"

namespace moe {

// Whether gate and up have a scale each, which vLLM makes one: LayoutVariant::bit_compat_vllm of p16.
// vLLM computes the larger one and requantizes the other half. Keeping both is exact and is what we
// do, except for a caller that asks for vLLM's bytes.
constexpr bool may_share_scales(const Layout& l) {
  return l.kind == LayoutKind::p16_e4m3 && l.w13.scale_rows == kAllRows && l.w13.halves == 2;
}
// Whether kernels may quantize activations with scales of the checkpoint's: LayoutVariant::input_scales of p16. The
// payload is the same; a packed block then has them beside it.
constexpr bool may_have_input_scales(const Layout& l) {
  return l.kind == LayoutKind::p16_e4m3 || l.kind == LayoutKind::p16_nvfp4;
}
// Whether rows can be divided by a checkpoint's scale of the input, and multiplied by it.
inline bool is_input_scale(float scale) { return scale > 0 && std::isnormal(scale) && std::isnormal(1.0f / scale); }
// The p16 layout of a layer; group sizes already checked to divide hidden and intermediate.
// It fills groups up where one of the matrices needs it, and then gives both a list: the engine
// asks one question per layer, not per matrix.
Layout p16_layout(LayoutKind kind, const LayoutShape& shape);
// A matrix with columns and groups of the checkpoint, with its groups filled up where they are no multiple of 32.
// A kernel applies a scale after a sum over 32 columns (NVFP4: 16). A group of 40 becomes 64
// places, 24 of them empty, whose activations count as 0. Uneven groups have unknown sizes, so
// memory is reserved for the worst case: each group ends one column behind a whole step. The bound
// is exact, not an estimate, and layouts made before the weights are read always suffice.
Matrix filled(Matrix matrix);
// A layout with lists for groups of any sizes, where a matrix has more than one; others as they are.
// Only for weights with an order: without one all groups have the size of the config.
Layout with_any_groups(const Layout& layout);
inline Layout p16_int4_layout(const LayoutShape& shape) { return p16_layout(LayoutKind::p16_int4, shape); }
// True if `list` names each of `columns` columns exactly once. An entry of -1 names no column.
// Files and callers give lists; an entry beyond the columns would be an address beyond a row.
bool is_order(std::span<const std::int32_t> list, std::int64_t columns);

}  // namespace moe
