// Unquantized layers through the ABI: the golden activations (describe.md 9), the golden layers of
// vectors/float/unquantized, equal bits on every ISA, thread count and batch.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "support/capi.h"
#include "support/rooms.h"
#include "support/safetensors_writer.h"
#include "support/topk_call.h"

namespace moe::test::unquantized_test {
namespace {

// A layer with float weights and a batch.
struct FloatModel {
  nlohmann::json config;
  std::int64_t E = 1, H = 0, I = 0, K = 1, T = 0, w13_rows = 0;
  moe_dtype dtype = MOE_DTYPE_F32, stored = MOE_DTYPE_F32;
  std::vector<std::byte> w13, w2, b13, b2, x;
  std::vector<std::int32_t> ids;
  std::vector<float> weights;

  std::string config_text() const {
    nlohmann::json c = config;
    c["num_experts"] = E;
    c["top_k"] = K;
    c["hidden_dim"] = H;
    c["intermediate_size"] = I;
    c["has_bias"] = !b13.empty();
    c["in_dtype"] = dtype == MOE_DTYPE_F32 ? "float32" : dtype == MOE_DTYPE_BF16 ? "bfloat16" : "float16";
    return c.dump();
  }
};

struct FloatLayer {
  ContextPtr context;
  LayerPtr layer;
  std::string kernel;

  FloatLayer(const FloatModel& m, const char* threads, const moe_platform* platform = nullptr) {
    context = make_context(threads);
    const ConfigPtr config = make_config(m.config_text());
    const SelectionPtr selection = make_selection(config.get(), context.get(), platform);
    if (!selection) return;
    kernel = moe_selection_kernel(selection.get());
    const WeightsPtr w =
        make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(config.get(), o, e); });
    std::vector<StackedTensor> tensors = {{"w13_weight", tensor(m.stored, {m.E, m.w13_rows, m.H}, m.w13.data())},
                                          {"w2_weight", tensor(m.stored, {m.E, m.H, m.I}, m.w2.data())}};
    if (!m.b13.empty()) {
      tensors.push_back({"w13_bias", tensor(m.stored, {m.E, m.w13_rows}, m.b13.data())});
      tensors.push_back({"w2_bias", tensor(m.stored, {m.E, m.H}, m.b2.data())});
    }
    for (const StackedTensor& t : tensors) {
      const Failure f =
          failure([&](moe_error** e) { return moe_weights_set(w.get(), t.role, &t.tensor, nullptr, nullptr, e); });
      EXPECT_EQ(f.status, MOE_OK) << f.message;
    }
    const PackedPtr packed = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
      return moe_convert_weights(context.get(), selection.get(), w.get(), nullptr, o, e);
    });
    layer = make<LayerPtr>([&](moe_layer** o, moe_error** e) {
      return moe_layer_create(context.get(), selection.get(), packed.get(), nullptr, o, e);
    });
  }

  // Tokens [first, first + count).
  std::vector<std::byte> run(const FloatModel& m, std::int64_t first, std::int64_t count) const {
    const std::size_t row = static_cast<std::size_t>(m.H) * (m.dtype == MOE_DTYPE_F32 ? 4 : 2);
    return apply_topk(layer.get(), {.dtype = m.dtype,
                                    .count = count,
                                    .H = m.H,
                                    .K = m.K,
                                    .x = m.x.data() + row * static_cast<std::size_t>(first),
                                    .ids = m.ids.data() + first * m.K,
                                    .weights = m.weights.data() + first * m.K});
  }
  std::vector<std::byte> run(const FloatModel& m) const { return run(m, 0, m.T); }
};

// Identity matrices around one activation: out[:, :d] is its value (describe.md 9).
FloatModel activation_model(const nlohmann::json& c, const VecFile& f) {
  FloatModel m;
  const bool gated = c.at("gated");
  const std::int64_t d = f.at("y").shape[1];
  m.config = {{"activation", c.at("activation")}, {"activation_params", c.at("params")}};
  m.T = f.at("x").shape[0];
  m.H = m.w13_rows = gated ? 2 * d : d;
  m.I = d;
  std::vector<float> w13(static_cast<std::size_t>(m.H * m.H), 0.0f), w2(static_cast<std::size_t>(m.H * d), 0.0f);
  for (std::int64_t i = 0; i < m.H; ++i) w13[static_cast<std::size_t>(i * m.H + i)] = 1.0f;
  for (std::int64_t i = 0; i < d; ++i) w2[static_cast<std::size_t>(i * d + i)] = 1.0f;
  m.w13 = bytes_of(w13);
  m.w2 = bytes_of(w2);
  m.x = f.at("x").data;
  m.ids.assign(static_cast<std::size_t>(m.T), 0);
  m.weights.assign(static_cast<std::size_t>(m.T), 1.0f);
  return m;
}

