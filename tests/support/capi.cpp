// The small model of the C ABI tests, what calls say, and the four steps.
#include "support/capi.h"
#include "support/rooms.h"

#include <algorithm>
#include <cstdlib>
#include <random>

namespace moe::test {

Failure failure_of(moe_status status, moe_error* err) {
  const ErrorPtr error(err);
  Failure f;
  f.status = status;
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

nlohmann::json json_in(const moe_buffer* buffer) {
  if (buffer == nullptr) return nullptr;
  return nlohmann::json::parse(static_cast<const char*>(moe_buffer_data(buffer)));
}

std::string Model::config_text() const {
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

Model random_model(Model m, std::uint32_t seed) {
  std::mt19937 rng(seed), signs(seed + 1);
  const auto uniform = [&] { return static_cast<float>(rng() >> 8) * 0x1p-24f; };
  const auto fill = [&](std::int64_t n, auto&& value) {
    std::vector<decltype(value())> v(static_cast<std::size_t>(n));
    for (auto& e : v) e = value();
    return v;
  };
  const auto code = [&] { return static_cast<std::int8_t>(static_cast<int>(rng() % 16) - 8); };
  const auto scale = [&] {
    const float size = bf16_to_f32(f32_to_bf16(0.01f + 0.02f * uniform()));
    return m.signed_scales && signs() % 2 == 0 ? -size : size;
  };
  const auto value = [&] { return uniform() - 0.5f; };
  m.w13 = fill(m.E * 2 * m.I * m.H, code);
  m.w2 = fill(m.E * m.H * m.I, code);
  m.s13 = bytes_of(fill(m.E * 2 * m.I * m.groups(m.H), scale));
  m.s2 = bytes_of(fill(m.E * m.H * m.groups(m.I), scale));
  m.b13 = bytes_of(fill(m.bias ? m.E * 2 * m.I : 0, value));
  m.b2 = bytes_of(fill(m.bias ? m.E * m.H : 0, value));
  m.x = in_dtype(fill(m.T * m.H, value), m.io_type());
  m.logits = bytes_of(fill(m.T * m.E, value));
  for (std::int64_t t = 0; t < m.T; ++t)
    for (std::int64_t j = 0; j < m.K; ++j) {
      m.ids.push_back(static_cast<std::int32_t>((t + j) % m.E));
      m.weights.push_back(0.25f + uniform());
    }
  return m;
}

Model golden_model(const VecFile& f, const std::string& compat) {
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

ConfigPtr make_config(const std::string& text) {
  return make<ConfigPtr>(
      [&](moe_config** o, moe_error** e) { return moe_config_create(text.data(), text.size(), o, e); });
}

SelectionPtr make_selection(const moe_config* config, moe_context* ctx, const moe_platform* p) {
  return make<SelectionPtr>(
      [&](moe_selection** o, moe_error** e) { return moe_select_backend(ctx, config, p, 0, o, e); });
}

std::vector<PlatformPtr> capped_platforms(std::initializer_list<const char*> isas) {
  std::vector<PlatformPtr> platforms;
  for (const char* isa : isas) {
    setenv("MOE_MAX_ISA", isa, 1);
    (void)failure([&](moe_error** e) {  // words of another architecture fail
      moe_platform* p = nullptr;
      const moe_status s = moe_platform_create(nullptr, 0, &p, e);
      if (s == MOE_OK) platforms.emplace_back(p);
      return s;
    });
  }
  unsetenv("MOE_MAX_ISA");
  return platforms;
}

ContextPtr make_context(const std::string& options) {
  return make<ContextPtr>([&](moe_context** o, moe_error** e) {
    return moe_context_create(options.data(), options.size(), nullptr, o, e);
  });
}

std::vector<StackedTensor> stacked(const Model& m) {
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

WeightsPtr make_weights(const moe_config* config, const Model& m, int* released) {
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

void finish(Steps& s, const Model& m) {
  s.weights = make_weights(s.config.get(), m);
  s.packed = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
    return moe_convert_weights(s.context.get(), s.selection.get(), s.weights.get(), nullptr, o, e);
  });
  s.layer = make<LayerPtr>([&](moe_layer** o, moe_error** e) {
    return moe_layer_create(s.context.get(), s.selection.get(), s.packed.get(), nullptr, o, e);
  });
}

Steps four_steps(const Model& m, const char* context_options) {
  Steps s;
  s.context = make_context(context_options);
  s.config = make_config(m.config_text());
  s.selection = make_selection(s.config.get(), s.context.get());
  finish(s, m);
  return s;
}

TopkCall::TopkCall(const TopkTokens& t)
    : out(static_cast<std::size_t>(t.count * t.H) * (t.dtype == MOE_DTYPE_F32 ? 4 : 2), std::byte{0xa5}),
      hidden(tensor(t.dtype, {t.count, t.H}, t.x)),
      ids(tensor(MOE_DTYPE_I32, {t.count, t.K}, t.ids)),
      weights(tensor(MOE_DTYPE_F32, {t.count, t.K}, t.weights)),
      result(tensor(t.dtype, {t.count, t.H}, out.data())) {
  args.struct_size = sizeof args;
  args.mode = MOE_APPLY_TOPK;
  args.hidden = &hidden;
  args.topk_ids = &ids;
  args.topk_weights = &weights;
  args.out = &result;
}

bool TopkCall::untouched() const {
  return std::all_of(out.begin(), out.end(), [](std::byte b) { return b == std::byte{0xa5}; });
}

Call::Call(const Model& m)
    : TopkCall({m.io_type(), m.T, m.H, m.K, m.x.data(), m.ids.data(), m.weights.data()}),
      logits(tensor(MOE_DTYPE_F32, {m.T, m.E}, m.logits.data())) {}

std::vector<std::byte> in_dtype(const std::vector<float>& values, moe_dtype d) {
  if (d == MOE_DTYPE_F32) return bytes_of(values);
  std::vector<std::uint16_t> h;
  for (const float v : values) h.push_back(d == MOE_DTYPE_BF16 ? f32_to_bf16(v) : f32_to_f16(v));
  return bytes_of(h);
}

std::vector<float> floats_of(const std::vector<std::byte>& bytes, moe_dtype d) {
  VecTensor t;
  t.dtype = static_cast<DType>(d);
  t.data = bytes;
  return t.floats();
}

}  // namespace moe::test
