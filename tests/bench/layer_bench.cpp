// The whole layer through the C API, on the shapes of real models: decode to prefill, one and more threads.
//
// Name: layer/<workload>[:<routing>]/<format>/T:<tokens>/threads:<n>; label: kernel and peak probe. A repetition in
// which the system took a processor away is discarded, and all between two probes when the host did for more than a
// moment; the time is the median of the others (disturbed = 1: too few were left, of all). Counters: tok_s, GB_s
// (weights read), TOPS, the probes between the repetitions and the two ratios to them, `bw` and `peak`. Decode walks
// every expert of the model before one comes again.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "bench/bench.h"
#include "bench/models.h"
#include "bench/probes.h"

namespace moe::bench {
namespace {

// --- routing ---------------------------------------------------------------------------------------------

enum class Skew : std::uint8_t { uniform, zipf, same, third_empty };
constexpr const char* kSkewNames[] = {"", ":zipf", ":same", ":third-empty"};

// The experts of call after call, distinct for each token.
//   uniform      any; a single token takes every expert before one comes again
//   zipf         expert of rank r with weight 1 / r
//   same         one set for all tokens of a call
//   third_empty  uniform over two thirds of the experts
class Routes {
 public:
  Routes(const Workload& w, std::int64_t tokens, Skew skew)
      : tokens_(static_cast<std::size_t>(tokens)),
        top_k_(static_cast<std::size_t>(w.top_k)),
        skew_(skew),
        order_(static_cast<std::size_t>(w.experts)),
        ids_(tokens_ * top_k_) {
    std::iota(order_.begin(), order_.end(), 0);
    std::shuffle(order_.begin(), order_.end(), rng_);
    if (skew == Skew::third_empty) order_.resize(std::max(order_.size() * 2 / 3, top_k_));
    for (std::size_t r = 0; skew == Skew::zipf && r < order_.size(); ++r)
      zipf_.push_back(1.0 / static_cast<double>(r + 1));
  }
  const std::vector<std::int32_t>& next() {
    for (std::size_t t = 0; t < tokens_; ++t) {
      if (skew_ == Skew::zipf)
        draw_zipf(t);
      else
        draw(t);
    }
    return ids_;
  }
  double active() const {
    std::vector<std::int32_t> seen = ids_;
    std::sort(seen.begin(), seen.end());
    return static_cast<double>(std::unique(seen.begin(), seen.end()) - seen.begin());
  }

 private:
  void draw(std::size_t t) {
    const bool walk = tokens_ == 1 && skew_ == Skew::uniform;
    if (!walk && (t == 0 || skew_ != Skew::same)) std::shuffle(order_.begin(), order_.end(), rng_);
    for (std::size_t j = 0; j < top_k_; ++j) ids_[t * top_k_ + j] = order_[walk ? at_++ % order_.size() : j];
  }
  // Without putting back: the largest of u^(1/weight) are a weighted sample.
  void draw_zipf(std::size_t t) {
    std::vector<std::pair<double, std::int32_t>> keys;
    std::uniform_real_distribution<double> uniform(0.0, 1.0);
    for (std::size_t r = 0; r < order_.size(); ++r) keys.emplace_back(std::log(uniform(rng_)) / zipf_[r], order_[r]);
    std::partial_sort(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(top_k_), keys.end(), std::greater<>());
    for (std::size_t j = 0; j < top_k_; ++j) ids_[t * top_k_ + j] = keys[j].second;
  }

