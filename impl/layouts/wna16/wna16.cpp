// The table of layouts, and what they share. See wna16.h.
#include "layouts/wna16/wna16.h"

#include <cstring>

#include "base/float_formats.h"
#include "base/index.h"

namespace moe {
namespace {

struct Codec {
  void (*write)(const Wna16Matrix&, const CanonicalRows&, const Wna16Out&);
  Check (*read)(const Wna16Matrix&, const Wna16In&, const RowRange&, CanonicalRows&);
};

// By Wna16Kind.
constexpr std::array kCodecs = {
    Codec{write_marlin, read_marlin},
    Codec{write_trtllm, read_trtllm},
    Codec{write_rows_of_fields, read_rows_of_fields},
    Codec{write_vnni, read_vnni},
    Codec{write_rows_of_fields, read_rows_of_fields},
    Codec{write_dense, read_dense},
};

const Codec& codec_of(Wna16Kind kind) { return at(kCodecs, kind); }

}  // namespace

void write_wna16(const Wna16Matrix& m, const CanonicalRows& rows, const Wna16Out& out) {
  codec_of(m.kind).write(m, rows, out);
}

Check read_wna16(const Wna16Matrix& m, const Wna16In& in, CanonicalRows& rows) {
  shape_plain(m, rows);
  return codec_of(m.kind).read(m, in, {0, m.rows()}, rows);
}

void read_wna16_rows(const Wna16Matrix& m, const Wna16In& in, const RowRange& range, CanonicalRows& rows) {
  const Check read = codec_of(m.kind).read(m, in, range, rows);
  if (read) rows.clear_from(range.count);  // always: faults are those of an order
}

Check finish_wna16(const Wna16Matrix& m, std::string_view name, std::span<std::byte> scales, std::byte* global_scale) {
  if (m.folded_scales) return fold_marlin_scales(m.scale, scales, name, global_scale);
  if (m.kind == Wna16Kind::dense) store_number(DType::f16, 1.0f, scales.data());  // nobody reads it
  return ok();
}

void shape_plain(const Wna16Matrix& m, CanonicalRows& rows) {
  const bool numbers = m.kind == Wna16Kind::dense;
  rows.count = m.rows();
  rows.k = m.k;
  rows.stride = round_up(m.k, kCanonicalPad);
  rows.groups = numbers ? 0 : m.groups;
  const auto cells = usize(rows.count * rows.stride);
  const auto scales = usize(rows.count * rows.groups);
  rows.codes.assign(numbers ? 0 : cells, 0);
  rows.values.assign(numbers ? cells : 0, 0.0f);
  rows.scales.assign(scales, 0.0f);
  rows.zeros.assign(!numbers && (m.has_zeros || m.kind == Wna16Kind::vnni) ? scales : 0, 0);
  rows.bias.assign(usize(rows.count), 0.0f);
  rows.g_idx.clear();
}

void store_number(DType dtype, float x, std::byte* p) {
  if (dtype == DType::f32) {
    std::memcpy(p, &x, 4);
    return;
  }
  const std::uint16_t h = dtype == DType::bf16 ? f32_to_bf16(x) : f32_to_f16(x);
  std::memcpy(p, &h, 2);
}

float load_number(DType dtype, const std::byte* p) {
  float x;
  if (dtype == DType::f32) {
    std::memcpy(&x, p, 4);
    return x;
  }
  std::uint16_t h;
  std::memcpy(&h, p, 2);
  return dtype == DType::bf16 ? bf16_to_f32(h) : f16_to_f32(h);
}

void write_bias(const Wna16Matrix& m, const CanonicalRows& rows, DType dtype, std::byte* out) {
  if (out == nullptr) return;
  for (std::int64_t n = 0; n < m.rows(); ++n) store_number(dtype, at(rows.bias, n), out + n * (dtype_bits(dtype) / 8));
}

void read_bias(const RowRange& range, DType dtype, const std::byte* in, CanonicalRows& rows) {
  if (in == nullptr) return;
  for (std::int64_t i = 0; i < range.count; ++i)
    at(rows.bias, i) = load_number(dtype, in + (range.first + i) * (dtype_bits(dtype) / 8));
}

void write_g_idx(const Wna16Matrix& m, const CanonicalRows& rows, std::byte* out) {
  if (out == nullptr) return;
  const Wna16Fields fields(m, rows);
  for (std::int64_t k = 0; k < m.k; ++k) {
    const auto g = static_cast<std::int32_t>(fields.group_of(k));
    std::memcpy(out + k * 4, &g, 4);
  }
}

}  // namespace moe
