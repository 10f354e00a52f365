// Marlin: w13 [K = H, N = 2P], w2 [K = P, N = H]; P is I padded to whole tiles and groups.
//
//   weight   int32 [K/16, N*bits/2]: tiles of 1024 fields, k tiles major, n tiles minor. In a tile, lane 0..31 of warp
//            0..3 holds the fields that one thread feeds to the tensor core:
//              bits, tile        word                      k of field j                    n of field j
//              4     16 x 64     4*lane + warp             2*(lane%4) + j/4 + 8*(j&1)      16*warp + 8*(j/2&1) + lane/4
//              8     16 x 64     8*lane + 2*warp + half    2*(lane%4) + j/2 + 8*(j&1)      16*warp + 8*half + lane/4
//            with 8-bit activations:
//              4     32 x 32     4*lane + warp             4*(lane%4) + j/2 + 16*(j&1)     8*warp + lane/4
//              8     32 x 32     8*lane + 2*warp + half    4*(lane%4) + j + 16*half        8*warp + lane/4
//            (field j = bits [j*bits, (j+1)*bits) of the word). With act-order, row k is row perm[k] of the checkpoint.
//   scale    16 bit [G, N], in blocks: grouped  column c takes c/8 + 8*(c%8) of its 64
//                                      single   column c takes 2*(c/8) + {0,1,8,9,16,17,24,25}[c%8] of its 32
//            int8 activations: int16 in units of input_global_scale; fp8: times 512
//   zero     int32 [G, N*bits/32]: grouped order; within a word AWQ's order, with 8-bit activations the plain one
//   bias     [N], single order
//   g_idx, g_idx_sort_indices  int32 [K] with act-order: the sorted groups, and the permutation (stable)
//
// fp8: a 4-bit field v with zero point z is stored as v - z where v >= z, else 15 - v. Padding: field, scale, zero
// point, bias 0.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "base/index.h"
#include "base/number_at.h"
#include "base/text.h"
#include "layouts/vec16.h"
#include "layouts/wna16/wna16.h"
#include "scheme/checkpoint.h"

namespace moe {
namespace {

constexpr std::int64_t kTileFields = 1024;

// --- orders -------------------------------------------------------------------------------------------

std::int64_t tile_k(const Wna16Matrix& m) { return m.eight_bit() ? 32 : 16; }
std::int64_t tile_n(const Wna16Matrix& m) { return m.eight_bit() ? 32 : 64; }
std::int64_t tile_bytes(const Wna16Matrix& m) { return kTileFields * m.bits / 8; }
// Of all tiles of the same k.
std::int64_t tile_row_bytes(const Wna16Matrix& m) { return m.padded_rows() / tile_n(m) * tile_bytes(m); }

std::int64_t grouped_source(std::int64_t c) { return c / 64 * 64 + c % 64 / 8 + 8 * (c % 8); }
std::int64_t single_source(std::int64_t c) {
  constexpr std::array kPlaces = {0, 1, 8, 9, 16, 17, 24, 25};
  return c / 32 * 32 + c % 32 / 8 * 2 + at(kPlaces, c % 8);
}
std::int64_t scale_source(const Wna16Matrix& m, std::int64_t c) { return marlin_scale_source(m.grouped_scales, c); }
// The ways back. That of a transpose of 8 x 8 is itself.
std::int64_t grouped_place(std::int64_t x) { return grouped_source(x); }
std::int64_t single_place(std::int64_t x) { return x / 32 * 32 + x % 8 / 2 * 8 + x % 32 / 8 * 2 + x % 2; }
std::int64_t scale_place(const Wna16Matrix& m, std::int64_t x) { return marlin_scale_place(m.grouped_scales, x); }
std::int64_t padded_row(const Wna16Matrix& m, std::int64_t n) {
  return n / m.half_rows * m.padded_half_rows + n % m.half_rows;
}
// Column of field p of word w of the zero points.
std::int64_t zero_source(const Wna16Matrix& m, std::int64_t w, int p) {
  constexpr std::array kOrder4 = {0, 2, 4, 6, 1, 3, 5, 7}, kOrder8 = {0, 2, 1, 3, 0, 0, 0, 0};
  const int field = m.eight_bit() ? p : at(m.bits == 4 ? kOrder4 : kOrder8, p);
  return grouped_source(w * m.fields() + field);
}

void store_word(std::uint32_t word, std::byte* p) { std::memcpy(p, &word, 4); }
std::uint32_t load_word(const std::byte* p) {
  std::uint32_t w;
  std::memcpy(&w, p, 4);
  return w;
}

// --- writing ------------------------------------------------------------------------------------------

using Order = std::vector<std::int32_t>;  // the checkpoint's k behind each k; empty: itself

Order order_of(const Wna16Matrix& m, const CanonicalRows& rows) {
  if (!m.act_order) return {};
  Order perm(usize(m.k));
  std::iota(perm.begin(), perm.end(), 0);
  std::stable_sort(perm.begin(), perm.end(),
                   [&](std::int32_t a, std::int32_t b) { return at(rows.g_idx, a) < at(rows.g_idx, b); });
  return perm;
}

constexpr std::int64_t kPiece = 64;  // columns of a tile's rows at a time: one to four tiles

// Pieces of rows as fields; 0 where there is no row or no column.
class FieldPieces {
 public:
  FieldPieces(const Wna16Matrix& m, const CanonicalRows& rows, const Order& order)
      : m_(m), rows_(rows), fields_(m, rows), order_(order) {}

