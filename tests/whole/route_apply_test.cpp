// Routing inside moe_apply: with every method the same bits as mode TOPK with what moe_route gave; fused shared
// experts, weights on the input and biases of a checkpoint against plain forms of the same layer.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/float_formats.h"
#include "support/capi.h"
#include "support/rooms.h"
#include "support/safetensors_writer.h"

namespace moe::test::route_apply_test {
namespace {

using Json = nlohmann::json;

struct Options {
  const moe_tensor* bias = nullptr;
  std::function<void(moe_weights*)> more_weights;
};

// The four steps of a model whose config document is changed.
Steps steps_of(const Model& m, const Json& changes, const Options& options = {}) {
  Json document = Json::parse(m.config_text());
  document.merge_patch(changes);
  Steps s;
  s.context = make_context("{\"threads\":2}");
  s.config = make_config(document.dump());
  s.selection = make_selection(s.config.get(), s.context.get());
  s.weights = make_weights(s.config.get(), m);
  if (options.more_weights) options.more_weights(s.weights.get());
  s.packed = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
    return moe_convert_weights(s.context.get(), s.selection.get(), s.weights.get(), nullptr, o, e);
  });
  moe_layer_options layer{};
  layer.struct_size = sizeof layer;
  layer.correction_bias = options.bias;
  s.layer = make<LayerPtr>([&](moe_layer** o, moe_error** e) {
    return moe_layer_create(s.context.get(), s.selection.get(), s.packed.get(), &layer, o, e);
  });
  return s;
}

struct Chosen {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
};

struct Batch {
  Model m;
  std::int64_t columns, width;  // of the logits, of the results of routing
  std::vector<float> logits;
  std::vector<std::int32_t> hash_ids;  // [T, K], hash routing

  Batch(Model model, std::int64_t router_columns, std::int64_t slots)
      : m(std::move(model)), columns(router_columns), width(slots) {
    std::mt19937 rng(9);
    std::normal_distribution<float> normal(1.0f, 2.0f);
    for (std::int64_t i = 0; i < m.T * columns; ++i) logits.push_back(normal(rng));
  }
  std::size_t slots() const { return static_cast<std::size_t>(m.T * width); }
  moe_tensor logits_tensor() const { return tensor(MOE_DTYPE_F32, {m.T, columns}, logits.data()); }

  Chosen route(const Steps& s, const moe_tensor* bias = nullptr) const {
    Chosen c{std::vector<std::int32_t>(slots(), -7), std::vector<float>(slots())};
    for (std::size_t i = 0; i < hash_ids.size(); ++i) c.ids[i] = hash_ids[i];
    const moe_tensor l = logits_tensor(), i = tensor(MOE_DTYPE_I32, {m.T, width}, c.ids.data()),
                     w = tensor(MOE_DTYPE_F32, {m.T, width}, c.weights.data());
    const moe_route_args args{sizeof args, 0, &l, bias, &i, &w};
    const Failure f = failure([&](moe_error** e) { return moe_route(s.context.get(), s.config.get(), &args, e); });
    EXPECT_EQ(f.status, MOE_OK) << f.message;
    return c;
  }
  // Routing inside; `chosen` gets what it chose.
  std::vector<std::byte> apply_logits(const moe_layer* layer, Chosen& chosen) const {
    Call c(m);
    const moe_tensor l = logits_tensor(), given = tensor(MOE_DTYPE_I32, {m.T, m.K}, hash_ids.data());
    chosen = {std::vector<std::int32_t>(slots(), -7), std::vector<float>(slots())};
    const moe_tensor i = tensor(MOE_DTYPE_I32, {m.T, width}, chosen.ids.data()),
                     w = tensor(MOE_DTYPE_F32, {m.T, width}, chosen.weights.data());
    c.args.mode = MOE_APPLY_ROUTER_LOGITS;
    c.args.router_logits = &l;
    c.args.topk_weights = nullptr;
    c.args.topk_ids = hash_ids.empty() ? nullptr : &given;
    c.args.out_topk_ids = &i;
    c.args.out_topk_weights = &w;
    const Failure f = failure([&](moe_error** e) { return moe_apply(layer, &c.args, e); });
    EXPECT_EQ(f.status, MOE_OK) << f.message;
    return c.out;
  }
  std::vector<std::byte> apply_topk(const moe_layer* layer, const Chosen& chosen) const {
    Call c(m);
    c.ids = tensor(MOE_DTYPE_I32, {m.T, width}, chosen.ids.data());
    c.weights = tensor(MOE_DTYPE_F32, {m.T, width}, chosen.weights.data());
    const Failure f = failure([&](moe_error** e) { return moe_apply(layer, &c.args, e); });
    EXPECT_EQ(f.status, MOE_OK) << f.message;
    return c.out;
  }
};