  std::size_t tokens_, top_k_;
  Skew skew_;
  std::mt19937 rng_{20261121};
  std::vector<std::int32_t> order_, ids_;
  std::vector<double> zipf_;
  std::size_t at_ = 0;
};

// --- one cell --------------------------------------------------------------------------------------------

struct Cell {
  Workload workload;
  const Format* format;
  Skew skew;
  std::int64_t tokens;
  int threads;
};

// Only one model is in memory at a time: benchmarks are registered model by model.
const Model& model(const Workload& w, const Format& f) {
  static std::unique_ptr<Model> current;
  if (!current || std::string(current->workload.name) != w.name || &current->format != &f) {
    current.reset();
    current = std::make_unique<Model>(w, f);
  }
  return *current;
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v.empty() ? 0 : v[v.size() / 2];
}

// Normal numbers in the dtype of hidden states.
std::vector<std::byte> hidden_states(std::size_t count, moe_dtype dtype) {
  std::mt19937 rng(7);
  std::normal_distribution<float> normal;
  const std::size_t size = dtype == MOE_DTYPE_F32 ? 4 : 2;
  std::vector<std::byte> out(count * size);
  for (std::size_t i = 0; i < count; ++i) {
    const float x = normal(rng);
    std::byte bits[4];
    std::memcpy(bits, &x, 4);
    std::memcpy(out.data() + i * size, bits + 4 - size, size);  // bf16: the upper half
  }
  return out;
}

const PeakProbe* probe_of_kernel(const char* name) {
  const auto index = kernel_index(name);
  return index ? probe_of(kKernelIds[*index]) : nullptr;
}

// What is measured in turn.
struct Samples {
  std::vector<double> times, kept, bandwidth, peak, active;

  void probe(const PeakProbe* p, int threads) {
    if (stolen_seconds() - stolen > kMostStolen * (seconds() - since) * threads) kept.resize(sure);
    bandwidth.push_back(read_bandwidth(threads));
    if (p != nullptr) peak.push_back(bench::peak(*p, threads));
    sure = kept.size();
    stolen = stolen_seconds();
    since = seconds();
  }
  bool disturbed() const { return kept.size() < kLeast; }
  double time() const { return median(disturbed() ? times : kept); }

