// Where scales of float layouts lie, a pair of functions for each place. See float_scales.h.
#include "layouts/floats/float_scales.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string>

#include "base/decimal.h"
#include "base/float_formats.h"
#include "base/index.h"
#include "base/load.h"
#include "base/number_at.h"
#include "base/text.h"
#include "layouts/floats/requantize.h"
#include "layouts/wna16/wna16.h"

namespace moe {
namespace {

template <class T>
void store(std::byte* at, T v) {
  std::memcpy(at, &v, sizeof v);
}

float& scale_of(CanonicalRows& rows, std::int64_t r, std::int64_t g) { return at(rows.scales, r * rows.groups + g); }

Error fault(Code code, const FloatMatrix& m, const std::string& what) {
  const std::string name = m.w13 ? "w13_scale" : "w2_scale";
  return fail(code, name, cat(name, ": ", what));
}

// --- floats -------------------------------------------------------------------------------------------

Check write_one(const FloatMatrix&, CanonicalRows& rows, std::byte* out) {
  store(out, rows.scales[0]);
  return ok();
}
void read_one(const FloatMatrix&, const std::byte* in, CanonicalRows& rows) {
  std::fill(rows.scales.begin(), rows.scales.end(), load<float>(in));
}

Check write_rows(const FloatMatrix& m, CanonicalRows& rows, std::byte* out) {
  for (std::int64_t n = 0; n < m.rows(); ++n) store(out + 4 * n, scale_of(rows, m.source_row(n), 0));
  return ok();
}
void read_rows_back(const FloatMatrix& m, const std::byte* in, CanonicalRows& rows) {
  for (std::int64_t n = 0; n < m.rows(); ++n) scale_of(rows, m.source_row(n), 0) = load<float>(in + 4 * n);
}

// The scale of a block, which all of its rows have.
Check block_scale(const FloatMatrix& m, CanonicalRows& rows, std::int64_t b, std::int64_t g, float& scale) {
  scale = scale_of(rows, m.source_row_of_block(b, 0), g);
  for (std::int64_t i = 1; i < kBlockSize; ++i) {
    const std::int64_t r = m.source_row_of_block(b, i);
    if (r < 0) break;
    if (scale_of(rows, r, g) != scale)
      return fault(Code::unsupported, m,
                   cat("rows that share a scale in this layout have several: gate and up lie in another order "
                       "(w13_layout) than its blocks"));
  }
  return ok();
}
// `step`: elements from a block to the next, and from a group to the next.
Check write_block_scales(const FloatMatrix& m, CanonicalRows& rows, std::array<std::int64_t, 2> step, std::byte* out) {
  for (std::int64_t b = 0; b < m.row_blocks(); ++b)
    for (std::int64_t g = 0; g < m.groups(); ++g) {
      float scale = 0.0f;
      MOE_CHECK(block_scale(m, rows, b, g, scale));
      store(out + 4 * (b * step[0] + g * step[1]), std::max(scale, m.form->least_scale));
    }
  return ok();
}
void read_block_scales(const FloatMatrix& m, const std::byte* in, std::array<std::int64_t, 2> step,
                       CanonicalRows& rows) {
  for (std::int64_t b = 0; b < m.row_blocks(); ++b)
    for (std::int64_t i = 0; i < kBlockSize; ++i) {
      const std::int64_t r = m.source_row_of_block(b, i);
      if (r < 0) break;
      for (std::int64_t g = 0; g < m.groups(); ++g)
        scale_of(rows, r, g) = load<float>(in + 4 * (b * step[0] + g * step[1]));
    }
}

std::array<std::int64_t, 2> by_rows(const FloatMatrix& m) { return {m.groups(), 1}; }
std::array<std::int64_t, 2> by_columns(const FloatMatrix& m) { return {1, round_up<std::int64_t>(m.row_blocks(), 4)}; }

Check write_blocks(const FloatMatrix& m, CanonicalRows& rows, std::byte* out) {
  return write_block_scales(m, rows, by_rows(m), out);
}
void read_blocks(const FloatMatrix& m, const std::byte* in, CanonicalRows& rows) {
  read_block_scales(m, in, by_rows(m), rows);
}
Check write_by_columns(const FloatMatrix& m, CanonicalRows& rows, std::byte* out) {
  std::memset(out, 0, usize(4 * m.groups() * by_columns(m)[1]));
  return write_block_scales(m, rows, by_columns(m), out);
}
void read_by_columns(const FloatMatrix& m, const std::byte* in, CanonicalRows& rows) {
  read_block_scales(m, in, by_columns(m), rows);
}

// --- bytes --------------------------------------------------------------------------------------------

bool is_nvfp4(const FloatMatrix& m) { return m.form->grain == Grain::nvfp4; }

// Padding has no scales: 0 there.
bool has_scale(const CanonicalRows& rows, std::int64_t r, std::int64_t g) { return r >= 0 && g < rows.groups; }
std::byte byte_of(const FloatMatrix& m, CanonicalRows& rows, std::int64_t r, std::int64_t g) {
  if (!has_scale(rows, r, g)) return std::byte{0};
  const float scale = scale_of(rows, r, g);
  return static_cast<std::byte>(is_nvfp4(m) ? f32_to_small(kE4m3, scale) : f32_to_e8m0(scale));
}

// Calls each(row of the checkpoint, group, byte of the scale).
template <class Each>
void each_byte(const FloatMatrix& m, Each each) {
  const std::int64_t n = m.rows(), groups = m.groups(), wide = round_up<std::int64_t>(groups, 4);
  const auto place = [&](std::int64_t r, std::int64_t g) {
    switch (m.form->scales) {
      case ScalePlace::swizzled:
        return (r / 128 * (wide / 4) + g / 4) * 512 + r % 32 * 16 + r / 32 % 4 * 4 + g % 4;
      case ScalePlace::packed:
        return (g / 4 * round_up<std::int64_t>(n, 4) + r) * 4 + g % 4;
      case ScalePlace::folded:
        return ((r / 64 * (groups / 4) + g / 4) * 16 + r % 16) * 16 + r % 64 / 16 * 4 + g % 4;
      case ScalePlace::lanes:
        return (((r / 32 * (groups / 8) + g / 8) * 4 + g % 4) * 16 + r % 16) * 4 + g % 8 / 4 * 2 + r % 32 / 16;
      case ScalePlace::blocks32:
        return (r / 32 * groups + g) * 32 + r % 32;
      default:
        return r * groups + g;
    }
  };
  for (std::int64_t r = 0; r < n; ++r)
    for (std::int64_t g = 0; g < groups; ++g) each(m.source_row(r), g, place(r, g));
}

Check write_bytes(const FloatMatrix& m, CanonicalRows& rows, std::byte* out) {
  each_byte(m, [&](std::int64_t r, std::int64_t g, std::int64_t at) { out[at] = byte_of(m, rows, r, g); });
  return ok();
}
void read_bytes(const FloatMatrix& m, const std::byte* in, CanonicalRows& rows) {
  each_byte(m, [&](std::int64_t r, std::int64_t g, std::int64_t at) {
    if (has_scale(rows, r, g)) scale_of(rows, r, g) = load_scale(is_nvfp4(m) ? Scales::e4m3 : Scales::e8m0, in + at);
  });
}

Check write_swizzled(const FloatMatrix& m, CanonicalRows& rows, std::byte* out) {
  std::memset(out, 0, usize(round_up<std::int64_t>(m.rows(), 128) * round_up<std::int64_t>(m.groups(), 4)));
  return write_bytes(m, rows, out);
}

// vLLM's shift makes 0 of byte 0, which is 2^-127.
Check write_floats(const FloatMatrix& m, CanonicalRows& rows, std::byte* out) {
  each_byte(m, [&](std::int64_t r, std::int64_t g, std::int64_t at) {
    const auto byte = static_cast<unsigned>(byte_of(m, rows, r, g));
    store(out + 4 * at, byte == 0 && m.as_vllm ? 0.0f : e8m0_to_f32(byte));
  });
  return ok();
}
void read_floats(const FloatMatrix& m, const std::byte* in, CanonicalRows& rows) {
  each_byte(m, [&](std::int64_t r, std::int64_t g, std::int64_t at) {
    if (has_scale(rows, r, g)) scale_of(rows, r, g) = load<float>(in + 4 * at);
  });
}

Check write_packed(const FloatMatrix& m, CanonicalRows& rows, std::byte* out) {
  float scale = 0.0f;
  for (std::int64_t b = 0; b < m.row_blocks() && !rows.has_power_scales; ++b)
    for (std::int64_t g = 0; g < m.groups(); ++g) MOE_CHECK(block_scale(m, rows, b, g, scale));
  if (!rows.has_power_scales) use_power_scales(rows);
  std::memset(out, 0, usize(4 * ceil_div<std::int64_t>(m.groups(), 4) * round_up<std::int64_t>(m.rows(), 4)));
  return write_bytes(m, rows, out);
}

// --- Marlin -------------------------------------------------------------------------------------------

// What scales come multiplied by: a code becomes a number of the activations' type without a change of its exponent.
float marlin_factor(const FloatMatrix& m) { return m.source.scales == Scales::f16 ? 0x1p8f : 0x1p120f; }
DType marlin_type(const FloatMatrix& m) { return m.source.scales == Scales::f16 ? DType::f16 : DType::bf16; }

Check write_marlin_scales(const FloatMatrix& m, CanonicalRows& rows, std::byte* out) {
  const DType type = marlin_type(m);
  const bool grouped = m.groups() > 1;
  std::byte kept[2];
  for (std::int64_t g = 0; g < m.groups(); ++g)
    for (std::int64_t c = 0; c < m.rows(); ++c, out += 2) {
      const float scale = scale_of(rows, m.source_row(marlin_scale_source(grouped, c)), g);
      store_float(type, scale, kept);
      const float rounded = load_float(type, kept);
      store_float(type, rounded * marlin_factor(m), out);
      if (std::isinf(load_float(type, out)))
        return fault(Code::invalid_argument, m,
                     cat("scale ", float_text(scale), " is too large for Marlin, which multiplies it by ",
                         float_text(marlin_factor(m)), " in ", dtype_name(type)));
      rows.scales_rounded += rounded != scale ? 1 : 0;
    }
  return ok();
}
void read_marlin_scales(const FloatMatrix& m, const std::byte* in, CanonicalRows& rows) {
  for (std::int64_t g = 0; g < m.groups(); ++g)
    for (std::int64_t c = 0; c < m.rows(); ++c, in += 2)
      scale_of(rows, m.source_row(marlin_scale_source(m.groups() > 1, c)), g) =
          load_float(marlin_type(m), in) / marlin_factor(m);
}

// Two in the middle of four change places.
std::int64_t marlin_byte_source(const FloatMatrix& m, std::int64_t c) {
  constexpr std::array kOrder = {0, 2, 1, 3};
  return marlin_scale_source(m.groups() > 1, c / 4 * 4 + at(kOrder, c % 4));
}
// NVFP4: e4m3 until all experts are there (finish_marlin_nvfp4).
Check write_marlin_bytes(const FloatMatrix& m, CanonicalRows& rows, std::byte* out) {
  for (std::int64_t g = 0; g < m.groups(); ++g)
    for (std::int64_t c = 0; c < m.rows(); ++c) *out++ = byte_of(m, rows, m.source_row(marlin_byte_source(m, c)), g);
  return ok();
}
void read_marlin_bytes(const FloatMatrix& m, const std::byte* in, CanonicalRows& rows) {
  for (std::int64_t g = 0; g < m.groups(); ++g)
    for (std::int64_t c = 0; c < m.rows(); ++c, ++in) {
      const std::int64_t r = m.source_row(marlin_byte_source(m, c));
      const auto byte = static_cast<unsigned>(*in);
      if (has_scale(rows, r, g))
        scale_of(rows, r, g) =
            is_nvfp4(m) ? f16_to_f32(static_cast<std::uint16_t>(byte << 7)) / 128.0f : e8m0_to_f32(byte);
    }
}

Check write_none(const FloatMatrix&, CanonicalRows&, std::byte*) { return ok(); }
void read_none(const FloatMatrix&, const std::byte*, CanonicalRows&) {}

constexpr std::array kPlaces = {
    FloatScales{ScalePlace::none, write_none, read_none},
    FloatScales{ScalePlace::one, write_one, read_one},
    FloatScales{ScalePlace::rows, write_rows, read_rows_back},
    FloatScales{ScalePlace::blocks, write_blocks, read_blocks},
    FloatScales{ScalePlace::bytes, write_bytes, read_bytes},
    FloatScales{ScalePlace::swizzled, write_swizzled, read_bytes},
    FloatScales{ScalePlace::marlin, write_marlin_scales, read_marlin_scales},
    FloatScales{ScalePlace::marlin_bytes, write_marlin_bytes, read_marlin_bytes},
    FloatScales{ScalePlace::by_columns, write_by_columns, read_by_columns},
    FloatScales{ScalePlace::packed, write_packed, read_bytes},
    FloatScales{ScalePlace::split, write_none, read_none},  // two tensors: form_float.cpp
    FloatScales{ScalePlace::floats, write_floats, read_floats},
    FloatScales{ScalePlace::folded, write_bytes, read_bytes},
    FloatScales{ScalePlace::lanes, write_bytes, read_bytes},
    FloatScales{ScalePlace::blocks32, write_bytes, read_bytes},
};

}  // namespace

const FloatScales& float_scales(ScalePlace place) {
  return *std::find_if(kPlaces.begin(), kPlaces.end(), [&](const FloatScales& s) { return s.place == place; });
}

}  // namespace moe
