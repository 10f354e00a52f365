// Rows on KleidiAI's layouts: the packed activations of the vectors, every matmul and stage of theirs, and random
// shapes against the scalar row on p16, bit by bit; guarded buffers.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/ref/w4a8_kai.h"
#include "layouts/w4a8/kai.h"
#include "support/guard_pages.h"
#include "support/p16.h"
#include "support/rooms.h"
#include "support/share.h"
#include "support/vectors.h"
#include "support/w4a8_files.h"

namespace moe::test::kai_test {
namespace {

TileShape kai_shape(std::int64_t k, Groups groups) { return {k, groups, ActFormat::tok8, 8, true}; }

// The same matrix as pack_p16's, from the addresses of w4a8_int8.md 5.4.
std::vector<std::byte> pack_kai(const P16& p, const std::vector<std::int8_t>& w, const std::vector<float>& scales,
                                const std::vector<float>& bias) {
  const std::int64_t rows = p.rows(), k = p.k, g = p.group(), groups = p.group_count();
  const bool channel = g == k;
  const std::int64_t kp = (k + 31) / 32 * 32, data = channel ? 4 * kp : 8 * (g / 2 + 2) * groups;
  const std::int64_t stride = data + (channel ? 96 : 64);
  std::vector<std::byte> out(static_cast<std::size_t>((rows + 7) / 8 * stride), std::byte{0});
  for (std::int64_t slot = 0; slot < (rows + 7) / 8 * 8; ++slot) {
    const std::int64_t n = std::min(slot, rows - 1), tile = slot / 8 * stride, r = slot % 8;
    std::int32_t wsum = 0;
    float rsum = 0.0f;
    for (std::int64_t c = 0; c < k; ++c) {
      const std::int8_t value = w[static_cast<std::size_t>(n * k + c)];
      const std::int64_t in = channel ? c : c % g, j = in % 32;
      const std::int64_t base = channel ? 0 : c / g * 8 * (g / 2 + 2);
      std::byte& b = out[static_cast<std::size_t>(tile + base + in / 32 * 128 + j % 16 / 8 * 64 + 8 * r + j % 8)];
      const auto nibble = static_cast<unsigned>(value) & 15u;
      b |= static_cast<std::byte>(j < 16 ? nibble : nibble << 4);
      wsum += value;
    }
    for (std::int64_t i = 0; i < groups; ++i) {
      const float s = scales[static_cast<std::size_t>(n * groups + i)];
      if (channel) {
        put(out, static_cast<std::size_t>(tile + data + 32 + 4 * r), s * 0.0625f);
        continue;
      }
      const std::uint16_t bits = f32_to_bf16(s);
      put(out, static_cast<std::size_t>(tile + (i + 1) * 8 * (g / 2 + 2) - 16 + 2 * r), bits);
      for (std::int64_t c = i * g; c < (i + 1) * g; c += 32)
        for (std::int64_t h = 0; h < 16; h += 8) {
          int part = 0;
          for (std::int64_t j = 0; j < 8; ++j)
            part +=
                w[static_cast<std::size_t>(n * k + c + h + j)] + w[static_cast<std::size_t>(n * k + c + 16 + h + j)];
          rsum = rsum + static_cast<float>(part) * bf16_to_f32(bits);
        }
    }
    if (channel)
      put(out, static_cast<std::size_t>(tile + data + 4 * r), 16 * wsum);
    else
      put(out, static_cast<std::size_t>(tile + data + 4 * r), rsum);
    const float b = bias.empty() ? 0.0f : bias[static_cast<std::size_t>(n)];
    put(out, static_cast<std::size_t>(tile + stride - 32 + 4 * r), b);
  }
  return out;
}

// out[m][n], rows in tiles of the kernel's size, some panels per call.
std::vector<float> matmul(const Kernel& k, const P16& m, const std::vector<std::byte>& packed,
                          const std::vector<float>& x, HalfRule rule, std::int64_t step = 100) {
  const auto rows = static_cast<int>(x.size() / static_cast<std::size_t>(m.k));
  const std::int64_t ld = m.panels() * kPanelRows;
  std::vector<float> padded(static_cast<std::size_t>(rows * ld));
  for (int r = 0; r < rows; r += k.tile_rows) {
    const int n = std::min(k.tile_rows, rows - r);
    const TileShape shape = kai_shape(m.k, m.groups);
    const auto tile = make_tile(k, shape, x.data() + r * m.k, n, rule);
    for (std::int64_t p = 0; p < m.panels(); p += step)
      multiply(k, {&m, packed.data(), std::min(step, m.panels() - p), tile.data(), n, shape,
                   padded.data() + r * ld + p * kPanelRows, ld, nullptr, p});
  }
  return unpadded(m, padded);
}

class KaiRows : public testing::TestWithParam<const Kernel*> {};

// qai8dxp of mr rows; the rows that the last tile lacks are 0 in the vectors.
std::vector<std::byte> packed_lhs(const Kernel& kernel, const std::vector<float>& x, std::int64_t k, int mr,
                                  HalfRule rule) {
  const TileShape shape = kai_shape(k, Groups::whole());
  const auto rows = static_cast<int>(static_cast<std::int64_t>(x.size()) / k);
  const std::size_t bytes = static_cast<std::size_t>(mr) * (shape.code_bytes() + 8);
  std::vector<std::byte> out;
  for (int r = 0; r < rows; r += mr) {
    std::vector<std::byte> tile(bytes, std::byte{0});
    for (int i = 0; i < mr && r + i < rows; ++i)
      kernel.quantize({shape, x.data() + (r + i) * k, rule, {tile.data(), mr, i}});
    out.insert(out.end(), tile.begin(), tile.end());
  }
  return out;
}

TEST_P(KaiRows, PackedActivations) {
  int count = 0;
  for (const std::string& name : w4a8_files("pack_")) {
    const VecFile f = load_vectors(name);
    const std::int64_t k = f.at("x").shape[1];
    for (const int mr : {1, 4}) {
      const std::string suffix = "_mr" + std::to_string(mr);
      EXPECT_EQ(
          difference(f.expected("lhs" + suffix), packed_lhs(*GetParam(), f.at("x").floats(), k, mr, HalfRule::away)),
          "")
          << name << suffix;
      if (!f.has("x_bf16")) continue;
      EXPECT_EQ(difference(f.expected("lhs_bf16" + suffix),
                           packed_lhs(*GetParam(), f.at("x_bf16").floats(), k, mr, HalfRule::even)),
                "")
          << name << suffix;
      ++count;
    }
  }
  EXPECT_GE(count, 20);
}

TEST_P(KaiRows, PackVectors) {
  for (const std::string& name : w4a8_files("pack_")) {
    const VecFile f = load_vectors(name);
    const std::int64_t n = f.at("w_int4").shape[0], k = f.at("w_int4").shape[1], groups = f.at("scales").shape[1];
    const P16 m{
        {.half_rows = n, .halves = 1, .k = k, .groups = Groups::of_size(k / groups, k), .has_bias = f.has("bias")}};
    const auto packed = f.at("packed_kai").as<std::byte>();
    EXPECT_EQ(packed.size(), KaiMatrix(m).bytes());
    EXPECT_EQ(matmul(*GetParam(), m, packed, f.at("x").floats(), HalfRule::away), f.at("out_kai").floats()) << name;
    if (f.has("out_kai_bf16")) {
      EXPECT_EQ(rounded(DType::bf16, matmul(*GetParam(), m, packed, f.at("x_bf16").floats(), HalfRule::even)),
                f.at("out_kai_bf16").floats())
          << name;
    }
  }
}

// w13 or w2 of each expert as KleidiAI packs them: made here, and the bytes of the vectors.
std::vector<std::byte> packed_experts(const VecFile& f, const std::string& matrix, const P16& m) {
  const auto codes = f.at(matrix + "_int4").as<std::int8_t>();
  const std::vector<float> scales = f.at(matrix + "_scale").floats(),
                           bias = f.has(matrix + "_bias") ? f.at(matrix + "_bias").floats() : std::vector<float>();
  const std::int64_t experts = f.at(matrix + "_int4").shape[0];
  const auto part = [&](const auto& v, std::int64_t e) {
    const auto one = std::ssize(v) / experts;
    return std::decay_t<decltype(v)>(v.begin() + e * one, v.begin() + (e + 1) * one);
  };
  std::vector<std::byte> all;
  for (std::int64_t e = 0; e < experts; ++e) {
    const auto one = pack_kai(m, part(codes, e), part(scales, e), part(bias, e));
    all.insert(all.end(), one.begin(), one.end());
  }
  EXPECT_EQ(difference(f.expected(matrix + "_packed_kai"), all), "") << matrix;
  return all;
}

// y13 from x_sorted, y from act, on the blobs of the vectors.
TEST_P(KaiRows, MoeVectors) {
  std::vector<std::string> names = w4a8_files("moe_");
  for (const std::string& name : w4a8_files("groupeqk_")) names.push_back(name);
  EXPECT_EQ(names.size(), 16u);
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const VecFile f = load_vectors(name);
    const DType d = f.at("x").dtype;
    const std::int64_t h = f.at("w13_int4").shape[2], i = f.at("w2_int4").shape[2];
    const std::int64_t g = std::stoll(f.meta.at("group_size"));
    const auto expert_of = f.at("sorted_expert").as<std::int64_t>();
    const auto check = [&](const char* matrix, const char* in, const char* out, const P16& m) {
      const std::vector<std::byte> blob = packed_experts(f, matrix, m);
      const auto x = f.at(in).floats(), want = f.at(out).floats();
      const std::size_t one = KaiMatrix(m).bytes();
      const HalfRule rule = d == DType::bf16 && m.groups.is_whole() ? HalfRule::even : HalfRule::away;
      for (std::size_t r = 0; r < expert_of.size(); ++r) {
        const auto at = blob.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(expert_of[r]) * one);
        const std::vector<std::byte> packed(at, at + static_cast<std::ptrdiff_t>(one));
        const auto row = x.begin() + static_cast<std::ptrdiff_t>(r) * m.k;
        const auto wanted = want.begin() + static_cast<std::ptrdiff_t>(r) * m.rows();
        EXPECT_EQ(rounded(d, matmul(*GetParam(), m, packed, {row, row + m.k}, rule, 1)),
                  std::vector<float>(wanted, wanted + m.rows()))
            << out << " of slot " << r;
      }
    };
    check("w13", "x_sorted", "y13",
          {{.half_rows = i, .halves = 2, .k = h, .groups = Groups::of_size(g < 0 ? h : g, h)}});
    check("w2", "act", "y", {{.half_rows = h, .halves = 1, .k = i, .groups = Groups::of_size(g < 0 ? i : g, i)}});
  }
}

