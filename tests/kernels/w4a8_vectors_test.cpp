// The golden W4A8 vectors, stage by stage, on every row that this machine runs: quantized rows, p16 pack
// and matmul, y13, act, y. End to end: tests/run and tests/api.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "support/p16.h"
#include "support/rooms.h"
#include "support/vectors.h"
#include "support/w4a8_files.h"

namespace moe::test::w4a8_vectors_test {
namespace {

std::vector<float> slice(const std::vector<float>& v, std::size_t begin, std::size_t count) {
  return {v.begin() + static_cast<std::ptrdiff_t>(begin), v.begin() + static_cast<std::ptrdiff_t>(begin + count)};
}

// out[m][n] of a packed matrix for all rows of x, in tiles of the kernel's size.
std::vector<float> matmul(const Kernel& k, const P16& m, const std::vector<std::byte>& packed,
                          const std::vector<float>& x, HalfRule rule) {
  const auto rows = static_cast<int>(x.size() / static_cast<std::size_t>(m.k));
  const std::int64_t ld = m.panels() * kPanelRows;
  std::vector<float> padded(static_cast<std::size_t>(rows * ld));
  for (int r = 0; r < rows; r += k.tile_rows) {
    const int n = std::min(k.tile_rows, rows - r);
    const TileShape shape{m.k, m.groups};
    const auto tile = make_tile(k, shape, x.data() + r * m.k, n, rule);
    multiply(k, {&m, packed.data(), m.panels(), tile.data(), n, shape, padded.data() + r * ld, ld, nullptr});
  }
  return unpadded(m, padded);
}

class Vectors : public testing::TestWithParam<const Kernel*> {};

TEST_P(Vectors, QuantRows) {
  const Kernel& kernel = *GetParam();
  for (const std::string& name : w4a8_files("quant_rows")) {
    const VecFile f = load_vectors(name);
    const std::int64_t k = f.at("x").shape[1];
    struct Stage {
      const char *x, *q, *recip, *z;
      HalfRule rule;
    };
    for (const Stage& s : {Stage{"x", "q", "recip_scale", "neg_zp", HalfRule::away},
                           Stage{"x_bf16", "q_bf16_even", "recip_scale_bf16", "neg_zp_bf16", HalfRule::even},
                           Stage{"x_bf16", "q_bf16_away", "recip_scale_bf16", "neg_zp_bf16", HalfRule::away}}) {
      const auto x = f.at(s.x).floats();
      const auto q = f.at(s.q).as<std::int8_t>();
      for (std::int64_t row = 0; row < f.at("x").shape[0]; ++row) {
        const TileShape shape{k, {}};
        auto tile = make_tile(kernel, shape, x.data() + row * k, 1, s.rule);
        const QuantRow got = quant_row(shape, {tile.data(), 1, 0});
        for (std::int64_t i = 0; i < k; ++i)
          ASSERT_EQ(got.codes[i], q[static_cast<std::size_t>(row * k + i)]) << name << s.q << row << "," << i;
        ASSERT_EQ(std::bit_cast<std::uint32_t>(*got.recip),
                  f.at(s.recip).as<std::uint32_t>()[static_cast<std::size_t>(row)]);
        ASSERT_EQ(*got.z, f.at(s.z).as<std::int32_t>()[static_cast<std::size_t>(row)]);
      }
    }
  }
}

TEST_P(Vectors, Matmul) {
  const Kernel& kernel = *GetParam();
  int count = 0;
  for (const std::string& name : w4a8_files("pack_")) {
    const VecFile f = load_vectors(name);
    const std::int64_t n = f.at("w_int4").shape[0], k = f.at("w_int4").shape[1], groups = f.at("scales").shape[1];
    const P16 m{
        {.half_rows = n, .halves = 1, .k = k, .groups = Groups::of_size(k / groups, k), .has_bias = f.has("bias")}};
    ++count;
    if (!takes(kernel, m)) continue;
    const auto packed = pack_p16(m, f.at("w_int4").as<std::int8_t>(), f.at("scales").floats(),
                                 f.has("bias") ? f.at("bias").floats() : std::vector<float>{});
    EXPECT_EQ(matmul(kernel, m, packed, f.at("x").floats(), HalfRule::away), f.at("out_kai").floats()) << name;
    if (f.has("out_kai_bf16")) {
      EXPECT_EQ(rounded(DType::bf16, matmul(kernel, m, packed, f.at("x_bf16").floats(), HalfRule::even)),
                f.at("out_kai_bf16").floats())
          << name;
    }
  }
  EXPECT_EQ(count, 23);
}

// y13 from x_sorted, act from y13, y from act: each stage fed with the vector's own previous one.
void check_moe(const Kernel& kernel, const std::string& name) {
  SCOPED_TRACE(name);
  const VecFile f = load_vectors(name);
  const DType d = f.at("x").dtype;
  const std::int64_t experts = f.at("w13_int4").shape[0], h = f.at("w13_int4").shape[2], i = f.at("w2_int4").shape[2];
  const bool bias = f.has("w13_bias");
  const Layout l = p16_int4_layout({experts, h, i, Groups::of_size(std::stoll(f.meta.at("group_size"))), true, bias});
  const P16 m13{l.w13}, m2{l.w2};
  if (!takes(kernel, m13) || !takes(kernel, m2)) return;
  const auto half = [&](const P16& m) {
    return d == DType::bf16 && m.grouping() == Grouping::channel ? HalfRule::even : HalfRule::away;
  };
  const auto expert_of = f.at("sorted_expert").as<std::int64_t>();
  const auto x = f.at("x_sorted").floats(), y13 = f.at("y13").floats(), act = f.at("act").floats(),
             y = f.at("y").floats();
  const auto w13 = f.at("w13_int4").as<std::int8_t>(), w2 = f.at("w2_int4").as<std::int8_t>();
  const auto s13 = f.at("w13_scale").floats(), s2 = f.at("w2_scale").floats();
  const auto part = [](const auto& v, std::int64_t e, std::int64_t n) {
    using Vec = std::decay_t<decltype(v)>;
    return Vec(v.begin() + e * n, v.begin() + (e + 1) * n);
  };
  for (std::int64_t e = 0; e < experts; ++e) {
    std::size_t first = 0, count = 0;
    while (first < expert_of.size() && expert_of[first] != e) ++first;
    while (first + count < expert_of.size() && expert_of[first + count] == e) ++count;
    if (count == 0) continue;
    const auto uh = static_cast<std::size_t>(h), ui = static_cast<std::size_t>(i);
    const auto p13 = pack_p16(m13, part(w13, e, 2 * i * h), part(s13, e, 2 * i * m13.group_count()),
                              bias ? part(f.at("w13_bias").floats(), e, 2 * i) : std::vector<float>{});
    const auto p2 = pack_p16(m2, part(w2, e, h * i), part(s2, e, h * m2.group_count()),
                             bias ? part(f.at("w2_bias").floats(), e, h) : std::vector<float>{});
    EXPECT_EQ(rounded(d, matmul(kernel, m13, p13, slice(x, first * uh, count * uh), half(m13))),
              slice(y13, first * 2 * ui, count * 2 * ui))
        << "y13 of expert " << e;
    EXPECT_EQ(rounded(d, matmul(kernel, m2, p2, slice(act, first * ui, count * ui), half(m2))),
              slice(y, first * uh, count * uh))
        << "y of expert " << e;
  }
  // act from y13: kinds 0 and 2 are silu, 1 is swigluoai on halves (numerics.md 3).
  const bool oai = f.meta.at("activation_kind") == "1";
  const std::int64_t blocks = ceil_div(i, kPanelRows);
  for (std::size_t r = 0; r < expert_of.size(); ++r) {
    std::vector<float> in(static_cast<std::size_t>(blocks) * 32, 0.0f), out(static_cast<std::size_t>(blocks) * 16);
    for (std::int64_t c = 0; c < i; ++c) {
      const auto at = static_cast<std::size_t>(c / 16 * 32 + c % 16), row = r * static_cast<std::size_t>(2 * i);
      in[at] = y13[row + static_cast<std::size_t>(c)];
      in[at + 16] = y13[row + static_cast<std::size_t>(i + c)];
    }
    kernel.steps->activate({oai ? Activation::swigluoai_uninterleave : Activation::silu, false, 1.702f, 1.0f, 7.0f, d,
                            Rounding::stepwise, in.data(), blocks * 32, 1, blocks, out.data(), blocks * 16});
    for (std::int64_t c = 0; c < i; ++c) {
      const float want = act[r * static_cast<std::size_t>(i) + static_cast<std::size_t>(c)],
                  got = out[static_cast<std::size_t>(c)];
      const float ulp = d == DType::f32 ? 1e-6f : d == DType::bf16 ? 0x1p-8f : 0x1p-11f;
      EXPECT_LE(std::fabs(want - got), ulp * std::fabs(want) + 0x1p-24f) << "act[" << r << "," << c << "]";
    }
  }
}

TEST_P(Vectors, MoeStages) {
  int count = 0;
  for (const char* prefix : {"moe_", "groupeqk_"})
    for (const std::string& name : w4a8_files(prefix)) check_moe(*GetParam(), name), ++count;
  EXPECT_EQ(count, 16);
}

INSTANTIATE_TEST_SUITE_P(All, Vectors, testing::ValuesIn(runnable_kernels(LayoutKind::p16_int4, ActFormat::tok8)),
                         [](const auto& param) { return std::string(param.param->id->name); });

}  // namespace
}  // namespace moe::test::w4a8_vectors_test
