// Google Benchmark's program with four things more.
//
//   --threads=1,2   thread counts of the layers and conversions; default: one and all processors of this process
//   --probes=no     times alone: no probes between the calls of a layer
//   --seconds=0.3   calls of a layer are measured for so long; default: 1.2
//
// The JSON's context names the processor, and the probes come first: with their figures a report stands by itself.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "base/cpu_features.h"
#include "bench/bench.h"
#include "bench/cell.h"
#include "bench/probes.h"
#include "support/rooms.h"

namespace moe::bench {
namespace {

struct Options {
  std::vector<int> threads;  // empty: a bad list
  bool probes = true;
  double seconds = 1.2;
};

std::vector<int> numbers(const char* p) {
  std::vector<int> out;
  while (*p != '\0') {
    char* end = nullptr;
    const long n = std::strtol(p, &end, 10);
    if (end == p || n < 1 || n > 4096 || (*end != ',' && *end != '\0')) return {};
    out.push_back(static_cast<int>(n));
    p = *end == ',' ? end + 1 : end;
  }
  return out;
}

// Takes its own out of the arguments.
Options options(int& argc, char** argv) {
  Options out{{1}};
  if (cpu_count() > 1) out.threads.push_back(cpu_count());
  constexpr std::string_view kThreads = "--threads=", kSeconds = "--seconds=";
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.substr(0, kThreads.size()) == kThreads)
      out.threads = numbers(argv[i] + kThreads.size());
    else if (argument.substr(0, kSeconds.size()) == kSeconds)
      out.seconds = std::strtod(argv[i] + kSeconds.size(), nullptr);
    else if (argument == "--probes=no")
      out.probes = false;
    else
      argv[kept++] = argv[i];
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
  const auto [threads, probes, length] = options(argc, argv);
  if (threads.empty() || !(length > 0)) {
    std::fprintf(stderr, "%s: --threads wants numbers with commas between them, --seconds a positive one\n", argv[0]);
    return 2;
  }
  benchmark::AddCustomContext("cpu", moe::cpu_facts().model);
  benchmark::AddCustomContext("cpus", std::to_string(cpu_count()));
  if (const char* isa = std::getenv("MOE_MAX_ISA")) benchmark::AddCustomContext("max_isa", isa);
  set_probes(probes);
  set_seconds(length);
  add_probes(threads);
  add_benchmarks(threads);
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
