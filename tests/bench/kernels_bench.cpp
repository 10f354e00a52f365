// Every registry row by itself: two panels x n rows that stay in the caches, as a share of the peak that bounds it.
//
// Name: kernel/<kernel>/g:<group, -1 = channel, 0 = no scales>/n:<rows>; label: the probe.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "bench/probes.h"
#include "kernels/kernel.h"

namespace moe::bench {
namespace {

constexpr std::int64_t kK = 2048, kRows = 32;

// group: -1 = channel-wise, 0 for elements without scales.
P16Matrix matrix_of(const Kernel& kernel, std::int64_t group) {
  const LayoutShape shape{.experts = 1,
                          .hidden = kK,
                          .intermediate = kRows,
                          .group = group == 0 ? -1 : group,
                          .gated = false,
                          .has_bias = false,
                          .has_zeros = kernel.id->name.ends_with("_zp")};
  return p16_layout(kernel.id->layout, shape).w13;
}

void run(benchmark::State& state, const Kernel* kernel, std::int64_t group, int n) {
  const P16Matrix m = matrix_of(*kernel, group);
  TileShape shape;
  shape.k = kK;
  shape.group = m.group;
  shape.act = kernel->id->act;
  const Buffer panels = *Buffer::create(m.bytes()),
               tile = *Buffer::create(shape.row_bytes() * static_cast<std::size_t>(n)),
               out = *Buffer::create(static_cast<std::size_t>(n * kRows) * sizeof(float));
  // Codes of any kind, and ordinary numbers as scales and values of any type: subnormal ones would be slow.
  constexpr std::byte kFill{0x3c};
  std::fill(panels.bytes().begin(), panels.bytes().end(), kFill);
  std::fill(tile.bytes().begin(), tile.bytes().end(), kFill);
  for (auto _ : state) {
    kernel->gemm({&m, panels.data(), 2, tile.data(), n, shape, reinterpret_cast<float*>(out.data()), kRows, nullptr});
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
  const auto host = detect_platform();
  for (const Kernel* kernel : kernels()) {
    if (!p16_element(kernel->id->layout)) continue;
    if (!host || !host->runs(kernel->id->isa) || (kernel->ready != nullptr && !kernel->ready())) continue;
    const bool scaled = matrix_of(*kernel, -1).grouping() != Grouping::none;
    for (const std::int64_t group : scaled ? std::vector<std::int64_t>{32, 64, 128, -1} : std::vector<std::int64_t>{0})
      for (int n = 1; kernel->id->takes_group(group) && n <= kernel->tile_rows; n = larger(n)) {
        const std::string name =
            "kernel/" + std::string(kernel->id->name) + "/g:" + std::to_string(group) + "/n:" + std::to_string(n);
        benchmark::RegisterBenchmark(name.c_str(),
                                     [kernel, group, n](benchmark::State& s) { run(s, kernel, group, n); });
      }
  }
  return true;
}();

}  // namespace
}  // namespace moe::bench
