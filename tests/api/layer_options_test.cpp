// Experts' scales and the norm of their output, inline in a config and from a file, through the C functions: what a
// caller gets, what is kept in packed weights, and what is refused. Columns of logits that shared experts have.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "support/capi.h"
#include "support/rooms.h"
#include "support/safetensors_writer.h"

namespace moe::test::layer_options_test {
namespace {

using Json = nlohmann::json;
using Floats = std::vector<float>;

Floats random_floats(std::size_t n, std::uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  Floats v(n);
  for (float& f : v) f = normal(rng);
  return v;
}

// The steps of a model whose document is changed; `file`: a checkpoint with what lies beside the experts.
Steps steps_of(const Model& m, const Json& changes, const std::string& file = "") {
  Json document = Json::parse(m.config_text());
  document.merge_patch(changes);
  Steps s;
  s.context = make_context("{\"threads\":2}");
  s.config = make_config(document.dump());
  s.selection = make_selection(s.config.get(), s.context.get());
  s.weights = make_weights(s.config.get(), m);
  if (!file.empty()) {
    const Failure f =
        failure([&](moe_error** e) { return moe_weights_load_safetensors(s.weights.get(), file.c_str(), nullptr, e); });
    EXPECT_EQ(f.status, MOE_OK) << f.message;
  }
  s.packed = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
    return moe_convert_weights(s.context.get(), s.selection.get(), s.weights.get(), nullptr, o, e);
  });
  return s;
}
Failure make_layer(Steps& s, const moe_packed* packed) {
  moe_layer* layer = nullptr;
  const Failure f = failure(
      [&](moe_error** e) { return moe_layer_create(s.context.get(), s.selection.get(), packed, nullptr, &layer, e); });
  s.layer.reset(layer);
  return f;
}

// One call of mode ROUTER_LOGITS, or of mode TOPK with the model's ids.
Failure apply(const Steps& s, const Model& m, const Floats* logits, Floats& out) {
  Call c(m);
  const std::int64_t columns = logits == nullptr ? 0 : std::ssize(*logits) / m.T;
  const moe_tensor l = tensor(MOE_DTYPE_F32, {m.T, columns}, logits == nullptr ? nullptr : logits->data());
  if (logits != nullptr) {
    c.args.mode = MOE_APPLY_ROUTER_LOGITS;
    c.args.router_logits = &l;
    c.args.topk_ids = c.args.topk_weights = nullptr;
  }
  const Failure f = failure([&](moe_error** e) { return moe_apply(s.layer.get(), &c.args, e); });
  out = floats_of(c.out, MOE_DTYPE_F32);
  return f;
}

struct Routed {
  Failure failed;
  std::vector<std::int32_t> ids;
  Floats weights;
};
Routed route(const Steps& s, const Model& m, const Floats& logits) {
  const auto n = static_cast<std::size_t>(m.T * m.K);
  Routed r{{}, std::vector<std::int32_t>(n), Floats(n)};
  const moe_tensor l = tensor(MOE_DTYPE_F32, {m.T, std::ssize(logits) / m.T}, logits.data()),
                   i = tensor(MOE_DTYPE_I32, {m.T, m.K}, r.ids.data()),
                   w = tensor(MOE_DTYPE_F32, {m.T, m.K}, r.weights.data());
  const moe_route_args args{sizeof args, 0, &l, nullptr, &i, &w};
  r.failed = failure([&](moe_error** e) { return moe_route(s.context.get(), s.config.get(), &args, e); });
  return r;
}

