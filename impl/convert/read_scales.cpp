// Scales of every type -> float32, as they are or rounded to bf16. All faults of a row are looked for together; only a
// bad row is searched for its first one.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <string>

#include "base/decimal.h"
#include "base/float_formats.h"
#include "convert/read_rows.h"

namespace moe::convert {
namespace {

constexpr std::uint32_t kInfinity = 0x7f800000u;

// How scales become those of the plain form. Scales of integers have a sign: some tools give a group the sign with
// which its value of largest magnitude becomes the code of -8 or -128. Scales of floats have none.
struct ScaleRule {
  bool to_bf16, is_signed;
};

// Whether all of them are numbers, and >= 0 where they have no sign. Rounding to bf16 is that of f32_to_bf16, of
// numbers.
template <Scales kType>
bool read_scales(const std::byte* src, std::int64_t step, std::int64_t count, ScaleRule rule, std::uint64_t& rounded,
                 float* out) {
  const std::uint32_t last = rule.is_signed ? 0xffffffffu : 0x80000000u;
  std::uint32_t bad = 0, inexact = 0;
  for (std::int64_t g = 0; g < count; ++g) {
    const auto bits = std::bit_cast<std::uint32_t>(load_scale(kType, src + g * step));
    const std::uint32_t kept = rule.to_bf16 ? (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u : bits;
    bad |= static_cast<std::uint32_t>((bits & 0x7fffffffu) >= kInfinity) | static_cast<std::uint32_t>(bits > last) |
           static_cast<std::uint32_t>((kept & kInfinity) == kInfinity);
    inexact += static_cast<std::uint32_t>(kept != bits);
    out[g] = std::bit_cast<float>(kType == Scales::e4m3 ? kept & 0x7fffffffu : kept);  // a byte for 0, not two
  }
  rounded += inexact;
  return bad == 0;
}

using ReadScales = bool (*)(const std::byte* src, std::int64_t step, std::int64_t count, ScaleRule rule,
                            std::uint64_t& rounded, float* out);

// How a tensor of this type holds scales, and its reader. Files have those of MX formats as U8, too.
struct ScaleReader {
  DType dtype;
  Scales type;
  ReadScales read;
};
constexpr std::array kReaders = {
    ScaleReader{DType::f32, Scales::f32, read_scales<Scales::f32>},
    ScaleReader{DType::bf16, Scales::bf16, read_scales<Scales::bf16>},
    ScaleReader{DType::f16, Scales::f16, read_scales<Scales::f16>},
    ScaleReader{DType::f8_e4m3fn, Scales::e4m3, read_scales<Scales::e4m3>},
    ScaleReader{DType::f8_e8m0fnu, Scales::e8m0, read_scales<Scales::e8m0>},
    ScaleReader{DType::u8, Scales::e8m0, read_scales<Scales::e8m0>},
};

// Tensors are of a type that their row of the checkpoint allows: it is here.
const ScaleReader& reader_of(DType dtype) {
  return *std::find_if(kReaders.begin(), kReaders.end(), [&](const ScaleReader& r) { return r.dtype == dtype; });
}

// The first scale that is none.
Fault find_bad_scale(const ScaleReader& reader, const std::byte* src, std::int64_t step, std::int64_t count,
                     ScaleRule rule) {
  const std::string expected = rule.is_signed ? " is not a finite number" : " is not a finite number >= 0";
  for (std::int64_t g = 0; g < count; ++g) {
    const float s = load_scale(reader.type, src + g * step);
    if (!std::isfinite(s) || (s < 0.0f && !rule.is_signed)) return Fault{g, "scale " + float_text(s) + expected};
    if (rule.to_bf16 && !std::isfinite(bf16_to_f32(f32_to_bf16(s))))
      return Fault{g, "scale " + float_text(s) + " is beyond the largest bf16 number"};
  }
  return {0, "the scales change while they are read"};
}

}  // namespace

namespace {

// The row of the tensor in which row r of a half has its scales, counted from `rows`.
std::int64_t scale_row(const SourceMatrix& m, const RowNumbers& rows, std::int64_t r) {
  return m.rows_of_scale == 1 ? r : (rows.first + rows.step * r) / m.rows_of_scale;
}

Error scale_error(const SourceMatrix& m, const SourceHalf& half, std::int64_t r, const Fault& fault) {
  if (m.rows_of_scale == 1) return value_error(m, "scale", half.scale_rows, r, fault);
  RowNumbers told = half.scale_rows;
  told.first = scale_row(m, told, r), told.step = 0;
  return value_error(m, "scale", told, r, fault);
}

}  // namespace

Check read_row_scales(const SourceMatrix& m, const SourceHalf& half, std::int64_t r, std::int64_t i,
                      CanonicalRows& out) {
  const TensorView& t = half.scales;
  const std::int64_t size = dtype_bits(t.dtype) / 8, step = t.ndim > 1 ? t.strides[1] * size : 0;
  const std::int64_t count = t.ndim > 1 ? t.shape[1] : 1;
  const std::byte* src = t.data + scale_row(m, half.scale_fields, r) * t.strides[0] * size;
  const ScaleReader& reader = reader_of(t.dtype);
  float* to = out.scales.data() + i * out.groups;
  const ScaleRule rule = {.to_bf16 = m.bf16_scales, .is_signed = is_integer(m.element)};
  if (reader.read(src, step, count, rule, out.scales_rounded, to)) {
    for (std::int64_t g = m.groups_of_scale == 1 ? 0 : count; g-- > 0;) to[2 * g] = to[2 * g + 1] = to[g];
    if (m.scale_divisor != 1)
      for (std::int64_t g = 0; g < count; ++g) to[g] /= m.scale_divisor;
    return ok();
  }
  return scale_error(m, half, r, find_bad_scale(reader, src, step, count, rule));
}

}  // namespace moe::convert
