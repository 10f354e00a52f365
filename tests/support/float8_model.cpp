#include "support/float8_model.h"

#include <cmath>
#include <random>

#include "base/float_formats.h"
#include "support/safetensors_writer.h"
#include "support/topk_call.h"

namespace moe::test {
namespace {

std::int64_t share(std::int64_t size, std::int64_t of) { return of == 0 ? 1 : (size + of - 1) / of; }

Float8Matrix random_matrix(const Float8Model& m, std::int64_t n, std::int64_t k, std::mt19937& rng) {
  Float8Matrix w;
  w.n = n, w.k = k;
  w.rows = m.form.rows == 0 ? n : m.form.rows;
  w.columns = m.form.columns == 0 ? k : m.form.columns;
  w.scale_rows = share(n, m.form.rows), w.scale_columns = share(k, m.form.columns);
  std::normal_distribution<float> normal;
  w.codes.resize(static_cast<std::size_t>(n * k));
  for (std::uint8_t& c : w.codes) c = static_cast<std::uint8_t>(f32_to_small(kE4m3, normal(rng) * 90.0f));
  for (const int odd : {0x00, 0x80, 0x01, 0x87, 0x7e, 0xfe})
    w.codes[rng() % w.codes.size()] = static_cast<std::uint8_t>(odd);
  const float size = 1.0f / (90.0f * std::sqrt(static_cast<float>(k)));
  std::uniform_real_distribution<float> spread(0.5f, 2.0f);
  const bool power = m.form.mx || m.scale_type == MOE_DTYPE_F8_E8M0FNU;
  for (std::int64_t i = 0; i < w.scale_rows * w.scale_columns; ++i) {
    const float s = spread(rng) * size * 2.0f;
    w.scales.push_back(power                            ? std::exp2(std::round(std::log2(s)))
                       : m.scale_type == MOE_DTYPE_BF16 ? bf16_to_f32(f32_to_bf16(s))
                       : m.scale_type == MOE_DTYPE_F16  ? f16_to_f32(f32_to_f16(s))
                                                        : s);
  }
  if (m.bias)
    for (std::int64_t r = 0; r < n; ++r) w.bias.push_back(normal(rng) * 0.25f);
  return w;
}

std::vector<double> multiply(const Float8Matrix& w, const std::vector<double>& x) {
  std::vector<double> y(static_cast<std::size_t>(w.n));
  for (std::int64_t r = 0; r < w.n; ++r) {
    double sum = w.bias.empty() ? 0.0 : static_cast<double>(w.bias[static_cast<std::size_t>(r)]);
    for (std::int64_t c = 0; c < w.k; ++c) sum += w.at(r, c) * x[static_cast<std::size_t>(c)];
    y[static_cast<std::size_t>(r)] = sum;
  }
  return y;
}

double activate(const std::string& name, double g, double u) {
  if (name == "relu2_no_mul") return u > 0 ? u * u : 0.0;
  return g / (1.0 + std::exp(-g)) * u;
}

void append(std::vector<std::byte>& to, const std::vector<std::byte>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

// What a projection's tensors of one kind are in a list by role.
struct Part {
  moe_dtype dtype;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;
};
std::vector<std::int64_t> role_scale_shape(const Float8Model& m, const Float8Matrix& w) {
  if (m.form.rows == 0) return {1};
  return {w.scale_rows, w.scale_columns};
}
Part part_of(const Float8Model& m, const Float8Matrix& w, const std::string& kind) {
  if (kind == "weight") return {MOE_DTYPE_F8_E4M3FN, {w.n, w.k}, bytes_of(w.codes)};
  if (kind == "scale") return {m.scale_type, role_scale_shape(m, w), scale_bytes(w.scales, m.scale_type)};
  return {MOE_DTYPE_F32, {w.n}, bytes_of(w.bias)};
}
std::vector<std::string> kinds(const Float8Model& m) {
  return m.bias ? std::vector<std::string>{"weight", "scale", "bias"} : std::vector<std::string>{"weight", "scale"};
}

}  // namespace

nlohmann::json ScaleForm::weights() const {
  nlohmann::json w = {{"num_bits", 8}, {"type", "float"}, {"strategy", strategy}};
  if (strategy == "group") w["group_size"] = columns;
  if (strategy == "block") w["block_structure"] = {rows, columns};
  return w;
}

double Float8Matrix::at(std::int64_t r, std::int64_t c) const {
  const auto scale = scales[static_cast<std::size_t>(r / rows * scale_columns + c / columns)];
  return static_cast<double>(small_to_f32(kE4m3, codes[static_cast<std::size_t>(r * k + c)])) *
         static_cast<double>(scale);
}

std::string Float8Model::config_text() const {
  nlohmann::json c = more;
  c["num_experts"] = E;
  c["top_k"] = K;
  c["hidden_dim"] = H;
  c["intermediate_size"] = I;
  c["activation"] = activation;
  c["in_dtype"] = dtype;
  c["has_bias"] = bias;
  c["quantization"] = {{"weights", form.weights()}, {"input_activations", input_activations}};
  return c.dump();
}

std::vector<double> Float8Model::reference() const {
  std::vector<double> out(static_cast<std::size_t>(T * H), 0.0);
  for (std::int64_t t = 0; t < T; ++t) {
    const std::vector<double> row(x.begin() + t * H, x.begin() + (t + 1) * H);
    for (std::int64_t j = 0; j < K; ++j) {
      const auto e = static_cast<std::size_t>(ids[static_cast<std::size_t>(t * K + j)]);
      const std::vector<double> u = multiply(up[e], row), g = gated() ? multiply(gate[e], row) : u;
      std::vector<double> middle(u.size());
      for (std::size_t i = 0; i < u.size(); ++i) middle[i] = activate(activation, g[i], u[i]);
      const std::vector<double> y = multiply(down[e], middle);
      for (std::int64_t h = 0; h < H; ++h)
        out[static_cast<std::size_t>(t * H + h)] +=
            static_cast<double>(weights[static_cast<std::size_t>(t * K + j)]) * y[static_cast<std::size_t>(h)];
    }
  }
  return out;
}

Float8Model random_float8(Float8Model m, std::uint32_t seed) {
  std::mt19937 rng(seed);
  for (std::int64_t e = 0; e < m.E; ++e) {
    if (m.gated()) m.gate.push_back(random_matrix(m, m.I, m.H, rng));
    m.up.push_back(random_matrix(m, m.I, m.H, rng));
    m.down.push_back(random_matrix(m, m.H, m.I, rng));
  }
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<std::size_t>(m.T * m.H));
  for (float& v : x) v = normal(rng);
  m.x = floats_of(in_dtype(x, m.io_type()), m.io_type());
  for (std::int64_t t = 0; t < m.T; ++t)
    for (std::int64_t j = 0; j < m.K; ++j) {
      m.ids.push_back(static_cast<std::int32_t>((t + j) % m.E));
      m.weights.push_back(0.25f + 0.5f / static_cast<float>(1 + j));
    }
  return m;
}

std::vector<std::byte> scale_bytes(const std::vector<float>& scales, moe_dtype type) {
  if (type == MOE_DTYPE_F32) return bytes_of(scales);
  if (type == MOE_DTYPE_BF16 || type == MOE_DTYPE_F16) return in_dtype(scales, type);
  std::vector<std::uint8_t> codes;
  for (const float s : scales) codes.push_back(static_cast<std::uint8_t>(f32_to_e8m0(s)));
  return bytes_of(codes);
}

std::vector<OwnedTensor> expert_roles(const Float8Model& m) {
  std::vector<OwnedTensor> all;
  for (std::int64_t e = 0; e < m.E; ++e) {
    const auto i = static_cast<std::size_t>(e);
    for (const std::string& kind : kinds(m)) {
      const auto add = [&](const std::string& role, const std::string& shard, const Float8Matrix& w) {
        Part p = part_of(m, w, kind);
        all.push_back({role + kind, e, shard, p.dtype, p.shape, std::move(p.bytes)});
      };
      if (m.gated()) add("w13_", "w1", m.gate[i]);
      add("w13_", m.gated() ? "w3" : "w13", m.up[i]);
      add("w2_", "w2", m.down[i]);
    }
  }
  return all;
}

std::vector<OwnedTensor> stacked_roles(const Float8Model& m) {
  std::vector<OwnedTensor> all;
  for (const std::string& kind : kinds(m))
    for (const bool w13 : {true, false}) {
      OwnedTensor t{(w13 ? "w13_" : "w2_") + kind, -1, "", MOE_DTYPE_F32, {}, {}};
      for (std::size_t e = 0; e < static_cast<std::size_t>(m.E); ++e) {
        Part p = part_of(m, w13 ? m.up[e] : m.down[e], kind);
        if (w13 && m.gated()) {
          append(t.bytes, part_of(m, m.gate[e], kind).bytes);
          p.shape[0] *= 2;
        }
        append(t.bytes, p.bytes);
        t.dtype = p.dtype;
        t.shape = {m.E};
        const bool one = kind == "scale" && m.form.rows == 0 && p.shape[0] == 1;  // [E] for [E, 1]
        if (!one) t.shape.insert(t.shape.end(), p.shape.begin(), p.shape.end());
      }
      all.push_back(std::move(t));
    }
  return all;
}

std::vector<std::int64_t> scale_as_it_is(const Float8Matrix& m) {
  if (m.rows == m.n && m.columns == m.k) return {1};
  return {m.scale_rows, m.scale_columns};
}

std::vector<OwnedTensor> named_tensors(const Float8Model& m, const std::string& module, const std::string& scale,
                                       ScaleShape shape) {
  std::vector<OwnedTensor> all;
  for (std::size_t e = 0; e < static_cast<std::size_t>(m.E); ++e) {
    const auto add = [&](const char* projection, const Float8Matrix& w) {
      const std::string at = module + "." + std::to_string(e) + "." + projection + ".";
      all.push_back({at + "weight", -1, "", MOE_DTYPE_F8_E4M3FN, {w.n, w.k}, bytes_of(w.codes)});
      all.push_back({at + scale, -1, "", m.scale_type, shape(w), scale_bytes(w.scales, m.scale_type)});
      if (m.bias) all.push_back({at + "bias", -1, "", MOE_DTYPE_F32, {w.n}, bytes_of(w.bias)});
    };
    if (m.gated()) add("gate_proj", m.gate[e]);
    add("up_proj", m.up[e]);
    add("down_proj", m.down[e]);
  }
  return all;
}

std::string safetensors_of(const std::vector<OwnedTensor>& tensors) {
  SafetensorsWriter file;
  for (const OwnedTensor& t : tensors) {
    const char* type = t.dtype == MOE_DTYPE_F8_E4M3FN    ? "F8_E4M3"
                       : t.dtype == MOE_DTYPE_F8_E8M0FNU ? "F8_E8M0"
                       : t.dtype == MOE_DTYPE_U8         ? "U8"
                       : t.dtype == MOE_DTYPE_I8         ? "I8"
                       : t.dtype == MOE_DTYPE_BF16       ? "BF16"
                       : t.dtype == MOE_DTYPE_F16        ? "F16"
                       : t.dtype == MOE_DTYPE_F4_E2M1FN  ? "F4"
                                                         : "F32";
    file.add(t.name, type, t.shape, t.bytes.data(), t.bytes.size());
  }
  return file.bytes();
}

Failure set_roles(moe_weights* weights, const std::vector<OwnedTensor>& tensors) {
  for (const OwnedTensor& t : tensors) {
    const moe_tensor view = t.view();
    Failure f = failure([&](moe_error** e) {
      if (t.expert < 0) return moe_weights_set(weights, t.name.c_str(), &view, nullptr, nullptr, e);
      return moe_weights_set_expert(weights, t.name.c_str(), t.expert, t.shard.c_str(), &view, nullptr, nullptr, e);
    });
    if (f.status != MOE_OK) return f;
  }
  return {};
}

Float8Layer::Float8Layer(const std::string& config_text, const std::vector<OwnedTensor>& roles, int threads,
                         const moe_platform* platform) {
  context = make_context("{\"threads\":" + std::to_string(threads) + "}");
  config = make_config(config_text);
  if (!config) return;
  selection = make_selection(config.get(), context.get(), platform);
  if (!selection) return;
  const WeightsPtr weights =
      make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(config.get(), o, e); });
  const Failure set = set_roles(weights.get(), roles);
  EXPECT_EQ(set.status, MOE_OK) << set.message;
  packed = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
    return moe_convert_weights(context.get(), selection.get(), weights.get(), nullptr, o, e);
  });
  if (!packed) return;
  layer = make<LayerPtr>([&](moe_layer** o, moe_error** e) {
    return moe_layer_create(context.get(), selection.get(), packed.get(), nullptr, o, e);
  });
}

