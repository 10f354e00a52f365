// Two layouts of W4A8 weights have each matrix as one blob.
#pragma once

#include <string_view>

#include "layouts/families.h"

namespace moe {

inline std::string_view blob_name(Which which) { return which == Which::w13 ? "w13_packed" : "w2_packed"; }

inline void list_blobs(Layout& l, DType dtype, std::int64_t (*length)(const Matrix& m)) {
  l.tensors.push_back({.name = blob_name(Which::w13), .dtype = dtype, .shape = {length(l.w13)}});
  l.tensors.push_back({.name = blob_name(Which::w2), .dtype = dtype, .shape = {length(l.w2)}});
}

inline bool is_w4a8(const Matrix& m) {
  return m.element == Element::int4 && m.scales == Scales::w4a8 && !m.has_zeros && !m.has_order && m.scale_rows == 1 &&
         m.k % 2 == 0 && (m.groups.is_whole() || m.group() % 32 == 0);
}
inline bool are_w4a8(const Layout& l) { return is_w4a8(l.w13) && is_w4a8(l.w2) && l.variant == LayoutVariant{}; }

}  // namespace moe
