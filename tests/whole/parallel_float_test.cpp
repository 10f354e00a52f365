// Simulated ranks of an unquantized layer, each loading its share of one checkpoint file: linear and round robin expert
// parallelism, redundant experts, tensor parallelism against the single rank.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "support/capi.h"
#include "support/rooms.h"
#include "support/safetensors_writer.h"

namespace moe::test::parallel_float_test {
namespace {

constexpr std::int64_t kExperts = 5, kHidden = 48, kInter = 32, kTokens = 9, kTopK = 3;

struct FloatCheckpoint {
  TempDir dir;
  std::vector<float> x, weights;
  std::vector<std::int32_t> ids;

  FloatCheckpoint() {
    std::mt19937 rng(5);
    std::normal_distribution<float> normal;
    const auto values = [&](std::int64_t n, float scale) {
      std::vector<float> v(static_cast<std::size_t>(n));
      for (float& f : v) f = normal(rng) * scale;
      return v;
    };
    SafetensorsWriter file;
    const auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
      std::int64_t n = 1;
      for (const std::int64_t d : shape) n *= d;
      const std::vector<float> v = values(n, 0.2f);
      file.add(name, "F32", shape, v.data(), v.size() * 4);
    };
    for (std::int64_t e = 0; e < kExperts; ++e) {
      const std::string at = "model.layers.0.mlp.experts." + std::to_string(e);
      for (const char* p : {".gate_proj", ".up_proj"}) {
        add(at + p + ".weight", {kInter, kHidden});
        add(at + p + ".bias", {kInter});
      }
      add(at + ".down_proj.weight", {kHidden, kInter});
      add(at + ".down_proj.bias", {kHidden});
    }
    dir.write("model.safetensors", file.bytes());
    x = values(kTokens * kHidden, 1.0f);
    for (std::int64_t t = 0; t < kTokens; ++t)
      for (std::int64_t j = 0; j < kTopK; ++j) {
        ids.push_back(static_cast<std::int32_t>((t + j * (1 + t % 2)) % kExperts));
        weights.push_back(0.3f + static_cast<float>(j) * 0.2f);
      }
  }
};

LayerPtr rank_layer(const FloatCheckpoint& c, const nlohmann::json& parallel) {
  const std::string text = nlohmann::json{
      {"num_experts", kExperts},
      {"top_k", kTopK},
      {"hidden_dim", kHidden},
      {"intermediate_size", kInter},
      {"has_bias", true},
      {"in_dtype", "float32"},
      {"name", "model.layers.0.mlp.experts"},
      {"parallel", parallel}}.dump();
  const ConfigPtr config = make_config(text);
  const SelectionPtr selection = make_selection(config.get());
  const WeightsPtr weights =
      make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(config.get(), o, e); });
  const Failure loaded = failure(
      [&](moe_error** e) { return moe_weights_load_safetensors(weights.get(), c.dir.path().c_str(), nullptr, e); });
  EXPECT_EQ(loaded.status, MOE_OK) << loaded.message;
  const PackedPtr packed = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
    return moe_convert_weights(nullptr, selection.get(), weights.get(), nullptr, o, e);
  });
  return make<LayerPtr>([&](moe_layer** o, moe_error** e) {
    return moe_layer_create(nullptr, selection.get(), packed.get(), nullptr, o, e);
  });
}

std::vector<float> run_layer(const FloatCheckpoint& c, const LayerPtr& layer, std::vector<float> out = {}) {
  const bool accumulate = !out.empty();
  out.resize(c.x.size());
  const moe_tensor hidden = tensor(MOE_DTYPE_F32, {kTokens, kHidden}, c.x.data()),
                   ids = tensor(MOE_DTYPE_I32, {kTokens, kTopK}, c.ids.data()),
                   weights = tensor(MOE_DTYPE_F32, {kTokens, kTopK}, c.weights.data());
  moe_tensor result = tensor(MOE_DTYPE_F32, {kTokens, kHidden}, out.data());
  moe_apply_args a{};
  a.struct_size = sizeof a;
  a.mode = MOE_APPLY_TOPK;
  a.flags = accumulate ? MOE_APPLY_ACCUMULATE : 0;
  a.hidden = &hidden;
  a.topk_ids = &ids;
  a.topk_weights = &weights;
  a.out = &result;
  const Failure f = failure([&](moe_error** e) { return moe_apply(layer.get(), &a, e); });
  EXPECT_EQ(f.status, MOE_OK) << f.message;
  return out;
}

void expect_near(const std::vector<float>& got, const std::vector<float>& want) {
  for (std::size_t i = 0; i < want.size(); ++i)
    ASSERT_LE(std::fabs(got[i] - want[i]), 2e-6f * (1.0f + std::fabs(want[i]))) << i;
}

TEST(ParallelFloat, LinearRanksInOrderAccumulateToTheBitsOfOne) {
  const FloatCheckpoint c;
  const std::vector<float> want = run_layer(c, rank_layer(c, nlohmann::json::object()));
  for (const int ranks : {2, 4}) {
    std::vector<float> out(c.x.size(), 0.0f);
    for (int r = 0; r < ranks; ++r)
      out = run_layer(c, rank_layer(c, {{"tp_size", ranks}, {"tp_rank", r}, {"enable_expert_parallel", true}}), out);
    EXPECT_EQ(out, want) << ranks;
  }
}

TEST(ParallelFloat, RoundRobinRedundantAndTensorShardsSumToOne) {
  const FloatCheckpoint c;
  const std::vector<float> want = run_layer(c, rank_layer(c, nlohmann::json::object()));
  const std::vector<std::pair<int, nlohmann::json>> placements = {
      {2, {{"enable_expert_parallel", true}, {"expert_placement_strategy", "round_robin"}}},
      {4, {{"enable_expert_parallel", true}, {"expert_placement_strategy", "round_robin"}}},
      {2, {{"enable_expert_parallel", true}, {"enable_eplb", true}, {"num_redundant_experts", 1}}},
      {4, {{"enable_expert_parallel", true}, {"enable_eplb", true}, {"num_redundant_experts", 7}}},
      {2, nlohmann::json::object()},
      {4, nlohmann::json::object()},
  };
  for (const auto& [ranks, how] : placements) {
    SCOPED_TRACE(how.dump() + " ranks " + std::to_string(ranks));
    std::vector<float> sum(c.x.size(), 0.0f);
    for (int r = 0; r < ranks; ++r) {
      nlohmann::json parallel = how;
      parallel["tp_size"] = ranks;
      parallel["tp_rank"] = r;
      const std::vector<float> part = run_layer(c, rank_layer(c, parallel));
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
    }
    expect_near(sum, want);
  }
}

}  // namespace
}  // namespace moe::test::parallel_float_test