std::vector<float> floats(const std::vector<std::byte>& bytes) {
  std::vector<float> v(bytes.size() / sizeof(float));
  std::memcpy(v.data(), bytes.data(), bytes.size());
  return v;
}

Model model_of(std::int64_t experts, std::int64_t top_k, const char* dtype = "float32") {
  Model m;
  m.E = experts;
  m.K = top_k;
  m.T = 7;
  m.dtype = dtype;
  return random_model(m);
}

TEST(RouteApply, EveryMethodIsTopkWithWhatRouteGave) {
  const std::vector<float> bias = {0.3f, -0.2f, 0, 0.7f, 0.1f, -0.6f, 0.2f, 0};
  struct Row {
    const char* name;
    Json routing;
    std::int64_t top_k = 3, zero = 0, shared = 0;
    Json more = Json::object();
  };
  const Row rows[] = {
      {"softmax", {{"renormalize", false}}},
      {"renormalize", {{"renormalize", true}, {"routed_scaling_factor", 2.5}}},
      {"sigmoid", {{"scoring_func", "sigmoid"}}},
      {"sqrtsoftplus", {{"scoring_func", "sqrtsoftplus"}, {"renormalize", false}}},
      {"inline bias", {{"scoring_func", "sigmoid"}, {"e_score_correction_bias", bias}}},
      {"groups", {{"num_expert_group", 4}, {"topk_group", 2}, {"renormalize", false}}},
      {"DeepSeek-V3",
       {{"scoring_func", "sigmoid"},
        {"num_expert_group", 4},
        {"topk_group", 2},
        {"e_score_correction_bias", bias},
        {"routed_scaling_factor", 2.5},
        {"apply_routed_scale_to_output", true}}},
      {"DeepSeek-V3, the factor in the weights",
       {{"scoring_func", "sigmoid"},
        {"e_score_correction_bias", bias},
        {"routed_scaling_factor", 2.5},
        {"apply_routed_scale_to_output", true},
        {"topk_weights_hold_factor", true}}},
      {"Llama4",
       {{"scoring_func", "sigmoid"}, {"renormalize", false}},
       1,
       0,
       0,
       {{"apply_router_weight_on_input", true}}},
      {"topk", {{"method", "topk"}}},
      {"sparsemixer", {{"method", "sparsemixer"}}, 2},
      {"uniform", {{"method", "simulated"}, {"simulation_strategy", "uniform_random"}, {"seed", 3}}},
      {"normal", {{"method", "simulated"}, {"simulation_strategy", "normal_routing"}}},
      {"hash", {{"hash_routing", true}, {"scoring_func", "sqrtsoftplus"}, {"routed_scaling_factor", 1.5}}},
      {"zero experts",
       {{"e_score_correction_bias", std::vector<float>(11, 0.1f)},
        {"num_zero_experts", 3},
        {"renormalize", false},
        {"routed_scaling_factor", 6.0}},
       5,
       3},
      {"fused shared", {{"num_fused_shared_experts", 2}}, 3, 0, 2},
      {"fused shared, hash", {{"num_fused_shared_experts", 2}, {"hash_routing", true}}, 3, 0, 2},
  };
  for (const char* dtype : {"float32", "bfloat16"})
    for (const Row& row : rows) {
      SCOPED_TRACE(std::string(row.name) + " " + dtype);
      const Model m = model_of(8 + row.shared, row.top_k, dtype);
      Json changes = row.more;
      changes["routing"] = row.routing;
      changes["num_experts"] = 8;
      Batch b(m, 8 + row.zero, row.top_k + row.shared);
      if (row.routing.contains("hash_routing"))
        for (std::int64_t i = 0; i < m.T * row.top_k; ++i) b.hash_ids.push_back(static_cast<std::int32_t>(i * 5 % 8));
      const Steps s = steps_of(m, changes);
      ASSERT_NE(s.layer, nullptr);
      Chosen outside;
      if (row.shared == 0 || b.hash_ids.empty()) {
        outside = b.route(s);
      } else {  // rows of ids are wider than what the caller gives: spread them
        Batch wide = b;
        wide.hash_ids.clear();
        for (std::int64_t t = 0; t < m.T; ++t)
          for (std::int64_t j = 0; j < b.width; ++j)
            wide.hash_ids.push_back(j < row.top_k ? b.hash_ids[static_cast<std::size_t>(t * row.top_k + j)] : 0);
        outside = wide.route(s);
      }
      Chosen inside;
      const auto out = b.apply_logits(s.layer.get(), inside);
      EXPECT_EQ(inside.ids, outside.ids);
      EXPECT_EQ(inside.weights, outside.weights);
      EXPECT_EQ(out, b.apply_topk(s.layer.get(), outside));
      EXPECT_NE(out, std::vector<std::byte>(out.size(), std::byte{0}));
    }
}