TEST(Unquantized, GoldenActivations) {
  int cases = 0;
  const auto index = load_json("activation/index.json");
  for (const auto& c : index.at("cases")) {
    SCOPED_TRACE(c.dump());
    const VecFile f = load_vectors("activation/" + c.at("file").get<std::string>());
    const FloatModel m = activation_model(c, f);
    const FloatLayer layer(m, "{\"threads\":2}");
    ASSERT_TRUE(layer.layer);
    const std::vector<float> got = floats_of(layer.run(m), MOE_DTYPE_F32), want = f.at("y").floats();
    for (std::int64_t t = 0; t < m.T; ++t)
      for (std::int64_t i = 0; i < m.I; ++i) {
        const float y = want[static_cast<std::size_t>(t * m.I + i)], o = got[static_cast<std::size_t>(t * m.H + i)];
        ASSERT_LE(std::fabs(o - y), 1e-6f + 4e-6f * std::fabs(y)) << t << "," << i;
      }
    ++cases;
  }
  EXPECT_EQ(cases, 15);
}

// "bf16_silu", "fp16_silu", "bf16_swigluoai_bias", "bf16_silu_weight_on_input_top1"
FloatModel golden_layer(const VecFile& f, std::string name) {
  FloatModel m;
  const auto has = [&](const std::string& suffix) {
    const bool ends =
        name.size() > suffix.size() && name.compare(name.size() - suffix.size(), suffix.size(), suffix) == 0;
    if (ends) name.resize(name.size() - suffix.size());
    return ends;
  };
  const bool top1 = has("_weight_on_input_top1"), bias = has("_bias");
  const std::string type = name.substr(0, name.find('_'));
  const std::string activation = name.substr(name.find('_') + 1);
  const bool gated = activation.find("_no_mul") == std::string::npos;
  m.config = {{"activation", activation}, {"apply_router_weight_on_input", top1}};
  m.dtype = type == "bf16" ? MOE_DTYPE_BF16 : type == "fp16" ? MOE_DTYPE_F16 : MOE_DTYPE_F32;
  m.stored = MOE_DTYPE_BF16;
  m.E = f.at("w13").shape[0];
  m.H = f.at("w13").shape[2];
  m.I = f.at("w2").shape[2];
  m.T = f.at("x").shape[0];
  const std::int64_t all_rows = f.at("w13").shape[1], k = f.at("topk_ids").shape[1];
  m.K = top1 ? 1 : k;
  m.w13_rows = gated ? all_rows : m.I;  // the ungated cases use the first I rows
  for (std::int64_t e = 0; e < m.E; ++e) {
    const auto& w = f.at("w13").data;
    const auto begin = w.begin() + e * all_rows * m.H * 2;
    m.w13.insert(m.w13.end(), begin, begin + m.w13_rows * m.H * 2);
  }
  m.w2 = f.at("w2").data;
  if (bias) {
    m.b13 = f.at("b13").data;
    m.b2 = f.at("b2").data;
  }
  m.x = in_dtype(f.at("x").floats(), m.dtype);
  const auto ids = f.at("topk_ids").as<std::int32_t>();
  const auto weights = f.at("topk_weights").floats();
  for (std::int64_t t = 0; t < m.T; ++t)
    for (std::int64_t j = 0; j < m.K; ++j) {
      m.ids.push_back(ids[static_cast<std::size_t>(t * k + j)]);
      m.weights.push_back(weights[static_cast<std::size_t>(t * k + j)]);
    }
  return m;
}

