// vLLM's CPU blocks for int8 dot products (4 bit): 32 columns by bk = min(group, 128) k.
//
//   weight  uint8 [N/32, K/bk, 16*bk + 128]: byte 64*k4 + 32*h + 4*ni + ki holds k = 4*k4 + ki of the block's column
//           16*h + ni in the low nibble, of column 16*h + 8 + ni in the high one; behind the codes int32[32], the sums
//           of (code - zero point) of the block's columns, that correct for activations stored with an offset
//   scale   f32 [N/32, G, 32]    zero  int8 [N/32, G, 32]    bias  f32 [N]    g_idx  int32 [K]: k / group
#include <cstring>
#include <numeric>

#include "base/index.h"
#include "base/number_at.h"
#include "layouts/vec16.h"
#include "layouts/wna16/wna16.h"

namespace moe {
namespace {

constexpr std::int64_t kColumns = 32;

std::int64_t block_k(const Wna16Matrix& m) { return m.group() < 128 ? m.group() : 128; }
std::int64_t block_bytes(const Wna16Matrix& m) { return 16 * block_k(m) + 4 * kColumns; }

// Byte of (column c, k) within a block; the high nibble iff c % 16 >= 8.
std::int64_t code_place(std::int64_t c, std::int64_t k) { return k / 4 * 64 + c / 16 * 32 + c % 8 * 4 + k % 4; }

void write_block(const Wna16Matrix& m, const CanonicalRows& rows, std::int64_t n0, std::int64_t k0, std::byte* out) {
  const Wna16Fields fields(m, rows);
  const std::int64_t bk = block_k(m), g = k0 / m.group();
  const auto four = [&](std::int64_t c, std::int64_t k) {  // fields of a column
    std::uint32_t codes;
    std::memcpy(&codes, rows.row(n0 + c) + k0 + k, 4);
    return (codes & 0x0f0f0f0fu) ^ 0x08080808u;
  };
  for (std::int64_t c = 0; c < kColumns; ++c) {
    for (std::int64_t k = 0; k < bk && c % 16 < 8; k += 4) {
      const std::uint32_t word = four(c, k) | four(c + 8, k) << 4;
      std::memcpy(out + code_place(c, k), &word, 4);
    }
    const std::int8_t* codes = rows.row(n0 + c) + k0;
    const auto offset = static_cast<std::int32_t>(bk) * (fields.code_bias() - fields.zero(n0 + c, g));
    const std::int32_t sum = std::accumulate(codes, codes + bk, offset);
    std::memcpy(out + 16 * bk + 4 * c, &sum, 4);
  }
}

// The codes of a block's column: a word has four k.
void read_column(const Wna16Matrix& m, const std::byte* block, std::int64_t c, std::int8_t* codes) {
  const std::byte* at = block + code_place(c, 0);
  const std::uint32_t shift = c % 16 >= 8 ? 4 : 0;
  const auto word = [&](std::int64_t k) {
    std::uint32_t w;
    std::memcpy(&w, at + k * 16, 4);
    return w;
  };
  std::int64_t k = 0;
  for (; k + 16 <= block_k(m); k += 16) {
    const Words4 words = {word(k), word(k + 4), word(k + 8), word(k + 12)};
    store16(codes + k, reinterpret_cast<Bytes16>((words >> shift) & all(0x0f0f0f0fu)) - 8);
  }
  for (; k < block_k(m); ++k)
    codes[k] = static_cast<std::int8_t>(static_cast<int>(word(k / 4 * 4) >> (shift + 8 * (k % 4)) & 15u) - 8);
}

MaybeTensor tensor(const Wna16Matrix& m, LayoutPart p) {
  const std::int64_t blocks = m.rows() / kColumns;
  switch (p) {
    case LayoutPart::weight:
      return a_tensor(DType::u8, {blocks, m.k / block_k(m), block_bytes(m)});
    case LayoutPart::scale:
      return a_tensor(DType::f32, {blocks, m.groups, kColumns});
    case LayoutPart::g_idx:
      return a_tensor_if(!m.awq, DType::i32, {m.k});
    case LayoutPart::zero_point:
      return a_tensor(DType::i8, {blocks, m.groups, kColumns});
    case LayoutPart::bias:
      return a_tensor_if(m.has_bias, DType::f32, {m.rows()});
    default:
      return std::nullopt;
  }
}

bool fits(const Layout& l, const Wna16Matrix& w13, const Wna16Matrix& w2) {
  for (const Wna16Matrix& m : {w13, w2})
    if (m.group() % (m.group() < 128 ? 4 : 128) != 0) return false;
  return w13.bits == 4 && !l.w13.has_order && divides(kColumns, {w13.rows(), w2.rows()});
}

void write(const Wna16Matrix& m, const CanonicalRows& rows, const Wna16Out& out) {
  const Wna16Fields fields(m, rows);
  std::byte *block = part(out, m, LayoutPart::weight), *scale = part(out, m, LayoutPart::scale),
            *zero = part(out, m, LayoutPart::zero_point);
  for (std::int64_t n0 = 0; n0 < m.rows(); n0 += kColumns) {
    for (std::int64_t k0 = 0; k0 < m.k; k0 += block_k(m), block += block_bytes(m)) write_block(m, rows, n0, k0, block);
    for (std::int64_t g = 0; g < m.groups; ++g)
      for (std::int64_t c = 0; c < kColumns; ++c, scale += 4) {
        store_float(DType::f32, fields.scale(n0 + c, g), scale);
        *zero++ = static_cast<std::byte>(fields.zero(n0 + c, g));
      }
  }
  write_bias(m, rows, DType::f32, part(out, m, LayoutPart::bias));
  write_g_idx(m, rows, part(out, m, LayoutPart::g_idx));
}

Check read(const Wna16Matrix& m, const Wna16In& in, const RowRange& range, CanonicalRows& rows) {
  const std::byte *weight = part(in, m, LayoutPart::weight), *scale = part(in, m, LayoutPart::scale),
                  *zero = part(in, m, LayoutPart::zero_point);
  const std::int64_t blocks = m.k / block_k(m);
  for (std::int64_t i = 0; i < range.count; ++i) {
    const std::int64_t n = range.first + i, b = n / kColumns, c = n % kColumns;
    const std::byte* block = weight + b * blocks * block_bytes(m);
    std::int8_t* codes = rows.codes.data() + i * rows.stride;
    for (std::int64_t k0 = 0; k0 < m.k; k0 += block_k(m), block += block_bytes(m)) read_column(m, block, c, codes + k0);
    for (std::int64_t g = 0; g < m.groups; ++g) {
      const std::int64_t from = (b * m.groups + g) * kColumns + c;
      const auto to = usize(i * m.groups + g);
      rows.scales[to] = load_float(DType::f32, scale + 4 * from);
      rows.zeros[to] = static_cast<std::uint8_t>(zero[from]);
    }
  }
  read_bias(range, DType::f32, part(in, m, LayoutPart::bias), rows);
  return ok();
}

}  // namespace

constinit const Wna16Form wna16_forms::wna16_vnni = {"vnni/", tensor, fits, write, read};

}  // namespace moe
