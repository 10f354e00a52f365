// Weights that are not quantized: F32, F16 or BF16 [N, K] -> values of the element of the layout.
//
// A checkpoint whose numbers are wider than the layout's is rounded to nearest even, as loading a model in a
// narrower dtype does everywhere; a finite number that would become Inf is a fault. Inf and NaN stay.
#include <cmath>

#include "base/float_formats.h"
#include "convert/read_rows.h"

namespace moe {
namespace {

float as_element(Element element, float x) {
  if (element == Element::bf16) return bf16_to_f32(f32_to_bf16(x));
  if (element == Element::f16) return f16_to_f32(f32_to_f16(x));
  return x;
}

}  // namespace

Check read_floats(const SourceMatrix& m, const SourceHalf& half, std::int64_t r, std::int64_t i, CanonicalRows& out) {
  const TensorView& t = half.codes;
  const std::int64_t size = dtype_bits(t.dtype) / 8;
  const std::byte* src = t.data + r * t.strides[0] * size;
  float* row = out.values.data() + i * out.stride;
  for (std::int64_t k = 0; k < m.k; ++k) {
    const float x = load_float(t.dtype, src + k * t.strides[1] * size);
    row[k] = as_element(m.element, x);
    if (std::isinf(row[k]) && !std::isinf(x))
      return value_error(m, "weight", half.code_rows, r,
                         {k, "value " + float_text(x) + " is beyond the largest number of the input dtype " +
                                 (m.element == Element::f16 ? "float16" : "bfloat16")});
  }
  return ok();
}

}  // namespace moe