struct Data {
  P16 m;
  std::vector<std::byte> p16, kai;
  std::vector<float> x;
  HalfRule rule;
};

Data random_data(std::mt19937& rng, int n) {
  const auto pick = [&](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng); };
  Data d;
  std::int64_t k = 0, group = 0;
  if (pick(0, 2) == 0) {
    k = group = 2 * pick(1, 150);
  } else {
    group = 32 * pick(1, 6);
    k = group * pick(1, 5);
  }
  d.m = {{.half_rows = pick(1, 70),
          .halves = pick(1, 2),
          .k = k,
          .groups = Groups::of_size(group, k),
          .has_bias = pick(0, 1) == 1}};
  d.rule = pick(0, 1) == 1 ? HalfRule::even : HalfRule::away;
  const int fill = pick(0, 3);
  std::vector<std::int8_t> w(static_cast<std::size_t>(d.m.rows() * k));
  for (auto& v : w) v = static_cast<std::int8_t>(fill == 0 ? (pick(0, 1) == 1 ? 7 : -8) : pick(-8, 7));
  std::vector<float> scales(static_cast<std::size_t>(d.m.rows() * d.m.group_count())),
      bias(d.m.has_bias ? static_cast<std::size_t>(d.m.rows()) : 0);
  for (float& s : scales)
    s = std::copysign(static_cast<float>(pick(0, 255)), static_cast<float>(pick(0, 1)) - 0.5f) / 1024.0f;
  for (float& b : bias) b = static_cast<float>(pick(-999, 999)) / 77.0f;
  d.p16 = pack_p16(d.m, w, scales, bias);
  d.kai = pack_kai(d.m, w, scales, bias);
  d.x.resize(static_cast<std::size_t>(n * k));
  std::normal_distribution<float> normal;
  for (float& v : d.x) v = fill == 1 ? static_cast<float>(pick(-255, 255)) * 0.5f : normal(rng) * 3.0f;
  return d;
}

