// The whole layer through the C API, on the shapes of real models: decode to prefill, one and more threads. See cell.h;
// the label names the kernel and its peak probe.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/bench.h"
#include "bench/cell.h"
#include "bench/models.h"
#include "support/rooms.h"

namespace moe::bench {
namespace {

// Only one model is in memory at a time: benchmarks are registered model by model.
const Model& model(const Workload& w, const Format& f) {
  static std::unique_ptr<Model> current;
  if (!current || std::string(current->workload.name) != w.name || &current->format != &f) {
    current.reset();
    current = std::make_unique<Model>(w, f);
  }
  return *current;
}

// Normal numbers in the dtype of hidden states.
std::vector<std::byte> input(std::size_t count, moe_dtype dtype) {
  const std::vector<float> values = hidden_states(count);
  const std::size_t size = dtype == MOE_DTYPE_F32 ? 4 : 2;
  std::vector<std::byte> out(count * size);
  for (std::size_t i = 0; i < count; ++i) {
    std::byte bits[4];
    std::memcpy(bits, &values[i], 4);
    std::memcpy(out.data() + i * size, bits + 4 - size, size);  // bf16: the upper half
  }
  return out;
}

const PeakProbe* probe_of_kernel(const char* name) {
  const auto index = kernel_index(name);
  return index ? probe_of(kKernelIds[*index]) : nullptr;
}

void run(benchmark::State& state, const Cell& c, const Format& f) {
  const Model& m = model(c.workload, f);
  const Bound b(m, c.threads);
  const std::vector<std::byte> x = input(static_cast<std::size_t>(c.tokens * c.workload.hidden), f.hidden);
  std::vector<std::byte> out(x.size());
  const std::vector<float> weights(c.slots(), 1.0f / static_cast<float>(c.workload.top_k));
  const char* kernel = moe_selection_kernel(m.selection.get());
  measure(state, c, {m.expert_bytes, kernel, probe_of_kernel(kernel)},
          [&](std::size_t copy, const std::vector<std::int32_t>& ids) {
            moe_error* e = nullptr;
            check(moe_apply_flat(b.layers[copy % b.layers.size()].get(), c.tokens, f.hidden, x.data(),
                                 MOE_DTYPE_INVALID, nullptr, ids.data(), weights.data(), f.hidden, out.data(), &e),
                  e);
          });
}

// --- what is registered ----------------------------------------------------------------------------------

struct Series {
  Workload workload;
  std::vector<Skew> skews;
  std::vector<const char*> formats;  // empty: those of the table that fit
  std::vector<std::int64_t> tokens;
};

std::vector<Series> series() {
  const std::vector<Skew> uniform = {Skew::uniform}, skewed = {Skew::zipf, Skew::same, Skew::third_empty};
  const std::vector<std::int64_t> tokens = {1, 4, 16, 64, 256, 1024, 4096, 16384};
  const std::vector<const char*> all = {};
  return {
      {kQwen3, uniform, all, tokens},
      {kGptOss, uniform, all, tokens},
      {kMixtral, uniform, all, tokens},
      {kDeepseek, uniform, all, tokens},
      {kQwen3, skewed, {"w4a8-g128"}, {16, 256, 1024}},
      {kDeepseek, skewed, {"w4a8-g128"}, {16, 256, 1024}},
      // Every expert gets every token: tiles of 2 to 15 rows.
      {{"remainders-8", 8, 8, 2048, 1024}, uniform, {"w4a8-g128"}, {2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}},
      // K of both matrices ends in half a unit.
      {{"half-units-32", 32, 4, 2080, 1056}, uniform, {"w4a8-g32", "w4a8-channel", "bf16"}, {1, 16, 256}},
  };
}

bool wanted(const Series& s, const Format& f) {
  if (!f.fits(s.workload) || f.conversion_only) return false;
  return s.formats.empty() || std::find(s.formats.begin(), s.formats.end(), std::string(f.name)) != s.formats.end();
}

// A call takes seconds: all formats of one model, of the others what is held against peers.
bool long_prompts(const Workload& w, const Format& f) {
  static const std::map<std::string, std::vector<std::string>> others = {
      {kGptOss.name, {"mxfp4"}}, {kMixtral.name, {"bf16", "w4a8-g128"}}, {kDeepseek.name, {"fp8-block"}}};
  if (std::string(w.name) == kQwen3.name) return true;
  const auto it = others.find(w.name);
  return it != others.end() && std::find(it->second.begin(), it->second.end(), f.name) != it->second.end();
}

}  // namespace

void add_layers(const std::vector<int>& threads) {
  for (const Series& s : series())
    for (const Format& f : formats())
      for (const Skew skew : s.skews)
        for (const int n : threads)
          for (const std::int64_t t : s.tokens) {
            if (!wanted(s, f) || (t > 1024 && (n < 4 || !long_prompts(s.workload, f)))) continue;
            const Cell cell{s.workload, f.name, skew, t, n};
            add_cell(cell, [cell, &f](benchmark::State& state) { run(state, cell, f); });
          }
}

}  // namespace moe::bench
