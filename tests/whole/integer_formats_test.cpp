// Integer weights beyond W4A8's own arithmetic, through the ABI: W8A8 (golden and random), block32 activations, W4A16
// and W8A16. Each format against a plain float64 layer; equal bits on every instruction set, thread count and batch;
// numbers back out of the packed weights; files.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <random>

#include "support/capi.h"
#include "support/rooms.h"
#include "support/safetensors_writer.h"
#include "support/share.h"
#include "support/topk_call.h"

namespace moe::test::integer_formats_test {
namespace {

struct IntModel {
  std::int64_t E = 3, H = 128, I = 64, K = 2, T = 6, group = -1;
  int bits = 8;
  bool packed = false;  // pack-quantized, else int-quantized
  bool act8 = true;     // int8 activations in the checkpoint
  bool bias = false;
  moe_dtype dtype = MOE_DTYPE_BF16;
  nlohmann::json extra = nlohmann::json::object();  // further members of the config
  std::vector<std::int8_t> w13, w2;                 // [E, 2I, H], [E, H, I]
  std::vector<float> s13, s2, b13, b2;              // [E, 2I, G], [E, H, G]
  std::vector<float> x;                             // [T, H]
  std::vector<std::int32_t> ids;
  std::vector<float> weights;

  std::int64_t groups(std::int64_t k) const { return group < 0 ? 1 : k / group; }
  std::string config_text() const {
    nlohmann::json w = {{"num_bits", bits}, {"type", "int"}, {"symmetric", true}, {"dynamic", false}};
    w["strategy"] = group < 0 ? "channel" : "group";
    if (group > 0) w["group_size"] = group;
    nlohmann::json q = {{"weights", w}, {"format", packed ? "pack-quantized" : "int-quantized"}};
    if (act8)
      q["input_activations"] = {
          {"num_bits", 8}, {"type", "int"}, {"strategy", "token"}, {"symmetric", true}, {"dynamic", true}};
    nlohmann::json c = {{"num_experts", E}, {"top_k", K}, {"hidden_dim", H}, {"intermediate_size", I}};
    c["quantization"] = q;
    c["has_bias"] = bias;
    c["in_dtype"] = dtype == MOE_DTYPE_F32 ? "float32" : dtype == MOE_DTYPE_BF16 ? "bfloat16" : "float16";
    c.update(extra);
    return c.dump();
  }
};

// One row of codes as 32-bit words, value + 2^(bits-1), the first in the lowest bits.
std::vector<std::int32_t> pack_rows(const std::vector<std::int8_t>& codes, std::int64_t k, int bits) {
  const std::int64_t each = 32 / bits, words = (k + each - 1) / each, rows = std::ssize(codes) / k;
  std::vector<std::int32_t> out(static_cast<std::size_t>(rows * words), 0);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t i = 0; i < k; ++i) {
      const auto code = static_cast<std::uint32_t>(codes[static_cast<std::size_t>(r * k + i)] + (1 << (bits - 1)));
      auto& word = out[static_cast<std::size_t>(r * words + i / each)];
      word = static_cast<std::int32_t>(static_cast<std::uint32_t>(word) | code << (bits * (i % each)));
    }
  return out;
}

IntModel random_ints(IntModel m, std::uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  const int range = 1 << m.bits;
  const auto fill = [&](auto& v, std::int64_t n, auto make) {
    v.resize(static_cast<std::size_t>(n));
    for (auto& e : v) e = make();
  };
  const auto code = [&] {
    return static_cast<std::int8_t>(static_cast<int>(rng() % static_cast<unsigned>(range)) - range / 2);
  };
  const auto scale = [&] {
    const float size = 0.5f + static_cast<float>(rng() % 100) / 100.0f;
    return (rng() % 2 == 0 ? size : -size) / static_cast<float>(range);
  };
  fill(m.w13, m.E * 2 * m.I * m.H, code);
  fill(m.w2, m.E * m.H * m.I, code);
  fill(m.s13, m.E * 2 * m.I * m.groups(m.H), scale);
  fill(m.s2, m.E * m.H * m.groups(m.I), scale);
  if (m.bias) {
    fill(m.b13, m.E * 2 * m.I, [&] { return normal(rng); });
    fill(m.b2, m.E * m.H, [&] { return normal(rng); });
  }
  fill(m.x, m.T * m.H, [&] { return normal(rng); });
  m.x = floats_of(in_dtype(m.x, m.dtype), m.dtype);
  for (std::int64_t t = 0; t < m.T; ++t)
    for (std::int64_t j = 0; j < m.K; ++j) {
      m.ids.push_back(static_cast<std::int32_t>((t * 5 + j) % m.E));
      m.weights.push_back(0.2f + static_cast<float>(rng() % 8) / 10.0f);
    }
  return m;
}

// The layer in float64: weight * scale, nothing rounded.
std::vector<double> plain_layer(const IntModel& m) {
  const auto row = [](const std::vector<std::int8_t>& w, const std::vector<float>& s, std::int64_t r, std::int64_t k,
                      std::int64_t groups, const auto& x) {
    double sum = 0;
    for (std::int64_t i = 0; i < k; ++i)
      sum += static_cast<double>(w[static_cast<std::size_t>(r * k + i)]) *
             static_cast<double>(s[static_cast<std::size_t>(r * groups + i / (k / groups))]) *
             static_cast<double>(x(i));
    return sum;
  };
  std::vector<double> out(static_cast<std::size_t>(m.T * m.H), 0.0), act(static_cast<std::size_t>(m.I));
  for (std::int64_t t = 0; t < m.T; ++t)
    for (std::int64_t j = 0; j < m.K; ++j) {
      const std::int64_t e = m.ids[static_cast<std::size_t>(t * m.K + j)];
      if (e < 0) continue;
      const auto x = [&](std::int64_t i) { return m.x[static_cast<std::size_t>(t * m.H + i)]; };
      const auto up = [&](std::int64_t r) {
        const double b = m.bias ? static_cast<double>(m.b13[static_cast<std::size_t>(e * 2 * m.I + r)]) : 0.0;
        return row(m.w13, m.s13, e * 2 * m.I + r, m.H, m.groups(m.H), x) + b;
      };
      for (std::int64_t i = 0; i < m.I; ++i) {
        const double g = up(i);
        act[static_cast<std::size_t>(i)] = g / (1 + std::exp(-g)) * up(m.I + i);
      }
      const auto a = [&](std::int64_t i) { return act[static_cast<std::size_t>(i)]; };
      for (std::int64_t h = 0; h < m.H; ++h) {
        const double b = m.bias ? static_cast<double>(m.b2[static_cast<std::size_t>(e * m.H + h)]) : 0.0;
        out[static_cast<std::size_t>(t * m.H + h)] +=
            static_cast<double>(m.weights[static_cast<std::size_t>(t * m.K + j)]) *
            (row(m.w2, m.s2, e * m.H + h, m.I, m.groups(m.I), a) + b);
      }
    }
  return out;
}

struct IntLayer {
  ContextPtr context;
  ConfigPtr config;
  SelectionPtr selection;
  PackedPtr packed;
  LayerPtr layer;
  std::string kernel;