  // row: the checkpoint's, -1: none.
  void read(std::int64_t row, std::int64_t k0, std::uint8_t* out) const {
    const std::int64_t columns = std::clamp<std::int64_t>(m_.k - k0, 0, kPiece);
    if (row < 0 || columns == 0) {
      std::memset(out, 0, kPiece);
      return;
    }
    const std::int8_t* codes = rows_.row(row) + k0;  // rows are whole pieces
    std::int8_t placed[kPiece] = {};
    if (!order_.empty()) {
      for (std::int64_t k = 0; k < columns; ++k) placed[k] = rows_.row(row)[at(order_, k0 + k)];
      codes = placed;
    }
    for (std::int64_t k = 0; k < kPiece; k += 16) store16(out + k, fields(load16<Bytes16>(codes + k)));
    if (m_.zeros_in_nibbles && m_.input == MarlinInput::fp8)
      for (std::int64_t k = 0; k < columns; ++k) out[k] = for_fp8(codes[k] + 8, row, k0 + k);
    std::memset(out + columns, 0, usize(kPiece - columns));
  }

 private:
  // fp8: against 8, where zero points are not in the nibbles.
  Bytes16 fields(Bytes16 codes) const {
    if (m_.input != MarlinInput::fp8) return codes + static_cast<std::uint8_t>(fields_.code_bias());
    const auto negative = static_cast<Bytes16>(codes >= 128);
    return (codes & ~negative) | ((7 - codes) & negative);
  }
  std::uint8_t for_fp8(int v, std::int64_t row, std::int64_t k) const {
    const std::int64_t from = order_.empty() ? k : at(order_, k);
    const int z = fields_.zero(row, fields_.group_of(from));
    return static_cast<std::uint8_t>(v >= z ? v - z : 15 - v);
  }

  const Wna16Matrix& m_;
  const CanonicalRows& rows_;
  Wna16Fields fields_;
  const Order& order_;
};

// One word of each of the four lanes that have row r (0..7), as the picture above has them: of 4 bits and a warp, or of
// 8 bits and a warp and half. `rows`: those of the tile, in pieces.
template <int Bits, bool kEightBit>
Words4 words_of(const std::uint8_t* rows, int r, int warp) {
  const auto at = [rows](int n, int k) { return load16<Bytes16>(rows + n * kPiece + k); };
  const auto both = [](Bytes16 low, Bytes16 high) {
    return reinterpret_cast<Words4>(low) | reinterpret_cast<Words4>(high) << 4;
  };
  if constexpr (kEightBit && Bits == 8) {
    return reinterpret_cast<Words4>(at(8 * (warp / 2) + r, 16 * (warp % 2)));
  } else if constexpr (kEightBit) {
    return both(at(8 * warp + r, 0), at(8 * warp + r, 16));
  } else if constexpr (Bits == 8) {
    const Bytes16 x = at(8 * warp + r, 0);
    return reinterpret_cast<Words4>(
        __builtin_shufflevector(x, x, 0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15));
  } else {
    const Bytes16 a = at(16 * warp + r, 0), b = at(16 * warp + r + 8, 0);
    return both(__builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23),
                __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31));
  }
}

