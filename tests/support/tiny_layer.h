// Layers for the tests of the room run: packed by the plain packer of p16.h, without config text or checkpoint.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <random>

#include "run/layer.h"
#include "support/p16.h"
#include "support/rooms.h"

namespace moe::test {

struct LayerShape {
  std::int64_t experts = 4, top_k = 2, hidden = 64, intermediate = 96, group = 32;  // group -1: channel-wise
  bool bias = false;
  DType dtype = DType::bf16;
  Activation activation = Activation::silu;
  LayoutKind layout = LayoutKind::p16_int4;  // a float one: group -1
  std::optional<ActFormat> act{};            // none: tok8 for integer weights, f32 for floats
  Scales scales = Scales::bf16;              // of p16_w4 and p16_w8
  bool zeros = false;
  bool signed_scales = true;  // half of those of integers are negative

  std::int64_t w13_rows() const { return (is_gated(activation) ? 2 : 1) * intermediate; }
  Element element() const { return *p16_element(layout); }
  bool is_float() const { return is_value(element()); }
  bool is_small() const { return !is_float() && !is_integer(element()); }  // codes of small floats
  ActFormat act_format() const { return act.value_or(is_integer(element()) ? ActFormat::tok8 : ActFormat::f32); }
};

// The rows that can run a layer, the best first.
inline std::vector<const Kernel*> kernels_for(const LayerShape& s) {
  std::vector<const Kernel*> rows;
  for (const Kernel* k : runnable_kernels(s.layout, s.act_format()))
    if (k->id->takes(Groups::of_size(s.group))) rows.push_back(k);
  return rows;
}

inline std::shared_ptr<Config> tiny_config(const LayerShape& s) {
  auto c = std::make_shared<Config>();
  c->num_experts = c->num_physical_experts = c->num_local_experts = s.experts;
  c->top_k = s.top_k;
  c->hidden_dim = s.hidden;
  c->intermediate_size = c->intermediate_size_per_partition = s.intermediate;
  c->activation = s.activation;
  c->has_bias = s.bias;
  c->in_dtype = c->out_dtype = c->router_logits_dtype = s.dtype;
  if (s.activation == Activation::swigluoai_uninterleave || s.activation == Activation::swigluoai)
    c->alpha = 1.702, c->beta = 1.0, c->limit = 7.0;
  if (s.activation == Activation::swiglustep) c->limit = 7.0;
  if (s.activation == Activation::swiglu_softcap) c->gate_cap = 4.0, c->up_cap = 25.0;
  if (s.activation == Activation::situ) c->gate_cap = 2.5;
  return c;
}

// Plain weights of all experts: w [E][rows, k] codes, scales and zeros [E][rows, G], bias [E][rows]; or values f
// [E][rows, k].
struct PlainWeights {
  std::vector<std::int8_t> w13, w2;
  std::vector<float> s13, s2, b13, b2;
  std::vector<float> f13, f2;
  std::vector<std::uint8_t> z13{}, z2{};
};

inline PlainWeights random_weights(const LayerShape& s, std::uint32_t seed) {
  const auto g = [&](std::int64_t k) { return s.group < 0 ? 1 : k / s.group; };
  PlainWeights p;
  std::mt19937 rng(seed), signs(seed + 1);
  const int half = s.element() == Element::int8 ? 128 : 8;
  std::uniform_int_distribution<int> code(-half, half - 1);
  std::uniform_real_distribution<float> unit(0.0f, 1.0f);
  const auto fill = [&](auto& v, std::int64_t n, auto make) {
    v.resize(static_cast<std::size_t>(n));
    for (auto& x : v) x = make();
  };
  const auto codes = [&] {
    if (s.is_small()) return static_cast<std::int8_t>(random_code(row_of(s.element()).format, rng));
    return static_cast<std::int8_t>(code(rng));
  };
  const auto scale = [&] {
    if (s.is_small()) return std::exp2(std::floor(unit(rng) * 3.0f) - 11.0f);
    const float sign = s.signed_scales && signs() % 2 == 0 ? -1.0f : 1.0f;
    const float v = sign * (0.02f + 0.03f * unit(rng)) * 8.0f / static_cast<float>(half);
    return s.layout == LayoutKind::p16_int4 ? v : ref::round_to(DType::bf16, v);
  };
  const auto zero = [&] { return static_cast<std::uint8_t>(code(rng) / 2 + half); };
  const auto bias = [&] { return unit(rng) - 0.5f; };
  const std::int64_t rows13 = s.experts * s.w13_rows();
  fill(p.b13, rows13, bias);
  fill(p.b2, s.experts * s.hidden, bias);
  if (s.is_float()) {
    const DType d = s.layout == LayoutKind::p16_f32    ? DType::f32
                    : s.layout == LayoutKind::p16_bf16 ? DType::bf16
                                                       : DType::f16;
    const auto value = [&] { return ref::round_to(d, (unit(rng) - 0.5f) * 0.3f); };
    fill(p.f13, rows13 * s.hidden, value);
    fill(p.f2, s.experts * s.hidden * s.intermediate, value);
    return p;
  }
  fill(p.w13, rows13 * s.hidden, codes);
  fill(p.w2, s.experts * s.hidden * s.intermediate, codes);
  fill(p.s13, rows13 * g(s.hidden), scale);
  fill(p.s2, s.experts * s.hidden * g(s.intermediate), scale);
  if (s.zeros) fill(p.z13, rows13 * g(s.hidden), zero), fill(p.z2, s.experts * s.hidden * g(s.intermediate), zero);
  return p;
}

// One expert's slice of a [E, n] array.
template <class T>
std::vector<T> part(const std::vector<T>& v, std::int64_t e, std::int64_t n) {
  return {v.begin() + e * n, v.begin() + (e + 1) * n};
}

inline std::shared_ptr<const Packed> pack_layer(const LayerShape& s, const PlainWeights& p) {
  auto packed = std::make_shared<Packed>();
  Layout& l = packed->info.layout;
  l = p16_layout(s.layout, {s.experts, s.hidden, s.intermediate, Groups::of_size(s.group), is_gated(s.activation),
                            s.bias, s.scales, s.zeros});
  packed->info.layout_id = l.id();
  packed->info.experts.resize(static_cast<std::size_t>(s.experts));
  std::iota(packed->info.experts.begin(), packed->info.experts.end(), 0);
  auto memory = std::make_shared<Buffer>(std::move(*Buffer::create(l.payload_bytes(), kPackedAlignment)));
  for (std::int64_t e = 0; e < s.experts; ++e) {
    std::byte* at = memory->data() + static_cast<std::size_t>(e) * l.expert_stride();
    const auto matrix = [&](const P16& m, const auto& codes, const auto& scales, const auto& zeros, const auto& values,
                            const auto& biases) {
      const auto bias = s.bias ? part(biases, e, m.rows()) : std::vector<float>{};
      if (s.is_float()) return pack_p16_floats(m, part(values, e, m.rows() * m.k), bias);
      const auto w = part(codes, e, m.rows() * m.k);
      const auto scale = part(scales, e, m.rows() * m.group_count());
      if (s.is_small()) return pack_p16_codes(m, {w.begin(), w.end()}, scale, bias);
      if (m.scales == Scales::w4a8) return pack_p16(m, w, scale, bias);
      return pack_plain(m, w, scale, s.zeros ? part(zeros, e, m.rows() * m.group_count()) : zeros, bias);
    };
    const auto w13 = matrix(P16{l.w13}, p.w13, p.s13, p.z13, p.f13, p.b13);
    const auto w2 = matrix(P16{l.w2}, p.w2, p.s2, p.z2, p.f2, p.b2);
    std::memcpy(at, w13.data(), w13.size());
    std::memcpy(at + l.w2_offset(), w2.data(), w2.size());
  }
  packed->payload = packed->block = {memory->data(), memory->size()};
  packed->keep = memory;
  return packed;
}

inline std::shared_ptr<const Layer> make_layer(std::shared_ptr<const Config> config,
                                               std::shared_ptr<const Packed> packed, const Kernel& kernel,
                                               std::shared_ptr<Context> context = nullptr,
                                               std::vector<std::int32_t> expert_map = {},
                                               std::optional<NodeMap> nodes = {}) {
  return *Layer::create({std::move(config),
                         std::move(packed),
                         std::move(context),
                         &kernel,
                         "CPU_INT4",
                         "",
                         std::move(expert_map),
                         {},
                         std::move(nodes)});
}

// A batch of random tokens with their routing; values of the layer's dtype.
struct Batch {
  DType dtype;
  std::int64_t tokens, top_k, hidden;
  std::vector<std::byte> x, out;
  std::vector<std::int32_t> ids;
  std::vector<float> weights;