  IntLayer(const IntModel& m, const char* threads, const moe_platform* platform = nullptr) {
    context = make_context(threads);
    config = make_config(m.config_text());
    selection = make_selection(config.get(), context.get(), platform);
    if (!selection) return;
    kernel = moe_selection_kernel(selection.get());
    const WeightsPtr w =
        make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(config.get(), o, e); });
    const auto set = [&](const char* role, const moe_tensor& t) {
      const Failure f = failure([&](moe_error** e) { return moe_weights_set(w.get(), role, &t, nullptr, nullptr, e); });
      EXPECT_EQ(f.status, MOE_OK) << f.message;
    };
    const auto p13 = pack_rows(m.w13, m.H, m.bits), p2 = pack_rows(m.w2, m.I, m.bits);
    const auto words = [&](std::int64_t k) { return (k + 32 / m.bits - 1) / (32 / m.bits); };
    set("w13_weight", m.packed ? tensor(MOE_DTYPE_I32, {m.E, 2 * m.I, words(m.H)}, p13.data())
                               : tensor(MOE_DTYPE_I8, {m.E, 2 * m.I, m.H}, m.w13.data()));
    set("w2_weight", m.packed ? tensor(MOE_DTYPE_I32, {m.E, m.H, words(m.I)}, p2.data())
                              : tensor(MOE_DTYPE_I8, {m.E, m.H, m.I}, m.w2.data()));
    set("w13_scale", tensor(MOE_DTYPE_F32, {m.E, 2 * m.I, m.groups(m.H)}, m.s13.data()));
    set("w2_scale", tensor(MOE_DTYPE_F32, {m.E, m.H, m.groups(m.I)}, m.s2.data()));
    if (m.bias) {
      set("w13_bias", tensor(MOE_DTYPE_F32, {m.E, 2 * m.I}, m.b13.data()));
      set("w2_bias", tensor(MOE_DTYPE_F32, {m.E, m.H}, m.b2.data()));
    }
    packed = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
      return moe_convert_weights(context.get(), selection.get(), w.get(), nullptr, o, e);
    });
    layer = make<LayerPtr>([&](moe_layer** o, moe_error** e) {
      return moe_layer_create(context.get(), selection.get(), packed.get(), nullptr, o, e);
    });
  }

  // Tokens [first, first + count).
  std::vector<std::byte> run(const IntModel& m, std::int64_t first, std::int64_t count) const {
    return apply_some(layer.get(), m, first, count);
  }
};

