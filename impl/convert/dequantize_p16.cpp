// p16 -> dense numbers: value * scale, one float32 product each (float elements: the value), rounded to the output
// type.
#include <cstring>
#include <string>
#include <vector>

#include "base/float_formats.h"
#include "base/load.h"
#include "convert/dense.h"

namespace moe {
namespace {

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

// The list behind a matrix of the expert at place `local`.
Result<std::vector<std::int32_t>> order_at(const Layout& layout, const std::byte* expert, std::int64_t local,
                                           Matrix which) {
  const P16Matrix& m = layout.matrix(which);
  const std::byte* matrix = expert + (which == Matrix::w13 ? 0 : layout.w2_offset());
  std::vector<std::int32_t> list(static_cast<std::size_t>(m.k));
  std::memcpy(list.data(), matrix + m.order_offset(), list.size() * 4);
  if (!is_order(list, m.columns()))
    return fail(Code::format, "packed",
                std::string("packed: the columns of ") + (which == Matrix::w13 ? "w13" : "w2") + " of local expert " +
                    std::to_string(local) + " are no list that names each of " + std::to_string(m.columns()) + " once");
  return list;
}

}  // namespace

Check dequantize_p16(const Layout& layout, const std::byte* payload, std::int64_t local, Matrix which,
                     const TensorView& out) {
  MOE_CHECK(check_dense(layout, which, out));
  const std::byte* expert = payload + static_cast<std::size_t>(local) * layout.expert_stride();
  const P16Matrix& m = layout.matrix(which);
  const std::byte* matrix = expert + (which == Matrix::w13 ? 0 : layout.w2_offset());
  const std::int64_t size = dtype_bits(out.dtype) / 8;
  std::vector<std::int32_t> columns, row_order;
  if (m.has_order) {
    MOE_TRY(columns, order_at(layout, expert, local, which));
    if (which == Matrix::w13) {
      MOE_TRY(row_order, order_at(layout, expert, local, Matrix::w2));
      std::erase(row_order, -1);
    }
  }
  for (std::int64_t n = 0; n < m.rows(); ++n) {
    const std::byte* panel = matrix + static_cast<std::size_t>(m.panel_of(n)) * m.panel_bytes();
    const std::int64_t lane = m.lane_of(n);
    const std::int64_t r = n % m.half_rows;
    const std::int64_t row = row_order.empty() ? n : n - r + row_order[static_cast<std::size_t>(r)];
    float scale = 0.0f;
    int zero = 0;
    for (std::int64_t k = 0; k < m.k; ++k) {
      const std::int64_t column = columns.empty() ? k : columns[static_cast<std::size_t>(k)];
      const std::byte* at = panel + m.code_offset(lane, k);
      if (k % m.group() == 0 && is_integer(m.element)) {
        scale = scale_at(m, panel, lane, k / m.group());
        zero = zero_at(m, panel, lane, k / m.group());
      }
      if (column < 0) continue;
      std::byte* to = out.data + (row * out.strides[0] + column * out.strides[1]) * size;
      if (!is_integer(m.element)) {
        store_dense(out.dtype, value_at(m, at), to);
        continue;
      }
      store_dense(out.dtype, static_cast<float>(code_at(m, at, k) - zero) * scale, to);
    }
  }
  return ok();
}

}  // namespace moe
