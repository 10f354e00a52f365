// Weights as vLLM's CPU_INT4 experts make them, every step rounded to the logits' dtype (w4a8_int8.md 10):
//
//   renormalize  softmax over the k chosen logits
//   else         exp(x - logsumexp(row))
#include <algorithm>
#include <array>
#include <limits>

#include "base/checked.h"
#include "base/exp.h"
#include "base/float_formats.h"
#include "run/route/rules.h"

namespace moe::run {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// What the logits' dtype decides.
struct LogitsFormat {
  float (*round)(float x);  // to the dtype's values
  float largest;
};
constexpr LogitsFormat kF32 = {[](float x) { return x; }, std::numeric_limits<float>::max()};
constexpr LogitsFormat kBf16 = {[](float x) { return bf16_to_f32(f32_to_bf16(x)); }, 0x1.fep+127f};
constexpr LogitsFormat kF16 = {[](float x) { return f16_to_f32(f32_to_f16(x)); }, 65504.0f};

const LogitsFormat& format_of(DType t) { return t == DType::bf16 ? kBf16 : t == DType::f16 ? kF16 : kF32; }

// In 16 partial sums (expert mod 16), folded 8, 4, 2, 1.
template <class F>
float sum_of_all(const float* row, std::size_t n, F term) {
  std::array<float, kRouteLanes> part{};
  for (std::size_t i = 0; i < n; ++i) part[i % kRouteLanes] += term(row[i]);
  for (std::size_t half = kRouteLanes / 2; half > 0; half /= 2)
    for (std::size_t lane = 0; lane < half; ++lane) part[lane] += part[lane + half];
  return part[0];
}

}  // namespace

void vllm_weights(const Router& r, DType logits_dtype, const float* row, float* weights) {
  const LogitsFormat& f = format_of(logits_dtype);
  const auto round = f.round;
  if (weights[0] == -kInf || r.renormalize) {
    softmax_of_chosen(weights, r.k);
    for (std::size_t j = 0; j < r.k; ++j) weights[j] = round(weights[j]);
    return;
  }
  const float largest = f.largest, m = std::min(weights[0], largest);
  const float sum =
      sum_of_all(row, r.columns, [=](float x) { return round(exp_f32(round(std::min(x, largest) - m))); });
  const float log_sum = round(round(log_f32(round(sum))) + m);
  for (std::size_t j = 0; j < r.k; ++j) weights[j] = round(exp_f32(round(std::min(weights[j], largest) - log_sum)));
}

}  // namespace moe::run