// Runs a model everywhere; returns the output of the first platform.
std::vector<std::byte> equal_everywhere(const IntModel& m, const std::string& family) {
  std::vector<std::byte> first;
  const std::vector<PlatformPtr> platforms = capped_platforms();
  EXPECT_FALSE(platforms.empty());
  for (const PlatformPtr& p : platforms) {
    const IntLayer layer(m, "{\"threads\":3}", p.get());
    if (!layer.layer) {
      ADD_FAILURE() << m.config_text();
      return first;
    }
    EXPECT_EQ(layer.kernel.rfind(family, 0), 0u) << layer.kernel;
    const std::vector<std::byte> out = layer.run(m, 0, m.T);
    if (first.empty()) first = out;
    EXPECT_EQ(out, first) << layer.kernel;
    const auto row = static_cast<std::ptrdiff_t>(out.size()) / m.T;
    for (std::int64_t t = 0; t < m.T; ++t)  // alone as in the batch
      EXPECT_EQ(layer.run(m, t, 1), std::vector<std::byte>(out.begin() + t * row, out.begin() + (t + 1) * row))
          << layer.kernel;
  }
  return first;
}

struct FormatCase {
  const char* family;
  int bits;
  bool act8;
  const char* extra;
  double bound_bf16, bound_f32;
};
// W8A8 and block32 within the bound of int8 activations; weights alone within that of the layer's type.
const FormatCase kFormats[] = {
    {"w8a8_tok8_p16", 8, true, "{}", 3e-2, 3e-2},
    {"w8a8_blk8_p16", 8, true, R"({"activation_quant":"block32"})", 2e-2, 2e-2},
    {"w4a8_blk8_p16", 4, true, R"({"activation_quant":"block32"})", 2e-2, 2e-2},
    {"w8a8_blk8_p16", 8, false, R"({"compute":"a8"})", 2e-2, 2e-2},
    {"w8a8_tok8_p16", 8, false, R"({"compute":"a8","activation_quant":"per_token"})", 3e-2, 3e-2},
    {"w4a16_", 4, false, "{}", 8e-3, 1e-5},
    {"w8a16_", 8, false, "{}", 8e-3, 1e-5},
};

TEST(IntegerFormats, AgainstAPlainLayer) {
  struct Size {
    std::int64_t hidden, intermediate, group;
  };
  const Size sizes[] = {{128, 64, -1}, {256, 128, 128}, {192, 96, 32}, {320, 192, 64}, {96, 192, 96}, {72, 56, -1}};
  std::uint32_t seed = 1;
  Turns turns;
  for (const FormatCase& c : kFormats)
    for (const Size& s : sizes) {
      if (!turns.next()) {
        ++seed;
        continue;
      }
      IntModel m;
      m.bits = c.bits;
      m.act8 = c.act8;
      m.packed = !c.act8 || seed % 2 == 0;
      m.extra = nlohmann::json::parse(c.extra);
      m.H = s.hidden, m.I = s.intermediate, m.group = s.group;
      if (!m.packed && s.group < 0) m.H -= 2, m.I -= 6;  // whole bytes may end anywhere
      m.dtype = seed % 3 == 0 ? MOE_DTYPE_F32 : MOE_DTYPE_BF16;
      m.bias = seed % 2 == 0;
      m.T = 9;
      m = random_ints(m, seed++);
      if (c.bits == 4 && c.act8)  // W4A8 keeps group scales in bf16
        for (auto* scales : {&m.s13, &m.s2})
          for (float& v : *scales) v = bf16_to_f32(f32_to_bf16(v));
      SCOPED_TRACE(m.config_text());
      const std::vector<std::byte> out = equal_everywhere(m, c.family);
      ASSERT_FALSE(out.empty());
      EXPECT_LE(relative_rms(floats_of(out, m.dtype), plain_layer(m)),
                m.dtype == MOE_DTYPE_F32 ? c.bound_f32 : c.bound_bf16);
    }
}

