// Two layouts of W4A8 weights have each matrix as one blob.
//
// torch_float and kai. vLLM's W4A8 op takes one blob per matrix, with scales and biases in it, so
// there are no named parts and a host asks for w13_packed and w2_packed.
#pragma once

#include <string_view>

#include "layouts/families.h"

namespace moe {

inline std::string_view blob_name(Which which) { return which == Which::w13 ? "w13_packed" : "w2_packed"; }

// The length is in elements of dtype: PyTorch's generic blob is float32, KleidiAI's bytes. PyTorch
// tells the two apart by the number of elements alone, so it must be exact.
inline void list_blobs(Layout& l, DType dtype, std::int64_t (*length)(const Matrix& m)) {
  l.tensors.push_back({.name = blob_name(Which::w13), .dtype = dtype, .shape = {length(l.w13)}});
  l.tensors.push_back({.name = blob_name(Which::w2), .dtype = dtype, .shape = {length(l.w2)}});
}

// What both formats can hold: symmetric, no order, pairs of columns in a byte, groups of whole
// chunks of 32.
inline bool is_w4a8(const Matrix& m) {
  return m.element == Element::int4 && m.scales == Scales::w4a8 && !m.has_zeros && !m.has_order && m.scale_rows == 1 &&
         m.k % 2 == 0 && (m.groups.is_whole() || m.group() % 32 == 0);
}
inline bool are_w4a8(const Layout& l) { return is_w4a8(l.w13) && is_w4a8(l.w2) && l.variant == LayoutVariant{}; }

}  // namespace moe