template <int Bits, bool kEightBit>
void write_tile(const std::uint8_t* rows, std::byte* out) {
  for (int r = 0; r < 8; ++r)
    for (int first = 0; first < Bits; first += 4) {  // a lane has as many words as a field has bits
      Words4 v[4];
      for (int i = 0; i < 4; ++i) v[i] = words_of<Bits, kEightBit>(rows, r, first + i);
      transpose(v);
      for (int lane = 0; lane < 4; ++lane) store16(out + 4 * (Bits * (4 * r + lane) + first), v[lane]);
    }
}

void write_weight(const Wna16Matrix& m, const CanonicalRows& rows, const Order& order, std::byte* out) {
  const FieldPieces source(m, rows, order);
  const auto write = m.eight_bit() ? (m.bits == 4 ? write_tile<4, true> : write_tile<8, true>)
                                   : (m.bits == 4 ? write_tile<4, false> : write_tile<8, false>);
  const std::int64_t height = tile_n(m), width = tile_k(m), row_bytes = tile_row_bytes(m);
  std::array<std::uint8_t, 64 * kPiece> pieces;
  std::array<std::int64_t, 64> behind;  // the checkpoint's rows
  for (std::int64_t n0 = 0; n0 < m.padded_rows(); n0 += height, out += tile_bytes(m)) {
    for (std::int64_t n = 0; n < height; ++n) at(behind, n) = m.source_row(n0 + n);
    for (std::int64_t k0 = 0; k0 < m.padded_k; k0 += kPiece) {
      for (std::int64_t n = 0; n < height; ++n) source.read(at(behind, n), k0, pieces.data() + n * kPiece);
      const std::int64_t end = std::min(kPiece, m.padded_k - k0);
      for (std::int64_t k = 0; k < end; k += width) write(pieces.data() + k, out + (k0 + k) / width * row_bytes);
    }
  }
}

void write_scales(const Wna16Matrix& m, const CanonicalRows& rows, std::byte* out) {
  const Wna16Fields fields(m, rows);
  const float factor = m.input == MarlinInput::fp8 ? 512.0f : 1.0f;
  for (std::int64_t g = 0; g < m.padded_groups; ++g)
    for (std::int64_t c = 0; c < m.padded_rows(); ++c, out += 2) {
      const std::int64_t row = m.source_row(scale_source(m, c));
      store_float(m.scale, row < 0 || g >= m.groups ? 0.0f : fields.scale(row, g) * factor, out);
    }
}

void write_zeros(const Wna16Matrix& m, const CanonicalRows& rows, std::byte* out) {
  if (out == nullptr) return;
  const Wna16Fields fields(m, rows);
  for (std::int64_t g = 0; g < m.padded_groups; ++g)
    for (std::int64_t w = 0; w < m.padded_rows() / m.fields(); ++w, out += 4) {
      std::uint32_t word = 0;
      for (int p = 0; p < m.fields(); ++p) {
        const std::int64_t row = m.source_row(zero_source(m, w, p));
        if (row >= 0 && g < m.groups) word |= static_cast<std::uint32_t>(fields.zero(row, g)) << (p * m.bits);
      }
      store_word(word, out);
    }
}

// --- reading ------------------------------------------------------------------------------------------

