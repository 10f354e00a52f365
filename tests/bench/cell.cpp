// See cell.h.
#include "bench/cell.h"
#include "support/rooms.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <numeric>
#include <thread>
#include <utility>

namespace moe::bench {
namespace {

bool probes_wanted = true;
double seconds_wanted = 0;

constexpr const char* kSkewNames[] = {"", ":zipf", ":same", ":third-empty"};

class Routes {
 public:
  explicit Routes(const Cell& c)
      : tokens_(static_cast<std::size_t>(c.tokens)),
        top_k_(static_cast<std::size_t>(c.workload.top_k)),
        skew_(c.skew),
        order_(static_cast<std::size_t>(c.workload.experts)),
        ids_(c.slots()) {
    std::iota(order_.begin(), order_.end(), 0);
    std::shuffle(order_.begin(), order_.end(), rng_);
    if (skew_ == Skew::third_empty) order_.resize(std::max(order_.size() * 2 / 3, top_k_));
    for (std::size_t r = 0; skew_ == Skew::zipf && r < order_.size(); ++r)
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

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v.empty() ? 0 : v[v.size() / 2];
}

// What is measured in turn.
struct Samples {
  std::vector<double> times, kept, bandwidth, peak, active;

  void probe(const Measured& layer, int threads) {
    if (stolen_seconds() - stolen > kMostStolen * (seconds() - since) * threads) kept.resize(sure);
    if (probes_wanted) run_probes(layer, threads);
    sure = kept.size();
    stolen = stolen_seconds();
    since = seconds();
  }
  void run_probes(const Measured& layer, int threads) {
    if (layer.spins_s > 0) std::this_thread::sleep_for(std::chrono::duration<double>(layer.spins_s));
    bandwidth.push_back(read_bandwidth(threads));
    if (layer.probe != nullptr) peak.push_back(bench::peak(*layer.probe, threads));
  }
  bool disturbed() const { return kept.size() < kLeast; }
  double time() const { return median(disturbed() ? times : kept); }

  static constexpr std::size_t kLeast = 5;
  static constexpr double kMostStolen = 0.03;
  // At the last probe:
  std::size_t sure = 0;  // of `kept`
  double stolen = stolen_seconds(), since = seconds();
};

Samples sample(const Cell& c, const Measured& layer, const Apply& apply) {
  constexpr double kBetweenProbes = 0.15;
  // A probe takes tens of milliseconds, and what runs next finds caches and threads as it left them: calls of a moment
  // have some time for themselves.
  constexpr std::size_t kCalls = 6;
  constexpr double kMoment = 0.02;
  constexpr std::size_t kMost = 1000, kWarm = 2;
  Samples s;
  Routes routes(c);
  s.probe(layer, c.threads);
  double spent = 0, since_probe = 0;
  std::size_t calls = 0;  // since a probe
  for (std::size_t call = 0;; ++call) {
    const bool enough = s.times.size() >= kMost || (spent > seconds_wanted && s.times.size() >= Samples::kLeast);
    if (enough && (!s.disturbed() || spent > 3 * seconds_wanted)) break;
    const std::size_t copy = call * c.slots() / static_cast<std::size_t>(c.workload.experts);
    const std::vector<std::int32_t>& ids = routes.next();
    const long before = involuntary_switches();
    const double begin = seconds();
    apply(copy, ids);
    const double t = seconds() - begin;
    if (call < kWarm) continue;
    s.times.push_back(t);
    s.active.push_back(routes.active());
    if (involuntary_switches() == before) s.kept.push_back(t);
    spent += t;
    since_probe += t;
    if (since_probe > kBetweenProbes || (++calls >= kCalls && since_probe > kMoment)) {
      s.probe(layer, c.threads);
      since_probe = 0;
      calls = 0;
    }
  }
  s.probe(layer, c.threads);
  return s;
}

}  // namespace

std::string Cell::name() const {
  return std::string("layer/") + workload.name + kSkewNames[static_cast<int>(skew)] + "/" + format +
         "/T:" + std::to_string(tokens) + "/threads:" + std::to_string(threads);
}

void measure(benchmark::State& state, const Cell& c, const Measured& layer, const Apply& apply) {
  Samples s;
  for (auto _ : state) {
    s = sample(c, layer, apply);
    state.SetIterationTime(s.time());
  }
  const double t = s.time(), active = median(s.active), bytes = active * layer.expert_bytes;
  const auto slots = static_cast<double>(c.slots());
  const double ops = 6.0 * slots * static_cast<double>(c.workload.hidden * c.workload.intermediate);
  state.counters["tok_s"] = static_cast<double>(c.tokens) / t;
  state.counters["GB_s"] = bytes / t / 1e9;
  state.counters["TOPS"] = ops / t / 1e12;
  state.counters["ops_per_byte"] = ops / bytes;
  if (probes_wanted) {
    state.counters["probe_GB_s"] = median(s.bandwidth);
    state.counters["probe_TOPS"] = median(s.peak);
    state.counters["bw"] = bytes / t / 1e9 / median(s.bandwidth);
    state.counters["peak"] = layer.probe != nullptr ? ops / t / 1e12 / median(s.peak) : 0;
  }
  state.counters["tokens_per_expert"] = slots / active;
  state.counters["calls"] = static_cast<double>(s.times.size());
  state.counters["disturbed"] = s.disturbed() ? 1 : 0;
  state.SetLabel(layer.label + (layer.probe != nullptr ? std::string(" ") + layer.probe->name : ""));
}

void set_probes(bool wanted) { probes_wanted = wanted; }
void set_seconds(double wanted) { seconds_wanted = wanted; }

void add_cell(const Cell& c, std::function<void(benchmark::State&)> run) {
  const auto guarded = [run = std::move(run)](benchmark::State& state) {
    try {
      run(state);
    } catch (const std::exception& e) {
      state.SkipWithError(e.what());  // the other cells go on
    }
  };
  benchmark::RegisterBenchmark(c.name().c_str(), guarded)
      ->UseManualTime()
      ->Iterations(1)
      ->Unit(benchmark::kMillisecond);
}

std::vector<float> hidden_states(std::size_t count) {
  std::mt19937 rng(7);
  std::normal_distribution<float> normal;
  std::vector<float> out(count);
  for (float& x : out) x = normal(rng);
  return out;
}

std::size_t copies_of(double bytes) {
  const auto l3 = static_cast<double>(std::max(sysconf(_SC_LEVEL3_CACHE_SIZE), 0L));
  constexpr double kMost = 14e9;
  return static_cast<std::size_t>(std::max(1.0, std::min(std::ceil(10 * l3 / bytes), std::floor(kMost / bytes))));
}

}  // namespace moe::bench
