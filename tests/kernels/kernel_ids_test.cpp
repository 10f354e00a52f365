// The list of kernels: what its rows take, and which comes first.
#include "kernels/kernel_ids.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "kernels/kernel.h"
#include "support/rooms.h"

namespace moe::test::kernel_ids_test {
namespace {

TEST(KernelIds, GroupsThatARowTakes) {
  for (const KernelId& k : kKernelIds) {
    SCOPED_TRACE(k.name);
    const std::int64_t step = k.group_multiple;
    EXPECT_TRUE((std::set<std::int64_t>{1, 16, 32, 64, 128}.contains(step))) << step;
    EXPECT_TRUE(k.takes(Groups{}));           // whole rows
    EXPECT_TRUE(k.takes(Groups::uneven(3)));  // which are filled up to whole steps
    EXPECT_TRUE(k.takes(Groups::even(step)));
    EXPECT_TRUE(k.takes(Groups::even(4 * step)));
    EXPECT_EQ(k.takes(Groups::even(4 * step + 1)), step == 1);
    EXPECT_EQ(k.takes(Groups::even(step + step / 2)), step == 1);
    EXPECT_GE(k.tile_rows, 1);
    EXPECT_EQ(&k, &kKernelIds[*kernel_index(k.name)]);
  }
}

// The tiles that few slots have are those of the AVX-512 row which multiplies them.
TEST(KernelIds, FewSlotsHaveTheTilesOfAnotherRow) {
  int rows = 0;
  for (const Kernel* k : built_kernels()) {
    if (k->few == 0) continue;
    SCOPED_TRACE(k->id->name);
    ++rows;
    std::string other(k->id->name);
    other.replace(other.find("_amxint8"), std::string("_amxint8").size(), "_avx512vnni");
    if (other.ends_with("_g32")) other.resize(other.size() - 4);
    ASSERT_TRUE(kernel_index(other)) << other;
    EXPECT_EQ(k->few_rows, kKernelIds[*kernel_index(other)].tile_rows);
    EXPECT_LT(k->few, k->tile_rows);
  }
#if defined(__x86_64__)
  EXPECT_EQ(rows, 7);
#endif
}

TEST(KernelIds, TheFirstThatFits) {
  const auto first = [](std::int64_t group, bool zeros, const char* below = "") {
    KernelNeeds needs{.layout = LayoutKind::p16_int4, .acts = {}, .zeros = zeros};
    needs.acts = EnumSet<ActFormat>::all();
    needs.w13_groups = needs.w2_groups = Groups::even(group);
    const auto found =
        pick(needs, [&](std::size_t i) { return kKernelIds[i].name.find(below) != std::string_view::npos; });
    return found ? std::string(kKernelIds[*found].name) : std::string();
  };
  EXPECT_EQ(first(128, false), "w4a8_tok8_p16_amxint8");
  EXPECT_EQ(first(64, false), "w4a8_tok8_p16_amxint8");
  EXPECT_NE(first(32, false), "w4a8_tok8_p16_amxint8");  // half a tile
  EXPECT_NE(first(96, false), "w4a8_tok8_p16_amxint8");
  EXPECT_EQ(first(128, false, "avx512vnni"), "w4a8_tok8_p16_avx512vnni");
  EXPECT_EQ(first(128, true), "");  // int8 activations take no zero points
  KernelNeeds one{.layout = LayoutKind::p16_int4};
  one.w13_groups = Groups::even(128), one.w2_groups = Groups::even(32);
  EXPECT_FALSE(kKernelIds[*kernel_index("w4a8_tok8_p16_amxint8")].fits(one));  // both matrices count
}

}  // namespace
}  // namespace moe::test::kernel_ids_test
