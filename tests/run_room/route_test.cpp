// Routing against the golden vectors, a float64 definition, and itself (threads, batches, strides).
// Long, because all of it stands on the same few helpers.
#include "run/route.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/float_formats.h"
#include "support/vectors.h"

namespace moe::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kMaxFloat = std::numeric_limits<float>::max();

struct Routed {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
  friend bool operator==(const Routed& a, const Routed& b) {
    return a.ids == b.ids && a.weights.size() == b.weights.size() &&
           std::memcmp(a.weights.data(), b.weights.data(), a.weights.size() * sizeof(float)) == 0;
  }
};

Config config_of(std::int64_t experts, std::int64_t k, bool renormalize) {
  Config c;
  c.num_experts = experts;
  c.top_k = k;
  c.routing.renormalize = renormalize;
  c.routing.method = renormalize ? RoutingMethod::renormalize : RoutingMethod::default_;
  return c;
}

// Runs tasks last to first, each on a thread of its own.
void run_on_threads(void*, std::size_t count, TaskFn task, void* arg) {
  std::vector<std::thread> threads;
  for (std::size_t i = count; i-- > 0;) threads.emplace_back([=] { task(arg, i); });
  for (auto& t : threads) t.join();
}

Routed route_bytes(const Config& c, DType dtype, const std::byte* logits, std::int64_t tokens, std::int64_t stride,
                   const Parallel& parallel = {}) {
  EXPECT_TRUE(check_route_supported(c));
  const auto n = static_cast<std::size_t>(tokens * c.top_k);
  Routed r{std::vector<std::int32_t>(n, -7), std::vector<float>(n, kNaN)};
  route(c,
        {.num_tokens = tokens,
         .logits_dtype = dtype,
         .logits = logits,
         .row_stride = stride,
         .ids = r.ids.data(),
         .weights = r.weights.data()},
        parallel);
  return r;
}

Routed route_floats(const Config& c, const std::vector<float>& logits, const Parallel& parallel = {}) {
  return route_bytes(c, DType::f32, reinterpret_cast<const std::byte*>(logits.data()),
                     static_cast<std::int64_t>(logits.size()) / c.num_experts, c.num_experts, parallel);
}

std::vector<std::byte> narrowed(DType dtype, const std::vector<float>& x) {
  std::vector<std::uint16_t> h;
  for (float f : x) h.push_back(dtype == DType::bf16 ? f32_to_bf16(f) : f32_to_f16(f));
  std::vector<std::byte> bytes(h.size() * 2);
  std::memcpy(bytes.data(), h.data(), bytes.size());
  return bytes;
}

// --- golden vectors -------------------------------------------------------------------------------

bool is_plain_softmax(const nlohmann::json& k) {
  const auto& p = k["params"];
  return (k["method"] == "general" || k["method"] == "topk_then_softmax") &&
         p.value("scoring_func", "softmax") == "softmax" && !p.contains("num_expert_group") &&
         !p.contains("e_score_correction_bias");
}

TEST(RouteVectors, AllSoftmaxCasesOfTheIndex) {
  const auto index = load_json("routing/index.json");
  int cases = 0;
  for (const auto& k : index["cases"]) {
    if (!is_plain_softmax(k)) continue;
    const VecFile file = load_vectors("routing/" + k["file"].get<std::string>());
    const VecTensor& logits = file.at("logits");
    const auto& p = k["params"];
    Config c = config_of(logits.shape[1], p["top_k"], p.value("renormalize", true));
    c.routing.routed_scaling_factor = p.value("routed_scaling_factor", 1.0);
    const Routed r = route_bytes(c, logits.dtype, logits.data.data(), logits.shape[0], logits.shape[1]);
    EXPECT_EQ(r.ids, file.at("topk_ids").as<std::int32_t>()) << k["file"];
    const auto weights = file.at("topk_weights").floats();
    ASSERT_EQ(weights.size(), r.weights.size());
    for (std::size_t i = 0; i < weights.size(); ++i)
      EXPECT_LE(std::abs(r.weights[i] - weights[i]), 1e-6f + 2e-6f * std::abs(weights[i])) << k["file"] << " " << i;
    ++cases;
  }
  EXPECT_EQ(cases, 34);
}