  std::size_t row_bytes() const { return static_cast<std::size_t>(hidden) * (dtype == DType::f32 ? 4 : 2); }
  ApplyArgs args() {
    ApplyArgs a;
    a.num_tokens = tokens;
    a.hidden = row_major(dtype, {tokens, hidden}, x.data());
    a.topk_ids = row_major(DType::i32, {tokens, top_k}, ids.data());
    a.topk_weights = row_major(DType::f32, {tokens, top_k}, weights.data());
    a.out = row_major(dtype, {tokens, hidden}, out.data());
    return a;
  }
  std::vector<float> values(const std::vector<std::byte>& bytes) const {
    std::vector<float> v(static_cast<std::size_t>(tokens * hidden));
    ref::widen(dtype, bytes.data(), tokens * hidden, v.data());
    return v;
  }
};

inline Batch random_batch(const LayerShape& s, std::int64_t tokens, std::uint32_t seed) {
  Batch b{s.dtype, tokens, s.top_k, s.hidden, {}, {}, {}, {}};
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<std::size_t>(tokens * s.hidden));
  for (float& v : x) v = normal(rng);
  b.x.resize(static_cast<std::size_t>(tokens) * b.row_bytes());
  ref::narrow(s.dtype, x.data(), tokens * s.hidden, b.x.data());
  b.out.assign(b.x.size(), std::byte{0xa5});
  std::vector<std::int32_t> experts(static_cast<std::size_t>(s.experts));
  std::iota(experts.begin(), experts.end(), 0);
  for (std::int64_t t = 0; t < tokens; ++t) {
    std::shuffle(experts.begin(), experts.end(), rng);
    for (std::int64_t j = 0; j < s.top_k; ++j) {
      b.ids.push_back(experts[static_cast<std::size_t>(j)]);
      b.weights.push_back(0.1f + std::fabs(normal(rng)));
    }
  }
  return b;
}

inline std::shared_ptr<Context> threads(int n) {
  return *Context::create("{\"threads\":" + std::to_string(n) + "}", {});
}

}  // namespace moe::test