IntModel golden_int8(const VecFile& f) {
  IntModel m;
  m.E = f.at("w13").shape[0], m.H = f.at("w13").shape[2], m.I = f.at("w2").shape[2];
  m.T = f.at("x").shape[0], m.K = f.at("topk_ids").shape[1];
  m.w13 = f.at("w13").as<std::int8_t>();
  m.w2 = f.at("w2").as<std::int8_t>();
  m.s13 = f.at("w13_scale").floats();
  m.s2 = f.at("w2_scale").floats();
  m.x = f.at("x").floats();
  m.ids = f.at("topk_ids").as<std::int32_t>();
  m.weights = f.at("topk_weights").floats();
  return m;
}

TEST(IntegerFormats, GoldenInt8) {
  const VecFile f = load_vectors("float/int8.safetensors");
  IntModel m = golden_int8(f);
  const std::vector<float> w8a8 = floats_of(equal_everywhere(m, "w8a8_tok8_p16"), m.dtype);
  EXPECT_LE(relative_rms(w8a8, f.at("y_w8a8").floats()), 3e-2);
  EXPECT_LE(relative_rms(w8a8, f.at("y_w8a8_cpu").floats()), 1e-2);  // halves to even, as here
  m.extra = {{"activation_quant", "block32"}};
  const std::vector<float> blocks = floats_of(equal_everywhere(m, "w8a8_blk8_p16"), m.dtype);
  EXPECT_LE(relative_rms(blocks, f.at("y_w8a16").floats()), 2e-2);
  m.extra = nlohmann::json::object();
  m.act8 = false;
  m.packed = true;
  const std::vector<float> w8a16 = floats_of(equal_everywhere(m, "w8a16_"), m.dtype);
  EXPECT_LE(relative_rms(w8a16, f.at("y_w8a16").floats()), 8e-3);
}

TEST(IntegerFormats, NumbersComeBackOut) {
  for (const int bits : {4, 8})
    for (const std::int64_t group : {-1, 32}) {
      IntModel m;
      m.bits = bits;
      m.act8 = false;
      m.packed = true;
      m.group = group;
      m = random_ints(m, 7);
      const IntLayer layer(m, "{\"threads\":1}");
      ASSERT_TRUE(layer.packed);
      std::vector<float> w(static_cast<std::size_t>(2 * m.I * m.H));
      moe_tensor t = tensor(MOE_DTYPE_F32, {2 * m.I, m.H}, w.data());
      ASSERT_EQ(moe_packed_dequantize(layer.packed.get(), "w13_weight", 1, &t, nullptr), MOE_OK);
      for (std::size_t i = 0; i < w.size(); ++i) {
        const auto h = static_cast<std::size_t>(m.H), at = w.size() + i,
                   each = h / static_cast<std::size_t>(m.groups(m.H));
        ASSERT_EQ(w[i], static_cast<float>(m.w13[at]) *
                            m.s13[at / h * static_cast<std::size_t>(m.groups(m.H)) + i % h / each])
            << bits << " " << group << " " << i;
      }
    }
}

// Files of a checkpoint, and packed files: the layer that stacked tensors give.
TEST(IntegerFormats, Files) {
  for (const int form : {0, 1, 2, 3}) {
    const bool packed = form % 2 == 1, flat = form / 2 == 1;  // scales of rows as [N], as of FP8
    IntModel m;
    m.packed = packed;
    m.act8 = !packed;
    m.extra = {{"name", "model.layers.0.mlp.experts"}};
    m = random_ints(m, 11);
    SafetensorsWriter file;
    const auto add = [&](const std::string& name, const std::int8_t* codes, const float* scales, std::int64_t n,
                         std::int64_t k) {
      const std::vector<std::int8_t> rows(codes, codes + n * k);
      if (packed) {
        const auto words = pack_rows(rows, k, m.bits);
        file.add(name + ".weight_packed", "I32", {n, k / 4}, words.data(), words.size() * 4);
      } else {
        file.add(name + ".weight", "I8", {n, k}, rows.data(), rows.size());
      }
      const std::vector<std::int64_t> each = flat ? std::vector<std::int64_t>{n} : std::vector<std::int64_t>{n, 1};
      file.add(name + ".weight_scale", "F32", each, scales, static_cast<std::size_t>(n) * 4);
    };
    for (std::int64_t e = 0; e < m.E; ++e) {
      const std::string at = "model.layers.0.mlp.experts." + std::to_string(e) + ".";
      const std::int64_t half = m.I * m.H;
      add(at + "gate_proj", m.w13.data() + 2 * e * half, m.s13.data() + 2 * e * m.I, m.I, m.H);
      add(at + "up_proj", m.w13.data() + (2 * e + 1) * half, m.s13.data() + (2 * e + 1) * m.I, m.I, m.H);
      add(at + "down_proj", m.w2.data() + e * half, m.s2.data() + e * m.H, m.H, m.I);
    }
    const TempDir dir;
    dir.write("model.safetensors", file.bytes());
    IntLayer layer(m, "{\"threads\":1}");
    ASSERT_TRUE(layer.layer);
    const std::vector<std::byte> want = layer.run(m, 0, m.T);
    const WeightsPtr weights =
        make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(layer.config.get(), o, e); });
    const Failure loaded = failure(
        [&](moe_error** e) { return moe_weights_load_safetensors(weights.get(), dir.path().c_str(), nullptr, e); });
    ASSERT_EQ(loaded.status, MOE_OK) << loaded.message;
    const PackedPtr converted = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
      return moe_convert_weights(nullptr, layer.selection.get(), weights.get(), nullptr, o, e);
    });
    const std::string saved = dir.file("layer.moe");
    ASSERT_EQ(
        failure([&](moe_error** e) { return moe_packed_save(converted.get(), saved.c_str(), 0, nullptr, e); }).status,
        MOE_OK);
    const PackedPtr again = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
      return moe_packed_load(nullptr, saved.c_str(), MOE_LOAD_VERIFY, nullptr, o, e);
    });
    layer.layer = make<LayerPtr>([&](moe_layer** o, moe_error** e) {
      return moe_layer_create(nullptr, layer.selection.get(), again.get(), nullptr, o, e);
    });
    EXPECT_EQ(layer.run(m, 0, m.T), want);
  }
}