// Their weights lie after the routed experts: as if all were routed.
TEST(RouteApply, FusedSharedExpertsAreExpertsWithWeightOne) {
  const Model m = model_of(10, 3);
  const Batch b(m, 8, 5);
  const Steps fused = steps_of(m, {{"num_experts", 8}, {"routing", {{"num_fused_shared_experts", 2}}}});
  const Steps plain = steps_of(m, {{"num_experts", 10}, {"top_k", 5}});
  Chosen chosen;
  const auto out = b.apply_logits(fused.layer.get(), chosen);
  for (std::size_t t = 0; t < 7; ++t)
    for (std::size_t j = 0; j < 2; ++j) {
      EXPECT_EQ(chosen.ids[t * 5 + 3 + j], static_cast<std::int32_t>(8 + j));
      EXPECT_EQ(chosen.weights[t * 5 + 3 + j], 1.0f);
    }
  EXPECT_EQ(out, b.apply_topk(plain.layer.get(), chosen));
  std::vector<std::uint64_t> counts(10);
  ASSERT_EQ(moe_layer_expert_counts(fused.layer.get(), counts.data(), 10, 0, nullptr), MOE_OK);
  EXPECT_EQ(counts[8], 7u);
  EXPECT_EQ(counts[9], 7u);
}

TEST(RouteApply, Llama4WeighsTheInput) {
  const Model m = model_of(8, 1);
  const Batch b(m, 8, 1);
  const Json routing = {{"scoring_func", "sigmoid"}, {"renormalize", false}};
  const Steps on_input = steps_of(m, {{"routing", routing}, {"apply_router_weight_on_input", true}});
  const Steps plain = steps_of(m, {{"routing", routing}});
  Chosen chosen;
  const auto out = b.apply_logits(on_input.layer.get(), chosen);
  Batch scaled = b;
  std::vector<float> x = floats(m.x);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] *= chosen.weights[i / 64];
  scaled.m.x = bytes_of(x);
  EXPECT_EQ(out, scaled.apply_topk(plain.layer.get(), {chosen.ids, std::vector<float>(7, 1.0f)}));
  EXPECT_NE(out, b.apply_topk(plain.layer.get(), chosen));  // it is not the weight on the output
}

// Weights on the input have values of its type, as Llama 4's do.
TEST(RouteApply, WeightsOnTheInputAreOfItsType) {
  const Json changes = {{"routing", {{"scoring_func", "sigmoid"}, {"renormalize", false}}},
                        {"apply_router_weight_on_input", true},
                        {"router_logits_dtype", "float32"}};
  const auto weights = [&](const char* dtype) {
    const Model m = model_of(8, 1, dtype);
    const Batch b(m, 8, 1);
    Json all = changes;
    all["num_experts"] = 8;
    return b.route(steps_of(m, all)).weights;
  };
  const std::vector<float> exact = weights("float32"), rounded = weights("bfloat16");
  ASSERT_EQ(exact.size(), rounded.size());
  EXPECT_NE(exact, rounded);
  for (std::size_t i = 0; i < exact.size(); ++i) EXPECT_EQ(rounded[i], bf16_to_f32(f32_to_bf16(exact[i]))) << i;
}

