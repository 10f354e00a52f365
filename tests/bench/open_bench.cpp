// Opening a large checkpoint: the names and headers of 100 000 tensors in 10 files, of which a layer's 1536 are taken.
// Their bytes are holes of the files: none is read.
//
// Names: open/100000-tensors, with an index, layer by layer in the files as tools write them; .../spread, each expert
// torn apart, so that every header is read; .../no-index, likewise. open/checkpoint: moe_checkpoint_open on two
// threads, 163 files as DeepSeek-V3 has; bytes_per_tensor: memory that the opened checkpoint keeps.
#include <benchmark/benchmark.h>
#include <malloc.h>
#include <moe/moe.h>

#include <array>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "bench/bench.h"
#include "bench/models.h"
#include "support/rooms.h"
#include "support/safetensors_writer.h"

namespace moe::bench {
namespace {

constexpr int kTensors = 100000, kExperts = 256, kPerLayer = 6 * kExperts;  // weights and scales
constexpr int kLayers = kTensors / kPerLayer + 1;
constexpr std::int64_t kSide = 128;  // of every matrix

struct Cell {
  const char* name;
  int files;
  bool spread, index;
};
constexpr Cell kCells[] = {{"open/100000-tensors", 10, false, true},
                           {"open/100000-tensors/spread", 10, true, true},
                           {"open/100000-tensors/no-index", 10, false, false}};
constexpr Cell kWhole = {"open/checkpoint/100000-tensors", 163, false, true};

struct Tensor {
  std::string name, header;  // without its offsets
  std::int64_t bytes;
};
// Of DeepSeek-V3's names: FP8 blocks of 128 x 128.
Tensor tensor_at(int i) {
  constexpr std::array kProjections = {"gate_proj", "up_proj", "down_proj"};
  const int layer = i / kPerLayer, expert = i % kPerLayer / 6, part = i % 6;
  const bool scale = part % 2 != 0;
  Tensor t{"model.layers." + std::to_string(layer) + ".mlp.experts." + std::to_string(expert) + "." +
               kProjections.at(static_cast<std::size_t>(part / 2)) + (scale ? ".weight_scale_inv" : ".weight"),
           scale ? R"({"dtype":"F32","shape":[1,1])" : R"({"dtype":"F8_E4M3","shape":[128,128])",
           scale ? 4 : kSide * kSide};
  return t;
}

std::string file_name(std::size_t file) { return "model-" + std::to_string(file + 1) + ".safetensors"; }

void write_checkpoint(const test::TempDir& dir, const Cell& cell) {
  std::vector<std::string> headers(static_cast<std::size_t>(cell.files));
  std::vector<std::int64_t> sizes(headers.size());
  std::string index = R"({"weight_map":{)";
  for (int i = 0; i < kTensors; ++i) {
    const auto file = static_cast<std::size_t>(cell.spread ? i % cell.files : i / (kTensors / cell.files + 1));
    const Tensor t = tensor_at(i);
    std::string& header = headers.at(file);
    std::int64_t& size = sizes.at(file);
    header += (header.empty() ? "{\"" : ",\"") + t.name + "\":" + t.header + ",\"data_offsets\":[" +
              std::to_string(size) + "," + std::to_string(size + t.bytes) + "]}";
    size += t.bytes;
    index += (i == 0 ? "\"" : ",\"") + t.name + "\":\"" + file_name(file) + "\"";
  }
  for (std::size_t f = 0; f < headers.size(); ++f) {
    const std::string path = dir.write(file_name(f), test::safetensors_bytes(headers.at(f) + "}", ""));
    std::filesystem::resize_file(path, std::filesystem::file_size(path) + static_cast<std::uintmax_t>(sizes.at(f)));
  }
  if (cell.index) dir.write("model.safetensors.index.json", index + "}}");
}

void run(benchmark::State& state, const Cell& cell) try {
  const test::TempDir dir;
  write_checkpoint(dir, cell);
  const std::string text = R"({"name":"model.layers.30.mlp.experts","num_experts":256,"top_k":8,"hidden_dim":128,)"
                           R"("intermediate_size":128,"hf_quantization_config":{"quant_method":"fp8",)"
                           R"("activation_scheme":"dynamic","weight_block_size":[128,128]}})";
  moe_error* e = nullptr;
  moe_config* made = nullptr;
  check(moe_config_create(text.data(), text.size(), &made, &e), e);
  const Owned<moe_config> config(made);
  for (auto _ : state) {
    moe_weights* weights = nullptr;
    check(moe_weights_create(config.get(), &weights, &e), e);
    const Owned<moe_weights> owned(weights);
    check(moe_weights_load_safetensors(weights, dir.path().c_str(), nullptr, &e), e);
  }
} catch (const std::exception& e) {
  state.SkipWithError(e.what());
}

std::string whole_config() {
  return R"({"architectures":["DeepseekV3ForCausalLM"],"first_k_dense_replace":0,"hidden_act":"silu","hidden_size":128,)"
         R"("moe_intermediate_size":128,"moe_layer_freq":1,"n_group":8,"n_routed_experts":256,"norm_topk_prob":true,)"
         R"("num_experts_per_tok":8,"routed_scaling_factor":2.5,"scoring_func":"sigmoid","topk_group":4,)"
         R"("topk_method":"noaux_tc","torch_dtype":"bfloat16","num_hidden_layers":)" +
         std::to_string(kLayers) +
         R"(,"quantization_config":{"quant_method":"fp8","activation_scheme":"dynamic","weight_block_size":[128,128]}})";
}

void run_whole(benchmark::State& state) try {
  const test::TempDir dir;
  write_checkpoint(dir, kWhole);
  dir.write("config.json", whole_config());
  moe_error* e = nullptr;
  moe_context* made = nullptr;
  check(moe_context_create("{\"threads\":2}", MOE_NUL_TERMINATED, nullptr, &made, &e), e);
  const Owned<moe_context> context(made);
  std::size_t kept = 0;
  for (auto _ : state) {
    const std::size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
    moe_checkpoint* checkpoint = nullptr;
    check(moe_checkpoint_open(context.get(), dir.path().c_str(), nullptr, 0, nullptr, &checkpoint, &e), e);
    kept = mallinfo2().uordblks + mallinfo2().hblkhd - before;
    state.PauseTiming();
    moe_checkpoint_destroy(checkpoint);
    state.ResumeTiming();
  }
  state.counters["bytes_per_tensor"] = static_cast<double>(kept) / kTensors;
} catch (const std::exception& e) {
  state.SkipWithError(e.what());
}

}  // namespace

void add_openings() {
  benchmark::RegisterBenchmark(kWhole.name, run_whole)->Unit(benchmark::kMillisecond)->UseRealTime();
  for (const Cell& cell : kCells)
    benchmark::RegisterBenchmark(cell.name, [&cell](benchmark::State& s) {
      run(s, cell);
    })->Unit(benchmark::kMillisecond);
}

}  // namespace moe::bench
