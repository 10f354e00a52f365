// The family of each named layout, and how its tensors lie in the payload. See families.h.
#include "layouts/families.h"

#include "base/index.h"

namespace moe {
namespace {

constexpr std::size_t kTensorAlignment = 64;

std::optional<std::int64_t> elements_of(const LayoutTensor& t) {
  if (!t.strides.empty()) return t.strides[0];
  std::int64_t n = 1;
  for (const std::int64_t d : t.shape)
    if (d < 0 || __builtin_mul_overflow(n, d, &n)) return std::nullopt;
  return n;
}

}  // namespace

const LayoutFamily* layout_family(LayoutKind kind) {
  switch (kind) {
#define MOE_P16(kind_, ...) case LayoutKind::kind_:
#define MOE_NAMED(...)
#include "layouts/layout_kinds.inc"
    case LayoutKind::none:
    case LayoutKind::foreign:
      return nullptr;
#define MOE_P16(...)
#define MOE_NAMED(kind_, number_, family_) \
  case LayoutKind::kind_:                  \
    return &layout_families::family_;
#include "layouts/layout_kinds.inc"
  }
  return nullptr;  // a number of a damaged file
}

Layout make_named_layout(LayoutKind kind, const LayoutShape& s, const LayoutVariant& variant) {
  const auto matrix = [&](std::int64_t half_rows, int halves, std::int64_t k) {
    return Matrix{.element = s.element,
                  .scales = s.scales,
                  .has_zeros = s.has_zeros,
                  .half_rows = half_rows,
                  .halves = halves,
                  .k = k,
                  .groups = s.groups.in(k),
                  .has_bias = s.has_bias,
                  .has_order = s.has_order,
                  .scale_rows = s.scale_rows};
  };
  Layout l{.kind = kind,
           .w13 = matrix(s.intermediate, s.gated ? 2 : 1, s.hidden),
           .w2 = matrix(s.hidden, 1, s.intermediate),
           .experts = s.experts,
           .variant = variant};
  place_tensors(l);
  return l;
}

void place_tensors(Layout& l) {
  l.tensors.clear();
  layout_family(l.kind)->list(l);
  std::size_t at = 0;
  for (LayoutTensor& t : l.tensors) {
    t.offset = round_up(at, kTensorAlignment);
    t.bytes = usize(elements_of(t).value_or(0)) * usize(dtype_bits(t.dtype)) / 8;
    at = l.end_of(t);
  }
}

std::optional<std::int64_t> checked_payload_bytes(const Layout& l) {
  if (p16_element(l.kind)) {
    const auto bytes = checked_mul({l.experts, static_cast<std::int64_t>(l.expert_stride())});
    return bytes && *bytes <= INT64_MAX / 2 ? bytes : std::nullopt;
  }
  std::int64_t at = 0;
  for (const LayoutTensor& t : l.tensors) {
    const auto n = elements_of(t);
    if (!n) return std::nullopt;
    const auto bits = checked_mul({*n, dtype_bits(t.dtype), t.shared ? 1 : l.experts});
    if (!bits || *bits / 8 > INT64_MAX / 2 - at) return std::nullopt;
    at = round_up(at + *bits / 8, static_cast<std::int64_t>(kTensorAlignment));
  }
  return static_cast<std::int64_t>(l.payload_bytes());
}

}  // namespace moe