// The permutation and the groups of a layout with act-order, checked: rows.g_idx in the checkpoint's order.
Result<Order> read_order(const Wna16Matrix& m, const Wna16In& in, CanonicalRows& rows) {
  if (!m.act_order) return Order{};
  const auto bad = [&](LayoutPart p, std::size_t k, std::int32_t found, const std::string& expected) {
    const std::string place = cat(part_name(m.which, p), "[", in.local, ",", k, "]");
    return fail(Code::format, place, cat(place, ": ", found, ", expected ", expected));
  };
  Order perm(usize(m.k)), sorted(perm);
  std::memcpy(perm.data(), part(in, m, LayoutPart::g_idx_sort_indices), perm.size() * 4);
  std::memcpy(sorted.data(), part(in, m, LayoutPart::g_idx), sorted.size() * 4);
  rows.g_idx.assign(perm.size(), -1);
  for (std::size_t k = 0; k < perm.size(); ++k) {
    if (perm[k] < 0 || perm[k] >= m.k || rows.g_idx[usize(perm[k])] != -1)
      return bad(LayoutPart::g_idx_sort_indices, k, perm[k], cat("a column of ", m.k, " that was not there before"));
    if (sorted[k] < 0 || sorted[k] >= m.groups || (k > 0 && sorted[k] < sorted[k - 1]))
      return bad(LayoutPart::g_idx, k, sorted[k], cat("ascending groups below ", m.groups));
    rows.g_idx[usize(perm[k])] = sorted[k];
  }
  return perm;
}

void read_scales(const Wna16Matrix& m, const Wna16In& in, const RowRange& range, CanonicalRows& rows) {
  const float global = m.folded_scales ? load_float(DType::f32, part(in, m, LayoutPart::input_global_scale)) : 0.0f;
  for (std::int64_t i = 0; i < range.count; ++i) {
    const std::byte* from = part(in, m, LayoutPart::scale) + 2 * scale_place(m, padded_row(m, range.first + i));
    for (std::int64_t g = 0; g < m.groups; ++g, from += 2 * m.padded_rows()) {
      float s = load_float(m.scale, from);
      if (m.folded_scales) {
        std::int16_t whole;
        std::memcpy(&whole, from, 2);
        s = static_cast<float>(whole) * global;
      }
      at(rows.scales, i * m.groups + g) = m.input == MarlinInput::fp8 ? s / 512.0f : s;
    }
  }
}

void read_zeros(const Wna16Matrix& m, const std::byte* in, const RowRange& range, CanonicalRows& rows) {
  if (in == nullptr) return;
  for (std::int64_t i = 0; i < range.count; ++i) {
    const std::int64_t place = grouped_place(padded_row(m, range.first + i));
    const auto p = static_cast<int>(place % m.fields());
    const std::byte* from = in + place / m.fields() * 4;
    const int shift = (m.eight_bit() ? p : awq_field(m.bits, p)) * m.bits;
    for (std::int64_t g = 0; g < m.groups; ++g, from += m.padded_rows() / m.fields() * 4)
      at(rows.zeros, i * m.groups + g) = static_cast<std::uint8_t>(load_word(from) >> shift & ((1u << m.bits) - 1u));
  }
}

// Two bytes in each of the halves of four words, those of `b` eight columns behind those of `a` -> 16 columns.
Bytes16 by_columns(Words4 a, Words4 b) {
  using Halves8 = std::uint16_t __attribute__((vector_size(16)));
  const Words4 both = ((a | (a >> 8)) & all(0xffffu)) | ((b | (b >> 8)) << 16);
  auto h = reinterpret_cast<Halves8>(both);  // in three steps that SSE2 has
  h = __builtin_shufflevector(h, h, 0, 2, 1, 3, 4, 5, 6, 7);
  h = __builtin_shufflevector(h, h, 0, 1, 2, 3, 4, 6, 5, 7);
  const auto w = reinterpret_cast<Words4>(h);
  return reinterpret_cast<Bytes16>(__builtin_shufflevector(w, w, 0, 2, 1, 3));
}

