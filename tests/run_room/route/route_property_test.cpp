// 10 000 random routing configs against a plain float64 definition written here (routing.md 1, 3, 4), on every
// instruction set of this machine.
//
// Without a bias keys are logits, so ids must be the definition's. With one a key contains a float32 score:
// where ids differ, each exchanged pair of experts or groups must have float64 keys within the rounding of a score
// and of a sum. Weights are held against the definition for the ids that were chosen, with a bound that follows
// the roundings. exp is taken as 0 below 2^-126 and as infinite above the largest float, as in float32.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/exp.h"
#include "support/rooms.h"
#include "support/routing.h"
#include "support/share.h"
#include "support/vectors.h"

namespace moe::test::route_property_test {
namespace {

constexpr double kHalfUlp = 0x1p-24, kTiny = 0x1p-149;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

double exp_in_float_range(double x) {
  if (x > static_cast<double>(exp_constants::kMaxFinite)) return kInfinity;
  return x < static_cast<double>(exp_constants::kMinNormal) ? 0.0 : std::exp(x);
}

double in_float_range(double x) {
  return std::abs(x) > static_cast<double>(kMaxFloat) ? std::copysign(kInfinity, x) : x;
}

double sanitised(float x) {
  return std::isnan(x) ? -kInfinity : std::min(static_cast<double>(x), static_cast<double>(kMaxFloat));
}

// A number and how far float32 may be from it.
struct About {
  double value = 0, error = 0;
};

struct Definition {
  const Config& c;
  std::size_t columns, k;
  std::vector<double> x;  // sanitised
  std::vector<About> scores, keys;
  std::vector<About> groups;  // their scores; empty: no groups

  Definition(const Config& config, const std::vector<float>& row, std::span<const float> bias)
      : c(config), columns(row.size()), k(static_cast<std::size_t>(config.top_k)) {
    for (float v : row) x.push_back(sanitised(v));
    make_scores();
    for (std::size_t e = 0; e < columns; ++e) {
      if (bias.empty()) {
        keys.push_back({x[e], 0});
        continue;
      }
      const double key = in_float_range(scores[e].value + static_cast<double>(bias[e]));
      keys.push_back({key, std::isinf(key) ? 0 : scores[e].error + kHalfUlp * std::abs(key) + kTiny});
    }
    if (c.routing.num_expert_group) make_groups(!bias.empty());
  }

  bool logits_are_scores() const { return c.routing.method == RoutingMethod::topk; }

  void make_scores() {
    const double m = *std::max_element(x.begin(), x.end());
    double sum = 0;
    for (double v : x) sum += std::isinf(m) ? 0 : exp_of_difference(v, m);
    // Half an ulp per addition of the longest chain of 16; 12 more for two exps, division and the like.
    const double chain = static_cast<double>(columns) / 16 + 5;
    for (double v : x) {
      double s = v, ulps = 0;
      if (!logits_are_scores()) {
        ulps = 12;
        if (c.routing.scoring == Scoring::sigmoid) s = 1 / (1 + exp_in_float_range(-v));
        if (c.routing.scoring == Scoring::sqrtsoftplus) s = std::sqrt(v > 20 ? v : std::log1p(exp_in_float_range(v)));
        if (c.routing.scoring == Scoring::softmax) {
          s = std::isinf(m) ? 0 : exp_of_difference(v, m) / sum;
          ulps += chain;
        }
      }
      scores.push_back({s, ulps == 0 || s == 0 ? 0 : ulps * kHalfUlp * std::abs(s) + kTiny});
    }
  }
  // x - m is a float32, rounded by up to 2^-17 where they are far apart.
  static double exp_of_difference(double v, double m) {
    return exp_in_float_range(static_cast<double>(static_cast<float>(v - m)));
  }

  std::size_t group_size() const { return columns / static_cast<std::size_t>(*c.routing.num_expert_group); }
  void make_groups(bool two) {
    for (std::size_t first = 0; first < columns; first += group_size()) {
      std::vector<About> in(keys.begin() + static_cast<std::ptrdiff_t>(first),
                            keys.begin() + static_cast<std::ptrdiff_t>(first + group_size()));
      std::sort(in.begin(), in.end(), [](const About& a, const About& b) { return a.value > b.value; });
      if (!two) {
        groups.push_back(in[0]);
        continue;
      }
      const double sum = in_float_range(in[0].value + in[1].value);
      double error = 0;  // any key of the group can take the place of another within their errors
      for (const About& key : in) error = std::max(error, 2 * key.error);
      groups.push_back({sum, std::isinf(sum) ? 0 : error + kHalfUlp * std::abs(sum) + kTiny});
    }
  }

