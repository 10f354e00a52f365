// Which reader a checkpoint format has, and what all of them need. See read_rows.h.
#include "convert/read_rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/decimal.h"
#include "base/index.h"
#include "base/text.h"

namespace moe::convert {
namespace {

struct Reader {
  Codes codes;
  ReadRow read_row;
  ReadBlock read_block = nullptr;
};

constexpr std::array kReaders = {
    Reader{Codes::values, read_floats},
    Reader{Codes::bytes, read_int8_codes},
    Reader{Codes::words, read_packed_codes, read_packed_block},
    Reader{Codes::row_words, read_row_words, read_row_words_block},
    Reader{Codes::row_pairs, read_row_pairs},
    Reader{Codes::bits, read_small_floats},
};

const Reader* reader_of(Codes codes) {
  for (const Reader& r : kReaders)
    if (r.codes == codes) return &r;
  return nullptr;
}

}  // namespace

Error value_error(const SourceMatrix& m, const char* what, const RowNumbers& rows, std::int64_t r, const Fault& fault) {
  std::int64_t first = rows.first + rows.step * r, second = fault.k;
  if (rows.columns_first) std::swap(first, second);
  const std::string place = cat(m.is_w13 ? "w13_" : "w2_", what, "[", m.expert, ",", first, ",", second, "]");
  return fail(Code::invalid_argument, place, place + ": " + fault.what);
}

bool can_read(Codes codes) { return reader_of(codes) != nullptr; }

namespace {

Check read_row(const Reader& reader, const SourceMatrix& m, const SourceHalf& half, const RowPlace& at,
               CanonicalRows& out) {
  MOE_CHECK(reader.read_row(m, half, at, out));
  if (!out.zeros.empty()) MOE_CHECK(read_row_zeros(m, half, at.r, at.i, out));
  if (m.has_bias)
    out.bias[usize(at.i)] =
        load_float(half.bias.dtype, half.bias.data + at.r * half.bias.strides[0] * (dtype_bits(half.bias.dtype) / 8));
  return ok();
}

// Rows [row0, row0 + n) of a half, or of `order`, become rows `to`, ... of `out`.
Check read_half(const SourceMatrix& m, const SourceHalf& half, std::int64_t row0, std::int64_t n,
                std::span<const std::int32_t> order, std::int64_t to, CanonicalRows& out) {
  const Reader& reader = *reader_of(m.codes);
  if (!out.tensor_scales.empty()) std::fill_n(out.tensor_scales.begin() + to, n, half.tensor_scale);
  std::array<std::int64_t, kPanelRows> rows;
  for (std::int64_t i = 0; i < n; i += kPanelRows) {
    const std::span block(rows.data(), usize(std::min(kPanelRows, n - i)));
    for (std::size_t j = 0; j < block.size(); ++j) {
      const std::int64_t r = row0 + i + static_cast<std::int64_t>(j);
      block[j] = order.empty() ? r : order[usize(r)];
    }
    const std::int64_t column = reader.read_block == nullptr ? 0 : reader.read_block(m, half, block, to + i, out);
    for (std::size_t j = 0; j < block.size(); ++j)
      MOE_CHECK(read_row(reader, m, half, {block[j], to + i + static_cast<std::int64_t>(j), column}, out));
  }
  return ok();
}

}  // namespace

Check read_rows(const SourceMatrix& m, int which, std::int64_t row0, std::int64_t n, CanonicalRows& out,
                std::span<const std::int32_t> order) {
  const SourceHalf& half = m.half[usize(which)];
  MOE_CHECK(read_half(m, half, row0, n, order, 0, out));
  std::fill(out.tensor_scales.begin(), out.tensor_scales.end(), half.tensor_scale);
  out.clear_from(n);
  return ok();
}

Check read_matrix(const SourceMatrix& m, CanonicalRows& out) {
  const std::int64_t rows = out.count / m.halves;
  for (int which = 0; which < m.halves; ++which)
    MOE_CHECK(read_half(m, m.half[usize(which)], 0, rows, {}, which * rows, out));
  out.g_idx = m.g_idx;
  out.input_scale = m.input_scale;
  out.has_power_scales = true;  // where both halves have them
  for (int which = 0; which < m.halves; ++which)
    if (at(m.half, which).scales.dtype != DType::f8_e8m0fnu) out.has_power_scales = false;
  return ok();
}

}  // namespace moe::convert
