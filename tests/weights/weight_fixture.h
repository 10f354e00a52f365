// Configs and tensors of small layers for the tests of weights/.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "convert/convert.h"
#include "layouts/p16/p16_layout.h"
#include "support/rooms.h"
#include "support/vectors.h"
#include "weights/weight_set.h"

namespace moe::test {

using Bytes = std::vector<std::byte>;

struct LayerSpec {
  std::int64_t experts = 4, hidden = 64, inter = 32, group = 32;  // group -1: channel-wise
  std::string format = "int-quantized";
  bool bias = false;
  std::string more{};  // further members: ",\"parallel\":{..}"
};

// The config room refuses pack-quantized widths that are no whole words; here any width is wanted.
inline std::shared_ptr<const Config> config_of(const LayerSpec& s) {
  const std::string weights = s.group == -1 ? R"({"num_bits":4,"type":"int","strategy":"channel","symmetric":true})"
                                            : R"({"num_bits":4,"type":"int","strategy":"group","group_size":)" +
                                                  std::to_string(s.group) + R"(,"symmetric":true})";
  const std::string text =
      R"({"name":"model.layers.0.mlp.experts","num_experts":)" + std::to_string(s.experts) +
      R"(,"top_k":1,"hidden_dim":)" + std::to_string(s.hidden) + R"(,"intermediate_size":)" + std::to_string(s.inter) +
      R"(,"has_bias":)" + (s.bias ? "true" : "false") + R"(,"quantization":{"weights":)" + weights +
      R"(,"input_activations":{"num_bits":8,"type":"int","strategy":"token","dynamic":true,"symmetric":true},"format":"int-quantized"})" +
      s.more + "}";
  auto c = parse_config(text);
  EXPECT_TRUE(c) << text << (c ? "" : c.error().message);
  if (!c) return nullptr;
  Config config = *std::move(c);
  if (s.format == "pack-quantized") config.quantization.format = Format::pack_quantized;
  return std::make_shared<const Config>(std::move(config));
}

inline Layout layout_of(const Config& c) {
  return p16_int4_layout({.experts = static_cast<std::int64_t>(local_experts(c).size()),
                          .hidden = c.hidden_dim,
                          .intermediate = c.intermediate_size_per_partition,
                          .groups = c.weight_groups(),
                          .gated = is_gated(c.activation),
                          .has_bias = c.has_bias});
}

inline Bytes convert_set(const WeightSet& set) {
  const Config& c = set.config();
  ConvertJob job;
  job.layout = layout_of(c);
  job.set = tensor_set(c.quantization);
  job.w13_layout = c.w13_layout.value_or(W13Layout::gate_up);
  job.groups = c.weight_groups();
  job.experts = local_experts(c);
  Bytes out(job.layout.payload_bytes(), std::byte{0xA5});
  const auto r = convert_experts(job, set, out, {}, nullptr);
  EXPECT_TRUE(r) << (r ? "" : r.error().message);
  return out;
}

// A whole layer as plain numbers: gate, up [E, I, H], down [E, H, I], float32 scales that bf16 holds.
struct PlainLayer {
  LayerSpec spec;
  std::vector<std::int8_t> gate, up, down;
  std::vector<float> gate_scale, up_scale, down_scale, gate_bias, up_bias, down_bias;

  explicit PlainLayer(const LayerSpec& s) : spec(s) {
    std::mt19937 rng(7);
    const auto codes = [&](std::int64_t n) {
      std::vector<std::int8_t> v(static_cast<std::size_t>(n));
      for (auto& x : v) x = static_cast<std::int8_t>(static_cast<int>(rng() % 16) - 8);
      return v;
    };
    const auto scales = [&](std::int64_t n) {
      std::vector<float> v(static_cast<std::size_t>(n));
      for (auto& x : v) x = static_cast<float>(1 + rng() % 128) / 1024.0f;
      return v;
    };
    const std::int64_t e = s.experts, h = s.hidden, i = s.inter;
    gate = codes(e * i * h), up = codes(e * i * h), down = codes(e * h * i);
    gate_scale = scales(e * i * groups(h)), up_scale = scales(e * i * groups(h)),
    down_scale = scales(e * h * groups(i));
    gate_bias = scales(e * i), up_bias = scales(e * i), down_bias = scales(e * h);
  }
  std::int64_t groups(std::int64_t k) const { return spec.group == -1 ? 1 : k / spec.group; }
};

// A tensor with its own memory.
struct Owned {
  Bytes data;
  TensorView view;
};

template <class T>
Owned owned(DType dtype, std::initializer_list<std::int64_t> shape, const T* from) {
  Owned o;
  o.view = row_major(dtype, shape, nullptr);
  o.data.resize(o.view.nbytes);
  if (!o.data.empty()) std::memcpy(o.data.data(), from, o.data.size());
  o.view.data = o.data.data();
  return o;
}

// Counts the ends of owners.
struct Releases {
  int count = 0;
  HandedOver owner() {
    return {[](void* user) { ++static_cast<Releases*>(user)->count; }, this};
  }
};

}  // namespace moe::test
