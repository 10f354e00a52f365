// The layer in float64. Formulas of activations: impl/spec/config.md 10.
#include "tool/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <mutex>
#include <system_error>
#include <thread>

#include "tool/session.h"

namespace moe_tool {
namespace {

struct ActivationNumbers {
  double alpha, beta, limit, gate_cap, up_cap;
};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double silu(double x) { return x * sigmoid(x); }
double gelu(double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }
double gelu_tanh(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
double relu2(double x) { return x > 0 ? x * x : x != x ? x : 0; }
double clamped(double x, double limit) { return std::min(std::max(x, -limit), limit); }

double swiglu_oai(double g, double u, const ActivationNumbers& n) {
  const double gate = std::min(g, n.limit);
  return (clamped(u, n.limit) + n.beta) * gate * sigmoid(n.alpha * gate);
}

// Of gate and up; those of one input are called with it as the gate, and up is 1.
struct ActivationRow {
  const char* name;
  double (*apply)(double g, double u, const ActivationNumbers& n);
  ActivationNumbers defaults;
};
constexpr double kNoLimit = std::numeric_limits<double>::infinity();
const ActivationRow kActivations[] = {
    {"silu",
     [](double g, double u, const ActivationNumbers& n) { return silu(std::min(g, n.limit)) * clamped(u, n.limit); },
     {0, 0, kNoLimit, 0, 0}},
    {"gelu", [](double g, double u, const ActivationNumbers&) { return gelu(g) * u; }, {}},
    {"gelu_tanh", [](double g, double u, const ActivationNumbers&) { return gelu_tanh(g) * u; }, {}},
    {"relu2", [](double g, double u, const ActivationNumbers&) { return relu2(g) * u; }, {}},
    {"swigluoai", swiglu_oai, {1.702, 1, 7, 0, 0}},
    {"swigluoai_uninterleave", swiglu_oai, {1.702, 1, 7, 0, 0}},
    {"swiglustep",
     [](double g, double u, const ActivationNumbers& n) { return std::min(silu(g), n.limit) * clamped(u, n.limit); },
     {0, 0, 7, 0, 0}},
    {"swiglu_softcap",
     [](double g, double u, const ActivationNumbers& n) {
       return n.gate_cap * std::tanh(g / n.gate_cap) * sigmoid(g) * n.up_cap * std::tanh(u / n.up_cap);
     },
     {0, 0, 0, 4, 25}},
    {"situ",  // a cap of 0 is none
     [](double g, double u, const ActivationNumbers& n) {
       const auto capped = [](double x, double cap) { return cap == 0 ? x : cap * std::tanh(x / cap); };
       return capped(g, n.gate_cap) * sigmoid(g) * capped(u, n.up_cap);
     },
     {}},
};

// The row of an activation, also of "silu_no_mul" and "gelu_pytorch_tanh".
const ActivationRow* activation_named(std::string name) {
  if (name.ends_with("_no_mul")) name.resize(name.size() - 7);
  if (name == "gelu_pytorch_tanh") name = "gelu_tanh";
  for (const ActivationRow& row : kActivations)
    if (name == row.name) return &row;
  return nullptr;
}

double number_or(const Json& object, const char* name, double other) {
  return object.is_object() && object.contains(name) && object[name].is_number() ? object[name].get<double>() : other;
}

// A dense tensor of an expert, as float32.
std::vector<float> dense(const moe_packed* packed, const char* role, std::int64_t expert, std::int64_t rows,
                         std::int64_t columns) {
  std::vector<float> out(static_cast<std::size_t>(rows * std::max<std::int64_t>(columns, 1)));
  auto view = sized<moe_tensor>();
  view.dtype = MOE_DTYPE_F32;
  view.ndim = columns == 0 ? 1 : 2;
  view.shape[0] = rows;
  view.shape[1] = columns;
  view.data = out.data();
  call(moe_packed_dequantize, packed, role, expert, &view);
  return out;
}

std::vector<double> product(const std::vector<float>& matrix, const std::vector<float>& bias,
                            const std::vector<double>& x) {
  std::vector<double> out(matrix.size() / x.size());
  for (std::size_t n = 0; n < out.size(); ++n) {
    double sum = 0;
    for (std::size_t k = 0; k < x.size(); ++k) sum += static_cast<double>(matrix[n * x.size() + k]) * x[k];
    out[n] = sum + (bias.empty() ? 0 : static_cast<double>(bias[n]));
  }
  return out;
}

// One expert's numbers and what it makes of a token.
class ReferenceExpert {
 public:
  ReferenceExpert(const moe_packed* packed, std::int64_t id, const Json& config) {
    const std::int64_t hidden = config.at("hidden_dim");
    const std::int64_t width = config.at("intermediate_size_per_partition");
    gated_ = config.value("is_gated", true);
    const std::int64_t rows = gated_ ? 2 * width : width;
    w13_ = dense(packed, "w13_weight", id, rows, hidden);
    w2_ = dense(packed, "w2_weight", id, hidden, width);
    if (config.value("has_bias", false)) {
      b13_ = dense(packed, "w13_bias", id, rows, 0);
      b2_ = dense(packed, "w2_bias", id, hidden, 0);
    }
    const Json& given = config.at("activation_params");
    activation_ = activation_named(config.at("activation"));
    const ActivationNumbers& usual = activation_->defaults;
    numbers_ = {number_or(given, "alpha", usual.alpha), number_or(given, "beta", usual.beta),
                number_or(given, "limit", usual.limit), number_or(given, "gate_cap", usual.gate_cap),
                number_or(given, "up_cap", usual.up_cap)};
  }

  std::vector<double> output(const std::vector<double>& x) const {
    const std::vector<double> y13 = product(w13_, b13_, x);
    std::vector<double> middle(gated_ ? y13.size() / 2 : y13.size());
    for (std::size_t i = 0; i < middle.size(); ++i)
      middle[i] = activation_->apply(y13[i], gated_ ? y13[middle.size() + i] : 1, numbers_);
    return product(w2_, b2_, middle);
  }

 private:
  std::vector<float> w13_, w2_, b13_, b2_;
  const ActivationRow* activation_;
  ActivationNumbers numbers_;
  bool gated_;
};

}  // namespace

ReferenceLayer::ReferenceLayer(const Json& config, const moe_packed* packed)
    : packed_(packed), config_(config), sizes_(sizes_of(config)) {
  const Json report = document_of(moe_packed_to_json, packed);
  for (const Json& id : report.at("experts")) held_.push_back(id.get<std::int64_t>());
  std::sort(held_.begin(), held_.end());
  const std::string activation = config.at("activation");
  if (activation_named(activation) == nullptr)
    problem_ = fmt::format("check does not calculate the activation {}", activation);
  if (config.contains("expert_norm")) problem_ = "check does not calculate the norm of an expert's output";
  if (config.value("bit_compat", "") == "vllm") problem_ = "bit_compat vllm rounds as vLLM does, on purpose";
}

std::vector<double> ReferenceLayer::outputs(const TokenBatch& batch, int threads) const {
  const std::vector<std::int32_t>& ids = batch.ids();
  std::vector<std::int64_t> distinct(ids.begin(), ids.end());
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  const bool weight_on_input = config_.value("apply_router_weight_on_input", false);
  const Json& routing = config_.at("routing");
  const auto chosen = static_cast<std::size_t>(sizes_.chosen);
  const auto weight_of = [&](std::size_t slot) { return static_cast<double>(batch.weights()[slot]); };
  const auto input_of = [&](std::size_t slot) {
    std::vector<double> x(static_cast<std::size_t>(sizes_.hidden));
    for (std::size_t k = 0; k < x.size(); ++k)
      x[k] = batch.hidden(static_cast<std::int64_t>(slot / chosen), static_cast<std::int64_t>(k)) *
             (weight_on_input ? weight_of(slot) : 1);
    return x;
  };

  // Each thread takes experts; what they give is added afterwards, in one order.
  std::vector<std::vector<double>> of_slot(ids.size());
  std::atomic<std::size_t> next = 0;
  std::exception_ptr fault;
  std::mutex fault_mutex;
  const auto work = [&] {
    try {
      for (std::size_t i = next++; i < distinct.size(); i = next++) {
        if (Interrupt::came()) return;
        if (!std::binary_search(held_.begin(), held_.end(), distinct[i])) continue;
        const ReferenceExpert expert(packed_, distinct[i], config_);
        for (std::size_t slot = 0; slot < ids.size(); ++slot)
          if (ids[slot] == distinct[i]) of_slot[slot] = expert.output(input_of(slot));
      }
    } catch (...) {
      const std::lock_guard lock(fault_mutex);
      fault = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;
    try {
      for (int i = 1; i < threads; ++i) others.emplace_back(work);
    } catch (const std::system_error&) {  // those that run share the work
    }
    work();
  }
  if (fault) std::rethrow_exception(fault);

  const bool gives_token = routing.value("zero_experts", "identity") == std::string("identity");
  const bool factor_on_output =
      routing.value("apply_routed_scale_to_output", false) && !routing.value("topk_weights_hold_factor", false);
  const double factor = factor_on_output ? number_or(routing, "routed_scaling_factor", 1) : 1;
  std::vector<double> out(static_cast<std::size_t>(batch.tokens() * sizes_.hidden), 0.0);
  for (std::size_t slot = 0; slot < ids.size(); ++slot) {
    const bool zero_expert = ids[slot] >= sizes_.with_weights && gives_token;
    const std::vector<double> y = zero_expert ? input_of(slot) : std::move(of_slot[slot]);
    const double weight = weight_on_input ? 1 : weight_of(slot);
    double* row = out.data() + slot / chosen * static_cast<std::size_t>(sizes_.hidden);
    for (std::size_t k = 0; k < y.size(); ++k) row[k] += factor * weight * y[k];
  }
  return out;
}

double relative_error(const TokenBatch& batch, const CallSizes& sizes, const std::vector<double>& expected) {
  double difference = 0;
  double size = 0;
  for (std::int64_t t = 0; t < batch.tokens(); ++t) {
    for (std::int64_t k = 0; k < sizes.hidden; ++k) {
      const double want = expected[static_cast<std::size_t>(t * sizes.hidden + k)];
      const double got = batch.out(t, k);
      if (!std::isfinite(want) && !std::isfinite(got)) continue;
      difference += (got - want) * (got - want);
      size += want * want;
    }
  }
  return size > 0 ? std::sqrt(difference / size) : std::sqrt(difference);
}

}  // namespace moe_tool
