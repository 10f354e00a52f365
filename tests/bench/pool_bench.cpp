// What threads cost a decode call when they are not alone, and when they slept. One token of a real layer, call after
// call, against the same a moment before.
//
//   pool/oversubscribed/threads:<n>   two busy loops run besides. slower: mean time of a call over that of the quiet
//                                     calls; fair: what an equal share of the processors would make of it, (n + 2) /
//                                     processors; slower_than_fair, their ratio, is to stay below 2
//   pool/wake/threads:<n>             the first call after a second of idleness; slower: its median over the steady one
#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "bench/bench.h"
#include "bench/models.h"
#include "bench/probes.h"
#include "support/rooms.h"

namespace moe::bench {
namespace {

constexpr Workload kWorkload = kQwen3;
constexpr int kBusyLoops = 2;

// Calls of one token, each with other experts.
class Decode {
 public:
  explicit Decode(int threads) : bound_(model_, threads), order_(static_cast<std::size_t>(kWorkload.experts)) {
    std::iota(order_.begin(), order_.end(), 0);
    std::shuffle(order_.begin(), order_.end(), std::mt19937(1));
  }
  double call() {  // seconds
    constexpr auto kTopK = static_cast<std::size_t>(kWorkload.top_k);
    at_ = (at_ + kTopK) % order_.size();
    moe_error* e = nullptr;
    const double begin = seconds();
    const moe_status s = moe_apply_flat(bound_.layers[0].get(), 1, MOE_DTYPE_BF16, hidden_.data(), MOE_DTYPE_INVALID,
                                        nullptr, order_.data() + at_, weights_.data(), MOE_DTYPE_BF16, out_.data(), &e);
    const double t = seconds() - begin;
    check(s, e);
    return t;
  }
  std::vector<double> calls(int count) {
    std::vector<double> times(static_cast<std::size_t>(count));
    for (double& t : times) t = call();
    return times;
  }

 private:
  Model model_{kWorkload, format_named("w4a8-g128"), true};
  Bound bound_;
  std::vector<std::int32_t> order_;
  std::size_t at_ = 0;
  std::vector<std::uint16_t> hidden_ = std::vector<std::uint16_t>(static_cast<std::size_t>(kWorkload.hidden), 0x3f80);
  std::vector<std::uint16_t> out_ = hidden_;
  std::vector<float> weights_ = std::vector<float>(static_cast<std::size_t>(kWorkload.top_k), 0.125f);
};

class BusyLoops {
 public:
  BusyLoops() {
    for (std::thread& t : threads_)
      t = std::thread([this] {
        while (!stop_.load(std::memory_order_relaxed)) {
        }
      });
  }
  BusyLoops(const BusyLoops&) = delete;
  BusyLoops& operator=(const BusyLoops&) = delete;
  ~BusyLoops() {
    stop_.store(true);
    for (std::thread& t : threads_) t.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::thread threads_[kBusyLoops];
};

double mean(const std::vector<double>& v) {
  return std::accumulate(v.begin(), v.end(), 0.0) / static_cast<double>(v.size());
}
double part(std::vector<double> v, double share) {  // 0.5: the median
  std::sort(v.begin(), v.end());
  return v[static_cast<std::size_t>(share * static_cast<double>(v.size() - 1))];
}

void append(std::vector<double>& to, const std::vector<double>& from) { to.insert(to.end(), from.begin(), from.end()); }

void run_oversubscribed(benchmark::State& state, int threads) {
  Decode decode(threads);
  std::vector<double> quiet, busy;
  (void)decode.calls(50);
  for (auto _ : state) {
    append(quiet, decode.calls(150));
    const BusyLoops loops;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    append(busy, decode.calls(150));
  }
  const double fair = std::max(1.0, static_cast<double>(threads + kBusyLoops) / cpu_count());
  state.counters["quiet_us"] = mean(quiet) * 1e6;
  state.counters["busy_us"] = mean(busy) * 1e6;
  state.counters["busy_median_us"] = part(busy, 0.5) * 1e6;
  state.counters["busy_99_us"] = part(busy, 0.99) * 1e6;
  state.counters["slower"] = mean(busy) / mean(quiet);
  state.counters["fair"] = fair;
  state.counters["slower_than_fair"] = mean(busy) / mean(quiet) / fair;
}

void run_wake(benchmark::State& state, int threads) {
  Decode decode(threads);
  std::vector<double> first, steady;
  for (auto _ : state) {
    append(steady, decode.calls(50));
    std::this_thread::sleep_for(std::chrono::seconds(1));
    first.push_back(decode.call());
  }
  state.counters["steady_us"] = part(steady, 0.5) * 1e6;
  state.counters["first_us"] = part(first, 0.5) * 1e6;
  state.counters["slower"] = part(first, 0.5) / part(steady, 0.5);
}

}  // namespace

void add_pool(const std::vector<int>& threads) {
  for (const int n : threads) {
    const std::string end = "/threads:" + std::to_string(n);
    benchmark::RegisterBenchmark(("pool/oversubscribed" + end).c_str(),
                                 [n](benchmark::State& s) { run_oversubscribed(s, n); })
        ->Iterations(8)
        ->UseRealTime();
    benchmark::RegisterBenchmark(("pool/wake" + end).c_str(), [n](benchmark::State& s) { run_wake(s, n); })
        ->Iterations(9)
        ->UseRealTime();
  }
}

}  // namespace moe::bench
