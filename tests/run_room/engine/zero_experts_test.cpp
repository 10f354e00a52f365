// Zero experts inside a layer: their part is the token times the sum of their weights, added last, by one rank.
#include "run/engine/zero_experts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/kernel.h"
#include "support/rooms.h"
#include "support/tiny_layer.h"

namespace moe::test::zero_experts_test {
namespace {

TEST(ZeroExperts, SumsOfTheirWeights) {
  std::vector<std::int64_t> ids = {0, 4, 5, -1, 3, 8, 7, 4, 4};  // 8: none, skipped
  std::vector<float> weights = {1, 0.5f, 0.25f, 9, 9, 9, 2, 3, 4}, sums(3, 77);
  EXPECT_TRUE(sum_zero_weights(row_major(DType::i64, {3, 3}, ids.data()), row_major(DType::f32, {3, 3}, weights.data()),
                               {4, 8}, sums.data(), {}));
  EXPECT_EQ(sums, (std::vector<float>{0.75f, 0, 9}));
}

class ZeroExpertLayers : public ::testing::TestWithParam<DType> {};

TEST_P(ZeroExpertLayers, AddTheTokenOnTheFirstRankOnly) {
  const LayerShape s{.experts = 4, .top_k = 3, .hidden = 224, .intermediate = 96, .dtype = GetParam()};
  const auto width = static_cast<std::size_t>(s.hidden);
  const auto packed = pack_layer(s, random_weights(s, 1));
  Batch b = random_batch(s, 9, 2);
  const std::vector<std::int32_t> real = b.ids;
  for (std::size_t i = 0; i < b.ids.size(); ++i)
    if (i % 4 == 1 || i / 3 == 5) b.ids[i] = static_cast<std::int32_t>(4 + i % 2);  // token 5: zero experts only
  Batch without = b;
  for (auto& id : without.ids) id = id >= 4 ? -1 : id;
  for (const Kernel* kernel : kernels_for(s)) {
    for (const int threads_used : {1, 3}) {
      auto config = tiny_config(s);
      config->out_dtype = DType::f32;
      ASSERT_TRUE(make_layer(config, packed, *kernel)->apply([&] {
        without.dtype = s.dtype;
        without.out.assign(static_cast<std::size_t>(9 * s.hidden) * 4, std::byte{0});
        ApplyArgs a = without.args();
        a.out = row_major(DType::f32, {9, s.hidden}, without.out.data());
        return a;
      }()));
      for (const int rank : {0, 1}) {
        auto zero = std::make_shared<Config>(*config);
        zero->routing.num_zero_experts = 2;
        zero->parallel.ep_rank = rank;
        b.out.assign(static_cast<std::size_t>(9 * s.hidden) * 4, std::byte{0xa5});
        ApplyArgs a = b.args();
        a.out = row_major(DType::f32, {9, s.hidden}, b.out.data());
        ASSERT_TRUE(make_layer(zero, packed, *kernel, threads(threads_used))->apply(a));
        const std::vector<float> x = b.values(b.x);
        for (std::size_t t = 0; t < 9; ++t) {
          float sum = 0;
          for (std::size_t j = 0; j < 3; ++j) sum += b.ids[t * 3 + j] >= 4 ? b.weights[t * 3 + j] : 0.0f;
          for (std::size_t h = 0; h < width; ++h) {
            float got, base;
            std::memcpy(&got, b.out.data() + (t * width + h) * 4, 4);
            std::memcpy(&base, without.out.data() + (t * width + h) * 4, 4);
            const float want = rank == 0 && sum != 0 ? std::fma(sum, x[t * width + h], base) : base;
            ASSERT_EQ(got, want) << kernel->id->name << " token " << t << " column " << h << " rank " << rank;
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ZeroExpertLayers, ::testing::Values(DType::f32, DType::bf16, DType::f16));

}  // namespace
}  // namespace moe::test::zero_experts_test