  static std::vector<std::size_t> best(const std::vector<About>& from, const std::vector<std::size_t>& candidates,
                                       std::size_t n) {
    std::vector<std::size_t> order = candidates;
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return from[a].value > from[b].value; });
    order.resize(n);
    return order;
  }
  static std::vector<std::size_t> all(std::size_t n) {
    std::vector<std::size_t> v(n);
    std::iota(v.begin(), v.end(), std::size_t{0});
    return v;
  }
  std::vector<std::size_t> kept_groups() const {
    return best(groups, all(groups.size()), static_cast<std::size_t>(*c.routing.topk_group));
  }
  std::vector<std::size_t> experts_of(const std::vector<std::size_t>& of_groups) const {
    std::vector<std::size_t> v;
    for (std::size_t e = 0; e < columns; ++e)
      if (std::find(of_groups.begin(), of_groups.end(), e / group_size()) != of_groups.end()) v.push_back(e);
    return v;
  }
  std::vector<std::size_t> ids() const {
    return best(keys, groups.empty() ? all(columns) : experts_of(kept_groups()), k);
  }

  static bool may_precede(const About& a, const About& b) {
    return a.value == b.value || a.value + a.error >= b.value - b.error;
  }

  // Could float32 have chosen these?
  bool plausible(const std::vector<std::size_t>& got) const {
    std::vector<std::size_t> candidates = all(columns);
    if (!groups.empty()) {
      // A group that surely beats the worst one chosen from must be there; one surely beaten must not.
      const std::size_t kept = static_cast<std::size_t>(*c.routing.topk_group);
      std::vector<std::size_t> used;
      for (std::size_t id : got) used.push_back(id / group_size());
      std::vector<std::size_t> sure;
      for (std::size_t g = 0; g < groups.size(); ++g) {
        const auto better = static_cast<std::size_t>(std::count_if(groups.begin(), groups.end(), [&](const About& o) {
          return &o != &groups[g] && may_precede(o, groups[g]);
        }));
        const auto surely_better = static_cast<std::size_t>(
            std::count_if(groups.begin(), groups.end(), [&](const About& o) { return !may_precede(groups[g], o); }));
        const bool is_used = std::find(used.begin(), used.end(), g) != used.end();
        if (surely_better >= kept && is_used) return false;
        if (better < kept || is_used) sure.push_back(g);
      }
      candidates = experts_of(sure);
    }
    for (std::size_t j = 1; j < got.size(); ++j)
      if (!may_precede(keys[got[j - 1]], keys[got[j]])) return false;
    for (std::size_t e : candidates)
      if (std::find(got.begin(), got.end(), e) == got.end() && !may_precede(keys[got.back()], keys[e])) return false;
    return true;
  }

  std::vector<About> weights(const std::vector<std::size_t>& chosen) const {
    std::vector<About> w;
    double sum = 0, sum_error = 0;
    const bool nothing = *std::max_element(x.begin(), x.end()) == -kInfinity;
    for (std::size_t e : chosen) {
      w.push_back(logits_are_scores() && nothing ? About{} : scores[e]);
      sum += w.back().value;
      sum_error += w.back().error;
    }
    if (c.routing.renormalize && !logits_are_scores() && sum > 0) {
      sum_error += kHalfUlp * static_cast<double>(k) * sum;
      for (About& a : w) {
        a.error = a.error / sum + a.value / sum * (sum_error / sum) + kHalfUlp * a.value / sum + kTiny;
        a.value /= sum;
      }
    }
    if (c.routing.apply_routed_scale_to_output) return w;
    const double factor = static_cast<double>(static_cast<float>(c.routing.routed_scaling_factor));
    for (About& a : w) {
      a.value = in_float_range(a.value * factor);
      a.error = a.error * factor + (std::isinf(a.value) ? 0 : kHalfUlp * std::abs(a.value)) + kTiny;
    }
    return w;
  }
};

// --- drawing ------------------------------------------------------------------------------------------------

struct Case {
  Config config;
  std::vector<float> bias;  // as a tensor; empty: none, or inline
  std::vector<float> inline_bias;
  Logits logits;
  std::vector<std::int32_t> hash_ids;
  Draw draw = Draw::normal;
  std::string text;

  std::span<const float> bias_in_use() const { return bias.empty() ? inline_bias : bias; }
};

std::int64_t between(std::mt19937& g, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(g);
}
bool chance(std::mt19937& g, int percent) { return between(g, 0, 99) < percent; }

std::int64_t a_divisor(std::mt19937& g, std::int64_t n) {
  std::vector<std::int64_t> d;
  for (std::int64_t i = 1; i <= n; ++i)
    if (n % i == 0) d.push_back(i);
  return d[static_cast<std::size_t>(between(g, 0, std::ssize(d) - 1))];
}

