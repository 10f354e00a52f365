// Named layouts: ids, tensors, places and sizes; the addresses of KleidiAI's tiles.
#include "layouts/families.h"

#include <gtest/gtest.h>

#include <set>

#include "layouts/w4a8/kai.h"
#include "support/rooms.h"

namespace moe::test::families_test {
namespace {

Layout layer(LayoutKind kind, std::int64_t group, bool bias = false, bool gated = true, std::int64_t experts = 3) {
  return make_named_layout(kind, {.experts = experts,
                                  .hidden = 64,
                                  .intermediate = 96,
                                  .groups = Groups::of_size(group),
                                  .gated = gated,
                                  .has_bias = bias,
                                  .scales = Scales::w4a8});
}

TEST(NamedLayout, Ids) {
  EXPECT_EQ(layer(LayoutKind::kai, 32).id(), "kai/qsi4c32p-g32/1");
  EXPECT_EQ(layer(LayoutKind::kai, -1).id(), "kai/qsi4cxp/1");
  EXPECT_EQ(layer(LayoutKind::kai, 32, true).id(), "kai/qsi4c32p-g32-bias/1");
  EXPECT_EQ(layer(LayoutKind::torch_float, -1, true).id(), "torch/dyn_quant_4bit-cw-bias/1");
  Layout mixed = layer(LayoutKind::kai, 32);
  mixed.w13.groups = Groups::whole();
  EXPECT_EQ(mixed.id(), "kai/qsi4cxp,qsi4c32p-g32/1");
  EXPECT_EQ(layout_family(LayoutKind::p16_int4), nullptr);
  EXPECT_EQ(layout_family(LayoutKind::foreign), nullptr);
}

TEST(NamedLayout, TensorsFollowEachOther) {
  for (const LayoutKind kind : {LayoutKind::kai, LayoutKind::torch_float})
    for (const std::int64_t group : {-1, 32})
      for (const bool bias : {false, true}) {
        const Layout l = layer(kind, group, bias);
        ASSERT_EQ(l.tensors.size(), 2u);
        EXPECT_EQ(l.tensors[0].name, "w13_packed");
        EXPECT_EQ(l.tensors[1].name, "w2_packed");
        std::size_t end = 0;
        for (const LayoutTensor& t : l.tensors) {
          EXPECT_EQ(t.offset % 64, 0u);
          EXPECT_GE(t.offset, end);
          EXPECT_LT(t.offset, end + 64);
          end = l.end_of(t);
        }
        EXPECT_EQ(l.payload_bytes(), end);
        EXPECT_EQ(checked_payload_bytes(l), static_cast<std::int64_t>(end));
        EXPECT_EQ(layer(kind, group, bias, true, 0).payload_bytes(), 0u);
      }
}

// Sizes of w4a8_int8.md 5.2 and 5.3, and the examples of 4.
TEST(NamedLayout, Sizes) {
  const Layout cw = layer(LayoutKind::kai, -1), grouped = layer(LayoutKind::kai, 32);
  EXPECT_EQ(cw.tensors[0].bytes, 192u / 8 * 8 * (64 / 2 + 12));
  EXPECT_EQ(cw.tensors[1].bytes, 64u / 8 * 8 * (96 / 2 + 12));
  EXPECT_EQ(grouped.tensors[0].bytes, 192u / 8 * 8 * ((32 / 2 + 2) * 2 + 8));
  EXPECT_EQ(grouped.tensors[1].bytes, 64u / 8 * 8 * ((32 / 2 + 2) * 3 + 8));
  const Layout odd =
      make_named_layout(LayoutKind::kai, {1, 46, 26, {}, false, true, Scales::w4a8});  // 26 rows of 46, 46 rows of 26
  EXPECT_EQ(odd.tensors[0].bytes, 4u * 8 * (64 / 2 + 12));
  EXPECT_EQ(odd.tensors[1].bytes, 6u * 8 * (32 / 2 + 12));
  const auto square = [](std::int64_t group) {
    return make_named_layout(LayoutKind::torch_float, {1, 64, 64, Groups::of_size(group), false, false, Scales::w4a8});
  };
  EXPECT_EQ(square(-1).tensors[0].shape, std::vector<std::int64_t>{2112});
  EXPECT_EQ(square(32).tensors[0].shape, std::vector<std::int64_t>{2176});
}

TEST(NamedLayout, OverflowIsSeen) {
  Layout l = layer(LayoutKind::kai, 32);
  l.experts = INT64_MAX / 1000;
  EXPECT_FALSE(checked_payload_bytes(l));
}

// Every byte of a tile has one meaning.
TEST(KaiMatrix, PartsFillTheTile) {
  for (const auto& [k, group] : {std::pair{64, 32}, {192, 96}, {46, 46}, {128, 128}, {512, 128}}) {
    const KaiMatrix m(Matrix{.half_rows = 13, .halves = 1, .k = k, .groups = Groups::of_size(group, k)});
    std::set<std::size_t> seen;
    const auto take = [&](std::size_t at, std::size_t n) {
      for (std::size_t i = 0; i < n; ++i) EXPECT_TRUE(seen.insert(at + i).second) << at + i;
    };
    for (std::int64_t g = 0; g < m.group_count(); ++g) {
      for (std::int64_t c = 0; c < m.chunks(); ++c) take(m.code_offset(g, c), 128);
      take(m.scale_offset(g), m.channel() ? 32 : 16);
    }
    take(m.sum_offset(), 32);
    take(m.bias_offset(), 32);
    EXPECT_EQ(seen.size(), m.tile_bytes());
    EXPECT_EQ(*seen.rbegin() + 1, m.tile_bytes());
    EXPECT_EQ(m.bytes(), 2 * m.tile_bytes());
  }
}

}  // namespace
}  // namespace moe::test::families_test
