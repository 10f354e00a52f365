// bit_compat vllm: the routing of vLLM's CPU_INT4 experts, against its own vectors.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "support/rooms.h"
#include "support/routing.h"
#include "support/vectors.h"

namespace moe::test::route_vllm_test {
namespace {

Config vllm_config(std::int64_t experts, std::int64_t k, bool renormalize) {
  Config c = route_config(experts, k, renormalize);
  c.bit_compat = Policy::vllm;
  QuantArgs weights, activations;
  weights.num_bits = 4;
  weights.strategy = Strategy::channel;
  activations.strategy = Strategy::token;
  activations.dynamic = Dynamic::yes;
  c.quantization.weights = weights;
  c.quantization.input_activations = activations;
  EXPECT_TRUE(c.quantization.is_w4a8_int8());
  return c;
}

// One unit in the last place of a value of the dtype.
float ulp(DType dtype, float x) {
  const int bits = dtype == DType::bf16 ? 8 : 11, smallest = dtype == DType::bf16 ? -133 : -24;
  int exponent = 0;
  (void)std::frexp(x, &exponent);
  return std::ldexp(1.0f, std::max(exponent - bits, smallest));
}

// The config of a case of the file, its bias inline.
Config config_of(const VecFile& file, const nlohmann::json& k) {
  const std::string name = k["name"];
  Config c = vllm_config(file.at(name + ".logits").shape[1], k["top_k"], k["renormalize"]);
  const double factor = k.value("routed_scaling_factor", 1.0);
  c.routing.routed_scaling_factor = k.contains("num_expert_group") ? factor : 2.5;  // ignored without groups
  if (k.contains("num_expert_group")) c = with_groups(c, k["num_expert_group"], k["topk_group"]);
  if (file.has(name + ".e_score_correction_bias"))
    c = with_bias(c, file.at(name + ".e_score_correction_bias").floats());
  return c;
}

// vLLM's order of the k experts is its own: each of ours is looked up in its row.
void expect_same_sets(const VecFile& file, const std::string& name, const Routed& r, std::int64_t top_k, bool grouped) {
  const VecTensor& logits = file.at(name + ".logits");
  const auto ids = file.at(name + ".ids").as<std::int32_t>();
  const auto weights = file.at(name + ".weights").floats();
  ASSERT_EQ(r.ids.size(), ids.size()) << name;
  for (std::int64_t t = 0; t < logits.shape[0]; ++t)
    for (std::int64_t j = 0; j < top_k; ++j) {
      const auto mine = static_cast<std::size_t>(t * top_k + j);
      const auto* begin = ids.data() + t * top_k;
      const auto* at = std::find(begin, begin + top_k, r.ids[mine]);
      ASSERT_NE(at, begin + top_k) << name << " token " << t;
      const float want = weights[static_cast<std::size_t>(at - ids.data())];
      const float bound = logits.dtype == DType::f32 || grouped ? 2e-6f * want : ulp(logits.dtype, want);
      EXPECT_LE(std::abs(r.weights[mine] - want), bound) << name << " token " << t;
    }
}

TEST(RouteVllm, AllCasesOfTheUpstreamOracle) {
  const VecFile file = load_vectors("w4a8_int8/routing.safetensors");
  int plain = 0, sixteen_bit_default = 0, grouped = 0, biased = 0;
  for (const auto& k : nlohmann::json::parse(file.meta.at("cases"))) {
    const std::string name = k["name"];
    const VecTensor& logits = file.at(name + ".logits");
    const Config c = config_of(file, k);
    const bool has_groups = c.routing.num_expert_group.has_value();
    for (const RouteKernel* kernel : runnable_route_kernels())
      expect_same_sets(
          file, name, route_batch(c, {logits.dtype, logits.data, logits.shape[0], logits.shape[1]}, {.kernel = kernel}),
          c.top_k, has_groups);
    ++(has_groups ? grouped : plain);
    if (c.routing.has_bias) ++biased;
    if (logits.dtype != DType::f32 && !k["renormalize"] && !has_groups) ++sixteen_bit_default;
  }
  EXPECT_EQ(plain, 18);
  EXPECT_EQ(sixteen_bit_default, 6);
  EXPECT_EQ(grouped, 16);
  EXPECT_GT(biased, 0);
}

TEST(RouteVllm, OnlyForItsOwnWeights) {
  const Logits l = logits_of({0.1f, 1.7f, -0.3f, 0.9f}, 4, DType::bf16);
  Config own = vllm_config(4, 2, false), other = own;
  other.quantization.weights->num_bits = 8;  // bit_compat vllm without the layer it is about
  Config plain = own;
  plain.bit_compat = Policy::libmoe;
  const Routed a = route_batch(own, l), b = route_batch(other, l), c = route_batch(plain, l);
  EXPECT_FALSE(a == c);
  EXPECT_TRUE(b == c);
  for (float w : a.weights) EXPECT_EQ(w, bf16_to_f32(f32_to_bf16(w)));  // values of the logits' dtype
}

TEST(RouteVllm, WithoutGroupsBiasAndFactorAreIgnored) {
  const std::vector<float> logits = {0.1f, 1.7f, -0.3f, 0.9f};
  const Config plain = vllm_config(4, 2, true);
  Config rich = with_bias(plain, {9, 0, 0, 0});
  rich.routing.routed_scaling_factor = 3.0;
  EXPECT_TRUE(route_floats(rich, logits) == route_floats(plain, logits));
  rich.routing.bias.clear();  // not even asked for
  EXPECT_TRUE(route_floats(rich, logits) == route_floats(plain, logits));
}

// What vLLM's experts would get wrong is routed as the model says.
TEST(RouteVllm, OtherScoresAndZeroExpertsAreRoutedAsWritten) {
  const Logits l = logits_of({0.1f, 1.7f, -0.3f, 0.9f, 0.2f, 0.3f}, 6, DType::bf16);
  for (int what = 0; what < 3; ++what) {
    Config c = vllm_config(6, 2, true);
    if (what == 0) c.routing.scoring = Scoring::sigmoid;
    if (what == 1) c.routing.method = RoutingMethod::topk;
    if (what == 2) {
      c.num_experts = 4;
      c.routing.num_zero_experts = 2;
      c = with_bias(c, {0, 0, 0, 0, 1, 0});
    }
    Config libmoe = c;
    libmoe.bit_compat = Policy::libmoe;
    EXPECT_TRUE(route_batch(c, l) == route_batch(libmoe, l)) << what;
  }
}

TEST(RouteVllm, NonFiniteRowsGiveFiniteWeights) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (bool renormalize : {true, false}) {
      const Config c = vllm_config(4, 2, renormalize);
      const std::vector<float> rows = {kInf, 1, 2, 3, kNaN, kNaN, kNaN, kNaN, -kInf, 5, kNaN, -kInf, kInf, 0, kInf, 0};
      const Routed r = route_batch(c, logits_of(rows, 4, dtype));
      EXPECT_EQ(r.ids, (std::vector<std::int32_t>{0, 3, 0, 1, 1, 0, 0, 2}));
      for (float w : r.weights) EXPECT_TRUE(w >= 0 && w <= 1) << w;
      EXPECT_EQ(r.weights[0], 1.0f);
      EXPECT_EQ(r.weights[2], 0.0f);
      EXPECT_EQ(r.weights[4], 1.0f);
    }
}

}  // namespace
}  // namespace moe::test::route_vllm_test
