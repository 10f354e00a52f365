// The same layers in vLLM's kernels for processors and in SGLang's, which vLLM's sources carry, measured as ours are
// (cell.h): packed as vLLM packs them, routing given, bfloat16 in and out. tests/bench/versus builds this program and
// lets it take turns with moe_bench.
//
// They get more than their defaults: weights in huge pages (THP_MEM_ALLOC_ENABLE), scratch that malloc keeps. Each
// expert has the same weights, at places of its own.
//
// Name: layer/<workload>/<format>/T:<tokens>/threads:<n>; label: the project and the probe that bounds it. FP8 of
// SGLang is not exact: code 0 becomes 2^-7, and subnormal codes are wrong.
#include <ATen/Parallel.h>
#include <malloc.h>
#include <omp.h>
#include <sys/syscall.h>
#include <torch/all.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "bench/bench.h"
#include "bench/cell.h"
#include "support/rooms.h"

// No header of theirs declares these.
void prepack_moe_weight(const at::Tensor& weight, at::Tensor& packed_weight, const std::string& isa);
void cpu_fused_moe(at::Tensor& output, const at::Tensor& input, const at::Tensor& w13, const at::Tensor& w2,
                   const std::optional<at::Tensor>& w13_bias, const std::optional<at::Tensor>& w2_bias,
                   const at::Tensor& topk_weights, const at::Tensor& topk_id, bool skip_weighted,
                   const std::string& act, const std::string& isa);
#ifdef MOE_PEER_SGLANG
at::Tensor convert_weight_packed(at::Tensor& weight);
at::Tensor convert_scale_packed(at::Tensor& scale);
std::tuple<at::Tensor, at::Tensor, at::Tensor> convert_weight_packed_scale_zp(at::Tensor qweight, at::Tensor qzeros,
                                                                              at::Tensor scales, int64_t method);
void fused_experts_cpu(at::Tensor& out, at::Tensor& hidden_states, at::Tensor& w1, at::Tensor& w2,
                       at::Tensor& topk_weights, at::Tensor& topk_ids, int64_t method,
                       const std::optional<at::Tensor>& w1_scale, const std::optional<at::Tensor>& w2_scale,
                       const std::optional<at::Tensor>& w1_zero, const std::optional<at::Tensor>& w2_zero,
                       const std::optional<at::Tensor>& a1_scale, std::optional<std::vector<int64_t>> block_size,
                       const std::optional<at::Tensor>& w1_bias, const std::optional<at::Tensor>& w2_bias,
                       const std::optional<double>& alpha, const std::optional<double>& limit, bool is_vnni,
                       int64_t act);
#endif

namespace moe::bench {
namespace {

using at::Tensor;

// One matrix of a layer, [experts, rows, columns]: its codes, and what else its format has.
struct Matrix {
  Tensor codes;
  std::optional<Tensor> scales = {}, zeros = {};

