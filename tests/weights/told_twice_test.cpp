// Roles that say nothing more: lists of sorted columns, held against the groups that are given in any form.
#include "weights/told_twice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "weights/weight_fixture.h"

namespace moe::test::told_twice_test {
namespace {

constexpr std::int64_t kHidden = 64, kWidth = 32, kGroup = 32;

// A GPTQ layer of one expert with activation order, and its tensors.
struct Gptq {
  std::vector<std::int32_t> codes = std::vector<std::int32_t>(4096), columns, sorted;
  std::vector<std::uint16_t> scales = std::vector<std::uint16_t>(4096, 0x3c00);
  WeightSet set;

  Gptq() : set(config()) {
    for (std::int64_t k = 0; k < kHidden; ++k) columns.push_back(static_cast<std::int32_t>(k % 2));
    sorted.resize(columns.size());
    std::iota(sorted.begin(), sorted.end(), 0);
    std::stable_sort(sorted.begin(), sorted.end(), [&](std::int32_t a, std::int32_t b) {
      return columns[static_cast<std::size_t>(a)] < columns[static_cast<std::size_t>(b)];
    });
    for (const Half half : {Half::w1, Half::w3}) {
      give(Role::w13_weight, half, row_major(DType::i32, {kHidden / 8, kWidth}, codes.data()));
      give(Role::w13_scale, half, row_major(DType::f16, {kHidden / kGroup, kWidth}, scales.data()));
      give(Role::w13_g_idx, half, row_major(DType::i32, {kHidden}, columns.data()));
    }
    give(Role::w2_weight, Half::whole, row_major(DType::i32, {kWidth / 8, kHidden}, codes.data()));
    give(Role::w2_scale, Half::whole, row_major(DType::f16, {1, kHidden}, scales.data()));
    give(Role::w2_g_idx, Half::whole, row_major(DType::i32, {kWidth}, codes.data()));
  }
  static std::shared_ptr<const Config> config() {
    auto c = parse_config(
        R"({"name":"m","num_experts":1,"top_k":1,"hidden_dim":64,"intermediate_size":32,"hf_quantization_config":)"
        R"({"quant_method":"gptq","bits":4,"group_size":32,"desc_act":true,"sym":true}})");
    EXPECT_TRUE(c) << c.error().message;
    return std::make_shared<const Config>(*std::move(c));
  }
  void give(Role role, Half half, const TensorView& tensor) {
    const Check set_one = set.set_expert(role, 0, half, tensor, {});
    EXPECT_TRUE(set_one) << set_one.error().message;
  }
  Check checked() {
    for (const Half half : {Half::w1, Half::w3})
      give(Role::w13_g_idx_sort_indices, half, row_major(DType::i32, {kHidden}, sorted.data()));
    return set.check_complete();
  }
};

TEST(ToldTwice, ListsOfTheGroupsOfHalves) {
  Gptq layer;
  const Check whole = layer.checked();
  EXPECT_TRUE(whole) << whole.error().message;
}

TEST(ToldTwice, ListsThatAreNotSorted) {
  Gptq layer;
  std::swap(layer.sorted[3], layer.sorted[40]);
  const Check wrong = layer.checked();
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().subject.rfind("w13_g_idx_sort_indices[0,", 0), 0u) << wrong.error().message;
}

TEST(ToldTwice, ColumnsThatAreNot) {
  for (const std::int32_t column : {-1, 64, 1}) {
    Gptq layer;
    layer.sorted[0] = column;
    const Check wrong = layer.checked();
    ASSERT_FALSE(wrong) << column;
    EXPECT_EQ(wrong.error().subject.rfind("w13_g_idx_sort_indices[0,", 0), 0u) << wrong.error().message;
  }
}

}  // namespace
}  // namespace moe::test::told_twice_test
