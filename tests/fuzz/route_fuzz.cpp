// Routing: any bits as logits. Ids are in range and distinct; without a bias and groups they are the largest logits,
// equal ones by their number (NaN loses, -0 is 0); weights are finite, and renormalized ones add up to the factor; a
// token's result does not depend on the others.
//
//   input: bytes for experts, top_k, method, factor, flags, tokens, type of the logits; then the logits' bits
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "fuzz/tiny.h"

namespace {

using namespace moe::fuzz;

struct Question {
  std::int64_t experts, top_k, tokens;
  moe_dtype dtype;
  std::vector<std::uint8_t> bits;  // of the logits, [T, G]
  std::int64_t width() const { return experts * (dtype == MOE_DTYPE_F32 ? 4 : 2); }
};

struct Answer {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
};

Answer route(const moe_config* config, const Question& q, std::int64_t first, std::int64_t count) {
  Answer a{std::vector<std::int32_t>(static_cast<std::size_t>(count * q.top_k), -7), {}};
  a.weights.resize(a.ids.size());
  const moe_tensor logits = tensor(q.dtype, {count, q.experts}, q.bits.data() + first * q.width());
  const moe_tensor ids = tensor(MOE_DTYPE_I32, {count, q.top_k}, a.ids.data());
  const moe_tensor weights = tensor(MOE_DTYPE_F32, {count, q.top_k}, a.weights.data());
  const moe_route_args args{sizeof args, 0, &logits, nullptr, &ids, &weights};
  MOE_REQUIRE(moe_route(nullptr, config, &args, nullptr) == MOE_OK);
  return a;
}

std::vector<float> logits_of(const Question& q, std::int64_t token) {
  std::vector<float> x(static_cast<std::size_t>(q.experts));
  for (std::size_t e = 0; e < x.size(); ++e) {
    x[e] = number(q.dtype, q.bits.data() + token * q.width(), e);
    if (std::isnan(x[e])) x[e] = -INFINITY;
    x[e] = std::min(x[e], std::numeric_limits<float>::max());
  }
  return x;
}

void check_token(const Question& q, const Answer& a, std::int64_t t, bool plain, bool normal, float factor) {
  const auto k = static_cast<std::size_t>(q.top_k);
  const std::int32_t* ids = a.ids.data() + t * q.top_k;
  const std::vector<float> x = logits_of(q, t);
  std::vector<std::int32_t> sorted(x.size());
  std::iota(sorted.begin(), sorted.end(), 0);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](auto i, auto j) { return x[static_cast<std::size_t>(i)] > x[static_cast<std::size_t>(j)]; });
  float sum = 0;
  for (std::size_t j = 0; j < k; ++j) {
    MOE_REQUIRE(ids[j] >= 0 && ids[j] < q.experts && std::count(ids, ids + k, ids[j]) == 1);
    if (plain) MOE_REQUIRE(ids[j] == sorted[j]);
    const float w = a.weights[static_cast<std::size_t>(t) * k + j];
    MOE_REQUIRE(std::isfinite(w) && w >= 0);
    sum += w;
  }
  if (normal) MOE_REQUIRE(sum == 0 || std::fabs(sum - factor) < 1e-4F * factor);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);  // what libFuzzer looks for

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::array kDtypes = {MOE_DTYPE_F32, MOE_DTYPE_BF16, MOE_DTYPE_F16};
  constexpr std::array<const char*, 3> kNames = {"float32", "bfloat16", "float16"};
  constexpr std::array<const char*, 3> kScores = {"softmax", "sigmoid", "sqrtsoftplus"};
  constexpr std::array<float, 3> kFactors = {1.0F, 2.5F, 0.5F};
  Producer p(data, size);
  Question q{};
  q.experts = 1 + static_cast<std::int64_t>(p.byte());
  q.top_k = 1 + static_cast<std::int64_t>(p.below(static_cast<std::size_t>(std::min<std::int64_t>(q.experts, 16))));
  const char* score = p.pick(kScores);
  const float factor = p.pick(kFactors);
  const std::uint8_t flags = p.byte();
  const std::int64_t groups = (flags & 1) != 0 ? 1 + static_cast<std::int64_t>(p.below(8)) : 0;
  q.tokens = static_cast<std::int64_t>(p.below(6));
  const std::size_t type = p.below(3);
  q.dtype = kDtypes[type];
  q.bits.resize(static_cast<std::size_t>(q.tokens * q.width()));
  for (std::uint8_t& b : q.bits) b = p.byte();
  const std::string text =
      "{\"num_experts\":" + std::to_string(q.experts) + ",\"top_k\":" + std::to_string(q.top_k) +
      ",\"hidden_dim\":64,\"intermediate_size\":64,\"router_logits_dtype\":\"" + kNames[type] +
      "\",\"routing\":{\"scoring_func\":\"" + score + "\",\"renormalize\":" + ((flags & 2) != 0 ? "true" : "false") +
      ",\"routed_scaling_factor\":" + std::to_string(factor) +
      (groups > 0
           ? ",\"num_expert_group\":" + std::to_string(groups) + ",\"topk_group\":" + std::to_string((groups + 1) / 2)
           : "") +
      "}}";
  const Config config = make_config(text);
  if (!config) return 0;  // groups that do not divide
  const Answer all = route(config.get(), q, 0, q.tokens);
  for (std::int64_t t = 0; t < q.tokens; ++t) {
    check_token(q, all, t, groups == 0, (flags & 2) != 0, factor);
    const Answer one = route(config.get(), q, t, 1);
    const auto at = static_cast<std::size_t>(t * q.top_k), k = static_cast<std::size_t>(q.top_k);
    MOE_REQUIRE(std::equal(one.ids.begin(), one.ids.end(), all.ids.begin() + t * q.top_k));
    MOE_REQUIRE(std::memcmp(one.weights.data(), all.weights.data() + at, k * sizeof(float)) == 0);
  }
  return 0;
}
