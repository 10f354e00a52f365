// The four steps through moe.h for tests: owned handles, a small model with everything a layer needs.
#pragma once

#include <gtest/gtest.h>
#include <moe/moe.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/float_formats.h"
#include "support/vectors.h"

namespace moe::test {

template <auto destroy>
struct Ended {
  template <class H>
  void operator()(H* h) const {
    destroy(h);
  }
};
using ErrorPtr = std::unique_ptr<moe_error, Ended<moe_error_destroy>>;
using BufferPtr = std::unique_ptr<moe_buffer, Ended<moe_buffer_destroy>>;
using ControlPtr = std::unique_ptr<moe_control, Ended<moe_control_destroy>>;
using ContextPtr = std::unique_ptr<moe_context, Ended<moe_context_destroy>>;
using ConfigPtr = std::unique_ptr<moe_config, Ended<moe_config_destroy>>;
using PlatformPtr = std::unique_ptr<moe_platform, Ended<moe_platform_destroy>>;
using SelectionPtr = std::unique_ptr<moe_selection, Ended<moe_selection_destroy>>;
using WeightsPtr = std::unique_ptr<moe_weights, Ended<moe_weights_destroy>>;
using PackedPtr = std::unique_ptr<moe_packed, Ended<moe_packed_destroy>>;
using LayerPtr = std::unique_ptr<moe_layer, Ended<moe_layer_destroy>>;

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
template <class F>
Failure failure(F&& call) {
  moe_error* err = nullptr;
  Failure f;
  f.status = call(&err);
  const ErrorPtr error(err);
  EXPECT_EQ(err == nullptr, f.status == MOE_OK);
  EXPECT_EQ(moe_error_status(err), f.status);
  f.message = moe_error_message(err);
  f.subject = moe_error_subject(err);
  f.details = nlohmann::json::parse(moe_error_details_json(err));
  if (f.status != MOE_OK) {
    EXPECT_FALSE(f.message.empty());
    EXPECT_EQ(f.details["status"], moe_status_name(f.status));
    EXPECT_EQ(f.details["subject"], f.subject);
  }
  return f;
}

template <class F>
nlohmann::json json_of(F&& call) {
  const BufferPtr b = make<BufferPtr>(call);
  if (!b) return nullptr;
  return nlohmann::json::parse(static_cast<const char*>(moe_buffer_data(b.get())));
}

// A row-major tensor over memory of the test.
inline moe_tensor tensor(moe_dtype dtype, std::vector<std::int64_t> shape, const void* data) {
  moe_tensor t{};
  t.struct_size = sizeof t;
  t.dtype = dtype;
  t.ndim = static_cast<std::int32_t>(shape.size());
  t.data = const_cast<void*>(data);
  for (std::size_t i = 0; i < shape.size(); ++i) t.shape[i] = shape[i];
  return t;
}

// Counts how often a release function was called; `user` is the counter.
inline void count_release(void* user) { ++*static_cast<int*>(user); }

// One layer's checkpoint tensors (int-quantized) and a batch for it.
struct Model {
  std::int64_t E = 4, H = 64, I = 64, K = 2, T = 5, group = 32;
  std::string activation = "silu", dtype = "float32", compat = "libmoe";
  bool bias = false, on_input = false;
  std::vector<std::int8_t> w13, w2;
  std::vector<std::byte> s13, s2, b13, b2;
  moe_dtype s13_type = MOE_DTYPE_F32, s2_type = MOE_DTYPE_F32, bias_type = MOE_DTYPE_F32;
  std::vector<std::byte> x, logits;
  std::vector<std::int32_t> ids;
  std::vector<float> weights;

  std::int64_t groups(std::int64_t k) const { return group < 0 ? 1 : k / group; }
  moe_dtype io_type() const { return moe_dtype_from_name(dtype.c_str()); }
  std::size_t io_bytes() const { return static_cast<std::size_t>(T * H) * (dtype == "float32" ? 4 : 2); }
  std::string config_text() const {
    nlohmann::json c = {{"num_experts", E},
                        {"top_k", K},
                        {"hidden_dim", H},
                        {"intermediate_size", I},
                        {"activation", activation},
                        {"has_bias", bias},
                        {"in_dtype", dtype},
                        {"out_dtype", dtype},
                        {"router_logits_dtype", "float32"},
                        {"apply_router_weight_on_input", on_input},
                        {"bit_compat", compat},
                        {"name", "model.layers.0.mlp.experts"},
                        {"quantization", {{"scheme", "W4A8"}, {"group_size", group}}}};
    return c.dump();
  }
};

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& v) {
  std::vector<std::byte> b(v.size() * sizeof(T));
  if (!b.empty()) std::memcpy(b.data(), v.data(), b.size());
  return b;
}