TEST(LayerOptions, ScalesOfExperts) {
  Model m = random_model();
  const Floats logits = random_floats(static_cast<std::size_t>(m.T * m.E), 3), scale = {2, -0.5f, 3, 0.125f};
  Steps plain = steps_of(m, Json::object()), scaled = steps_of(m, {{"routing", {{"expert_scale", scale}}}});
  ASSERT_EQ(make_layer(plain, plain.packed.get()).status, MOE_OK);
  ASSERT_EQ(make_layer(scaled, scaled.packed.get()).status, MOE_OK);
  const Routed before = route(plain, m, logits), after = route(scaled, m, logits);
  ASSERT_EQ(after.failed.status, MOE_OK);
  EXPECT_EQ(before.ids, after.ids);
  for (std::size_t i = 0; i < before.ids.size(); ++i)
    EXPECT_EQ(after.weights[i], before.weights[i] * scale[static_cast<std::size_t>(before.ids[i])]);
  Floats inside, outside;
  ASSERT_EQ(apply(scaled, m, &logits, inside).status, MOE_OK);
  m.ids = after.ids, m.weights = after.weights;  // a caller's weights are taken as they are
  ASSERT_EQ(apply(scaled, m, nullptr, outside).status, MOE_OK);
  EXPECT_EQ(inside, outside);
  ASSERT_EQ(apply(plain, m, nullptr, outside).status, MOE_OK);
  EXPECT_EQ(inside, outside);
}

TEST(LayerOptions, NormOfExperts) {
  Model m = random_model();
  for (std::size_t i = 0; i < m.ids.size(); ++i) {  // a slot a token, of weight 1: what an expert gives
    m.weights[i] = 1.0f;
    if (i % 2 == 1) m.ids[i] = -1;
  }
  const Floats norm = random_floats(static_cast<std::size_t>(m.H), 4);
  Steps plain = steps_of(m, Json::object()), normed = steps_of(m, {{"expert_norm", norm}, {"expert_norm_eps", 1e-6}});
  ASSERT_EQ(make_layer(plain, plain.packed.get()).status, MOE_OK);
  ASSERT_EQ(make_layer(normed, normed.packed.get()).status, MOE_OK);
  Floats y, got;
  ASSERT_EQ(apply(plain, m, nullptr, y).status, MOE_OK);
  ASSERT_EQ(apply(normed, m, nullptr, got).status, MOE_OK);
  const auto width = static_cast<std::size_t>(m.H);
  for (std::size_t t = 0; t < static_cast<std::size_t>(m.T); ++t) {
    double squares = 0;
    const auto value = [&](std::size_t i) {
      return static_cast<double>(y[t * width + i]) * (1 + static_cast<double>(norm[i]));
    };
    for (std::size_t i = 0; i < width; ++i) squares += value(i) * value(i);
    for (std::size_t i = 0; i < width; ++i) {
      const double want = value(i) / std::sqrt(squares / static_cast<double>(width) + 1e-6);
      ASSERT_NEAR(static_cast<double>(got[t * width + i]), want, 2e-6 * (1 + std::abs(want)));
    }
  }
  // Weights that were packed for another norm, or for none.
  for (auto [layer, packed] : {std::pair{&normed, &plain}, std::pair{&plain, &normed}}) {
    const Failure f = make_layer(*layer, packed->packed.get());
    EXPECT_EQ(f.status, MOE_ERR_CONFIG_MISMATCH);
    EXPECT_EQ(f.subject, "/expert_norm");
  }
}