// A shared expert gets the token as it is, also where the routed one gets it weighed.
TEST(RouteApply, SharedExpertsSeeTheUnweighedInput) {
  const Model m = model_of(9, 1);
  const Batch b(m, 8, 2), one(m, 9, 1);
  const Steps fused = steps_of(m, {{"num_experts", 8},
                                   {"routing", {{"scoring_func", "sigmoid"}, {"num_fused_shared_experts", 1}}},
                                   {"apply_router_weight_on_input", true}});
  const Steps plain = steps_of(m, {{"apply_router_weight_on_input", true}});
  Chosen chosen;
  std::vector<float> sum = floats(b.apply_logits(fused.layer.get(), chosen));
  Chosen routed{{}, {}};
  for (std::size_t t = 0; t < 7; ++t) {
    routed.ids.push_back(chosen.ids[t * 2]);
    routed.weights.push_back(chosen.weights[t * 2] * 0.5f);
    chosen.weights[t * 2] = routed.weights.back();
  }
  const auto mixed = floats(b.apply_topk(fused.layer.get(), chosen));
  const auto first = floats(one.apply_topk(plain.layer.get(), routed));
  const auto second =
      floats(one.apply_topk(plain.layer.get(), {std::vector<std::int32_t>(7, 8), std::vector<float>(7, 1.0f)}));
  for (std::size_t i = 0; i < mixed.size(); ++i) ASSERT_EQ(mixed[i], first[i] + second[i]) << i;
}

// --- the bias of a layer ------------------------------------------------------------------------------------

TEST(RouteApply, BiasFromOptionCheckpointOrNowhere) {
  const Model m = model_of(8, 2);
  const Batch b(m, 8, 2);
  const std::vector<float> bias = {0, 3, 0, 0, 2, 0, 0, 0}, other(8, 1.0f);
  const Json wants = {{"routing", {{"scoring_func", "sigmoid"}, {"e_score_correction_bias", true}}}};
  const moe_tensor tensor_of_bias = tensor(MOE_DTYPE_F32, {8}, bias.data()),
                   another = tensor(MOE_DTYPE_F32, {1, 8}, other.data());
  const auto load = [&](moe_weights* w) {
    const TempDir dir;
    SafetensorsWriter file;
    file.add("model.layers.0.mlp.gate.e_score_correction_bias", "F32", {8}, bias.data(), 32);
    const std::string path = dir.write("model.safetensors", file.bytes());
    ASSERT_EQ(moe_weights_load_safetensors(w, path.c_str(), nullptr, nullptr), MOE_OK);
  };
  const Steps by_option = steps_of(m, wants, {&tensor_of_bias, {}}), by_file = steps_of(m, wants, {nullptr, load}),
              repeated = steps_of(m, wants, {&tensor_of_bias, load}), nowhere = steps_of(m, wants);
  const Chosen want = b.route(by_option, &tensor_of_bias);
  for (const Steps* s : {&by_option, &by_file, &repeated}) {
    Chosen chosen;
    b.apply_logits(s->layer.get(), chosen);
    EXPECT_EQ(chosen.ids, want.ids);
    EXPECT_EQ(chosen.weights, want.weights);
  }
  for (std::size_t t = 0; t < 7; ++t) EXPECT_EQ(want.ids[t * 2], 1);

  Call c(m);  // the layer is there; the first call that routes says what it lacks
  const moe_tensor l = b.logits_tensor();
  c.args.mode = MOE_APPLY_ROUTER_LOGITS;
  c.args.router_logits = &l;
  c.args.topk_ids = c.args.topk_weights = nullptr;
  Failure f = failure([&](moe_error** e) { return moe_apply(nowhere.layer.get(), &c.args, e); });
  EXPECT_EQ(f.status, MOE_ERR_MISSING_WEIGHT);
  EXPECT_EQ(f.subject, "correction_bias");
  EXPECT_TRUE(c.untouched());
  EXPECT_EQ(b.apply_topk(nowhere.layer.get(), want), b.apply_topk(by_option.layer.get(), want));

  moe_layer_options two{sizeof two, 0, &another, nullptr, 0};
  f = failure([&](moe_error** e) {
    moe_layer* layer = nullptr;
    return moe_layer_create(nullptr, by_file.selection.get(), by_file.packed.get(), &two, &layer, e);
  });
  EXPECT_EQ(f.status, MOE_ERR_UNEXPECTED_WEIGHT);
  EXPECT_EQ(f.subject, "correction_bias");
}

