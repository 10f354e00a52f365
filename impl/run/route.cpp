// Routing without bias or groups (routing.md 1, decisions 7.4). Per token:
//
//   keys     the logits in float32, NaN -> -inf, +inf -> largest float
//   top-k    by key, descending, equal keys by ascending expert; kept sorted in the output row itself
//   weights  renormalize: e_j = exp(x_j - m), e_j / (sum of the k in output order)
//            else:        exp(x_j - m) / S, S over all experts in 16 partial sums (expert mod 16),
//                         folded 8, 4, 2, 1
//   factor   times routed_scaling_factor, unless that is for the layer's output
//
// Rows are read in chunks of the stack, twice where S is needed, so no buffer grows with E. With
// bit_compat vllm, W4A8-int8 layers follow upstream's steps in the logits' dtype (w4a8_int8.md 10).
#include "run/route.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "base/checked.h"
#include "base/exp.h"
#include "base/float_formats.h"

namespace moe {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kMaxFloat = std::numeric_limits<float>::max();
constexpr std::size_t kLanes = 16;
constexpr std::size_t kChunk = 256;  // experts at a time, a multiple of kLanes
using Chunk = std::array<float, kChunk>;

constexpr float sanitise(float x) {
  const float number = x == x ? x : -kInf;
  return number > kMaxFloat ? kMaxFloat : number;
}

void load_f32(const std::byte* src, std::size_t n, float* dst) {
  std::memcpy(dst, src, n * sizeof(float));
  for (std::size_t i = 0; i < n; ++i) dst[i] = sanitise(dst[i]);
}
template <float (*widen)(std::uint16_t)>
void load_16(const std::byte* src, std::size_t n, float* dst) {
  std::array<std::uint16_t, kChunk> bits;
  std::memcpy(bits.data(), src, n * sizeof(std::uint16_t));
  for (std::size_t i = 0; i < n; ++i) dst[i] = sanitise(widen(bits[i]));
}

// What the logits' dtype decides.
struct Format {
  std::size_t bytes;
  void (*load)(const std::byte* src, std::size_t n, float* dst);  // n <= kChunk
  float (*round)(float x);                                        // to the dtype's values
  float largest;
};
constexpr Format kF32 = {4, load_f32, [](float x) { return x; }, kMaxFloat};
constexpr Format kBf16 = {2, load_16<bf16_to_f32>, [](float x) { return bf16_to_f32(f32_to_bf16(x)); }, 0x1.fep+127f};
constexpr Format kF16 = {2, load_16<f16_to_f32>, [](float x) { return f16_to_f32(f32_to_f16(x)); }, 65504.0f};

// The n best of what was offered, in ascending order of experts: sorted descending, first come first.
struct Best {
  float* keys;
  std::int32_t* ids;
  std::size_t n = 0, k;

  void offer(float key, std::int32_t id) {
    std::size_t place = n;
    if (n == k) {
      if (!(key > keys[k - 1])) return;
      place = k - 1;
    } else {
      ++n;
    }
    for (; place > 0 && keys[place - 1] < key; --place) {
      keys[place] = keys[place - 1];
      ids[place] = ids[place - 1];
    }
    keys[place] = key;
    ids[place] = id;
  }
};

struct Row {
  const Format& format;
  const std::byte* logits;
  std::size_t experts;

  // Calls step(chunk, first expert, count) for the whole row.
  template <class F>
  void each_chunk(Chunk& chunk, F step) const {
    for (std::size_t first = 0; first < experts; first += kChunk) {
      const std::size_t n = std::min(kChunk, experts - first);
      format.load(logits + first * format.bytes, n, chunk.data());
      step(first, n);
    }
  }

  void select(Best& best) const {
    Chunk chunk;
    each_chunk(chunk, [&](std::size_t first, std::size_t n) {
      for (std::size_t i = 0; i < n; ++i) best.offer(chunk[i], static_cast<std::int32_t>(first + i));
    });
  }