// One unit in the last place of a value of the dtype.
float ulp(DType dtype, float x) {
  const int bits = dtype == DType::bf16 ? 8 : 11, smallest = dtype == DType::bf16 ? -133 : -24;
  int exponent = 0;
  (void)std::frexp(x, &exponent);
  return std::ldexp(1.0f, std::max(exponent - bits, smallest));
}

Config vllm_config(std::int64_t experts, std::int64_t k, bool renormalize) {
  Config c = config_of(experts, k, renormalize);
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

TEST(RouteVectors, PlainCasesOfTheUpstreamOracle) {
  const VecFile file = load_vectors("w4a8_int8/routing.safetensors");
  int cases = 0, sixteen_bit_default = 0;
  for (const auto& k : nlohmann::json::parse(file.meta.at("cases"))) {
    if (k.contains("num_expert_group")) continue;
    const std::string name = k["name"];
    const VecTensor& logits = file.at(name + ".logits");
    const std::int64_t top_k = k["top_k"];
    Config c = vllm_config(logits.shape[1], top_k, k["renormalize"]);
    c.routing.routed_scaling_factor = 2.5;  // ignored there
    const Routed r = route_bytes(c, logits.dtype, logits.data.data(), logits.shape[0], logits.shape[1]);
    const auto ids = file.at(name + ".ids").as<std::int32_t>();
    const auto weights = file.at(name + ".weights").floats();
    for (std::int64_t t = 0; t < logits.shape[0]; ++t)
      for (std::int64_t j = 0; j < top_k; ++j) {  // upstream's order is its own: find the expert
        const auto mine = static_cast<std::size_t>(t * top_k + j);
        const auto* begin = ids.data() + t * top_k;
        const auto* at = std::find(begin, begin + top_k, r.ids[mine]);
        ASSERT_NE(at, begin + top_k) << name << " token " << t;
        const float want = weights[static_cast<std::size_t>(at - ids.data())];
        const float bound = logits.dtype == DType::f32 ? 2e-6f * want : ulp(logits.dtype, want);
        EXPECT_LE(std::abs(r.weights[mine] - want), bound) << name << " token " << t;
      }
    ++cases;
    if (logits.dtype != DType::f32 && !k["renormalize"]) ++sixteen_bit_default;
  }
  EXPECT_EQ(cases, 18);
  EXPECT_EQ(sixteen_bit_default, 6);
}

TEST(RouteVllm, OnlyForItsOwnWeights) {
  std::vector<float> logits = {0.1f, 1.7f, -0.3f, 0.9f};
  const auto bytes = narrowed(DType::bf16, logits);
  Config own = vllm_config(4, 2, false), other = own;
  other.quantization.weights->num_bits = 8;  // bit_compat vllm without the layer it is about
  Config plain = own;
  plain.bit_compat = Policy::libmoe;
  const Routed a = route_bytes(own, DType::bf16, bytes.data(), 1, 4),
               b = route_bytes(other, DType::bf16, bytes.data(), 1, 4),
               c = route_bytes(plain, DType::bf16, bytes.data(), 1, 4);
  EXPECT_FALSE(a == c);
  EXPECT_TRUE(b == c);
  for (float w : a.weights) EXPECT_EQ(w, bf16_to_f32(f32_to_bf16(w)));  // values of the logits' dtype
}

TEST(RouteVllm, NonFiniteRowsGiveFiniteWeights) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (bool renormalize : {false, true}) {
      const Config c = vllm_config(4, 2, renormalize);
      const std::vector<float> rows = {kInf, 1, 2, 3, kNaN, kNaN, kNaN, kNaN, -kInf, 5, kNaN, -kInf, kInf, 0, kInf, 0};
      const Routed r =
          dtype == DType::f32 ? route_floats(c, rows) : route_bytes(c, dtype, narrowed(dtype, rows).data(), 4, 4);
      EXPECT_EQ(r.ids, (std::vector<std::int32_t>{0, 3, 0, 1, 1, 0, 0, 2}));
      for (float w : r.weights) EXPECT_TRUE(w >= 0 && w <= 1) << w;
      EXPECT_EQ(r.weights[0], 1.0f);
      EXPECT_EQ(r.weights[2], 0.0f);
      EXPECT_EQ(r.weights[4], 1.0f);
    }
}

