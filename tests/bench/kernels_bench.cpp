// Every registry row by itself: two panels x n quantised rows that stay in the caches, as a share of the dot peak.
//
// Name: kernel/<kernel>/g:<group, -1 = channel>/n:<rows>.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <string>

#include "base/buffer.h"
#include "bench/probes.h"
#include "kernels/kernel.h"

namespace moe::bench {
namespace {

void run(benchmark::State& state, const Kernel* kernel, std::int64_t group, int n) {
  constexpr std::int64_t kK = 2048;
  const P16Matrix m{.half_rows = 32, .halves = 1, .k = kK, .group = group < 0 ? kK : group, .has_bias = false};
  const TileShape shape{kK, m.group};
  const Buffer panels = *Buffer::create(m.bytes()),
               tile = *Buffer::create(shape.row_bytes() * static_cast<std::size_t>(n));
  std::fill(panels.bytes().begin(), panels.bytes().end(), std::byte{0x11});
  std::fill(tile.bytes().begin(), tile.bytes().end(), std::byte{1});
  alignas(64) float out[32 * 32];
  const double peak = dot_peak(1);
  for (auto _ : state) {
    kernel->gemm({&m, panels.data(), 2, tile.data(), n, shape, out, 32, nullptr});
    benchmark::ClobberMemory();
  }
  const double ops = 2.0 * 32 * static_cast<double>(kK) * n * static_cast<double>(state.iterations());
  state.counters["TOPS"] = benchmark::Counter(ops / 1e12, benchmark::Counter::kIsRate);
  if (peak > 0) state.counters["peak"] = benchmark::Counter(ops / 1e12 / peak, benchmark::Counter::kIsRate);
}

[[maybe_unused]] const bool kRegistered = [] {
  const auto host = detect_platform();
  for (const Kernel* kernel : kernels())
    if (host && host->runs(kernel->id->isa) && (kernel->ready == nullptr || kernel->ready()))
      for (const std::int64_t group : {32, 64, 128, -1})
        for (int n = 1; n <= kernel->tile_rows; n = n == 1 ? 2 : n + 2) {
          const std::string name =
              "kernel/" + std::string(kernel->id->name) + "/g:" + std::to_string(group) + "/n:" + std::to_string(n);
          benchmark::RegisterBenchmark(name.c_str(),
                                       [kernel, group, n](benchmark::State& s) { run(s, kernel, group, n); });
        }
  return true;
}();

}  // namespace
}  // namespace moe::bench
