// One number of a packed panel at a time: what the scalar kernels multiply and what goes back to dense numbers.
//
// Slow and simple on purpose: addresses come from P16 each time, so these functions are an
// independent check of the kernels' own arithmetic. Everything is safe for any bytes of a file: an
// index is masked before it meets a table.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/index.h"
#include "base/load.h"
#include "layouts/p16/p16.h"

namespace moe {

// Values of all codes of a small float.
// A template per element: the table has exactly as many entries as the format has codes, and a
// missing one cannot be read.
template <Element kElement>
inline constexpr auto kSmallValues = [] {
  constexpr const SmallFloat& kFormat = row_of(kElement).format;
  std::array<float, kFormat.codes()> values{};
  for (unsigned code = 0; code < values.size(); ++code) values[code] = small_to_f32(kFormat, code);
  return values;
}();

// Bits above the element's own are not looked at: a packed file may hold any byte.
// e2m3 and e3m2 have 6 bits and lie in a byte.
template <Element kElement>
float small_value(unsigned code) {
  return kSmallValues<kElement>[code & (kSmallValues<kElement>.size() - 1)];
}
// A switch without default: a new element does not compile until it is placed here.
inline float small_value(Element element, unsigned code) {
  switch (element) {
    case Element::e2m1:
      return small_value<Element::e2m1>(code);
    case Element::e2m3:
      return small_value<Element::e2m3>(code);
    case Element::e3m2:
      return small_value<Element::e3m2>(code);
    case Element::e4m3:
      return small_value<Element::e4m3>(code);
    case Element::e5m2:
      return small_value<Element::e5m2>(code);
    case Element::int4:
    case Element::int8:
    case Element::bf16:
    case Element::f16:
    case Element::f32:
      break;
  }
  return 0.0f;  // not a small float
}

// The code of (lane, k); of elements with codes.
inline unsigned code_in(const P16& m, const std::byte* panel, std::int64_t lane, std::int64_t k) {
  const auto byte = static_cast<unsigned>(panel[m.code_offset(lane, k)]);
  switch (row_of(m.element).packed_bits) {
    case 8:
      return byte;
    case 4:
      return P16::nibble_high(k) ? byte >> 4 : byte & 15u;
  }
  return 0;  // no codes have another width: elements.h
}

// The code of value 0 in a group of a lane; of integers.
// The stored zero point is the real one (rows.h); conventions of checkpoints end at their readers.
inline int zero_in(const P16& m, const std::byte* panel, std::int64_t lane, std::int64_t group) {
  if (!m.has_zeros) return code_bias(m.element);
  return static_cast<int>(panel[m.zero_offset() + usize(group * kPanelRows + lane)]);
}

// Scales that are bytes, as kernels take them: e8m0 is an exponent, e4m3 the low half of a fp16 that is 2^8 smaller.
// Bytes that are no scales mean what that makes of them (e8m0 255: Inf): a packed file may hold any.
// The vector rows make the same bits of every byte (V::load_e8m0, V::load_e4m3), NaN codes too, so
// that even a damaged file gives equal results on all machines.
inline float byte_scale(Scales type, unsigned byte) {
  if (type == Scales::e4m3) return f16_to_f32(static_cast<std::uint16_t>(byte << 7)) * 256.0f;
  return std::bit_cast<float>(std::max(byte << 23, 0x00400000u));
}

// What it returns is the checkpoint's scale. * 16 is exact unless s / 16 was subnormal.
inline float scale_in(const P16& m, const std::byte* panel, std::int64_t lane, std::int64_t group) {
  const Scales type = m.scale_type();
  const std::byte* at = panel + m.scale_offset(lane, group);
  if (type == Scales::e4m3 || type == Scales::e8m0) return byte_scale(type, load<std::uint8_t>(at));
  const float stored = load_scale(type, at);
  return m.scales == Scales::w4a8 && m.groups.is_whole() ? stored * 16.0f : stored;  // it keeps s / 16
}

// What the scales of a lane come multiplied by.
// It stays apart from the group scales: kernels multiply it in once at the end, and the order of
// roundings is part of the result.
inline float tensor_scale_in(const P16& m, const std::byte* panel, std::int64_t lane) {
  return m.has_tensor_scale() ? load<float>(panel + m.tensor_scale_offset() + 4 * lane) : 1.0f;
}

// The number at (lane, k) without its scale; also of the padding behind the last column.
// float(code - zero) is exact: both are small integers. That keeps every sum of the scalar kernels
// comparable with the integer sums of the others.
inline float value_in(const P16& m, const std::byte* panel, std::int64_t lane, std::int64_t k) {
  if (is_integer(m.element)) {
    const std::int64_t group = m.groups.is_whole() ? 0 : k / m.group();
    return static_cast<float>(static_cast<int>(code_in(m, panel, lane, k)) - zero_in(m, panel, lane, group));
  }
  if (!is_value(m.element)) return small_value(m.element, code_in(m, panel, lane, k));
  const std::byte* at = panel + m.code_offset(lane, k);
  if (m.element == Element::f32) return load<float>(at);
  const auto h = load<std::uint16_t>(at);
  return m.element == Element::bf16 ? bf16_to_f32(h) : f16_to_f32(h);
}

}  // namespace moe
