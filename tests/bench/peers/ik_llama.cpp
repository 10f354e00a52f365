// The same layers in ik_llama.cpp, measured as ours are (cell.h): the graph that its models build for routed experts
// (fused gate and up, down, weighted sum), run-time repacked weights in huge pages, routing given, float32 in and out.
// tests/bench/versus builds this program and lets it take turns with moe_bench.
//
// Name: layer/<workload>/<ggml type>/T:<tokens>/threads:<n>; label: ik_llama.cpp and the probe that bounds it.
#include <ggml.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/bench.h"
#include "bench/cell.h"
#include "support/rooms.h"

extern "C" void iqk_repack_tensor(ggml_tensor* tensor);  // no public header has it

namespace moe::bench {
namespace {

// Where halves lie in a block that scale its codes, or a byte with a power of two: they get a value that is a number;
// the rest is random.
struct Type {
  const char* name;
  ggml_type type;
  const char* probe;
  std::vector<std::size_t> halves;
  std::optional<std::size_t> power = {};
  bool repacks = true;  // has a form with rows side by side
};
const std::vector<Type>& types() {
  static const std::vector<Type> all = {
      {"q4_0", GGML_TYPE_Q4_0, "vnni512", {0}},     {"q4_k", GGML_TYPE_Q4_K, "vnni512", {0, 2}},
      {"iq4_xs", GGML_TYPE_IQ4_XS, "vnni512", {0}}, {"q8_0", GGML_TYPE_Q8_0, "vnni512", {0}},
      {"bf16", GGML_TYPE_BF16, "dpbf16", {}},       {"mxfp4", GGML_TYPE_MXFP4, "vnni512", {}, 0, false},
  };
  return all;
}

struct FreeContext {
  void operator()(ggml_context* c) const { ggml_free(c); }
};
using Context = std::unique_ptr<ggml_context, FreeContext>;

Context make_context(std::size_t bytes, bool no_alloc) {
  return Context(ggml_init({.mem_size = bytes, .mem_buffer = nullptr, .no_alloc = no_alloc}));
}

// Anonymous memory in huge pages where the system has them.
class Memory {
 public:
  explicit Memory(std::size_t bytes) : bytes_(bytes) {
    data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) throw std::runtime_error("no memory for " + std::to_string(bytes_) + " bytes");
    madvise(data_, bytes_, MADV_HUGEPAGE);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { munmap(data_, bytes_); }
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  std::size_t bytes_;
  void* data_;
};

void fill(const ggml_tensor* t, const Type& type) {
  static std::mt19937_64 rng(1);
  auto* const bytes = static_cast<std::byte*>(t->data);
  for (std::size_t at = 0; at < ggml_nbytes(t); at += 8) {
    std::uint64_t x = rng();
    if (type.type == GGML_TYPE_BF16) x = (x & 0x807f807f807f807fu) | 0x3c003c003c003c00u;  // +-2^-7..2^-6
    std::memcpy(bytes + at, &x, std::min<std::size_t>(8, ggml_nbytes(t) - at));
  }
  const std::uint16_t scale = ggml_fp32_to_fp16(0.01f);
  for (std::size_t at = 0; at < ggml_nbytes(t); at += ggml_type_size(type.type))
    for (const std::size_t half : type.halves) std::memcpy(bytes + at + half, &scale, 2);
  for (std::size_t at = 0; type.power && at < ggml_nbytes(t); at += ggml_type_size(type.type))
    bytes[at + *type.power] = std::byte{120};  // 2^-7
}

// Gate, up and down of all experts.
struct Weights {
  ggml_tensor* of[3];
};

// The weights of one layer, repacked; several times in distinct memory, as copies_of says.
class Model {
 public:
  Workload workload;
  const Type& type;
  std::vector<Weights> copies;
  double expert_bytes = 0;

  Model(const Workload& w, const Type& t) : workload(w), type(t) {
    const std::int64_t up[] = {w.hidden, w.intermediate, w.experts}, down[] = {w.intermediate, w.hidden, w.experts};
    std::size_t bytes = 0;
    context_ = make_context(64 * 3 * ggml_tensor_overhead(), true);
    do {
      Weights weights{};
      bytes = 0;
      for (int i = 0; i < 3; ++i) {
        weights.of[i] = ggml_new_tensor(context_.get(), t.type, 3, i < 2 ? up : down);
        const std::size_t size = ggml_nbytes(weights.of[i]);
        memory_.push_back(std::make_unique<Memory>(size));
        weights.of[i]->data = memory_.back()->data();
        fill(weights.of[i], t);
        if (t.repacks) iqk_repack_tensor(weights.of[i]);
        if (t.repacks && weights.of[i]->type == t.type)
          throw std::runtime_error(std::string("not repacked: ") + t.name);
        bytes += size;
      }
      copies.push_back(weights);
    } while (copies.size() < copies_of(static_cast<double>(bytes)));
    expert_bytes = static_cast<double>(bytes) / static_cast<double>(w.experts);
  }

