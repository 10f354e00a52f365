// Combine compact and mode tp: equal to themselves when repeated, and near the layer in one process.
#include <gtest/gtest.h>

#include <cmath>

#include "dist/spread.h"

namespace moe::test::dist_sums_test {
namespace {

double distance(const Sample& s, const std::vector<std::byte>& got, const std::vector<std::byte>& want) {
  return relative_rms(floats_of(got, s.dtype), floats_of(want, s.dtype));
}

void expect_near_and_repeatable(const Sample& s, int ranks, const std::string& options) {
  SCOPED_TRACE(s.name + ", " + std::to_string(ranks) + " ranks, " + options);
  const std::vector<std::byte> want = whole_output(s), first = spread_output(s, ranks, Cut::even, options);
  EXPECT_EQ(first, spread_output(s, ranks, Cut::even, options));
  // One rounding of a float32 sum more or less; activations of tp are quantized in pieces.
  const double bound = options.find("tp") == std::string::npos ? (s.dtype == MOE_DTYPE_F32 ? 1e-6 : 4e-3) : 2e-2;
  EXPECT_LE(distance(s, first, want), bound);
}

TEST(DistSums, CompactIsNearAndRepeatable) {
  for (const Sample& s : all_formats(13))
    for (const int ranks : {2, 3}) expect_near_and_repeatable(s, ranks, R"({"combine":"compact"})");
}

TEST(DistSums, CompactInChunksAndRoundRobin) {
  const Sample s = int4_sample({.E = 6, .K = 3}, 17);
  for (const int ranks : {1, 4, 7, 8})
    for (const char* options :
         {R"({"combine":"compact","chunk_tokens":2})", R"({"combine":"compact","placement":"round_robin"})"})
      expect_near_and_repeatable(s, ranks, options);
}

TEST(DistSums, CompactDoesNotDependOnTheCutOfTokens) {
  const Sample s = int4_sample({.E = 6, .K = 3}, 17);
  const std::vector<std::byte> want = spread_output(s, 3, Cut::even, R"({"combine":"compact"})");
  for (const Cut cut : {Cut::one_empty, Cut::all_on_one, Cut::skewed})
    EXPECT_EQ(spread_output(s, 3, cut, R"({"combine":"compact"})"), want);
}

TEST(DistSums, TensorParallel) {
  for (const int ranks : {1, 2, 4})
    for (const char* options : {R"({"mode":"tp"})", R"({"mode":"tp","chunk_tokens":3})"}) {
      expect_near_and_repeatable(int4_sample({.E = 5, .H = 64, .I = 128, .K = 2, .bias = true}, 11), ranks, options);
      expect_near_and_repeatable(int8_sample({.E = 5, .I = 128}, 11), ranks, options);
    }
}

TEST(DistSums, TensorParallelCutsAndRouting) {
  const Sample s = int4_sample({.E = 5, .I = 128, .K = 2}, 11);
  const std::vector<std::byte> want = whole_output(s, true),
                               even = spread_output(s, 2, Cut::even, R"({"mode":"tp"})", true);
  EXPECT_LE(distance(s, even, want), 2e-2);
  for (const Cut cut : {Cut::one_empty, Cut::all_on_one, Cut::skewed})
    EXPECT_EQ(spread_output(s, 2, cut, R"({"mode":"tp"})", true), even);
  EXPECT_TRUE(spread_output(s, 2, Cut::none, R"({"mode":"tp"})").empty());
}

}  // namespace
}  // namespace moe::test::dist_sums_test
