// The way back from packed bytes to dense numbers.
//
// It serves moe_packed_dequantize: hosts compare layouts with it, and tests prove that packing lost
// nothing. It goes number by number and shares p16_numbers.h with the scalar kernels, but nothing
// with the others, so it is a check of what those read.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "base/tensor.h"
#include "layouts/layout.h"

namespace moe {

// Reverses the packing of one matrix of the expert at place `local` into dense numbers, one float32 product each,
// rounded to out.dtype (f32, f16, bf16). w13: gate rows, then up rows.
// One product and then one rounding to out.dtype: that is what a dense reference of the checkpoint
// has. A lane of p16 is found through P16, named layouts go back through their plain form.
Check dequantize(const Layout& layout, const std::byte* payload, std::int64_t local, Which which,
                 const TensorView& out);

// The biases of one matrix of that expert into `out`, a float type and [rows]: gate rows, then up rows. The matrix has
// some.
Check read_biases(const Layout& layout, const std::byte* payload, std::int64_t local, Which which,
                  const TensorView& out);

// What its files share.
// The tensor that the caller gave for a matrix: a float type and [rows, k].
// Columns are those of the checkpoint: the places that filling up added are left out.
Check check_dense(const Layout& layout, Which which, const TensorView& out);
// `dequantize` of p16.
// In a file of its own because it reads panels in place: the plain form of a large matrix would
// take as much memory as the matrix.
Check dequantize_p16(const Layout& layout, const std::byte* payload, std::int64_t local, Which which,
                     const TensorView& out);
Check read_biases_p16(const Layout& layout, const std::byte* payload, std::int64_t local, Which which,
                      const TensorView& out);

}  // namespace moe
