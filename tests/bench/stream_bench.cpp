// Every registry row by itself on weights that no cache holds, as a layer hands them to it: how each way of reading
// them (PrefetchPolicy in kernels/kernel.h) compares with the read probe. The ways and the probe take turns of one
// part, so that the ratios bear a noisy host better than a layer's do; on them rests what run/layer.cpp chooses.
//
// Name: stream/<kernel>/g:<group, -1 = channel, 0 = no scales>/k:<columns>/n:<rows>; counters: the probe's GB/s, and
// the share of it that each way reaches, one thread.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "bench/probes.h"
#include "bench/rows.h"
#include "support/rooms.h"

namespace moe::bench {
namespace {

constexpr std::int64_t kCallPanels = 8;  // as the engine calls
constexpr int kRounds = 15;

struct Way {
  const char* name;
  PrefetchPolicy prefetch;
};
constexpr Way kWays[] = {
    {"in_order", {.ahead = 4096, .in_order = true}},  // a single token's alone
    {"ahead4k", {.ahead = 4096}},
    {"ahead8k", {.ahead = 8192}},
    {"ahead8k_pairs", {.ahead = 8192, .pairs = true}},  // where two panels are read at a time
    {"ahead8k_l2", {.ahead = 8192, .into_l2 = true}},
    {"ahead16k_l2", {.ahead = 16384, .into_l2 = true}},
};

struct Stream {
  const Kernel* kernel;
  std::int64_t group, k;
  int n;
};

double median(std::vector<double> times) {
  std::nth_element(times.begin(), times.begin() + std::ssize(times) / 2, times.end());
  return times[times.size() / 2];
}

void run(benchmark::State& state, const Stream& s) {
  constexpr std::int64_t kColumns = kCallPanels * kPanelRows;
  const P16 m = matrix_of(*s.kernel, s.group, s.k, kColumns);
  const TileShape shape = tile_of(*s.kernel, m);
  const Buffer tile = filled_buffer(shape.row_bytes() * static_cast<std::size_t>(s.n));
  const Buffer scratch = scratch_of(*s.kernel);
  std::vector<float> out(static_cast<std::size_t>(s.n * kColumns));
  const std::size_t bytes = m.panel_bytes() * kCallPanels, calls = kPartBytes / bytes;
  const auto pass = [&](const std::byte* part, const PrefetchPolicy& prefetch) {
    for (std::size_t i = 0; i < calls; ++i) {
      GemmArgs a{&m, part + i * bytes, kCallPanels, tile.data(), s.n, shape, out.data(), kColumns, nullptr};
      if (i + 1 < calls) a.next = a.panels + bytes;
      a.prefetch = prefetch;
      a.scratch = scratch.data();
      s.kernel->gemm(a);
    }
  };
  for (auto _ : state) {
    std::vector<double> probe;
    std::array<std::vector<double>, std::size(kWays)> ways;
    const auto timed = [](std::vector<double>& times, auto body) {
      const std::byte* part = next_part();
      const double start = seconds();
      body(part);
      times.push_back(seconds() - start);
    };
    for (int round = 0; round < kRounds; ++round) {
      timed(probe, read_part);
      for (std::size_t i = 0; i < std::size(kWays); ++i)
        timed(ways[i], [&](const std::byte* part) { pass(part, kWays[i].prefetch); });
    }
    const double rate = static_cast<double>(kPartBytes) / median(probe);
    state.counters["GB_s"] = rate / 1e9;
    for (std::size_t i = 0; i < std::size(kWays); ++i)
      state.counters[kWays[i].name] = static_cast<double>(calls * bytes) / median(ways[i]) / rate;
  }
}

[[maybe_unused]] const bool kRegistered = [] {
  for (const Kernel* kernel : rows_here())
    for (const std::int64_t group :
         has_scales(*kernel) ? std::vector<std::int64_t>{32, 128, -1} : std::vector<std::int64_t>{0})
      for (const std::int64_t k : {768, 2048, 4096, 14336})
        for (int n = 1; kernel->id->takes(Groups::of_size(group)) && n <= std::min(kernel->tile_rows, 4); ++n) {
          const std::string name = "stream/" + std::string(kernel->id->name) + "/g:" + std::to_string(group) +
                                   "/k:" + std::to_string(k) + "/n:" + std::to_string(n);
          benchmark::RegisterBenchmark(name.c_str(), [s = Stream{kernel, group, k, n}](benchmark::State& state) {
            run(state, s);
          })->Iterations(1);
        }
  return true;
}();

}  // namespace
}  // namespace moe::bench
