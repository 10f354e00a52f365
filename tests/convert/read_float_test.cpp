// Unquantized weights: every checkpoint dtype into every float element of p16, and back; what overflows is refused.
#include <cmath>

#include "base/float_formats.h"
#include "convert/random_layer.h"
#include "layouts/dequantize.h"
#include "support/rooms.h"

namespace moe::test::read_float_test {
namespace {

constexpr std::int64_t kExperts = 3, kHidden = 70, kInter = 37;

std::size_t bytes_of(DType d) { return static_cast<std::size_t>(dtype_bits(d)) / 8; }

void put_float(DType d, float x, std::byte* to) {
  if (d == DType::f32) {
    std::memcpy(to, &x, 4);
    return;
  }
  const std::uint16_t h = d == DType::bf16 ? f32_to_bf16(x) : f32_to_f16(x);
  std::memcpy(to, &h, 2);
}

float get_float(DType d, const std::byte* from) {
  if (d == DType::f32) return at<float>(from);
  const auto h = at<std::uint16_t>(from);
  return d == DType::bf16 ? bf16_to_f32(h) : f16_to_f32(h);
}

Bytes random_floats(DType d, std::int64_t n, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  Bytes out(static_cast<std::size_t>(n) * bytes_of(d));
  for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) put_float(d, normal(rng), out.data() + i * bytes_of(d));
  return out;
}

struct FloatLayer {
  DType dtype;
  bool gated;
  std::int64_t w13_rows;
  Bytes w13, w2;
  std::vector<float> b13, b2;

