// Bookkeeping of a call: checking the expert ids and sorting the slots by expert (run/route/plan.h), which is to be a
// few per cent of a layer's time. Threads come from a context's pool that was used just before, as in a call.
//
// Name: plan/<experts>/T:<tokens>/threads:<n>, 8 experts per token; counter per_slot in seconds.
#include <benchmark/benchmark.h>

#include <random>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "run/context/context.h"
#include "run/route/plan.h"
#include "support/rooms.h"

namespace moe::bench {
namespace {

constexpr std::int64_t kTopK = 8;

void run(benchmark::State& state, std::int64_t experts, std::int64_t tokens, int threads) {
  std::mt19937 rng(1);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens * kTopK)), map;
  for (auto& id : ids) id = static_cast<std::int32_t>(rng() % static_cast<std::uint64_t>(experts));
  for (std::int32_t e = 0; e < experts; ++e) map.push_back(e);
  std::vector<float> weights(ids.size(), 0.125f);
  const TensorView id_view = row_major(DType::i32, {tokens, kTopK}, ids.data());
  const TensorView weight_view = row_major(DType::f32, {tokens, kTopK}, weights.data());
  const PlanShape shape{tokens, kTopK, {experts, experts}, 12};
  Carver count(nullptr);
  (void)carve_plan(count, shape);
  const Buffer memory = std::move(*Buffer::create(count.used()));
  Carver carver(memory.data());
  Plan plan = carve_plan(carver, shape);
  const auto context = *Context::create("{\"threads\":" + std::to_string(threads) + "}", {});
  const Parallel parallel = context->parallel();
  for (auto _ : state) {
    const bool fine = static_cast<bool>(check_ids(id_view, {.end = experts}, parallel));
    benchmark::DoNotOptimize(fine);
    const bool built = static_cast<bool>(build_plan(plan, shape, map, id_view, weight_view, parallel));
    benchmark::DoNotOptimize(built);
    benchmark::ClobberMemory();
  }
  state.counters["per_slot"] = benchmark::Counter(static_cast<double>(state.iterations() * tokens * kTopK),
                                                  benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

[[maybe_unused]] const bool kRegistered = [] {
  for (const std::int64_t experts : {8, 128, 256})
    for (const std::int64_t tokens : {1, 16, 64, 128, 256, 512, 1024, 4096, 16384})
      for (const int threads : {1, 2})
        benchmark::RegisterBenchmark(
            ("plan/" + std::to_string(experts) + "/T:" + std::to_string(tokens) + "/threads:" + std::to_string(threads))
                .c_str(),
            [=](benchmark::State& s) { run(s, experts, tokens, threads); })
            ->UseRealTime()
            ->Unit(benchmark::kMicrosecond);
  return true;
}();

}  // namespace
}  // namespace moe::bench
