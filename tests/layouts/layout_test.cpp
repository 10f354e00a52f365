// Geometry of packed layout p16 (layouts/p16/p16.h): sizes, ids, and that codes, scales, sums and biases
// share out the bytes of a matrix without overlap, at the addresses of kernels.md 2.1.
#include "layouts/p16/p16.h"
#include "layouts/p16/p16_layout.h"
#include "support/rooms.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

namespace moe::test::layout_test {
namespace {

P16 matrix(std::int64_t half_rows, int halves, std::int64_t k, std::int64_t group, bool bias) {
  return {{.half_rows = half_rows, .halves = halves, .k = k, .groups = Groups::of_size(group, k), .has_bias = bias}};
}

// g32, grouped (also 96, groups that end inside a unit, an odd number of groups) and channel-wise; rows
// and k that do not fill panels and units.
const std::vector<P16> kMatrices = {
    matrix(16, 1, 64, 32, false),  matrix(16, 1, 96, 32, true),    matrix(40, 2, 128, 32, true),
    matrix(7, 2, 192, 32, false),  matrix(33, 1, 192, 96, true),   matrix(16, 2, 192, 64, false),
    matrix(48, 1, 320, 160, true), matrix(20, 2, 384, 128, false), matrix(5, 1, 34, 34, true),
    matrix(16, 2, 46, 46, false),  matrix(100, 1, 130, 130, true), matrix(1, 2, 64, 64, true),
};

std::string text(const P16& m) {
  return std::to_string(m.halves) + "x" + std::to_string(m.half_rows) + " rows, k " + std::to_string(m.k) + ", group " +
         std::to_string(m.group()) + (m.has_bias ? ", bias" : "");
}

std::size_t panel_start(const P16& m, std::int64_t n) {
  return static_cast<std::size_t>(m.panel_of(n)) * m.panel_bytes();
}

TEST(Layout, CodesLieWhereTheFormulaSays) {
  for (const P16& m : kMatrices) {
    SCOPED_TRACE(text(m));
    // From the bytes to the codes, as kernels read: panel p, unit u, vector V[h][j], byte b.
    std::vector<int> found(static_cast<std::size_t>(m.rows() * m.k), 0);
    const std::int64_t half_panels = (m.half_rows + 15) / 16;
    for (std::int64_t p = 0; p < m.panels(); ++p)
      for (std::int64_t u = 0; u < m.units(); ++u)
        for (std::int64_t h = 0; h < 2; ++h)
          for (std::int64_t j = 0; j < 4; ++j)
            for (std::int64_t b = 0; b < 64; ++b)
              for (const bool high : {false, true}) {
                const std::int64_t half = p % m.halves, row = 16 * (p / m.halves) + b / 4;
                const std::int64_t k = 64 * u + 32 * h + (high ? 16 : 0) + 4 * j + b % 4;
                ASSERT_LT(p / m.halves, half_panels);
                if (row >= m.half_rows || k >= m.k) continue;  // padding
                const std::int64_t n = half * m.half_rows + row;
                const std::size_t unit_header = m.groups == Groups::even(32) ? 64 : 0;
                const std::size_t address = static_cast<std::size_t>(p) * m.panel_bytes() + m.header_bytes() +
                                            static_cast<std::size_t>(u) * (unit_header + 512) + unit_header +
                                            static_cast<std::size_t>(256 * h + 64 * j + b);
                ASSERT_EQ(m.panel_of(n), p);
                ASSERT_EQ(m.lane_of(n), b / 4);
                ASSERT_EQ(panel_start(m, n) + m.code_offset(m.lane_of(n), k), address) << "n " << n << " k " << k;
                ASSERT_EQ(P16::nibble_high(k), high) << "k " << k;
                ++found[static_cast<std::size_t>(n * m.k + k)];
              }
    EXPECT_EQ(std::vector<int>(found.size(), 1), found);
  }
}

TEST(Layout, NothingOverlaps) {
  for (const P16& m : kMatrices) {
    SCOPED_TRACE(text(m));
    std::vector<int> nibbles(m.bytes() * 2, 0);
    const auto take = [&](std::size_t byte, std::size_t count) {
      ASSERT_LE(byte + count, m.bytes());
      for (std::size_t i = 2 * byte; i < 2 * (byte + count); ++i) ++nibbles[i];
    };
    for (std::int64_t n = 0; n < m.rows(); ++n) {
      const std::size_t start = panel_start(m, n), lane = static_cast<std::size_t>(m.lane_of(n));
      for (std::int64_t k = 0; k < m.k; ++k)
        ++nibbles[2 * (start + m.code_offset(m.lane_of(n), k)) + P16::nibble_high(k)];
      if (m.grouping() == Grouping::channel)
        take(start + lane * 4, 4);
      else
        for (std::int64_t g = 0; g < m.group_count(); ++g) take(start + m.scale_offset(m.lane_of(n), g), 2);
      take(start + m.sum_offset() + lane * 4, 4);
      if (m.has_bias) take(start + m.bias_offset() + lane * 4, 4);
    }
    for (const int count : nibbles) ASSERT_LE(count, 1);
  }
}

TEST(Layout, HeadersAndSizes) {
  const P16 g32 = matrix(16, 1, 128, 32, true);  // rsum, bias | 2 units of 64 + 512
  EXPECT_EQ(g32.grouping(), Grouping::g32);
  EXPECT_EQ(g32.sum_offset(), 0U);
  EXPECT_EQ(g32.bias_offset(), 64U);
  EXPECT_EQ(g32.header_bytes(), 128U);
  EXPECT_EQ(g32.unit_bytes(), 576U);
  EXPECT_EQ(g32.scale_offset(3, 0), 128U + 6);
  EXPECT_EQ(g32.scale_offset(3, 1), 128U + 32 + 6);
  EXPECT_EQ(g32.scale_offset(3, 2), 128U + 576 + 6);
  EXPECT_EQ(g32.bytes(), 128U + 2 * 576);

  const P16 g96 = matrix(16, 1, 288, 96, false);  // 3 groups: 96 bytes of scales padded to 128
  EXPECT_EQ(g96.grouping(), Grouping::grouped);
  EXPECT_EQ(g96.scale_offset(15, 2), 64U + 30);
  EXPECT_EQ(g96.sum_offset(), 128U);
  EXPECT_EQ(g96.header_bytes(), 192U);
  EXPECT_EQ(g96.units(), 5);
  EXPECT_EQ(g96.bytes(), 192U + 5 * 512);

  const P16 channel = matrix(17, 2, 40, 40, true);  // scale, wsum, bias | 1 unit; 2 panels a half
  EXPECT_EQ(channel.grouping(), Grouping::channel);
  EXPECT_EQ(channel.sum_offset(), 64U);
  EXPECT_EQ(channel.bias_offset(), 128U);
  EXPECT_EQ(channel.panels(), 4);
  EXPECT_EQ(channel.bytes(), 4U * (192 + 512));

  EXPECT_EQ(matrix(16, 1, 32, 32, false).grouping(), Grouping::channel);  // a group as wide as the matrix
}

TEST(Layout, GateAndUpPanelsAlternate) {
  const P16 m = matrix(40, 2, 64, 64, false);  // 3 panels a half, the last with 8 rows
  EXPECT_EQ(m.panel_of(0), 0);
  EXPECT_EQ(m.panel_of(15), 0);
  EXPECT_EQ(m.panel_of(16), 2);
  EXPECT_EQ(m.panel_of(39), 4);
  EXPECT_EQ(m.panel_of(40), 1);  // first up row
  EXPECT_EQ(m.panel_of(79), 5);
  EXPECT_EQ(m.lane_of(39), 7);
  EXPECT_EQ(m.lane_of(40), 0);
  EXPECT_EQ(m.lane_of(57), 1);
}

TEST(Layout, Qwen3LayerByHand) {
  const Layout l = p16_int4_layout({.experts = 128,
                                    .hidden = 2048,
                                    .intermediate = 768,
                                    .groups = Groups::of_size(128),
                                    .gated = true,
                                    .has_bias = false});
  EXPECT_EQ(l.w13.rows(), 1536);
  EXPECT_EQ(P16{l.w13}.bytes(), 96U * (16 * 32 + 64 + 32 * 512));  // scales, rsum, units
  EXPECT_EQ(P16{l.w2}.bytes(), 128U * (6 * 32 + 64 + 12 * 512));
  EXPECT_EQ(l.w2_offset(), P16{l.w13}.bytes());
  EXPECT_EQ(l.expert_stride(), 598U * 4096);
  EXPECT_EQ(l.payload_bytes(), 128U * 598 * 4096);
  const Layout ungated =
      p16_int4_layout({.experts = 2, .hidden = 64, .intermediate = 96, .groups = {}, .gated = false, .has_bias = true});
  EXPECT_EQ(ungated.w13.rows(), 96);
  EXPECT_EQ(ungated.w13.halves, 1);
  EXPECT_EQ(ungated.w2.groups, Groups::whole());
}

TEST(Layout, Ids) {
  const auto id = [](std::int64_t h, std::int64_t i, std::int64_t g, bool bias) {
    return p16_int4_layout({.experts = 1,
                            .hidden = h,
                            .intermediate = i,
                            .groups = Groups::of_size(g),
                            .gated = true,
                            .has_bias = bias})
        .id();
  };
  EXPECT_EQ(id(2048, 768, 32, false), "p16/int4-g32/1");
  EXPECT_EQ(id(2048, 768, 128, true), "p16/int4-g128-bias/1");
  EXPECT_EQ(id(2048, 768, -1, false), "p16/int4-cw/1");
  EXPECT_EQ(id(4096, 14336, -1, true), "p16/int4-cw-bias/1");
  EXPECT_EQ(id(256, 32, 32, false), "p16/int4-g32,cw/1");  // I = g
  EXPECT_EQ(id(96, 192, 96, true), "p16/int4-cw,g96-bias/1");
  EXPECT_EQ(id(96, 96, 96, false), "p16/int4-cw/1");
  EXPECT_EQ(Layout{}.id(), "");
  EXPECT_EQ(Layout{}.payload_bytes(), 0U);
}

}  // namespace
}  // namespace moe::test::layout_test
