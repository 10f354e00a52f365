// One panel of a p16 layout from 16 plain rows, four rows at a time: 16 bytes of each row, and a transpose of words.
//
// int4: of a chunk of 32 k, (low | high << 4) of the codes k = 0..15 and 16..31 of a row is its four bytes of each of
// the vectors V[h][0..3]. The codes of V[h][0] and V[h][1] are exactly the 16 weights of one step of rsum
// (w4a8_int8.md 5.3), those of V[h][2] and V[h][3] the next, so the row sums come along in the order that the format
// prescribes.
#include "layouts/p16/write_p16.h"

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "base/float_formats.h"
#include "base/index.h"
#include "layouts/vec16.h"

namespace moe {
namespace {

constexpr std::int64_t kChunk = 32;
constexpr std::int64_t kQuad = 4;  // rows at a time
constexpr std::size_t kQuads = kPanelRows / kQuad;

// One chunk of four rows: 16 bytes for each of V[h][0..3]. Codes are nibbles; integers are in two's complement,
// sign-extended, and become value + 8 by `flip`.
inline void pack_chunk(const std::int8_t* codes, std::int64_t stride, Words4 flip, Words4 (&v)[4]) {
  for (std::int64_t r = 0; r < kQuad; ++r) {
    const auto low = load16<Words4>(codes + r * stride), high = load16<Words4>(codes + r * stride + 16);
    v[r] = ((low & all(0x0f0f0f0fu)) | ((high << 4) & all(0xf0f0f0f0u))) ^ flip;
  }
  transpose(v);
}

inline void store_quad(const Words4 (&v)[4], std::byte* at) {
  for (std::size_t j = 0; j < 4; ++j) store16(at + 64 * j, v[j]);
}

// The sum over 16 values of each row: two vectors of codes, two codes a byte.
inline Ints4 step_sum(Words4 a, Words4 b) {
  const Words4 nibble = all(0x0f0f0f0fu), pair = all(0x00ff00ffu);
  Words4 x = (a & nibble) + ((a >> 4) & nibble) + (b & nibble) + ((b >> 4) & nibble);  // bytes of at most 60
  x = (x & pair) + ((x >> 8) & pair);
  return reinterpret_cast<Ints4>((x + (x >> 16)) & all(0xffffu)) - 16 * 8;
}

void write_scales(const P16& m, const CanonicalRows& rows, std::byte* panel) {
  const bool by_unit = m.grouping() == Grouping::g32;
  const std::int64_t stored =
      by_unit ? m.units() * 2 : m.group_count();  // g32: the second half of the last unit may be padding
  for (std::int64_t g = 0; g < stored; ++g) {
    std::array<std::uint16_t, kPanelRows> line{};
    if (g < m.group_count())
      for (std::int64_t r = 0; r < kPanelRows; ++r)  // they are bf16 numbers: nothing to round
        line[usize(r)] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(rows.row_scales(r)[g]) >> 16);
    std::memcpy(panel + m.scale_offset(0, g), line.data(), sizeof line);
  }
  if (by_unit) return;
  const std::size_t used = usize(stored) * 32;
  std::memset(panel + used, 0, m.scale_section() - used);
}

struct RowSums {
  Floats4 scaled[kQuads] = {};  // rsum
  Ints4 plain[kQuads] = {};     // wsum
};

// Codes of all units; the sums that the grouping wants.
template <bool kChannel>
RowSums write_int4_units(const P16& m, const CanonicalRows& rows, std::byte* unit) {
  RowSums sums;
  Floats4 scale[kQuads] = {};
  std::int64_t group = -1;
  for (std::int64_t k = 0; k < m.units() * kUnitK; k += kChunk) {
    if (!kChannel && k < m.k && k / m.group() != group) {
      group = k / m.group();
      for (std::size_t r = 0; r < kPanelRows; ++r)
        scale[r / kQuad][r % kQuad] = rows.row_scales(static_cast<std::int64_t>(r))[group];
    }
    for (std::size_t q = 0; q < kQuads; ++q) {
      Words4 v[4];
      pack_chunk(rows.row(static_cast<std::int64_t>(q) * kQuad) + k, rows.stride, all(0x88888888u), v);
      store_quad(v, unit + 16 * q);
      const Ints4 first = step_sum(v[0], v[1]), second = step_sum(v[2], v[3]);
      if constexpr (kChannel) {
        sums.plain[q] += first + second;
      } else if (k < m.k) {
        sums.scaled[q] = sums.scaled[q] + __builtin_convertvector(first, Floats4) * scale[q];
        sums.scaled[q] = sums.scaled[q] + __builtin_convertvector(second, Floats4) * scale[q];
      }
    }
    unit += k % kUnitK == 0 ? 256 : m.unit_bytes() - 256;
  }
  return sums;
}

void write_w4a8_panel(const P16& m, const CanonicalRows& rows, std::byte* panel) {
  std::byte* first = panel + m.header_bytes() + m.unit_header();
  if (m.grouping() == Grouping::channel) {
    const RowSums sums = write_int4_units<true>(m, rows, first);
    std::array<float, kPanelRows> line{};
    for (std::size_t r = 0; r < kPanelRows; ++r) line[r] = rows.row_scales(static_cast<std::int64_t>(r))[0] * 0.0625f;
    std::memcpy(panel, line.data(), sizeof line);
    std::memcpy(panel + m.sum_offset(), sums.plain, sizeof sums.plain);
  } else {
    const RowSums sums = write_int4_units<false>(m, rows, first);
    write_scales(m, rows, panel);
    std::memcpy(panel + m.sum_offset(), sums.scaled, sizeof sums.scaled);
  }
}

// Scales and zero points as they are.
void write_plain_header(const P16& m, const CanonicalRows& rows, std::byte* panel) {
  std::memset(panel, 0, m.bias_offset());
  for (std::int64_t g = 0; g < m.group_count(); ++g)
    for (std::int64_t lane = 0; lane < m.scale_lanes(); ++lane) {
      store_scale(m.scales, rows.row_scales(lane)[g], panel + m.scale_offset(lane, g));
      if (m.has_zeros)
        panel[m.zero_offset() + usize(g * kPanelRows + lane)] =
            static_cast<std::byte>(rows.zeros[usize(lane * rows.groups + g)]);
    }
  if (m.has_tensor_scale())
    std::memcpy(panel + m.tensor_scale_offset(), rows.tensor_scales.data(), usize(kPanelRows) * sizeof(float));
}

// Of four rows' columns 0..3: both pairs side by side.
inline Words4 pairs_together(Words4 rows) {
  using Halves8 = std::uint16_t __attribute__((vector_size(16)));
  const auto v = reinterpret_cast<Halves8>(rows);
  return reinterpret_cast<Words4>(__builtin_shufflevector(v, v, 0, 2, 4, 6, 1, 3, 5, 7));
}

// Codes of so many bits.
template <int kBits>
void write_code_units(const P16& m, const CanonicalRows& rows, std::byte* at) {
  static_assert(kBits == 4 || kBits == 8);
  constexpr std::int64_t kStep = kChunk * 4 / kBits;  // k that become four vectors
  const Words4 flip = all(!is_integer(m.element) ? 0 : kBits == 4 ? 0x88888888u : 0x80808080u);
  for (std::int64_t k = 0; k < m.units() * kUnitK; k += kStep, at += 256)
    for (std::size_t q = 0; q < kQuads; ++q) {
      const std::int8_t* codes = rows.row(static_cast<std::int64_t>(q) * kQuad) + k;
      Words4 v[4];
      if constexpr (kBits == 4) {
        pack_chunk(codes, rows.stride, flip, v);
      } else {
        for (std::int64_t r = 0; r < kQuad; ++r) v[r] = load16<Words4>(codes + r * rows.stride) ^ flip;
        transpose(v);
        if (!is_integer(m.element))
          for (Words4& four : v) four = pairs_together(four);
      }
      store_quad(v, at + 16 * q);
    }
}

void write_code_panel(const P16& m, const CanonicalRows& rows, std::byte* panel) {
  write_plain_header(m, rows, panel);
  std::byte* first = panel + m.header_bytes();
  switch (row_of(m.element).packed_bits) {
    case 4:
      return write_code_units<4>(m, rows, first);
    case 8:
      return write_code_units<8>(m, rows, first);
  }
}

// Sixteen bytes of a float element: four k of f32, eight of the others.
inline Words4 elements(Element element, const float* values) {
  if (element == Element::f32) return load16<Words4>(values);
  std::uint16_t h[8];
  for (int i = 0; i < 8; ++i) h[i] = element == Element::bf16 ? f32_to_bf16(values[i]) : f32_to_f16(values[i]);
  return load16<Words4>(h);
}

// Sixteen rows side by side, k or k pairs after one another.
template <Element kElement>
void write_float_units(const P16& m, const CanonicalRows& rows, std::byte* at) {
  constexpr std::int64_t kStep = kElement == Element::f32 ? 4 : 8;
  for (std::int64_t k = 0; k < m.units() * kUnitK; k += kStep, at += 256)
    for (std::size_t q = 0; q < kQuads; ++q) {
      Words4 v[4];
      for (std::int64_t r = 0; r < kQuad; ++r)
        v[r] = elements(kElement, rows.row_values(static_cast<std::int64_t>(q) * kQuad + r) + k);
      transpose(v);
      store_quad(v, at + 16 * q);
    }
}

void write_value_panel(const P16& m, const CanonicalRows& rows, std::byte* panel) {
  std::byte* first = panel + m.header_bytes();
  if (m.element == Element::f32)
    write_float_units<Element::f32>(m, rows, first);
  else if (m.element == Element::bf16)
    write_float_units<Element::bf16>(m, rows, first);
  else
    write_float_units<Element::f16>(m, rows, first);
}

}  // namespace

void write_p16_panel(const P16& m, const CanonicalRows& rows, std::byte* panel) {
  if (is_value(m.element))
    write_value_panel(m, rows, panel);
  else if (m.scales == Scales::w4a8)
    write_w4a8_panel(m, rows, panel);
  else
    write_code_panel(m, rows, panel);
  if (m.has_bias) std::memcpy(panel + m.bias_offset(), rows.bias.data(), 64);
}

}  // namespace moe
