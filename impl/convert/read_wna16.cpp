// What WNA16 checkpoints have beside plain rows of codes: words of rows, and zero points.
//
//   row words      I32 [K, ceil(N/8)]   eight rows share a word: awq, quark-reorder row 8w + c in field awq_field(c),
//                                       quark-order in field c
//   row pairs      U8 [N/2, K]          row 2r in the low four bits of a byte, row 2r + 1 in the high ones
//   zero points    I32, words of rows too, in the order of the codes; narrow ones may begin inside of a word
//
// Views have words first. A word serves 8 rows (4 of 8 bits); whole blocks of them are read by read_blocks.cpp.
#include <algorithm>
#include <cstdint>
#include <string>

#include "convert/read_rows.h"
#include "scheme/checkpoint.h"

namespace moe::convert {
namespace {

int bits_of(const SourceMatrix& m) { return m.code_bits(); }

struct Shared {
  std::int64_t word;
  unsigned shift;
};

Shared shared_at(const SourceMatrix& m, std::int64_t field) {
  const int bits = bits_of(m);
  if (m.is_narrow()) return {field * bits / 32, static_cast<unsigned>(field * bits % 32)};
  const std::int64_t each = codes_of_word(m.element);
  const auto c = static_cast<int>(field % each);
  return {field / each, static_cast<unsigned>(bits * m.field_of(c))};
}

unsigned mask(const SourceMatrix& m) { return (1u << bits_of(m)) - 1; }

}  // namespace

int shared_code(const SourceMatrix& m, const TensorView& words, std::int64_t field, std::int64_t column) {
  const Shared at = shared_at(m, field);
  const std::byte* src = words.data + (at.word * words.strides[0] + column * words.strides[1]) * 4;
  std::uint64_t word = m.without_sign(load<std::uint32_t>(src));
  if (static_cast<int>(at.shift) + bits_of(m) > 32)  // the rest begins the next word
    word |= static_cast<std::uint64_t>(load<std::uint32_t>(src + words.strides[0] * 4)) << 32;
  return static_cast<int>(word >> at.shift & mask(m));
}

Check read_row_words(const SourceMatrix& m, const SourceHalf& half, const RowPlace& place, CanonicalRows& out) {
  const Shared at = shared_at(m, half.code_fields.first + half.code_fields.step * place.r);
  const std::byte* src = half.codes.data + at.word * half.codes.strides[0] * 4;
  const std::int64_t step = half.codes.strides[1] * 4;
  const unsigned bits = mask(m);
  const int bias = code_bias(m.element);
  std::int8_t* row = out.codes.data() + place.i * out.stride;
  for (std::int64_t k = place.column; k < m.k; ++k)
    row[k] = static_cast<std::int8_t>(
        static_cast<int>(m.without_sign(load<std::uint32_t>(src + k * step)) >> at.shift & bits) - bias);
  return read_row_scales(m, half, place.r, place.i, out);
}

Check read_row_pairs(const SourceMatrix& m, const SourceHalf& half, const RowPlace& place, CanonicalRows& out) {
  const std::int64_t field = half.code_fields.first + half.code_fields.step * place.r;
  const std::byte* src = half.codes.data + field / 2 * half.codes.strides[0];
  const auto shift = static_cast<unsigned>(field % 2 * 4);
  std::int8_t* row = out.codes.data() + place.i * out.stride;
  for (std::int64_t k = 0; k < m.k; ++k) {
    const std::uint32_t pair = m.without_sign(load<std::uint8_t>(src + k * half.codes.strides[1]));
    row[k] = static_cast<std::int8_t>(static_cast<int>(pair >> shift & 15u) - 8);
  }
  return read_row_scales(m, half, place.r, place.i, out);
}

Check read_row_zeros(const SourceMatrix& m, const SourceHalf& half, std::int64_t r, std::int64_t i,
                     CanonicalRows& out) {
  std::uint8_t* row = out.zeros.data() + i * out.groups;
  if (!m.has_zeros) {
    std::fill_n(row, out.groups, static_cast<std::uint8_t>(code_bias(m.element)));
    return ok();
  }
  const std::int64_t field = half.zero_fields.first + half.zero_fields.step * r;
  const int more = m.zero_points == ZeroPoints::plus_one ? 1 : 0;
  // Both have a middle code, which means 0.
  const int wider = code_bias(m.element) - (1 << (m.code_bits() - 1));
  for (std::int64_t g = 0; g < out.groups; ++g) {
    const int zero = shared_code(m, half.zeros, field, g) + more + wider;
    if (zero > UINT8_MAX)
      return value_error(m, "zero_point", half.zero_rows, r,
                         {g, "a stored 255 means zero point 256, which no layout has room for"});
    row[g] = static_cast<std::uint8_t>(zero);
  }
  return ok();
}

}  // namespace moe::convert
