// Groups of columns: what configs write, sizes and counts.
#include "scheme/groups.h"
#include "support/rooms.h"

#include <gtest/gtest.h>

namespace moe::test {
namespace {

TEST(Groups, OneOfEachKind) {
  EXPECT_EQ(Groups(), Groups::whole());
  EXPECT_EQ(Groups::whole().size_in(96), 96);
  EXPECT_EQ(Groups::whole().count_in(96), 1);
  EXPECT_EQ(Groups::whole().count_in(0), 1);
  EXPECT_EQ(Groups::even(32).size_in(96), 32);
  EXPECT_EQ(Groups::even(32).count_in(96), 3);
  EXPECT_EQ(Groups::even(32).count_in(32), 1);
  EXPECT_EQ(Groups::uneven(5).count_in(96), 5);
  EXPECT_NE(Groups::uneven(5), Groups::even(5));
}

TEST(Groups, AsConfigsWriteThem) {
  EXPECT_EQ(Groups::of_size(-1), Groups::whole());
  EXPECT_EQ(Groups::of_size(128), Groups::even(128));
  EXPECT_EQ(Groups::whole().as_written(), -1);
  EXPECT_EQ(Groups::even(128).as_written(), 128);
}

TEST(Groups, OneThatCoversAllColumnsIsTheWhole) {
  EXPECT_EQ(Groups::of_size(64, 64), Groups::whole());
  EXPECT_EQ(Groups::even(64).in(64), Groups::whole());
  EXPECT_EQ(Groups::even(64).in(128), Groups::even(64));
  EXPECT_EQ(Groups::uneven(64).in(64), Groups::uneven(64));
}

}  // namespace
}  // namespace moe::test
