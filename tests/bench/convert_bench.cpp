// Conversion: checkpoint tensors in memory -> packed experts, in GB/s of packed output. Nothing is in a cache; the
// destination's pages are touched beforehand.
//
// Counters: GB_s; per_thread, GB per second of processor time. Name: convert/<workload>/<format>/threads:<n>; `-packed`
// formats read pack-quantized tensors, others int-quantized.
#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "bench/bench.h"
#include "bench/models.h"
#include "bench/probes.h"

namespace moe::bench {
namespace {

constexpr Workload kWorkloads[] = {
    {"qwen3-30b-a3b", 128, 8, 2048, 768},
    {"gpt-oss-20b", 32, 4, 2880, 2880},
};

double cpu_seconds() {
  rusage u{};
  getrusage(RUSAGE_SELF, &u);
  return static_cast<double>(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

struct Free {
  void operator()(void* p) const { std::free(p); }
};

void run(benchmark::State& state, const Workload& w, const Format& f, int threads) try {
  const Model m(w, f, true);
  Source source(w, f, std::size_t{256} << 20);
  const Owned<moe_weights> weights = source.weights(m.config.get());
  const Owned<moe_context> context = make_context(threads);
  std::uint64_t bytes = 0, alignment = 0;
  moe_error* e = nullptr;
  check(moe_selection_packed_size(m.selection.get(), &bytes, &alignment, &e), e);
  const std::unique_ptr<void, Free> memory(
      std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment));
  std::memset(memory.get(), 1, bytes);
  moe_convert_options options{};
  options.struct_size = sizeof options;
  options.dst = memory.get();
  options.dst_size = bytes;
  std::vector<double> times, bandwidth;
  double cpu = 0;
  for (auto _ : state) {
    for (int i = 0; i < 5; ++i) {
      bandwidth.push_back(read_bandwidth(threads));
      moe_packed* packed = nullptr;
      const double begin = seconds(), cpu_begin = cpu_seconds();
      check(moe_convert_weights(context.get(), m.selection.get(), weights.get(), &options, &packed, &e), e);
      times.push_back(seconds() - begin);
      cpu += cpu_seconds() - cpu_begin;
      moe_packed_destroy(packed);
    }
    std::sort(times.begin(), times.end());
    std::sort(bandwidth.begin(), bandwidth.end());
    state.SetIterationTime(times[times.size() / 2]);
  }
  state.counters["GB_s"] = static_cast<double>(bytes) / times[times.size() / 2] / 1e9;
  // Of processor time: what a thread does while it runs, whatever else does.
  state.counters["per_thread"] = static_cast<double>(bytes) * static_cast<double>(times.size()) / cpu / 1e9;
  state.counters["probe_GB_s"] = bandwidth[bandwidth.size() / 2];
} catch (const std::exception& e) {
  state.SkipWithError(e.what());  // the others go on
}

}  // namespace

void add_conversions(const std::vector<int>& threads) {
  for (const Workload& w : kWorkloads)
    for (const Format& f : formats())
      for (const int n : threads)
        if (f.fits(w))
          benchmark::RegisterBenchmark(
              (std::string("convert/") + w.name + "/" + f.name + "/threads:" + std::to_string(n)).c_str(),
              [w, &f, n](benchmark::State& s) { run(s, w, f, n); })
              ->UseManualTime()
              ->Iterations(1)
              ->Unit(benchmark::kMillisecond);
}

}  // namespace moe::bench