std::vector<float> random_bias(std::mt19937& g, std::size_t n) {
  std::normal_distribution<float> normal(0.0f, chance(g, 30) ? 10.0f : 0.2f);
  std::vector<float> b(n);
  const bool few = chance(g, 30);
  for (float& v : b) v = few ? static_cast<float>(between(g, -1, 1)) / 2 : normal(g);
  return b;
}

Case draw_case(std::mt19937& g) {
  Case k;
  constexpr std::int64_t kUsual[] = {8, 16, 60, 64, 128, 160, 256, 384, 512};
  std::int64_t experts = chance(g, 50) ? kUsual[between(g, 0, 8)] : between(g, 1, 512);
  constexpr const char* kScorings[] = {"softmax", "sigmoid", "sqrtsoftplus"};
  nlohmann::json routing = {{"renormalize", chance(g, 50)}, {"scoring_func", kScorings[between(g, 0, 2)]}};
  std::int64_t zero = 0, most = experts;
  const bool hash = chance(g, 5), raw = !hash && chance(g, 10);
  bool biased = !hash && chance(g, 50);
  if (hash) routing["hash_routing"] = true;
  if (raw) routing["method"] = "topk";
  if (raw) routing["scoring_func"] = "softmax";
  if (biased && chance(g, 20)) routing["num_zero_experts"] = zero = between(g, 1, 40);
  if (!hash && zero == 0 && chance(g, 50)) {
    const std::int64_t groups = a_divisor(g, experts), kept = between(g, 1, groups);
    if (experts / groups < 2) biased = false;
    routing["num_expert_group"] = groups;
    routing["topk_group"] = kept;
    most = kept * (experts / groups);
  } else if (zero == 0 && chance(g, 10)) {
    routing["num_fused_shared_experts"] = between(g, 1, 3);
  }
  if (chance(g, 40)) routing["routed_scaling_factor"] = 0.25 * static_cast<double>(between(g, 1, 70));
  if (chance(g, 20)) routing["apply_routed_scale_to_output"] = true;
  const auto columns = static_cast<std::size_t>(experts + zero);
  routing["e_score_correction_bias"] = biased;
  if (biased) {
    (chance(g, 50) ? k.bias : k.inline_bias) = random_bias(g, columns);
    if (k.bias.empty()) routing["e_score_correction_bias"] = k.inline_bias;
  }
  const std::int64_t top_k = between(g, 1, chance(g, 90) ? std::min<std::int64_t>(most, 16) : most);
  const nlohmann::json document = {
      {"num_experts", experts}, {"top_k", top_k}, {"hidden_dim", 64}, {"intermediate_size", 64}, {"routing", routing}};
  k.text = document.dump();
  Result<Config> config = parse_config(k.text);
  EXPECT_TRUE(config) << k.text;
  if (config) k.config = std::move(*config);
  const auto tokens = static_cast<std::size_t>(between(g, 1, 3));
  k.draw = kDraws[between(g, 0, 3)];
  std::vector<float> x = random_logits(g, tokens * columns, k.draw);
  if (k.draw == Draw::odd && chance(g, 20)) std::fill_n(x.begin(), columns, chance(g, 50) ? kNaN : -kInf);
  constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16};
  k.logits = logits_of(x, static_cast<std::int64_t>(columns), kTypes[between(g, 0, 2)]);
  if (hash)
    for (std::size_t i = 0; i < tokens * static_cast<std::size_t>(top_k); ++i)
      k.hash_ids.push_back(static_cast<std::int32_t>(between(g, 0, experts - 1)));
  return k;
}

struct Tally {
  int rows = 0, biased = 0, exchanged = 0, exchanged_normal = 0, grouped = 0;
};