  double bytes() const {
    double sum = static_cast<double>(codes.nbytes());
    for (const std::optional<Tensor>& t : {scales, zeros}) sum += t ? static_cast<double>(t->nbytes()) : 0;
    return sum;
  }
  // The first expert's weights for all, each in memory of its own.
  Matrix repeated(std::int64_t experts) const {
    const auto repeat = [&](const Tensor& t) {
      std::vector<std::int64_t> times(static_cast<std::size_t>(t.dim()), 1);
      times[0] = experts;
      return t.repeat(times);
    };
    Matrix m{repeat(codes)};
    if (scales) m.scales = repeat(*scales);
    if (zeros) m.zeros = repeat(*zeros);
    return m;
  }
};

struct Call {
  Tensor &out, &x, &weights, &ids;
  Matrix &w13, &w2;
};

struct Format {
  const char* name;
  const char* project;
  const char* probe;
  Matrix (*pack)(std::int64_t rows, std::int64_t columns);  // of one expert, [1, rows, columns]
  void (*run)(const Call& call);
  std::int64_t group = 1;  // divides the columns of both matrices
};

Tensor random(std::int64_t rows, std::int64_t columns) { return at::randn({1, rows, columns}) * 0.02; }

bool has_probe(const char* name) {
  for (const PeakProbe* p : peak_probes())
    if (std::string(name) == p->name) return true;
  return false;
}
const std::string& isa() {
  static const std::string name = has_probe("amxbf16") ? "amx" : "vec";
  return name;
}

Matrix pack_vllm(std::int64_t rows, std::int64_t columns) {
  const Tensor w = random(rows, columns).to(at::kBFloat16);
  Tensor packed = at::empty_like(w);
  prepack_moe_weight(w, packed, isa());
  return {packed};
}
void run_vllm(const Call& c) {
  cpu_fused_moe(c.out, c.x, c.w13.codes, c.w2.codes, {}, {}, c.weights, c.ids, false, "silu", isa());
}

#ifdef MOE_PEER_SGLANG
enum Method : std::int64_t { kBf16, kInt8, kFp8, kInt4, kMxfp4 };  // CPUQuantMethod

Tensor codes(at::IntArrayRef sizes, std::int64_t least, std::int64_t end, at::ScalarType type) {
  return at::randint(least, end, sizes, at::kInt).to(type);
}

template <Method method>
void run_sglang(const Call& c) {
  fused_experts_cpu(
      c.out, c.x, c.w13.codes, c.w2.codes, c.weights, c.ids, method, c.w13.scales, c.w2.scales, c.w13.zeros, c.w2.zeros,
      {}, method == kFp8 ? std::optional<std::vector<int64_t>>({128, 128}) : std::nullopt, {}, {}, {}, {}, true, 0);
}
Matrix pack_bf16(std::int64_t rows, std::int64_t columns) {
  Tensor w = random(rows, columns).to(at::kBFloat16);
  return {convert_weight_packed(w)};
}
Matrix pack_int8(std::int64_t rows, std::int64_t columns) {
  Tensor w = codes({1, rows, columns}, -127, 128, at::kChar);
  return {convert_weight_packed(w), at::full({1, rows}, 0.0003f)};
}
Matrix pack_fp8(std::int64_t rows, std::int64_t columns) {
  Tensor w = random(rows, columns).mul(50).to(at::kFloat8_e4m3fn);
  return {convert_weight_packed(w), at::full({1, rows / 128, columns / 128}, 0.02f)};
}
// AWQ's: eight codes of a row of columns in a word.
Matrix pack_int4(std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kGroup = 128;
  const auto words = [](at::IntArrayRef sizes) {
    return at::randint(std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max(), sizes,
                       at::kLong)
        .to(at::kInt);
  };
  const Tensor weight = words({1, columns, rows / 8}),
               zeros = at::full({1, columns / kGroup, rows / 8}, -2004318072, at::kInt);
  const Tensor scales = at::full({1, columns / kGroup, rows}, 0.004f, at::kBFloat16);
  const auto [packed, packed_zeros, packed_scales] = convert_weight_packed_scale_zp(weight, zeros, scales, 0);
  return {packed, packed_scales, packed_zeros};
}
Matrix pack_mxfp4(std::int64_t rows, std::int64_t columns) {
  Tensor w = codes({1, rows, columns / 2}, 0, 256, at::kByte),
         scales = codes({1, rows, columns / 32}, 119, 123, at::kByte);
  return {convert_weight_packed(w), convert_scale_packed(scales)};
}
#endif

const std::vector<Format>& formats() {
  static const std::vector<Format> all = [] {
    std::vector<Format> f = {{"vllm-bf16", "vLLM", "dpbf16", pack_vllm, run_vllm}};
#ifdef MOE_PEER_SGLANG
    if (isa() == "amx") {
      f.front().probe = "amxbf16";
      f.push_back({"sglang-bf16", "SGLang", "amxbf16", pack_bf16, run_sglang<kBf16>});
      f.push_back({"sglang-int8", "SGLang", "amxint8", pack_int8, run_sglang<kInt8>});
      f.push_back({"sglang-fp8-block", "SGLang (FP8 inexact)", "amxbf16", pack_fp8, run_sglang<kFp8>, 128});
      f.push_back({"sglang-int4-g128", "SGLang", "amxint8", pack_int4, run_sglang<kInt4>, 128});
      f.push_back({"sglang-mxfp4", "SGLang", "amxbf16", pack_mxfp4, run_sglang<kMxfp4>, 32});
    }
#endif
    return f;
  }();
  return all;
}

// The weights of one layer; several times in distinct memory, as copies_of says.
struct Model {
  Workload workload;
  const Format& format;
  std::vector<std::pair<Matrix, Matrix>> copies;  // w13, w2
  double expert_bytes = 0;