// --- the definition in float64 --------------------------------------------------------------------

double sanitised(double x) {
  if (std::isnan(x)) return -std::numeric_limits<double>::infinity();
  return std::min(x, static_cast<double>(kMaxFloat));
}

void expect_definition(const Config& c, const std::vector<float>& row, const Routed& r, std::size_t t) {
  const auto k = static_cast<std::size_t>(c.top_k);
  std::vector<double> x;
  for (float f : row) x.push_back(sanitised(static_cast<double>(f)));
  std::vector<std::int32_t> order(x.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return x[static_cast<std::size_t>(a)] > x[static_cast<std::size_t>(b)]; });
  order.resize(k);
  const std::vector<std::int32_t> ids(r.ids.begin() + static_cast<std::ptrdiff_t>(t * k),
                                      r.ids.begin() + static_cast<std::ptrdiff_t>((t + 1) * k));
  ASSERT_EQ(ids, order) << "token " << t;

  const double m = x[static_cast<std::size_t>(order[0])];
  // x - m is a float32 (a rounding of up to 2^-17 for large differences); all else has float64's room.
  const auto e = [m](double v) { return std::exp(static_cast<double>(static_cast<float>(v - m))); };
  double sum = 0;
  if (c.routing.renormalize) {
    for (auto id : order) sum += e(x[static_cast<std::size_t>(id)]);
  } else {
    for (double v : x) sum += e(v);
  }
  // Half an ulp per addition of the longest chain; 12 more for two exps, the division, the factor.
  const double chain = c.routing.renormalize ? static_cast<double>(k) : static_cast<double>(x.size()) / 16 + 5;
  const double bound = 0x1p-24 * (chain + 12);
  const double factor = c.routing.apply_routed_scale_to_output ? 1.0 : c.routing.routed_scaling_factor;
  for (std::size_t j = 0; j < k; ++j) {
    const double want = std::isinf(m) ? 0.0 : factor * e(x[static_cast<std::size_t>(order[j])]) / sum;
    EXPECT_NEAR(r.weights[t * k + j], want, bound * want + 2e-38 * factor) << "token " << t << " slot " << j;
  }
}

struct Shape {
  std::int64_t tokens, experts, k;
};
const std::vector<Shape> kShapes = {{1, 1, 1},   {3, 2, 1},     {2, 2, 2},    {5, 15, 3},  {4, 16, 16},  {3, 17, 4},
                                    {2, 60, 4},  {7, 128, 8},   {3, 255, 9},  {2, 256, 8}, {2, 257, 16}, {1, 512, 10},
                                    {1, 513, 7}, {1, 3000, 64}, {70, 384, 8}, {0, 8, 2}};

std::vector<float> random_logits(std::mt19937& g, std::size_t n, int kind) {
  std::normal_distribution<float> normal(0.0f, kind == 1 ? 30.0f : 2.0f);
  std::uniform_int_distribution<int> few(-2, 2), special(0, 9);
  std::vector<float> x(n);
  for (float& v : x) {
    v = kind == 2 ? static_cast<float>(few(g)) : normal(g);  // 2: ties everywhere
    if (kind == 3) {
      constexpr float kSpecials[] = {kNaN, kInf, -kInf, kMaxFloat, -kMaxFloat, 0.0f, -0.0f, 1e-40f};
      const int s = special(g);
      if (s < 8) v = kSpecials[s];
    }
  }
  return x;
}

