// Layouts of p16 from the sizes of a layer, and their groups: what becomes of those that kernels cannot step through.
#pragma once

#include <cstdint>
#include <span>

#include "layouts/layout.h"

namespace moe {

// Whether gate and up have a scale each, which vLLM makes one: LayoutVariant::bit_compat_vllm of p16.
constexpr bool may_share_scales(const Layout& l) {
  return l.kind == LayoutKind::p16_e4m3 && l.w13.scale_rows == kAllRows && l.w13.halves == 2;
}
// The p16 layout of a layer; group sizes already checked to divide hidden and intermediate.
Layout p16_layout(LayoutKind kind, const LayoutShape& shape);
// A matrix with columns and groups of the checkpoint, with its groups filled up where they are no multiple of 32.
Matrix filled(Matrix matrix);
// A layout with lists for groups of any sizes, where a matrix has more than one; others as they are.
Layout with_any_groups(const Layout& layout);
inline Layout p16_int4_layout(const LayoutShape& shape) { return p16_layout(LayoutKind::p16_int4, shape); }
// True if `list` names each of `columns` columns exactly once. An entry of -1 names no column.
bool is_order(std::span<const std::int32_t> list, std::int64_t columns);

}  // namespace moe