  static constexpr std::size_t kLeast = 5;
  static constexpr double kMostStolen = 0.03;
  // At the last probe:
  std::size_t sure = 0;  // of `kept`
  double stolen = stolen_seconds(), since = seconds();
};

void measure(const Cell& c, const Model& m, const PeakProbe* probe, Samples& s) {
  constexpr double kSeconds = 1.2, kBetweenProbes = 0.15;
  constexpr std::size_t kMost = 1000, kWarm = 2;
  const Bound b(m, c.threads);
  const auto slots = static_cast<std::size_t>(c.tokens * c.workload.top_k);
  const std::vector<std::byte> x =
      hidden_states(static_cast<std::size_t>(c.tokens * c.workload.hidden), c.format->hidden);
  std::vector<std::byte> out(x.size());
  const std::vector<float> weights(slots, 1.0f / static_cast<float>(c.workload.top_k));
  Routes routes(c.workload, c.tokens, c.skew);
  s.probe(probe, c.threads);
  double spent = 0, since_probe = 0;
  for (std::size_t call = 0;; ++call) {
    const bool enough = s.times.size() >= kMost || (spent > kSeconds && s.times.size() >= Samples::kLeast);
    if (enough && (!s.disturbed() || spent > 3 * kSeconds)) break;
    const moe_layer* layer =
        b.layers[call * slots / static_cast<std::size_t>(c.workload.experts) % b.layers.size()].get();
    const std::vector<std::int32_t>& ids = routes.next();
    moe_error* e = nullptr;
    const long before = involuntary_switches();
    const double begin = seconds();
    const moe_status status = moe_apply_flat(layer, c.tokens, c.format->hidden, x.data(), MOE_DTYPE_INVALID, nullptr,
                                             ids.data(), weights.data(), c.format->hidden, out.data(), &e);
    const double t = seconds() - begin;
    check(status, e);
    if (call < kWarm) continue;
    s.times.push_back(t);
    s.active.push_back(routes.active());
    if (involuntary_switches() == before) s.kept.push_back(t);
    spent += t;
    since_probe += t;
    if (since_probe > kBetweenProbes || s.times.size() % 6 == 0) {
      s.probe(probe, c.threads);
      since_probe = 0;
    }
  }
  s.probe(probe, c.threads);
}

void run(benchmark::State& state, const Cell& c) try {
  const Model& m = model(c.workload, *c.format);
  const char* kernel = moe_selection_kernel(m.selection.get());
  const PeakProbe* probe = probe_of_kernel(kernel);
  Samples s;
  for (auto _ : state) {
    measure(c, m, probe, s);
    state.SetIterationTime(s.time());
  }
  const double t = s.time(), active = median(s.active), bytes = active * m.expert_bytes;
  const auto slots = static_cast<double>(c.tokens * c.workload.top_k);
  const double ops = 6.0 * slots * static_cast<double>(c.workload.hidden * c.workload.intermediate);
  state.counters["tok_s"] = static_cast<double>(c.tokens) / t;
  state.counters["GB_s"] = bytes / t / 1e9;
  state.counters["TOPS"] = ops / t / 1e12;
  state.counters["ops_per_byte"] = ops / bytes;
  state.counters["probe_GB_s"] = median(s.bandwidth);
  state.counters["probe_TOPS"] = median(s.peak);
  state.counters["bw"] = bytes / t / 1e9 / median(s.bandwidth);
  state.counters["peak"] = probe != nullptr ? ops / t / 1e12 / median(s.peak) : 0;
  state.counters["tokens_per_expert"] = slots / active;
  state.counters["calls"] = static_cast<double>(s.times.size());
  state.counters["disturbed"] = s.disturbed() ? 1 : 0;
  state.SetLabel(std::string(kernel) + (probe != nullptr ? std::string(" ") + probe->name : ""));
} catch (const std::exception& e) {
  state.SkipWithError(e.what());  // the other cells go on
}

// --- what is registered ----------------------------------------------------------------------------------

struct Series {
  Workload workload;
  std::vector<Skew> skews;
  std::vector<const char*> formats;  // empty: those of the table that fit
  std::vector<std::int64_t> tokens;
};

std::vector<Series> series() {
  const std::vector<Skew> uniform = {Skew::uniform}, skewed = {Skew::zipf, Skew::same, Skew::third_empty};
  const std::vector<std::int64_t> tokens = {1, 4, 16, 64, 256, 1024};
  const std::vector<const char*> all = {};
  const Workload qwen = {"qwen3-30b-a3b", 128, 8, 2048, 768}, deepseek = {"deepseek-v3-64", 64, 8, 7168, 2048};
  return {
      {qwen, uniform, all, tokens},
      {{"gpt-oss-20b", 32, 4, 2880, 2880}, uniform, all, tokens},
      {{"mixtral-8x7b", 8, 2, 4096, 14336}, uniform, all, tokens},
      {deepseek, uniform, all, tokens},
      {qwen, skewed, {"w4a8-g128"}, {16, 256, 1024}},
      {deepseek, skewed, {"w4a8-g128"}, {16, 256, 1024}},
      // Every expert gets every token: tiles of 2 to 15 rows.
      {{"remainders-8", 8, 8, 2048, 1024}, uniform, {"w4a8-g128"}, {2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}},
      // K of both matrices ends in half a unit.
      {{"half-units-32", 32, 4, 2080, 1056}, uniform, {"w4a8-g32", "w4a8-channel", "bf16"}, {1, 16, 256}},
  };
}

void add(const Cell& c) {
  const std::string name = std::string("layer/") + c.workload.name + kSkewNames[static_cast<int>(c.skew)] + "/" +
                           c.format->name + "/T:" + std::to_string(c.tokens) + "/threads:" + std::to_string(c.threads);
  benchmark::RegisterBenchmark(name.c_str(), [c](benchmark::State& state) { run(state, c); })
      ->UseManualTime()
      ->Iterations(1)
      ->Unit(benchmark::kMillisecond);
}

bool wanted(const Series& s, const Format& f) {
  if (!f.fits(s.workload) || f.conversion_only) return false;
  return s.formats.empty() || std::find(s.formats.begin(), s.formats.end(), std::string(f.name)) != s.formats.end();
}

}  // namespace

void add_layers(const std::vector<int>& threads) {
  for (const Series& s : series())
    for (const Format& f : formats())
      for (const Skew skew : s.skews)
        for (const int n : threads)
          for (const std::int64_t t : s.tokens)
            if (wanted(s, f)) add({s.workload, &f, skew, t, n});
}

}  // namespace moe::bench
