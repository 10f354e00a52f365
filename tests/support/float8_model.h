// A layer of 8-bit floats as a checkpoint has it, in every form of its scales, and its output in float64.
#pragma once

#include <string>
#include <vector>

#include "support/capi.h"
#include "support/rooms.h"

namespace moe::test {

// How a projection's scales lie. rows, columns: what shares one; 0: all of them.
struct ScaleForm {
  std::string strategy;  // of compressed-tensors
  std::int64_t rows = 1, columns = 0;
  bool mx = false;  // a power of two, in a byte

  nlohmann::json weights() const;  // QuantizationArgs
};
inline const ScaleForm kOneScale = {"tensor", 0, 0}, kRowScales = {"channel", 1, 0}, kGroupScales = {"group", 1, 64},
                       kBlocks128 = {"block", 128, 128}, kMxScales = {"group", 1, 32, true};

// One projection of one expert.
struct Float8Matrix {
  std::int64_t n = 0, k = 0, scale_rows = 0, scale_columns = 0;
  std::int64_t rows = 1, columns = 1;  // that share a scale
  std::vector<std::uint8_t> codes;     // [n, k]
  std::vector<float> scales;           // [scale_rows, scale_columns]
  std::vector<float> bias;             // [n], or empty

  double at(std::int64_t r, std::int64_t c) const;
};

struct Float8Model {
  ScaleForm form = kRowScales;
  std::int64_t E = 3, H = 256, I = 128, K = 2, T = 5;
  std::string activation = "silu", dtype = "bfloat16";
  bool bias = false;
  moe_dtype scale_type = MOE_DTYPE_F32;  // of the tensors; mx: U8 or F8_E8M0FNU
  nlohmann::json input_activations = nullptr, more = nlohmann::json::object();

  std::vector<Float8Matrix> gate = {}, up = {}, down = {};  // by expert; ungated: no gate
  std::vector<float> x = {};                                // [T, H], numbers of dtype
  std::vector<std::int32_t> ids = {};
  std::vector<float> weights = {};

  bool gated() const { return activation.find("_no_mul") == std::string::npos; }
  std::string config_text() const;
  std::vector<double> reference() const;  // [T, H]
  moe_dtype io_type() const { return moe_dtype_from_name(dtype.c_str()); }
};
// Fills it; equal for equal seeds.
Float8Model random_float8(Float8Model m, std::uint32_t seed = 1);

// Scales as a tensor of this type; they are numbers of it.
std::vector<std::byte> scale_bytes(const std::vector<float>& scales, moe_dtype type);

// A tensor with the bytes that it views.
struct OwnedTensor {
  std::string name;  // role, or checkpoint name
  std::int64_t expert = -1;
  std::string shard;  // of per-expert roles
  moe_dtype dtype = MOE_DTYPE_F32;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;

  moe_tensor view() const { return tensor(dtype, shape, bytes.data()); }
};
// By role: stacked with gate above up, or per expert and shard.
std::vector<OwnedTensor> stacked_roles(const Float8Model& m);
std::vector<OwnedTensor> expert_roles(const Float8Model& m);
// By name under `module`; scales called `scale` and with the extents that `shape` makes of theirs.
using ScaleShape = std::vector<std::int64_t> (*)(const Float8Matrix& m);
std::vector<std::int64_t> scale_as_it_is(const Float8Matrix& m);
std::vector<OwnedTensor> named_tensors(const Float8Model& m, const std::string& module,
                                       const std::string& scale = "weight_scale", ScaleShape shape = scale_as_it_is);
std::string safetensors_of(const std::vector<OwnedTensor>& tensors);
// Sets all of them; the first that fails ends it.
Failure set_roles(moe_weights* weights, const std::vector<OwnedTensor>& tensors);

// A layer from one of these lists.
struct Float8Layer {
  ContextPtr context;
  ConfigPtr config;
  SelectionPtr selection;
  PackedPtr packed;
  LayerPtr layer;

  Float8Layer(const std::string& config_text, const std::vector<OwnedTensor>& roles, int threads = 1,
              const moe_platform* platform = nullptr);
  std::vector<std::byte> run(const Float8Model& m) const { return run(m, 0, m.T); }
  std::vector<std::byte> run(const Float8Model& m, std::int64_t first, std::int64_t count) const;
};
// What converting these weights says.
Failure conversion_failure(const std::string& config_text, const std::vector<OwnedTensor>& roles);

}  // namespace moe::test