void check_row(const Case& k, const Routed& r, std::size_t t, Tally& tally) {
  const Config& c = k.config;
  const auto columns = static_cast<std::size_t>(c.router_columns()), top_k = static_cast<std::size_t>(c.top_k);
  const auto width = static_cast<std::size_t>(c.slots_per_token());
  const std::vector<float> all = widened(k.logits);
  const std::vector<float> row(all.begin() + static_cast<std::ptrdiff_t>(t * columns),
                               all.begin() + static_cast<std::ptrdiff_t>((t + 1) * columns));
  const Definition d(c, row, c.routing.hash_routing ? std::span<const float>() : k.bias_in_use());
  std::vector<std::size_t> got;
  for (std::size_t j = 0; j < top_k; ++j) {
    const std::int32_t id = r.ids[t * width + j];
    ASSERT_TRUE(id >= 0 && id < static_cast<std::int32_t>(columns)) << id;
    got.push_back(static_cast<std::size_t>(id));
  }
  ++tally.rows;
  if (c.routing.hash_routing) {
    for (std::size_t j = 0; j < top_k; ++j) ASSERT_EQ(r.ids[t * width + j], k.hash_ids[t * top_k + j]);
  } else {
    std::vector<std::size_t> sorted = got;
    std::sort(sorted.begin(), sorted.end());
    ASSERT_EQ(std::adjacent_find(sorted.begin(), sorted.end()), sorted.end()) << "an expert twice";
    const bool same = got == d.ids(), biased = !k.bias_in_use().empty();
    if (biased)
      ASSERT_TRUE(same || d.plausible(got)) << "token " << t;
    else
      ASSERT_TRUE(same) << "token " << t;
    tally.biased += biased ? 1 : 0;
    tally.grouped += c.routing.num_expert_group ? 1 : 0;
    tally.exchanged += same ? 0 : 1;
    tally.exchanged_normal += !same && k.draw == Draw::normal ? 1 : 0;
  }
  const std::vector<About> want = d.weights(got);
  for (std::size_t j = 0; j < top_k; ++j) {
    const double w = static_cast<double>(r.weights[t * width + j]);
    ASSERT_TRUE(w == want[j].value || std::abs(w - want[j].value) <= want[j].error)
        << "token " << t << " slot " << j << ": " << w << ", expected " << want[j].value << " +- " << want[j].error;
  }
  for (std::size_t j = top_k; j < width; ++j) {
    ASSERT_EQ(r.ids[t * width + j], c.num_experts + static_cast<std::int64_t>(j - top_k));
    ASSERT_EQ(r.weights[t * width + j], 1.0f);
  }
}

TEST(RouteProperty, TenThousandConfigsAreTheDefinition) {
  std::mt19937 g(20261121);
  Tally tally;
  const auto kernels = runnable_route_kernels();
  for (int i = 0; i < rounds(10000); ++i) {
    const Case k = draw_case(g);
    const RouteHow how{
        .kernel = kernels.front(), .hash_ids = k.hash_ids, .bias = {.option = k.bias, .loaded = {}, .scale = {}}};
    const Routed r = route_batch(k.config, k.logits, how);
    for (const RouteKernel* kernel : kernels) {
      RouteHow other = how;
      other.kernel = kernel;
      ASSERT_TRUE(route_batch(k.config, k.logits, other) == r) << k.text << " on ISA " << static_cast<int>(kernel->isa);
    }
    for (std::size_t t = 0; t < static_cast<std::size_t>(k.logits.tokens); ++t) check_row(k, r, t, tally);
    ASSERT_FALSE(::testing::Test::HasFatalFailure()) << "case " << i << ": " << k.text;
  }
  EXPECT_GT(tally.rows, 15000 / share());
  EXPECT_GT(tally.biased, 5000 / share());
  EXPECT_GT(tally.grouped, 5000 / share());
  // Keys that rounding could exchange are rare where logits are not made to collide.
  EXPECT_LT(tally.exchanged_normal, tally.rows / 200);
  RecordProperty("rows", tally.rows);
  RecordProperty("exchanged", tally.exchanged);
}

// The test would see a wrong rule: each definition is held against a router that does something else.
TEST(RouteProperty, TellsRulesApart) {
  std::mt19937 g(5);
  const std::vector<float> x = random_logits(g, 64, Draw::normal);
  const auto differs = [&](const Config& asked, const Config& done) {
    const Routed r = route_floats(done, x);
    const Definition d(asked, x, asked.routing.bias);
    std::vector<std::size_t> got(r.ids.begin(), r.ids.end());
    if (got != d.ids() && !d.plausible(got)) return true;
    const std::vector<About> want = d.weights(got);
    for (std::size_t j = 0; j < got.size(); ++j)
      if (std::abs(static_cast<double>(r.weights[j]) - want[j].value) > want[j].error) return true;
    return false;
  };
  const Config plain = route_config(64, 6);
  Config sigmoid = plain, factor = plain, naked = plain;
  sigmoid.routing.scoring = Scoring::sigmoid;
  factor.routing.routed_scaling_factor = 1.00001;
  naked.routing.renormalize = false;
  const Config grouped = with_groups(plain, 8, 2), biased = with_bias(plain, random_bias(g, 64));
  for (const Config& c : {sigmoid, factor, naked, grouped, biased}) {
    EXPECT_FALSE(differs(c, c));
    EXPECT_TRUE(differs(c, plain));
    EXPECT_TRUE(differs(plain, c));
  }
  EXPECT_TRUE(differs(with_groups(biased, 8, 2), biased));
  EXPECT_TRUE(differs(with_groups(biased, 8, 2), with_groups(biased, 8, 3)));
}

}  // namespace
}  // namespace moe::test::route_property_test