// Two tensor-parallel ranks of packed int8: their sum is the whole layer's.
TEST(IntegerFormats, TensorParallelRanks) {
  IntModel m;
  m.dtype = MOE_DTYPE_F32;
  m.packed = true;
  m.act8 = false;
  m.group = 32;
  m.extra = {{"name", "x"}};
  m = random_ints(m, 13);
  const std::vector<double> want = plain_layer(m);
  std::vector<float> sum(want.size(), 0.0f);
  for (int rank = 0; rank < 2; ++rank) {
    IntModel part = m;
    part.extra["parallel"] = {{"tp_size", 2}, {"tp_rank", rank}};
    const ConfigPtr config = make_config(part.config_text());
    const SelectionPtr selection = make_selection(config.get());
    ASSERT_TRUE(selection);
    const WeightsPtr w =
        make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(config.get(), o, e); });
    std::int32_t consumed = 0;
    const auto set = [&](const std::string& name, const moe_tensor& t) {
      const Failure f = failure([&](moe_error** e) {
        return moe_weights_set_named(w.get(), name.c_str(), &t, nullptr, nullptr, &consumed, e);
      });
      ASSERT_EQ(f.status, MOE_OK) << name << ": " << f.message;
    };
    const auto p13 = pack_rows(m.w13, m.H, 8), p2 = pack_rows(m.w2, m.I, 8);
    for (std::int64_t e = 0; e < m.E; ++e) {
      const std::string at = "x." + std::to_string(e) + ".";
      for (std::int64_t half = 0; half < 2; ++half) {
        const std::string name = at + (half == 0 ? "gate_proj" : "up_proj");
        set(name + ".weight_packed",
            tensor(MOE_DTYPE_I32, {m.I, m.H / 4}, p13.data() + (2 * e + half) * m.I * m.H / 4));
        set(name + ".weight_scale",
            tensor(MOE_DTYPE_F32, {m.I, m.H / 32}, m.s13.data() + (2 * e + half) * m.I * m.H / 32));
      }
      set(at + "down_proj.weight_packed", tensor(MOE_DTYPE_I32, {m.H, m.I / 4}, p2.data() + e * m.H * m.I / 4));
      set(at + "down_proj.weight_scale", tensor(MOE_DTYPE_F32, {m.H, m.I / 32}, m.s2.data() + e * m.H * m.I / 32));
    }
    const PackedPtr packed = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
      return moe_convert_weights(nullptr, selection.get(), w.get(), nullptr, o, e);
    });
    IntLayer layer(m, "{\"threads\":1}");
    layer.layer = make<LayerPtr>([&](moe_layer** o, moe_error** e) {
      return moe_layer_create(nullptr, selection.get(), packed.get(), nullptr, o, e);
    });
    const std::vector<float> out = floats_of(layer.run(m, 0, m.T), m.dtype);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += out[i];
  }
  EXPECT_LE(relative_rms(sum, want), 1e-5);
}

}  // namespace
}  // namespace moe::test::integer_formats_test
