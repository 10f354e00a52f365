// The ways of making weights that few models have (routing.md 14), against a plain float64 definition written here, on
// every instruction set of this machine; and where they meet other ways of routing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <vector>

#include "support/rooms.h"
#include "support/routing.h"
#include "support/share.h"

namespace moe::test::route_options_test {
namespace {

using nlohmann::json;
using Doubles = std::vector<double>;
using Indices = std::vector<std::size_t>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double sigmoid(double x) { return std::isnan(x) ? 0.0 : 1 / (1 + std::exp(-x)); }

// One token. `clear`: no two keys are so near that float32 could exchange them.
struct Plain {
  const Config& c;
  Doubles x, scores, keys, weights;
  Indices ids;
  bool clear = true;

  Plain(const Config& config, const std::vector<float>& row, const std::vector<float>& bias) : c(config) {
    const auto columns = static_cast<std::size_t>(c.router_columns());
    for (std::size_t e = 0; e < columns; ++e)
      x.push_back(std::isnan(row[e]) ? -kInfinity : static_cast<double>(std::min(row[e], kMaxFloat)));
    make_scores();
    const bool by_score = sums_two() || masks_zero();
    for (std::size_t e = 0; e < columns; ++e) {
      if (bias.empty()) keys.push_back(by_score ? scores[e] : x[e]);
      if (!bias.empty()) keys.push_back((c.routing.bias_on_logits ? x[e] : scores[e]) + static_cast<double>(bias[e]));
    }
    choose();
    weigh(row);
  }

  std::size_t groups() const {
    const bool some = c.routing.num_expert_group && c.routing.num_expert_group != c.routing.topk_group;
    return some ? static_cast<std::size_t>(*c.routing.num_expert_group) : 1;
  }
  bool sums_two() const {
    const GroupScoring how = c.routing.group_score;
    return groups() > 1 && (how == GroupScoring::two_largest || (how == GroupScoring::automatic && c.routing.has_bias));
  }
  bool masks_zero() const { return groups() > 1 && c.routing.masked_groups == MaskedGroups::zero; }

  void make_scores() {
    const double m = *std::max_element(x.begin(), x.end());
    double sum = 0;
    for (double v : x) sum += std::exp(v - m);
    for (double v : x) {
      if (c.routing.method == RoutingMethod::topk)
        scores.push_back(v);
      else if (c.routing.scoring == Scoring::softmax)
        scores.push_back(std::exp(v - m) / sum);
      else if (c.routing.scoring == Scoring::sigmoid)
        scores.push_back(sigmoid(v));
      else
        scores.push_back(std::sqrt(std::log1p(std::exp(v))));
    }
  }

  // The best n of `of`, the first of equal ones.
  Indices best(const Doubles& of, const Indices& among, std::size_t n) {
    Indices order = among;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return of[a] > of[b]; });
    for (std::size_t i = 0; i < std::min(n, order.size() - 1); ++i) {
      const double a = of[order[i]], b = of[order[i + 1]];
      const bool zeros = a == 0 && b == 0;  // keys of groups that do not stay
      if (!zeros && a - b < 4e-6 * std::max({std::abs(a), std::abs(b), 1e-3})) clear = false;
    }
    order.resize(n);
    return order;
  }

