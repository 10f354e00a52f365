// Plain packing for kernel tests: one matrix in p16 element by element, and tiles of rows.
// Written from kernels.md 2.1 with the address functions of layouts/p16/p16.h only; convert/ has its own code.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "base/float_formats.h"
#include "kernels/kernel.h"
#include "kernels/ref/elementwise.h"
#include "kernels/ref/w4a8.h"
#include "layouts/p16/p16_layout.h"
#include "support/rooms.h"

namespace moe::test {

template <class T>
void put(std::vector<std::byte>& bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

// w: [rows, k] values -8..7; scales: [rows, k/group]; bias: [rows] or empty.
inline std::vector<std::byte> pack_p16(const P16& m, const std::vector<std::int8_t>& w,
                                       const std::vector<float>& scales, const std::vector<float>& bias) {
  std::vector<std::byte> out(m.bytes(), std::byte{0});
  for (std::int64_t p = 0; p < m.panels(); ++p)
    for (std::int64_t lane = 0; lane < kPanelRows; ++lane)
      for (std::int64_t k = 0; k < m.units() * kUnitK; ++k) {
        std::byte& b = out[static_cast<std::size_t>(p) * m.panel_bytes() + m.code_offset(lane, k)];
        b |= static_cast<std::byte>(P16::nibble_high(k) ? 0x80 : 0x08);  // value 0
      }
  for (std::int64_t n = 0; n < m.rows(); ++n) {
    const std::size_t panel = static_cast<std::size_t>(m.panel_of(n)) * m.panel_bytes();
    const std::int64_t lane = m.lane_of(n);
    const auto lane4 = static_cast<std::size_t>(lane) * 4;
    std::int32_t wsum = 0;
    for (std::int64_t k = 0; k < m.k; ++k) {
      const int value = w[static_cast<std::size_t>(n * m.k + k)];
      wsum += value;
      std::byte& b = out[panel + m.code_offset(lane, k)];
      const auto code = static_cast<unsigned>(value + 8);
      b = P16::nibble_high(k) ? (b & std::byte{0x0f}) | static_cast<std::byte>(code << 4)
                              : (b & std::byte{0xf0}) | static_cast<std::byte>(code);
    }
    if (m.grouping() == Grouping::channel) {
      put(out, panel + lane4, scales[static_cast<std::size_t>(n)] * 0.0625f);
      put(out, panel + m.sum_offset() + lane4, wsum);
    } else {
      float rsum = 0.0f;
      for (std::int64_t g = 0; g < m.group_count(); ++g) {
        const std::uint16_t bits = f32_to_bf16(scales[static_cast<std::size_t>(n * m.group_count() + g)]);
        put(out, panel + m.scale_offset(lane, g), bits);
        for (std::int64_t c = g * m.group(); c < (g + 1) * m.group(); c += 32)
          for (std::int64_t h = 0; h < 16; h += 8) {
            int part = 0;
            for (std::int64_t j = 0; j < 8; ++j)
              part += w[static_cast<std::size_t>(n * m.k + c + h + j)] +
                      w[static_cast<std::size_t>(n * m.k + c + 16 + h + j)];
            rsum = rsum + static_cast<float>(part) * bf16_to_f32(bits);
          }
      }
      put(out, panel + m.sum_offset() + lane4, rsum);
    }
    if (m.has_bias) put(out, panel + m.bias_offset() + lane4, bias[static_cast<std::size_t>(n)]);
  }
  return out;
}

// n rows of x ([n, k]) quantized into one tile by `kernel`.
inline constexpr float kInputScale = 0.0123f;  // of rows that want one of the checkpoint's
inline std::vector<std::byte> make_tile(const Kernel& kernel, const TileShape& shape, const float* x, int n,
                                        HalfRule rule, float input_scale = kInputScale) {
  std::vector<std::byte> tile(shape.row_bytes() * static_cast<std::size_t>(n), std::byte{0});
  for (int row = 0; row < n; ++row)
    kernel.quantize({shape, x + row * shape.k, rule, {tile.data(), n, row}, input_scale});
  return tile;
}

// A call with scratch as the engine gives it, behind which nothing may be written.
inline void multiply(const Kernel& kernel, GemmArgs args) {
  constexpr std::size_t kBehind = 64;
  constexpr auto kUntouched = std::byte{0x5a};
  std::vector<std::byte> memory(kernel.scratch_bytes + 64 + kBehind, kUntouched);
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(memory.data()) % 64;
  args.scratch = memory.data() + (64 - misaligned) % 64;
  kernel.gemm(args);
  for (std::size_t i = 0; i < kBehind; ++i)
    ASSERT_EQ(args.scratch[kernel.scratch_bytes + i], kUntouched) << kernel.id->name << ", byte " << i << " behind";
}

// w: [rows, k] values of m.element (bf16, f16, f32); bias: [rows] or empty.
inline std::vector<std::byte> pack_p16_floats(const P16& m, const std::vector<float>& w,
                                              const std::vector<float>& bias) {
  std::vector<std::byte> out(m.bytes(), std::byte{0});
  for (std::int64_t n = 0; n < m.rows(); ++n) {
    const std::size_t panel = static_cast<std::size_t>(m.panel_of(n)) * m.panel_bytes();
    const std::int64_t lane = m.lane_of(n);
    for (std::int64_t k = 0; k < m.k; ++k) {
      const float v = w[static_cast<std::size_t>(n * m.k + k)];
      const std::size_t at = panel + m.code_offset(lane, k);
      if (m.element == Element::f32)
        put(out, at, v);
      else
        put(out, at, m.element == Element::bf16 ? f32_to_bf16(v) : f32_to_f16(v));
    }
    if (m.has_bias)
      put(out, panel + m.bias_offset() + static_cast<std::size_t>(lane) * 4, bias[static_cast<std::size_t>(n)]);
  }
  return out;
}

// w: [rows, k] values -8..7 or -128..127, with zeros (codes of value 0, [rows, k/group]) the stored code - 8 or - 128;
// scales: [rows, k/group], exact in m.scales; bias: [rows] or empty. Kinds w4 and w8.
inline std::vector<std::byte> pack_plain(const P16& m, const std::vector<std::int8_t>& w,
                                         const std::vector<float>& scales, const std::vector<std::uint8_t>& zeros,
                                         const std::vector<float>& bias) {
  std::vector<std::byte> out(m.bytes(), std::byte{0});
  const auto put_code = [&](std::size_t at, std::int64_t k, int value) {
    const auto code = static_cast<unsigned>(value + code_bias(m.element));
    const bool high = m.element == Element::int4 && P16::nibble_high(k);
    out[at] |= static_cast<std::byte>(high ? code << 4 : code);
  };
  for (std::int64_t p = 0; p < m.panels(); ++p)
    for (std::int64_t lane = 0; lane < kPanelRows; ++lane) {
      const std::size_t panel = static_cast<std::size_t>(p) * m.panel_bytes();
      const std::int64_t row = p / m.halves * kPanelRows + lane;  // within its half
      const bool real = row < m.half_rows;
      const std::int64_t n = p % m.halves * m.half_rows + row;
      for (std::int64_t k = 0; k < m.units() * kUnitK; ++k)
        put_code(panel + m.code_offset(lane, k), k, real && k < m.k ? w[static_cast<std::size_t>(n * m.k + k)] : 0);
      if (!real) continue;
      for (std::int64_t g = 0; g < m.group_count(); ++g) {
        const float s = scales[static_cast<std::size_t>(n * m.group_count() + g)];
        const std::size_t at = panel + m.scale_offset(lane, g);
        if (m.scales == Scales::f32)
          put(out, at, s);
        else
          put(out, at, m.scales == Scales::bf16 ? f32_to_bf16(s) : f32_to_f16(s));
        if (m.has_zeros)
          put(out, panel + m.zero_offset() + static_cast<std::size_t>(g * kPanelRows + lane),
              zeros[static_cast<std::size_t>(n * m.group_count() + g)]);
      }
      if (m.has_bias)
        put(out, panel + m.bias_offset() + static_cast<std::size_t>(lane) * 4, bias[static_cast<std::size_t>(n)]);
    }
  return out;
}

// codes: [rows, k] of a small float of 4 or 8 bits; scales: [rows, k/group], exact in m.scales, equal where rows share
// them; bias: [rows] or empty; tensor_scales: of the halves where m has them, empty: 1.
inline std::vector<std::byte> pack_p16_codes(const P16& m, const std::vector<std::uint8_t>& codes,
                                             const std::vector<float>& scales, const std::vector<float>& bias,
                                             const std::vector<float>& tensor_scales = {}) {
  std::vector<std::byte> out(m.bytes(), std::byte{0});
  const bool nibbles = row_of(m.element).packed_bits == 4;
  for (std::int64_t n = 0; n < m.rows(); ++n) {
    const std::size_t panel = static_cast<std::size_t>(m.panel_of(n)) * m.panel_bytes();
    const std::int64_t lane = m.lane_of(n);
    for (std::int64_t k = 0; k < m.k; ++k) {
      const unsigned code = codes[static_cast<std::size_t>(n * m.k + k)];
      out[panel + m.code_offset(lane, k)] |= static_cast<std::byte>(nibbles && P16::nibble_high(k) ? code << 4 : code);
    }
    if (m.has_tensor_scale())
      put(out, panel + m.tensor_scale_offset() + static_cast<std::size_t>(lane) * 4,
          tensor_scales.empty() ? 1.0f : tensor_scales[static_cast<std::size_t>(n / m.half_rows)]);
    for (std::int64_t g = 0; g < m.group_count(); ++g)
      store_scale(m.scale_type(), scales[static_cast<std::size_t>(n * m.group_count() + g)],
                  out.data() + panel + m.scale_offset(lane, g));
    if (m.has_bias)
      put(out, panel + m.bias_offset() + static_cast<std::size_t>(lane) * 4, bias[static_cast<std::size_t>(n)]);
  }
  return out;
}

// A number of each block of rows that shares scales, and how many blocks there are.
inline std::int64_t scale_block(const Matrix& m, std::int64_t n) {
  if (m.scale_rows == kAllRows) return n / m.half_rows;
  return n / m.half_rows * ceil_div(m.half_rows, m.scale_rows) + n % m.half_rows / m.scale_rows;
}
// [rows, groups] from one draw() for each block and group.
template <class Draw>
std::vector<float> scales_of_blocks(const Matrix& m, Draw draw) {
  const std::int64_t groups = m.group_count();
  std::vector<float> of_block(static_cast<std::size_t>((scale_block(m, m.rows() - 1) + 1) * groups)), scales;
  for (float& s : of_block) s = draw();
  for (std::int64_t n = 0; n < m.rows(); ++n)
    for (std::int64_t g = 0; g < groups; ++g)
      scales.push_back(of_block[static_cast<std::size_t>(scale_block(m, n) * groups + g)]);
  return scales;
}

// A code that is a number, of a small float.
inline std::uint8_t random_code(const SmallFloat& format, std::mt19937& rng) {
  unsigned code = 0;
  do code = static_cast<unsigned>(rng()) % format.codes();
  while (!format.is_finite(code));
  return static_cast<std::uint8_t>(code);
}

// The results of a matrix's rows, of any number of tile rows, from those of its panels' lanes.
inline std::vector<float> unpadded(const P16& m, const std::vector<float>& padded) {
  const std::int64_t ld = m.panels() * kPanelRows;
  std::vector<float> out;
  for (std::int64_t at = 0; at < std::ssize(padded); at += ld)
    for (std::int64_t n = 0; n < m.rows(); ++n)
      out.push_back(padded[static_cast<std::size_t>(at + m.panel_of(n) * kPanelRows + m.lane_of(n))]);
  return out;
}

inline std::vector<float> rounded(DType d, std::vector<float> v) {
  for (float& x : v) x = ref::round_to(d, x);
  return v;
}

// The rows of the registry that this machine can run, of one layout and activation format.
inline std::vector<const Kernel*> runnable_kernels(LayoutKind layout, ActFormat act) {
  std::vector<const Kernel*> rows;
  const auto host = detect_platform();
  for (const Kernel* k : built_kernels())
    if (host && host->runs(k->id->isa) && k->id->layout == layout && k->id->act == act &&
        (k->ready == nullptr || k->ready()))
      rows.push_back(k);
  return rows;
}
// Of one activation format, on our own layouts.
inline std::vector<const Kernel*> runnable_kernels(ActFormat act) {
  std::vector<const Kernel*> rows;
  const auto host = detect_platform();
  for (const Kernel* k : built_kernels())
    if (host && host->runs(k->id->isa) && k->id->act == act && p16_element(k->id->layout) &&
        (k->ready == nullptr || k->ready()))
      rows.push_back(k);
  return rows;
}

// Whether a row takes the groups of a matrix.
inline bool takes(const Kernel& k, const Matrix& m) { return k.id->takes(m.groups); }

// A matrix as the layout of a row has it. groups: k / group; scales and zeros only where the kind leaves a choice.
struct MatrixShape {
  std::int64_t rows, k, group;  // group == k: channel-wise
  int halves = 1;
  bool bias = false;
  Scales scales = Scales::f32;
  bool zeros = false;
  std::int64_t scale_rows = 1;
};

inline P16 matrix_for(const Kernel& kernel, const MatrixShape& s) {
  LayoutShape shape{1, s.k, s.rows, Groups::of_size(s.group, s.k), s.halves == 2, s.bias, s.scales, s.zeros};
  shape.scale_rows = s.scale_rows;
  return {p16_layout(kernel.id->layout, shape).w13};
}

// Of any input. floats: of rows of e4m3 with FP8 weights; the others have those of MX formats.
inline TileShape tile_shape(const Kernel& kernel, const P16& m, FloatActs floats = {}) {
  if (kernel.id->layout != LayoutKind::p16_e4m3) floats = kMxActs;
  const bool halves = kernel.id->act == ActFormat::e4m3 && kernel.takes_halves;
  return {m.k, m.groups, kernel.id->act, m.sum_factor(), false, kernel.takes_values ? 2 : 0, floats, halves};
}

// Random content of any kind: codes over their whole range, zero points too (of int4 up to 16: GPTQ adds 1 to what it
// stores), scales exact in bf16 and fp16, those of integers of either sign, also 0 and -0, normal floats.
inline std::vector<std::byte> random_panels(const P16& m, std::mt19937& rng) {
  std::normal_distribution<float> normal;
  const auto rows = static_cast<std::size_t>(m.rows());
  std::vector<float> bias(rows), scales(rows * static_cast<std::size_t>(m.group_count()));
  for (float& b : bias) b = rng() % 8 == 0 ? -0.0f : normal(rng);  // behind a sum of 0 its sign shows
  for (float& s : scales) s = std::copysign(static_cast<float>(rng() % 64) / 1024.0f, rng() % 2 == 0 ? 1.0f : -1.0f);
  if (!is_integer(m.element) && !is_value(m.element)) {
    std::vector<std::uint8_t> codes(rows * static_cast<std::size_t>(m.k));
    for (std::uint8_t& c : codes) c = random_code(row_of(m.element).format, rng);
    const int least = rng() % 4 == 0 ? -127 : -10;  // of powers
    const auto draw = [&] {
      if (m.scales == Scales::e4m3) return small_to_f32(kE4m3, static_cast<unsigned>(rng() % 0x7f));
      return m.scales == Scales::e8m0 ? std::ldexp(1.0f, static_cast<int>(rng() % 16) + least)
                                      : static_cast<float>(rng() % 64 + 1) / 1024.0f;
    };
    return pack_p16_codes(m, codes, scales_of_blocks(m, draw), bias, {0.37f, 1.9f});
  }
  if (!is_integer(m.element)) {
    std::vector<float> w(rows * static_cast<std::size_t>(m.k));
    for (float& v : w) v = normal(rng);
    return pack_p16_floats(m, w, bias);
  }
  const unsigned range = m.element == Element::int4 ? 16 : 256;
  std::vector<std::int8_t> w(rows * static_cast<std::size_t>(m.k));
  for (std::int8_t& c : w) c = static_cast<std::int8_t>(static_cast<int>(rng() % range) - static_cast<int>(range / 2));
  if (m.scales == Scales::w4a8) return pack_p16(m, w, scales, m.has_bias ? bias : std::vector<float>{});
  std::vector<std::uint8_t> zeros(scales.size());
  const unsigned most = m.element == Element::int4 ? 16 : 255;
  for (std::uint8_t& z : zeros) z = static_cast<std::uint8_t>(rng() % (most + 1));
  return pack_plain(m, w, scales, zeros, bias);
}

// The definition of a row: the scalar row of its layout and activation format.
// A row of bits of its own that has its own form of tiles stands for itself.
inline const Kernel& scalar_of(const Kernel& row) {
  if (row.id->act == ActFormat::e4m3 && row.takes_halves) return row;
  for (const Kernel* k : built_kernels())
    if (k->id->isa == Isa::scalar && k->id->layout == row.id->layout && k->id->act == row.id->act) return *k;
  return row;
}

inline const Kernel& scalar_kernel() { return *kernel_at(*kernel_index("w4a8_tok8_p16_scalar")); }

}  // namespace moe::test