// The fields of row n of a tile, by column: 16, or with 8-bit activations 32. Four lanes have a row.
void read_tile_row(const Wna16Matrix& m, const std::byte* tile, std::int64_t n, std::uint8_t* out) {
  const std::int64_t warp = n / (m.eight_bit() ? 8 : 16), upper = n % 16 / 8;
  const std::byte* at = tile + (m.bits == 4 ? 4 * (16 * (n % 8) + warp) : 4 * (32 * (n % 8) + 2 * warp));
  const auto words = [step = m.bits == 4 ? 16 : 32](const std::byte* p) {
    return Words4{load_word(p), load_word(p + step), load_word(p + 2 * step), load_word(p + 3 * step)};
  };
  if (m.eight_bit() && m.bits == 8) {
    store16(out, words(at));
    store16(out + 16, words(at + 4));
  } else if (m.eight_bit()) {
    const Words4 x = words(at);
    store16(out, x & all(0x0f0f0f0fu));
    store16(out + 16, (x >> 4) & all(0x0f0f0f0fu));
  } else if (m.bits == 8) {
    const Words4 x = words(at + 4 * upper);
    store16(out, by_columns(x & all(0x00ff00ffu), (x >> 8) & all(0x00ff00ffu)));
  } else {
    const Words4 x = words(at) >> static_cast<std::uint32_t>(8 * upper);
    store16(out, by_columns(x & all(0x000f000fu), (x >> 4) & all(0x000f000fu)));
  }
}

void read_weight(const Wna16Matrix& m, const std::byte* in, const Order& order, const RowRange& range,
                 CanonicalRows& rows) {
  const Wna16Fields fields(m, rows);
  const std::int64_t width = tile_k(m), height = tile_n(m), bytes = tile_bytes(m), per_k = tile_row_bytes(m);
  const auto from_fp8 = [&](int v, std::int64_t i, std::int64_t k) {
    const bool stored = m.zeros_in_nibbles && !rows.zeros.empty();
    const int z = stored ? at(rows.zeros, i * m.groups + fields.group_of(k)) : 8;
    return static_cast<std::uint8_t>(v + z >= 16 ? 15 - v : v + z);
  };
  constexpr std::int64_t kBlock = 16;  // rows that meet a tile while it is in cache
  for (std::int64_t i0 = 0; i0 < range.count; i0 += kBlock) {
    const std::int64_t block = std::min(kBlock, range.count - i0);
    std::array<std::int64_t, kBlock> tile, local;  // first byte in a row of tiles; row there
    for (std::int64_t i = 0; i < block; ++i) {
      const std::int64_t n = padded_row(m, range.first + i0 + i);
      at(tile, i) = n / height * bytes;
      at(local, i) = n % height;
    }
    const std::byte* row_of_tiles = in;
    for (std::int64_t k0 = 0; k0 < m.k; k0 += width, row_of_tiles += per_k)
      for (std::int64_t i = 0; i < block; ++i) {
        const std::int64_t end = std::min(width, m.k - k0);
        std::array<std::uint8_t, 32> v;
        read_tile_row(m, row_of_tiles + at(tile, i), at(local, i), v.data());
        for (std::int64_t c = 0; c < end && m.input == MarlinInput::fp8; ++c) {
          std::uint8_t& x = at(v, c);
          x = from_fp8(x, i0 + i, k0 + c);
        }
        std::int8_t* codes = rows.codes.data() + (i0 + i) * rows.stride;
        for (std::int64_t c = 0; c < end; ++c) {
          const std::int64_t k = order.empty() ? k0 + c : at(order, k0 + c);
          codes[k] = static_cast<std::int8_t>(at(v, c) - fields.code_bias());
        }
      }
  }
}

}  // namespace

void write_marlin_weight(const Wna16Matrix& m, const CanonicalRows& rows, std::byte* out) {
  write_weight(m, rows, {}, out);
}
void read_marlin_weight(const Wna16Matrix& m, const std::byte* in, CanonicalRows& rows) {
  read_weight(m, in, {}, {0, m.rows()}, rows);
}
std::int64_t marlin_scale_source(bool grouped, std::int64_t c) {
  return grouped ? grouped_source(c) : single_source(c);
}
std::int64_t marlin_scale_place(bool grouped, std::int64_t row) {
  return grouped ? grouped_place(row) : single_place(row);
}