  void choose() {
    Indices all(x.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    const auto k = static_cast<std::size_t>(c.top_k);
    if (groups() == 1) {
      ids = best(keys, all, k);
      return;
    }
    const std::size_t per = x.size() / groups();
    Doubles of_groups;
    Indices numbers;
    for (std::size_t g = 0; g < groups(); ++g) {
      Doubles in(keys.begin() + static_cast<std::ptrdiff_t>(g * per),
                 keys.begin() + static_cast<std::ptrdiff_t>((g + 1) * per));
      std::sort(in.rbegin(), in.rend());
      of_groups.push_back(sums_two() ? in[0] + in[1] : in[0]);
      numbers.push_back(g);
    }
    const Indices kept = best(of_groups, numbers, static_cast<std::size_t>(*c.routing.topk_group));
    Indices among;
    for (const std::size_t e : all) {
      const bool stays = std::find(kept.begin(), kept.end(), e / per) != kept.end();
      if (!stays && masks_zero()) keys[e] = 0;
      if (stays || masks_zero()) among.push_back(e);
    }
    ids = best(keys, among, k);
  }

  void weigh(const std::vector<float>& row) {
    const RoutingConfig& r = c.routing;
    double sum = r.renormalize_eps;
    for (std::size_t e = x.size(); e < row.size(); ++e) sum += sigmoid(static_cast<double>(row[e]));
    for (const std::size_t e : ids) sum += scores[e];
    sum = std::max(sum, r.renormalize_min);
    const bool divides = r.renormalize && r.method != RoutingMethod::topk && sum > 0;
    for (const std::size_t e : ids) {
      double w = scores[e] / (divides ? sum : 1);
      if (!r.apply_routed_scale_to_output) w *= r.routed_scaling_factor;
      const std::vector<float>& scale = r.expert_scale.values;
      if (!scale.empty() && e < static_cast<std::size_t>(c.num_experts))
        w *= static_cast<double>(scale[scale.size() == 1 ? 0 : e]);
      weights.push_back(w);
    }
  }
};

std::int64_t between(std::mt19937& g, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(g);
}
bool chance(std::mt19937& g, int percent) { return between(g, 0, 99) < percent; }

std::vector<float> numbers(std::mt19937& g, std::size_t n, float spread) {
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> v(n);
  for (float& f : v) f = normal(g);
  return v;
}

json draw_document(std::mt19937& g) {
  constexpr const char* kScorings[] = {"softmax", "sigmoid", "sqrtsoftplus"};
  constexpr const char* kScores[] = {"auto", "largest", "two_largest"};
  const std::int64_t per = between(g, 2, 20), groups = between(g, 1, 8), kept = between(g, 1, groups);
  const std::int64_t experts = per * groups;
  json routing = {{"renormalize", chance(g, 60)}, {"scoring_func", kScorings[between(g, 0, 2)]}};
  std::int64_t zero = 0, most = experts;
  const bool raw = chance(g, 10), biased = chance(g, 50);
  if (raw) routing["method"] = "topk";
  if (chance(g, 60)) {
    routing["num_expert_group"] = groups;
    routing["topk_group"] = kept;
    routing["group_score"] = kScores[between(g, 0, 2)];
    if (chance(g, 50)) routing["masked_groups"] = "zero";
    most = per * kept;
  } else if (biased) {
    if (chance(g, 40)) routing["bias_on_logits"] = true;
    if (chance(g, 40)) {
      routing["num_zero_experts"] = zero = between(g, 1, 9);
      routing["zero_experts"] = chance(g, 50) ? "nothing" : "identity";
    }
  }
  if (!raw) {
    if (chance(g, 30)) routing["renormalize_eps"] = chance(g, 50) ? 0.25 : 1e-20;
    if (chance(g, 30)) routing["renormalize_min"] = chance(g, 50) ? 0.75 : 1e-12;
    const bool shared = routing["scoring_func"] == "sigmoid" && routing["renormalize"] == true && zero == 0;
    if (shared && chance(g, 60)) routing["num_shared_logits"] = between(g, 1, 5);
  }
  if (biased) routing["e_score_correction_bias"] = numbers(g, static_cast<std::size_t>(experts + zero), 0.3f);
  if (chance(g, 40)) routing["expert_scale"] = numbers(g, chance(g, 30) ? 1 : static_cast<std::size_t>(experts), 1.0f);
  if (chance(g, 40)) routing["routed_scaling_factor"] = 0.5 * static_cast<double>(between(g, 1, 9));
  return {{"num_experts", experts},
          {"top_k", between(g, 1, std::min<std::int64_t>(most, 12))},
          {"hidden_dim", 64},
          {"intermediate_size", 64},
          {"routing", routing}};
}

TEST(RouteOptions, AreTheDefinition) {
  std::mt19937 g(31);
  constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16};
  const auto kernels = runnable_route_kernels();
  int clear = 0, unclear = 0;
  for (int i = 0; i < rounds(4000); ++i) {
    const json document = draw_document(g);
    const Result<Config> made = parse_config(document.dump());
    ASSERT_TRUE(made) << document << made.error().message;
    const Config& c = *made;
    const auto columns = static_cast<std::size_t>(c.logit_columns()), k = static_cast<std::size_t>(c.top_k);
    constexpr std::size_t kTokens = 2;
    const Logits logits = logits_of(numbers(g, columns * kTokens, 2.0f), c.logit_columns(), kTypes[between(g, 0, 2)]);
    const Routed got = route_batch(c, logits, {.kernel = kernels.front()});
    for (const RouteKernel* kernel : kernels)
      ASSERT_TRUE(route_batch(c, logits, {.kernel = kernel}) == got) << document;
    const std::vector<float> x = widened(logits);
    for (std::size_t t = 0; t < kTokens; ++t) {
      const auto first = x.begin() + static_cast<std::ptrdiff_t>(t * columns);
      const Plain want(c, {first, first + static_cast<std::ptrdiff_t>(columns)}, c.routing.bias);
      ++(want.clear ? clear : unclear);
      for (std::size_t j = 0; j < k && want.clear; ++j) {
        ASSERT_EQ(got.ids[t * k + j], static_cast<std::int32_t>(want.ids[j])) << document << " slot " << j;
        const double w = want.weights[j], found = static_cast<double>(got.weights[t * k + j]);
        ASSERT_LE(std::abs(found - w), 1e-7 + 4e-6 * std::abs(w)) << document << " slot " << j;
      }
    }
  }
  EXPECT_GT(clear, 7 * unclear);
}

