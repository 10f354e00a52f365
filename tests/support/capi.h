// The four steps through moe.h for tests: owned handles, a small model with everything a layer needs.
#pragma once

#include <gtest/gtest.h>
#include <moe/moe.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include "base/float_formats.h"
#include "support/handles.h"
#include "support/rooms.h"
#include "support/vectors.h"

namespace moe::test {

// Runs call(&out, &err); expects success and gives the object.
template <class Ptr, class F>
Ptr make(F&& call) {
  typename Ptr::pointer out = nullptr;
  moe_error* err = nullptr;
  const moe_status s = call(&out, &err);
  const ErrorPtr error(err);
  EXPECT_EQ(s, MOE_OK) << moe_error_details_json(err);
  return Ptr(out);
}

// What a failed call says. The error object is ended here.
struct Failure {
  moe_status status = MOE_OK;
  std::string message, subject;
  nlohmann::json details;
};
Failure failure_of(moe_status status, moe_error* err);
template <class F>
Failure failure(F&& call) {
  moe_error* err = nullptr;
  const moe_status status = call(&err);
  return failure_of(status, err);
}

// The text of a buffer; null when there is none.
nlohmann::json json_in(const moe_buffer* buffer);
template <class F>
nlohmann::json json_of(F&& call) {
  return json_in(make<BufferPtr>(call).get());
}

// Counts how often a release function was called; `user` is the counter.
inline void count_release(void* user) { ++*static_cast<int*>(user); }

// One layer's checkpoint tensors (int-quantized) and a batch for it.
struct Model {
  std::int64_t E = 4, H = 64, I = 64, K = 2, T = 5, group = 32;
  std::string activation = "silu", dtype = "float32", compat = "libmoe";
  bool bias = false, on_input = false;
  bool signed_scales = true;  // half of them negative
  std::vector<std::int8_t> w13 = {}, w2 = {};
  std::vector<std::byte> s13 = {}, s2 = {}, b13 = {}, b2 = {};
  moe_dtype s13_type = MOE_DTYPE_F32, s2_type = MOE_DTYPE_F32, bias_type = MOE_DTYPE_F32;
  std::vector<std::byte> x = {}, logits = {};
  std::vector<std::int32_t> ids = {};
  std::vector<float> weights = {};

  std::int64_t groups(std::int64_t k) const { return group < 0 ? 1 : k / group; }
  moe_dtype io_type() const { return moe_dtype_from_name(dtype.c_str()); }
  std::size_t io_bytes() const { return static_cast<std::size_t>(T * H) * (dtype == "float32" ? 4 : 2); }
  std::string config_text() const;
};

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& v) {
  std::vector<std::byte> b(v.size() * sizeof(T));
  if (!b.empty()) std::memcpy(b.data(), v.data(), b.size());
  return b;
}

// Random values, equal for equal seeds; shape members are set before.
Model random_model(Model m = {}, std::uint32_t seed = 1);

// Model of a moe_* golden file. kind 0 is vLLM's swiglustep without its clamps: by default its name is silu.
Model golden_model(const VecFile& f, const std::string& compat);

ConfigPtr make_config(const std::string& text);
SelectionPtr make_selection(const moe_config* config, moe_context* ctx = nullptr, const moe_platform* p = nullptr);
// Platforms of this machine cut down to each instruction set of a list that it has.
constexpr std::initializer_list<const char*> kAllIsas = {"scalar",     "avx2",       "avxvnni",
                                                         "avx512vnni", "avx512bf16", "amxint8"};
std::vector<PlatformPtr> capped_platforms(std::initializer_list<const char*> isas = kAllIsas);
ContextPtr make_context(const std::string& options);

struct StackedTensor {
  const char* role;
  moe_tensor tensor;
};
std::vector<StackedTensor> stacked(const Model& m);
// `released` counts the releases of the tensors, if given.
WeightsPtr make_weights(const moe_config* config, const Model& m, int* released = nullptr);

// All objects of a layer.
struct Steps {
  ContextPtr context;
  ConfigPtr config;
  SelectionPtr selection;
  WeightsPtr weights;
  PackedPtr packed;
  LayerPtr layer;
};
// From the weights on.
void finish(Steps& s, const Model& m);
Steps four_steps(const Model& m, const char* context_options = "{\"threads\":1}");

// Tokens whose experts and weights are given.
struct TopkTokens {
  moe_dtype dtype;  // of x and of the result
  std::int64_t count, H, K;
  const std::byte* x;       // [count, H]
  const std::int32_t* ids;  // [count, K]
  const float* weights;     // [count, K]
};

// The tensors of a call, and an output filled with 0xA5.
struct TopkCall {
  explicit TopkCall(const TopkTokens& t);
  TopkCall(const TopkCall&) = delete;
  TopkCall& operator=(const TopkCall&) = delete;
  bool untouched() const;

  std::vector<std::byte> out;
  moe_tensor hidden, ids, weights, result;
  moe_apply_args args{};
};

// Over a model's batch.
struct Call : TopkCall {
  explicit Call(const Model& m);
  moe_tensor logits;
};

// Values in a type of activations, and back.
std::vector<std::byte> in_dtype(const std::vector<float>& values, moe_dtype d);
std::vector<float> floats_of(const std::vector<std::byte>& bytes, moe_dtype d);

template <class T>
double relative_rms(const std::vector<float>& got, const std::vector<T>& want) {
  double error = 0, size = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double d = static_cast<double>(got[i]) - static_cast<double>(want[i]);
    error += d * d;
    size += static_cast<double>(want[i]) * static_cast<double>(want[i]);
  }
  return std::sqrt(error / size);
}

}  // namespace moe::test
