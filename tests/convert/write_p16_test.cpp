// p16 bytes: golden codes, sums and dense values, every byte against the address formulas of
// layouts/p16/p16.h, the same bytes for every number of threads, and the way back.
#include "layouts/p16/write_p16.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <string>

#include "base/float_formats.h"
#include "convert/random_layer.h"
#include "layouts/dequantize.h"
#include "support/rooms.h"

namespace moe::test::write_p16_test {
namespace {

// --- golden ----------------------------------------------------------------------------------------

// A pack_* vector is one matrix; it is converted as w2 and as both halves of w13.
std::vector<std::string> pack_files() {
  std::vector<std::string> names;
  const auto index = load_json("w4a8_int8/index.json");
  for (const auto& f : index["files"])
    if (f["kind"] == "pack") names.push_back(f["file"]);
  return names;
}

class Pack : public testing::TestWithParam<std::string> {};

TEST_P(Pack, CodesScalesSumsAndDenseAreExact) {
  const VecFile f = load_vectors("w4a8_int8/" + GetParam());
  const std::int64_t n = f.at("w_int4").shape[0], k = f.at("w_int4").shape[1], groups = f.at("scales").shape[1];
  const bool bias = f.has("bias");
  Layout layout;
  layout.kind = LayoutKind::p16_int4;
  layout.experts = 1;
  layout.w2 = {.half_rows = n, .halves = 1, .k = k, .groups = Groups::of_size(k / groups, k), .has_bias = bias};
  layout.w13 = {.half_rows = n, .halves = 2, .k = k, .groups = Groups::of_size(k / groups, k), .has_bias = bias};
  ConvertJob job{.layout = layout, .set = set_of(Format::int_quantized), .groups = Groups::of_size(k / groups, k)};
  job.experts = {5};
  MemorySource source;
  source.set(Role::w2_weight, 5, view_of(f.at("w_int4")));
  source.set(Role::w2_scale, 5, view_of(f.at("scales")));
  for (Half s : {Half::w1, Half::w3}) {
    source.set(Role::w13_weight, 5, view_of(f.at("w_int4")), s);
    source.set(Role::w13_scale, 5, view_of(f.at("scales")), s);
    if (bias) source.set(Role::w13_bias, 5, view_of(f.at("bias")), s);
  }
  if (bias) source.set(Role::w2_bias, 5, view_of(f.at("bias")));
  const Bytes out = convert(job, source);

  const auto w = f.at("w_int4").as<std::int8_t>();
  const auto scales = f.at("scales").floats();
  for (Which which : {Which::w13, Which::w2}) {
    const P16 m{which == Which::w13 ? layout.w13 : layout.w2};
    const std::byte* base = out.data() + (which == Which::w13 ? 0 : layout.w2_offset());
    std::vector<float> got(static_cast<std::size_t>(m.rows() * k));
    ASSERT_TRUE(dequantize(layout, out.data(), 0, which, row_major(DType::f32, {m.rows(), k}, got.data())));
    for (std::int64_t half = 0; half < m.halves; ++half)
      EXPECT_EQ(
          difference(f.expected("dense"), std::as_bytes(std::span(got).subspan(static_cast<std::size_t>(half * n * k),
                                                                               static_cast<std::size_t>(n * k)))),
          "");
    for (std::int64_t r = 0; r < m.rows(); ++r) {
      const std::byte* panel = base + static_cast<std::size_t>(m.panel_of(r)) * m.panel_bytes();
      const std::int64_t lane = m.lane_of(r), src = r % n;
      std::int32_t wsum = 0;
      for (std::int64_t c = 0; c < k; ++c) {
        const auto i = static_cast<std::size_t>(src * k + c);
        ASSERT_EQ(code_at(m, panel, lane, c), w[i]) << r << "," << c;
        wsum += w[i];
      }
      if (bias) {
        EXPECT_EQ(at<float>(panel + m.bias_offset() + lane * 4),
                  f.at("bias").as<float>()[static_cast<std::size_t>(src)]);
      }
      if (m.grouping() == Grouping::channel) {
        EXPECT_EQ(at<std::int32_t>(panel + m.sum_offset() + lane * 4), wsum);
        EXPECT_EQ(at<float>(panel + lane * 4), scales[static_cast<std::size_t>(src)] * 0.0625f);
        continue;
      }
      float rsum = 0.0f;  // w4a8_int8.md 5.3
      for (std::int64_t c = 0; c < k / 32; ++c)
        for (std::int64_t h = 0; h < 2; ++h) {
          int sum = 0;
          for (std::int64_t j = 0; j < 8; ++j)
            sum += w[static_cast<std::size_t>(src * k + 32 * c + 8 * h + j)] +
                   w[static_cast<std::size_t>(src * k + 32 * c + 16 + 8 * h + j)];
          rsum += static_cast<float>(sum) * scales[static_cast<std::size_t>(src * groups + 32 * c / m.group())];
        }
      EXPECT_EQ(std::bit_cast<std::uint32_t>(at<float>(panel + m.sum_offset() + lane * 4)),
                std::bit_cast<std::uint32_t>(rsum));
      for (std::int64_t g = 0; g < groups; ++g)
        EXPECT_EQ(bf16_to_f32(at<std::uint16_t>(panel + m.scale_offset(lane, g))),
                  scales[static_cast<std::size_t>(src * groups + g)]);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Vectors, Pack, testing::ValuesIn(pack_files()),
                         [](const auto& i) { return i.param.substr(0, i.param.find('.')); });

// The rsum and wsum of the KleidiAI blob are the same numbers in another place.
TEST_P(Pack, SumsEqualTheKleidiAiBlob) {
  const VecFile f = load_vectors("w4a8_int8/" + GetParam());
  const std::int64_t n = f.at("w_int4").shape[0], k = f.at("w_int4").shape[1], groups = f.at("scales").shape[1],
                     g = k / groups;
  Layout layout = p16_int4_layout({.experts = 1,
                                   .hidden = n,
                                   .intermediate = k,
                                   .groups = Groups::of_size(groups == 1 ? -1 : g),
                                   .gated = true,
                                   .has_bias = false});
  layout.w13 = layout.w2;  // only w2 is looked at
  ConvertJob job{
      .layout = layout, .set = set_of(Format::int_quantized), .groups = Groups::of_size(groups == 1 ? -1 : g)};
  job.experts = {0};
  MemorySource source;
  for (Role r : {Role::w13_weight, Role::w2_weight}) source.set(r, 0, view_of(f.at("w_int4")));
  for (Role r : {Role::w13_scale, Role::w2_scale}) source.set(r, 0, view_of(f.at("scales")));
  const Bytes out = convert(job, source);
  const P16 m{layout.w2};
  const auto kai = f.at("packed_kai").as<std::byte>();
  const std::int64_t kp = (k + 31) / 32 * 32;
  const std::int64_t stride = groups == 1 ? 8 * (kp / 2 + 12) : 8 * ((g / 2 + 2) * groups + 8);
  const std::int64_t at_sums = groups == 1 ? 4 * kp : 8 * (g / 2 + 2) * groups;
  for (std::int64_t r = 0; r < n; ++r) {
    const std::byte* panel =
        out.data() + layout.w2_offset() + static_cast<std::size_t>(m.panel_of(r)) * m.panel_bytes();
    const auto mine = at<std::uint32_t>(panel + m.sum_offset() + m.lane_of(r) * 4);
    const auto theirs = at<std::uint32_t>(kai.data() + r / 8 * stride + at_sums + r % 8 * 4);
    if (groups == 1)
      EXPECT_EQ(16 * static_cast<std::int32_t>(mine), static_cast<std::int32_t>(theirs)) << r;
    else
      EXPECT_EQ(mine, theirs) << r;
  }
}

// --- padding and determinism -----------------------------------------------------------------------

class Shapes : public testing::TestWithParam<Shape> {};

// Every byte of the payload is either a field of a row or padding with a known value.
TEST_P(Shapes, EveryByteIsAccountedFor) {
  const Shape s = GetParam();
  const RandomLayer layer(s.e, s.h, s.i, s.g, s.bias);
  const Bytes out = convert(layer.job(), layer.source());
  const Layout& l = layer.layout;
  for (std::int64_t e = 0; e < s.e; ++e) {
    const std::byte* expert = out.data() + static_cast<std::size_t>(e) * l.expert_stride();
    for (const Which which : {Which::w13, Which::w2}) {
      const P16 m{l.matrix(which)};
      const std::byte* base = expert + (which == Which::w13 ? 0 : l.w2_offset());
      const auto& codes = which == Which::w13 ? layer.w13 : layer.w2;
      for (std::int64_t p = 0; p < m.panels(); ++p) {
        const std::byte* panel = base + static_cast<std::size_t>(p) * m.panel_bytes();
        std::vector<bool> seen(m.panel_bytes());
        const auto expect_zero = [&](std::size_t offset, std::size_t n) {
          for (std::size_t b = offset; b < offset + n; ++b) EXPECT_EQ(panel[b], std::byte{0}) << b;
        };
        for (std::int64_t lane = 0; lane < 16; ++lane) {
          const std::int64_t half = p % m.halves, r = p / m.halves * 16 + lane;
          const bool real = r < m.half_rows;
          const std::int64_t row = half * m.half_rows + r;
          for (std::int64_t k = 0; k < m.units() * 64; ++k) {
            const int want = real && k < m.k ? codes[static_cast<std::size_t>((e * m.rows() + row) * m.k + k)] : 0;
            ASSERT_EQ(code_at(m, panel, lane, k), want) << "row " << row << " k " << k;
            seen[m.code_offset(lane, k)] = true;
          }
          const auto field = [&](std::size_t offset, std::size_t n) {
            for (std::size_t b = 0; b < n; ++b) seen[offset + b] = true;
            if (!real) expect_zero(offset, n);
          };
          if (m.grouping() == Grouping::channel)
            field(static_cast<std::size_t>(lane) * 4, 4);
          else
            for (std::int64_t g = 0; g < m.group_count(); ++g) field(m.scale_offset(lane, g), 2);
          field(m.sum_offset() + static_cast<std::size_t>(lane) * 4, 4);
          if (m.has_bias) field(m.bias_offset() + static_cast<std::size_t>(lane) * 4, 4);
        }
        for (std::size_t b = 0; b < seen.size(); ++b) EXPECT_TRUE(seen[b] || panel[b] == std::byte{0}) << b;
      }
    }
    for (std::size_t b = P16{l.w13}.bytes() + P16{l.w2}.bytes(); b < l.expert_stride(); ++b)
      ASSERT_EQ(expert[b], std::byte{0});
  }
}

TEST_P(Shapes, SameBytesForEveryThreadCountAndLimit) {
  const Shape s = GetParam();
  const RandomLayer layer(s.e, s.h, s.i, s.g, s.bias);
  const Bytes one = convert(layer.job(), layer.source());
  for (int n : {2, 7}) {
    const Parallel parallel{n, &n, ThreadPool::run};
    EXPECT_EQ(convert(layer.job(), layer.source(), parallel), one);
    ConvertJob limited = layer.job();
    limited.max_temp_bytes = 1;
    EXPECT_EQ(convert(limited, layer.source(), parallel), one);
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, Shapes,
                         testing::Values(Shape{3, 64, 32, 32, false}, Shape{2, 96, 160, 32, true},
                                         Shape{19, 128, 64, 64, true}, Shape{2, 192, 96, 96, false},
                                         Shape{1, 384, 288, 96, true}, Shape{3, 46, 26, -1, true},
                                         Shape{2, 2, 2, -1, false}, Shape{1, 256, 128, 128, false}));

TEST(Dequantize, RoundsToTheOutputTypeAndTakesStrides) {
  const RandomLayer layer(1, 64, 32, 32, false);
  const Bytes out = convert(layer.job(), layer.source());
  std::vector<float> f(64 * 64);
  std::vector<std::uint16_t> h(64 * 64), b(64 * 64);
  ASSERT_TRUE(dequantize(layer.layout, out.data(), 0, Which::w13, row_major(DType::f32, {64, 64}, f.data())));
  ASSERT_TRUE(dequantize(layer.layout, out.data(), 0, Which::w13, row_major(DType::f16, {64, 64}, h.data())));
  TensorView t = row_major(DType::bf16, {64, 64}, b.data());
  t.strides = {1, 64};
  ASSERT_TRUE(dequantize(layer.layout, out.data(), 0, Which::w13, t));
  for (std::size_t n = 0; n < 64; ++n)
    for (std::size_t k = 0; k < 64; ++k) {
      ASSERT_EQ(h[n * 64 + k], f32_to_f16(f[n * 64 + k]));
      ASSERT_EQ(b[k * 64 + n], f32_to_bf16(f[n * 64 + k]));
    }
  EXPECT_EQ(dequantize(layer.layout, out.data(), 0, Which::w2, row_major(DType::f32, {64, 33}, f.data())).error().code,
            Code::shape);
  EXPECT_EQ(dequantize(layer.layout, out.data(), 0, Which::w2, row_major(DType::i8, {64, 32}, f.data())).error().code,
            Code::dtype);
}

}  // namespace
}  // namespace moe::test::write_p16_test
