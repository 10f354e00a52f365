// Tiny layers of every checkpoint format, drawn from the input: the config's text, the plain numbers and the tensors of
// the format that hold them. Scales are powers of two, so that every layout keeps the numbers exactly; those of
// integers have either sign.
#pragma once

#include <moe/moe.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/float_formats.h"
#include "fuzz/producer.h"
#include "fuzz/require.h"
#include "support/handles.h"

namespace moe::fuzz {

using test::tensor;
using Config = test::ConfigPtr;
using Platform = test::PlatformPtr;
using Selection = test::SelectionPtr;
using Weights = test::WeightsPtr;
using Packed = test::PackedPtr;
using RunLayer = test::LayerPtr;
using Context = test::ContextPtr;

// A call that may fail: an object and no error, or no object and an error that tells.
template <class Handle, class Call>
Handle made(Call call, moe_status* status = nullptr) {
  typename Handle::pointer out = nullptr;
  moe_error* error = nullptr;
  const moe_status got = call(&out, &error);
  MOE_REQUIRE((got == MOE_OK) == (out != nullptr) && (got == MOE_OK) == (error == nullptr));
  if (error != nullptr) MOE_REQUIRE(moe_error_status(error) == got && *moe_error_message(error) != 0);
  moe_error_destroy(error);
  if (status != nullptr) *status = got;
  return Handle(out);
}

inline Config make_config(const std::string& text) {
  return made<Config>([&](auto** o, auto** e) { return moe_config_create(text.data(), text.size(), o, e); });
}
inline Platform make_platform(const std::string& text) {
  return made<Platform>([&](auto** o, auto** e) { return moe_platform_create(text.data(), text.size(), o, e); });
}

inline std::size_t bytes_of(moe_dtype dtype) { return dtype == MOE_DTYPE_F32 ? 4 : 2; }

// The i-th number at p, of float32, bfloat16 or float16.
inline float number(moe_dtype dtype, const void* p, std::size_t i) {
  const std::uint8_t* at = static_cast<const std::uint8_t*>(p) + i * bytes_of(dtype);
  std::uint32_t word = 0;
  std::memcpy(&word, at, bytes_of(dtype));
  if (dtype == MOE_DTYPE_F16) {
    const int exponent = static_cast<int>(word >> 10 & 31), fraction = static_cast<int>(word & 1023);
    const float sign = (word & 0x8000) != 0 ? -1.0F : 1.0F;
    if (exponent == 31) return fraction != 0 ? NAN : sign * INFINITY;
    return sign *
           std::ldexp(static_cast<float>(exponent == 0 ? fraction : fraction + 1024), std::max(exponent, 1) - 25);
  }
  return std::bit_cast<float>(dtype == MOE_DTYPE_BF16 ? word << 16 : word);
}

enum class Fault { none, missing, dtype, shape, nan_scale, negative_scale, big_code, g_idx };

// All experts' tensor of one role.
struct StackedTensor {
  std::string role;  // without w13_ and w2_
  moe_dtype dtype;
  std::vector<std::int64_t> shape;
  std::vector<std::uint8_t> bytes;
};
struct StackedTensors {
  Fault fault;
  std::vector<StackedTensor> all;
  template <class T>
  void give(const char* role, moe_dtype dtype, std::vector<std::int64_t> shape, const std::vector<T>& data);
};

// One of w13, w2 of all experts: stored codes [E, n, k], zero points and scales [E, n, groups], group of a column [k].
struct Matrix {
  std::int64_t n = 0, k = 0, groups = 1;
  std::int64_t scale_rows = 0;  // that share scales; 0: codes are integers, else floats
  int bits = 8;                 // of floats
  float tensor_scale = 1.0F;
  std::vector<std::uint8_t> codes, zeros;
  std::vector<float> scales, bias;
  std::vector<std::int32_t> g_idx;

