// Codes of small floats, of any width: U8 or F8 [N, ceil(K*bits/8)], the code of column k in bits bits*k.. of its row,
// the first in the lowest ones. So fp4 has two codes a byte, fp6 four in three bytes, fp8 one (float_formats.md 4).
// Narrow ones are e2m3, whose numbers are numbers of e4m3.
#include <array>
#include <cstring>
#include <string>

#include "base/text.h"
#include "convert/read_rows.h"

namespace moe::convert {
namespace {

unsigned code_at(const std::byte* row, std::int64_t step, int bits, std::int64_t k) {
  const std::int64_t bit = k * bits, byte = bit / 8;
  const auto shift = static_cast<int>(bit % 8);
  unsigned word = load<std::uint8_t>(row + byte * step);
  if (shift + bits > 8) word |= static_cast<unsigned>(load<std::uint8_t>(row + (byte + 1) * step)) << 8;
  return word >> shift & ((1u << bits) - 1);
}

std::string code_text(unsigned code) {
  constexpr char kHex[] = "0123456789abcdef";
  return cat("0x", kHex[code >> 4 & 15], kHex[code & 15]);
}

// The code of the same number in e4m3.
constexpr std::array kE4m3OfE2m3 = [] {
  std::array<std::int8_t, kE2m3.codes()> codes{};
  for (unsigned i = 0; i < codes.size(); ++i)
    codes[i] = static_cast<std::int8_t>(f32_to_small(kE4m3, small_to_f32(kE2m3, i)));
  return codes;
}();
static_assert([] {
  for (unsigned i = 0; i < kE2m3.codes(); ++i)
    if (small_to_f32(kE4m3, static_cast<std::uint8_t>(kE4m3OfE2m3[i])) != small_to_f32(kE2m3, i)) return false;
  return true;
}());

// Every code is a number, and rows are whole bytes: groups of 32 codes are 24 of them.
void read_e2m3_row(const std::byte* src, std::int64_t step, std::int64_t k, std::int8_t* out) {
  for (std::int64_t i = 0; i < k; i += 4, src += 3 * step) {
    const unsigned four = load<std::uint8_t>(src) | static_cast<unsigned>(load<std::uint8_t>(src + step)) << 8 |
                          static_cast<unsigned>(load<std::uint8_t>(src + 2 * step)) << 16;
    for (unsigned c = 0; c < 4; ++c) out[i + c] = kE4m3OfE2m3[four >> 6 * c & 63];
  }
}

// Codes of a byte each, as they are; whether all of them are numbers.
bool copy_bytes(const SmallFloat& format, const std::byte* src, std::int64_t count, std::int8_t* out) {
  unsigned bad = 0;
  for (std::int64_t k = 0; k < count; ++k) {
    const auto code = static_cast<unsigned>(src[k]);
    bad |= static_cast<unsigned>(!format.is_finite(code));
    out[k] = static_cast<std::int8_t>(code);
  }
  return bad == 0;
}

// Two codes a byte, all of which are numbers.
void copy_nibbles(const std::byte* src, std::int64_t count, std::int8_t* out) {
  for (std::int64_t b = 0; b < count / 2; ++b) {
    const auto pair = static_cast<unsigned>(src[b]);
    out[2 * b] = static_cast<std::int8_t>(pair & 15u);
    out[2 * b + 1] = static_cast<std::int8_t>(pair >> 4);
  }
}

}  // namespace

Check read_small_floats(const SourceMatrix& m, const SourceHalf& half, const RowPlace& at, CanonicalRows& out) {
  const ElementRow& element = row_of(m.element);
  const TensorView& t = half.codes;
  const std::byte* src = t.data + at.r * t.strides[0];
  std::int8_t* row = out.codes.data() + at.i * out.stride;
  if (m.is_narrow()) {
    read_e2m3_row(src, t.strides[1], m.k, row);
    return read_row_scales(m, half, at.r, at.i, out);
  }
  if (element.bits == 8 && t.strides[1] == 1 && copy_bytes(element.format, src, m.k, row))
    return read_row_scales(m, half, at.r, at.i, out);
  if (m.element == Element::e2m1 && t.strides[1] == 1 && m.k % 2 == 0) {
    copy_nibbles(src, m.k, row);
    return read_row_scales(m, half, at.r, at.i, out);
  }
  for (std::int64_t k = 0; k < m.k; ++k) {
    const unsigned code = code_at(src, t.strides[1], element.bits, k);
    if (!element.format.is_finite(code))
      return value_error(m, "weight", half.code_rows, at.r,
                         {k, cat("code ", code_text(code), " of ", element.name, " is no finite number")});
    row[k] = static_cast<std::int8_t>(code);
  }
  if (const std::int64_t rest = m.k * element.bits % 8; rest != 0)
    if (const unsigned last = load<std::uint8_t>(src + m.k * element.bits / 8 * t.strides[1]); last >> rest != 0)
      return value_error(m, "weight", half.code_rows, at.r,
                         {m.k, cat("bits past the last column (", m.k, ") must be 0, the byte is ", code_text(last))});
  return read_row_scales(m, half, at.r, at.i, out);
}

}  // namespace moe::convert
