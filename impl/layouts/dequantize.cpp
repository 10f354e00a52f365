// Packed bytes -> dense numbers: p16 in place, named layouts through the plain form.
#include <array>
#include <string>

#include "base/index.h"
#include "base/number_at.h"
#include "base/text.h"
#include "layouts/dequantize.h"
#include "layouts/families.h"
#include "layouts/p16/p16_numbers.h"

namespace moe {
namespace {

// (code - zero) * scale, one float32 product; values are what they are. The last group may be cut short.
float dense_value(const CanonicalRows& rows, const Matrix& m, std::int64_t n, std::int64_t k) {
  const Element element = m.element;
  if (!rows.values.empty()) return rows.row_values(n)[k];
  const std::int64_t group = rows.g_idx.empty() ? k / m.groups.size_in(m.k) : rows.g_idx[usize(k)];
  if (!is_integer(element)) {
    const float scale = rows.row_scales(n)[group] * (rows.tensor_scales.empty() ? 1.0f : at(rows.tensor_scales, n));
    return small_value(element, static_cast<std::uint8_t>(rows.row(n)[k])) * scale;
  }
  const int zero = rows.zeros.empty() ? 0 : rows.zeros[usize(n * rows.groups + group)] - code_bias(element);
  return static_cast<float>(rows.row(n)[k] - zero) * rows.row_scales(n)[group];
}

Check dequantize_named(const LayoutFamily& form, const Layout& layout, const std::byte* payload, std::int64_t local,
                       Which which, const TensorView& out) {
  MOE_CHECK(check_dense(layout, which, out));
  const Matrix& m = layout.matrix(which);
  CanonicalRows rows;
  rows.shape(m.rows(), m);
  MOE_CHECK(form.read({layout, payload, local}, which, rows));
  const std::int64_t size = dtype_bits(out.dtype) / 8;
  for (std::int64_t n = 0; n < m.rows(); ++n)
    for (std::int64_t k = 0; k < m.k; ++k)
      store_float(out.dtype, dense_value(rows, m, n, k), out.data + (n * out.strides[0] + k * out.strides[1]) * size);
  return ok();
}

Check read_named_biases(const LayoutFamily& form, const Layout& layout, const std::byte* payload, std::int64_t local,
                        Which which, const TensorView& out) {
  const Matrix& m = layout.matrix(which);
  CanonicalRows rows;
  rows.shape(m.rows(), m);
  MOE_CHECK(form.read({layout, payload, local}, which, rows));
  for (std::int64_t n = 0; n < m.rows(); ++n)
    store_float(out.dtype, at(rows.bias, n), out.data + n * out.strides[0] * (dtype_bits(out.dtype) / 8));
  return ok();
}

// The one of two ways back that the layout has.
template <typename OfP16, typename OfNamed>
Check read_back(const Layout& layout, OfP16 of_p16, OfNamed of_named) {
  if (p16_element(layout.kind)) return of_p16();
  if (const LayoutFamily* form = layout_family(layout.kind)) return of_named(*form);
  return fail(Code::unsupported, "packed", "packed: layout " + layout.id() + " cannot be read back by this build");
}

}  // namespace

Check check_dense(const Layout& layout, Which which, const TensorView& out) {
  const char* role = which == Which::w13 ? "w13_weight" : "w2_weight";
  const Matrix& m = layout.matrix(which);
  if (!is_float16_or_32(out.dtype))
    return fail(Code::dtype, "out", cat("out: expected f32, f16 or bf16 for ", role, ", got ", dtype_name(out.dtype)));
  if (out.ndim != 2 || out.shape[0] != m.rows() || out.shape[1] != m.columns()) {
    const std::array want{m.rows(), m.columns()};
    return fail(Code::shape, "out",
                cat("out: expected shape ", shape_text(want), " for ", role, ", got ",
                    shape_text({out.shape.data(), usize(out.ndim)})));
  }
  return ok();
}

Check dequantize(const Layout& layout, const std::byte* payload, std::int64_t local, Which which,
                 const TensorView& out) {
  return read_back(
      layout, [&] { return dequantize_p16(layout, payload, local, which, out); },
      [&](const LayoutFamily& form) { return dequantize_named(form, layout, payload, local, which, out); });
}

Check read_biases(const Layout& layout, const std::byte* payload, std::int64_t local, Which which,
                  const TensorView& out) {
  return read_back(
      layout, [&] { return read_biases_p16(layout, payload, local, which, out); },
      [&](const LayoutFamily& form) { return read_named_biases(form, layout, payload, local, which, out); });
}

}  // namespace moe
