// Weights of e2m1 in the two places that are not runs of bytes.
//
// hopper (FlashInfer's CUTLASS kernels for bf16 activations): of 16 rows and 32 bytes of each, lane l = 0..15 takes
//
//   bytes      of row       at
//   0, 2       r            8*(l/4) + l%4, and 4 further         r = 0..7
//   1, 3       r + 8        the same
//
// moves the bits of this word as kMoves says, and puts it into row r + 8*(l/4%2) at 16*(l/8) + 4*(l%4).
//
// blocks32 (vLLM's CPU kernels): of 32 rows and a byte of each, the 64 codes in turn, u[0..63], are bytes
// u[n] | u[n + 32] << 4, n = 0..31.
#include <array>
#include <cstring>
#include <vector>

#include "base/load.h"
#include "layouts/floats/float_matrix.h"

namespace moe {
namespace {

struct Move {
  int from, count, to;  // the lowest bits
};
constexpr std::array kMoves = {Move{7, 1, 31},  Move{4, 3, 22},  Move{3, 1, 15},  Move{0, 3, 6},   Move{15, 1, 28},
                               Move{12, 3, 19}, Move{11, 1, 12}, Move{8, 3, 3},   Move{23, 1, 25}, Move{20, 3, 16},
                               Move{19, 1, 9},  Move{16, 3, 0},  Move{31, 1, 30}, Move{29, 2, 26}, Move{28, 1, 29},
                               Move{27, 1, 14}, Move{25, 2, 10}, Move{24, 1, 13}};

// What byte b of a word becomes, by its value.
using WordTables = std::array<std::array<std::uint32_t, 256>, 4>;
constexpr WordTables tables_of(bool back) {
  std::array<int, 32> place{};
  for (const Move& move : kMoves)
    for (int i = 0; i < move.count; ++i) {
      const auto from = static_cast<std::size_t>(move.from + i), to = static_cast<std::size_t>(move.to + i);
      place[back ? to : from] = static_cast<int>(back ? from : to);
    }
  WordTables t{};
  for (std::size_t b = 0; b < 4; ++b)
    for (std::size_t value = 0; value < 256; ++value)
      for (std::size_t bit = 0; bit < 8; ++bit)
        if ((value >> bit & 1) != 0) t[b][value] |= std::uint32_t{1} << place[8 * b + bit];
  return t;
}
constexpr WordTables kThere = tables_of(false), kBack = tables_of(true);

std::uint32_t moved(const WordTables& t, std::uint32_t word) {
  return t[0][word & 255] | t[1][word >> 8 & 255] | t[2][word >> 16 & 255] | t[3][word >> 24];
}

std::vector<std::byte> packed_row(const FloatMatrix& m, const CanonicalRows& rows, std::int64_t n) {
  std::vector<std::byte> row(usize(m.row_bytes()));
  if (const std::int64_t r = m.source_row(n); r >= 0) pack_codes(rows.row(r), rows.k, row.data());
  return row;
}
void unpack_row(const FloatMatrix& m, const std::byte* row, std::int64_t n, CanonicalRows& rows) {
  if (const std::int64_t r = m.source_row(n); r >= 0) unpack_codes(row, rows.k, rows.codes.data() + r * rows.stride);
}

constexpr std::int64_t kHopperRows = 16, kBlockRows = 32;

// Calls each(bytes 0 and 2, bytes 1 and 3 of 16 rows; the word's row and byte) with rows as offsets.
template <class Each>
void each_hopper_word(std::int64_t row_bytes, Each each) {
  for (std::int64_t r = 0; r < 8; ++r)
    for (std::int64_t b = 0; b < row_bytes; b += 32)
      for (std::int64_t lane = 0; lane < 16; ++lane) {
        const std::int64_t upper = r * row_bytes + b + 8 * (lane / 4) + lane % 4;
        each(upper, upper + 8 * row_bytes, (r + lane / 4 % 2 * 8) * row_bytes + b + lane / 8 * 16 + lane % 4 * 4);
      }
}

}  // namespace

void pack_codes(const std::int8_t* codes, std::int64_t count, std::byte* out) {
  for (std::int64_t k = 0; k < count; k += 2)
    *out++ = static_cast<std::byte>((static_cast<unsigned>(codes[k]) & 15u) |
                                    (static_cast<unsigned>(codes[k + 1]) & 15u) << 4);
}
void unpack_codes(const std::byte* in, std::int64_t count, std::int8_t* codes) {
  for (std::int64_t k = 0; k < count; k += 2, ++in) {
    codes[k] = static_cast<std::int8_t>(static_cast<unsigned>(*in) & 15u);
    codes[k + 1] = static_cast<std::int8_t>(static_cast<unsigned>(*in) >> 4);
  }
}

void write_hopper(const FloatMatrix& m, const CanonicalRows& rows, std::byte* out) {
  const std::int64_t bytes = m.row_bytes();
  std::vector<std::byte> tile(usize(kHopperRows * bytes));
  for (std::int64_t n = 0; n < m.rows(); n += kHopperRows, out += tile.size()) {
    for (std::int64_t i = 0; i < kHopperRows; ++i)
      std::memcpy(tile.data() + i * bytes, packed_row(m, rows, n + i).data(), usize(bytes));
    each_hopper_word(bytes, [&](std::int64_t upper, std::int64_t lower, std::int64_t to) {
      const auto byte = [&](std::int64_t i) { return static_cast<std::uint32_t>(at(tile, i)); };
      const std::uint32_t word =
          moved(kThere, byte(upper) | byte(lower) << 8 | byte(upper + 4) << 16 | byte(lower + 4) << 24);
      std::memcpy(out + to, &word, 4);
    });
  }
}
void read_hopper(const FloatMatrix& m, const std::byte* in, CanonicalRows& rows) {
  const std::int64_t bytes = m.row_bytes();
  std::vector<std::byte> tile(usize(kHopperRows * bytes));
  for (std::int64_t n = 0; n < m.rows(); n += kHopperRows, in += tile.size()) {
    each_hopper_word(bytes, [&](std::int64_t upper, std::int64_t lower, std::int64_t from) {
      const std::uint32_t word = moved(kBack, load<std::uint32_t>(in + from));
      const std::array place = {upper, lower, upper + 4, lower + 4};
      for (std::size_t b = 0; b < 4; ++b) at(tile, place[b]) = static_cast<std::byte>(word >> (8 * b) & 255);
    });
    for (std::int64_t i = 0; i < kHopperRows; ++i) unpack_row(m, tile.data() + i * bytes, n + i, rows);
  }
}

void write_blocks32(const FloatMatrix& m, const CanonicalRows& rows, std::byte* out) {
  const std::int64_t bytes = m.row_bytes();
  std::array<std::vector<std::byte>, kBlockRows> block;
  const auto code = [&](std::int64_t u, std::int64_t b) {
    return static_cast<unsigned>(at(at(block, u / 2), b)) >> (u % 2 * 4) & 15u;
  };
  for (std::int64_t n = 0; n < m.rows(); n += kBlockRows) {
    for (std::int64_t i = 0; i < kBlockRows; ++i) at(block, i) = packed_row(m, rows, n + i);
    for (std::int64_t b = 0; b < bytes; ++b)
      for (std::int64_t i = 0; i < kBlockRows; ++i)
        *out++ = static_cast<std::byte>(code(i, b) | code(i + kBlockRows, b) << 4);
  }
}
void read_blocks32(const FloatMatrix& m, const std::byte* in, CanonicalRows& rows) {
  const std::int64_t bytes = m.row_bytes();
  std::array<std::vector<std::byte>, kBlockRows> block;
  const auto put = [&](std::int64_t u, std::int64_t b, unsigned code) {
    at(at(block, u / 2), b) |= static_cast<std::byte>(code << (u % 2 * 4));
  };
  for (std::int64_t n = 0; n < m.rows(); n += kBlockRows) {
    for (std::vector<std::byte>& row : block) row.assign(usize(bytes), std::byte{0});
    for (std::int64_t b = 0; b < bytes; ++b)
      for (std::int64_t i = 0; i < kBlockRows; ++i, ++in) {
        put(i, b, static_cast<unsigned>(*in) & 15u);
        put(i + kBlockRows, b, static_cast<unsigned>(*in) >> 4);
      }
    for (std::int64_t i = 0; i < kBlockRows; ++i) unpack_row(m, at(block, i).data(), n + i, rows);
  }
}

}  // namespace moe
