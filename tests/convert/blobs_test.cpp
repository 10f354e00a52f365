// Named layouts: golden bytes of the W4A8 vectors, the way back, gaps, the same bytes for every number of threads.
#include "layouts/families.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "convert/random_layer.h"
#include "layouts/dequantize.h"
#include "support/rooms.h"
#include "support/share.h"
#include "support/w4a8_files.h"

namespace moe::test::blobs_test {
namespace {

Layout named(LayoutKind kind, std::int64_t e, std::int64_t h, std::int64_t i, std::int64_t g, bool bias) {
  return make_named_layout(kind, {.experts = e,
                                  .hidden = h,
                                  .intermediate = i,
                                  .groups = Groups::of_size(g),
                                  .gated = true,
                                  .has_bias = bias,
                                  .scales = Scales::w4a8});
}

std::vector<std::byte> bytes_of(const Layout& l, const Bytes& payload, std::string_view name, std::int64_t expert) {
  const auto span = ExpertTensors<const std::byte>{l, payload.data(), expert}[name];
  return {span.begin(), span.end()};
}

std::vector<float> dense_of(const Layout& l, const Bytes& payload, std::int64_t expert, Which which) {
  const Matrix& m = l.matrix(which);
  std::vector<float> out(static_cast<std::size_t>(m.rows() * m.k));
  const Check c = dequantize(l, payload.data(), expert, which, row_major(DType::f32, {m.rows(), m.k}, out.data()));
  EXPECT_TRUE(c) << (c ? "" : c.error().message);
  return out;
}

// A pack_* vector is one matrix: w2 as it is, w13 with any other one.
void check_pack(LayoutKind kind, const std::string& tensor, const std::string& file) {
  SCOPED_TRACE(file);
  const VecFile f = load_vectors(file);
  const std::int64_t n = f.at("w_int4").shape[0], k = f.at("w_int4").shape[1], groups = f.at("scales").shape[1];
  const bool bias = f.has("bias");
  Layout l = named(kind, 1, n, k, groups == 1 ? -1 : k / groups, bias);
  l.w13 = l.w2;  // an ungated layer whose two matrices are alike
  place_tensors(l);
  ConvertJob job{
      .layout = l, .set = set_of(Format::int_quantized), .gated = false, .groups = Groups::of_size(k / groups, k)};
  job.experts = {3};
  MemorySource source;
  for (Role r : {Role::w13_weight, Role::w2_weight}) source.set(r, 3, view_of(f.at("w_int4")));
  for (Role r : {Role::w13_scale, Role::w2_scale}) source.set(r, 3, view_of(f.at("scales")));
  if (bias)
    for (Role r : {Role::w13_bias, Role::w2_bias}) source.set(r, 3, view_of(f.at("bias")));
  const Bytes out = convert(job, source);
  for (const char* name : {"w13_packed", "w2_packed"})
    EXPECT_EQ(difference(f.expected(tensor), bytes_of(l, out, name, 0)), "") << name;
  for (Which which : {Which::w13, Which::w2}) {
    const std::vector<float> dense = dense_of(l, out, 0, which);
    EXPECT_EQ(difference(f.expected("dense"), std::as_bytes(std::span(dense))), "");
  }
  // The bias comes back, too.
  CanonicalRows rows;
  rows.shape(n, l.w2);
  EXPECT_TRUE(layout_family(kind)->read({l, out.data(), 0}, Which::w2, rows));
  EXPECT_EQ(rows.bias, bias ? f.at("bias").as<float>() : std::vector<float>(static_cast<std::size_t>(n)));
  EXPECT_EQ(rows.scales, f.at("scales").floats());
}

TEST(TorchBlob, PackVectors) {
  for (const std::string& name : w4a8_files("pack_")) check_pack(LayoutKind::torch_float, "packed_fallback", name);
  EXPECT_EQ(w4a8_files("pack_").size(), 23u);
}

TEST(Kai, PackVectors) {
  for (const std::string& name : w4a8_files("pack_")) check_pack(LayoutKind::kai, "packed_kai", name);
}

// Whole layers: gate and up rows share tiles where I is no multiple of 8.
TEST(Kai, MoeVectors) {
  std::vector<std::string> names = w4a8_files("moe_");
  for (const std::string& name : w4a8_files("groupeqk_")) names.push_back(name);
  EXPECT_EQ(names.size(), 16u);
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const VecFile f = load_vectors(name);
    const auto number = [&](const char* key) { return std::stoll(f.meta.at(key)); };
    const std::int64_t e = number("E"), h = number("H"), i = number("I"), g = number("group_size");
    const bool bias = f.has("w13_bias");
    ConvertJob job{.layout = named(LayoutKind::kai, e, h, i, g, bias),
                   .set = set_of(Format::int_quantized),
                   .groups = Groups::of_size(g)};
    MemorySource source;
    for (std::int64_t n = 0; n < e; ++n) job.experts.push_back(n);
    source.set_stacked(Role::w13_weight, view_of(f.at("w13_int4")));
    source.set_stacked(Role::w2_weight, view_of(f.at("w2_int4")));
    source.set_stacked(Role::w13_scale, view_of(f.at("w13_scale")));
    source.set_stacked(Role::w2_scale, view_of(f.at("w2_scale")));
    if (bias) source.set_stacked(Role::w13_bias, view_of(f.at("w13_bias")));
    if (bias) source.set_stacked(Role::w2_bias, view_of(f.at("w2_bias")));
    const Bytes out = convert(job, source);
    for (const char* matrix : {"w13", "w2"}) {
      std::vector<std::byte> all;
      for (std::int64_t n = 0; n < e; ++n) {
        const auto one = bytes_of(job.layout, out, std::string(matrix) + "_packed", n);
        all.insert(all.end(), one.begin(), one.end());
      }
      EXPECT_EQ(difference(f.expected(std::string(matrix) + "_packed_kai"), all), "") << matrix;
    }
  }
}

class Blobs : public testing::TestWithParam<LayoutKind> {};

TEST_P(Blobs, RoundTripsEveryShape) {
  for (const Shape& s : {Shape{3, 64, 32, 32, false}, Shape{2, 96, 160, 32, true}, Shape{5, 128, 64, 64, true},
                         Shape{2, 192, 96, 96, false}, Shape{3, 46, 26, -1, true}, Shape{2, 2, 2, -1, false},
                         Shape{1, 256, 128, 128, false}, Shape{2, 34, 18, -1, true}}) {
    const RandomLayer layer(s.e, s.h, s.i, s.g, s.bias);
    ConvertJob job = layer.job();
    const Bytes p16 = convert(job, layer.source());
    job.layout = named(GetParam(), s.e, s.h, s.i, s.g, s.bias);
    const Bytes out = convert(job, layer.source());
    for (std::int64_t e = 0; e < s.e; ++e)
      for (Which which : {Which::w13, Which::w2})
        ASSERT_EQ(dense_of(job.layout, out, e, which), dense_of(layer.layout, p16, e, which)) << s.h << " " << s.g;
    std::size_t at = 0;
    for (const LayoutTensor& t : job.layout.tensors) {
      EXPECT_EQ(t.offset % 64, 0u);
      for (; at < t.offset; ++at) ASSERT_EQ(out[at], std::byte{0});
      at = job.layout.end_of(t);
    }
    EXPECT_EQ(at, out.size());
    for (int n : {2, 5}) EXPECT_EQ(convert(job, layer.source(), Parallel{n, &n, ThreadPool::run}), out);
  }
}

// One matrix of any number of rows, odd ones too, of codes, scales and biases that are told from each other.
TEST_P(Blobs, RandomMatricesComeBack) {
  std::mt19937 rng(23);
  const auto pick = [&](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng); };
  for (int round = 0; round < rounds(300); ++round) {
    const std::int64_t n = pick(1, 70), group = pick(0, 1) == 0 ? -1 : 32 * pick(1, 8);
    const std::int64_t k = group < 0 ? 2 * pick(1, 150) : group * pick(1, 4), groups = group < 0 ? 1 : k / group;
    const bool bias = pick(0, 1) == 1;
    SCOPED_TRACE(testing::Message() << "n " << n << " k " << k << " g " << group << " bias " << bias);
    const RandomLayer drawn(1, n, k, -1, bias, static_cast<unsigned>(round));
    std::vector<std::uint16_t> scales(static_cast<std::size_t>(n * groups));
    for (auto& s : scales) s = static_cast<std::uint16_t>(0x3a00 + rng() % 0x400);
    Layout l = named(GetParam(), 1, n, k, group, bias);
    l.w13 = l.w2;  // an ungated layer whose two matrices are alike
    place_tensors(l);
    ConvertJob job{.layout = l, .set = set_of(Format::int_quantized), .gated = false, .groups = Groups::of_size(group)};
    job.experts = {0};
    MemorySource source;
    for (Role r : {Role::w13_weight, Role::w2_weight}) source.set(r, 0, row_major(DType::i8, {n, k}, drawn.w2.data()));
    for (Role r : {Role::w13_scale, Role::w2_scale})
      source.set(r, 0, row_major(DType::bf16, {n, groups}, scales.data()));
    if (bias)
      for (Role r : {Role::w13_bias, Role::w2_bias}) source.set(r, 0, row_major(DType::f32, {n}, drawn.b2.data()));
    const Bytes out = convert(job, source);
    std::vector<float> want(static_cast<std::size_t>(n * k)), wanted_scales(scales.size());
    for (std::size_t i = 0; i < scales.size(); ++i) wanted_scales[i] = bf16_to_f32(scales[i]);
    const std::size_t run = want.size() / scales.size();
    for (std::size_t i = 0; i < want.size(); ++i) want[i] = static_cast<float>(drawn.w2[i]) * wanted_scales[i / run];
    for (Which which : {Which::w13, Which::w2}) {
      ASSERT_EQ(dense_of(l, out, 0, which), want);
      CanonicalRows rows;
      rows.shape(n, l.matrix(which));
      ASSERT_TRUE(layout_family(GetParam())->read({l, out.data(), 0}, which, rows));
      ASSERT_EQ(rows.bias, bias ? drawn.b2 : std::vector<float>(static_cast<std::size_t>(n)));
      ASSERT_EQ(rows.scales, wanted_scales);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Blobs, testing::Values(LayoutKind::torch_float, LayoutKind::kai),
                         [](const auto& i) { return "kind" + std::to_string(static_cast<int>(i.param)); });

TEST(Blobs, FaultsNameTheirPlace) {
  RandomLayer layer(2, 64, 32, 32, false);
  layer.w13[static_cast<std::size_t>((64 + 40) * 64 + 7)] = 9;
  ConvertJob job = layer.job();
  job.layout = named(LayoutKind::torch_float, 2, 64, 32, 32, false);
  EXPECT_EQ(convert_error(job, layer.source()).subject, "w13_weight[1,40,7]");
}

TEST(Blobs, ReadingBackChecksTheTensor) {
  const Layout l = named(LayoutKind::torch_float, 1, 64, 32, 32, false);
  const Bytes out(l.payload_bytes());
  std::vector<float> f(64 * 64);
  EXPECT_EQ(dequantize(l, out.data(), 0, Which::w13, row_major(DType::f32, {64, 63}, f.data())).error().code,
            Code::shape);
  EXPECT_EQ(dequantize(l, out.data(), 0, Which::w13, row_major(DType::i32, {64, 64}, f.data())).error().code,
            Code::dtype);
  Layout none = l;
  none.kind = LayoutKind::foreign;
  EXPECT_EQ(dequantize(none, out.data(), 0, Which::w13, row_major(DType::f32, {64, 64}, f.data())).error().code,
            Code::unsupported);
}

}  // namespace
}  // namespace moe::test::blobs_test
