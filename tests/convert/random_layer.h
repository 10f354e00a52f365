// Layers of random codes, scales and biases in memory, and conversions of them, for the tests of this room.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "convert/convert.h"
#include "layouts/p16/p16.h"
#include "layouts/p16/p16_layout.h"
#include "support/memory_source.h"
#include "support/rooms.h"
#include "support/tensor_sets.h"
#include "support/vectors.h"

namespace moe::test {

using Bytes = std::vector<std::byte>;

// Codes as pack-quantized words.
inline std::vector<std::int32_t> packed_words(const std::vector<std::int8_t>& w, std::int64_t k) {
  const std::int64_t words = (k + 7) / 8, n = static_cast<std::int64_t>(w.size()) / k;
  std::vector<std::int32_t> out(static_cast<std::size_t>(n * words));
  for (std::int64_t r = 0; r < n; ++r)
    for (std::int64_t c = 0; c < k; ++c) {
      auto& word = out[static_cast<std::size_t>(r * words + c / 8)];
      word = static_cast<std::int32_t>(static_cast<std::uint32_t>(word) |
                                       static_cast<std::uint32_t>(w[static_cast<std::size_t>(r * k + c)] + 8)
                                           << (4 * (c % 8)));
    }
  return out;
}

struct ThreadPool {
  static Check run(void* self, std::size_t count, TaskFn task, void* arg) {
    const int n = *static_cast<int*>(self);
    std::atomic<std::size_t> next{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < n; ++i)
      threads.emplace_back([&] {
        for (std::size_t t; (t = next.fetch_add(1)) < count;) task(arg, t);
      });
    for (std::thread& t : threads) t.join();
    return ok();
  }
};

inline Bytes filled(std::size_t n) { return Bytes(n, std::byte{0xA5}); }

struct Shape {
  std::int64_t e, h, i, g;
  bool bias;
};

// A layer of random codes, scales of either sign and biases with every odd size there is.
struct RandomLayer {
  std::int64_t experts, h, i, g;
  bool bias;
  std::vector<std::int8_t> w13, w2;
  std::vector<std::uint16_t> s13, s2;  // bf16
  std::vector<float> b13, b2;
  Layout layout;

  RandomLayer(std::int64_t e, std::int64_t hidden, std::int64_t inter, std::int64_t group, bool has_bias,
              unsigned seed = 1)
      : experts(e), h(hidden), i(inter), g(group), bias(has_bias) {
    std::mt19937 rng(seed);
    const auto codes = [&](std::vector<std::int8_t>& v, std::int64_t n) {
      v.resize(static_cast<std::size_t>(n));
      for (auto& x : v) x = static_cast<std::int8_t>(static_cast<int>(rng() % 16) - 8);
    };
    const auto scales = [&](std::vector<std::uint16_t>& v, std::int64_t n) {
      v.resize(static_cast<std::size_t>(n));
      for (auto& x : v) x = static_cast<std::uint16_t>(0x3a00 + rng() % 0x400 + rng() % 2 * 0x8000);
    };
    const auto biases = [&](std::vector<float>& v, std::int64_t n) {
      v.resize(static_cast<std::size_t>(n));
      for (auto& x : v) x = static_cast<float>(static_cast<int>(rng() % 2001) - 1000) / 512.0f;
    };
    codes(w13, e * 2 * i * h);
    codes(w2, e * h * i);
    scales(s13, e * 2 * i * groups(h));
    scales(s2, e * h * groups(i));
    biases(b13, e * 2 * i);
    biases(b2, e * h);
    layout = p16_int4_layout(
        {.experts = e, .hidden = h, .intermediate = i, .groups = Groups::of_size(g), .gated = true, .has_bias = bias});
  }
  std::int64_t groups(std::int64_t k) const { return g == -1 ? 1 : k / g; }

  TensorView w13_view() const { return row_major(DType::i8, {experts, 2 * i, h}, w13.data()); }
  MemorySource source() const {
    MemorySource s;
    s.set_stacked(Role::w13_weight, w13_view());
    s.set_stacked(Role::w2_weight, row_major(DType::i8, {experts, h, i}, w2.data()));
    s.set_stacked(Role::w13_scale, row_major(DType::bf16, {experts, 2 * i, groups(h)}, s13.data()));
    s.set_stacked(Role::w2_scale, row_major(DType::bf16, {experts, h, groups(i)}, s2.data()));
    if (bias) {
      s.set_stacked(Role::w13_bias, row_major(DType::f32, {experts, 2 * i}, b13.data()));
      s.set_stacked(Role::w2_bias, row_major(DType::f32, {experts, h}, b2.data()));
    }
    return s;
  }
  ConvertJob job() const {
    ConvertJob j{.layout = layout, .set = set_of(Format::int_quantized), .groups = Groups::of_size(g)};
    for (std::int64_t e = 0; e < experts; ++e) j.experts.push_back(e);
    return j;
  }
};

inline Bytes convert(const ConvertJob& job, const TensorSource& source, const Parallel& parallel = {}) {
  Bytes out = filled(job.layout.payload_bytes());
  const auto r = convert_experts(job, source, out, parallel, nullptr);
  EXPECT_TRUE(r) << (r ? "" : r.error().message);
  return out;
}

inline Error convert_error(const ConvertJob& job, const TensorSource& source, const Parallel& parallel = {}) {
  Bytes out = filled(job.layout.payload_bytes());
  auto r = convert_experts(job, source, out, parallel, nullptr);
  EXPECT_FALSE(r);
  return r ? Error{} : r.error();
}

template <class T>
T at(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

inline int code_at(const P16& m, const std::byte* panel, std::int64_t lane, std::int64_t k) {
  const int b = static_cast<int>(panel[m.code_offset(lane, k)]);
  return (P16::nibble_high(k) ? b >> 4 : b & 15) - 8;
}

}  // namespace moe::test