// Both by the names of their tensors: the file's are kept in the packed weights, also in a file of those.
TEST(LayerOptions, FromACheckpoint) {
  const Model m = random_model();
  const TempDir dir;
  const Floats scale = {2, -0.5f, 3, 0.125f}, norm = random_floats(static_cast<std::size_t>(m.H), 4);
  const Floats logits = random_floats(static_cast<std::size_t>(m.T * m.E), 3);
  SafetensorsWriter w;
  w.add("model.layers.0.mlp.router.scale", "F32", {m.E}, scale.data(), scale.size() * 4);
  w.add("model.layers.0.mlp.experts.norm.weight", "F32", {m.H}, norm.data(), norm.size() * 4);
  const std::string file = dir.write("model.safetensors", w.bytes()), saved = dir.file("layer.moe");
  const Json names = {{"expert_norm", "experts.norm.weight"}, {"routing", {{"expert_scale", "router.scale"}}}},
             inlined = {{"expert_norm", norm}, {"routing", {{"expert_scale", scale}}}};
  Steps by_file = steps_of(m, names, file), by_text = steps_of(m, inlined), nowhere = steps_of(m, names);
  ASSERT_EQ(make_layer(by_file, by_file.packed.get()).status, MOE_OK);
  ASSERT_EQ(make_layer(by_text, by_text.packed.get()).status, MOE_OK);
  Floats want, got;
  ASSERT_EQ(apply(by_text, m, &logits, want).status, MOE_OK);
  ASSERT_EQ(apply(by_file, m, &logits, got).status, MOE_OK);
  EXPECT_EQ(got, want);
  ASSERT_EQ(moe_packed_save(by_file.packed.get(), saved.c_str(), 0, nullptr, nullptr), MOE_OK);
  const PackedPtr loaded = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
    return moe_packed_load(by_file.context.get(), saved.c_str(), MOE_LOAD_VERIFY, nullptr, o, e);
  });
  ASSERT_EQ(make_layer(by_file, loaded.get()).status, MOE_OK);
  ASSERT_EQ(apply(by_file, m, &logits, got).status, MOE_OK);
  EXPECT_EQ(got, want);

  Failure f = make_layer(nowhere, nowhere.packed.get());
  EXPECT_EQ(f.status, MOE_ERR_MISSING_WEIGHT);
  EXPECT_EQ(f.subject, "expert_norm");
  Json scale_only = names;
  scale_only.erase("expert_norm");
  Steps no_scale = steps_of(m, scale_only);
  ASSERT_EQ(make_layer(no_scale, no_scale.packed.get()).status, MOE_OK);
  f = apply(no_scale, m, &logits, got);
  EXPECT_EQ(f.status, MOE_ERR_MISSING_WEIGHT);
  EXPECT_EQ(f.subject, "expert_scale");
  EXPECT_EQ(route(no_scale, m, logits).failed.status, MOE_ERR_MISSING_WEIGHT);
}

TEST(LayerOptions, LogitsOfSharedExperts) {
  Model m = random_model();
  Steps s = steps_of(m, {{"routing", {{"scoring_func", "sigmoid"}, {"num_shared_logits", 2}}}});
  ASSERT_EQ(make_layer(s, s.packed.get()).status, MOE_OK);
  const auto tokens = static_cast<std::size_t>(m.T), columns = static_cast<std::size_t>(m.E) + 2;
  const Floats logits = random_floats(tokens * columns, 3), few = random_floats(tokens * (columns - 2), 3);
  const Routed r = route(s, m, logits);
  ASSERT_EQ(r.failed.status, MOE_OK);
  const auto score = [&](std::size_t t, std::size_t e) {
    return 1 / (1 + std::exp(-static_cast<double>(logits[t * columns + e])));
  };
  for (std::size_t t = 0; t < tokens; ++t) {
    double sum = score(t, columns - 2) + score(t, columns - 1);
    for (std::size_t j = 0; j < 2; ++j) sum += score(t, static_cast<std::size_t>(r.ids[t * 2 + j]));
    for (std::size_t j = 0; j < 2; ++j)
      EXPECT_NEAR(static_cast<double>(r.weights[t * 2 + j]), score(t, static_cast<std::size_t>(r.ids[t * 2 + j])) / sum,
                  1e-6);
  }
  Floats inside, outside;
  ASSERT_EQ(apply(s, m, &logits, inside).status, MOE_OK);
  const Failure inner = apply(s, m, &few, outside), outer = route(s, m, few).failed;
  for (const Failure& f : {inner, outer}) {
    EXPECT_EQ(f.status, MOE_ERR_SHAPE);
    EXPECT_EQ(f.subject, "router_logits");
  }
  m.ids = r.ids, m.weights = r.weights;
  ASSERT_EQ(apply(s, m, nullptr, outside).status, MOE_OK);
  EXPECT_EQ(inside, outside);
}

}  // namespace
}  // namespace moe::test::layer_options_test
