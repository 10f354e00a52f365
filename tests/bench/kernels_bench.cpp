// Every registry row by itself: two panels x n rows that stay in the caches, as a share of the peak that bounds it.
//
// Name: kernel/<kernel>/g:<group, -1 = channel, 0 = no scales>/n:<rows>; label: the probe.
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "bench/probes.h"
#include "bench/rows.h"
#include "support/rooms.h"

namespace moe::bench {
namespace {

constexpr std::int64_t kK = 2048, kRows = 32;

void run(benchmark::State& state, const Kernel* kernel, std::int64_t group, int n) {
  const P16 m = matrix_of(*kernel, group, kK, kRows);
  const TileShape shape = tile_of(*kernel, m);
  const Buffer panels = filled_buffer(m.bytes()), tile = filled_buffer(shape.row_bytes() * static_cast<std::size_t>(n)),
               out = *Buffer::create(static_cast<std::size_t>(n * kRows) * sizeof(float)),
               scratch = scratch_of(*kernel);
  GemmArgs a{&m, panels.data(), 2, tile.data(), n, shape, reinterpret_cast<float*>(out.data()), kRows, nullptr};
  a.scratch = scratch.data();
  for (auto _ : state) {
    kernel->gemm(a);
    benchmark::ClobberMemory();
  }
  const double ops = 2.0 * kRows * static_cast<double>(kK) * n * static_cast<double>(state.iterations());
  state.counters["TOPS"] = benchmark::Counter(ops / 1e12, benchmark::Counter::kIsRate);
  if (const PeakProbe* probe = probe_of(*kernel->id)) {
    state.counters["peak"] = benchmark::Counter(ops / 1e12 / peak(*probe, 1), benchmark::Counter::kIsRate);
    state.SetLabel(probe->name);
  }
}

// 1, 2, 4, ... 16, 32, 64, ...
int larger(int n) {
  if (n >= 16) return 2 * n;
  return n == 1 ? 2 : n + 2;
}

[[maybe_unused]] const bool kRegistered = [] {
  for (const Kernel* kernel : rows_here())
    for (const std::int64_t group : kernel->id->group_multiple == 16 ? std::vector<std::int64_t>{16}
                                    : has_scales(*kernel)            ? std::vector<std::int64_t>{32, 64, 128, -1}
                                                                     : std::vector<std::int64_t>{0})
      for (int n = 1; kernel->id->takes(Groups::of_size(group)) && n <= kernel->tile_rows; n = larger(n)) {
        const std::string name =
            "kernel/" + std::string(kernel->id->name) + "/g:" + std::to_string(group) + "/n:" + std::to_string(n);
        benchmark::RegisterBenchmark(name.c_str(),
                                     [kernel, group, n](benchmark::State& s) { run(s, kernel, group, n); });
      }
  return true;
}();

}  // namespace
}  // namespace moe::bench
