// What the ways back to dense numbers share.
#pragma once

#include "convert/convert.h"

namespace moe::convert {

// The tensor that the caller gave for a matrix: a float type and [rows, k].
Check check_dense(const Layout& layout, Matrix which, const TensorView& out);
// `dequantize` of p16.
Check dequantize_p16(const Layout& layout, const std::byte* payload, std::int64_t local, Matrix which,
                     const TensorView& out);
// x rounded to f32, f16 or bf16.
void store_dense(DType dtype, float x, std::byte* at);

}  // namespace moe::convert
