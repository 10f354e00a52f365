// A layer of 4-bit floats, MXFP4 or NVFP4, as a checkpoint has it, and its output in float64. What is not of its
// weights is Float8Model's: sizes, inputs, the lists of tensors and the layer that is made of them.
#pragma once

#include <string>
#include <vector>

#include "support/float8_model.h"

namespace moe::test {

// One projection of one expert.
struct Float4Matrix {
  std::int64_t n = 0, k = 0, group = 32;
  std::vector<std::uint8_t> codes;  // [n, k]
  std::vector<float> scales;        // [n, k / group]
  float tensor_scale = 1.0f;        // of NVFP4
  std::vector<float> bias;          // [n], or empty

  double at(std::int64_t r, std::int64_t c) const;
  std::vector<std::byte> packed() const;       // [n, k / 2]
  std::vector<std::byte> scale_bytes() const;  // e8m0 or, of groups of 16, e4m3
};

struct Float4Model {
  bool nv = false;
  Float8Model layer = {};  // form, scale_type and matrices are not looked at; swigluoai: rows of w13 lie in pairs
  bool quantized_inputs = false;                            // as the files of W4A4 say
  std::string format = {};                                  // "": as the scheme says
  std::vector<Float4Matrix> gate = {}, up = {}, down = {};  // by expert; ungated: no gate

  std::int64_t group() const { return nv ? 16 : 32; }
  bool gated() const { return layer.gated(); }
  std::string config_text() const;
  std::vector<double> reference() const;  // [T, H]
};
// Fills it; equal for equal seeds.
Float4Model random_float4(Float4Model m, std::uint32_t seed = 1);

// By role. Scales of tensors as divisors where they are whole numbers of bits: those of this model are powers of two.
std::vector<OwnedTensor> stacked_roles(const Float4Model& m, bool divisors = false);
std::vector<OwnedTensor> expert_roles(const Float4Model& m, bool divisors = false);

// How a tool writes them: names of the tensors of a projection, "" for those that it does not write.
struct Float4Names {
  std::string weight, scale, factor = {}, divisor = {};
  moe_dtype codes = MOE_DTYPE_U8, scales = MOE_DTYPE_U8;  // nv: F8_E4M3FN whatever stands here
  bool scalars = false;                                   // numbers have no dimension
};
inline const Float4Names kLlmcompressorMx = {"weight_packed", "weight_scale"},
                         kDeepSeekMx = {"weight", "scale", "", "", MOE_DTYPE_I8, MOE_DTYPE_F8_E8M0FNU},
                         kLlmcompressorNv = {"weight_packed", "weight_scale", "", "weight_global_scale"},
                         kModelOptNv = {
                             .weight = "weight", .scale = "weight_scale", .factor = "weight_scale_2", .scalars = true};
std::vector<OwnedTensor> named_tensors(const Float4Model& m, const std::string& module, const Float4Names& names);
// gpt-oss: all experts in one tensor.
std::vector<OwnedTensor> gpt_oss_tensors(const Float4Model& m, const std::string& module);

}  // namespace moe::test
