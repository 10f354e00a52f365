// Group shapes: each predicate is true for its own shapes only.
#include "vllm/group_shape.h"
#include "support/rooms.h"

#include <gtest/gtest.h>

namespace moe::test::group_shape_test {
namespace {

struct Row {
  GroupShape shape;
  bool tensor, token, channel, group;
};

TEST(GroupShape, Predicates) {
  const Row rows[] = {{kPerTensor, true, false, false, false},  {kPerToken, false, true, false, false},
                      {kPerChannel, false, false, true, false}, {{1, 1}, false, false, false, true},
                      {{1, 128}, false, false, false, true},    {{128, 128}, false, false, false, false},
                      {{0, 128}, false, false, false, false},   {{-1, 128}, false, false, false, false}};
  for (const Row& r : rows) {
    EXPECT_EQ(r.shape.is_per_tensor(), r.tensor) << r.shape.row << "," << r.shape.col;
    EXPECT_EQ(r.shape.is_per_token(), r.token) << r.shape.row << "," << r.shape.col;
    EXPECT_EQ(r.shape.is_per_channel(), r.channel) << r.shape.row << "," << r.shape.col;
    EXPECT_EQ(r.shape.is_per_group(), r.group) << r.shape.row << "," << r.shape.col;
  }
  EXPECT_EQ(GroupShape(), kPerTensor);
  EXPECT_NE(kPerToken, kPerChannel);
}

}  // namespace
}  // namespace moe::test::group_shape_test
