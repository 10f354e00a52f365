// The whole layer through the C API, on the shapes of real models: decode to prefill, one and more threads.
//
// Name: layer/<workload>/<format>/<kernel>/T:<tokens>/threads:<n>. Counters: tok_s, GB_s (weights read), TOPS, and the
// two ratios to the probes of the same run, `bw` and `peak`. Median of the undisturbed calls; a single token walks
#include <benchmark/benchmark.h>
#include <moe/moe.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bench/probes.h"

namespace moe::bench {
namespace {

struct Workload {
  const char* name;
  std::int64_t experts, top_k, hidden, intermediate;
};
constexpr Workload kWorkloads[] = {
    {"qwen3-30b-a3b", 128, 8, 2048, 768},
    {"mixtral-8x7b", 8, 2, 4096, 14336},
    {"deepseek-v3-64", 64, 8, 7168, 2048},
};

void check(moe_status status, moe_error* e) {
  if (status == MOE_OK) return;
  const std::string text = moe_error_message(e);
  moe_error_destroy(e);
  throw std::runtime_error(text);
}

// One set of random tensors serves every expert: the packed experts are distinct memory all the same.
struct Source {
  std::vector<std::int8_t> codes;
  std::vector<std::uint16_t> scales;
  Workload w;
  std::int64_t group;  // -1 = channel

  static moe_status MOE_CALL get(void* user, const char* role, std::int64_t, const char* shard, moe_tensor* out,
                                 moe_error** err) {
    auto& s = *static_cast<Source*>(user);
    const std::string name = role;
    const bool w13 = name.rfind("w13", 0) == 0;
    if (shard != nullptr ||
        (name != "w13_weight" && name != "w2_weight" && name != "w13_scale" && name != "w2_scale")) {
      *err = moe_error_create(MOE_ERR_MISSING_WEIGHT, "not in this source", MOE_NUL_TERMINATED);
      return MOE_ERR_MISSING_WEIGHT;
    }
    const std::int64_t k = w13 ? s.w.hidden : s.w.intermediate;
    const bool scale = name.find("scale") != std::string::npos;
    out->dtype = scale ? MOE_DTYPE_BF16 : MOE_DTYPE_I8;
    out->ndim = 2;
    out->data = scale ? static_cast<void*>(s.scales.data()) : static_cast<void*>(s.codes.data());
    out->shape[0] = w13 ? 2 * s.w.intermediate : s.w.hidden;
    out->shape[1] = scale ? (s.group < 0 ? 1 : k / s.group) : k;
    return MOE_OK;
  }
};

struct Model {
  Workload w{};
  std::int64_t group = 0;
  moe_config* config = nullptr;
  moe_packed* packed = nullptr;
  moe_selection* selection = nullptr;
  double expert_bytes = 0;
  double convert_gb_s = 0;

  Model(const Workload& workload, std::int64_t g) : w(workload), group(g) {
    moe_error* e = nullptr;
    const std::string json = "{\"num_experts\":" + std::to_string(w.experts) + ",\"top_k\":" + std::to_string(w.top_k) +
                             ",\"hidden_size\":" + std::to_string(w.hidden) +
                             ",\"intermediate_size\":" + std::to_string(w.intermediate) +
                             ",\"quantization\":{\"scheme\":\"W4A8\",\"group_size\":" + std::to_string(g) + "}}";
    check(moe_config_create(json.data(), json.size(), &config, &e), e);
    check(moe_select_backend(nullptr, config, nullptr, 0, &selection, &e), e);
    Source source{{}, {}, w, g};
    std::mt19937_64 rng(1);
    source.codes.resize(static_cast<std::size_t>(2 * w.intermediate * w.hidden));
    for (std::int8_t& c : source.codes) c = static_cast<std::int8_t>(static_cast<int>(rng() >> 60) - 8);
    source.scales.resize(source.codes.size() / 32 + 65536);
    for (std::uint16_t& s : source.scales) s = static_cast<std::uint16_t>(0x3c00 + rng() % 128);  // 2^-7 .. 2^-6
    moe_weight_source_ops ops{};
    ops.struct_size = sizeof ops;
    ops.user = &source;
    ops.get = Source::get;
    moe_weights* weights = nullptr;
    check(moe_weights_create_from_source(config, &ops, &weights, &e), e);
    const double begin = seconds();
    check(moe_convert_weights(nullptr, selection, weights, nullptr, &packed, &e), e);
    const void* block = nullptr;
    std::uint64_t size = 0;
    check(moe_packed_data(packed, &block, &size, &e), e);
    convert_gb_s = static_cast<double>(size) / (seconds() - begin) / 1e9;
    moe_weights_destroy(weights);
    moe_tensor view{};
    view.struct_size = sizeof view;
    for (const char* role : {"w13_packed", "w2_packed"}) {
      check(moe_packed_get(packed, role, 0, &view, &e), e);
      expert_bytes += static_cast<double>(view.shape[0]);
    }
  }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  ~Model() {
    moe_packed_destroy(packed);
    moe_selection_destroy(selection);
    moe_config_destroy(config);
  }
};

// Only one model is in memory at a time: benchmarks are registered model by model.
const Model& model(const Workload& w, std::int64_t group) {
  static std::unique_ptr<Model> current;
  if (!current || std::string(current->w.name) != w.name || current->group != group) {
    current.reset();
    current = std::make_unique<Model>(w, group);
  }
  return *current;
}

struct Bound {  // a layer on a context with n threads
  moe_context* context = nullptr;
  moe_layer* layer = nullptr;
  Bound(const Model& m, int threads) {
    moe_error* e = nullptr;
    const std::string options = "{\"threads\":" + std::to_string(threads) + "}";
    check(moe_context_create(options.data(), options.size(), nullptr, &context, &e), e);
    check(moe_layer_create(context, m.selection, m.packed, nullptr, &layer, &e), e);
  }
  Bound(const Bound&) = delete;
  Bound& operator=(const Bound&) = delete;
  ~Bound() {
    moe_layer_destroy(layer);
    moe_context_destroy(context);
  }
};

// Routing for call after call: uniform distinct experts; single tokens use every expert before one comes again.
class Routes {
 public:
  Routes(const Workload& w, std::int64_t tokens)
      : w_(w),
        tokens_(tokens),
        order_(static_cast<std::size_t>(w.experts)),
        ids_(static_cast<std::size_t>(tokens * w.top_k)) {
    std::iota(order_.begin(), order_.end(), 0);
    std::shuffle(order_.begin(), order_.end(), rng_);
  }
  const std::vector<std::int32_t>& next() {
    const auto k = static_cast<std::size_t>(w_.top_k);
    for (std::size_t t = 0; t < static_cast<std::size_t>(tokens_); ++t) {
      if (tokens_ > 1) std::shuffle(order_.begin(), order_.end(), rng_);
      for (std::size_t j = 0; j < k; ++j) ids_[t * k + j] = order_[tokens_ > 1 ? j : at_++ % order_.size()];
    }
    return ids_;
  }
  double active() const {
    std::vector<bool> seen(order_.size());
    for (const std::int32_t id : ids_) seen[static_cast<std::size_t>(id)] = true;
    return static_cast<double>(std::count(seen.begin(), seen.end(), true));
  }

