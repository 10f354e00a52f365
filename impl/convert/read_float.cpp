// Weights that are not quantized: F32, F16 or BF16 [N, K] -> values of the element of the layout.
//
// A checkpoint whose numbers are wider than the layout's is rounded to nearest even, as loading a model in a
// narrower dtype does everywhere; a finite number that would become Inf is a fault. Inf and NaN stay.
#include <algorithm>
#include <bit>
#include <cmath>

#include "base/decimal.h"
#include "base/float_formats.h"
#include "convert/read_rows.h"

namespace moe::convert {
namespace {

template <Element kElement>
float as_element(float x) {
  if constexpr (kElement == Element::bf16) return bf16_to_f32(f32_to_bf16(x));
  if constexpr (kElement == Element::f16) return f16_to_f32(f32_to_f16(x));
  return x;
}

bool is_inf(float x) { return (std::bit_cast<std::uint32_t>(x) & 0x7fffffffu) == 0x7f800000u; }

// Whether no finite number became Inf.
template <DType kStored, Element kElement>
bool read_row(const std::byte* src, std::int64_t step, std::int64_t count, float* out) {
  std::uint32_t bad = 0;
  const auto read = [&](std::int64_t bytes) {
    for (std::int64_t k = 0; k < count; ++k) {
      const float x = load_float(kStored, src + k * bytes), y = as_element<kElement>(x);
      bad |= static_cast<std::uint32_t>(is_inf(y)) & ~static_cast<std::uint32_t>(is_inf(x));
      out[k] = y;
    }
  };
  constexpr std::int64_t kSize = kStored == DType::f32 ? 4 : 2;
  if (step == kSize)
    read(kSize);  // a constant: vectors
  else
    read(step);
  return bad == 0;
}

using ReadValues = bool (*)(const std::byte* src, std::int64_t step, std::int64_t count, float* out);

static_assert(std::count_if(kElements.begin(), kElements.end(),
                            [](const ElementRow& e) { return e.numbers == Numbers::values; }) == 3,
              "reader_of() has f32, bf16 and f16");

// Weights of these formats are f32, bf16 or f16, too.
template <Element kElement>
ReadValues reader_of(DType stored) {
  if (stored == DType::f32) return read_row<DType::f32, kElement>;
  return stored == DType::bf16 ? read_row<DType::bf16, kElement> : read_row<DType::f16, kElement>;
}

ReadValues reader_of(DType stored, Element element) {
  if (element == Element::f32) return reader_of<Element::f32>(stored);
  return element == Element::bf16 ? reader_of<Element::bf16>(stored) : reader_of<Element::f16>(stored);
}

}  // namespace

Check read_floats(const SourceMatrix& m, const SourceHalf& half, const RowPlace& at, CanonicalRows& out) {
  const TensorView& t = half.codes;
  const std::int64_t size = dtype_bits(t.dtype) / 8, step = t.strides[1] * size;
  const std::byte* src = t.data + at.r * t.strides[0] * size;
  float* row = out.values.data() + at.i * out.stride;
  if (reader_of(t.dtype, m.element)(src, step, m.k, row)) return ok();
  std::int64_t k = 0;  // there is one, unless another thread writes them
  while (k < m.k - 1 && (!std::isinf(row[k]) || std::isinf(load_float(t.dtype, src + k * step)))) ++k;
  return value_error(m, "weight", half.code_rows, at.r,
                     {k, "value " + float_text(load_float(t.dtype, src + k * step)) +
                             " is beyond the largest number of the input dtype " +
                             (m.element == Element::f16 ? "float16" : "bfloat16")});
}

}  // namespace moe::convert
