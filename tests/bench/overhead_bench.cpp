// What one decode call costs beside its weights: a layer with a model's experts and router but hardly any weights,
// one token, router logits in. The report holds its time against the decode call of the real layer.
//
// Name: overhead/<workload>/threads:<n>.
#include <benchmark/benchmark.h>

#include <random>
#include <string>
#include <vector>

#include "bench/bench.h"
#include "bench/models.h"
#include "support/rooms.h"

namespace moe::bench {
namespace {

constexpr Workload kWorkloads[] = {
    {"qwen3-30b-a3b", 128, 8, 128, 128},
    {"gpt-oss-20b", 32, 4, 128, 128},
    {"mixtral-8x7b", 8, 2, 128, 128},
    {"deepseek-v3-64", 64, 8, 128, 128},
};

void run(benchmark::State& state, const Workload& w, int threads) {
  const Model m(w, format_named("w4a8-g128"), true);
  const Bound b(m, threads);
  constexpr std::size_t kCalls = 64;  // different experts
  std::mt19937 rng(3);
  std::normal_distribution<float> normal;
  const auto experts = static_cast<std::size_t>(w.experts);
  std::vector<float> logits(experts * kCalls);
  for (float& x : logits) x = normal(rng);
  const std::vector<std::uint16_t> hidden(static_cast<std::size_t>(w.hidden), 0x3f80);
  std::vector<std::uint16_t> out(hidden.size());
  std::size_t call = 0;
  for (auto _ : state) {
    moe_error* e = nullptr;
    check(moe_apply_flat(b.layers[0].get(), 1, MOE_DTYPE_BF16, hidden.data(), MOE_DTYPE_F32,
                         logits.data() + call++ % kCalls * experts, nullptr, nullptr, MOE_DTYPE_BF16, out.data(), &e),
          e);
  }
}

}  // namespace

void add_overhead(const std::vector<int>& threads) {
  for (const Workload& w : kWorkloads)
    for (const int n : threads)
      benchmark::RegisterBenchmark((std::string("overhead/") + w.name + "/threads:" + std::to_string(n)).c_str(),
                                   [w, n](benchmark::State& s) { run(s, w, n); })
          ->UseRealTime();
}

}  // namespace moe::bench