// Logits of shared experts that are no numbers count as others' do: NaN and -inf are nothing, +inf is 1.
TEST(RouteOptions, OddLogitsOfSharedExperts) {
  Config c = route_config(4, 2);
  c.routing.scoring = Scoring::sigmoid;
  c.routing.num_shared_logits = 2;
  const std::vector<float> row = {0, 0, -kInf, -kInf};
  const auto weight = [&](float a, float b, DType dtype) {
    std::vector<float> x = row;
    x.push_back(a), x.push_back(b);
    return route_batch(c, logits_of(x, 6, dtype)).weights[0];
  };
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    EXPECT_EQ(weight(kNaN, -kInf, dtype), 0.5f);
    EXPECT_EQ(weight(kNaN, kInf, dtype), 0.25f);
    EXPECT_EQ(weight(0, 0, dtype), 0.25f);
  }
}

// Rows of nothing: weights are 0, never NaN.
TEST(RouteOptions, RowsWithoutALogit) {
  for (const char* scoring : {"softmax", "sigmoid", "sqrtsoftplus"})
    for (const json& more :
         {json{{"renormalize_eps", 1e-20}}, json{{"renormalize_min", 1e-12}}, json{{"expert_scale", {3}}},
          json{{"num_expert_group", 2}, {"topk_group", 1}, {"masked_groups", "zero"}},
          json{{"num_expert_group", 2}, {"topk_group", 1}, {"group_score", "two_largest"}},
          json{{"e_score_correction_bias", json::array({1, 2, 3, 4})}, {"bias_on_logits", true}}}) {
      json d = {{"num_experts", 4}, {"top_k", 2}, {"hidden_dim", 64}, {"intermediate_size", 64}, {"routing", more}};
      d["routing"]["scoring_func"] = scoring;
      const Config c = *parse_config(d.dump());
      for (const float nothing : {kNaN, -kInf})
        for (const RouteKernel* kernel : runnable_route_kernels()) {
          const Routed r = route_floats(c, std::vector<float>(4, nothing), {.kernel = kernel});
          EXPECT_EQ(r.weights, std::vector<float>(2, 0.0f)) << d;
          for (const std::int32_t id : r.ids) EXPECT_TRUE(id >= 0 && id < 4) << d;
          EXPECT_NE(r.ids[0], r.ids[1]) << d;
        }
    }
}

// Experts' scales meet every way of making weights, and leave those alone that routing does not compute.
TEST(RouteOptions, ScalesOfEveryRule) {
  std::mt19937 g(7);
  const std::vector<float> x = numbers(g, 3 * 6, 2.0f), scale = {2, 0.5f, -3, 0.1f};
  Config plain = route_config(4, 2);
  std::vector<Config> all(6, plain);
  all[1].routing.hash_routing = true;
  all[2].routing.method = RoutingMethod::sparse_mixer, all[2].routing.jitter_eps = 0.01;
  all[3].routing.method = RoutingMethod::topk;
  all[4].routing.num_fused_shared_experts = 1;
  all[5] = with_bias(plain, {0, 0, 0, 0, 5, 0}), all[5].routing.num_zero_experts = 2;
  for (const Config& c : all) {
    Config scaled = c, one = c;
    scaled.routing.expert_scale.values = scale;
    one.routing.expert_scale.values = {7};
    const auto columns = static_cast<std::size_t>(c.router_columns());
    const std::vector<float> logits(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(3 * columns));
    const RouteHow how{.hash_ids = {0, 3, 2, 2, 1, 0}};
    const Routed before = route_floats(c, logits, how), after = route_floats(scaled, logits, how),
                 by_one = route_floats(one, logits, how);
    EXPECT_EQ(before.ids, after.ids);
    for (std::size_t i = 0; i < before.ids.size(); ++i) {
      const auto e = static_cast<std::size_t>(before.ids[i]);
      EXPECT_EQ(after.weights[i], before.weights[i] * (e < 4 ? scale[e] : 1.0f));
      EXPECT_EQ(by_one.weights[i], before.weights[i] * (e < 4 ? 7.0f : 1.0f));
    }
  }
  for (const char* strategy : {"uniform_random", "normal_routing"}) {
    Config c = plain;
    c.routing.method = RoutingMethod::simulated;
    c.routing.simulation_strategy = strategy;
    const Routed before = route_floats(c, x);
    c.routing.expert_scale.name = "scale";  // nobody gives it, and nobody asks
    EXPECT_TRUE(route_floats(c, x) == before);
  }
}