 private:
  Workload w_;
  std::int64_t tokens_;
  std::mt19937 rng_{20261121};
  std::vector<std::int32_t> order_, ids_;
  std::size_t at_ = 0;
};

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v.empty() ? 0 : v[v.size() / 2];
}

void run(benchmark::State& state, const Workload& w, std::int64_t group, std::int64_t tokens, int threads) {
  const Model& m = model(w, group);
  const Bound b(m, threads);
  std::mt19937 rng(7);
  std::normal_distribution<float> normal;
  std::vector<std::uint16_t> x(static_cast<std::size_t>(tokens * w.hidden)), out(x.size());
  for (std::uint16_t& v : x) {
    const float f = normal(rng);
    std::uint32_t bits;
    std::memcpy(&bits, &f, 4);
    v = static_cast<std::uint16_t>(bits >> 16);
  }
  const std::vector<float> weights(static_cast<std::size_t>(tokens * w.top_k), 1.0f / static_cast<float>(w.top_k));
  Routes routes(w, tokens);
  std::vector<double> times, kept, bandwidth, peak, active;
  const auto probe = [&] {
    bandwidth.push_back(read_bandwidth(threads));
    peak.push_back(dot_peak(threads));
  };
  probe();
  int calls = 0;
  for (auto _ : state) {
    const std::vector<std::int32_t>& ids = routes.next();
    moe_error* e = nullptr;
    const long before = involuntary_switches();
    const double begin = seconds();
    const moe_status s = moe_apply_flat(b.layer, tokens, MOE_DTYPE_BF16, x.data(), MOE_DTYPE_INVALID, nullptr,
                                        ids.data(), weights.data(), MOE_DTYPE_BF16, out.data(), &e);
    const double t = seconds() - begin;
    check(s, e);
    state.SetIterationTime(t);
    times.push_back(t);
    active.push_back(routes.active());
    if (involuntary_switches() == before && calls > 1) kept.push_back(t);
    if (++calls % std::max<int>(6, static_cast<int>(0.15 / t)) == 0) probe();
  }
  probe();
  const bool disturbed = kept.size() < 3;
  const double t = median(disturbed ? times : kept), bytes = median(active) * m.expert_bytes;
  const double ops = 6.0 * static_cast<double>(tokens * w.top_k * w.hidden * w.intermediate);
  state.counters["tok_s"] = static_cast<double>(tokens) / t;
  state.counters["GB_s"] = bytes / t / 1e9;
  state.counters["TOPS"] = ops / t / 1e12;
  state.counters["probe_GB_s"] = median(bandwidth);
  state.counters["probe_TOPS"] = median(peak);
  state.counters["bw"] = bytes / t / 1e9 / median(bandwidth);
  state.counters["peak"] = median(peak) > 0 ? ops / t / 1e12 / median(peak) : 0;
  state.counters["tokens_per_expert"] = static_cast<double>(tokens * w.top_k) / median(active);
  state.counters["disturbed"] = disturbed ? 1 : 0;
  state.counters["convert_GB_s"] = m.convert_gb_s;
  state.SetLabel(moe_selection_kernel(m.selection));
}

[[maybe_unused]] const bool kRegistered = [] {
  for (const Workload& w : kWorkloads)
    for (const std::int64_t group : {std::int64_t{128}, std::int64_t{-1}, std::int64_t{32}})
      for (const int threads : {1, 2})
        for (const std::int64_t tokens : {1, 4, 16, 64, 256, 1024}) {
          const std::string format = group < 0 ? "w4a8-channel" : "w4a8-g" + std::to_string(group);
          const std::string name = "layer/" + std::string(w.name) + "/" + format + "/T:" + std::to_string(tokens) +
                                   "/threads:" + std::to_string(threads);
          benchmark::RegisterBenchmark(
              name.c_str(), [w, group, tokens, threads](benchmark::State& s) { run(s, w, group, tokens, threads); })
              ->UseManualTime()
              ->Iterations(tokens == 1    ? 200
                           : tokens <= 16 ? 60
                           : tokens <= 64 ? 25
                                          : 11)
              ->Unit(benchmark::kMillisecond);
        }
  return true;
}();

}  // namespace
}  // namespace moe::bench

BENCHMARK_MAIN();
