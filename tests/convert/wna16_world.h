// Layers of the WNA16 vectors and of random numbers, in plain form, for the tests of the layouts.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "layouts/wna16/wna16.h"
#include "support/rooms.h"
#include "support/vectors.h"
#include "support/wna16_stack.h"

namespace moe::test {

struct PlainLayer {
  Wna16Layout layout;
  std::vector<CanonicalRows> w13, w2;  // [E]
};

// The tensors of a layout by name, whole.
using NamedBytes = std::map<std::string, std::vector<std::byte>>;

inline std::size_t size_of(const Wna16Layout& layout, const Wna16Tensor& t) {
  std::size_t n = static_cast<std::size_t>(dtype_bits(t.dtype)) / 8;
  for (const std::int64_t d : t.shape) n *= static_cast<std::size_t>(d);
  return n * static_cast<std::size_t>(t.shared ? 1 : layout.experts);
}

// First bytes of one expert's parts.
template <class Byte, class Map>
Wna16Bytes<Byte> parts_of(const Wna16Layout& layout, Map& tensors, bool w13, std::int64_t e) {
  Wna16Bytes<Byte> parts;
  for (const Wna16Tensor& t : layout.tensors())
    for (std::size_t p = 0; p < kWna16Parts; ++p) {
      if (t.name != (w13 ? kWna16Names[p].w13 : kWna16Names[p].w2)) continue;
      auto& bytes = tensors.at(std::string(t.name));
      const std::size_t one = t.shared ? 0 : bytes.size() / static_cast<std::size_t>(layout.experts);
      parts.part[p] = bytes.data() + static_cast<std::size_t>(e) * one;
    }
  return parts;
}

inline Check finish_all(const Wna16Layout& layout, NamedBytes& tensors) {
  for (const bool w13 : {true, false}) {
    const std::string name = w13 ? "w13_" : "w2_";
    const auto global = tensors.find(name + "input_global_scale");
    MOE_CHECK(finish_wna16(layout.matrix(w13), name + "scale", tensors.at(name + "scale"),
                           global == tensors.end() ? nullptr : global->second.data()));
  }
  return ok();
}

// Every byte is 0xAA before, so that one which is not written shows.
inline NamedBytes write_layer(const PlainLayer& plain) {
  const Wna16Layout& l = plain.layout;
  NamedBytes tensors;
  for (const Wna16Tensor& t : l.tensors())
    tensors[std::string(t.name)].assign(size_of(l, t) + (size_of(l, t) == 0), std::byte{0xAA});
  for (std::int64_t e = 0; e < l.experts; ++e)
    for (const bool w13 : {true, false})
      write_wna16(l.matrix(w13), (w13 ? plain.w13 : plain.w2)[static_cast<std::size_t>(e)],
                  parts_of<std::byte>(l, tensors, w13, e));
  for (const Wna16Tensor& t : l.tensors()) tensors[std::string(t.name)].resize(size_of(l, t));
  EXPECT_TRUE(finish_all(l, tensors));
  return tensors;
}

// --- golden files --------------------------------------------------------------------------------------

inline DType dtype_of_tag(const std::string& tag) {
  return tag == "bf16" ? DType::bf16 : tag == "f32" ? DType::f32 : DType::f16;
}

inline std::int64_t meta_int(const VecFile& f, const char* name) { return std::stoll(f.meta.at(name)); }
inline std::string meta_or(const VecFile& f, const std::string& name, const std::string& other) {
  return f.meta.count(name) ? f.meta.at(name) : other;
}

inline Wna16Kind kind_of_backend(const std::string& backend) {
  const std::map<std::string, Wna16Kind> kinds = {
      {"MARLIN", Wna16Kind::marlin}, {"FLASHINFER_TRTLLM", Wna16Kind::trtllm}, {"XPU", Wna16Kind::xpu},
      {"CPU", Wna16Kind::vnni},      {"EMULATION/OTF", Wna16Kind::on_the_fly}, {"EMULATION/DENSE", Wna16Kind::dense}};
  return kinds.at(backend);
}

inline Wna16Layout layout_of_file(const VecFile& f, bool vllm) {
  const std::string format = f.meta.at("format"), input = meta_or(f, "input_dtype", "none");
  const bool rows_first = format == "ct_rows";
  Wna16Layout l{.kind = kind_of_backend(f.meta.at("backend")), .bits = std::stoi(f.meta.at("bits"))};
  l.experts = meta_int(f, "E");
  l.hidden = meta_int(f, "H");
  l.intermediate = meta_int(f, "I");
  l.groups = Groups::of_size(meta_int(f, "group_size"));
  l.groups13 = f.at("in.w13_scale").shape[rows_first ? 2 : 1];
  l.groups2 = f.at("in.w2_scale").shape[rows_first ? 2 : 1];
  l.awq = format == "awq";
  l.act_order = meta_or(f, "act_order", "False") == "True";
  l.has_zeros = f.has("in.w13_qzeros");
  l.has_bias = f.has("in.w13_bias");
  l.bit_compat_vllm = vllm;
  l.input = input == "int8" ? MarlinInput::int8 : input == "fp8" ? MarlinInput::fp8 : MarlinInput::none;
  l.scale = l.bias = dtype_of_tag(f.meta.at("scale_dtype"));
  l.number = dtype_of_tag(meta_or(f, "output_dtype", "fp16"));
  if (vllm)
    l.zero_shift =
        vllm_zero_shift(l.kind, l.awq, l.has_zeros, format == "gptq" ? ZeroPoints::plus_one : ZeroPoints::as_stored);
  return l;
}

inline CanonicalRows plain_matrix(const VecFile& f, const Wna16Layout& l, bool w13, std::int64_t e) {
  const std::string name = w13 ? "w13" : "w2", format = f.meta.at("format");
  const bool rows_first = format == "ct_rows";
  Wna16Matrix m = l.matrix(w13);
  m.kind = Wna16Kind::marlin;  // integers, also for dense
  m.has_zeros = l.has_zeros;
  CanonicalRows rows;
  shape_plain(m, rows);
  const Stack codes(f, name);
  const std::vector<float> biases =
      f.has("in." + name + "_bias") ? f.at("in." + name + "_bias").floats() : std::vector<float>();
  const std::vector<float> scales = f.at("in." + name + "_scale").floats();
  for (std::int64_t n = 0; n < m.rows(); ++n) {
    for (std::int64_t k = 0; k < m.k; ++k) {
      const unsigned v = l.awq        ? codes.awq(e, k, n)
                         : rows_first ? codes.plain(e, n, k, false)
                                      : codes.plain(e, k, n, true);
      rows.codes[static_cast<std::size_t>(n * rows.stride + k)] =
          static_cast<std::int8_t>(static_cast<int>(v) - (l.bits == 4 ? 8 : 128));
    }
    for (std::int64_t g = 0; g < m.groups; ++g)
      rows.scales[static_cast<std::size_t>(n * m.groups + g)] = scales[static_cast<std::size_t>(
          rows_first ? (e * m.rows() + n) * m.groups + g : (e * m.groups + g) * m.rows() + n)];
    if (!biases.empty()) rows.bias[static_cast<std::size_t>(n)] = biases[static_cast<std::size_t>(e * m.rows() + n)];
  }
  if (l.has_zeros) {
    const Stack zeros(f, name + "_qzeros");
    for (std::int64_t n = 0; n < m.rows(); ++n)
      for (std::int64_t g = 0; g < m.groups; ++g)
        rows.zeros[static_cast<std::size_t>(n * m.groups + g)] = static_cast<std::uint8_t>(
            (l.awq ? zeros.awq(e, g, n) : zeros.plain(e, g, n, false)) + (format == "gptq" ? 1u : 0u));
  }
  if (l.act_order) {
    const auto order = f.at("in." + name + "_g_idx").as<std::int32_t>();
    rows.g_idx.assign(order.begin() + e * m.k, order.begin() + (e + 1) * m.k);
  }
  return rows;
}

inline PlainLayer plain_layer(const VecFile& f, bool vllm) {
  PlainLayer p{.layout = layout_of_file(f, vllm), .w13 = {}, .w2 = {}};
  for (std::int64_t e = 0; e < p.layout.experts; ++e) {
    p.w13.push_back(plain_matrix(f, p.layout, true, e));
    p.w2.push_back(plain_matrix(f, p.layout, false, e));
  }
  return p;
}

// --- random layers ---------------------------------------------------------------------------------------

inline CanonicalRows random_matrix(const Wna16Layout& l, bool w13, std::mt19937& random) {
  Wna16Matrix m = l.matrix(w13);
  m.kind = Wna16Kind::marlin;
  m.has_zeros = l.has_zeros;
  CanonicalRows rows;
  shape_plain(m, rows);
  const int below = l.bits == 4 ? 8 : 128;
  std::uniform_int_distribution<int> code(-below, below - 1), zero(0, 2 * below - 1),
      group(0, static_cast<int>(m.groups) - 1);
  std::uniform_real_distribution<float> scale(-0.05f, 0.05f), bias(-2.0f, 2.0f);
  const auto rounded = [](DType dtype, float x) {
    std::byte b[4];
    store_number(dtype, x, b);
    return load_number(dtype, b);
  };
  for (std::int64_t n = 0; n < m.rows(); ++n)
    for (std::int64_t k = 0; k < m.k; ++k)
      rows.codes[static_cast<std::size_t>(n * rows.stride + k)] = static_cast<std::int8_t>(code(random));
  for (float& s : rows.scales) s = rounded(l.scale, scale(random));
  for (std::uint8_t& z : rows.zeros) z = static_cast<std::uint8_t>(zero(random));
  if (l.has_bias)
    for (float& b : rows.bias) b = rounded(l.bias, bias(random));
  if (l.act_order)
    for (std::int64_t k = 0; k < m.k; ++k) rows.g_idx.push_back(group(random));
  return rows;
}

inline PlainLayer random_plain(const Wna16Layout& layout, std::mt19937& random) {
  PlainLayer p{.layout = layout, .w13 = {}, .w2 = {}};
  for (std::int64_t e = 0; e < layout.experts; ++e) {
    p.w13.push_back(random_matrix(layout, true, random));
    p.w2.push_back(random_matrix(layout, false, random));
  }
  return p;
}

}  // namespace moe::test
