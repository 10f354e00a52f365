// Numbers for kernels that do not know quantized weights: [N, K] in the activations' type.
//
//   weight  (code - zero point) * scale. 4 bit: the scale is rounded to the type of the numbers first, then the
//           product; 8 bit: one rounding
//   scale   float16 1.0, one for all: never read
//   bias    [N]
#include "base/index.h"
#include "base/number_at.h"
#include "layouts/wna16/wna16.h"

namespace moe {
namespace {

MaybeTensor tensor(const Wna16Matrix& m, LayoutPart p) {
  switch (p) {
    case LayoutPart::weight:
      return a_tensor(m.number, {m.rows(), m.k});
    case LayoutPart::scale:
      return shared_tensor(DType::f16, {1});
    case LayoutPart::bias:
      return a_tensor_if(m.has_bias, m.bias, {m.rows()});
    default:
      return std::nullopt;
  }
}

bool fits(const Layout&, const Wna16Matrix&, const Wna16Matrix&) { return true; }

void write(const Wna16Matrix& m, const CanonicalRows& rows, const Wna16Out& out) {
  const Wna16Fields fields(m, rows);
  const std::int64_t size = dtype_bits(m.number) / 8;
  std::byte* at = part(out, m, LayoutPart::weight);
  for (std::int64_t n = 0; n < m.rows(); ++n)
    for (std::int64_t k = 0; k < m.k; ++k, at += size) {
      const std::int64_t g = fields.group_of(k);
      float scale = fields.scale(n, g);
      if (m.bits == 4) {
        store_float(m.number, scale, at);
        scale = load_float(m.number, at);
      }
      const int zero = m.has_zeros ? fields.zero(n, g) : fields.code_bias();
      store_float(m.number, static_cast<float>(static_cast<int>(fields.field(n, k)) - zero) * scale, at);
    }
  write_bias(m, rows, m.bias, part(out, m, LayoutPart::bias));
}

Check read(const Wna16Matrix& m, const Wna16In& in, const RowRange& range, CanonicalRows& rows) {
  const std::int64_t size = dtype_bits(m.number) / 8;
  const std::byte* from = part(in, m, LayoutPart::weight) + range.first * m.k * size;
  for (std::int64_t i = 0; i < range.count; ++i)
    for (std::int64_t k = 0; k < m.k; ++k, from += size)
      at(rows.values, i * rows.stride + k) = load_float(m.number, from);
  read_bias(range, m.bias, part(in, m, LayoutPart::bias), rows);
  return ok();
}

}  // namespace

constinit const Wna16Form wna16_forms::wna16_dense = {"dense/", tensor, fits, write, read};

}  // namespace moe
