// Conversion: checkpoint tensors in memory -> packed experts, in GB/s of packed output. Nothing is in a cache; the
// destination's pages are touched beforehand.
//
// Counters: GB_s; per_thread, GB per second of processor time. Name: convert/<workload>/<format>/threads:<n>; `-packed`
// formats read pack-quantized tensors, gptq and awq their own (`-to-`: into another engine's layout), others
// int-quantized.
#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "bench/bench.h"
#include "bench/models.h"
#include "bench/probes.h"
#include "support/rooms.h"

namespace moe::bench {
namespace {

constexpr Workload kWorkloads[] = {kQwen3, kGptOss};

double cpu_seconds() {
  rusage u{};
  getrusage(RUSAGE_SELF, &u);
  return static_cast<double>(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

struct Free {
  void operator()(void* p) const { std::free(p); }
};

// One conversion after another of the weights of a selection.
void measure(benchmark::State& state, const moe_selection* selection, moe_weights* weights, int threads) {
  const Owned<moe_context> context = make_context(threads);
  std::uint64_t bytes = 0, alignment = 0;
  moe_error* e = nullptr;
  check(moe_selection_packed_size(selection, &bytes, &alignment, &e), e);
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
      check(moe_convert_weights(context.get(), selection, weights, &options, &packed, &e), e);
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
}

void run(benchmark::State& state, const Workload& w, const Format& f, int threads) try {
  const Model m(w, f, true);
  Source source(w, f, std::size_t{256} << 20);
  const Owned<moe_weights> weights = source.weights(m.config.get());
  measure(state, m.selection.get(), weights.get(), threads);
} catch (const std::exception& e) {
  state.SkipWithError(e.what());  // the others go on
}

// --- int4 checkpoints of other quantizers, into our layout and those of other engines ----------------------------

struct Wna16 {
  const char *name, *format;
  std::int64_t group;
  bool zeros;           // AWQ has them; then codes, too, are words of eight rows
  const char* members;  // of the config document: where to
};
#define HOPPER R"("platform":{"type":"cuda","capability":[9,0]},"moe_backend":"marlin")"
constexpr Wna16 kWna16[] = {
    {"gptq-g128", "gptq", 128, false, R"("in_dtype":"bfloat16")"},
    {"awq-g128", "awq", 128, true, R"("in_dtype":"bfloat16")"},
    {"gptq-g128-to-marlin", "gptq", 128, false, HOPPER},
    {"gptq-g128-to-marlin-int8", "gptq", 128, false, HOPPER R"(,"marlin_input_dtype":"int8")"},
    {"gptq-g128-act-order-to-marlin", "gptq", 128, false, HOPPER},
    {"awq-g128-to-marlin", "awq", 128, true, HOPPER},
    {"pack-g32-to-trtllm", "pack-quantized", 32, false,
     R"("platform":{"type":"cuda","capability":[10,0],"libs":{"flashinfer_trtllm_moe":true}},)"
     R"("vllm_env":{"VLLM_USE_FLASHINFER_MOE_INT4":"1"},"router_logits_dtype":"bfloat16")"},
    {"gptq-g128-to-xpu", "gptq", 128, false, R"("platform":{"type":"xpu"})"},
    {"gptq-g128-to-vnni", "gptq", 128, false, R"("platform":{"type":"cpu"},"selection_policy":"vllm")"},
    {"gptq-g128-to-on-the-fly", "gptq", 128, false,
     R"("platform":{"type":"rocm","gfx":"gfx942"},"moe_backend":"emulation","emulation_layout":"on_the_fly")"},
};
#undef HOPPER
bool has_order(const Wna16& f) { return std::string_view(f.name).find("act-order") != std::string_view::npos; }
bool fits(const Workload& w, const Wna16& f) { return w.hidden % f.group == 0 && w.intermediate % f.group == 0; }

Owned<moe_config> config_of(const Workload& w, const Wna16& f) {
  const std::string text =
      "{\"num_experts\":" + std::to_string(w.experts) + ",\"top_k\":" + std::to_string(w.top_k) +
      ",\"hidden_dim\":" + std::to_string(w.hidden) + ",\"intermediate_size\":" + std::to_string(w.intermediate) + "," +
      f.members + R"(,"quantization":{"weights":{"num_bits":4,"type":"int","strategy":"group",)" +
      "\"group_size\":" + std::to_string(f.group) + ",\"symmetric\":" + (f.zeros ? "false" : "true") +
      (has_order(f) ? ",\"actorder\":\"group\"" : "") + "},\"format\":\"" + f.format + "\"}}";
  moe_error* e = nullptr;
  moe_config* config = nullptr;
  check(moe_config_create(text.data(), text.size(), &config, &e), e);
  return Owned<moe_config>(config);
}

// Stacks of random words, of float16 scales (for MXINT4 bfloat16 ones), and with activation order column k of group
// k % groups.
class Stacks {
 public:
  Stacks(const Workload& w, const Wna16& f, moe_weights* weights) {
    const bool rows_first = std::string_view(f.format) == "pack-quantized";
    for (const bool up : {true, false}) {
      const std::string matrix = up ? "w13" : "w2";
      const std::int64_t n = up ? 2 * w.intermediate : w.hidden, k = up ? w.hidden : w.intermediate, g = k / f.group;
      if (rows_first) {
        add(weights, matrix + "_weight", MOE_DTYPE_I32, {w.experts, n, k / 8});
        add(weights, matrix + "_scale", MOE_DTYPE_BF16, {w.experts, n, g});
        continue;
      }
      add(weights, matrix + "_weight", MOE_DTYPE_I32, {w.experts, f.zeros ? k : k / 8, f.zeros ? n / 8 : n});
      add(weights, matrix + "_scale", MOE_DTYPE_F16, {w.experts, g, n});
      if (f.zeros) add(weights, matrix + "_zero_point", MOE_DTYPE_I32, {w.experts, g, n / 8});
      if (has_order(f)) add(weights, matrix + "_g_idx", MOE_DTYPE_I32, {w.experts, k}, g);
    }
  }

 private:
  void add(moe_weights* weights, const std::string& role, moe_dtype dtype, const std::vector<std::int64_t>& shape,
           std::int64_t groups = 0) {
    const bool scale = dtype != MOE_DTYPE_I32;
    const auto count =
        static_cast<std::size_t>(std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>())) /
        (scale ? 2 : 1);
    std::vector<std::uint32_t>& words = memory_.emplace_back(count);
    std::uint32_t x = 1;
    for (std::uint32_t& word : words) {
      x = x * 1664525u + 1013904223u;
      word = scale ? (x & 0x03ff03ffu) | 0x20002000u : x;
    }
    for (std::size_t i = 0; groups != 0 && i < count; ++i)
      words[i] = static_cast<std::uint32_t>(static_cast<std::int64_t>(i) % shape.back() % groups);
    moe_tensor t{};
    t.struct_size = sizeof t;
    t.dtype = dtype;
    t.ndim = static_cast<std::int32_t>(shape.size());
    std::copy(shape.begin(), shape.end(), t.shape);
    t.data = words.data();
    moe_error* e = nullptr;
    check(moe_weights_set(weights, role.c_str(), &t, nullptr, nullptr, &e), e);
  }
  std::vector<std::vector<std::uint32_t>> memory_;
};

void run_wna16(benchmark::State& state, const Workload& w, const Wna16& f, int threads) try {
  const Owned<moe_config> config = config_of(w, f);
  moe_error* e = nullptr;
  moe_selection* selected = nullptr;
  check(moe_select_backend(nullptr, config.get(), nullptr, 0, &selected, &e), e);
  const Owned<moe_selection> selection(selected);
  moe_weights* created = nullptr;
  check(moe_weights_create(config.get(), &created, &e), e);
  const Owned<moe_weights> weights(created);
  const Stacks stacks(w, f, weights.get());
  measure(state, selection.get(), weights.get(), threads);
} catch (const std::exception& e) {
  state.SkipWithError(e.what());
}

template <class Body>
void add_cell(const Workload& w, const char* format, int threads, Body body) {
  const std::string name = std::string("convert/") + w.name + "/" + format + "/threads:" + std::to_string(threads);
  benchmark::RegisterBenchmark(name.c_str(), body)->UseManualTime()->Iterations(1)->Unit(benchmark::kMillisecond);
}

}  // namespace

void add_conversions(const std::vector<int>& threads) {
  for (const Workload& w : kWorkloads)
    for (const int n : threads) {
      for (const Format& f : formats())
        if (f.fits(w)) add_cell(w, f.name, n, [w, &f, n](benchmark::State& s) { run(s, w, f, n); });
      for (const Wna16& f : kWna16)
        if (fits(w, f)) add_cell(w, f.name, n, [w, &f, n](benchmark::State& s) { run_wna16(s, w, f, n); });
    }
}

}  // namespace moe::bench