std::vector<float> on_p16(const Data& d) {
  const Kernel& scalar = scalar_kernel();
  const int rows = static_cast<int>(static_cast<std::int64_t>(d.x.size()) / d.m.k);
  const std::int64_t ld = d.m.panels() * kPanelRows;
  const TileShape shape{d.m.k, d.m.groups};
  std::vector<float> padded(static_cast<std::size_t>(rows * ld));
  for (int r = 0; r < rows; ++r) {
    const auto tile = make_tile(scalar, shape, d.x.data() + r * d.m.k, 1, d.rule);
    multiply(scalar, {&d.m, d.p16.data(), d.m.panels(), tile.data(), 1, shape, padded.data() + r * ld, ld, nullptr});
  }
  return unpadded(d.m, padded);
}

TEST_P(KaiRows, RandomShapesGiveTheBitsOfTheRowOnP16) {
  const Kernel& kernel = *GetParam();
  std::mt19937 rng(11);
  for (int round = 0; round < rounds(400); ++round) {
    const int n = 1 + round % (kernel.tile_rows + 2);
    const Data d = random_data(rng, n);
    const std::int64_t step = 1 + round % 3;
    const std::vector<float> want = on_p16(d);
    const std::vector<float> got = matmul(kernel, d.m, d.kai, d.x, d.rule, step);
    ASSERT_EQ(got.size(), want.size());
    ASSERT_EQ(0, std::memcmp(got.data(), want.data(), got.size() * 4))
        << "round " << round << " rows " << d.m.half_rows << "*" << d.m.halves << " k " << d.m.k << " g " << d.m.group()
        << " n " << n;
  }
}

