// What moe_bench measures.
#include "bench/bench.h"

void moe::bench::add_benchmarks(const std::vector<int>& threads) {
  add_layers(threads);
  add_overhead(threads);
  add_pool(threads);
  add_conversions(threads);
  add_openings();
}
