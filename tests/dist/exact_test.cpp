// Mode ep, combine exact: the bits of one process, whatever the ranks, the cut of tokens, the chunks, the placement.
#include <gtest/gtest.h>

#include "dist/spread.h"

namespace moe::test::dist_exact_test {
namespace {

constexpr int kRanks[] = {1, 2, 3, 4, 7, 8};

void expect_same(const std::vector<std::byte>& got, const std::vector<std::byte>& want) {
  ASSERT_EQ(got.size(), want.size());
  EXPECT_TRUE(got == want);
}

TEST(DistExact, EveryNumberOfRanksAndCutOfTokens) {
  const Sample s = int4_sample({.E = 6, .K = 3}, 23);
  const std::vector<std::byte> want = whole_output(s);
  for (const int ranks : kRanks)
    for (const Cut cut : kCuts) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, cut " + std::to_string(static_cast<int>(cut)));
      expect_same(spread_output(s, ranks, cut), cut == Cut::none ? std::vector<std::byte>() : want);
    }
}

TEST(DistExact, EveryFormatOfWeights) {
  for (const Sample& s : all_formats(13)) {
    SCOPED_TRACE(s.name);
    const std::vector<std::byte> want = whole_output(s);
    for (const int ranks : {2, 3}) expect_same(spread_output(s, ranks, Cut::even), want);
  }
}

TEST(DistExact, FewerExpertsThanRanks) {
  const Sample s = int4_sample({.E = 3, .K = 2}, 17);
  const std::vector<std::byte> want = whole_output(s);
  for (const int ranks : {4, 8}) expect_same(spread_output(s, ranks, Cut::even), want);
}

TEST(DistExact, RoundRobin) {
  const Sample s = int4_sample({.E = 7, .K = 3, .dtype = "bfloat16"}, 19);
  const std::vector<std::byte> want = whole_output(s);
  for (const int ranks : {2, 3, 4, 8})
    expect_same(spread_output(s, ranks, Cut::skewed, R"({"placement":"round_robin"})"), want);
}

TEST(DistExact, AnyTable) {
  const Sample s = int4_sample({.E = 6, .K = 3}, 19);
  const std::vector<std::byte> want = whole_output(s);
  for (const char* table : {"[[5,0],[3],[1,2,4]]", "[[],[0,1,2,3,4,5],[]]", "[[0,1,2],[],[5,4,3]]"}) {
    SCOPED_TRACE(table);
    expect_same(spread_output(s, 3, Cut::skewed, R"({"placement":)" + std::string(table) + "}"), want);
  }
}

TEST(DistExact, ChunksOfEverySize) {
  const Sample s = int4_sample({.E = 5, .K = 2}, 21);
  const std::vector<std::byte> want = whole_output(s);
  for (const char* options : {R"({"chunk_tokens":1})", R"({"chunk_tokens":3})", R"({"chunk_tokens":16})"})
    for (const Cut cut : {Cut::even, Cut::all_on_one, Cut::skewed}) {
      SCOPED_TRACE(options);
      expect_same(spread_output(s, 3, cut, options), want);
    }
}

TEST(DistExact, RoutingInside) {
  const Sample s = int4_sample({.E = 8, .K = 3, .dtype = "bfloat16"}, 15);
  const std::vector<std::byte> want = whole_output(s, true);
  for (const int ranks : {1, 3, 4}) expect_same(spread_output(s, ranks, Cut::one_empty, "{}", true), want);
}

TEST(DistExact, RoutingInsideOnRanksWithoutExperts) {
  const Sample s = int4_sample({.E = 3, .K = 2}, 15);
  expect_same(spread_output(s, 5, Cut::even, "{}", true), whole_output(s, true));
}

TEST(DistExact, WhatTheConfigDoesToSums) {
  const Sample s = int4_sample({.E = 6, .K = 2, .dtype = "bfloat16"}, 16);
  const nlohmann::json all[] = {
      {{"bit_compat", "vllm"}},
      {{"routing", {{"routed_scaling_factor", 2.5}, {"apply_routed_scale_to_output", true}}}},
      {{"routing",
        {{"num_zero_experts", 2},
         {"zero_experts", "identity"},
         {"scoring_func", "sigmoid"},
         {"e_score_correction_bias", {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8}}}}},
  };
  for (const auto& more : all) {
    Sample changed = s.with(more);
    SCOPED_TRACE(more.dump());
    if (more.contains("routing") && more["routing"].contains("num_zero_experts"))
      for (std::size_t i = 0; i < changed.ids.size(); i += 5) changed.ids[i] = 6 + static_cast<std::int32_t>(i % 2);
    const std::vector<std::byte> want = whole_output(changed);
    for (const int ranks : {2, 4}) expect_same(spread_output(changed, ranks, Cut::even), want);
  }
}

TEST(DistExact, WeightOnTheInput) {
  const Sample s = int4_sample({.E = 6, .K = 1, .dtype = "bfloat16", .on_input = true}, 16);
  const std::vector<std::byte> want = whole_output(s);
  for (const int ranks : {2, 4}) expect_same(spread_output(s, ranks, Cut::even), want);
  const Sample vllm = s.with({{"bit_compat", "vllm"}});
  expect_same(spread_output(vllm, 3, Cut::even), whole_output(vllm));
}

TEST(DistExact, SeveralThreadsOnEachRank) {
  const Sample s = int4_sample({.E = 6, .H = 128, .I = 128, .K = 4}, 150);
  expect_same(spread_output(s, 2, Cut::skewed, "{}", false, R"({"threads":2})"), whole_output(s));
}

TEST(DistExact, ManyCallsOfDifferentSizes) {
  const Sample s = int4_sample({.E = 6, .K = 2}, 40);
  const ConfigPtr config = s.make();
  const LayerPtr layer = layer_of(s, config.get());
  on_ranks(3, [&](int rank, moe_comm* comm) {
    const Spread spread(s, comm);
    for (int i = 0; i < 50; ++i) {
      const std::int64_t first = (i * 7 + rank) % 20, count = (i * 5 + rank * 3) % 11;
      Part mine(s, first, count), want(s, first, count);
      if (i % 3 == 1) mine.args.flags = want.args.flags = MOE_APPLY_ACCUMULATE;
      moe_error* err = nullptr;
      expect_status_ok(moe_dist_apply(spread.dist.get(), &mine.args, &err), err);
      expect_status_ok(moe_apply(layer.get(), &want.args, &err), err);
      ASSERT_TRUE(mine.out == want.out) << i;
    }
  });
}

TEST(DistExact, InSteps) {
  const Sample s = int4_sample({.E = 6, .K = 2}, 24);
  const std::vector<std::byte> want = whole_output(s);
  on_ranks(3, [&](int rank, moe_comm* comm) {
    const Spread spread(s, comm, R"({"chunk_tokens":3})");
    Part part(s, rank * 8, 8);
    const DistCallPtr call = make<DistCallPtr>(
        [&](moe_dist_call** o, moe_error** e) { return moe_dist_begin(spread.dist.get(), &part.args, o, e); });
    moe_dist_call* second = nullptr;
    EXPECT_EQ(moe_dist_begin(spread.dist.get(), &part.args, &second, nullptr), MOE_ERR_BUSY);
    std::int32_t done = 0;
    moe_error* err = nullptr;
    while (done == 0) {
      expect_status_ok(moe_dist_poll(call.get(), &done, &err), err);
      std::this_thread::yield();
    }
    expect_status_ok(moe_dist_poll(call.get(), &done, &err), err);
    EXPECT_EQ(done, 1);
    expect_status_ok(moe_dist_finish(const_cast<DistCallPtr&>(call).release(), &err), err);
    EXPECT_EQ(
        std::memcmp(part.out.data(), want.data() + static_cast<std::size_t>(rank) * part.out.size(), part.out.size()),
        0);
  });
}

}  // namespace
}  // namespace moe::test::dist_exact_test