namespace {

MaybeTensor tensor(const Wna16Matrix& m, LayoutPart p) {
  const std::int64_t n = m.padded_rows(), k = m.padded_k, ordered = m.act_order ? m.k : 0;
  switch (p) {
    case LayoutPart::weight:
      return a_tensor(DType::i32, {k / 16, n * m.bits / 2});
    case LayoutPart::scale:
      return a_tensor(m.scale, {m.padded_groups, n});
    case LayoutPart::g_idx:
      return a_tensor_if(!m.awq, DType::i32, {ordered});
    case LayoutPart::g_idx_sort_indices:
      return a_tensor(DType::i32, {ordered});
    case LayoutPart::zero_point:
      return a_tensor_if(m.has_zeros, DType::i32, {m.padded_groups, n / m.fields()});
    case LayoutPart::input_global_scale:
      return m.folded_scales ? shared_tensor(DType::f32, {}) : std::nullopt;
    case LayoutPart::bias:
      return a_tensor_if(m.has_bias, m.bias, {n});
    default:
      return std::nullopt;
  }
}

bool fits(const Layout&, const Wna16Matrix& w13, const Wna16Matrix& w2) {
  if (w13.act_order && (w13.awq || w13.eight_bit() || w2.padded_k != w2.k)) return false;
  return divides(64, {w13.k}) && (w13.input != MarlinInput::fp8 || w13.bits == 4);
}

void write(const Wna16Matrix& m, const CanonicalRows& rows, const Wna16Out& out) {
  const Order order = order_of(m, rows);
  write_weight(m, rows, order, part(out, m, LayoutPart::weight));
  write_scales(m, rows, part(out, m, LayoutPart::scale));
  write_zeros(m, rows, part(out, m, LayoutPart::zero_point));
  if (m.act_order) {
    std::memcpy(part(out, m, LayoutPart::g_idx_sort_indices), order.data(), order.size() * 4);
    for (std::size_t k = 0; k < order.size(); ++k)
      std::memcpy(part(out, m, LayoutPart::g_idx) + 4 * k, &at(rows.g_idx, order[k]), 4);
  }
  if (std::byte* to = part(out, m, LayoutPart::bias))
    for (std::int64_t c = 0; c < m.padded_rows(); ++c, to += dtype_bits(m.bias) / 8) {
      const std::int64_t row = m.source_row(single_source(c));
      store_float(m.bias, row < 0 ? 0.0f : at(rows.bias, row), to);
    }
}

Check read(const Wna16Matrix& m, const Wna16In& in, const RowRange& range, CanonicalRows& rows) {
  MOE_TRY(const Order order, read_order(m, in, rows));
  read_scales(m, in, range, rows);
  read_zeros(m, part(in, m, LayoutPart::zero_point), range, rows);
  read_weight(m, part(in, m, LayoutPart::weight), order, range, rows);
  if (const std::byte* from = part(in, m, LayoutPart::bias))
    for (std::int64_t i = 0; i < range.count; ++i)
      at(rows.bias, i) =
          load_float(m.bias, from + single_place(padded_row(m, range.first + i)) * (dtype_bits(m.bias) / 8));
  return ok();
}

}  // namespace

constinit const Wna16Form wna16_forms::wna16_marlin = {"marlin/", tensor, fits, write, read};

Check fold_marlin_scales(DType dtype, std::span<std::byte> scales, std::string_view name, std::byte* global) {
  const auto round16 = [&](float x) {
    std::byte h[4];
    store_float(dtype, x, h);
    return load_float(dtype, h);
  };
  float most = 0.0f;
  for (std::size_t i = 0; i < scales.size(); i += 2)
    most = std::max(most, std::fabs(load_float(dtype, scales.data() + i)));
  if (most == 0.0f && !scales.empty())
    return fail(Code::invalid_argument, std::string(name),
                cat(name, ": all scales are 0; with int8 activations they are divided by the largest"));
  for (std::size_t i = 0; i < scales.size(); i += 2) {
    const float t = round16(round16(load_float(dtype, scales.data() + i) / most) * 4096.0f);
    const auto whole = static_cast<std::int16_t>(std::nearbyint(t));
    std::memcpy(scales.data() + i, &whole, 2);
  }
  store_float(DType::f32, most * (1.0f / 4096.0f), global);
  return ok();
}

}  // namespace moe
