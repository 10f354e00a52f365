// WNA16 layers of random numbers in every checkpoint format, their tensors and files, and a plain float64 layer.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <random>

#include "support/capi.h"
#include "support/rooms.h"
#include "support/safetensors_writer.h"
#include "support/topk_call.h"

namespace moe::test {

using Words = std::vector<std::uint32_t>;

// Stored codes, zero points and groups, [N, K], [N, G], [K] of each expert.
struct Matrix13or2 {
  std::int64_t n = 0, k = 0, groups = 0;
  std::vector<std::uint8_t> codes, zeros;
  std::vector<float> scales, bias;
  std::vector<std::int32_t> g_idx;
};

struct Wna16Model {
  std::string format = "gptq";
  int bits = 4;
  std::int64_t E = 3, H = 128, I = 64, K = 2, T = 6, group = 32;
  bool zeros = false, order = false, bias = false, transposed = false, plus_one = false;
  bool signed_scales = true;  // half of them negative
  bool plain_g_idx = false;   // a g_idx without activation order, as GPTQ files have one
  moe_dtype dtype = MOE_DTYPE_F32;
  nlohmann::json extra = nlohmann::json::object();
  std::vector<Matrix13or2> w13 = {}, w2 = {};
  std::vector<float> x = {}, weights = {};
  std::vector<std::int32_t> ids = {};

  bool awq() const { return format == "awq"; }
  bool packed() const { return format == "pack-quantized"; }
  int pf() const { return 32 / bits; }
  std::string config_text() const;
  double weight(const Matrix13or2& m, std::int64_t n, std::int64_t c) const {
    const auto at = static_cast<std::size_t>(n * m.groups + m.g_idx[static_cast<std::size_t>(c)]);
    const int zero = zeros ? m.zeros[at] + (plus_one ? 1 : 0) : 1 << (bits - 1);
    return (m.codes[static_cast<std::size_t>(n * m.k + c)] - zero) * static_cast<double>(m.scales[at]);
  }
};

Wna16Model random_wna16(Wna16Model m, std::uint32_t seed);

// With rows of their own for these weights.
constexpr std::initializer_list<const char*> kWna16Isas = {"scalar", "avx2", "avxvnni", "avx512vnni", "amxint8"};

// In float64, but for the values between the two matrices, which have the type of the layer.
std::vector<double> plain_layer(const Wna16Model& m);
// Relative rms distance of a layer with 16-bit or float32 activations from it: little more than the rounding of the
// output to the layer's type.
double bound_of(const Wna16Model& m);

// --- tensors of a format ---------------------------------------------------------------------------------------------

struct Wna16Part {
  std::string suffix;  // of the checkpoint
  const char* role;    // behind "w13_"
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;
};

void put_field(Words& words, std::int64_t at, unsigned shift, std::uint8_t v);

// Rows [first, first + n) of a matrix as a checkpoint of the format has them.
std::vector<Wna16Part> parts_of(const Wna16Model& m, const Matrix13or2& w, std::int64_t first, std::int64_t n);

// [r][c] -> [c][r] of 4-byte elements.
void transpose(Wna16Part& p);

struct StackedAs {
  bool vllm = false;  // roles by the names that vLLM's layers give them
  // Where the bytes of a role lie instead of in memory that the set owns; nullptr: there.
  std::function<std::byte*(const std::string& role, const std::vector<std::byte>& bytes)> place = {};
};
WeightsPtr stacked_weights(const Wna16Model& m, const moe_config* config, const StackedAs& as = {});

std::string checkpoint_file(const Wna16Model& m,
                            const std::array<const char*, 3>& names = {"gate_proj", "up_proj", "down_proj"},
                            const std::string& module = "model.layers.0.mlp.experts");

struct Wna16Layer {
  ContextPtr context;
  ConfigPtr config;
  SelectionPtr selection;
  WeightsPtr weights;
  PackedPtr packed;
  LayerPtr layer;
  std::string kernel;

  Wna16Layer() : context(make_context("{\"threads\":1}")) {}
  explicit Wna16Layer(const Wna16Model& m, const char* threads = "{\"threads\":1}",
                      const moe_platform* platform = nullptr);
  void convert();
  void load(const std::string& folder);  // the checkpoint's files, converted
  void create();
  // Tokens [first, first + count).
  std::vector<std::byte> run(const Wna16Model& m, std::int64_t first, std::int64_t count) const;
};

// A checkpoint's files and a packed file give the layer again.
void expect_same_from_files(Wna16Layer& layer, const Wna16Model& m);

}  // namespace moe::test