// Random values, equal for equal seeds; shape members are set before.
inline Model random_model(Model m = {}, std::uint32_t seed = 1) {
  std::mt19937 rng(seed);
  const auto uniform = [&] { return static_cast<float>(rng() >> 8) * 0x1p-24f; };
  const auto fill = [&](std::int64_t n, auto&& value) {
    std::vector<decltype(value())> v(static_cast<std::size_t>(n));
    for (auto& e : v) e = value();
    return v;
  };
  const auto code = [&] { return static_cast<std::int8_t>(static_cast<int>(rng() % 16) - 8); };
  const auto scale = [&] { return bf16_to_f32(f32_to_bf16(0.01f + 0.02f * uniform())); };
  const auto value = [&] { return uniform() - 0.5f; };
  m.w13 = fill(m.E * 2 * m.I * m.H, code);
  m.w2 = fill(m.E * m.H * m.I, code);
  m.s13 = bytes_of(fill(m.E * 2 * m.I * m.groups(m.H), scale));
  m.s2 = bytes_of(fill(m.E * m.H * m.groups(m.I), scale));
  m.b13 = bytes_of(fill(m.bias ? m.E * 2 * m.I : 0, value));
  m.b2 = bytes_of(fill(m.bias ? m.E * m.H : 0, value));
  const auto x = fill(m.T * m.H, value);
  if (m.dtype == "float32") {
    m.x = bytes_of(x);
  } else {
    std::vector<std::uint16_t> h;
    for (float v : x) h.push_back(m.dtype == "bfloat16" ? f32_to_bf16(v) : f32_to_f16(v));
    m.x = bytes_of(h);
  }
  m.logits = bytes_of(fill(m.T * m.E, value));
  for (std::int64_t t = 0; t < m.T; ++t)
    for (std::int64_t j = 0; j < m.K; ++j) {
      m.ids.push_back(static_cast<std::int32_t>((t + j) % m.E));
      m.weights.push_back(0.25f + uniform());
    }
  return m;
}

// Model of a moe_* golden file. kind 0 is upstream's swiglustep without its clamps: by default its name is silu.
inline Model golden_model(const VecFile& f, const std::string& compat) {
  Model m;
  m.compat = compat;
  m.E = f.at("w13_int4").shape[0];
  m.H = f.at("w13_int4").shape[2];
  m.I = f.at("w2_int4").shape[2];
  m.T = f.at("x").shape[0];
  m.K = f.at("topk_ids").shape[1];
  m.group = std::stoll(f.meta.at("group_size"));
  m.dtype = f.meta.at("dtype");
  m.bias = f.has("w13_bias");
  m.on_input = f.meta.at("apply_router_weight_on_input") == "true";
  const std::string kind = f.meta.at("activation_kind");
  m.activation = kind == "1" ? "swigluoai_uninterleave" : kind == "0" && compat == "vllm" ? "swiglustep" : "silu";
  m.w13 = f.at("w13_int4").as<std::int8_t>();
  m.w2 = f.at("w2_int4").as<std::int8_t>();
  m.s13 = f.at("w13_scale").data;
  m.s2 = f.at("w2_scale").data;
  m.s13_type = static_cast<moe_dtype>(f.at("w13_scale").dtype);
  m.s2_type = static_cast<moe_dtype>(f.at("w2_scale").dtype);
  if (m.bias) {
    m.b13 = f.at("w13_bias").data;
    m.b2 = f.at("w2_bias").data;
    m.bias_type = static_cast<moe_dtype>(f.at("w13_bias").dtype);
  }
  m.x = f.at("x").data;
  for (const std::int64_t id : f.at("topk_ids").as<std::int64_t>()) m.ids.push_back(static_cast<std::int32_t>(id));
  m.weights = f.at("topk_weights").floats();
  m.logits.resize(static_cast<std::size_t>(m.T * m.E) * 4);
  return m;
}

