// Layers of the WNA16 vectors and of random numbers, in plain form, for the tests of the layouts.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/number_at.h"
#include "layouts/wna16/wna16.h"
#include "support/rooms.h"
#include "support/vectors.h"
#include "support/wna16_stack.h"

namespace moe::test {

struct PlainLayer {
  Layout layout;
  std::vector<CanonicalRows> w13, w2;  // [E]

  const std::vector<CanonicalRows>& of(Which which) const { return which == Which::w13 ? w13 : w2; }
};
constexpr std::array kBoth = {Which::w13, Which::w2};

// What a layout follows from.
struct Wna16Spec {
  LayoutKind kind = LayoutKind::wna16_marlin;
  int bits = 4;
  std::int64_t experts = 0, hidden = 0, intermediate = 0;
  Groups groups = {};
  bool gated = true, act_order = false, has_zeros = false, has_bias = false;
  Scales scale = Scales::f16;
  LayoutVariant variant = {.bias = DType::f16, .number = DType::f16};
  std::optional<Groups> w2_groups = {};  // one of vLLM's files has a w2 of one group, smaller than two of w13

  Layout layout() const {
    LayoutVariant v = variant;
    v.channel_wise = groups.is_whole();
    Layout l = make_named_layout(kind,
                                 {.experts = experts,
                                  .hidden = hidden,
                                  .intermediate = intermediate,
                                  .groups = groups,
                                  .gated = gated,
                                  .has_bias = has_bias,
                                  .scales = scale,
                                  .has_zeros = has_zeros,
                                  .has_order = act_order,
                                  .element = bits == 4 ? Element::int4 : Element::int8},
                                 v);
    if (w2_groups) {
      l.w2.groups = *w2_groups;
      place_tensors(l);
    }
    return l;
  }
};

// The tensors of a layout by name, whole.
using NamedBytes = std::map<std::string, std::vector<std::byte>>;

inline std::size_t size_of(const Layout& layout, const LayoutTensor& t) { return layout.end_of(t) - t.offset; }

// The bytes of a packed layer, and its tensors.
inline std::vector<std::byte> joined(const Layout& layout, const NamedBytes& tensors) {
  std::vector<std::byte> payload(layout.payload_bytes() + 1);
  for (const LayoutTensor& t : layout.tensors) {
    const std::vector<std::byte>& bytes = tensors.at(std::string(t.name));
    std::copy(bytes.begin(), bytes.end(), payload.begin() + static_cast<std::ptrdiff_t>(t.offset));
  }
  return payload;
}
inline NamedBytes split(const Layout& layout, const std::vector<std::byte>& payload) {
  NamedBytes tensors;
  for (const LayoutTensor& t : layout.tensors) {
    const auto first = payload.begin() + static_cast<std::ptrdiff_t>(t.offset);
    tensors[std::string(t.name)].assign(first, first + static_cast<std::ptrdiff_t>(size_of(layout, t)));
  }
  return tensors;
}

// Every byte is 0xAA before, so that one which is not written shows.
inline NamedBytes write_layer(const PlainLayer& plain) {
  const Layout& l = plain.layout;
  std::vector<std::byte> payload(l.payload_bytes() + 1, std::byte{0xAA});
  for (std::int64_t e = 0; e < l.experts; ++e)
    for (const Which which : kBoth)
      write_wna16(wna16_matrix(l, which), plain.of(which)[static_cast<std::size_t>(e)], {l, payload.data(), e});
  std::uint64_t rounded = 0;
  EXPECT_TRUE(layout_family(l.kind)->finish(l, {}, payload.data(), rounded));
  return split(l, payload);
}

inline Check read_expert(const Layout& layout, const NamedBytes& tensors, Which which, std::int64_t e,
                         CanonicalRows& rows) {
  const std::vector<std::byte> payload = joined(layout, tensors);
  return read_wna16(wna16_matrix(layout, which), {layout, payload.data(), e}, rows);
}

// --- golden files --------------------------------------------------------------------------------------

inline DType dtype_of_tag(const std::string& tag) {
  return tag == "bf16" ? DType::bf16 : tag == "f32" ? DType::f32 : DType::f16;
}

inline std::int64_t meta_int(const VecFile& f, const char* name) { return std::stoll(f.meta.at(name)); }
inline std::string meta_or(const VecFile& f, const std::string& name, const std::string& other) {
  return f.meta.count(name) ? f.meta.at(name) : other;
}

inline Scales scales_of_tag(const std::string& tag) {
  return tag == "bf16" ? Scales::bf16 : tag == "f32" ? Scales::f32 : Scales::f16;
}

inline LayoutKind kind_of_backend(const std::string& backend) {
  const std::map<std::string, LayoutKind> kinds = {{"MARLIN", LayoutKind::wna16_marlin},
                                                   {"FLASHINFER_TRTLLM", LayoutKind::wna16_trtllm},
                                                   {"XPU", LayoutKind::wna16_xpu},
                                                   {"CPU", LayoutKind::wna16_vnni},
                                                   {"EMULATION/OTF", LayoutKind::wna16_on_the_fly},
                                                   {"EMULATION/DENSE", LayoutKind::wna16_dense}};
  return kinds.at(backend);
}

inline int zero_shift_of_file(const VecFile& f, const Wna16Spec& s) {
  return vllm_zero_shift(s.kind, s.variant.awq, s.has_zeros,
                         f.meta.at("format") == "gptq" ? ZeroPoints::plus_one : ZeroPoints::as_stored);
}

inline Wna16Spec spec_of_file(const VecFile& f, bool vllm) {
  const std::string format = f.meta.at("format"), input = meta_or(f, "input_dtype", "none");
  Wna16Spec s{.kind = kind_of_backend(f.meta.at("backend")), .bits = std::stoi(f.meta.at("bits"))};
  s.experts = meta_int(f, "E");
  s.hidden = meta_int(f, "H");
  s.intermediate = meta_int(f, "I");
  s.groups = Groups::of_size(meta_int(f, "group_size"));
  if (s.groups.is_even() && s.intermediate % s.groups.as_written() != 0) s.w2_groups = Groups::whole();
  s.act_order = meta_or(f, "act_order", "False") == "True";
  s.has_zeros = f.has("in.w13_qzeros");
  s.has_bias = f.has("in.w13_bias");
  s.scale = scales_of_tag(f.meta.at("scale_dtype"));
  s.variant.awq = format == "awq";
  s.variant.bit_compat_vllm = vllm;
  s.variant.input = input == "int8" ? MarlinInput::int8 : input == "fp8" ? MarlinInput::fp8 : MarlinInput::none;
  s.variant.bias = dtype_of_tag(f.meta.at("scale_dtype"));
  s.variant.number = dtype_of_tag(meta_or(f, "output_dtype", "fp16"));
  if (vllm) s.variant.zero_shift = zero_shift_of_file(f, s);
  return s;
}

inline CanonicalRows plain_matrix(const VecFile& f, const Layout& l, Which which, std::int64_t e) {
  const std::string name = which == Which::w13 ? "w13" : "w2", format = f.meta.at("format");
  const bool rows_first = format == "ct_rows";
  Wna16Matrix m = wna16_matrix(l, which);
  m.kind = LayoutKind::wna16_marlin;  // integers, also for dense
  m.has_zeros = l.w13.has_zeros;
  CanonicalRows rows;
  shape_plain(m, rows);
  const Stack codes(f, name);
  const std::vector<float> biases =
      f.has("in." + name + "_bias") ? f.at("in." + name + "_bias").floats() : std::vector<float>();
  const std::vector<float> scales = f.at("in." + name + "_scale").floats();
  for (std::int64_t n = 0; n < m.rows(); ++n) {
    for (std::int64_t k = 0; k < m.k; ++k) {
      const unsigned v = m.awq        ? codes.awq(e, k, n)
                         : rows_first ? codes.plain(e, n, k, false)
                                      : codes.plain(e, k, n, true);
      rows.codes[static_cast<std::size_t>(n * rows.stride + k)] =
          static_cast<std::int8_t>(static_cast<int>(v) - (m.bits == 4 ? 8 : 128));
    }
    for (std::int64_t g = 0; g < m.groups; ++g)
      rows.scales[static_cast<std::size_t>(n * m.groups + g)] = scales[static_cast<std::size_t>(
          rows_first ? (e * m.rows() + n) * m.groups + g : (e * m.groups + g) * m.rows() + n)];
    if (!biases.empty()) rows.bias[static_cast<std::size_t>(n)] = biases[static_cast<std::size_t>(e * m.rows() + n)];
  }
  if (m.has_zeros) {
    const Stack zeros(f, name + "_qzeros");
    for (std::int64_t n = 0; n < m.rows(); ++n)
      for (std::int64_t g = 0; g < m.groups; ++g)
        rows.zeros[static_cast<std::size_t>(n * m.groups + g)] = static_cast<std::uint8_t>(
            (m.awq ? zeros.awq(e, g, n) : zeros.plain(e, g, n, false)) + (format == "gptq" ? 1u : 0u));
  }
  if (l.w13.has_order) {
    const auto order = f.at("in." + name + "_g_idx").as<std::int32_t>();
    rows.g_idx.assign(order.begin() + e * m.k, order.begin() + (e + 1) * m.k);
  }
  return rows;
}

inline PlainLayer plain_layer(const VecFile& f, bool vllm) {
  PlainLayer p{.layout = spec_of_file(f, vllm).layout(), .w13 = {}, .w2 = {}};
  const std::int64_t groups = f.meta.at("format") == "ct_rows" ? 2 : 1;
  EXPECT_EQ(p.layout.w13.group_count(), f.at("in.w13_scale").shape[static_cast<std::size_t>(groups)]);
  EXPECT_EQ(p.layout.w2.group_count(), f.at("in.w2_scale").shape[static_cast<std::size_t>(groups)]);
  for (std::int64_t e = 0; e < p.layout.experts; ++e) {
    p.w13.push_back(plain_matrix(f, p.layout, Which::w13, e));
    p.w2.push_back(plain_matrix(f, p.layout, Which::w2, e));
  }
  return p;
}

// --- random layers ---------------------------------------------------------------------------------------

inline CanonicalRows random_matrix(const Layout& l, Which which, std::mt19937& random) {
  Wna16Matrix m = wna16_matrix(l, which);
  m.kind = LayoutKind::wna16_marlin;
  m.has_zeros = l.w13.has_zeros;
  CanonicalRows rows;
  shape_plain(m, rows);
  const int below = m.bits == 4 ? 8 : 128;
  std::uniform_int_distribution<int> code(-below, below - 1), zero(0, 2 * below - 1),
      group(0, static_cast<int>(m.groups) - 1);
  std::uniform_real_distribution<float> scale(-0.05f, 0.05f), bias(-2.0f, 2.0f);
  const auto rounded = [](DType dtype, float x) {
    std::byte b[4];
    store_float(dtype, x, b);
    return load_float(dtype, b);
  };
  for (std::int64_t n = 0; n < m.rows(); ++n)
    for (std::int64_t k = 0; k < m.k; ++k)
      rows.codes[static_cast<std::size_t>(n * rows.stride + k)] = static_cast<std::int8_t>(code(random));
  for (float& s : rows.scales) s = rounded(m.scale, scale(random));
  for (std::uint8_t& z : rows.zeros) z = static_cast<std::uint8_t>(zero(random));
  if (l.w13.has_bias)
    for (float& b : rows.bias) b = rounded(m.bias, bias(random));
  if (l.w13.has_order)
    for (std::int64_t k = 0; k < m.k; ++k) rows.g_idx.push_back(group(random));
  return rows;
}

inline PlainLayer random_plain(const Layout& layout, std::mt19937& random) {
  PlainLayer p{.layout = layout, .w13 = {}, .w2 = {}};
  for (std::int64_t e = 0; e < layout.experts; ++e) {
    p.w13.push_back(random_matrix(layout, Which::w13, random));
    p.w2.push_back(random_matrix(layout, Which::w2, random));
  }
  return p;
}

}  // namespace moe::test
