// Places of columns: groups that are filled up, activation order with groups of one size and of any sizes, the bound of
// the room that is kept for them; rows and lists that follow.
#include "layouts/p16/column_order.h"
#include "layouts/p16/p16_layout.h"
#include "support/rooms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <random>

namespace moe::test::column_order_test {
namespace {

Matrix plain(std::int64_t k, std::int64_t group, bool zeros = false) {
  return {.scales = Scales::f32, .has_zeros = zeros, .half_rows = 16, .k = k, .groups = Groups::of_size(group, k)};
}

TEST(FilledGroups, SizesOfTheLayout) {
  struct Row {
    std::int64_t k, group, any, places, of;
  };
  const Row rows[] = {
      {96, 16, 0, 192, 32},  {96, 48, 0, 128, 64},  {96, 96, 0, 96, 96},         {128, 32, 0, 128, 32},
      {200, 40, 0, 320, 64}, {64, 128, 4, 160, 32}, {7168, 128, 112, 10624, 32}, {8, 8, 100, 256, 32},
      {320, 64, 5, 448, 32}, {31, 31, 2, 64, 32},
  };
  for (const Row& r : rows) {
    Matrix whole = plain(r.k, r.group);
    if (r.any != 0) whole.groups = Groups::uneven(r.any);
    const Matrix m = filled(whole);
    EXPECT_EQ(m.k, r.places) << r.k << " " << r.group;
    EXPECT_EQ(m.group(), r.of) << r.k << " " << r.group;
    EXPECT_EQ(m.columns(), r.k);
    EXPECT_EQ(m.source_count(), r.any != 0 ? r.any : r.k / r.group);
    EXPECT_EQ(m.source_groups().is_uneven(), r.any != 0);
    EXPECT_EQ(m.has_order, m.k != r.k || r.any != 0);
  }
  Matrix floats = plain(96, 96);
  floats.element = Element::bf16;
  floats.scales = Scales::none;
  EXPECT_EQ(filled(floats), floats);
}

TEST(FilledGroups, LayoutsAndTheirNames) {
  const auto layout = [](LayoutShape s) { return p16_layout(LayoutKind::p16_w4, s); };
  LayoutShape s{
      .experts = 1, .hidden = 96, .intermediate = 192, .groups = Groups::of_size(48), .gated = true, .has_bias = false};
  const Layout odd = layout(s);
  EXPECT_EQ(odd.id(), "p16/w4-g48-f32-ao/1");
  EXPECT_EQ(odd.w13.half_rows, 192);  // rows are not filled
  EXPECT_EQ(odd.w2.k, 256);

  EXPECT_EQ(with_any_groups(odd).id(), "p16/w4-u2,u4-f32-ao/1");
  EXPECT_EQ(with_any_groups(odd).w2.columns(), 192);
  EXPECT_EQ(with_any_groups(with_any_groups(odd)), with_any_groups(odd));
  s.groups = Groups::even(32);
  EXPECT_EQ(with_any_groups(layout(s)), layout(s));  // no lists
  s.has_order = true;
  s.w2_groups = Groups::uneven(12);  // half of the columns
  EXPECT_EQ(layout(s).id(), "p16/w4-g32,u12-f32-ao/1");
  s.groups = Groups::even(48), s.intermediate = 48, s.has_order = false, s.w2_groups = {};
  EXPECT_EQ(layout(s).id(), "p16/w4-g48,cw-f32-ao/1");                  // one has a list when the other has
  EXPECT_EQ(with_any_groups(layout(s)).id(), "p16/w4-u2,cw-f32-ao/1");  // one group has one size
  s.hidden = 48;
  EXPECT_EQ(layout(s).id(), "p16/w4-cw-f32/1");
}

TEST(FilledGroups, Lists) {
  EXPECT_TRUE(is_order(std::vector<std::int32_t>{2, -1, 0, 1, -1}, 3));
  EXPECT_FALSE(is_order(std::vector<std::int32_t>{2, -1, 0, -1}, 3));  // 1 is missing
  EXPECT_FALSE(is_order(std::vector<std::int32_t>{2, 0, 1, 1}, 3));    // twice
  EXPECT_FALSE(is_order(std::vector<std::int32_t>{0, 1, 3}, 3));       // beyond
  EXPECT_FALSE(is_order(std::vector<std::int32_t>{0, 1, 2, -2}, 3));
}

// Random groups: every column once, in ascending groups and in its own order there; a step of the layout has columns
// of one group, the one that `groups` says; the worst case fits, and one more step than needed is never taken.
TEST(ColumnOrder, PropertiesOfRandomGroups) {
  std::mt19937 rng(4);
  int wider = 0, tight = 0;
  for (int round = 0; round < 400; ++round) {
    const std::int64_t groups = 1 + static_cast<std::int64_t>(rng() % 9),
                       size = 1 + static_cast<std::int64_t>(rng() % 70);
    const std::int64_t k = groups * size;
    std::vector<std::int32_t> g_idx(static_cast<std::size_t>(k));
    for (std::size_t i = 0; i < g_idx.size(); ++i)
      g_idx[i] = static_cast<std::int32_t>(round % 2 == 0 ? static_cast<std::int64_t>(i) / size
                                                          : static_cast<std::int64_t>(rng()) % groups);
    std::shuffle(g_idx.begin(), g_idx.end(), rng);
    std::map<std::int32_t, std::int64_t> sizes;
    for (const std::int32_t g : g_idx) ++sizes[g];
    for (const bool any : {false, true}) {
      Matrix plain_matrix = plain(k, size);
      if (any) plain_matrix.groups = Groups::uneven(groups);
      Matrix m = filled(plain_matrix);
      m.has_order = true;
      const bool fits = any || std::all_of(sizes.begin(), sizes.end(), [&](auto& g) { return g.second <= m.group(); });
      EXPECT_EQ(holds_groups(m, g_idx), fits);
      const auto order = column_order(m, g_idx, false, 7);
      ASSERT_EQ(static_cast<bool>(order), fits);
      ++(fits ? wider : tight);
      if (!fits) {
        EXPECT_EQ(order.error().code, Code::unsupported);
        EXPECT_EQ(order.error().subject, "w2_g_idx[7]");
        continue;
      }
      ASSERT_EQ(std::ssize(order->columns), m.k);
      ASSERT_EQ(std::ssize(order->groups), m.group_count());
      EXPECT_TRUE(is_order(order->columns, k));
      std::pair<std::int32_t, std::int32_t> before{-1, -1};
      std::vector<std::int32_t> compact;
      for (std::int64_t i = 0; i < m.k; ++i) {
        const std::int32_t c = order->columns[static_cast<std::size_t>(i)];
        if (c < 0) continue;
        const std::pair now{g_idx[static_cast<std::size_t>(c)], c};
        EXPECT_LT(before, now);
        EXPECT_EQ(order->groups[static_cast<std::size_t>(i / m.group())], now.first);
        before = now;
        compact.push_back(c);
      }
      EXPECT_EQ(order->rows(), compact);
    }
  }
  EXPECT_GT(wider, 300);
  EXPECT_GT(tight, 20);
}

// The worst case fills the room to the last step.
TEST(ColumnOrder, RoomIsWhatTheWorstCaseNeeds) {
  std::vector<std::int32_t> g_idx;
  for (std::int32_t g = 0; g < 5; ++g) g_idx.insert(g_idx.end(), 33, g);
  Matrix uneven = plain(165, 33);
  uneven.groups = Groups::uneven(5);
  const Matrix m = filled(uneven);
  const auto order = column_order(m, g_idx, true, 0);
  ASSERT_TRUE(order);
  EXPECT_EQ(m.group_count(), 10);
  EXPECT_THAT(order->groups, testing::ElementsAre(0, 0, 1, 1, 2, 2, 3, 3, 4, 4));
}

TEST(ColumnOrder, WithoutActivationOrder) {
  const Matrix m = filled(plain(96, 48));
  const auto order = column_order(m, {}, true, 0);
  ASSERT_TRUE(order);
  for (std::int32_t i = 0; i < 128; ++i) {
    const std::int32_t in = i % 64;
    EXPECT_EQ(order->columns[static_cast<std::size_t>(i)], in < 48 ? i / 64 * 48 + in : -1);
  }
  EXPECT_THAT(order->groups, testing::ElementsAre(0, 1));
}

TEST(ColumnOrder, RowsTakeTheirPlaces) {
  const P16 m{filled(plain(40, 20, true))};
  CanonicalRows rows, placed;
  rows.shape(kPanelRows, m);
  placed.shape(kPanelRows, m, true);
  ASSERT_EQ(rows.k, 40);
  ASSERT_EQ(rows.groups, 2);
  ASSERT_EQ(placed.k, 64);
  ASSERT_EQ(placed.groups, 2);
  for (std::size_t i = 0; i < rows.codes.size(); ++i) rows.codes[i] = static_cast<std::int8_t>(i % 15 + 1);
  std::iota(rows.scales.begin(), rows.scales.end(), 1.0f);
  std::iota(rows.zeros.begin(), rows.zeros.end(), std::uint8_t{3});
  std::iota(rows.bias.begin(), rows.bias.end(), 0.5f);
  const auto order = column_order(m, {}, true, 0);
  ASSERT_TRUE(order);
  arrange_columns(rows, *order, placed);
  for (std::int64_t r = 0; r < kPanelRows; ++r)
    for (std::int64_t i = 0; i < placed.stride; ++i)
      EXPECT_EQ(placed.row(r)[i], i % 32 < 20 ? rows.row(r)[i / 32 * 20 + i % 32] : 0);
  EXPECT_EQ(placed.scales, rows.scales);
  EXPECT_EQ(placed.zeros, rows.zeros);
  EXPECT_EQ(placed.bias, rows.bias);
  std::vector<std::byte> list(m.bytes() - m.order_offset(), std::byte{9});
  ASSERT_EQ(list.size(), 64u * 4);
  write_list(m, *order, list.data());
  EXPECT_EQ(std::memcmp(list.data(), order->columns.data(), 256), 0);
}

}  // namespace
}  // namespace moe::test::column_order_test