// Rows longer than one run of the kernels' sums (65536 columns), with products that are all 255 * -8 or 255 * 7.
TEST_P(KaiRows, LongRowsOfTheLargestProducts) {
  const int n = std::min(GetParam()->tile_rows, 2);
  for (const auto& [columns, group, code] : {std::tuple{(1 << 18) + 34, (1 << 18) + 34, -8},  // ends within a chunk
                                             std::tuple{1 << 18, 1 << 17, 7}}) {
    Data d;
    d.m = {{.half_rows = 1, .halves = 1, .k = columns, .groups = Groups::of_size(group, columns), .has_bias = false}};
    d.rule = HalfRule::away;
    const std::vector<std::int8_t> w(static_cast<std::size_t>(columns), static_cast<std::int8_t>(code));
    const std::vector<float> scales(static_cast<std::size_t>(d.m.group_count()), 0.5f);
    d.p16 = pack_p16(d.m, w, scales, {});
    d.kai = pack_kai(d.m, w, scales, {});
    d.x.assign(static_cast<std::size_t>(n * columns), 1.0f);
    std::fill(d.x.end() - columns / 2, d.x.end(), -1.0f);  // the last row: both signs
    const std::vector<float> got = matmul(*GetParam(), d.m, d.kai, d.x, d.rule);
    EXPECT_EQ(got, on_p16(d)) << group << " " << code;
    if (n > 1) {
      EXPECT_FLOAT_EQ(got[0], static_cast<float>(columns / 2 * code));  // ones only
    }
  }
}

