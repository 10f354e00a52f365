// Bytes of the float layouts (layouts/floats/float_layout.h): rows of the plain form, cut into runs of columns that lie
// together, go to the places that the table says, and come back.
//
// Scales may change codes (requantize.h), so they are written first.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/decimal.h"
#include "base/float_formats.h"
#include "base/index.h"
#include "base/load.h"
#include "base/number_at.h"
#include "base/text.h"
#include "layouts/families.h"
#include "layouts/floats/float_matrix.h"
#include "layouts/floats/float_scales.h"
#include "layouts/floats/requantize.h"
#include "layouts/wna16/wna16.h"

namespace moe {
namespace {

// --- elements -----------------------------------------------------------------------------------------

// A row of the checkpoint as the layout's elements, padded.
void row_bytes(const FloatMatrix& m, const CanonicalRows& rows, std::int64_t r, std::span<std::byte> out) {
  std::fill(out.begin(), out.end(), std::byte{0});
  if (r < 0) return;
  if (m.four_bits()) return pack_codes(rows.row(r), rows.k, out.data());
  if (rows.values.empty()) {
    std::memcpy(out.data(), rows.row(r), usize(rows.k));
    return;
  }
  const DType type = value_type(m.source.element);
  for (std::int64_t k = 0; k < rows.k; ++k)
    store_float(type, rows.row_values(r)[k], out.data() + k * m.element_bytes());
}
void row_from_bytes(const FloatMatrix& m, std::span<const std::byte> in, std::int64_t r, CanonicalRows& rows) {
  if (m.four_bits()) return unpack_codes(in.data(), rows.k, rows.codes.data() + r * rows.stride);
  if (rows.values.empty()) {
    std::memcpy(rows.codes.data() + r * rows.stride, in.data(), usize(rows.k));
    return;
  }
  const DType type = value_type(m.source.element);
  for (std::int64_t k = 0; k < rows.k; ++k)
    at(rows.values, r * rows.stride + k) = load_float(type, in.data() + k * m.element_bytes());
}

// Moves row n of the layout, run by run; sizes that are constants become single moves.
template <std::size_t kBytes, class Copy>
void each_run_of(const FloatMatrix& m, std::int64_t n, Copy copy) {
  const std::int64_t run = m.run(), all = m.row_bytes();
  const std::size_t bytes = kBytes != 0 ? kBytes : usize(run);
  for (std::int64_t b = 0; b < all; b += run) copy(usize(m.offset(n, b)), usize(b), bytes);
}
template <class Copy>
void each_run(const FloatMatrix& m, std::int64_t n, Copy copy) {
  switch (m.run()) {
    case 1:
      return each_run_of<1>(m, n, copy);
    case 2:
      return each_run_of<2>(m, n, copy);
    case 4:
      return each_run_of<4>(m, n, copy);
    case 16:
      return each_run_of<16>(m, n, copy);
    default:
      return each_run_of<0>(m, n, copy);
  }
}

void write_elements(const FloatMatrix& m, const CanonicalRows& rows, std::byte* out) {
  std::vector<std::byte> row(usize(m.row_bytes()));
  for (std::int64_t n = 0; n < m.rows(); ++n) {
    row_bytes(m, rows, m.source_row(n), row);
    each_run(m, n, [&](std::size_t to, std::size_t from, std::size_t bytes) {
      std::memcpy(out + to, row.data() + from, bytes);
    });
  }
}
void read_elements(const FloatMatrix& m, const std::byte* in, CanonicalRows& rows) {
  std::vector<std::byte> row(usize(m.row_bytes()));
  for (std::int64_t n = 0; n < m.rows(); ++n) {
    const std::int64_t r = m.source_row(n);
    if (r < 0) continue;
    each_run(m, n, [&](std::size_t from, std::size_t to, std::size_t bytes) {
      std::memcpy(row.data() + to, in + from, bytes);
    });
    row_from_bytes(m, row, r, rows);
  }
}

// --- Marlin: tiles of fields of 8 or 4 bits, which are codes of value - 128 or - 8 in the plain form ------

Wna16Matrix tiles_of(const FloatMatrix& m) {
  return {.kind = LayoutKind::wna16_marlin,
          .bits = m.four_bits() ? 4 : 8,
          .half_rows = m.rows(),
          .padded_half_rows = m.rows(),
          .k = m.padded_k,
          .padded_k = m.padded_k,
          .groups = 1,
          .padded_groups = 1};
}
// Codes alone, of the padded size.
CanonicalRows tile_rows(const FloatMatrix& m) {
  CanonicalRows placed;
  placed.count = m.rows(), placed.k = m.padded_k, placed.stride = round_up(m.padded_k, kCanonicalPad);
  placed.codes.assign(usize(placed.count * placed.stride), 0);
  return placed;
}
std::int8_t field_of(const FloatMatrix& m, std::int8_t code) {
  return static_cast<std::int8_t>(m.four_bits() ? code - 8 : code ^ -128);
}
std::int8_t code_of(const FloatMatrix& m, std::int8_t field) {
  return static_cast<std::int8_t>(m.four_bits() ? field + 8 : field ^ -128);
}

void write_tiles(const FloatMatrix& m, CanonicalRows& rows, std::byte* out) {
  if (m.is_as_given()) {
    for (std::int8_t& code : rows.codes) code = field_of(m, code);
    return write_marlin_weight(tiles_of(m), rows, out);
  }
  CanonicalRows placed = tile_rows(m);
  std::fill(placed.codes.begin(), placed.codes.end(), field_of(m, 0));
  for (std::int64_t n = 0; n < m.rows(); ++n)
    if (const std::int64_t r = m.source_row(n); r >= 0)
      std::transform(rows.row(r), rows.row(r) + rows.k, placed.codes.begin() + n * placed.stride,
                     [&](std::int8_t code) { return field_of(m, code); });
  write_marlin_weight(tiles_of(m), placed, out);
}
void read_tiles(const FloatMatrix& m, const std::byte* in, CanonicalRows& rows) {
  if (m.is_as_given()) {
    read_marlin_weight(tiles_of(m), in, rows);
    for (std::int8_t& field : rows.codes) field = code_of(m, field);
    return;
  }
  CanonicalRows placed = tile_rows(m);
  read_marlin_weight(tiles_of(m), in, placed);
  for (std::int64_t n = 0; n < m.rows(); ++n)
    if (const std::int64_t r = m.source_row(n); r >= 0)
      std::transform(placed.row(n), placed.row(n) + rows.k, rows.codes.begin() + r * rows.stride,
                     [&](std::int8_t field) { return code_of(m, field); });
}

// The scales of NVFP4: s * 128 as float16, whose sign is left out and whose last 7 bits are 0. What is below 2 is 0.
std::uint8_t marlin_nvfp4_byte(float scale) {
  const float lifted = scale * 128.0f;
  return lifted < 2.0f ? std::uint8_t{0} : static_cast<std::uint8_t>(f32_to_f16(lifted) >> 7);
}
// What the second scale comes multiplied by.
float marlin_nvfp4_factor(DType type) { return type == DType::f16 ? 0x1p7f : 0x1p119f; }

// --- int4 for CUTLASS: 1..7 are stored as 7..1 ------------------------------------------------------------

constexpr unsigned encoded(unsigned nibble) { return nibble >= 1 && nibble <= 7 ? 8 - nibble : nibble; }

void write_nibbles(const FloatMatrix& m, const CanonicalRows& rows, std::byte* out) {
  for (std::int64_t n = 0; n < m.rows(); ++n) {
    const std::int8_t* codes = rows.row(m.source_row(n));
    for (std::int64_t k = 0; k < m.padded_k; k += 2) {
      const auto low = static_cast<unsigned>(codes[k]) & 15u, high = static_cast<unsigned>(codes[k + 1]) & 15u;
      *out++ = static_cast<std::byte>(encoded(low) | encoded(high) << 4);
    }
  }
}
void read_nibbles(const FloatMatrix& m, const std::byte* in, CanonicalRows& rows) {
  const auto value = [](unsigned nibble) {
    return static_cast<std::int8_t>(static_cast<int>(encoded(nibble) ^ 8u) - 8);
  };
  for (std::int64_t n = 0; n < m.rows(); ++n) {
    std::int8_t* codes = rows.codes.data() + m.source_row(n) * rows.stride;
    for (std::int64_t k = 0; k < m.padded_k; k += 2, ++in) {
      codes[k] = value(static_cast<unsigned>(*in) & 15u);
      codes[k + 1] = value(static_cast<unsigned>(*in) >> 4);
    }
  }
}

void write_split(const FloatMatrix& m, CanonicalRows& rows, std::byte* out, std::byte* of_rows) {
  const SplitScales split = split_scales(rows);
  for (std::int64_t n = 0; n < m.rows(); ++n) {
    const std::int64_t r = m.source_row(n);
    std::memcpy(out + n * m.groups(), split.codes.data() + r * m.groups(), usize(m.groups()));
    std::memcpy(of_rows + 4 * n, &at(split.rows, r), 4);
  }
}
void read_split(const FloatMatrix& m, const std::byte* in, const std::byte* of_rows, CanonicalRows& rows) {
  for (std::int64_t n = 0; n < m.rows(); ++n)
    for (std::int64_t g = 0; g < m.groups(); ++g)
      at(rows.scales, m.source_row(n) * rows.groups + g) =
          load_scale(Scales::e4m3, in + n * m.groups() + g) * load<float>(of_rows + 4 * n);
}

// --- the family ----------------------------------------------------------------------------------------

const LayoutTensor* find(const Layout& layout, std::string_view name) {
  for (const LayoutTensor& t : layout.tensors)
    if (t.name == name) return &t;
  return nullptr;
}

// The same numbers in AMD's 8-bit floats: a code means half of its value, and there is no -0.
Check to_fnuz(CanonicalRows& rows, Which which) {
  std::replace(rows.codes.begin(), rows.codes.end(), std::int8_t{-128}, std::int8_t{0});
  for (float& s : rows.scales) {
    if (!std::isfinite(s * 2.0f))
      return fail(Code::invalid_argument, which == Which::w13 ? "w13_scale" : "w2_scale",
                  cat("scale ", float_text(s), " is too large to be doubled, as this device's 8-bit floats need it"));
    s *= 2.0f;
  }
  return ok();
}

std::int64_t bias_row(const FloatMatrix& m, std::int64_t n) {
  return m.source_row(m.form->place == WeightPlace::marlin ? marlin_scale_source(false, n) : n);
}

template <class Byte>
FloatBytes<Byte> parts_of(const ExpertTensors<Byte>& tensors, Which which) {
  FloatBytes<Byte> parts;
  for (const PartNames& row : kPartNames) at(parts.part, row.part) = tensors[row.tensor.of(which)].data();
  if (const LayoutTensor* bias = find(tensors.layout, part_name(which, LayoutPart::bias))) parts.bias = bias->dtype;
  return parts;
}

Check write_float_form(CanonicalRows& rows, Which which, const ExpertTensors<std::byte>& out) {
  const FloatMatrix m = float_matrix(out.layout, which);
  if (m.fnuz) MOE_CHECK(to_fnuz(rows, which));
  return write_float_matrix(m, rows, parts_of(out, which));
}

Check read_float_form(const ExpertTensors<const std::byte>& in, Which which, CanonicalRows& rows) {
  const FloatMatrix m = float_matrix(in.layout, which);
  read_float_matrix(m, parts_of(in, which), rows);
  if (m.form->grain == Grain::nvfp4 && m.form->place == WeightPlace::marlin)
    for (float& s : rows.tensor_scales) s = marlin_nvfp4_scale(in.layout.variant.number, s);
  return ok();
}

// The kernels take one scale of activations for all experts, some its product with those of the weights; those of NVFP4
// what InputScales says.
Check finish_inputs(const Layout& layout, std::span<const ExpertFacts> experts, Which which, std::byte* payload) {
  const LayoutTensor* scale = find(layout, part_name(which, LayoutPart::input_scale));
  if (scale == nullptr) return ok();
  const InputScales inputs = float_form(layout)->inputs;
  float most = 0.0f;
  for (const ExpertFacts& e : experts) most = std::max(most, at(e.input_scale, which).value_or(0.0f));
  if (layout.variant.fnuz) most *= 2.0f;
  if (inputs == InputScales::reciprocal) {
    most = 1.0f / most;
    if (std::isinf(most))
      return fail(Code::invalid_argument, std::string(scale->name),
                  cat(scale->name, ": the largest of all experts has no finite reciprocal, which this layout keeps"));
  }
  if (scale->shared) std::memcpy(payload + scale->offset, &most, 4);
  for (std::size_t e = 0; !scale->shared && e < experts.size(); ++e) {
    const float own = inputs == InputScales::own ? at(experts[e].input_scale, which).value_or(0.0f) : most;
    std::memcpy(payload + scale->offset + 4 * e, &own, 4);
  }
  const LayoutTensor *alpha = find(layout, part_name(which, LayoutPart::alpha)),
                     *weights = find(layout, part_name(which, LayoutPart::scale));
  for (std::size_t e = 0; alpha != nullptr && e < experts.size(); ++e) {
    const float product = load<float>(payload + weights->offset + 4 * e) * most;
    std::memcpy(payload + alpha->offset + 4 * e, &product, 4);
  }
  return ok();
}

Check check_marlin_globals(DType type, std::span<const std::byte> global, std::string_view name) {
  for (std::size_t i = 0; i < global.size(); i += 4)
    if (!std::isfinite(load<float>(global.data() + i)))
      return fail(Code::invalid_argument, std::string(name),
                  cat(name, ": the scale of local expert ", i / 4, " is too large for Marlin, which multiplies it by ",
                      float_text(marlin_nvfp4_factor(type))));
  return ok();
}

Check finish_float_form(const Layout& layout, std::span<const ExpertFacts> experts, std::byte* payload,
                        std::uint64_t& scales_rounded) {
  const FloatForm& form = *float_form(layout);
  for (const Which which : {Which::w13, Which::w2}) {
    MOE_CHECK(finish_inputs(layout, experts, which, payload));
    if (form.grain != Grain::nvfp4 || form.place != WeightPlace::marlin) continue;
    const auto all = [&](LayoutPart part) {
      const LayoutTensor& t = *find(layout, part_name(which, part));
      return std::span(payload + t.offset, layout.end_of(t) - t.offset);
    };
    scales_rounded += finish_marlin_nvfp4(layout.variant.number, all(LayoutPart::scale), all(LayoutPart::scale_2));
    MOE_CHECK(
        check_marlin_globals(layout.variant.number, all(LayoutPart::scale_2), part_name(which, LayoutPart::scale_2)));
  }
  return ok();
}

}  // namespace

Check write_float_matrix(const FloatMatrix& m, CanonicalRows& rows, const FloatBytes<std::byte>& out) {
  if (m.form->grain == Grain::nvfp4) {
    if (m.one_scale) share_tensor_scale(rows, m.as_vllm);
    std::memcpy(out[LayoutPart::scale_2], rows.tensor_scales.data(), 4);
  } else if (m.one_scale) {
    MOE_CHECK(share_scale(rows, m.as_vllm, m.fnuz));
  }
  if (m.form->scales == ScalePlace::split)
    write_split(m, rows, out[LayoutPart::scale], out[LayoutPart::scale_2]);
  else
    MOE_CHECK(float_scales(m.form->scales).write(m, rows, out[LayoutPart::scale]));
  if (std::byte* to = out[LayoutPart::bias])
    for (std::int64_t n = 0; n < m.rows(); ++n, to += dtype_bits(out.bias) / 8) {
      const std::int64_t r = bias_row(m, n);
      store_float(out.bias, r < 0 ? 0.0f : at(rows.bias, r), to);
    }
  std::byte* weight = out[LayoutPart::weight];
  switch (m.form->place) {
    case WeightPlace::marlin:
      write_tiles(m, rows, weight);
      break;
    case WeightPlace::nibbles:
      write_nibbles(m, rows, weight);
      break;
    case WeightPlace::hopper:
      write_hopper(m, rows, weight);
      break;
    case WeightPlace::blocks32:
      write_blocks32(m, rows, weight);
      break;
    default:
      write_elements(m, rows, weight);
  }
  return ok();
}

void read_float_matrix(const FloatMatrix& m, const FloatBytes<const std::byte>& in, CanonicalRows& rows) {
  const std::byte* weight = in[LayoutPart::weight];
  switch (m.form->place) {
    case WeightPlace::marlin:
      read_tiles(m, weight, rows);
      break;
    case WeightPlace::nibbles:
      read_nibbles(m, weight, rows);
      break;
    case WeightPlace::hopper:
      read_hopper(m, weight, rows);
      break;
    case WeightPlace::blocks32:
      read_blocks32(m, weight, rows);
      break;
    default:
      read_elements(m, weight, rows);
  }
  if (m.form->scales == ScalePlace::split)
    read_split(m, in[LayoutPart::scale], in[LayoutPart::scale_2], rows);
  else
    float_scales(m.form->scales).read(m, in[LayoutPart::scale], rows);
  if (m.form->grain == Grain::nvfp4)
    std::fill(rows.tensor_scales.begin(), rows.tensor_scales.end(), load<float>(in[LayoutPart::scale_2]));
  if (m.fnuz)
    for (float& s : rows.scales) s *= 0.5f;
  if (const std::byte* from = in[LayoutPart::bias])
    for (std::int64_t n = 0; n < m.rows(); ++n, from += dtype_bits(in.bias) / 8)
      if (const std::int64_t r = bias_row(m, n); r >= 0) at(rows.bias, r) = load_float(in.bias, from);
}

std::uint64_t finish_marlin_nvfp4(DType type, std::span<std::byte> scales, std::span<std::byte> global) {
  const auto value = [](std::byte b) { return small_to_f32(kE4m3, static_cast<unsigned>(b) & 0x7f); };
  std::byte most{0};
  for (const std::byte b : scales) most = std::max(most, b & std::byte{0x7f});  // bytes are in the order of values
  float lift = 1.0f;
  if (type != DType::f16 && value(most) > 0.0f)
    while (value(most) * lift * 2.0f <= 448.0f) lift *= 2.0f;
  const float factor = marlin_nvfp4_factor(type) / lift;  // a power of two
  std::uint64_t lost = 0;
  for (std::byte& b : scales) {
    const std::uint8_t made = marlin_nvfp4_byte(value(b) * lift);
    lost += made == 0 && value(b) > 0.0f ? 1 : 0;
    b = static_cast<std::byte>(made);
  }
  for (std::size_t i = 0; i < global.size(); i += 4) {
    const float g = load<float>(global.data() + i) * factor;
    std::memcpy(global.data() + i, &g, 4);
  }
  return lost;
}
float marlin_nvfp4_scale(DType type, float global) { return global / marlin_nvfp4_factor(type); }

constinit const LayoutFamily layout_families::floats = {float_id,
                                                        is_float_layout,
                                                        list_float,
                                                        write_float_form,
                                                        read_float_form,
                                                        finish_float_form,
                                                        {.parts = kFloatParts, .brief = kFloatParts}};

}  // namespace moe
