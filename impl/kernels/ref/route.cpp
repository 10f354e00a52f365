// Scores, group scores and top-k of one row of router logits: the definition that every ISA repeats operation
// by operation (routing.md 1 and 4, numerics.md 4).
//
//   softmax       exp(x - m) / S
//   sigmoid       1 / (1 + exp(-x))
//   sqrtsoftplus  sqrt(log1p(exp(x))), sqrt(x) above 20;  with e = exp(x), u = 1 + e:
//                 log1p(e) = log(u) + (e - (u - 1)) / u, which keeps the digits of e that 1 + e loses
#include "kernels/ref/route.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/exp.h"
#include "base/float_formats.h"

namespace moe::kernels {
namespace {

#include "kernels/body/best.inl"

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kMaxFloat = std::numeric_limits<float>::max();

constexpr float sanitise(float x) {
  const float number = x == x ? x : -kInf;
  return number > kMaxFloat ? kMaxFloat : number;
}

void load(DType dtype, const std::byte* src, std::size_t n, float* row) {
  ref::load_logits(dtype, src, n, row);
  std::fill(row + n, row + route_row_floats(n), -kInf);
}

void softmax(const float* row, std::size_t n, float* scores) {
  const std::size_t whole = round_up(n, kRouteLanes);
  const float m = *std::max_element(row, row + n);
  if (m == -kInf) {
    std::fill(scores, scores + whole, 0.0f);
    return;
  }
  std::array<float, kRouteLanes> part{};
  for (std::size_t i = 0; i < whole; ++i) {
    scores[i] = exp_f32(row[i] - m);  // +0 past n: changes no bit of a sum
    part[i % kRouteLanes] += scores[i];
  }
  for (std::size_t half = kRouteLanes / 2; half > 0; half /= 2)
    for (std::size_t lane = 0; lane < half; ++lane) part[lane] += part[lane + half];
  for (std::size_t i = 0; i < whole; ++i) scores[i] /= part[0];
}

void sigmoid(const float* row, std::size_t n, float* scores) {
  for (std::size_t i = 0; i < round_up(n, kRouteLanes); ++i) scores[i] = 1.0f / (1.0f + exp_f32(-0.0f - row[i]));
}

void sqrtsoftplus(const float* row, std::size_t n, float* scores) {
  for (std::size_t i = 0; i < round_up(n, kRouteLanes); ++i) scores[i] = std::sqrt(ref::log1p_exp(row[i]));
}

void add(const float* scores, const float* bias, std::size_t n, float* keys) {
  for (std::size_t i = 0; i < round_up(n, kRouteLanes); ++i) keys[i] = scores[i] + bias[i];
}

void group_scores(const GroupArgs& a) {
  for (std::size_t g = 0; g < a.groups; ++g) {
    float first = -kInf, second = -kInf;
    for (const float *key = a.keys + g * a.per, *end = key + a.per; key != end; ++key) {
      if (*key > first) {
        second = first;
        first = *key;
      } else if (*key > second) {
        second = *key;
      }
    }
    a.out[g] = a.score == GroupScore::largest ? first : first + second;
  }
}

void select(const float* keys, std::int32_t first, std::size_t count, Best& best) {
  for (std::size_t i = 0; i < count; ++i) offer(best, keys[i], first + static_cast<std::int32_t>(i));
}

}  // namespace

namespace ref {

void load_logits(DType dtype, const std::byte* src, std::size_t n, float* dst) {
  if (dtype == DType::f32) {
    std::memcpy(dst, src, n * sizeof(float));
    for (std::size_t i = 0; i < n; ++i) dst[i] = sanitise(dst[i]);
    return;
  }
  for (std::size_t i = 0; i < n; ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, src + i * sizeof bits, sizeof bits);
    dst[i] = sanitise(dtype == DType::bf16 ? bf16_to_f32(bits) : f16_to_f32(bits));
  }
}

float log1p_exp(float x) {
  if (x > 20.0f) return x;
  const float e = exp_f32(x), u = 1.0f + e;
  return log_f32(u) + (e - (u - 1.0f)) / u;
}

}  // namespace ref

const RouteKernel kRouteScalar = {.isa = Isa::scalar,
                                  .load = load,
                                  .softmax = softmax,
                                  .sigmoid = sigmoid,
                                  .sqrtsoftplus = sqrtsoftplus,
                                  .add = add,
                                  .group_scores = group_scores,
                                  .select = select};

}  // namespace moe::kernels
