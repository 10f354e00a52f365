// Bytes of the float layouts (scheme/float_layout.h): rows of the plain form, cut into runs of columns that lie
// together, go to the places that the table says, and come back.
//
// Scales may change codes (requantize.h), so they are written first.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/float_formats.h"
#include "base/index.h"
#include "base/load.h"
#include "base/text.h"
#include "convert/float_scales.h"
#include "convert/named_forms.h"
#include "convert/read_rows.h"
#include "convert/requantize.h"
#include "convert/wna16.h"

namespace moe::convert {
namespace {

std::string_view name_of(Matrix which, FloatPart part) {
  const FloatNames& row = at(kFloatNames, part);
  return which == Matrix::w13 ? row.w13 : row.w2;
}

// --- elements -----------------------------------------------------------------------------------------

// A row of the checkpoint as the layout's elements, padded.
void row_bytes(const FloatMatrix& m, const CanonicalRows& rows, std::int64_t r, std::span<std::byte> out) {
  std::fill(out.begin(), out.end(), std::byte{0});
  if (r < 0) return;
  if (rows.values.empty()) {
    std::memcpy(out.data(), rows.row(r), usize(rows.k));
    return;
  }
  const DType type = value_type(m.source.element);
  for (std::int64_t k = 0; k < rows.k; ++k)
    store_number(type, rows.row_values(r)[k], out.data() + k * m.element_bytes());
}
void row_from_bytes(const FloatMatrix& m, std::span<const std::byte> in, std::int64_t r, CanonicalRows& rows) {
  if (rows.values.empty()) {
    std::memcpy(rows.codes.data() + r * rows.stride, in.data(), usize(rows.k));
    return;
  }
  const DType type = value_type(m.source.element);
  for (std::int64_t k = 0; k < rows.k; ++k)
    at(rows.values, r * rows.stride + k) = load_number(type, in.data() + k * m.element_bytes());
}

// Moves row n of the layout, run by run; sizes that are constants become single moves.
template <std::size_t kBytes, class Copy>
void each_run_of(const FloatMatrix& m, std::int64_t n, Copy copy) {
  const std::int64_t run = m.run(), size = m.element_bytes();
  const std::size_t bytes = kBytes != 0 ? kBytes : usize(run * size);
  for (std::int64_t k = 0; k < m.padded_k; k += run) copy(usize(m.offset(n, k) * size), usize(k * size), bytes);
}
template <class Copy>
void each_run(const FloatMatrix& m, std::int64_t n, Copy copy) {
  switch (m.run() * m.element_bytes()) {
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
  std::vector<std::byte> row(usize(m.padded_k * m.element_bytes()));
  for (std::int64_t n = 0; n < m.rows(); ++n) {
    row_bytes(m, rows, m.source_row(n), row);
    each_run(m, n, [&](std::size_t to, std::size_t from, std::size_t bytes) {
      std::memcpy(out + to, row.data() + from, bytes);
    });
  }
}
void read_elements(const FloatMatrix& m, const std::byte* in, CanonicalRows& rows) {
  std::vector<std::byte> row(usize(m.padded_k * m.element_bytes()));
  for (std::int64_t n = 0; n < m.rows(); ++n) {
    const std::int64_t r = m.source_row(n);
    if (r < 0) continue;
    each_run(m, n, [&](std::size_t from, std::size_t to, std::size_t bytes) {
      std::memcpy(row.data() + to, in + from, bytes);
    });
    row_from_bytes(m, row, r, rows);
  }
}

// --- Marlin: tiles of 8-bit fields, which are codes of value - 128 in the plain form ------------------------

Wna16Matrix tiles_of(const FloatMatrix& m) {
  return {.kind = Wna16Kind::marlin,
          .bits = 8,
          .half_rows = m.rows(),
          .padded_half_rows = m.rows(),
          .k = m.source.k,
          .padded_k = m.padded_k,
          .groups = 1,
          .padded_groups = 1};
}
void flip_top_bits(CanonicalRows& rows) {
  for (std::int8_t& c : rows.codes) c = static_cast<std::int8_t>(c ^ -128);
}
// Rows in the order of the layout, which is the checkpoint's or pairs of gate and up.
CanonicalRows in_order(const FloatMatrix& m, const CanonicalRows& rows, bool back) {
  CanonicalRows placed = rows;
  for (std::int64_t n = 0; n < m.rows(); ++n) {
    const std::int64_t r = m.source_row(n);
    std::copy_n(rows.codes.begin() + (back ? n : r) * rows.stride, rows.stride,
                placed.codes.begin() + (back ? r : n) * rows.stride);
  }
  return placed;
}

void write_tiles(const FloatMatrix& m, CanonicalRows& rows, std::byte* out) {
  flip_top_bits(rows);
  write_marlin_weight(tiles_of(m), m.gate_up_pairs ? in_order(m, rows, false) : rows, out);
}
void read_tiles(const FloatMatrix& m, const std::byte* in, CanonicalRows& rows) {
  read_marlin_weight(tiles_of(m), in, rows);
  flip_top_bits(rows);
  if (m.gate_up_pairs) rows = in_order(m, rows, true);
}

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

// --- NamedForm ----------------------------------------------------------------------------------------

const LayoutTensor* find(const Layout& layout, std::string_view name) {
  for (const LayoutTensor& t : layout.tensors)
    if (t.name == name) return &t;
  return nullptr;
}

// The same numbers in AMD's 8-bit floats: a code means half of its value, and there is no -0.
Check to_fnuz(CanonicalRows& rows, Matrix which) {
  std::replace(rows.codes.begin(), rows.codes.end(), std::int8_t{-128}, std::int8_t{0});
  for (float& s : rows.scales) {
    if (!std::isfinite(s * 2.0f))
      return fail(Code::invalid_argument, which == Matrix::w13 ? "w13_scale" : "w2_scale",
                  cat("scale ", float_text(s), " is too large to be doubled, as this device's 8-bit floats need it"));
    s *= 2.0f;
  }
  return ok();
}

Check write_float_form(CanonicalRows& rows, Matrix which, const ExpertTensors<std::byte>& out) {
  const FloatMatrix m = float_matrix(out.layout, which);
  const auto part = [&](FloatPart p) { return out[name_of(which, p)].data(); };
  if (m.fnuz) MOE_CHECK(to_fnuz(rows, which));
  if (m.one_scale) MOE_CHECK(share_scale(rows, m.through_f16, m.fnuz));
  if (m.form->scales == ScalePlace::split)
    write_split(m, rows, part(FloatPart::scale), part(FloatPart::scale_2));
  else
    MOE_CHECK(float_scales(m.form->scales).write(m, rows, part(FloatPart::scale)));
  if (const LayoutTensor* bias = find(out.layout, name_of(which, FloatPart::bias))) {
    std::byte* to = part(FloatPart::bias);
    const int size = dtype_bits(bias->dtype) / 8;
    for (std::int64_t n = 0; n < m.rows(); ++n) {
      const std::int64_t r = m.source_row(m.form->place == WeightPlace::marlin ? marlin_scale_source(false, n) : n);
      store_number(bias->dtype, r < 0 ? 0.0f : at(rows.bias, r), to + n * size);
    }
  }
  std::byte* weight = part(FloatPart::weight);
  if (m.form->place == WeightPlace::marlin)
    write_tiles(m, rows, weight);
  else if (m.form->place == WeightPlace::nibbles)
    write_nibbles(m, rows, weight);
  else
    write_elements(m, rows, weight);
  return ok();
}

Check read_float_form(const ExpertTensors<const std::byte>& in, Matrix which, CanonicalRows& rows) {
  const FloatMatrix m = float_matrix(in.layout, which);
  const auto part = [&](FloatPart p) { return in[name_of(which, p)].data(); };
  if (m.form->place == WeightPlace::marlin)
    read_tiles(m, part(FloatPart::weight), rows);
  else if (m.form->place == WeightPlace::nibbles)
    read_nibbles(m, part(FloatPart::weight), rows);
  else
    read_elements(m, part(FloatPart::weight), rows);
  if (m.form->scales == ScalePlace::split)
    read_split(m, part(FloatPart::scale), part(FloatPart::scale_2), rows);
  else
    float_scales(m.form->scales).read(m, part(FloatPart::scale), rows);
  if (m.fnuz)
    for (float& s : rows.scales) s *= 0.5f;
  if (const LayoutTensor* bias = find(in.layout, name_of(which, FloatPart::bias)))
    for (std::int64_t n = 0; n < m.rows(); ++n) {
      const std::int64_t r = m.source_row(m.form->place == WeightPlace::marlin ? marlin_scale_source(false, n) : n);
      if (r >= 0)
        at(rows.bias, r) = load_number(bias->dtype, part(FloatPart::bias) + n * (dtype_bits(bias->dtype) / 8));
    }
  return ok();
}

// The kernels take one scale of activations for all experts, and some its product with those of the weights.
Check finish_float_form(const Layout& layout, std::span<const ExpertFacts> experts, std::byte* payload) {
  for (const Matrix which : {Matrix::w13, Matrix::w2}) {
    const LayoutTensor* scale = find(layout, name_of(which, FloatPart::input_scale));
    if (scale == nullptr) continue;
    float most = 0.0f;
    for (const ExpertFacts& e : experts) most = std::max(most, at(e.input_scale, which).value_or(0.0f));
    if (layout.variant.fnuz) most *= 2.0f;
    std::memcpy(payload + scale->offset, &most, 4);
    const LayoutTensor *alpha = find(layout, name_of(which, FloatPart::alpha)),
                       *weights = find(layout, name_of(which, FloatPart::scale));
    for (std::size_t e = 0; alpha != nullptr && e < experts.size(); ++e) {
      const float product = load<float>(payload + weights->offset + 4 * e) * most;
      std::memcpy(payload + alpha->offset + 4 * e, &product, 4);
    }
  }
  return ok();
}

constexpr NamedForm named(LayoutKind kind) { return {kind, write_float_form, read_float_form, finish_float_form}; }

}  // namespace

constinit const NamedForm named_forms::float_plain = named(LayoutKind::float_plain);
constinit const NamedForm named_forms::float_flashinfer_cutlass = named(LayoutKind::float_flashinfer_cutlass);
constinit const NamedForm named_forms::float_flashinfer_trtllm = named(LayoutKind::float_flashinfer_trtllm);
constinit const NamedForm named_forms::float_marlin = named(LayoutKind::float_marlin);
constinit const NamedForm named_forms::float_deep_gemm = named(LayoutKind::float_deep_gemm);
constinit const NamedForm named_forms::float_aiter = named(LayoutKind::float_aiter);
constinit const NamedForm named_forms::float_xpu = named(LayoutKind::float_xpu);
constinit const NamedForm named_forms::float_vnni = named(LayoutKind::float_vnni);
constinit const NamedForm named_forms::float_cutlass_w4a8 = named(LayoutKind::float_cutlass_w4a8);

}  // namespace moe::convert