// --- refusals --------------------------------------------------------------------------------------------------

TEST(RouteApply, CustomRoutesOutside) {
  const Model m = model_of(8, 2);
  const Batch b(m, 8, 2);
  const Steps s = steps_of(m, {{"routing", {{"method", "custom"}}}});
  Call c(m);
  const moe_tensor l = b.logits_tensor();
  c.args.mode = MOE_APPLY_ROUTER_LOGITS;
  c.args.router_logits = &l;
  c.args.topk_ids = c.args.topk_weights = nullptr;
  const Failure f = failure([&](moe_error** e) { return moe_apply(s.layer.get(), &c.args, e); });
  EXPECT_EQ(f.status, MOE_ERR_UNSUPPORTED);
  EXPECT_EQ(f.subject, "/routing/method");
  EXPECT_TRUE(c.untouched());
  EXPECT_NE(b.apply_topk(s.layer.get(), {m.ids, m.weights}), c.out);
}

TEST(RouteApply, HashIdsAreWantedAndChecked) {
  const Model m = model_of(8, 2);
  const Batch b(m, 8, 2);
  const Steps s = steps_of(m, {{"routing", {{"hash_routing", true}}}});
  Call c(m);
  const moe_tensor l = b.logits_tensor();
  c.args.mode = MOE_APPLY_ROUTER_LOGITS;
  c.args.router_logits = &l;
  c.args.topk_weights = nullptr;
  c.args.topk_ids = nullptr;
  Failure f = failure([&](moe_error** e) { return moe_apply(s.layer.get(), &c.args, e); });
  EXPECT_EQ(f.status, MOE_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(f.subject, "topk_ids");
  std::vector<std::int32_t> ids = m.ids;
  ids[5] = -1;  // skipping is for mode TOPK
  const moe_tensor bad = tensor(MOE_DTYPE_I32, {m.T, m.K}, ids.data());
  c.args.topk_ids = &bad;
  f = failure([&](moe_error** e) { return moe_apply(s.layer.get(), &c.args, e); });
  EXPECT_EQ(f.subject, "topk_ids[2,1]");
  EXPECT_TRUE(c.untouched());
  std::vector<std::byte> flat(m.io_bytes());
  EXPECT_EQ(moe_apply_flat(s.layer.get(), m.T, MOE_DTYPE_F32, m.x.data(), MOE_DTYPE_F32, b.logits.data(), m.ids.data(),
                           nullptr, MOE_DTYPE_F32, flat.data(), nullptr),
            MOE_OK);
  Batch with_ids = b;
  with_ids.hash_ids = m.ids;
  Chosen chosen;
  EXPECT_EQ(with_ids.apply_logits(s.layer.get(), chosen), flat);
}

TEST(RouteApply, IdsOfZeroExpertsEndAtTheirNumber) {
  const Model m = model_of(8, 2);
  const Batch b(m, 11, 2);
  const Steps s = steps_of(m, {{"routing", {{"num_zero_experts", 3}, {"e_score_correction_bias", true}}}});
  std::vector<std::int32_t> ids = m.ids;
  ids[3] = 10;
  EXPECT_NE(b.apply_topk(s.layer.get(), {ids, m.weights}), b.apply_topk(s.layer.get(), {m.ids, m.weights}));
  ids[3] = 11;
  Call c(m);
  c.ids.data = ids.data();
  const Failure f = failure([&](moe_error** e) { return moe_apply(s.layer.get(), &c.args, e); });
  EXPECT_EQ(f.status, MOE_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(f.subject, "topk_ids[1,1]");
}

// A factor on the output: the caller's weights are without it, unless the config says that they hold it.
TEST(RouteApply, TheFactorCountsOnce) {
  const Model m = model_of(8, 3);
  const Batch b(m, 8, 3);
  const auto routed = [](Json more) {
    Json r = {{"scoring_func", "sigmoid"}, {"routed_scaling_factor", 2.0}, {"apply_routed_scale_to_output", true}};
    r.update(more);
    return Json{{"routing", r}};
  };
  const Steps outside = steps_of(m, routed(Json::object())),
              no = steps_of(m, routed({{"topk_weights_hold_factor", false}})),
              held = steps_of(m, routed({{"topk_weights_hold_factor", true}}));
  const Chosen plain = b.route(outside), with_factor = b.route(held);
  EXPECT_EQ(plain.ids, with_factor.ids);
  for (std::size_t i = 0; i < plain.weights.size(); ++i) EXPECT_EQ(2 * plain.weights[i], with_factor.weights[i]);
  const auto want = b.apply_topk(outside.layer.get(), plain);
  EXPECT_EQ(b.apply_topk(no.layer.get(), plain), want);
  EXPECT_EQ(b.apply_topk(held.layer.get(), with_factor), want);  // twice the weights: exact
  EXPECT_NE(b.apply_topk(outside.layer.get(), with_factor), want);
  Chosen inside;
  EXPECT_EQ(b.apply_logits(outside.layer.get(), inside), want);
  EXPECT_EQ(b.apply_logits(held.layer.get(), inside), want);
  EXPECT_EQ(inside.weights, with_factor.weights);
}

// An id that the caller uses for "none", as -1.
TEST(RouteApply, SkipIdSkips) {
  const Model m = model_of(8, 3);
  const Batch b(m, 8, 3);
  for (const std::int32_t skip : {8, 77, std::numeric_limits<std::int32_t>::max()}) {
    const Steps s = steps_of(m, {{"routing", {{"skip_id", skip}}}});
    Chosen minus{m.ids, m.weights}, named = minus;
    for (std::size_t i = 0; i < m.ids.size(); i += 4) {
      minus.ids[i] = -1;
      named.ids[i] = skip;
      named.weights[i] = std::numeric_limits<float>::quiet_NaN();
    }
    const auto want = b.apply_topk(s.layer.get(), minus);
    EXPECT_EQ(b.apply_topk(s.layer.get(), named), want) << skip;
    EXPECT_NE(b.apply_topk(s.layer.get(), {m.ids, m.weights}), want);
    named.ids[5] = skip == 8 ? 9 : 8;
    Call c(m);
    c.ids.data = named.ids.data();
    const Failure f = failure([&](moe_error** e) { return moe_apply(s.layer.get(), &c.args, e); });
    EXPECT_EQ(f.status, MOE_ERR_INVALID_ARGUMENT);
    EXPECT_EQ(f.subject, "topk_ids[1,2]");
    EXPECT_NE(f.message.find("nor skip_id, " + std::to_string(skip)), std::string::npos) << f.message;
    EXPECT_TRUE(c.untouched());
  }
}

// It is no zero expert either, whose part is the token itself.
TEST(RouteApply, SkipIdBesideZeroExperts) {
  const Model m = model_of(8, 2);
  const Batch b(m, 11, 2);
  const Steps s =
      steps_of(m, {{"routing", {{"num_zero_experts", 3}, {"e_score_correction_bias", true}, {"skip_id", 11}}}});
  std::vector<std::int32_t> minus = m.ids, named = m.ids;
  minus[3] = -1;
  named[3] = 11;
  EXPECT_EQ(b.apply_topk(s.layer.get(), {named, m.weights}), b.apply_topk(s.layer.get(), {minus, m.weights}));
}

}  // namespace
}  // namespace moe::test::route_apply_test
