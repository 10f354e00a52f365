// MXINT4 of TensorRT-LLM: 4 bit, groups of 32, bf16 scales; N % 128 == 0, K % 256 == 0.
//
//   weight  uint8 [K/256, N, 128]: byte b of row r in block c holds k = 256c + 2b (low nibble) and 2b + 1, as two's
//           complement. Row r is row A(S(r)) of the checkpoint:
//             S(r) = 32*(r/32) + 4*(r%8) + r%32/8       both matrices
//             A(r) = up r/2 for even r, gate r/2 for odd      w13; w2: r
//   scale   bf16 [pad128(N) * pad4(K/32)]: (r, c) of the same rows at
//             (r/128 * C/4 + c/4)*512 + r%32*16 + r%128/32*4 + c%4,  C = pad4(K/32); padding 0
//   g_idx   int32 [K]: k / 32
#include <cstring>

#include "base/index.h"
#include "base/number_at.h"
#include "layouts/vec16.h"
#include "layouts/wna16/wna16.h"

namespace moe {
namespace {

constexpr std::int64_t kBlock = 128;  // bytes

// The checkpoint's row behind row r.
std::int64_t source_of(const Wna16Matrix& m, std::int64_t r) {
  const std::int64_t s = r / 32 * 32 + 4 * (r % 8) + r % 32 / 8;
  if (!m.swap_halves || m.halves != 2) return s;
  return s / 2 + (s % 2 == 0 ? m.half_rows : 0);
}

// The way back.
std::int64_t place_of(const Wna16Matrix& m, std::int64_t n) {
  std::int64_t s = n;
  if (m.swap_halves && m.halves == 2) s = n < m.half_rows ? 2 * n + 1 : 2 * (n - m.half_rows);
  return s / 32 * 32 + s % 32 / 4 + 8 * (s % 4);
}

std::int64_t scale_place(const Wna16Matrix& m, std::int64_t r, std::int64_t c) {
  const std::int64_t columns = round_up<std::int64_t>(m.groups, 4);
  return (r / 128 * (columns / 4) + c / 4) * 512 + r % 32 * 16 + r % 128 / 32 * 4 + c % 4;
}

std::int64_t byte_place(const Wna16Matrix& m, std::int64_t r, std::int64_t b) {
  return (b / kBlock * m.rows() + r) * kBlock + b % kBlock;
}

MaybeTensor tensor(const Wna16Matrix& m, LayoutPart p) {
  switch (p) {
    case LayoutPart::weight:
      return a_tensor(DType::u8, {m.k / 256, m.rows(), kBlock});
    case LayoutPart::scale:
      return a_tensor(m.scale, {round_up<std::int64_t>(m.rows(), 128) * round_up<std::int64_t>(m.groups, 4)});
    case LayoutPart::g_idx:
      return a_tensor(DType::i32, {m.k});
    case LayoutPart::bias:
      return a_tensor_if(m.has_bias, m.bias, {m.rows()});
    default:
      return std::nullopt;
  }
}

bool fits(const Layout& l, const Wna16Matrix& w13, const Wna16Matrix& w2) {
  return w13.bits == 4 && w13.halves == 2 && !w13.has_zeros && !l.w13.has_order && !l.w13.has_bias &&
         w13.group() == 32 && w2.group() == 32 && divides(256, {w13.k, w2.k});
}

void write(const Wna16Matrix& m, const CanonicalRows& rows, const Wna16Out& out) {
  std::byte *weight = part(out, m, LayoutPart::weight), *scale = part(out, m, LayoutPart::scale);
  std::memset(scale, 0, usize(round_up<std::int64_t>(m.rows(), 128) * round_up<std::int64_t>(m.groups, 4) * 2));
  for (std::int64_t r = 0; r < m.rows(); ++r) {
    const std::int64_t from = source_of(m, r);
    const std::int8_t* codes = rows.row(from);
    for (std::int64_t b = 0; b < m.k / 2; b += 16)  // blocks are whole
      store16(weight + byte_place(m, r, b), pack_nibbles16(codes + 2 * b));
    for (std::int64_t g = 0; g < m.groups; ++g)
      store_float(m.scale, rows.row_scales(from)[g], scale + 2 * scale_place(m, r, g));
  }
  write_g_idx(m, rows, part(out, m, LayoutPart::g_idx));
}

Check read(const Wna16Matrix& m, const Wna16In& in, const RowRange& range, CanonicalRows& rows) {
  const std::byte *weight = part(in, m, LayoutPart::weight), *scale = part(in, m, LayoutPart::scale);
  for (std::int64_t i = 0; i < range.count; ++i) {
    const std::int64_t r = place_of(m, range.first + i);
    std::int8_t* codes = rows.codes.data() + i * rows.stride;
    for (std::int64_t b = 0; b < m.k / 2; b += 16)  // blocks are whole
      unpack_nibbles16(load16<Bytes16>(weight + byte_place(m, r, b)) ^ 0x88, codes + 2 * b);
    for (std::int64_t g = 0; g < m.groups; ++g)
      at(rows.scales, i * m.groups + g) = load_float(m.scale, scale + 2 * scale_place(m, r, g));
  }
  return ok();
}

}  // namespace

constinit const Wna16Form wna16_forms::wna16_trtllm = {"trtllm/mxint4", tensor, fits, write, read};

}  // namespace moe
