// A config made ready: the one source of a correction bias, what is refused, hash ids, scratch.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/rooms.h"
#include "support/routing.h"

namespace moe::test::route_setup_test {
namespace {

const RouteKernel& any() { return *route_kernels().back(); }

TEST(RouteSetup, BiasHasOneSource) {
  const std::vector<float> one = {1, 2, 3, 4}, other = {1, 2, 3, 5}, none, five(5);
  Config wants = route_config(4, 2), has = with_bias(wants, one), plain = wants;
  wants.routing.has_bias = true;
  struct Row {
    const Config& config;
    const std::vector<float>&option, &loaded;
    Code code;  // of make_router or check_router
    std::vector<float> chosen;
  };
  const Row rows[] = {{wants, one, none, Code::ok, one},
                      {wants, none, one, Code::ok, one},
                      {wants, one, one, Code::ok, one},  // the option repeats the loaded one
                      {wants, one, other, Code::unexpected_weight, {}},
                      {wants, none, none, Code::missing_weight, {}},
                      {wants, none, five, Code::config_mismatch, {}},
                      {has, none, none, Code::ok, one},
                      {has, one, none, Code::unexpected_weight, {}},
                      {has, none, one, Code::unexpected_weight, {}},
                      {plain, none, none, Code::ok, {}},
                      {plain, none, one, Code::ok, {}},  // loaded for a config that wanted it
                      {plain, one, none, Code::unexpected_weight, {}}};
  for (const Row& row : rows) {
    const Result<Router> r = make_router(row.config, any(), {row.option, row.loaded, {}});
    const Check check = r ? check_router(*r) : Check(r.error());
    EXPECT_EQ(check ? Code::ok : check.error().code, row.code);
    if (!check) {
      EXPECT_EQ(check.error().subject, "correction_bias");
    } else {
      const std::vector<float>& bias = r->bias;
      EXPECT_EQ(row.chosen, bias.empty() ? bias : std::vector<float>(bias.begin(), bias.begin() + 4));
    }
  }
}

TEST(RouteSetup, RulesThatNeedNoBiasAskForNone) {
  for (int what = 0; what < 2; ++what) {
    Config c = route_config(4, 2);
    c.routing.has_bias = true;
    if (what == 0) c.routing.hash_routing = true;
    if (what == 1) {
      c.routing.method = RoutingMethod::simulated;
      c.routing.simulation_strategy = "uniform_random";
    }
    EXPECT_TRUE(check_router(*make_router(c, any(), {})));
  }
}

TEST(RouteSetup, CustomIsTheCallers) {
  Config c = route_config(4, 2);
  c.routing.method = RoutingMethod::custom;
  const Check check = check_router(*make_router(c, any(), {}));
  ASSERT_FALSE(check);
  EXPECT_EQ(check.error().code, Code::unsupported);
  EXPECT_EQ(check.error().subject, "/routing/method");
}

TEST(RouteSetup, HashIds) {
  Config c = route_config(8, 2);
  c.routing.hash_routing = true;
  const Router r = *make_router(c, any(), {});
  std::vector<std::int64_t> ids = {0, 7, 3, 3};
  const TensorView view = row_major(DType::i64, {2, 2}, ids.data());
  EXPECT_TRUE(check_hash_ids(r, view, "ids"));
  for (const std::int64_t bad : {std::int64_t{-1}, std::int64_t{8}, std::int64_t{1} << 40}) {
    ids[3] = bad;
    const Check check = check_hash_ids(r, view, "ids");
    ASSERT_FALSE(check);
    EXPECT_EQ(check.error().code, Code::invalid_argument);
    EXPECT_EQ(check.error().subject, "ids[1,1]");
    EXPECT_NE(check.error().message.find(std::to_string(bad)), std::string::npos);
  }
}

// All groups kept is no selection at all; ids are those without groups.
TEST(RouteSetup, AllGroupsKeptIsUngrouped) {
  std::mt19937 g(1);
  const auto x = random_logits(g, 64 * 4, Draw::odd);
  const Config c = route_config(64, 8);
  EXPECT_TRUE(route_floats(with_groups(c, 8, 8), x) == route_floats(c, x));
  EXPECT_FALSE(route_floats(with_groups(c, 8, 2), x) == route_floats(c, x));
}

TEST(RouteSetup, ScratchIsBounded) {
  const Router small = *make_router(with_groups(route_config(256, 8), 8, 4), any(), {});
  EXPECT_EQ(route_scratch_bytes(small, 0), 0u);
  EXPECT_LT(route_scratch_bytes(small, 1), 4096u);
  EXPECT_LT(route_scratch_bytes(small, 1 << 30), 256u << 10);
  const Router large = *make_router(route_config(65536, 8), any(), {});
  EXPECT_LE(route_scratch_bytes(large, 1 << 20), 4u << 20);
}

}  // namespace
}  // namespace moe::test::route_setup_test
