// The known name that a mistyped one means. See impl/base/nearest.h.
#include "base/nearest.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/rooms.h"

namespace moe::test::nearest_test {
namespace {

TEST(Nearest, Edits) {
  EXPECT_EQ(edits("", ""), 0U);
  EXPECT_EQ(edits("abc", ""), 3U);
  EXPECT_EQ(edits("kitten", "sitting"), 3U);
}

TEST(Nearest, TheNearestThatLooksLikeIt) {
  const std::vector<std::string_view> names = {"tp_size", "tp_rank", "ep_size", "layer_index", "hidden_dim"};
  const auto meant = [&](std::string_view typed) { return did_you_mean(typed, names); };
  EXPECT_EQ(meant("tp-size"), " (did you mean tp_size?)");
  EXPECT_EQ(meant("TP_Size"), " (did you mean tp_size?)");
  EXPECT_EQ(meant("ep_sice"), " (did you mean ep_size?)");
  EXPECT_EQ(meant("layer"), " (did you mean layer_index?)");
  EXPECT_EQ(meant("hiddendim"), " (did you mean hidden_dim?)");
  EXPECT_EQ(meant("activation"), "");
  EXPECT_EQ(meant(""), "");
  EXPECT_EQ(meant(std::string(100'000, 't')), "");
  EXPECT_EQ(did_you_mean("tp_size", {}), "");
}

TEST(Nearest, WhatOthersCallIt) {
  const std::vector<std::string_view> types = {"float32", "float16", "bfloat16"}, members = {"in_dtype", "out_dtype"};
  EXPECT_EQ(did_you_mean("bf16", types), " (did you mean bfloat16?)");
  EXPECT_EQ(did_you_mean("FP16", types), " (did you mean float16?)");
  EXPECT_EQ(did_you_mean("dtype", members), " (did you mean in_dtype?)");
  EXPECT_EQ(did_you_mean("dtype", types), "");
}

}  // namespace
}  // namespace moe::test::nearest_test
