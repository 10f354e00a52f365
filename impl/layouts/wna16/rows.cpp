// Rows of fields, for Intel GPUs (xpu) and for kernels that unpack on the fly.
//
//   weight  uint8 [N, K/2]: byte b of a row holds k = 2b (low nibble) and 2b + 1, unsigned with code 8 (or the zero
//           point) for value 0; 8 bit: uint8 [N, K], code 128
//   scale   [N, G] in the checkpoint's type. on_the_fly brings both matrices to one group size, their greatest common
//           divisor (halved while it does not divide a K): each scale, and zero point, is repeated
//   zero    on_the_fly, 4 bit: uint8 [N/2, G], low nibble = even row
//   bias    [N]; xpu also has empty int32 [0] for g_idx and g_idx_sort_indices
#include <cstring>

#include "base/index.h"
#include "base/number_at.h"
#include "layouts/vec16.h"
#include "layouts/wna16/wna16.h"

namespace moe {
namespace {

std::int64_t stored_groups(const Wna16Matrix& m) { return m.groups * m.repeat; }
std::int64_t scale_bytes(const Wna16Matrix& m) { return dtype_bits(m.scale) / 8; }

MaybeTensor tensor(const Wna16Matrix& m, LayoutPart p) {
  const bool xpu = m.kind == LayoutKind::wna16_xpu;
  switch (p) {
    case LayoutPart::weight:
      return a_tensor(DType::u8, {m.rows(), m.k * m.bits / 8});
    case LayoutPart::scale:
      return a_tensor(m.scale, {m.rows(), stored_groups(m)});
    case LayoutPart::g_idx:
    case LayoutPart::g_idx_sort_indices:
      return xpu ? shared_tensor(DType::i32, {0}) : std::nullopt;
    case LayoutPart::zero_point:
      return a_tensor_if(!xpu && m.has_zeros && m.bits == 4, DType::u8, {m.rows() / 2, stored_groups(m)});
    case LayoutPart::bias:
      return a_tensor_if(m.has_bias, m.bias, {m.rows()});
    default:
      return std::nullopt;
  }
}

bool fits_xpu(const Layout& l, const Wna16Matrix& w13, const Wna16Matrix& w2) {
  return w13.bits == 4 && !w13.has_zeros && !l.w13.has_order && divides(2, {w13.k, w2.k});
}
bool fits_on_the_fly(const Layout& l, const Wna16Matrix& w13, const Wna16Matrix& w2) {
  if (l.w13.has_order || (w13.has_zeros && w13.bits == 8)) return false;
  return w13.bits == 8 || divides(2, {w13.rows(), w13.k, w2.k});
}

void write(const Wna16Matrix& m, const CanonicalRows& rows, const Wna16Out& out) {
  const Wna16Fields fields(m, rows);
  std::byte *weight = part(out, m, LayoutPart::weight), *scale = part(out, m, LayoutPart::scale),
            *zero = part(out, m, LayoutPart::zero_point);
  for (std::int64_t n = 0; n < m.rows(); ++n) {
    const std::int8_t* codes = rows.row(n);
    std::int64_t k = 0;
    if (m.bits == 8) {
      for (; k + 16 <= m.k; k += 16, weight += 16) store16(weight, load16<Bytes16>(codes + k) ^ 0x80);
      for (; k < m.k; ++k) *weight++ = static_cast<std::byte>(fields.field(n, k));
    } else {
      for (; k + 32 <= m.k; k += 32, weight += 16) store16(weight, pack_nibbles16(codes + k) ^ 0x88);
      for (; k < m.k; k += 2) *weight++ = static_cast<std::byte>(fields.field(n, k) | fields.field(n, k + 1) << 4);
    }
    for (std::int64_t g = 0; g < stored_groups(m); ++g, scale += scale_bytes(m))
      store_float(m.scale, fields.scale(n, g / m.repeat), scale);
  }
  if (zero != nullptr)
    for (std::int64_t n = 0; n < m.rows(); n += 2)
      for (std::int64_t g = 0; g < stored_groups(m); ++g)
        *zero++ = static_cast<std::byte>(fields.zero(n, g / m.repeat) | fields.zero(n + 1, g / m.repeat) << 4);
  write_bias(m, rows, m.bias, part(out, m, LayoutPart::bias));
}

Check read(const Wna16Matrix& m, const Wna16In& in, const RowRange& range, CanonicalRows& rows) {
  const std::byte *weight = part(in, m, LayoutPart::weight) + range.first * (m.k * m.bits / 8),
                  *scale = part(in, m, LayoutPart::scale), *zero = part(in, m, LayoutPart::zero_point);
  for (std::int64_t i = 0; i < range.count; ++i) {
    const std::int64_t n = range.first + i;
    std::int8_t* codes = rows.codes.data() + i * rows.stride;
    std::int64_t k = 0;
    for (; m.bits == 4 && k + 32 <= m.k; k += 32, weight += 16) unpack_nibbles16(load16<Bytes16>(weight), codes + k);
    for (; k < m.k; ++weight) {
      const auto byte = static_cast<int>(*weight);
      if (m.bits == 8) {
        codes[k++] = static_cast<std::int8_t>(byte - 128);
        continue;
      }
      codes[k++] = static_cast<std::int8_t>((byte & 15) - 8);
      codes[k++] = static_cast<std::int8_t>((byte >> 4) - 8);
    }
    for (std::int64_t g = 0; g < m.groups; ++g)
      at(rows.scales, i * m.groups + g) =
          load_float(m.scale, scale + scale_bytes(m) * (n * stored_groups(m) + g * m.repeat));
    if (zero != nullptr)
      for (std::int64_t g = 0; g < m.groups; ++g) {
        const auto two = static_cast<unsigned>(zero[n / 2 * stored_groups(m) + g * m.repeat]);
        at(rows.zeros, i * m.groups + g) = static_cast<std::uint8_t>(n % 2 == 0 ? two & 15u : two >> 4);
      }
  }
  read_bias(range, m.bias, part(in, m, LayoutPart::bias), rows);
  return ok();
}

}  // namespace

constinit const Wna16Form wna16_forms::wna16_xpu = {"xpu/", tensor, fits_xpu, write, read};
constinit const Wna16Form wna16_forms::wna16_on_the_fly = {"on_the_fly/", tensor, fits_on_the_fly, write, read};

}  // namespace moe
