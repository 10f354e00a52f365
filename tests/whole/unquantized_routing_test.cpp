// An unquantized layer routes inside moe_apply by every method its selection accepts: the ids and weights are those of
// moe_route, and the output is bit for bit that of mode TOPK with them.
#include <gtest/gtest.h>

#include <random>

#include "support/capi.h"
#include "support/rooms.h"

namespace moe::test::unquantized_routing_test {
namespace {

using nlohmann::json;

constexpr std::int64_t kExperts = 8, kHidden = 16, kWidth = 24, kTokens = 6;

std::vector<float> random_floats(std::int64_t n, std::uint32_t seed) {
  std::mt19937 rng(seed);
  std::vector<float> v(static_cast<std::size_t>(n));
  for (float& x : v) x = static_cast<float>(rng() >> 8) * 0x1p-23f - 1.0f;
  return v;
}

struct Case {
  const char* routing;
  std::int64_t top_k, columns, stored, slots;  // of the router, experts with weights, ids per token
};

// A layer with its four objects; everything float32.
struct RoutedLayer {
  ContextPtr context = make_context("{\"threads\":2}");
  ConfigPtr config;
  LayerPtr layer;

  explicit RoutedLayer(const Case& c) {
    const json doc = {{"num_experts", kExperts},         {"top_k", c.top_k},      {"hidden_dim", kHidden},
                      {"intermediate_size", kWidth},     {"in_dtype", "float32"}, {"routing", json::parse(c.routing)},
                      {"router_logits_dtype", "float32"}};
    config = make_config(doc.dump());
    const SelectionPtr selection = make_selection(config.get(), context.get());
    const WeightsPtr w =
        make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(config.get(), o, e); });
    const auto w13 = random_floats(c.stored * 2 * kWidth * kHidden, 1),
               w2 = random_floats(c.stored * kHidden * kWidth, 2);
    const moe_tensor t13 = tensor(MOE_DTYPE_F32, {c.stored, 2 * kWidth, kHidden}, w13.data()),
                     t2 = tensor(MOE_DTYPE_F32, {c.stored, kHidden, kWidth}, w2.data());
    EXPECT_EQ(moe_weights_set(w.get(), "w13_weight", &t13, nullptr, nullptr, nullptr), MOE_OK) << c.routing;
    EXPECT_EQ(moe_weights_set(w.get(), "w2_weight", &t2, nullptr, nullptr, nullptr), MOE_OK) << c.routing;
    const PackedPtr packed = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
      return moe_convert_weights(context.get(), selection.get(), w.get(), nullptr, o, e);
    });
    layer = make<LayerPtr>([&](moe_layer** o, moe_error** e) {
      return moe_layer_create(context.get(), selection.get(), packed.get(), nullptr, o, e);
    });
  }
};

// The tensors of one call.
struct Batch {
  std::vector<float> x = random_floats(kTokens * kHidden, 3), logits, weights, out;
  std::vector<std::int32_t> ids;
  moe_tensor tx, tl, ti, tw, to;

  explicit Batch(const Case& c)
      : logits(random_floats(kTokens * c.columns, 4)),
        weights(static_cast<std::size_t>(kTokens * c.slots), -1.0f),
        out(static_cast<std::size_t>(kTokens * kHidden), -7.0f),
        ids(weights.size(), -1),
        tx(tensor(MOE_DTYPE_F32, {kTokens, kHidden}, x.data())),
        tl(tensor(MOE_DTYPE_F32, {kTokens, c.columns}, logits.data())),
        ti(tensor(MOE_DTYPE_I32, {kTokens, c.slots}, ids.data())),
        tw(tensor(MOE_DTYPE_F32, {kTokens, c.slots}, weights.data())),
        to(tensor(MOE_DTYPE_F32, {kTokens, kHidden}, out.data())) {}
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;
};

class UnquantizedRouting : public testing::TestWithParam<Case> {};

TEST_P(UnquantizedRouting, IsTheRoutingOfTheConfig) {
  const Case& c = GetParam();
  const RoutedLayer l(c);
  ASSERT_TRUE(l.layer);
  Batch routed(c), inside(c), given(c);

  const moe_route_args route{sizeof route, 0, &routed.tl, nullptr, &routed.ti, &routed.tw};
  const Failure f = failure([&](moe_error** e) { return moe_route(l.context.get(), l.config.get(), &route, e); });
  ASSERT_EQ(f.status, MOE_OK) << f.message;

  moe_apply_args a{};
  a.struct_size = sizeof a;
  a.mode = MOE_APPLY_ROUTER_LOGITS;
  a.hidden = &inside.tx;
  a.router_logits = &inside.tl;
  a.out = &inside.to;
  a.out_topk_ids = &inside.ti;
  a.out_topk_weights = &inside.tw;
  const Failure g = failure([&](moe_error** e) { return moe_apply(l.layer.get(), &a, e); });
  ASSERT_EQ(g.status, MOE_OK) << g.message;
  EXPECT_EQ(inside.ids, routed.ids);
  EXPECT_EQ(bytes_of(inside.weights), bytes_of(routed.weights));

  moe_apply_args t{};
  t.struct_size = sizeof t;
  t.mode = MOE_APPLY_TOPK;
  t.hidden = &given.tx;
  t.topk_ids = &routed.ti;
  t.topk_weights = &routed.tw;
  t.out = &given.to;
  const Failure h = failure([&](moe_error** e) { return moe_apply(l.layer.get(), &t, e); });
  ASSERT_EQ(h.status, MOE_OK) << h.message;
  EXPECT_EQ(bytes_of(inside.out), bytes_of(given.out));
  EXPECT_NE(given.out, std::vector<float>(given.out.size(), 0.0f));
}

// clang-format off
INSTANTIATE_TEST_SUITE_P(Methods, UnquantizedRouting, testing::Values(
    Case{R"({})", 2, 8, 8, 2},
    Case{R"({"renormalize": false, "routed_scaling_factor": 2.5})", 3, 8, 8, 3},
    Case{R"({"scoring_func": "sigmoid", "renormalize": false})", 1, 8, 8, 1},
    Case{R"({"scoring_func": "sigmoid"})", 2, 8, 8, 2},
    Case{R"({"scoring_func": "sigmoid", "num_expert_group": 4, "topk_group": 2, "routed_scaling_factor": 2.5,
             "e_score_correction_bias": [0.5, -0.5, 0, 0.25, 0, 0, -0.25, 1]})", 3, 8, 8, 3},
    Case{R"({"num_expert_group": 2, "topk_group": 1, "renormalize": false})", 2, 8, 8, 2},
    Case{R"({"scoring_func": "sqrtsoftplus", "e_score_correction_bias": [0, 0, 0, 0, 1, 1, 0, 0]})", 2, 8, 8, 2},
    Case{R"({"method": "topk"})", 2, 8, 8, 2},
    Case{R"({"method": "sparsemixer"})", 2, 8, 8, 2},
    Case{R"({"method": "simulated", "simulation_strategy": "uniform_random", "seed": 7})", 2, 8, 8, 2},
    Case{R"({"method": "simulated", "simulation_strategy": "normal_routing"})", 2, 8, 8, 2},
    Case{R"({"num_fused_shared_experts": 2})", 2, 8, 10, 4},
    Case{R"({"num_zero_experts": 2, "scoring_func": "softmax", "e_score_correction_bias": [0, 0, 0, 0, 0, 0, 0, 0, 1, 1]})", 3, 10, 8, 3}));
// clang-format on

}  // namespace
}  // namespace moe::test::unquantized_routing_test