std::vector<std::byte> Float8Layer::run(const Float8Model& m, std::int64_t first, std::int64_t count) const {
  const std::vector<std::byte> x = in_dtype(m.x, m.io_type());
  const std::size_t row = x.size() / static_cast<std::size_t>(m.T);
  return apply_topk(layer.get(), {.dtype = m.io_type(),
                                  .count = count,
                                  .H = m.H,
                                  .K = m.K,
                                  .x = x.data() + row * static_cast<std::size_t>(first),
                                  .ids = m.ids.data() + first * m.K,
                                  .weights = m.weights.data() + first * m.K});
}

Failure conversion_failure(const std::string& config_text, const std::vector<OwnedTensor>& roles) {
  const ConfigPtr config = make_config(config_text);
  const SelectionPtr selection = make_selection(config.get());
  const WeightsPtr weights =
      make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(config.get(), o, e); });
  const Failure set = set_roles(weights.get(), roles);
  EXPECT_EQ(set.status, MOE_OK) << set.message;
  return failure([&](moe_error** e) {
    moe_packed* packed = nullptr;
    const moe_status s = moe_convert_weights(nullptr, selection.get(), weights.get(), nullptr, &packed, e);
    moe_packed_destroy(packed);
    return s;
  });
}

}  // namespace moe::test