 private:
  Context context_;
  std::vector<std::unique_ptr<Memory>> memory_;
};

const Model& model(const Workload& w, const Type& t) {
  static std::unique_ptr<Model> current;
  if (!current || std::string(current->workload.name) != w.name || &current->type != &t) {
    current.reset();
    current = std::make_unique<Model>(w, t);
  }
  return *current;
}

// One copy's layer for so many tokens.
class Graph {
 public:
  Graph(const Cell& c, const Weights& w) {
    const std::int64_t top_k = c.workload.top_k, most = std::max(c.workload.hidden, 2 * c.workload.intermediate);
    const auto floats = static_cast<std::size_t>(c.tokens * (top_k + 1) * most * 4 + 4 * c.tokens * c.workload.hidden);
    context_ = make_context(floats * 4 + (1 << 20), false);
    ggml_context* g = context_.get();
    x_ = ggml_new_tensor_3d(g, GGML_TYPE_F32, c.workload.hidden, 1, c.tokens);
    ids_ = ggml_new_tensor_2d(g, GGML_TYPE_I32, top_k, c.tokens);
    ggml_tensor* weights = ggml_new_tensor_3d(g, GGML_TYPE_F32, 1, top_k, c.tokens);
    const std::vector<float> x = hidden_states(static_cast<std::size_t>(c.tokens * c.workload.hidden));
    std::memcpy(x_->data, x.data(), ggml_nbytes(x_));
    ggml_set_f32(weights, 1.0f / static_cast<float>(top_k));
    ggml_tensor* act = ggml_moe_up_gate(g, w.of[1], w.of[0], x_, ids_, GGML_UNARY_OP_SILU);
    out_ = ggml_mul_multi_add(g, ggml_mul_mat_id(g, w.of[2], act, ids_), weights);
    graph_ = ggml_new_graph(g);
    ggml_build_forward_expand(graph_, out_);
    plan_ = ggml_graph_plan(graph_, c.threads);
    work_.resize(plan_.work_size);
    plan_.work_data = work_.data();
  }
  void run(const std::vector<std::int32_t>& ids) {
    std::memcpy(ids_->data, ids.data(), ids.size() * sizeof ids[0]);
    if (ggml_graph_compute(graph_, &plan_) != GGML_STATUS_SUCCESS) throw std::runtime_error("the graph failed");
  }
  // Weights, routing and input are random: a result that is no number or nothing was not computed.
  void check() const {
    double sum = 0;
    for (std::int64_t i = 0; i < ggml_nelements(out_); ++i)
      sum += std::fabs(double{static_cast<const float*>(out_->data)[i]});
    if (!std::isfinite(sum) || sum == 0) throw std::runtime_error("no result");
  }

 private:
  Context context_;
  ggml_tensor *x_ = nullptr, *ids_ = nullptr, *out_ = nullptr;
  ggml_cgraph* graph_ = nullptr;
  ggml_cplan plan_{};
  std::vector<std::uint8_t> work_;
};

const PeakProbe* probe_named(const std::string& name) {
  for (const PeakProbe* p : peak_probes())
    if (name == p->name) return p;
  return nullptr;
}

void run(benchmark::State& state, const Cell& c, const Type& t) {
  const Model& m = model(c.workload, t);
  std::vector<std::unique_ptr<Graph>> graphs;
  for (const Weights& w : m.copies) graphs.push_back(std::make_unique<Graph>(c, w));
  constexpr double kSpins = 0.02;  // OpenMP's threads
  measure(state, c, {m.expert_bytes, "ik_llama.cpp", probe_named(t.probe), kSpins},
          [&](std::size_t copy, const std::vector<std::int32_t>& ids) { graphs[copy % graphs.size()]->run(ids); });
  graphs[0]->check();
}

bool fits(const Workload& w, const Type& t) {
  const std::int64_t block = ggml_blck_size(t.type);
  return w.hidden % block == 0 && w.intermediate % block == 0;
}

}  // namespace

void add_benchmarks(const std::vector<int>& threads) {
  for (const Workload& w : {kQwen3, kGptOss, kMixtral, kDeepseek})
    for (const Type& t : types())
      for (const int n : threads)
        for (const std::int64_t tokens : {1, 4, 16, 64, 256, 1024}) {
          if (!fits(w, t)) continue;
          const Cell cell{w, t.name, Skew::uniform, tokens, n};
          add_cell(cell, [cell, &t](benchmark::State& state) { run(state, cell, t); });
        }
}

}  // namespace moe::bench
