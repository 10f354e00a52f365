// Routing a batch: tokens are cut into items, each with a few rows of scratch. See route.h.
#include "run/route/route.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/checked.h"
#include "base/exp.h"
#include "base/float_state.h"
#include "base/index.h"
#include "base/number_at.h"
#include "run/route/plan.h"
#include "run/route/rules.h"

namespace moe::run {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// Memory of one item, in floats.
struct Scratch {
  float* row = nullptr;     // the logits
  float* scores = nullptr;  // beside them
  float* keys = nullptr;    // with a bias: scores + bias
  float* masked = nullptr;  // with zero_masked
  float* group_scores = nullptr;
  float* group_keys = nullptr;  // [kept], with
  std::int32_t* group_ids = nullptr;
};

Scratch carve(Carver& c, const Router& r) {
  Scratch s;
  const std::size_t row = route_row_floats(r.columns);
  s.row = c.take<float>(row);
  s.scores = c.take<float>(row);
  if (!r.bias.empty()) s.keys = c.take<float>(row);
  if (r.zero_masked) s.masked = c.take<float>(row);
  if (r.groups > 1) {
    s.group_scores = c.take<float>(route_row_floats(r.groups));
    s.group_keys = c.take<float>(r.kept);
    s.group_ids = c.take<std::int32_t>(r.kept);
  }
  return s;
}

std::size_t item_bytes(const Router& r) {
  Carver c(nullptr);
  carve(c, r);
  return c.used();
}

// Some microseconds of work each, so that waking a thread pays; few enough for their scratch.
std::size_t item_count(const Router& r, std::int64_t tokens) {
  constexpr std::size_t kItemLogits = 8192, kMaxItems = 64, kMaxBytes = std::size_t{4} << 20;
  const std::size_t wanted = ceil_div(usize(tokens) * r.columns, kItemLogits);
  const std::size_t most = std::clamp<std::size_t>(kMaxBytes / item_bytes(r), 1, kMaxItems);
  return std::clamp<std::size_t>(std::min(wanted, usize(tokens)), 1, most);
}

// The scores of a row; of raw logits the row itself.
const float* score(const Router& r, const Scratch& s) {
  switch (r.score) {
    case RouteScore::softmax:
      r.kernel->softmax(s.row, r.columns, s.scores);
      break;
    case RouteScore::sigmoid:
      r.kernel->sigmoid(s.row, r.columns, s.scores);
      break;
    case RouteScore::sqrtsoftplus:
      r.kernel->sqrtsoftplus(s.row, r.columns, s.scores);
      break;
    case RouteScore::logit:
      return s.row;
  }
  return s.scores;
}

// The k best experts of the groups that stay; their keys end up in out.weights.
void choose(const Router& r, const Scratch& s, const float* keys, const Slots& out) {
  Best best{.keys = out.weights, .ids = out.ids, .k = r.k};
  if (r.groups == 1) {
    r.kernel->select(keys, 0, r.columns, best);
    return;
  }
  const std::size_t per = r.columns / r.groups;
  r.kernel->group_scores({keys, r.groups, per, r.group_score, s.group_scores});
  Best groups{.keys = s.group_keys, .ids = s.group_ids, .k = r.kept};
  r.kernel->select(s.group_scores, 0, r.groups, groups);
  std::sort(s.group_ids, s.group_ids + r.kept);
  if (r.zero_masked) {
    std::size_t next = 0;
    for (std::size_t g = 0; g < r.groups; ++g) {
      const bool stays = next < r.kept && usize(s.group_ids[next]) == g;
      next += stays ? 1 : 0;
      for (std::size_t e = g * per; e < (g + 1) * per; ++e) s.masked[e] = stays ? keys[e] : 0.0f;
    }
    r.kernel->select(s.masked, 0, r.columns, best);
    return;
  }
  for (std::size_t i = 0; i < r.kept; ++i) {
    const std::size_t first = usize(s.group_ids[i]) * per;
    r.kernel->select(keys + first, static_cast<std::int32_t>(first), per, best);
  }
}

void gather(const float* scores, const Slots& out, std::size_t k) {
  for (std::size_t j = 0; j < k; ++j) out.weights[j] = scores[out.ids[j]];
}

// What renormalize adds to the sum of the chosen scores: those of shared experts (a NaN's is 0), and an epsilon.
float sum_of_others(const Router& r, const RouteArgs& a, const std::byte* logits) {
  const std::size_t size = usize(dtype_bits(a.logits_dtype) / 8);
  float sum = 0.0f;
  for (std::size_t j = 0; j < r.shared_logits; ++j)
    if (const float x = load_float(a.logits_dtype, logits + (r.columns + j) * size); !std::isnan(x))
      sum += 1.0f / (1.0f + exp_f32(-x));
  return sum + r.renormalize_eps;
}

void route_by_scores(const Router& r, const RouteArgs& a, const std::byte* logits, const Scratch& s, const Slots& out) {
  const float* keys = s.row;
  const float* scores = nullptr;
  if (!r.bias.empty()) {
    scores = score(r, s);
    r.kernel->add(r.bias_on_logits ? s.row : scores, r.bias.data(), r.columns, s.keys);
    keys = s.keys;
  } else if (r.zero_masked || (r.groups > 1 && r.group_score == GroupScore::two_largest)) {
    keys = scores = score(r, s);  // sums and zeros mean something among scores, not among logits
  }
  choose(r, s, keys, out);
  if (scores == nullptr && r.score == RouteScore::softmax && r.renormalize && r.renormalize_eps == 0.0f &&
      r.renormalize_min == 0.0f) {
    softmax_of_chosen(out.weights, r.k);
    return;
  }
  const bool nothing = out.weights[0] == -kInf;
  gather(scores == nullptr ? score(r, s) : scores, out, r.k);
  if (r.score == RouteScore::logit && nothing) std::fill_n(out.weights, r.k, 0.0f);
  if (r.renormalize) renormalize(out.weights, r.k, sum_of_others(r, a, logits), r.renormalize_min);
}

void route_by_hash(const Router& r, const RouteArgs& a, std::size_t token, const Scratch& s, const Slots& out) {
  for (std::size_t j = 0; j < r.k; ++j) {
    const std::int64_t id = id_at(*a.hash_ids, static_cast<std::int64_t>(token), static_cast<std::int64_t>(j));
    // They were checked. Memory that changed since then must not be an index beyond the scores.
    out.ids[j] = static_cast<std::int32_t>(std::clamp<std::int64_t>(id, 0, static_cast<std::int64_t>(r.columns) - 1));
  }
  gather(score(r, s), out, r.k);
  if (r.renormalize) renormalize(out.weights, r.k, r.renormalize_eps);
}

void route_token(const Router& r, const RouteArgs& a, const Scratch& s, std::size_t t) {
  const Slots out{a.ids + t * r.width(), a.weights + t * r.width()};
  const std::size_t stride = usize(a.row_stride * (dtype_bits(a.logits_dtype) / 8));
  const std::byte* logits = a.logits + t * stride;
  r.kernel->load(a.logits_dtype, logits, r.columns, s.row);
  switch (r.rule) {
    case RouteRule::scores:
      route_by_scores(r, a, logits, s, out);
      break;
    case RouteRule::vllm:
      choose(r, s, s.row, out);
      vllm_weights(r, a.logits_dtype, s.row, out.weights);
      break;
    case RouteRule::hash:
      route_by_hash(r, a, t, s, out);
      break;
    case RouteRule::sparse_mixer:
      sparse_mixer(r, s.row, out);
      break;
    case RouteRule::uniform_random:
    case RouteRule::normal_routing:
      simulate(r, t, out);
      break;
    case RouteRule::caller:  // refused by check_router
      break;
  }
  if (r.factor != 1.0f)
    for (std::size_t j = 0; j < r.k; ++j) out.weights[j] *= r.factor;
  if (!r.expert_scale.empty())
    for (std::size_t j = 0; j < r.k; ++j)
      if (const std::size_t e = usize(out.ids[j]); e < r.experts) out.weights[j] *= r.expert_scale[e];
  if (r.weights_dtype == DType::bf16)
    std::transform(out.weights, out.weights + r.k, out.weights, [](float w) { return bf16_to_f32(f32_to_bf16(w)); });
  if (r.weights_dtype == DType::f16)
    std::transform(out.weights, out.weights + r.k, out.weights, [](float w) { return f16_to_f32(f32_to_f16(w)); });
  for (std::size_t j = 0; j < r.shared; ++j) {
    out.ids[r.k + j] = static_cast<std::int32_t>(r.experts + j);
    out.weights[r.k + j] = 1.0f;
  }
}

}  // namespace

