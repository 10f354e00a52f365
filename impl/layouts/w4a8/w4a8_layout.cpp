// The two forms of W4A8 weights that PyTorch packs, whole matrices as one blob each: its generic one (w4a8_int8.md 4)
// and KleidiAI's (kai.h).
#include "layouts/named_layouts.h"
#include "layouts/w4a8/kai.h"

namespace moe {
namespace {

void list_blobs(Layout& l, DType dtype, std::int64_t (*length)(const P16Matrix& m)) {
  l.tensors.push_back({.name = "w13_packed", .dtype = dtype, .shape = {length(l.w13)}});
  l.tensors.push_back({.name = "w2_packed", .dtype = dtype, .shape = {length(l.w2)}});
}

bool is_w4a8(const P16Matrix& m) {
  return m.element == Element::int4 && m.scales == Scales::w4a8 && !m.has_zeros && !m.has_order && m.scale_rows == 1 &&
         m.k % 2 == 0 && (m.groups.is_whole() || m.group() % 32 == 0);
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

std::string kai_word(const P16Matrix& m) { return m.groups.is_whole() ? "qsi4cxp" : "qsi4c32p-" + grouping_word(m); }

std::string kai_id(const Layout& l) {
  std::string s = "kai/" + kai_word(l.w13);
  if (kai_word(l.w2) != kai_word(l.w13)) s += "," + kai_word(l.w2);
  return s + (l.w13.has_bias ? "-bias/1" : "/1");
}

void list_kai(Layout& l) {
  list_blobs(l, DType::u8, [](const P16Matrix& m) { return static_cast<std::int64_t>(KaiMatrix(m).bytes()); });
}

}  // namespace

constinit const NamedLayout named_layouts::torch_float = {LayoutKind::torch_float, torch_id, are_w4a8, list_torch};
constinit const NamedLayout named_layouts::kai = {LayoutKind::kai, kai_id, are_w4a8, list_kai};

}  // namespace moe