// Layers whose experts come from a table divide like the others of their model: tiny scores go to 0.
TEST(RouteOptions, EpsilonWhereATableChooses) {
  Config c = route_config(4, 2);
  c.routing.hash_routing = true;
  c.routing.scoring = Scoring::sigmoid;
  const RouteHow how{.hash_ids = {0, 3}};
  for (const float logit : {-20.0f, -46.0f, -60.0f}) {
    const std::vector<float> x(4, logit);
    c.routing.renormalize_eps = 0;
    EXPECT_EQ(route_floats(c, x, how).weights, std::vector<float>(2, 0.5f));
    c.routing.renormalize_eps = 1e-20;
    const double s = sigmoid(static_cast<double>(logit)), want = s / (2 * s + 1e-20);
    for (const float w : route_floats(c, x, how).weights) EXPECT_NEAR(static_cast<double>(w), want, 1e-6);
  }
}

// bit_compat vllm follows upstream's own routing only where that knows all of the config.
TEST(RouteOptions, NoneIsLeftOutWithBitCompat) {
  std::mt19937 g(9);
  const std::vector<float> x = numbers(g, 4 * 8, 2.0f);
  Config base = route_config(8, 3);
  const auto compatible = [&](Config c) {
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
  };
  std::vector<Config> all(4, base);
  all[0].routing.renormalize_eps = 0.25;
  all[1].routing.renormalize_min = 2.0;
  all[2].routing.expert_scale.values = numbers(g, 8, 1.0f);
  all[3] = with_bias(base, numbers(g, 8, 1.0f)), all[3].routing.bias_on_logits = true;
  const Logits logits = logits_of(x, 8, DType::bf16);
  EXPECT_FALSE(route_batch(compatible(base), logits) == route_batch(base, logits));  // rounded to bfloat16
  for (const Config& c : all) EXPECT_TRUE(route_batch(compatible(c), logits) == route_batch(c, logits));
}

TEST(RouteOptions, ScaleHasOneSource) {
  const std::vector<float> four = {1, 2, 3, 4}, one = {5}, none, three(3);
  Config names = route_config(4, 2), holds = names, plain = names, simulated = names;
  names.routing.expert_scale.name = "scale";
  holds.routing.expert_scale.values = four;
  simulated.routing.expert_scale.name = "scale";
  simulated.routing.method = RoutingMethod::simulated;
  simulated.routing.simulation_strategy = "uniform_random";
  struct Row {
    const Config& config;
    const std::vector<float>& loaded;
    Code code;  // of make_router or check_router
    std::vector<float> used;
  };
  for (const Row& row : {Row{names, four, Code::ok, four}, Row{names, one, Code::ok, {5, 5, 5, 5}},
                         Row{names, none, Code::missing_weight, {}}, Row{names, three, Code::config_mismatch, {}},
                         Row{holds, none, Code::ok, four}, Row{holds, four, Code::unexpected_weight, {}},
                         Row{plain, four, Code::ok, {}},  // loaded for a config that wanted it
                         Row{simulated, none, Code::ok, {}}}) {
    const Result<Router> r =
        make_router(row.config, *route_kernels().back(), {.option = {}, .loaded = {}, .scale = row.loaded});
    const Check check = r ? check_router(*r) : Check(r.error());
    EXPECT_EQ(check ? Code::ok : check.error().code, row.code);
    if (!check) {
      EXPECT_EQ(check.error().subject, "expert_scale");
    }
    if (check) {
      EXPECT_EQ(r->expert_scale, row.used);
    }
  }
}

}  // namespace
}  // namespace moe::test::route_options_test
