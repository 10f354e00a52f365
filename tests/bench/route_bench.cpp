// Routing by itself, one thread: rows of functions of each instruction set. The time of a call is to be a few per
// cent of the layer's (layer_bench.cpp has the layers).
//
// Name: route/<shape>/<isa>/T:<tokens>; counter per_token in seconds.
#include <benchmark/benchmark.h>

#include <random>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "run/route/route.h"
#include "support/rooms.h"

namespace moe::bench {
namespace {

struct Shape {
  const char* name;
  std::int64_t experts, top_k, groups, kept;
  Scoring scoring;
  bool renormalize, bias;
};
constexpr Shape kShapes[] = {
    {"qwen3", 128, 8, 1, 1, Scoring::softmax, true, false},
    {"mixtral", 8, 2, 1, 1, Scoring::softmax, true, false},
    {"softmax_all", 256, 8, 1, 1, Scoring::softmax, false, false},
    {"deepseek_v3", 256, 8, 8, 4, Scoring::sigmoid, true, true},
    {"deepseek_v4", 256, 6, 1, 1, Scoring::sqrtsoftplus, true, true},
};

void run(benchmark::State& state, const Shape& s, const RouteKernel& kernel, std::int64_t tokens) {
  std::mt19937 g(1);
  std::normal_distribution<float> normal;
  Config c;
  c.num_experts = s.experts;
  c.top_k = s.top_k;
  c.routing.scoring = s.scoring;
  c.routing.renormalize = s.renormalize;
  if (s.groups > 1) c.routing.num_expert_group = s.groups, c.routing.topk_group = s.kept;
  c.routing.has_bias = s.bias;
  for (std::int64_t e = 0; s.bias && e < s.experts; ++e) c.routing.bias.push_back(0.1f * normal(g));
  const Router router = *make_router(c, kernel, {});
  std::vector<float> logits(static_cast<std::size_t>(tokens * s.experts));
  for (float& x : logits) x = normal(g);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens * s.top_k));
  std::vector<float> weights(ids.size());
  const Buffer scratch = std::move(*Buffer::create(route_scratch_bytes(router, tokens)));
  const RouteArgs args{.num_tokens = tokens,
                       .logits = reinterpret_cast<const std::byte*>(logits.data()),
                       .row_stride = s.experts,
                       .ids = ids.data(),
                       .weights = weights.data(),
                       .scratch = scratch.data()};
  for (auto _ : state) {
    const bool routed = static_cast<bool>(route(router, args, {}));
    benchmark::DoNotOptimize(routed);
    benchmark::ClobberMemory();
  }
  state.counters["per_token"] = benchmark::Counter(static_cast<double>(state.iterations() * tokens),
                                                   benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

[[maybe_unused]] const bool kRegistered = [] {
  const auto host = detect_platform();
  for (const Shape& s : kShapes)
    for (const RouteKernel* kernel : route_kernels())
      for (const std::int64_t tokens : {1, 512}) {
        if (!host || !host->runs(kernel->isa)) continue;
        const std::string name = std::string("route/") + s.name + "/" +
                                 std::string(kIsaNames[static_cast<std::size_t>(kernel->isa)]) +
                                 "/T:" + std::to_string(tokens);
        benchmark::RegisterBenchmark(name.c_str(),
                                     [&s, kernel, tokens](benchmark::State& state) { run(state, s, *kernel, tokens); });
      }
  return true;
}();

}  // namespace
}  // namespace moe::bench
