// p16 -> dense numbers: value * scale, one float32 product each (float elements: the value), rounded to the output
// type.
#include <array>
#include <cstring>
#include <string>

#include "base/float_formats.h"
#include "convert/convert.h"

namespace moe {
namespace {

template <class T>
T load(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof(T));
  return v;
}

void store(DType dtype, float x, std::byte* p) {
  if (dtype == DType::f32) {
    std::memcpy(p, &x, 4);
    return;
  }
  const std::uint16_t h = dtype == DType::bf16 ? f32_to_bf16(x) : f32_to_f16(x);
  std::memcpy(p, &h, 2);
}

float scale_at(const P16Matrix& m, const std::byte* panel, std::int64_t lane, std::int64_t g) {
  const std::byte* at = panel + m.scale_offset(lane, g);
  if (m.scale_bytes() == 4)  // W4A8 keeps s / 16
    return m.scales == Scales::w4a8 ? load<float>(at) * 16.0f : load<float>(at);
  const auto h = load<std::uint16_t>(at);
  return m.scales == Scales::f16 ? f16_to_f32(h) : bf16_to_f32(h);
}

// The code of value 0.
int zero_at(const P16Matrix& m, const std::byte* panel, std::int64_t lane, std::int64_t g) {
  if (!m.has_zeros) return code_bias(m.element);
  return load<std::uint8_t>(panel + m.zero_offset() + static_cast<std::size_t>(g * kPanelRows + lane));
}

int code_at(const P16Matrix& m, const std::byte* at, std::int64_t k) {
  const auto byte = static_cast<unsigned>(*at);
  if (m.element == Element::int8) return static_cast<int>(byte);
  return static_cast<int>(P16Matrix::nibble_high(k) ? byte >> 4 : byte & 15u);
}

// Elements without a scale.
float value_at(const P16Matrix& m, const std::byte* at) {
  if (m.element == Element::f32) return load<float>(at);
  const auto h = load<std::uint16_t>(at);
  return m.element == Element::bf16 ? bf16_to_f32(h) : f16_to_f32(h);
}

Check check_out(const P16Matrix& m, const char* role, const TensorView& out) {
  if (!is_float16_or_32(out.dtype))
    return fail(Code::dtype, "out",
                std::string("out: expected f32, f16 or bf16 for ") + role + ", got " + dtype_name(out.dtype));
  if (out.ndim != 2 || out.shape[0] != m.rows() || out.shape[1] != m.k) {
    const std::array want{m.rows(), m.k};
    return fail(Code::shape, "out",
                std::string("out: expected shape ") + shape_text(want) + " for " + role + ", got " +
                    shape_text({out.shape.data(), static_cast<std::size_t>(out.ndim)}));
  }
  return ok();
}

}  // namespace

Check dequantize_p16(const Layout& layout, const std::byte* expert, Matrix which, const TensorView& out) {
  if (!p16_element(layout.kind))
    return fail(Code::unsupported, "layout", "this build cannot read the packed layout '" + layout.id() + "'");
  const bool w13 = which == Matrix::w13;
  const P16Matrix& m = w13 ? layout.w13 : layout.w2;
  MOE_CHECK(check_out(m, w13 ? "w13_weight" : "w2_weight", out));
  const std::byte* matrix = expert + (w13 ? 0 : layout.w2_offset());
  const std::int64_t size = dtype_bits(out.dtype) / 8;
  for (std::int64_t n = 0; n < m.rows(); ++n) {
    const std::byte* panel = matrix + static_cast<std::size_t>(m.panel_of(n)) * m.panel_bytes();
    const std::int64_t lane = m.lane_of(n);
    float scale = 0.0f;
    int zero = 0;
    for (std::int64_t k = 0; k < m.k; ++k) {
      std::byte* to = out.data + (n * out.strides[0] + k * out.strides[1]) * size;
      const std::byte* at = panel + m.code_offset(lane, k);
      if (!is_integer(m.element)) {
        store(out.dtype, value_at(m, at), to);
        continue;
      }
      if (k % m.group == 0) {
        scale = scale_at(m, panel, lane, k / m.group);
        zero = zero_at(m, panel, lane, k / m.group);
      }
      store(out.dtype, static_cast<float>(code_at(m, at, k) - zero) * scale, to);
    }
  }
  return ok();
}

}  // namespace moe
