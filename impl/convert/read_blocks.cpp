// Codes of tensors whose rows lie side by side, sixteen rows at a time: a cache line of such a tensor holds a few
// columns of many rows, so a walk along one row would fetch sixteen times what it uses.
//
//   gptq, transposed pack-quantized   four words of four rows become four words of each row by a transpose of words
//   row words, such as AWQ's          sixteen words (8 rows, or 4 of 8 bits, of sixteen columns) by a transpose of
//   bytes
//
// What is no whole block is left to the readers of rows.
#include <algorithm>
#include <array>
#include <cstdint>

#include "base/index.h"
#include "convert/read_rows.h"
#include "layouts/vec16.h"
#include "scheme/checkpoint.h"

namespace moe::convert {
namespace {

constexpr std::int64_t kAhead = 32;  // words of a row, or columns, between prefetch and use

// Four rows' words at one place: rows are `apart` bytes apart, or anywhere.
struct FourRows {
  std::array<std::int64_t, 4> at;
  bool adjacent;

  Words4 load_at(const std::byte* src) const {
    if (adjacent) return load16<Words4>(src + at[0]);
    return Words4{load<std::uint32_t>(src + at[0]), load<std::uint32_t>(src + at[1]), load<std::uint32_t>(src + at[2]),
                  load<std::uint32_t>(src + at[3])};
  }
};

// Byte b of word k becomes byte k of vector b: a byte's place is doubled modulo 64, four times.
inline void transpose_bytes(Bytes16 (&v)[4]) {
  for (int step = 0; step < 4; ++step) {
    const Bytes16 a = v[0], b = v[1], c = v[2], d = v[3];
    v[0] = __builtin_shufflevector(a, c, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    v[1] = __builtin_shufflevector(a, c, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    v[2] = __builtin_shufflevector(b, d, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    v[3] = __builtin_shufflevector(b, d, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  }
}

}  // namespace

std::int64_t read_packed_block(const SourceMatrix& m, const SourceHalf& half, std::span<const std::int64_t> rows,
                               std::int64_t i, CanonicalRows& out) {
  const TensorView& t = half.codes;
  if (t.strides[1] == 1 || !m.has_plain_words()) return 0;  // rows lie by themselves, or words need more
  const CodeWidth width = code_width(m.element);
  const std::int64_t each = codes_of_word(m.element), words = m.k / each / 4 * 4, step = t.strides[1] * 4;
  const auto count = std::ssize(rows);
  std::array<FourRows, kPanelRows / 4> quads;
  for (std::int64_t r = 0; r < kPanelRows; ++r)  // the last row stands for missing ones
    quads[usize(r / 4)].at[usize(r % 4)] = rows[usize(std::min(r, count - 1))] * t.strides[0] * 4;
  for (FourRows& q : quads) q.adjacent = q.at[1] - q.at[0] == 4 && q.at[2] - q.at[1] == 4 && q.at[3] - q.at[2] == 4;
  for (std::int64_t w = 0; w < words; w += 4) {
    const std::byte* src = t.data + w * step;
    for (std::int64_t j = kAhead; j < kAhead + 4 && w + j < words; ++j)
      __builtin_prefetch(src + j * step + quads[0].at[0]);
    for (std::int64_t q = 0; q < ceil_div(count, std::int64_t{4}); ++q) {
      Words4 v[4];
      for (std::int64_t j = 0; j < 4; ++j) v[j] = quads[usize(q)].load_at(src + j * step);
      transpose(v);
      for (std::int64_t r = 0; r < std::min<std::int64_t>(4, count - 4 * q); ++r) {
        std::int8_t* to = out.codes.data() + (i + 4 * q + r) * out.stride + w * each;
        switch (width) {
          case CodeWidth::nibble:
            unpack_nibbles16(reinterpret_cast<Bytes16>(v[r]), to);
            break;
          case CodeWidth::byte:
            store16(to, v[r] ^ all(0x80808080u));
            break;
        }
      }
    }
  }
  return words * each;
}

std::int64_t read_row_words_block(const SourceMatrix& m, const SourceHalf& half, std::span<const std::int64_t> rows,
                                  std::int64_t i, CanonicalRows& out) {
  const CodeWidth width = code_width(m.element);
  const std::int64_t each = codes_of_word(m.element), first = half.code_fields.first + half.code_fields.step * rows[0];
  const auto count = std::ssize(rows);
  const bool in_order = rows.back() - rows.front() == count - 1;  // rows are taken in ascending order
  if (half.code_fields.step != 1 || first % each != 0 || !in_order) return 0;
  const std::int64_t step = half.codes.strides[1] * 4, word_step = half.codes.strides[0] * 4;
  const std::byte* src = half.codes.data + first / each * word_step;
  const std::int64_t columns = m.k / 16 * 16;
  const auto sign = static_cast<std::uint8_t>(m.without_sign(0) & 15u);  // of a code
  for (std::int64_t k = 0; k < columns; k += 16, src += 16 * step) {
    for (std::int64_t j = kAhead; j < kAhead + 16 && k + j < columns; ++j) __builtin_prefetch(src + j * step);
    for (std::int64_t r0 = 0; r0 < count; r0 += each) {
      const std::byte* at = src + r0 / each * word_step;
      const auto word = [&](std::int64_t j) { return load<std::uint32_t>(at + j * step); };
      Bytes16 v[4];
      for (std::int64_t j = 0; j < 4; ++j)
        v[j] = reinterpret_cast<Bytes16>(Words4{word(4 * j), word(4 * j + 1), word(4 * j + 2), word(4 * j + 3)});
      transpose_bytes(v);
      std::int8_t* to = out.codes.data() + (i + r0) * out.stride + k;
      for (std::int64_t r = 0; r < std::min(each, count - r0); ++r, to += out.stride) {
        const int field = m.field_of(static_cast<int>(r));
        switch (width) {
          case CodeWidth::nibble:
            store16(to, ((field % 2 == 0 ? v[field / 2] & 15 : v[field / 2] >> 4) ^ sign) - 8);
            break;
          case CodeWidth::byte:
            store16(to, v[field] ^ 0x80);
            break;
        }
      }
    }
  }
  return columns;
}

}  // namespace moe::convert