inline ConfigPtr make_config(const std::string& text) {
  return make<ConfigPtr>(
      [&](moe_config** o, moe_error** e) { return moe_config_create(text.data(), text.size(), o, e); });
}
inline SelectionPtr make_selection(const moe_config* config, moe_context* ctx = nullptr,
                                   const moe_platform* p = nullptr) {
  return make<SelectionPtr>(
      [&](moe_selection** o, moe_error** e) { return moe_select_backend(ctx, config, p, 0, o, e); });
}
inline ContextPtr make_context(const std::string& options) {
  return make<ContextPtr>([&](moe_context** o, moe_error** e) {
    return moe_context_create(options.data(), options.size(), nullptr, o, e);
  });
}

struct StackedTensor {
  const char* role;
  moe_tensor tensor;
};
inline std::vector<StackedTensor> stacked(const Model& m) {
  std::vector<StackedTensor> t = {{"w13_weight", tensor(MOE_DTYPE_I8, {m.E, 2 * m.I, m.H}, m.w13.data())},
                                  {"w2_weight", tensor(MOE_DTYPE_I8, {m.E, m.H, m.I}, m.w2.data())},
                                  {"w13_scale", tensor(m.s13_type, {m.E, 2 * m.I, m.groups(m.H)}, m.s13.data())},
                                  {"w2_scale", tensor(m.s2_type, {m.E, m.H, m.groups(m.I)}, m.s2.data())}};
  if (m.bias) {
    t.push_back({"w13_bias", tensor(m.bias_type, {m.E, 2 * m.I}, m.b13.data())});
    t.push_back({"w2_bias", tensor(m.bias_type, {m.E, m.H}, m.b2.data())});
  }
  return t;
}
// `released` counts the releases of the tensors, if given.
inline WeightsPtr make_weights(const moe_config* config, const Model& m, int* released = nullptr) {
  WeightsPtr w = make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(config, o, e); });
  for (const StackedTensor& t : stacked(m)) {
    moe_error* err = nullptr;
    EXPECT_EQ(
        moe_weights_set(w.get(), t.role, &t.tensor, released == nullptr ? nullptr : count_release, released, &err),
        MOE_OK)
        << moe_error_details_json(err);
    moe_error_destroy(err);
  }
  return w;
}

// All objects of a layer.
struct Steps {
  ContextPtr context;
  ConfigPtr config;
  SelectionPtr selection;
  WeightsPtr weights;
  PackedPtr packed;
  LayerPtr layer;
};
inline Steps four_steps(const Model& m, const char* context_options = "{\"threads\":1}") {
  Steps s;
  s.context = make_context(context_options);
  s.config = make_config(m.config_text());
  s.selection = make_selection(s.config.get(), s.context.get());
  s.weights = make_weights(s.config.get(), m);
  s.packed = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
    return moe_convert_weights(s.context.get(), s.selection.get(), s.weights.get(), nullptr, o, e);
  });
  s.layer = make<LayerPtr>([&](moe_layer** o, moe_error** e) {
    return moe_layer_create(s.context.get(), s.selection.get(), s.packed.get(), nullptr, o, e);
  });
  return s;
}

// The tensors of a call over a model's batch, and an output filled with 0xA5.
struct Call {
  explicit Call(const Model& m)
      : out(m.io_bytes(), std::byte{0xa5}),
        hidden(tensor(m.io_type(), {m.T, m.H}, m.x.data())),
        logits(tensor(MOE_DTYPE_F32, {m.T, m.E}, m.logits.data())),
        ids(tensor(MOE_DTYPE_I32, {m.T, m.K}, m.ids.data())),
        weights(tensor(MOE_DTYPE_F32, {m.T, m.K}, m.weights.data())),
        result(tensor(m.io_type(), {m.T, m.H}, out.data())) {
    args.struct_size = sizeof args;
    args.mode = MOE_APPLY_TOPK;
    args.hidden = &hidden;
    args.topk_ids = &ids;
    args.topk_weights = &weights;
    args.out = &result;
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  bool untouched() const {
    for (std::byte b : out)
      if (b != std::byte{0xa5}) return false;
    return true;
  }

  std::vector<std::byte> out;
  moe_tensor hidden, logits, ids, weights, result;
  moe_apply_args args{};
};

}  // namespace moe::test