TEST_P(KaiRows, OddActivations) {
  const Kernel& kernel = *GetParam();
  const float specials[] = {0.0f,     -0.0f,    1e-45f,    -1e-45f, 1e-38f, 3.4e38f,
                            -3.4e38f, INFINITY, -INFINITY, NAN,     0.5f,   2.5f};
  std::mt19937 rng(5);
  for (const std::int64_t k : {2, 6, 8, 30, 32, 34, 40, 46, 64, 100, 256})
    for (int round = 0; round < rounds(80); ++round) {
      std::vector<float> x(static_cast<std::size_t>(k));
      for (float& v : x) {
        v = static_cast<float>(static_cast<int>(rng() % 511) - 255) * 0.5f;  // many halves
        if (round % 4 == 1 && rng() % 16 == 0) v = specials[rng() % std::size(specials)];
        if (round % 4 == 2) v = 0.0f;
        if (round % 4 == 3) v *= 1e-39f;
      }
      const TileShape shape = kai_shape(k, Groups::whole()), plain{k, {}};
      for (const HalfRule rule : {HalfRule::away, HalfRule::even}) {
        std::vector<std::byte> want(shape.row_bytes() * 3), got = want;
        ref::quantize_kai({shape, x.data(), rule, {want.data(), 3, 1}});
        kernel.quantize({shape, x.data(), rule, {got.data(), 3, 1}});
        ASSERT_EQ(got, want) << k << " " << round;
        // the codes of p16's tiles
        auto tile = make_tile(scalar_kernel(), plain, x.data(), 1, rule);
        const QuantRow row = quant_row(plain, {tile.data(), 1, 0});
        const KaiRow kai = kai_row(shape, {got.data(), 3, 1});
        for (std::int64_t i = 0; i < k; ++i) ASSERT_EQ(kai.codes[i / 8 * kai.code_stride + i % 8], row.codes[i]);
        ASSERT_EQ(std::bit_cast<std::uint32_t>(*kai.recip), std::bit_cast<std::uint32_t>(*row.recip));
        ASSERT_EQ(*kai.z, *row.z);
      }
    }
}

// No byte beyond the weights, the tile or the results is touched.
TEST_P(KaiRows, GuardPages) {
  const Kernel& kernel = *GetParam();
  std::mt19937 rng(3);
  for (int round = 0; round < rounds(150); ++round) {
    const int n = 1 + round % kernel.tile_rows;
    const Data d = random_data(rng, n);
    const TileShape shape = kai_shape(d.m.k, d.m.groups);
    const auto tile = make_tile(kernel, shape, d.x.data(), n, d.rule);
    const std::int64_t ld = d.m.panels() * kPanelRows;
    std::vector<float> want(static_cast<std::size_t>(n * ld));
    ref::gemm_kai({&d.m, d.kai.data(), d.m.panels(), tile.data(), n, shape, want.data(), ld, nullptr});
    for (const Flush flush : kFlushes) {
      const Guarded made(tile.size(), flush, 64);
      std::memset(made.data(), 0, made.size());
      for (int r = 0; r < n; ++r) {
        const Guarded row(d.x.data() + r * d.m.k, static_cast<std::size_t>(d.m.k) * 4, flush, 4);
        kernel.quantize({shape, row.as<const float>(), d.rule, {made.data(), n, r}});
      }
      ASSERT_EQ(made.bytes(), tile);
      const Guarded weights(d.kai.data(), d.kai.size(), flush, 16), a(tile.data(), tile.size(), flush, 64);
      const Guarded out(want.size() * 4, flush, 4);
      multiply(kernel, {&d.m, weights.data(), d.m.panels(), a.data(), n, shape, out.as<float>(), ld, nullptr});
      ASSERT_EQ(0, std::memcmp(out.data(), want.data(), want.size() * 4)) << round;
    }
  }
}

TEST(KaiTiles, RowsMoveBetweenTiles) {
  std::mt19937 rng(2);
  std::vector<float> x(46);
  for (float& v : x) v = static_cast<float>(static_cast<int>(rng() % 99)) - 40.0f;
  const TileShape shape = kai_shape(46, {});
  std::vector<std::byte> from(shape.row_bytes() * 3), to(shape.row_bytes() * 4), want = to;
  ref::quantize_kai({shape, x.data(), HalfRule::away, {from.data(), 3, 2}});
  copy_tile_row(shape, {from.data(), 3, 2}, {to.data(), 4, 1});
  ref::quantize_kai({shape, x.data(), HalfRule::away, {want.data(), 4, 1}});
  EXPECT_EQ(to, want);
}

INSTANTIATE_TEST_SUITE_P(All, KaiRows, testing::ValuesIn(runnable_kernels(LayoutKind::kai, ActFormat::tok8)),
                         [](const auto& param) { return std::string(param.param->id->name); });

}  // namespace
}  // namespace moe::test::kai_test