  Model(const Workload& w, const Format& f) : workload(w), format(f) {
    const Matrix w13 = f.pack(2 * w.intermediate, w.hidden), w2 = f.pack(w.hidden, w.intermediate);
    expert_bytes = w13.bytes() + w2.bytes();
    const std::size_t wanted = copies_of(expert_bytes * static_cast<double>(w.experts));
    while (copies.size() < wanted) copies.emplace_back(w13.repeated(w.experts), w2.repeated(w.experts));
  }
};

Model& model(const Workload& w, const Format& f) {
  static std::unique_ptr<Model> current;
  if (!current || std::string(current->workload.name) != w.name || &current->format != &f) {
    current.reset();
    current = std::make_unique<Model>(w, f);
  }
  return *current;
}

const PeakProbe* probe_named(const std::string& name) {
  for (const PeakProbe* p : peak_probes())
    if (name == p->name) return p;
  return nullptr;
}

void run(benchmark::State& state, const Cell& c, const Format& f) {
  omp_set_num_threads(c.threads);
  at::set_num_threads(c.threads);
  Model& m = model(c.workload, f);
  const std::int64_t top_k = c.workload.top_k;
  const std::vector<float> floats = hidden_states(static_cast<std::size_t>(c.tokens * c.workload.hidden));
  Tensor x = at::tensor(floats).view({c.tokens, c.workload.hidden}).to(at::kBFloat16), out = at::zeros_like(x);
  Tensor weights = at::full({c.tokens, top_k}, 1.0f / static_cast<float>(top_k)),
         ids = at::zeros({c.tokens, top_k}, at::kInt);
  constexpr double kSpins = 0.02;  // OpenMP's threads
  measure(state, c, {m.expert_bytes, f.project, probe_named(f.probe), kSpins},
          [&](std::size_t copy, const std::vector<std::int32_t>& wanted) {
            std::copy(wanted.begin(), wanted.end(), ids.data_ptr<std::int32_t>());
            auto& [w13, w2] = m.copies[copy % m.copies.size()];
            f.run({out, x, weights, ids, w13, w2});
          });
  // Weights, routing and input are random: a result that is no number or nothing was not computed.
  const double sum = out.to(at::kFloat).abs().sum().item<double>();
  if (!std::isfinite(sum) || sum == 0) throw std::runtime_error("no result");
}

bool fits(const Workload& w, const Format& f) { return w.hidden % f.group == 0 && w.intermediate % f.group == 0; }

}  // namespace

void add_benchmarks(const std::vector<int>& threads) {
  setenv("THP_MEM_ALLOC_ENABLE", "1", 1);
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
#ifdef MOE_PEER_SGLANG
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  syscall(SYS_arch_prctl, kRequestPermission, kTileData);
#endif
  at::manual_seed(1);
  for (const Workload& w : {kQwen3, kGptOss, kMixtral, kDeepseek})
    for (const Format& f : formats())
      for (const int n : threads)
        for (const std::int64_t tokens : {1, 4, 16, 64, 256, 1024, 4096, 16384}) {
          if (!fits(w, f)) continue;
          const Cell cell{w, f.name, Skew::uniform, tokens, n};
          add_cell(cell, [cell, &f](benchmark::State& state) { run(state, cell, f); });
        }
}

}  // namespace moe::bench