void softmax_of_chosen(float* weights, std::size_t k) {
  const float m = weights[0];
  if (m == -kInf) {
    std::fill_n(weights, k, 0.0f);
    return;
  }
  float sum = 0.0f;
  for (std::size_t j = 0; j < k; ++j) {
    weights[j] = exp_f32(weights[j] - m);
    sum += weights[j];
  }
  for (std::size_t j = 0; j < k; ++j) weights[j] /= sum;
}

void renormalize(float* weights, std::size_t k, float others, float least) {
  float sum = 0.0f;
  for (std::size_t j = 0; j < k; ++j) sum += weights[j];
  if (others != 0.0f) sum += others;
  if (sum < least) sum = least;
  if (!(sum > 0.0f)) return;
  for (std::size_t j = 0; j < k; ++j) weights[j] /= sum;
}

std::size_t route_scratch_bytes(const Router& router, std::int64_t num_tokens) {
  return num_tokens == 0 ? 0 : item_bytes(router) * item_count(router, num_tokens);
}

Check route(const Router& r, const RouteArgs& a, const Parallel& parallel) {
  if (a.num_tokens == 0) return ok();
  const std::size_t tokens = usize(a.num_tokens);
  const std::size_t items = item_count(r, a.num_tokens), bytes = item_bytes(r);
  auto body = [&](std::size_t item) {
    const KeepDenormals scope;  // they are different keys, whatever state the caller has
    Carver carver(a.scratch + item * bytes);
    const Scratch s = carve(carver, r);
    for (std::size_t t = tokens * item / items, end = tokens * (item + 1) / items; t < end; ++t)
      route_token(r, a, s, t);
  };
  return parallel.each(items, body);
}

}  // namespace moe::run
