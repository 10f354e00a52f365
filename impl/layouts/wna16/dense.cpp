// Numbers for kernels that do not know quantized weights: [N, K] in the activations' type.
//
//   weight  (code - zero point) * scale. 4 bit: the scale is rounded to the type of the numbers first, then the
//           product; 8 bit: one rounding
//   scale   float16 1.0, one for all: nobody reads it (finish_wna16)
//   bias    [N]
#include "base/index.h"
#include "layouts/wna16/wna16.h"

namespace moe {

void write_dense(const Wna16Matrix& m, const CanonicalRows& rows, const Wna16Out& out) {
  const Wna16Fields fields(m, rows);
  const std::int64_t size = dtype_bits(m.number) / 8;
  std::byte* at = out[Wna16Part::weight];
  for (std::int64_t n = 0; n < m.rows(); ++n)
    for (std::int64_t k = 0; k < m.k; ++k, at += size) {
      const std::int64_t g = fields.group_of(k);
      float scale = fields.scale(n, g);
      if (m.bits == 4) {
        store_number(m.number, scale, at);
        scale = load_number(m.number, at);
      }
      const int zero = m.has_zeros ? fields.zero(n, g) : fields.code_bias();
      store_number(m.number, static_cast<float>(static_cast<int>(fields.field(n, k)) - zero) * scale, at);
    }
  write_bias(m, rows, m.bias, out[Wna16Part::bias]);
}

Check read_dense(const Wna16Matrix& m, const Wna16In& in, const RowRange& range, CanonicalRows& rows) {
  const std::int64_t size = dtype_bits(m.number) / 8;
  const std::byte* from = in[Wna16Part::weight] + range.first * m.k * size;
  for (std::int64_t i = 0; i < range.count; ++i)
    for (std::int64_t k = 0; k < m.k; ++k, from += size)
      at(rows.values, i * rows.stride + k) = load_number(m.number, from);
  read_bias(range, m.bias, in[Wna16Part::bias], rows);
  return ok();
}

}  // namespace moe
