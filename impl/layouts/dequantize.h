// The way back from packed bytes to dense numbers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "base/tensor.h"
#include "layouts/layout.h"

namespace moe {

// Reverses the packing of one matrix of the expert at place `local` into dense numbers, one float32 product each,
// rounded to out.dtype (f32, f16, bf16). w13: gate rows, then up rows.
Check dequantize(const Layout& layout, const std::byte* payload, std::int64_t local, Which which,
                 const TensorView& out);

// The biases of one matrix of that expert into `out`, a float type and [rows]: gate rows, then up rows. The matrix has
// some.
Check read_biases(const Layout& layout, const std::byte* payload, std::int64_t local, Which which,
                  const TensorView& out);

// What its files share.
// The tensor that the caller gave for a matrix: a float type and [rows, k].
Check check_dense(const Layout& layout, Which which, const TensorView& out);
// `dequantize` of p16.
Check dequantize_p16(const Layout& layout, const std::byte* payload, std::int64_t local, Which which,
                     const TensorView& out);
Check read_biases_p16(const Layout& layout, const std::byte* payload, std::int64_t local, Which which,
                      const TensorView& out);

}  // namespace moe
