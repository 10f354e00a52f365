// KleidiAI's packed int4 weights (layouts/w4a8/kai.h), byte for byte: eight rows at a time, a half of a chunk (two
// times eight codes) in one 64-bit word.
//
// The sum of a group-wise row adds the sixteen values of one such word times the group's scale, one after the other in
// the order of the words (w4a8_int8.md 5.3).
#include <algorithm>
#include <bit>
#include <cstring>

#include "base/float_formats.h"
#include "base/index.h"
#include "layouts/w4a8/blobs.h"
#include "layouts/w4a8/kai.h"

namespace moe {
namespace {

template <class T>
T load(const void* at) {
  T v;
  std::memcpy(&v, at, sizeof v);
  return v;
}
template <class T>
void store(std::byte* at, T v) {
  std::memcpy(at, &v, sizeof v);
}

constexpr std::uint64_t kLow = 0x0f0f0f0f0f0f0f0fu;

// The sum of eight bytes of values -8..7.
std::int32_t sum8(const std::int8_t* v) {
  std::int32_t sum = 0;
  for (int j = 0; j < 8; ++j) sum += v[j];
  return sum;
}

struct RowSum {
  std::int32_t plain = 0;
  float scaled = 0.0f;
};

// One group of one row.
void write_group(const KaiMatrix& m, const std::int8_t* code, std::int64_t lane, float scale, std::byte* to,
                 RowSum& sum) {
  for (std::int64_t c = 0; c < m.chunks(); ++c, code += kKaiChunk)
    for (std::int64_t h = 0; h < 2; ++h) {
      const std::int8_t *low = code + 8 * h, *high = low + 16;
      const std::uint64_t word = (load<std::uint64_t>(low) & kLow) | ((load<std::uint64_t>(high) & kLow) << 4);
      store(to + 128 * c + 64 * h + 8 * lane, word);
      const std::int32_t part = sum8(low) + sum8(high);
      sum.plain += part;
      sum.scaled = sum.scaled + static_cast<float>(part) * scale;
    }
}

void write_row(const KaiMatrix& m, const CanonicalRows& rows, std::int64_t row, std::int64_t lane, std::byte* tile) {
  RowSum sum;
  for (std::int64_t g = 0; g < m.group_count(); ++g) {
    const float scale = rows.row_scales(row)[g];
    write_group(m, rows.row(row) + g * m.group, lane, scale, tile + m.code_offset(g, 0), sum);
    if (!m.channel())  // a bf16 number: nothing to round
      store(tile + m.scale_offset(g) + 2 * lane, static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(scale) >> 16));
  }
  std::byte* sums = tile + m.sum_offset() + 4 * lane;
  if (m.channel()) {
    // int32 as the micro-kernels have it: it wraps for rows that theirs cannot hold
    store(sums, static_cast<std::uint32_t>(sum.plain) * 16u);
    store(tile + m.scale_offset(0) + 4 * lane, rows.row_scales(row)[0] * 0.0625f);
  } else {
    store(sums, sum.scaled);
  }
  store(tile + m.bias_offset() + 4 * lane, at(rows.bias, row));
}

std::int8_t sign_extended(unsigned nibble) { return static_cast<std::int8_t>(static_cast<int>(nibble ^ 8u) - 8); }

void read_row(const KaiMatrix& m, const std::byte* tile, std::int64_t lane, std::int64_t row, CanonicalRows& rows) {
  std::int8_t* code = rows.codes.data() + row * rows.stride;
  float* scales = rows.scales.data() + row * rows.groups;
  for (std::int64_t k = 0; k < m.k; ++k) {
    const std::int64_t g = k / m.group, in = k % m.group, j = in % kKaiChunk;
    const auto byte =
        static_cast<unsigned>(tile[m.code_offset(g, in / kKaiChunk) + usize(64 * (j % 16 / 8) + 8 * lane + j % 8)]);
    code[k] = sign_extended(j < 16 ? byte & 15u : byte >> 4);
  }
  for (std::int64_t g = 0; g < m.group_count(); ++g)
    scales[g] = m.channel() ? load<float>(tile + m.scale_offset(0) + 4 * lane) * 16.0f
                            : bf16_to_f32(load<std::uint16_t>(tile + m.scale_offset(g) + 2 * lane));
  at(rows.bias, row) = load<float>(tile + m.bias_offset() + 4 * lane);
}

Check write_kai(CanonicalRows& rows, Which which, const ExpertTensors<std::byte>& out) {
  const KaiMatrix m(out.layout.matrix(which));
  std::byte* tile = out[blob_name(which)].data();
  for (std::int64_t row = 0; row < m.rows; row += kKaiRows, tile += m.tile_bytes())
    for (std::int64_t lane = 0; lane < kKaiRows; ++lane)
      write_row(m, rows, std::min(row + lane, m.rows - 1), lane, tile);
  return ok();
}

Check read_kai(const ExpertTensors<const std::byte>& in, Which which, CanonicalRows& rows) {
  const KaiMatrix m(in.layout.matrix(which));
  const std::byte* blob = in[blob_name(which)].data();
  for (std::int64_t row = 0; row < m.rows; ++row)
    read_row(m, blob + usize(row / kKaiRows) * m.tile_bytes(), row % kKaiRows, row, rows);
  return ok();
}

std::string kai_word(const Matrix& m) { return m.groups.is_whole() ? "qsi4cxp" : "qsi4c32p-" + grouping_word(m); }

std::string kai_id(const Layout& l) {
  std::string s = "kai/" + kai_word(l.w13);
  if (kai_word(l.w2) != kai_word(l.w13)) s += "," + kai_word(l.w2);
  return s + (l.w13.has_bias ? "-bias/1" : "/1");
}

void list_kai(Layout& l) {
  list_blobs(l, DType::u8, [](const Matrix& m) { return static_cast<std::int64_t>(KaiMatrix(m).bytes()); });
}

}  // namespace

constinit const LayoutFamily layout_families::kai = {kai_id, are_w4a8, list_kai, write_kai, read_kai};

}  // namespace moe