  explicit FloatLayer(DType d, bool is_gated = true)
      : dtype(d), gated(is_gated), w13_rows(is_gated ? 2 * kInter : kInter) {
    w13 = random_floats(d, kExperts * w13_rows * kHidden, 1);
    w2 = random_floats(d, kExperts * kHidden * kInter, 2);
    for (std::int64_t i = 0; i < kExperts * w13_rows; ++i) b13.push_back(static_cast<float>(i) * 0.5f);
    for (std::int64_t i = 0; i < kExperts * kHidden; ++i) b2.push_back(static_cast<float>(i) * -0.25f);
  }
  MemorySource source() const {
    MemorySource s;
    s.set_stacked(Role::w13_weight, row_major(dtype, {kExperts, w13_rows, kHidden}, w13.data()));
    s.set_stacked(Role::w2_weight, row_major(dtype, {kExperts, kHidden, kInter}, w2.data()));
    s.set_stacked(Role::w13_bias, row_major(DType::f32, {kExperts, w13_rows}, b13.data()));
    s.set_stacked(Role::w2_bias, row_major(DType::f32, {kExperts, kHidden}, b2.data()));
    return s;
  }
  ConvertJob job(LayoutKind kind, W13Layout order) const {
    ConvertJob j{.layout = p16_layout(kind, {.experts = kExperts,
                                             .hidden = kHidden,
                                             .intermediate = kInter,
                                             .groups = {},
                                             .gated = gated,
                                             .has_bias = true}),
                 .set = set_of(Format::none),
                 .w13_layout = order,
                 .gated = gated};
    for (std::int64_t e = 0; e < kExperts; ++e) j.experts.push_back(e);
    return j;
  }
  // The row of the w13 tensor that is logical row n (gate rows, then up rows).
  std::int64_t source_row(std::int64_t n, W13Layout order) const {
    if (!gated) return n;
    const std::int64_t half = n / kInter, i = n % kInter;
    if (order == W13Layout::interleaved) return 2 * i + half;
    return order == W13Layout::gate_up ? n : (1 - half) * kInter + i;
  }
};

constexpr std::array kKinds = {std::pair{LayoutKind::p16_bf16, DType::bf16}, std::pair{LayoutKind::p16_f16, DType::f16},
                               std::pair{LayoutKind::p16_f32, DType::f32}};

TEST(ReadFloat, EveryDtypeIntoEveryElementAndBack) {
  for (const DType from : {DType::f32, DType::f16, DType::bf16})
    for (const auto& [kind, to] : kKinds)
      for (const W13Layout order : {W13Layout::gate_up, W13Layout::up_gate, W13Layout::interleaved}) {
        const FloatLayer layer(from);
        const ConvertJob job = layer.job(kind, order);
        const Bytes out = convert(job, layer.source());
        const int threads = 3;
        ASSERT_EQ(out, convert(job, layer.source(),
                               Parallel{.num_threads = 3, .self = const_cast<int*>(&threads), .run = ThreadPool::run}));
        for (std::int64_t e = 0; e < kExperts; ++e) {
          std::vector<float> w13(static_cast<std::size_t>(2 * kInter * kHidden)),
              w2(static_cast<std::size_t>(kHidden * kInter));
          ASSERT_TRUE(dequantize(job.layout, out.data(), e, Which::w13,
                                 row_major(DType::f32, {2 * kInter, kHidden}, w13.data())));
          ASSERT_TRUE(
              dequantize(job.layout, out.data(), e, Which::w2, row_major(DType::f32, {kHidden, kInter}, w2.data())));
          const auto expected = [&, to = to](const Bytes& w, std::int64_t index) {
            Bytes rounded(4);
            put_float(to, get_float(from, w.data() + static_cast<std::size_t>(index) * bytes_of(from)), rounded.data());
            return get_float(to, rounded.data());
          };
          for (std::int64_t n = 0; n < 2 * kInter; ++n)
            for (std::int64_t k = 0; k < kHidden; ++k)
              ASSERT_EQ(w13[static_cast<std::size_t>(n * kHidden + k)],
                        expected(layer.w13, (e * 2 * kInter + layer.source_row(n, order)) * kHidden + k));
          for (std::int64_t i = 0; i < kHidden * kInter; ++i)
            ASSERT_EQ(w2[static_cast<std::size_t>(i)], expected(layer.w2, e * kHidden * kInter + i));
          const P16 m{job.layout.w13};
          for (std::int64_t n = 0; n < m.rows(); ++n) {
            const std::byte* panel = out.data() + static_cast<std::size_t>(e) * job.layout.expert_stride() +
                                     static_cast<std::size_t>(m.panel_of(n)) * m.panel_bytes();
            ASSERT_EQ(at<float>(panel + m.bias_offset() + m.lane_of(n) * 4),
                      layer.b13[static_cast<std::size_t>(e * 2 * kInter + layer.source_row(n, order))]);
          }
        }
      }
}

TEST(ReadFloat, UngatedLayersHaveOneHalfAndPaddingIsZero) {
  const FloatLayer layer(DType::bf16, false);
  const ConvertJob job = layer.job(LayoutKind::p16_bf16, W13Layout::gate_up);
  const Bytes out = convert(job, layer.source());
  const P16 m{job.layout.w13};
  EXPECT_EQ(m.panels(), 3);
  std::size_t used = 0;
  for (std::int64_t p = 0; p < m.panels(); ++p) {
    const std::byte* panel = out.data() + static_cast<std::size_t>(p) * m.panel_bytes();
    for (std::int64_t lane = 0; lane < kPanelRows; ++lane)
      for (std::int64_t k = 0; k < m.units() * kUnitK; ++k) {
        const auto h = at<std::uint16_t>(panel + m.code_offset(lane, k));
        const std::int64_t n = p * kPanelRows + lane;
        if (n >= kInter || k >= kHidden) {
          ASSERT_EQ(h, 0) << n << "," << k;
        } else {
          ASSERT_EQ(h, at<std::uint16_t>(layer.w13.data() + static_cast<std::size_t>(n * kHidden + k) * 2));
          ++used;
        }
      }
  }
  EXPECT_EQ(used, static_cast<std::size_t>(kInter * kHidden));
}

TEST(ReadFloat, WhatWouldOverflowIsRefusedWithItsPlace) {
  FloatLayer layer(DType::f32);
  const std::int64_t n = 40, k = 9;
  const auto place = static_cast<std::size_t>(((1 * 2 * kInter) + n) * kHidden + k) * 4;
  put_float(DType::f32, 65520.0f, layer.w13.data() + place);
  const Error e = convert_error(layer.job(LayoutKind::p16_f16, W13Layout::gate_up), layer.source());
  EXPECT_EQ(e.code, Code::invalid_argument);
  EXPECT_EQ(e.subject, "w13_weight[1,40,9]");
  EXPECT_NE(e.message.find("65520"), std::string::npos) << e.message;
  // the largest number that still rounds into float16; Inf and NaN are numbers of the checkpoint
  for (const float fine : {65519.0f, INFINITY, -INFINITY, NAN}) {
    put_float(DType::f32, fine, layer.w13.data() + place);
    convert(layer.job(LayoutKind::p16_f16, W13Layout::gate_up), layer.source());
  }
}

}  // namespace
}  // namespace moe::test::read_float_test
