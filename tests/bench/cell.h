// How a cell is measured, whoever's layer it is: the experts of call after call, the calls with probes between them,
// and the counters that come of them.
//
// A repetition in which the system took a processor away is discarded, and all between two probes when the host did for
// more than a moment; the time is the median of the others (disturbed = 1: too few were left, of all). Counters: tok_s,
// GB_s (weights read), TOPS, the probes between the repetitions and the two ratios to them, `bw` and `peak`; with
// --probes=no nothing runs between the calls, and the last four are missing.
#pragma once

#include <benchmark/benchmark.h>

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "bench/probes.h"
#include "bench/workload.h"
#include "support/rooms.h"

namespace moe::bench {

//   uniform      any; a single token takes every expert before one comes again
//   zipf         expert of rank r with weight 1 / r
//   same         one set for all tokens of a call
//   third_empty  uniform over two thirds of the experts
enum class Skew : std::uint8_t { uniform, zipf, same, third_empty };

struct Cell {
  Workload workload;
  std::string format;
  Skew skew;
  std::int64_t tokens;
  int threads;

  std::string name() const;  // layer/<workload>[:<routing>]/<format>/T:<tokens>/threads:<n>
  std::size_t slots() const { return static_cast<std::size_t>(tokens * workload.top_k); }
};

// One call of the layer. `copy` numbers the copies of its weights: a single token meets every expert of one before the
// next one's turn comes. The ids, [T][top_k], are distinct for each token.
using Apply = std::function<void(std::size_t copy, const std::vector<std::int32_t>& ids)>;

// What one expert's weights weigh, who multiplies (the label), what bounds it (nullptr: nothing known), and for how
// long its threads look for work after a call before they sleep: probes wait for that.
struct Measured {
  double expert_bytes;
  std::string label;
  const PeakProbe* probe;
  double spins_s = 0;
};
void measure(benchmark::State& state, const Cell& cell, const Measured& layer, const Apply& apply);

// Whether probes run between the calls of all cells.
void set_probes(bool wanted);

// For how long the calls of a cell are measured, at least.
void set_seconds(double wanted);

// `run` measures the cell by its name, once; what it throws is the cell's error.
void add_cell(const Cell& cell, std::function<void(benchmark::State&)> run);

// Normal numbers.
std::vector<float> hidden_states(std::size_t count);

// The copies of a layer of so many bytes that no cache holds: ten times the last one's size, as memory allows.
std::size_t copies_of(double bytes);

}  // namespace moe::bench