TEST(Unquantized, GoldenLayersOnEveryIsa) {
  const VecFile f = load_vectors("float/unquantized.safetensors");
  std::vector<PlatformPtr> platforms;
  for (const char* isa : {"scalar", "avx2", "avx512vnni"}) {
    ASSERT_EQ(setenv("MOE_MAX_ISA", isa, 1), 0);
    const Failure why = failure([&](moe_error** e) {
      moe_platform* p = nullptr;
      const moe_status s = moe_platform_create(nullptr, 0, &p, e);
      if (s == MOE_OK) platforms.emplace_back(p);
      return s;
    });
    ASSERT_TRUE(why.status == MOE_OK || std::string(isa) != "scalar") << why.message;  // words of this architecture
  }
  unsetenv("MOE_MAX_ISA");
  int cases = 0;
  for (const auto& [name, expected] : f.tensors) {
    if (name.rfind("y_", 0) != 0) continue;
    SCOPED_TRACE(name);
    const FloatModel m = golden_layer(f, name.substr(2));
    const double bound = m.dtype == MOE_DTYPE_BF16 ? 8e-3 : m.dtype == MOE_DTYPE_F16 ? 1e-3 : 1e-5;
    std::vector<std::byte> first;
    for (const PlatformPtr& p : platforms) {
      const FloatLayer layer(m, "{\"threads\":2}", p.get());
      ASSERT_TRUE(layer.layer);
      const std::vector<std::byte> out = layer.run(m);
      if (first.empty()) first = out;
      EXPECT_EQ(out, first) << layer.kernel;
      const std::vector<float> got = floats_of(out, m.dtype), want = expected.floats();
      double error = 0, size = 0;
      for (std::size_t i = 0; i < want.size(); ++i) {
        const double d = static_cast<double>(got[i]) - static_cast<double>(want[i]);
        error += d * d;
        size += static_cast<double>(want[i]) * static_cast<double>(want[i]);
      }
      EXPECT_LE(std::sqrt(error / size), bound) << layer.kernel;
      for (std::int64_t t = 0; t < m.T; ++t) {  // alone as in the batch
        const auto row = static_cast<std::ptrdiff_t>(out.size()) / m.T;
        EXPECT_EQ(layer.run(m, t, 1), std::vector<std::byte>(out.begin() + t * row, out.begin() + (t + 1) * row));
      }
    }
    ++cases;
  }
  EXPECT_EQ(cases, 13);
}

// A Mixtral file without quantization_config: config.json and per-expert tensors give what stacked tensors give.
TEST(Unquantized, CheckpointFiles) {
  const VecFile f = load_vectors("float/unquantized.safetensors");
  const FloatModel m = golden_layer(f, "bf16_silu");
  const std::int64_t matrix = m.I * m.H * 2;  // bytes of one projection
  SafetensorsWriter file;
  for (std::int64_t e = 0; e < m.E; ++e) {
    const std::string at = "model.layers.0.block_sparse_moe.experts." + std::to_string(e) + ".";
    const std::byte *w13 = m.w13.data() + e * 2 * matrix, *w2 = m.w2.data() + e * matrix;
    file.add(at + "w1.weight", "BF16", {m.I, m.H}, w13, static_cast<std::size_t>(matrix));
    file.add(at + "w3.weight", "BF16", {m.I, m.H}, w13 + matrix, static_cast<std::size_t>(matrix));
    file.add(at + "w2.weight", "BF16", {m.H, m.I}, w2, static_cast<std::size_t>(matrix));
  }
  const TempDir dir;
  dir.write("model.safetensors", file.bytes());
  const std::string hf = nlohmann::json{
      {"architectures", {"MixtralForCausalLM"}},
      {"model_type", "mixtral"},
      {"num_local_experts", m.E},
      {"num_experts_per_tok", m.K},
      {"hidden_size", m.H},
      {"intermediate_size", m.I},
      {"hidden_act", "silu"},
      {"num_hidden_layers", 1},
      {"torch_dtype",
       "bfloat16"}}.dump();
  const ConfigPtr config = make<ConfigPtr>(
      [&](moe_config** o, moe_error** e) { return moe_config_create_from_hf(hf.data(), hf.size(), nullptr, 0, o, e); });
  const SelectionPtr selection = make_selection(config.get());
  ASSERT_TRUE(selection);
  EXPECT_STREQ(moe_selection_backend(selection.get()), "CPU");
  const WeightsPtr weights =
      make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(config.get(), o, e); });
  const Failure loaded = failure(
      [&](moe_error** e) { return moe_weights_load_safetensors(weights.get(), dir.path().c_str(), nullptr, e); });
  ASSERT_EQ(loaded.status, MOE_OK) << loaded.message;
  const PackedPtr packed = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
    return moe_convert_weights(nullptr, selection.get(), weights.get(), nullptr, o, e);
  });
  // through a file, so that the layouts of float elements are saved and loaded, too
  const std::string saved = dir.file("layer.moe");
  ASSERT_EQ(failure([&](moe_error** e) { return moe_packed_save(packed.get(), saved.c_str(), 0, nullptr, e); }).status,
            MOE_OK);
  const PackedPtr again = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
    return moe_packed_load(nullptr, saved.c_str(), MOE_LOAD_VERIFY, nullptr, o, e);
  });
  FloatLayer files(m, "{\"threads\":1}");
  const std::vector<std::byte> want = files.run(m);
  files.layer = make<LayerPtr>([&](moe_layer** o, moe_error** e) {
    return moe_layer_create(nullptr, selection.get(), again.get(), nullptr, o, e);
  });
  EXPECT_EQ(files.run(m), want);
}

}  // namespace
}  // namespace moe::test::unquantized_test