TEST(RouteProperty, IsTheDefinition) {
  std::mt19937 g(20240612);
  for (const Shape& s : kShapes)
    for (bool renormalize : {true, false})
      for (int kind = 0; kind < 4; ++kind)
        for (double factor : {1.0, 2.5}) {
          Config c = config_of(s.experts, s.k, renormalize);
          c.routing.routed_scaling_factor = factor;
          const auto e = static_cast<std::size_t>(s.experts);
          const auto logits = random_logits(g, static_cast<std::size_t>(s.tokens) * e, kind);
          const Routed r = route_floats(c, logits);
          for (std::size_t t = 0; t < static_cast<std::size_t>(s.tokens); ++t)
            expect_definition(c,
                              {logits.begin() + static_cast<std::ptrdiff_t>(t * e),
                               logits.begin() + static_cast<std::ptrdiff_t>((t + 1) * e)},
                              r, t);
        }
}

TEST(RouteProperty, SixteenBitLogitsAreWidenedExactly) {
  std::mt19937 g(7);
  for (DType dtype : {DType::bf16, DType::f16})
    for (bool renormalize : {true, false})
      for (int kind : {0, 2, 3}) {
        const Config c = config_of(77, 5, renormalize);
        const auto bytes = narrowed(dtype, random_logits(g, 77 * 6, kind));
        std::vector<std::uint16_t> h(77 * 6);
        std::memcpy(h.data(), bytes.data(), bytes.size());
        std::vector<float> wide;
        for (auto b : h) wide.push_back(dtype == DType::bf16 ? bf16_to_f32(b) : f16_to_f32(b));
        EXPECT_TRUE(route_bytes(c, dtype, bytes.data(), 6, 77) == route_floats(c, wide));
      }
}

TEST(RouteProperty, BatchThreadsAndStridesChangeNoBit) {
  std::mt19937 g(11);
  const Parallel threads = {.num_threads = 4, .run = run_on_threads};
  for (bool renormalize : {true, false}) {
    const Config c = config_of(384, 8, renormalize);
    const auto logits = random_logits(g, 384 * 70, 3);
    const Routed whole = route_floats(c, logits);
    EXPECT_TRUE(route_floats(c, logits, threads) == whole);
    Routed one_by_one;
    std::vector<float> spread(70 * 500, 1e30f);  // rows 500 apart, junk between them
    for (std::size_t t = 0; t < 70; ++t) {
      const std::vector<float> row(logits.begin() + static_cast<std::ptrdiff_t>(t * 384),
                                   logits.begin() + static_cast<std::ptrdiff_t>((t + 1) * 384));
      const Routed r = route_floats(c, row);
      one_by_one.ids.insert(one_by_one.ids.end(), r.ids.begin(), r.ids.end());
      one_by_one.weights.insert(one_by_one.weights.end(), r.weights.begin(), r.weights.end());
      std::copy(row.begin(), row.end(), spread.begin() + static_cast<std::ptrdiff_t>(t * 500));
    }
    EXPECT_TRUE(one_by_one == whole);
    EXPECT_TRUE(route_bytes(c, DType::f32, reinterpret_cast<const std::byte*>(spread.data()), 70, 500) == whole);
  }
}

// --- single rules ---------------------------------------------------------------------------------

