// p16 -> dense numbers: value * scale, one float32 product each (elements without scales: the value), rounded to the
// output type.
#include <cstring>
#include <string>
#include <vector>

#include "base/index.h"
#include "base/number_at.h"
#include "base/text.h"
#include "layouts/dequantize.h"
#include "layouts/p16/p16_layout.h"
#include "layouts/p16/p16_numbers.h"

namespace moe {
namespace {

// The list behind a matrix of the expert at place `local`.
Result<std::vector<std::int32_t>> order_at(const Layout& layout, const std::byte* expert, std::int64_t local,
                                           Which which) {
  const P16 m{layout.matrix(which)};
  const std::byte* matrix = expert + (which == Which::w13 ? 0 : layout.w2_offset());
  std::vector<std::int32_t> list(usize(m.k));
  std::memcpy(list.data(), matrix + m.order_offset(), list.size() * 4);
  if (!is_order(list, m.columns()))
    return fail(Code::format, "packed",
                cat("packed: the columns of ", which == Which::w13 ? "w13" : "w2", " of local expert ", local,
                    " are no list that names each of ", m.columns(), " once"));
  return list;
}

// Where the rows of w13 belong within gate and up; empty where they lie in their own order. With activation order they
// follow w2's columns.
Result<std::vector<std::int32_t>> row_order_of(const Layout& layout, const std::byte* expert, std::int64_t local,
                                               Which which) {
  std::vector<std::int32_t> order;
  if (which == Which::w13 && layout.matrix(which).has_order) {
    MOE_TRY(order, order_at(layout, expert, local, Which::w2));
    std::erase(order, -1);
  }
  return order;
}

std::int64_t row_of_place(const P16& m, const std::vector<std::int32_t>& order, std::int64_t n) {
  const std::int64_t r = n % m.half_rows;
  return order.empty() ? n : n - r + order[usize(r)];
}

}  // namespace

Check read_biases_p16(const Layout& layout, const std::byte* payload, std::int64_t local, Which which,
                      const TensorView& out) {
  const std::byte* expert = payload + usize(local) * layout.expert_stride();
  const P16 m{layout.matrix(which)};
  const std::byte* matrix = expert + (which == Which::w13 ? 0 : layout.w2_offset());
  MOE_TRY(const std::vector<std::int32_t> row_order, row_order_of(layout, expert, local, which));
  for (std::int64_t n = 0; n < m.rows(); ++n) {
    const std::byte* panel = matrix + usize(m.panel_of(n)) * m.panel_bytes();
    const auto value = load<float>(panel + m.bias_offset() + 4 * usize(m.lane_of(n)));
    store_float(out.dtype, value,
                out.data + row_of_place(m, row_order, n) * out.strides[0] * (dtype_bits(out.dtype) / 8));
  }
  return ok();
}

Check dequantize_p16(const Layout& layout, const std::byte* payload, std::int64_t local, Which which,
                     const TensorView& out) {
  MOE_CHECK(check_dense(layout, which, out));
  const std::byte* expert = payload + usize(local) * layout.expert_stride();
  const P16 m{layout.matrix(which)};
  const std::byte* matrix = expert + (which == Which::w13 ? 0 : layout.w2_offset());
  const std::int64_t size = dtype_bits(out.dtype) / 8;
  std::vector<std::int32_t> columns;
  if (m.has_order) {
    MOE_TRY(columns, order_at(layout, expert, local, which));
  }
  MOE_TRY(const std::vector<std::int32_t> row_order, row_order_of(layout, expert, local, which));
  for (std::int64_t n = 0; n < m.rows(); ++n) {
    const std::byte* panel = matrix + usize(m.panel_of(n)) * m.panel_bytes();
    const std::int64_t lane = m.lane_of(n);
    const std::int64_t row = row_of_place(m, row_order, n);
    float scale = 1.0f;
    for (std::int64_t k = 0; k < m.k; ++k) {
      const std::int64_t column = columns.empty() ? k : columns[usize(k)];
      if (!is_value(m.element) && k % m.group() == 0)
        scale = scale_in(m, panel, lane, k / m.group()) * tensor_scale_in(m, panel, lane);
      if (column < 0) continue;
      const float value = value_in(m, panel, lane, k);
      store_float(out.dtype, is_value(m.element) ? value : value * scale,
                  out.data + (row * out.strides[0] + column * out.strides[1]) * size);
    }
  }
  return ok();
}

}  // namespace moe
