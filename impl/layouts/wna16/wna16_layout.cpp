// What follows from a layout of these kinds: matrices and names. See wna16_layout.h.
#include "layouts/wna16/wna16_layout.h"

#include <numeric>

#include "base/checked.h"
#include "layouts/families.h"
#include "layouts/wna16/wna16.h"

namespace moe {
namespace {

// The kernel goes by the number of rows; vLLM by the group against the intermediate size of one partition.
bool has_grouped_scales(const Layout& l, const Wna16Matrix& m, Groups configured) {
  if (m.eight_bit()) return false;
  if (!l.variant.bit_compat_vllm) return m.padded_groups > 1;
  const std::int64_t size_k = m.which == Which::w13 || m.awq ? l.w2.k : m.padded_groups * configured.as_written();
  return configured.is_even() && configured.as_written() < size_k;
}

// Scales of on_the_fly have one group size in both matrices.
int copies_of_scales(const Layout& l, Which which) {
  if (l.w13.group_count() == 0 || l.w2.group_count() == 0) return 1;
  const std::int64_t g1 = l.w13.k / l.w13.group_count(), g2 = l.w2.k / l.w2.group_count();
  std::int64_t g = std::gcd(g1, g2);
  while (g > 1 && (l.w13.k % g != 0 || l.w2.k % g != 0)) g /= 2;
  return g > 0 ? static_cast<int>((which == Which::w13 ? g1 : g2) / g) : 1;
}

}  // namespace

Wna16Matrix wna16_matrix(const Layout& l, Which which) {
  const LayoutVariant& v = l.variant;
  const Matrix& given = l.matrix(which);
  const Groups configured = v.channel_wise ? Groups::whole() : Groups::even(l.w13.group());
  const bool marlin = l.kind == LayoutKind::wna16_marlin, dense = l.kind == LayoutKind::wna16_dense;
  // Of Marlin I is filled up to whole tiles and groups.
  const std::int64_t step = std::lcm(std::int64_t{64}, configured.is_even() ? configured.as_written() : 1);
  const std::int64_t intermediate = marlin ? round_up(l.w2.k, step) : l.w2.k;
  const bool w13 = which == Which::w13, padded = !w13 && intermediate != l.w2.k;
  Wna16Matrix m{.kind = l.kind, .which = which, .bits = row_of(given.element).packed_bits, .halves = given.halves};
  m.half_rows = given.half_rows;
  m.padded_half_rows = w13 ? intermediate : given.half_rows;
  m.k = given.k;
  m.padded_k = w13 ? given.k : intermediate;
  m.groups = given.group_count();
  m.padded_groups = padded && configured.is_even() ? configured.count_in(intermediate) : m.groups;
  // vLLM's emulation classes have no bias, its dense 8-bit one no zero points.
  m.has_zeros = given.has_zeros && !(dense && m.bits == 8 && v.bit_compat_vllm);
  m.has_bias = given.has_bias && !((dense || l.kind == LayoutKind::wna16_on_the_fly) && v.bit_compat_vllm);
  m.awq = v.awq;
  m.zero_shift = v.zero_shift;
  m.scale = given.scales == Scales::bf16 ? DType::bf16 : given.scales == Scales::f32 ? DType::f32 : DType::f16;
  m.bias = v.bias;
  m.number = v.number;
  m.swap_halves = l.kind == LayoutKind::wna16_trtllm && w13;
  if (l.kind == LayoutKind::wna16_on_the_fly) m.repeat = copies_of_scales(l, which);
  if (!marlin) return m;
  m.act_order = given.has_order;
  m.input = v.input;
  m.grouped_scales = has_grouped_scales(l, m, configured);
  m.folded_scales = v.input == MarlinInput::int8 && m.groups > 1;
  m.zeros_in_nibbles = given.has_zeros && (v.awq || !v.bit_compat_vllm);
  return m;
}

bool is_wna16_kind(LayoutKind kind) { return layout_family(kind) == &layout_families::wna16; }

std::vector<std::string_view> wna16_absent(const Layout& layout) {
  std::vector<std::string_view> names;
  each_wna16_part(layout, [&](std::string_view name, const std::optional<LayoutTensor>& tensor) {
    if (!tensor) names.push_back(name);
  });
  return names;
}

int vllm_zero_shift(LayoutKind kind, bool awq, bool has_zeros, ZeroPoints stored) {
  const int below = stored == ZeroPoints::plus_one ? -1 : 0;
  if (kind == LayoutKind::wna16_trtllm || kind == LayoutKind::wna16_xpu) return 0;  // they have no zero points
  if (kind == LayoutKind::wna16_vnni) {
    if (has_zeros) return awq ? below : below + 1;
    return awq ? -1 : 0;
  }
  return has_zeros ? below : 0;
}

}  // namespace moe
