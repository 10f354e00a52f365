// compressed-tensors int4 and int8 weights -> plain rows.
//
//   int-quantized   I8  [N, K]             one value -8..7 or -128..127 per byte
//   pack-quantized  I32 [N, ceil(K/8)]     value + 8 of column k in bits 4*(k%8) of word k/8; bits past K are 0
//                   I32 [N, ceil(K/4)]     value + 128 in bits 8*(k%4) of word k/4
//   narrow ones     I32 [N, K*b/32]        value + 2^(b-1) of column k in bits b*k.. of the row, from the lowest on
//
// GPTQ has the words of pack-quantized with columns first, which a view hides:
//
//   gptq            I32 [ceil(K/8), N] or [ceil(K/4), N]
//
// Quark's words of channel-wise rows have AWQ's order of fields, or a sign:
//
//   quark-reorder   I32 [N, K/8]           column 8w + c in field awq_field(c) of word w
//
// (read_blocks.cpp reads these sixteen rows at a time; what is no whole block of it, here). All read many codes at a
// time and look at all range faults of a row together; only a bad row is searched for its first fault.
#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "base/index.h"
#include "base/text.h"
#include "convert/read_rows.h"
#include "layouts/vec16.h"

namespace moe::convert {
namespace {

static_assert(std::endian::native == std::endian::little, "columns are taken from words by their byte order");

constexpr std::uint64_t kEach = 0x0101010101010101u;
constexpr std::int64_t kAhead = 4096;  // bytes between prefetch and use; rows follow each other

// Bits 3..7 of a valid byte are equal (sign extension of 4 bits).
constexpr std::uint64_t range_fault(std::uint64_t x) { return (x ^ (x >> 1)) & (kEach * 0x78); }
static_assert(range_fault(0x07ff00f8f9050107u) == 0 && range_fault(0x0800) != 0 && range_fault(0xf700) != 0);

MaybeFault find_bad_value(const std::int8_t* row, std::int64_t k) {
  for (std::int64_t i = 0; i < k; ++i)
    if (row[i] < -8 || row[i] > 7) return Fault{i, cat("value ", row[i], " is outside -8..7")};
  return std::nullopt;
}

MaybeFault read_int8_row(const std::byte* src, std::int64_t step, std::int64_t k, std::int8_t* out) {
  Words4 bad = {};
  std::int64_t i = 0;
  if (step == 1)
    for (; i + 16 <= k; i += 16) {
      if (i % 64 == 0) __builtin_prefetch(src + i + kAhead);
      const auto x = load16<Words4>(src + i);
      store16(out + i, x);
      bad |= x ^ (x >> 1);
    }
  std::uint64_t fault = any(bad & all(static_cast<std::uint32_t>(kEach * 0x78)));
  for (; i < k; ++i) {
    out[i] = load<std::int8_t>(src + i * step);
    fault |= range_fault(static_cast<std::uint8_t>(out[i]));
  }
  return fault == 0 ? std::nullopt : find_bad_value(out, k);
}

// Eight nibbles, each value + 8 -> eight signed bytes.
constexpr std::uint64_t unpack_nibbles(std::uint32_t word) {
  std::uint64_t x = word;
  x = (x | (x << 16)) & 0x0000ffff0000ffffu;
  x = (x | (x << 8)) & 0x00ff00ff00ff00ffu;
  x = (x | (x << 4)) & (kEach * 0x0f);
  x ^= kEach * 8;                         // low nibble in two's complement
  return x | ((x & (kEach * 8)) * 0x1e);  // bit 3 into bits 4..7
}
static_assert(unpack_nibbles(0x876f0189u) == 0x00fffe07f8f90001u);

MaybeFault read_packed_row(const std::byte* src, std::int64_t step, std::int64_t k, std::int8_t* out) {
  const std::int64_t words = k / 8;
  std::int64_t w = 0;
  if (step == 1)
    for (; w + 4 <= words; w += 4) {
      if (w % 16 == 0) __builtin_prefetch(src + w * 4 + kAhead);
      unpack_nibbles16(load16<Bytes16>(src + w * 4), out + w * 8);
    }
  for (; w < words; ++w) {
    const std::uint64_t x = unpack_nibbles(load<std::uint32_t>(src + w * step * 4));
    std::memcpy(out + w * 8, &x, 8);
  }
  const std::int64_t rest = k % 8;
  if (rest == 0) return std::nullopt;
  const auto last = load<std::uint32_t>(src + words * step * 4);
  const std::uint64_t x = unpack_nibbles(last);
  std::memcpy(out + words * 8, &x, usize(rest));
  const std::uint32_t beyond = last >> (4 * rest);
  if (beyond == 0) return std::nullopt;
  return Fault{k + std::countr_zero(beyond) / 4,
               cat("bits past the last column (", k, ") must be 0, the word is ", static_cast<std::int32_t>(last))};
}

// Eight bits: every value is one.
MaybeFault read_int8_row_whole(const std::byte* src, std::int64_t step, std::int64_t k, std::int8_t* out) {
  if (step == 1)
    std::memcpy(out, src, usize(k));
  else
    for (std::int64_t i = 0; i < k; ++i) out[i] = load<std::int8_t>(src + i * step);
  return std::nullopt;
}

MaybeFault read_packed_bytes_row(const std::byte* src, std::int64_t step, std::int64_t k, std::int8_t* out) {
  for (std::int64_t i = 0; i < k; i += 4) {
    const std::uint32_t word = load<std::uint32_t>(src + i * step), codes = word ^ 0x80808080u;
    const std::int64_t valid = std::min<std::int64_t>(4, k - i);
    std::memcpy(out + i, &codes, usize(valid));
    const std::uint32_t beyond = valid == 4 ? 0 : word >> (8 * valid);
    if (beyond != 0)
      return Fault{k + std::countr_zero(beyond) / 8,
                   cat("bits past the last column (", k, ") must be 0, the word is ", static_cast<std::int32_t>(word))};
  }
  return std::nullopt;
}

// The fields of a word in AWQ's order, in plain order: 0 4 1 5 2 6 3 7 of them.
constexpr std::uint32_t in_plain_order(std::uint32_t word) {
  const auto spread = [](std::uint32_t half) {
    half = (half | half << 8) & 0x00ff00ffu;
    return (half | half << 4) & 0x0f0f0f0fu;
  };
  return spread(word & 0xffffu) | spread(word >> 16) << 4;
}
static_assert(in_plain_order(0x76543210u) == 0x73625140u);

// Words of 4-bit codes that are not compressed-tensors'. K is a whole number of words (config).
void read_other_words_row(const SourceMatrix& m, const std::byte* src, std::int64_t step, std::int64_t k,
                          std::int8_t* out) {
  for (std::int64_t w = 0; w < k / 8; ++w) {
    const std::uint32_t word = m.without_sign(load<std::uint32_t>(src + w * step * 4));
    const std::uint64_t x = unpack_nibbles(m.order == FieldOrder::awq ? in_plain_order(word) : word);
    std::memcpy(out + w * 8, &x, 8);
  }
}

// Narrow codes: eight of them are as many bytes as a code has bits. K is a whole number of words (config).
void read_narrow_row(const std::byte* src, std::int64_t step, std::int64_t k, int bits, std::int8_t* out) {
  const auto middle = static_cast<unsigned>(1 << (bits - 1)), mask = 2 * middle - 1;
  const auto put = [&](std::uint64_t eight, std::int8_t* to, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i, eight >>= bits)
      to[i] = static_cast<std::int8_t>(static_cast<unsigned>(eight & mask) - middle);
  };
  std::int64_t i = 0;
  if (step == 1)
    for (; i + 8 <= k; i += 8) {
      const std::byte* at = src + i / 8 * bits;
      if (i % 128 == 0) __builtin_prefetch(at + kAhead);
      std::uint64_t eight = 0;
      std::memcpy(&eight, at, usize(bits));
      put(eight, out + i, 8);
    }
  for (; i < k; ++i) {
    const std::int64_t bit = i * bits, shift = bit % 32;
    const std::byte* at = src + bit / 32 * step * 4;
    std::uint64_t two = load<std::uint32_t>(at);
    if (shift + bits > 32) two |= static_cast<std::uint64_t>(load<std::uint32_t>(at + step * 4)) << 32;
    put(two >> shift, out + i, 1);
  }
}

using ReadCodes = MaybeFault (*)(const std::byte* src, std::int64_t step, std::int64_t k, std::int8_t* out);

// Of tensors that hold a code in an element, or as many as a word holds.
struct CodeReaders {
  ReadCodes of_bytes = nullptr, of_words = nullptr;
};

constexpr CodeReaders readers_of(Element integer) {
  switch (code_width(integer)) {
    case CodeWidth::nibble:
      return {read_int8_row, read_packed_row};
    case CodeWidth::byte:
      return {read_int8_row_whole, read_packed_bytes_row};
  }
  return {};
}

// `each`: codes of an element of the tensor.
Check read_quantized_row(ReadCodes read_codes, std::int64_t each, const SourceMatrix& m, const SourceHalf& half,
                         const RowPlace& at, CanonicalRows& out) {
  const std::int64_t size = dtype_bits(half.codes.dtype) / 8, step = half.codes.strides[1];
  const std::byte* src = half.codes.data + (at.r * half.codes.strides[0] + at.column / each * step) * size;
  MaybeFault fault = read_codes(src, step, m.k - at.column, out.codes.data() + at.i * out.stride + at.column);
  if (!fault) return read_row_scales(m, half, at.r, at.i, out);
  fault->k += at.column;
  return value_error(m, "weight", half.code_rows, at.r, *fault);
}

}  // namespace

Check read_int8_codes(const SourceMatrix& m, const SourceHalf& half, const RowPlace& at, CanonicalRows& out) {
  return read_quantized_row(readers_of(m.element).of_bytes, 1, m, half, at, out);
}

Check read_packed_codes(const SourceMatrix& m, const SourceHalf& half, const RowPlace& at, CanonicalRows& out) {
  if (!m.has_plain_words()) {
    const std::byte* src = half.codes.data + at.r * half.codes.strides[0] * 4;
    std::int8_t* to = out.codes.data() + at.i * out.stride;
    if (m.is_narrow())
      read_narrow_row(src, half.codes.strides[1], m.k, m.code_bits(), to);
    else
      read_other_words_row(m, src, half.codes.strides[1], m.k, to);
    return read_row_scales(m, half, at.r, at.i, out);
  }
  return read_quantized_row(readers_of(m.element).of_words, codes_of_word(m.element), m, half, at, out);
}

}  // namespace moe::convert
