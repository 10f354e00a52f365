// The named layouts, and how their tensors lie in the payload. See layout_named.h.
#include "scheme/layout_named.h"

#include <array>

#include "scheme/layout_kai.h"
#include "scheme/wna16_layout.h"

namespace moe {
namespace {

constexpr std::size_t kTensorAlignment = 64;

// The two blobs of W4A8 hold everything of a matrix.
void list_blobs(Layout& l, DType dtype, std::int64_t (*length)(const P16Matrix& m)) {
  l.tensors.push_back({.name = "w13_packed", .dtype = dtype, .shape = {length(l.w13)}});
  l.tensors.push_back({.name = "w2_packed", .dtype = dtype, .shape = {length(l.w2)}});
}

// --- PyTorch's generic blob (w4a8_int8.md 4) ------------------------------------------------------------------

bool is_w4a8(const P16Matrix& m) {
  return m.element == Element::int4 && m.scales == Scales::w4a8 && !m.has_zeros && !m.has_order && m.k % 2 == 0 &&
         (m.groups.is_whole() || m.group() % 32 == 0);
}
bool are_w4a8(const Layout& l) { return is_w4a8(l.w13) && is_w4a8(l.w2) && l.variant == LayoutVariant{}; }

std::string torch_id(const Layout& l) {
  std::string s = "torch/dyn_quant_4bit-" + grouping_word(l.w13);
  if (grouping_word(l.w2) != grouping_word(l.w13)) s += "," + grouping_word(l.w2);
  return s + (l.w13.has_bias ? "-bias/1" : "/1");
}

void list_torch(Layout& l) {
  list_blobs(l, DType::f32, [](const P16Matrix& m) {
    return m.rows() * m.k / 2 + m.rows() * m.group_count() + (m.has_bias ? m.rows() : 0);
  });
}

// --- KleidiAI (layout_kai.h) --------------------------------------------------------------------------------------

std::string kai_word(const P16Matrix& m) { return m.groups.is_whole() ? "qsi4cxp" : "qsi4c32p-" + grouping_word(m); }

std::string kai_id(const Layout& l) {
  std::string s = "kai/" + kai_word(l.w13);
  if (kai_word(l.w2) != kai_word(l.w13)) s += "," + kai_word(l.w2);
  return s + (l.w13.has_bias ? "-bias/1" : "/1");
}

void list_kai(Layout& l) {
  list_blobs(l, DType::u8, [](const P16Matrix& m) { return static_cast<std::int64_t>(KaiMatrix(m).bytes()); });
}

constexpr NamedLayout wna16(LayoutKind kind) { return {kind, wna16_id, is_wna16, list_wna16}; }

constexpr std::array kNamed = {
    NamedLayout{LayoutKind::torch_float, torch_id, are_w4a8, list_torch},
    NamedLayout{LayoutKind::kai, kai_id, are_w4a8, list_kai},
    wna16(LayoutKind::wna16_marlin),
    wna16(LayoutKind::wna16_trtllm),
    wna16(LayoutKind::wna16_xpu),
    wna16(LayoutKind::wna16_vnni),
    wna16(LayoutKind::wna16_on_the_fly),
    wna16(LayoutKind::wna16_dense),
};

std::optional<std::int64_t> elements_of(const LayoutTensor& t) {
  std::int64_t n = 1;
  for (const std::int64_t d : t.shape)
    if (d < 0 || __builtin_mul_overflow(n, d, &n)) return std::nullopt;
  return n;
}

}  // namespace

const NamedLayout* named_layout(LayoutKind kind) {
  for (const NamedLayout& row : kNamed)
    if (row.kind == kind) return &row;
  return nullptr;
}

Layout make_named_layout(LayoutKind kind, const LayoutShape& s, const LayoutVariant& variant) {
  const auto matrix = [&](std::int64_t half_rows, int halves, std::int64_t k) {
    return P16Matrix{.element = s.element,
                     .scales = s.scales,
                     .has_zeros = s.has_zeros,
                     .half_rows = half_rows,
                     .halves = halves,
                     .k = k,
                     .groups = s.groups.in(k),
                     .has_bias = s.has_bias,
                     .has_order = s.has_order};
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
  named_layout(l.kind)->list(l);
  std::size_t at = 0;
  for (LayoutTensor& t : l.tensors) {
    t.offset = round_up(at, kTensorAlignment);
    t.bytes = static_cast<std::size_t>(elements_of(t).value_or(0)) * static_cast<std::size_t>(dtype_bits(t.dtype)) / 8;
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
