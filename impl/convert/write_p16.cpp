// One panel of a p16 layout from 16 plain rows.
//
// int4: a unit of 64 k is written row by row: the 16 codes k = 32c + 8h + j and k = 32c + 16 + 8h + j (j = 0..7)
// of chunk c and half h are two words; (low | high << 4) is eight finished bytes, four for vector
// V[c%2][2h] and four for V[c%2][2h+1]. The same two words are exactly the 16 weights of one step of
// rsum (w4a8_int8.md 5.3), so the row sums come along in the order that the format prescribes.
#include "convert/write_p16.h"

#include <array>
#include <cstdint>
#include <cstring>

#include "base/float_formats.h"

namespace moe {
namespace {

constexpr std::uint64_t kEach = 0x0101010101010101u;
constexpr std::int64_t kChunk = 32;

std::uint64_t load_word(const std::int8_t* p) {
  std::uint64_t x;
  std::memcpy(&x, p, 8);
  return x;
}

struct RowSums {
  std::array<float, kPanelRows> scaled{};        // rsum
  std::array<std::int32_t, kPanelRows> plain{};  // wsum
};

// Writes one chunk of one row into its unit and gives the sums of its two steps.
struct ChunkSums {
  std::int32_t first, second;
};
inline ChunkSums write_chunk(const std::int8_t* codes, std::byte* half_unit, std::size_t lane) {
  std::array<std::int32_t, 2> sum{};
  for (std::size_t h = 0; h < 2; ++h) {
    // Valid bytes are sign-extended nibbles: flipping bit 3 gives value + 8 in the low four bits.
    const std::uint64_t low = (load_word(codes + 8 * h) ^ (kEach * 8)) & (kEach * 15);
    const std::uint64_t high = (load_word(codes + 16 + 8 * h) ^ (kEach * 8)) & (kEach * 15);
    const std::uint64_t bytes = low | (high << 4);
    std::memcpy(half_unit + 128 * h + 4 * lane, &bytes, 4);
    const std::uint64_t next = bytes >> 32;
    std::memcpy(half_unit + 128 * h + 64 + 4 * lane, &next, 4);
    // Eight byte sums of at most 30 add up to at most 240 in the top byte.
    sum[h] = static_cast<std::int32_t>(((low + high) * kEach) >> 56) - 128;
  }
  return {sum[0], sum[1]};
}

void write_scales(const P16Matrix& m, const CanonicalRows& rows, std::byte* panel) {
  const bool by_unit = m.grouping() == Grouping::g32;
  const std::int64_t stored =
      by_unit ? m.units() * 2 : m.groups();  // g32: the second half of the last unit may be padding
  for (std::int64_t g = 0; g < stored; ++g) {
    std::array<std::uint16_t, kPanelRows> line{};
    if (g < m.groups())
      for (std::int64_t r = 0; r < kPanelRows; ++r)
        line[static_cast<std::size_t>(r)] = f32_to_bf16(rows.row_scales(r)[g]);
    std::memcpy(panel + m.scale_offset(0, g), line.data(), sizeof line);
  }
  if (by_unit) return;
  const std::size_t used = static_cast<std::size_t>(stored) * 32;
  std::memset(panel + used, 0, m.scale_section() - used);
}

void write_int4_panel(const P16Matrix& m, const CanonicalRows& rows, std::byte* panel) {
  const bool channel = m.grouping() == Grouping::channel;
  RowSums sums;
  for (std::int64_t u = 0; u < m.units(); ++u) {
    std::byte* unit = panel + m.header_bytes() + static_cast<std::size_t>(u) * m.unit_bytes() + m.unit_header();
    for (std::int64_t c = 0; c < 2; ++c) {
      const std::int64_t k = u * kUnitK + c * kChunk;
      const std::int64_t g = channel || k >= m.k ? 0 : k / m.group;
      for (std::size_t r = 0; r < kPanelRows; ++r) {
        const auto row = static_cast<std::int64_t>(r);
        const ChunkSums s = write_chunk(rows.row(row) + k, unit + static_cast<std::size_t>(c) * 256, r);
        sums.plain[r] += s.first + s.second;
        if (channel || k >= m.k) continue;
        const float scale = rows.row_scales(row)[g];
        sums.scaled[r] = sums.scaled[r] + static_cast<float>(s.first) * scale;
        sums.scaled[r] = sums.scaled[r] + static_cast<float>(s.second) * scale;
      }
    }
  }
  if (channel) {
    std::array<float, kPanelRows> line{};
    for (std::size_t r = 0; r < kPanelRows; ++r) line[r] = rows.row_scales(static_cast<std::int64_t>(r))[0] * 0.0625f;
    std::memcpy(panel, line.data(), sizeof line);
    std::memcpy(panel + m.sum_offset(), sums.plain.data(), sizeof sums.plain);
  } else {
    write_scales(m, rows, panel);
    std::memcpy(panel + m.sum_offset(), sums.scaled.data(), sizeof sums.scaled);
  }
}

// Scales and zero points as they are (kinds w4 and w8).
void write_plain_header(const P16Matrix& m, const CanonicalRows& rows, std::byte* panel) {
  std::memset(panel, 0, m.bias_offset());
  for (std::int64_t g = 0; g < m.groups(); ++g)
    for (std::int64_t lane = 0; lane < kPanelRows; ++lane) {
      const float s = rows.row_scales(lane)[g];
      std::byte* at = panel + m.scale_offset(lane, g);
      if (m.scales == Scales::f32) {
        std::memcpy(at, &s, 4);
      } else {
        const std::uint16_t h = m.scales == Scales::bf16 ? f32_to_bf16(s) : f32_to_f16(s);
        std::memcpy(at, &h, 2);
      }
      if (m.has_zeros)
        panel[m.zero_offset() + static_cast<std::size_t>(g * kPanelRows + lane)] =
            static_cast<std::byte>(rows.zeros[static_cast<std::size_t>(lane * rows.groups + g)]);
    }
}

void write_plain_panel(const P16Matrix& m, const CanonicalRows& rows, std::byte* panel) {
  write_plain_header(m, rows, panel);
  std::byte* unit = panel + m.header_bytes();
  for (std::int64_t k = 0; k < m.units() * kUnitK; k += kUnitK, unit += m.unit_bytes())
    for (std::size_t lane = 0; lane < kPanelRows; ++lane) {
      const std::int8_t* codes = rows.row(static_cast<std::int64_t>(lane)) + k;
      if (m.element == Element::int4) {
        for (std::size_t c = 0; c < 2; ++c) write_chunk(codes + 32 * c, unit + 256 * c, lane);
        continue;
      }
      for (std::size_t j = 0; j < 16; ++j) {
        std::uint32_t word;
        std::memcpy(&word, codes + 4 * j, 4);
        word ^= 0x80808080u;  // value + 128
        std::memcpy(unit + 64 * j + 4 * lane, &word, 4);
      }
    }
}

// Sixteen rows side by side, k or k pairs after one another.
void write_float_panel(const P16Matrix& m, const CanonicalRows& rows, std::byte* panel) {
  for (std::int64_t lane = 0; lane < kPanelRows; ++lane) {
    const float* values = rows.row_values(lane);
    for (std::int64_t k = 0; k < m.units() * kUnitK; ++k) {
      std::byte* at = panel + m.code_offset(lane, k);
      if (m.element == Element::f32) {
        std::memcpy(at, values + k, 4);
      } else {
        const std::uint16_t h = m.element == Element::bf16 ? f32_to_bf16(values[k]) : f32_to_f16(values[k]);
        std::memcpy(at, &h, 2);
      }
    }
  }
}

}  // namespace

void write_p16_panel(const P16Matrix& m, const CanonicalRows& rows, std::byte* panel) {
  if (!is_integer(m.element))
    write_float_panel(m, rows, panel);
  else if (m.scales == Scales::w4a8)
    write_int4_panel(m, rows, panel);
  else
    write_plain_panel(m, rows, panel);
  if (m.has_bias) std::memcpy(panel + m.bias_offset(), rows.bias.data(), 64);
}

}  // namespace moe