TEST(RouteRules, EqualKeysGoToTheLowestExpertAndZerosAreEqual) {
  const Config c = config_of(6, 4, true);
  EXPECT_EQ(route_floats(c, {1, 1, 1, 1, 1, 1}).ids, (std::vector<std::int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(route_floats(c, {0, 2, 1, 2, 1, 2}).ids, (std::vector<std::int32_t>{1, 3, 5, 2}));
  EXPECT_EQ(route_floats(c, {-0.0f, 0.0f, -0.0f, 0.0f, -1, -1}).ids, (std::vector<std::int32_t>{0, 1, 2, 3}));
}

TEST(RouteRules, NaNLosesAndInfinityCountsAsTheLargestFloat) {
  for (bool renormalize : {true, false}) {
    const Config c = config_of(5, 3, renormalize);
    Routed r = route_floats(c, {kNaN, 1, kNaN, 2, 0});
    EXPECT_EQ(r.ids, (std::vector<std::int32_t>{3, 1, 4}));
    r = route_floats(c, {1, kInf, 2, kMaxFloat, kInf});
    EXPECT_EQ(r.ids, (std::vector<std::int32_t>{1, 3, 4}));
    for (float w : r.weights) EXPECT_NEAR(w, 1.0f / 3, 1e-7f);
    r = route_floats(c, {-kInf, kNaN, -kInf, 7, kNaN});  // one finite: the rest are ids without weight
    EXPECT_EQ(r.ids, (std::vector<std::int32_t>{3, 0, 1}));
    EXPECT_EQ(r.weights, (std::vector<float>{1, 0, 0}));
  }
}

TEST(RouteRules, RowsOfNothingGiveTheFirstExpertsAndNoWeight) {
  for (bool renormalize : {true, false})
    for (float x : {kNaN, -kInf}) {
      Config c = config_of(5, 3, renormalize);
      c.routing.routed_scaling_factor = 2.5;
      const Routed r = route_floats(c, std::vector<float>(5, x));
      EXPECT_EQ(r.ids, (std::vector<std::int32_t>{0, 1, 2}));
      EXPECT_EQ(r.weights, (std::vector<float>{0, 0, 0}));
    }
}

TEST(RouteRules, ATokenDoesNotSeeAnothersNaN) {
  std::mt19937 g(5);
  const Config c = config_of(64, 6, false);
  auto logits = random_logits(g, 64 * 3, 0);
  const Routed before = route_floats(c, logits);
  for (std::size_t e = 64; e < 128; ++e) logits[e] = kNaN;
  const Routed after = route_floats(c, logits);
  for (std::size_t i : {0u, 5u, 12u, 17u}) {
    EXPECT_EQ(after.ids[i], before.ids[i]);
    EXPECT_EQ(after.weights[i], before.weights[i]);
  }
}

TEST(RouteRules, FactorOnTheWeightsUnlessItIsForTheOutput) {
  const std::vector<float> logits = {0.5f, 2, -1, 1};
  for (bool renormalize : {true, false}) {
    Config c = config_of(4, 2, renormalize);
    const Routed plain = route_floats(c, logits);
    c.routing.routed_scaling_factor = 2.5;
    const Routed scaled = route_floats(c, logits);
    for (std::size_t j = 0; j < 2; ++j) EXPECT_EQ(scaled.weights[j], plain.weights[j] * 2.5f);
    c.routing.apply_routed_scale_to_output = true;
    EXPECT_TRUE(route_floats(c, logits) == plain);
  }
}

TEST(RouteRules, NaiveIsTheSameAsRenormalize) {
  std::mt19937 g(9);
  Config c = config_of(40, 4, true);
  const auto logits = random_logits(g, 400, 0);
  const Routed a = route_floats(c, logits);
  c.routing.method = RoutingMethod::renormalize_naive;
  EXPECT_TRUE(route_floats(c, logits) == a);
}

// The order of the sum of Default is part of its definition: 16 partial sums, folded 8, 4, 2, 1.
TEST(RouteRules, SumOverAllExpertsIsFoldedAsWritten) {
  constexpr float kTiny = 0x1p-25f;  // lost in 1 + tiny, not in a sum of many of them
  const float log_tiny = std::log(kTiny);
  std::vector<float> logits(64, log_tiny);
  logits[5] = 0.0f;
  const Config c = config_of(64, 1, false);
  // Partial sum 5 stays 1; the other fifteen have 4 tiny each and are folded before they meet it.
  const float e = [&] {
    const Config two = config_of(2, 2, true);
    const Routed r = route_floats(two, {0.0f, log_tiny});
    return r.weights[1];  // exp(log_tiny) / (1 + exp(log_tiny)) = exp(log_tiny) in float32
  }();
  std::vector<float> part(16, 0.0f);
  for (std::size_t i = 0; i < 64; ++i) part[i % 16] += i == 5 ? 1.0f : e;
  for (std::size_t half : {8u, 4u, 2u, 1u})
    for (std::size_t lane = 0; lane < half; ++lane) part[lane] += part[lane + half];
  EXPECT_EQ(route_floats(c, logits).weights[0], 1.0f / part[0]);
  float in_order = 0.0f;
  for (std::size_t i = 0; i < 64; ++i) in_order += i == 5 ? 1.0f : e;
  EXPECT_NE(1.0f / in_order, 1.0f / part[0]) << "the test would not tell the orders apart";
}

TEST(RouteRules, ScoresAreDistinctExpertsAlways) {
  std::mt19937 g(3);
  for (int kind = 0; kind < 4; ++kind) {
    const Config c = config_of(48, 12, false);
    const Routed r = route_floats(c, random_logits(g, 48 * 50, kind));
    for (std::size_t t = 0; t < 50; ++t) {
      const std::set<std::int32_t> distinct(r.ids.begin() + static_cast<std::ptrdiff_t>(t * 12),
                                            r.ids.begin() + static_cast<std::ptrdiff_t>((t + 1) * 12));
      EXPECT_EQ(distinct.size(), 12u);
      EXPECT_GE(*distinct.begin(), 0);
      EXPECT_LT(*distinct.rbegin(), 48);
    }
  }
}

// --- what is not built ----------------------------------------------------------------------------

TEST(RouteSupported, NamesTheMemberThatIsNotBuilt) {
  const auto subject = [](auto change) -> std::string {
    Config c = config_of(8, 2, true);
    change(c.routing);
    const Check check = check_route_supported(c);
    if (check) return "accepted";
    EXPECT_EQ(check.error().code, Code::unsupported);
    EXPECT_NE(check.error().message.find(check.error().subject), std::string::npos);
    return check.error().subject;
  };
  using R = RoutingConfig;
  EXPECT_EQ(subject([](R&) {}), "accepted");
  EXPECT_EQ(subject([](R& r) { r.method = RoutingMethod::default_; }), "accepted");
  EXPECT_EQ(subject([](R& r) { r.method = RoutingMethod::renormalize_naive; }), "accepted");
  for (RoutingMethod m : {RoutingMethod::custom, RoutingMethod::topk, RoutingMethod::simulated,
                          RoutingMethod::sparse_mixer, RoutingMethod::unspecified})
    EXPECT_EQ(subject([m](R& r) { r.method = m; }), "/routing/method") << routing_method_name(m);
  EXPECT_EQ(subject([](R& r) { r.hash_routing = true; }), "/routing/hash_routing");
  EXPECT_EQ(subject([](R& r) { r.num_zero_experts = 1; }), "/routing/num_zero_experts");
  EXPECT_EQ(subject([](R& r) { r.num_fused_shared_experts = 1; }), "/routing/num_fused_shared_experts");
  EXPECT_EQ(subject([](R& r) { r.num_expert_group = 2; }), "/routing/num_expert_group");
  EXPECT_EQ(subject([](R& r) { r.has_bias = true; }), "/routing/e_score_correction_bias");
  EXPECT_EQ(subject([](R& r) {
              r.scoring = Scoring::sigmoid;
              r.method = RoutingMethod::llama4;
            }),
            "/routing/scoring_func");
}

}  // namespace
}  // namespace moe::test
