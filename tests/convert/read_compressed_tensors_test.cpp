// Scales and biases of every type, rounding to bf16, and faults in values with their exact places.
#include "layouts/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "base/float_formats.h"
#include "convert/random_layer.h"
#include "layouts/dequantize.h"
#include "support/rooms.h"

namespace moe::test::read_compressed_tensors_test {
namespace {

// --- scales ------------------------------------------------------------------------------------------

TEST(Convert, GroupScalesAreRoundedToBf16AndCounted) {
  const RandomLayer layer(1, 64, 64, 32, false);
  std::vector<float> s(64 * 2 * 2, 0.5f);
  s[3] = 1.00390625f;  // half way between two bf16 numbers: to even, down
  s[4] = 1.01171875f;  // to even, up
  s[5] = 0.0f;
  s[6] = -0.0f;
  MemorySource source = layer.source();
  source.set(Role::w13_scale, 0, row_major(DType::f32, {128, 2}, s.data()));
  Bytes out = filled(layer.layout.payload_bytes());
  const auto r = convert_experts(layer.job(), source, out, {}, nullptr);
  ASSERT_TRUE(r);
  EXPECT_EQ(r->scales_rounded, 2u);
  const P16 m{layer.layout.w13};
  EXPECT_EQ(at<std::uint16_t>(out.data() + m.scale_offset(1, 1)), 0x3f80);
  EXPECT_EQ(at<std::uint16_t>(out.data() + m.scale_offset(2, 0)), 0x3f82);
  EXPECT_EQ(at<std::uint16_t>(out.data() + m.scale_offset(2, 1)), 0);
  EXPECT_EQ(at<std::uint16_t>(out.data() + m.scale_offset(3, 0)), 0x8000);
}

// Magnitudes are rounded as those of positive scales are; the bytes carry the signs.
TEST(Convert, NegativeScalesAreRoundedAndCounted) {
  const RandomLayer layer(1, 64, 64, 32, false);
  std::vector<float> s(64 * 2 * 2, -0.5f);
  s[3] = -1.00390625f, s[4] = -1.01171875f, s[5] = -3.3895314e38f;  // the largest bf16 number
  MemorySource source = layer.source();
  source.set(Role::w13_scale, 0, row_major(DType::f32, {128, 2}, s.data()));
  Bytes out = filled(layer.layout.payload_bytes());
  const auto r = convert_experts(layer.job(), source, out, {}, nullptr);
  ASSERT_TRUE(r);
  EXPECT_EQ(r->scales_rounded, 2u);
  const P16 m{layer.layout.w13};
  EXPECT_EQ(at<std::uint16_t>(out.data() + m.scale_offset(0, 0)), 0xbf00);
  EXPECT_EQ(at<std::uint16_t>(out.data() + m.scale_offset(1, 1)), 0xbf80);
  EXPECT_EQ(at<std::uint16_t>(out.data() + m.scale_offset(2, 0)), 0xbf82);
  EXPECT_EQ(at<std::uint16_t>(out.data() + m.scale_offset(2, 1)), 0xff7f);
}

// Of every type that scales have: the number that the layer with the same codes and positive scales gives, negated.
TEST(Convert, NegativeScalesOfEveryType) {
  for (const std::int64_t group : {-1, 32})
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      const RandomLayer layer(1, 64, 32, group, false);
      const std::int64_t groups = layer.groups(64);
      std::vector<float> dense[2];
      for (const bool negative : {false, true}) {
        const std::uint16_t bits = (dtype == DType::bf16 ? 0x3e80 : 0x3400) | (negative ? 0x8000 : 0);  // 0.25
        const std::vector<std::uint16_t> halves(static_cast<std::size_t>(64 * groups), bits);
        const std::vector<float> floats(halves.size(), negative ? -0.25f : 0.25f);
        MemorySource source = layer.source();
        const void* data = dtype == DType::f32 ? static_cast<const void*>(floats.data()) : halves.data();
        source.set(Role::w13_scale, 0, row_major(dtype, {64, groups}, data));
        const Bytes packed = convert(layer.job(), source);
        std::vector<float>& out = dense[negative ? 1 : 0];
        out.resize(64 * 64);
        const TensorView view = row_major(DType::f32, {64, 64}, out.data());
        ASSERT_TRUE(dequantize(layer.layout, packed.data(), 0, Which::w13, view));
      }
      for (std::size_t i = 0; i < dense[0].size(); ++i) {
        ASSERT_EQ(dense[0][i], static_cast<float>(layer.w13[i]) * 0.25f);
        ASSERT_EQ(dense[1][i], -dense[0][i]);
      }
    }
}

TEST(Convert, ChannelScalesStayFloat32) {
  const RandomLayer layer(1, 64, 32, -1, false);
  std::vector<float> s(64, 1.00390625f);
  MemorySource source = layer.source();
  source.set(Role::w13_scale, 0, row_major(DType::f32, {64, 1}, s.data()));
  Bytes out = filled(layer.layout.payload_bytes());
  const auto r = convert_experts(layer.job(), source, out, {}, nullptr);
  ASSERT_TRUE(r);
  EXPECT_EQ(r->scales_rounded, 0u);
  EXPECT_EQ(at<float>(out.data()), 1.00390625f / 16);
}

// One group as wide as the matrix: the channel-wise path with a scale that went through bf16.
TEST(Convert, GroupAsWideAsTheMatrix) {
  const RandomLayer narrow(1, 64, 32, 32, false);  // only w2
  const RandomLayer both(1, 32, 32, 32, false);
  for (const RandomLayer* l : {&narrow, &both}) {
    std::vector<float> s(static_cast<std::size_t>(l->h), 1.00390625f);
    MemorySource source = l->source();
    source.set(Role::w2_scale, 0, row_major(DType::f32, {l->h, 1}, s.data()));
    Bytes out = filled(l->layout.payload_bytes());
    const auto r = convert_experts(l->job(), source, out, {}, nullptr);
    ASSERT_TRUE(r);
    EXPECT_TRUE(l->layout.w2.groups.is_whole());
    EXPECT_EQ(r->scales_rounded, static_cast<std::uint64_t>(l->h));
    EXPECT_EQ(at<float>(out.data() + l->layout.w2_offset()), 1.0f / 16);
  }
}

TEST(Convert, GroupEqualsKVectorGivesTheKleidiAiNumbers) {
  const VecFile f = load_vectors("w4a8_int8/groupeqk_moe_E3_H64_I32_T5_k2_g32_act2_bias_float32.safetensors");
  const Layout layout = p16_int4_layout(
      {.experts = 3, .hidden = 64, .intermediate = 32, .groups = Groups::of_size(32), .gated = true, .has_bias = true});
  ConvertJob job{.layout = layout, .set = set_of(Format::int_quantized), .groups = Groups::even(32)};
  job.experts = {0, 1, 2};
  MemorySource source;
  source.set_stacked(Role::w13_weight, view_of(f.at("w13_int4")));
  source.set_stacked(Role::w2_weight, view_of(f.at("w2_int4")));
  source.set_stacked(Role::w13_scale, view_of(f.at("w13_scale")));
  source.set_stacked(Role::w2_scale, view_of(f.at("w2_scale")));
  source.set_stacked(Role::w13_bias, view_of(f.at("w13_bias")));
  source.set_stacked(Role::w2_bias, view_of(f.at("w2_bias")));
  const Bytes out = convert(job, source);
  const auto kai = f.at("w2_packed_kai").as<std::byte>();
  const std::size_t blob = kai.size() / 3;
  for (std::int64_t e = 0; e < 3; ++e)
    for (std::int64_t n = 0; n < 64; ++n) {
      const std::byte* panel = out.data() + static_cast<std::size_t>(e) * layout.expert_stride() + layout.w2_offset() +
                               static_cast<std::size_t>(n / 16) * P16{layout.w2}.panel_bytes();
      const std::byte* tile = kai.data() + static_cast<std::size_t>(e) * blob + n / 8 * (8 * (16 + 12)) + 4 * 32;
      EXPECT_EQ(at<std::int32_t>(panel + 64 + n % 16 * 4) * 16, at<std::int32_t>(tile + n % 8 * 4));
      EXPECT_EQ(at<std::uint32_t>(panel + n % 16 * 4), at<std::uint32_t>(tile + 32 + n % 8 * 4));
      EXPECT_EQ(at<std::uint32_t>(panel + 128 + n % 16 * 4), at<std::uint32_t>(tile + 64 + n % 8 * 4));
    }
}

TEST(Convert, HalfAndBfloatScalesAndBiases) {
  const RandomLayer layer(1, 64, 32, -1, true);
  std::vector<std::uint16_t> s(64), b(64);
  std::vector<float> sf(64), bf(64);
  for (std::size_t i = 0; i < 64; ++i) {
    s[i] = f32_to_f16(0.01f * static_cast<float>(i));
    sf[i] = f16_to_f32(s[i]);
    b[i] = f32_to_f16(0.25f - 0.03f * static_cast<float>(i));
    bf[i] = f16_to_f32(b[i]);
  }
  MemorySource half = layer.source(), full = layer.source();
  half.set(Role::w13_scale, 0, row_major(DType::f16, {64, 1}, s.data()));
  half.set(Role::w13_bias, 0, row_major(DType::f16, {64}, b.data()));
  full.set(Role::w13_scale, 0, row_major(DType::f32, {64, 1}, sf.data()));
  full.set(Role::w13_bias, 0, row_major(DType::f32, {64}, bf.data()));
  EXPECT_EQ(convert(layer.job(), half), convert(layer.job(), full));
}

// --- faults ------------------------------------------------------------------------------------------

TEST(ConvertFaults, CodesOutsideTheRange) {
  for (int bad : {-9, 8, 127, -128, 100}) {
    RandomLayer layer(3, 70, 26, -1, false);
    layer.w13[static_cast<std::size_t>((1 * 52 + 30) * 70 + 69)] =
        static_cast<std::int8_t>(bad);  // in the tail of a row
    const Error e = convert_error(layer.job(), layer.source());
    EXPECT_EQ(e.code, Code::invalid_argument);
    EXPECT_EQ(e.subject, "w13_weight[1,30,69]");
    EXPECT_THAT(e.message, testing::HasSubstr(std::to_string(bad)));
    EXPECT_THAT(e.message, testing::HasSubstr("-8..7"));
  }
  RandomLayer layer(3, 64, 32, 32, false);
  layer.w2[(2 * 64 + 63) * 32 + 3] = 9;
  EXPECT_EQ(convert_error(layer.job(), layer.source()).subject, "w2_weight[2,63,3]");
}

TEST(ConvertFaults, RowNumbersAreThoseOfTheGivenTensor) {
  for (W13Layout order : {W13Layout::gate_up, W13Layout::up_gate, W13Layout::interleaved}) {
    RandomLayer layer(1, 64, 32, 32, false);
    layer.w13[45 * 64 + 7] = 8;
    ConvertJob job = layer.job();
    job.w13_layout = order;
    EXPECT_EQ(convert_error(job, layer.source()).subject, "w13_weight[0,45,7]") << static_cast<int>(order);
  }
}

TEST(ConvertFaults, Scales) {
  const float inf = std::numeric_limits<float>::infinity();
  struct Case {
    float value;
    const char* word;
  };
  for (const Case c :
       {Case{std::nanf(""), "scale NaN is not a finite number"}, Case{inf, "scale Inf is not a finite number"},
        Case{-inf, "scale -Inf is not a finite number"}, Case{3.4e38f, "is beyond the largest bf16 number"},
        Case{-3.4e38f, "is beyond the largest bf16 number"}}) {
    const RandomLayer layer(2, 64, 32, 32, false);
    std::vector<float> s(64 * 2, 0.5f);
    s[41 * 2 + 1] = c.value;
    MemorySource source = layer.source();
    source.set(Role::w13_scale, 1, row_major(DType::f32, {64, 2}, s.data()));
    const Error e = convert_error(layer.job(), source);
    EXPECT_EQ(e.code, Code::invalid_argument);
    EXPECT_EQ(e.subject, "w13_scale[1,41,1]");
    EXPECT_THAT(e.message, testing::EndsWith(c.word));
  }
  const RandomLayer wide(1, 64, 32, -1, false);  // channel-wise: the largest float32 is fine, denormals too
  std::vector<float> s(64, 3.4e38f);
  s[1] = 1e-45f, s[2] = -3.4e38f, s[3] = -1e-45f;
  MemorySource source = wide.source();
  source.set(Role::w13_scale, 0, row_major(DType::f32, {64, 1}, s.data()));
  convert(wide.job(), source);
}

TEST(ConvertFaults, BitsPastTheLastColumn) {
  const RandomLayer layer(1, 46, 26, -1, false);
  auto w13 = packed_words(layer.w13, 46);
  const auto w2 = packed_words(layer.w2, 26);
  w13[51 * 6 + 5] |= 1 << 28;  // column 47
  MemorySource source = layer.source();
  source.set(Role::w13_weight, 0, row_major(DType::i32, {52, 6}, w13.data()));
  source.set(Role::w2_weight, 0, row_major(DType::i32, {46, 4}, w2.data()));
  ConvertJob job = layer.job();
  job.set = set_of(Format::pack_quantized);
  EXPECT_EQ(convert_error(job, source).subject, "w13_weight[0,51,47]");
}

}  // namespace
}  // namespace moe::test::read_compressed_tensors_test