  std::vector<float> values(std::int64_t expert) const {
    std::array<float, 256> numbers{};  // of codes, before zero points and scales
    for (std::uint32_t c = 0; c < (scale_rows == 0 ? 256U : 1U << bits); ++c)
      numbers[c] = scale_rows == 0 ? static_cast<float>(c) : small_to_f32(bits == 4 ? kE2m1 : kE4m3, c) * tensor_scale;
    std::vector<float> all(static_cast<std::size_t>(n * k));
    const std::uint8_t* code = codes.data() + expert * n * k;
    float* out = all.data();
    for (std::int64_t row = expert * n; row < (expert + 1) * n; ++row)
      for (const std::int32_t group : g_idx) {
        const auto g = static_cast<std::size_t>(row * groups + group);
        *out++ = (numbers[*code++] - (scale_rows == 0 ? static_cast<float>(zeros[g]) : 0.0F)) * scales[g];
      }
    return all;
  }
  std::vector<float> values() const {  // of all experts
    std::vector<float> all;
    for (std::int64_t e = 0; e < std::ssize(codes) / (n * k); ++e) {
      const std::vector<float> one = values(e);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }
};

struct Form {
  const char *scheme, *format;  // scheme "": weights written out
  int bits;
  bool k_first, awq;
  std::int64_t scale_rows = 0;  // of floats: rows that share scales, -1: all of a half; 0: integers

  bool starts_with(std::string_view word) const { return std::string_view(scheme).starts_with(word); }
  bool has_powers() const { return starts_with("MX"); }  // as scales
};
constexpr std::int64_t kBlock = 32;  // rows and columns
inline constexpr std::array kForms = {
    Form{"none", "none", 4, false, false},
    Form{"W4A8", "int-quantized", 4, false, false},
    Form{"W4A8", "pack-quantized", 4, false, false},
    Form{"W8A8", "int-quantized", 8, false, false},
    Form{"", "pack-quantized", 4, false, false},
    Form{"", "pack-quantized", 8, false, false},
    Form{"", "gptq", 4, true, false},
    Form{"", "gptq", 8, true, false},
    Form{"", "awq", 4, true, true},
    Form{"FP8", "float-quantized", 8, false, false, -1},
    Form{"FP8_DYNAMIC", "float-quantized", 8, false, false, 1},
    Form{"", "naive-quantized", 8, false, false, kBlock},
    Form{"MXFP8", "mxfp8-quantized", 8, false, false, 1},
    Form{"MXFP4", "mxfp4-pack-quantized", 4, false, false, 1},
    Form{"NVFP4", "nvfp4-pack-quantized", 4, false, false, 1},
};

class TinyLayer {
 public:
  std::int64_t E, top_k, H, I, group;
  const Form* form;
  bool zeros = false, order = false, uneven = false, bias, silu;  // uneven: groups of activation order of any sizes
  moe_dtype dtype;
  std::string text;
  Matrix w13, w2;

  explicit TinyLayer(Producer& p, const std::string& more = "");

  // The text with other members.
  std::string with(const std::string& more) const { return head_ + more + tail_; }
  // nullptr when the set itself refused the faulty tensor.
  Weights weights(const moe_config* config, Fault fault = Fault::none, std::size_t where = 0) const;
  bool can_have(Fault fault) const;
  // What the format has of w13 or w2, in the order of weight, scale and the others.
  std::vector<StackedTensor> tensors(const Matrix& m, Fault fault = Fault::none) const;

 private:
  Matrix matrix(int halves, std::int64_t half_rows, std::int64_t k, Noise& noise) const;
  bool set(moe_weights* weights, const Matrix& m, const std::string& prefix, Fault fault) const;
  void give_floats(const Matrix& m, StackedTensors& out) const;
  void give_integers(const Matrix& m, StackedTensors& out) const;

  std::string head_, tail_;
};

}  // namespace moe::fuzz

#include "fuzz/tiny_layer.inl"
#include "support/rooms.h"
