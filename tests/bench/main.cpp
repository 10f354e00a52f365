// moe_bench: Google Benchmark's program with two things more.
//
//   --threads=1,2   thread counts of the layers and conversions; default: one and all processors of this process
//
// The JSON's context names the processor, and the probes come first: with their figures a report stands by itself.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "base/cpu_features.h"
#include "bench/bench.h"
#include "bench/models.h"
#include "bench/probes.h"

namespace moe::bench {
namespace {

// Takes --threads=... out of the arguments; empty: a bad list.
std::vector<int> thread_counts(int& argc, char** argv) {
  std::vector<int> out = {1};
  if (cpu_count() > 1) out.push_back(cpu_count());
  constexpr const char kOption[] = "--threads=";
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], kOption, sizeof kOption - 1) != 0) {
      argv[kept++] = argv[i];
      continue;
    }
    out.clear();
    for (const char* p = argv[i] + sizeof kOption - 1; *p != '\0';) {
      char* end = nullptr;
      const long n = std::strtol(p, &end, 10);
      if (end == p || n < 1 || n > 4096 || (*end != ',' && *end != '\0')) return {};
      out.push_back(static_cast<int>(n));
      p = *end == ',' ? end + 1 : end;
    }
  }
  argc = kept;
  return out;
}

void run_bandwidth(benchmark::State& state, int threads) {
  for (auto _ : state) state.counters["GB_s"] = read_bandwidth(threads);
}
void run_peak(benchmark::State& state, const PeakProbe* probe, int threads) {
  for (auto _ : state) state.counters["TOPS"] = peak(*probe, threads);
}

}  // namespace

void add_probes(const std::vector<int>& threads) {
  for (const int n : threads) {
    const std::string end = "/threads:" + std::to_string(n);
    benchmark::RegisterBenchmark(("probe/bandwidth" + end).c_str(), [n](benchmark::State& s) { run_bandwidth(s, n); });
    for (const PeakProbe* p : peak_probes())
      benchmark::RegisterBenchmark(("probe/" + std::string(p->name) + end).c_str(),
                                   [p, n](benchmark::State& s) { run_peak(s, p, n); });
  }
}

}  // namespace moe::bench

int main(int argc, char** argv) {
  using namespace moe::bench;
  const std::vector<int> threads = thread_counts(argc, argv);
  if (threads.empty()) {
    std::fprintf(stderr, "%s: --threads wants numbers with commas between them\n", argv[0]);
    return 2;
  }
  benchmark::AddCustomContext("cpu", moe::cpu_facts().model);
  benchmark::AddCustomContext("cpus", std::to_string(cpu_count()));
  add_probes(threads);
  add_layers(threads);
  add_overhead(threads);
  add_pool(threads);
  add_conversions(threads);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  try {
    benchmark::RunSpecifiedBenchmarks();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s: %s\n", argv[0], e.what());
    return 1;
  }
  benchmark::Shutdown();
  return 0;
}