  // The sum of term(x) over all experts. Adding term(-inf) = +0 for the lanes past the end changes no bits.
  template <class F>
  float sum(F term) const {
    Chunk chunk;
    std::array<float, kLanes> part{};
    each_chunk(chunk, [&](std::size_t, std::size_t n) {
      const std::size_t whole = round_up(n, kLanes);
      std::fill(chunk.begin() + static_cast<std::ptrdiff_t>(n), chunk.begin() + static_cast<std::ptrdiff_t>(whole),
                -kInf);
      for (std::size_t i = 0; i < whole; i += kLanes)
        for (std::size_t lane = 0; lane < kLanes; ++lane) part[lane] += term(chunk[i + lane]);
    });
    for (std::size_t half = kLanes / 2; half > 0; half /= 2)
      for (std::size_t lane = 0; lane < half; ++lane) part[lane] += part[lane + half];
    return part[0];
  }
};

// exp for x <= 0 or -inf, the same bits as exp_f32, without branches.
float exp_negative(float x) {
  const float inside = x < exp_constants::kMinNormal ? exp_constants::kMinNormal : x;
  const float e = exp_in_range(inside);
  return x < exp_constants::kMinNormal ? 0.0f : e;
}

// keys -> weights, in place; keys[0] is the largest.
void softmax_of_chosen(float* keys, std::size_t k) {
  const float m = keys[0];
  float sum = 0.0f;
  for (std::size_t j = 0; j < k; ++j) {
    keys[j] = exp_negative(keys[j] - m);
    sum += keys[j];
  }
  for (std::size_t j = 0; j < k; ++j) keys[j] /= sum;
}

void softmax_of_all(const Row& row, float* keys, std::size_t k) {
  const float m = keys[0];
  const float sum = row.sum([m](float x) { return exp_negative(x - m); });
  for (std::size_t j = 0; j < k; ++j) keys[j] = exp_negative(keys[j] - m) / sum;
}

// Upstream's x - logsumexp, then exp, every step rounded to the logits' dtype.
void softmax_of_all_vllm(const Row& row, float* keys, std::size_t k) {
  const auto round = row.format.round;
  const float largest = row.format.largest;
  const float m = std::min(keys[0], largest);
  const float sum = row.sum([=](float x) { return round(exp_negative(round(std::min(x, largest) - m))); });
  const float log_sum = round(round(log_f32(round(sum))) + m);
  // x - log_sum may round to just above 0, so exp_f32.
  for (std::size_t j = 0; j < k; ++j) keys[j] = round(exp_f32(round(std::min(keys[j], largest) - log_sum)));
}

enum class Rule : std::uint8_t { chosen, all, chosen_vllm, all_vllm };

struct Job {
  const RouteArgs& args;
  const Format& format;
  std::size_t experts, k;
  Rule rule;
  float factor;
};

void route_token(const Job& job, std::size_t t) {
  const auto stride = static_cast<std::size_t>(job.args.row_stride) * job.format.bytes;
  const Row row{job.format, job.args.logits + t * stride, job.experts};
  float* weights = job.args.weights + t * job.k;
  Best best{.keys = weights, .ids = job.args.ids + t * job.k, .k = job.k};
  row.select(best);

  if (weights[0] == -kInf) {  // nothing but NaN and -inf: the ids are 0..k-1
    std::fill_n(weights, job.k, 0.0f);
    return;
  }
  switch (job.rule) {
    case Rule::chosen:
    case Rule::chosen_vllm:
      softmax_of_chosen(weights, job.k);
      break;
    case Rule::all:
      softmax_of_all(row, weights, job.k);
      break;
    case Rule::all_vllm:
      softmax_of_all_vllm(row, weights, job.k);
      break;
  }
  if (job.rule == Rule::chosen_vllm)
    for (std::size_t j = 0; j < job.k; ++j) weights[j] = job.format.round(weights[j]);
  if (job.factor != 1.0f)
    for (std::size_t j = 0; j < job.k; ++j) weights[j] *= job.factor;
}

const Format& format_of(DType t) { return t == DType::bf16 ? kBf16 : t == DType::f16 ? kF16 : kF32; }

// Upstream's CPU_INT4 experts route in the logits' dtype; nothing else follows them.
bool routes_as_vllm(const Config& c) { return c.bit_compat == Policy::vllm && c.quantization.is_w4a8_int8(); }

}  // namespace

Check check_route_supported(const Config& config) {
  const RoutingConfig& r = config.routing;
  struct Need {
    bool there;
    const char* pointer;
    std::string found;
  };
  const bool softmax_method = r.method == RoutingMethod::default_ || r.method == RoutingMethod::renormalize ||
                              r.method == RoutingMethod::renormalize_naive;
  // The members first: with them the method's name is only a consequence.
  const Need needs[] = {
      {r.method == RoutingMethod::custom, "/routing/method", "custom routing (the caller routes: mode TOPK)"},
      {r.hash_routing, "/routing/hash_routing", "hash routing"},
      {r.num_zero_experts != 0, "/routing/num_zero_experts", "zero experts"},
      {r.num_fused_shared_experts != 0, "/routing/num_fused_shared_experts", "fused shared experts"},
      {r.num_expert_group.has_value(), "/routing/num_expert_group", "grouped top-k"},
      {r.has_bias, "/routing/e_score_correction_bias", "a correction bias"},
      {r.scoring != Scoring::softmax, "/routing/scoring_func",
       "scoring function " + std::string(kScoringNames[static_cast<std::size_t>(r.scoring)])},
      {!softmax_method, "/routing/method", "method " + std::string(routing_method_name(r.method))},
  };
  for (const Need& n : needs)
    if (n.there)
      return fail(Code::unsupported, n.pointer,
                  std::string(n.pointer) + ": " + n.found +
                      " is not built; built are softmax top-k with and without renormalize");
  return ok();
}

void route(const Config& config, const RouteArgs& args, const Parallel& parallel) noexcept {
  const bool vllm = routes_as_vllm(config);
  const RoutingConfig& r = config.routing;
  const bool scaled = !vllm && !r.apply_routed_scale_to_output;
  const Job job{.args = args,
                .format = format_of(args.logits_dtype),
                .experts = static_cast<std::size_t>(config.num_experts),
                .k = static_cast<std::size_t>(config.top_k),
                .rule = r.renormalize ? (vllm ? Rule::chosen_vllm : Rule::chosen) : (vllm ? Rule::all_vllm : Rule::all),
                .factor = scaled ? static_cast<float>(r.routed_scaling_factor) : 1.0f};
  // Tasks of some microseconds, so that waking a thread pays.
  constexpr std::size_t kTaskLogits = 8192;
  const auto tokens = static_cast<std::size_t>(args.num_tokens);
  const std::size_t per_task = std::max<std::size_t>(1, kTaskLogits / job.experts);
  auto body = [&](std::size_t task) {
    const std::size_t end = std::min(tokens, (task + 1) * per_task);
    for (std::size_t t = task * per_task; t < end; ++t) route_token(job, t);
  };
  parallel.each(ceil_div(tokens, per_task), body);
}

}  // namespace moe
