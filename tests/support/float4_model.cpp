#include "support/float4_model.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "base/float_formats.h"
#include "support/topk_call.h"

namespace moe::test {
namespace {

using nlohmann::json;

Float4Matrix random_matrix(const Float4Model& m, std::int64_t n, std::int64_t k, std::mt19937& rng) {
  Float4Matrix w;
  w.n = n, w.k = k, w.group = m.group();
  std::normal_distribution<float> normal;
  w.codes.resize(static_cast<std::size_t>(n * k));
  for (std::uint8_t& c : w.codes) c = static_cast<std::uint8_t>(f32_to_small(kE2m1, normal(rng) * 2.0f));
  for (const int odd : {0x0, 0x8, 0x1, 0x9, 0x7, 0xf}) w.codes[rng() % w.codes.size()] = static_cast<std::uint8_t>(odd);
  const float size = 1.0f / std::sqrt(static_cast<float>(k));
  std::uniform_real_distribution<float> spread(0.5f, 2.0f);
  if (m.nv) w.tensor_scale = std::exp2(std::round(std::log2(size * spread(rng) / 64.0f)));
  for (std::int64_t i = 0; i < n * k / w.group; ++i) {
    const float s = spread(rng) * size / w.tensor_scale;
    w.scales.push_back(m.nv ? small_to_f32(kE4m3, static_cast<std::uint8_t>(f32_to_small(kE4m3, std::min(s, 448.0f))))
                            : std::exp2(std::round(std::log2(s))));
  }
  if (m.layer.bias)
    for (std::int64_t r = 0; r < n; ++r) w.bias.push_back(bf16_to_f32(f32_to_bf16(normal(rng) * 0.25f)));
  return w;
}

std::vector<double> multiply(const Float4Matrix& w, const std::vector<double>& x) {
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
  if (name.starts_with("swigluoai")) {
    g = std::min(g, 7.0), u = std::clamp(u, -7.0, 7.0);
    return (u + 1.0) * g / (1.0 + std::exp(-1.702 * g));
  }
  return g / (1.0 + std::exp(-g)) * u;
}

// What a projection's tensors of one kind are in a list by role.
struct Part {
  moe_dtype dtype;
  std::vector<std::int64_t> shape;  // of a number: [1]
  std::vector<std::byte> bytes;
};
Part part_of(const Float4Matrix& w, const std::string& kind) {
  if (kind == "weight") return {MOE_DTYPE_U8, {w.n, w.k / 2}, w.packed()};
  if (kind == "scale")
    return {w.group == 16 ? MOE_DTYPE_F8_E4M3FN : MOE_DTYPE_U8, {w.n, w.k / w.group}, w.scale_bytes()};
  if (kind == "scale_2") return {MOE_DTYPE_F32, {1}, bytes_of(std::vector<float>{w.tensor_scale})};
  if (kind == "global_scale") return {MOE_DTYPE_F32, {1}, bytes_of(std::vector<float>{1.0f / w.tensor_scale})};
  return {MOE_DTYPE_F32, {w.n}, bytes_of(w.bias)};
}
std::vector<std::string> kinds(const Float4Model& m, bool divisors) {
  std::vector<std::string> all = {"weight", "scale"};
  if (m.nv) all.emplace_back(divisors ? "global_scale" : "scale_2");
  if (m.layer.bias) all.emplace_back("bias");
  return all;
}

void append(std::vector<std::byte>& to, const std::byte* from, std::size_t count) {
  to.insert(to.end(), from, from + count);
}

// Gate above up, or in pairs.
Part joined(const Float4Model& m, std::size_t e, const std::string& kind) {
  if (!m.gated()) return part_of(m.up[e], kind);
  Part g = part_of(m.gate[e], kind);
  const Part u = part_of(m.up[e], kind);
  const bool pairs = m.layer.activation == "swigluoai" && g.shape[0] == m.layer.I;
  const auto rows = static_cast<std::size_t>(g.shape[0]), each = g.bytes.size() / rows;
  std::vector<std::byte> bytes;
  for (std::size_t r = 0; r < 2 * rows; ++r) {
    const Part& from = pairs ? (r % 2 == 0 ? g : u) : (r < rows ? g : u);
    append(bytes, from.bytes.data() + (pairs ? r / 2 : r % rows) * each, each);
  }
  g.shape[0] *= 2;
  g.bytes = std::move(bytes);
  return g;
}

}  // namespace

double Float4Matrix::at(std::int64_t r, std::int64_t c) const {
  const auto scale = static_cast<double>(scales[static_cast<std::size_t>(r * (k / group) + c / group)]);
  return static_cast<double>(small_to_f32(kE2m1, codes[static_cast<std::size_t>(r * k + c)])) * scale *
         static_cast<double>(tensor_scale);
}

std::vector<std::byte> Float4Matrix::packed() const {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < codes.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(codes[i] | codes[i + 1] << 4));
  return bytes;
}

std::vector<std::byte> Float4Matrix::scale_bytes() const {
  std::vector<std::byte> bytes;
  for (const float s : scales)
    bytes.push_back(static_cast<std::byte>(group == 16 ? f32_to_small(kE4m3, s) : f32_to_e8m0(s)));
  return bytes;
}

std::string Float4Model::config_text() const {
  json c = layer.more;
  c["num_experts"] = layer.E;
  c["top_k"] = layer.K;
  c["hidden_dim"] = layer.H;
  c["intermediate_size"] = layer.I;
  c["activation"] = layer.activation;
  c["in_dtype"] = layer.dtype;
  c["has_bias"] = layer.bias;
  if (!c.contains("hf_quantization_config")) {
    const std::string scheme = nv ? "NVFP4" : "MXFP4";
    c["quantization"] = {{"scheme", quantized_inputs ? scheme : scheme + "A16"}};
    if (!format.empty()) c["quantization"]["format"] = format;
  }
  return c.dump();
}

std::vector<double> Float4Model::reference() const {
  const std::int64_t H = layer.H, K = layer.K;
  std::vector<double> out(static_cast<std::size_t>(layer.T * H), 0.0);
  for (std::int64_t t = 0; t < layer.T; ++t) {
    const std::vector<double> row(layer.x.begin() + t * H, layer.x.begin() + (t + 1) * H);
    for (std::int64_t j = 0; j < K; ++j) {
      const auto e = static_cast<std::size_t>(layer.ids[static_cast<std::size_t>(t * K + j)]);
      const std::vector<double> u = multiply(up[e], row), g = gated() ? multiply(gate[e], row) : u;
      std::vector<double> middle(u.size());
      for (std::size_t i = 0; i < u.size(); ++i) middle[i] = activate(layer.activation, g[i], u[i]);
      const std::vector<double> y = multiply(down[e], middle);
      for (std::int64_t h = 0; h < H; ++h)
        out[static_cast<std::size_t>(t * H + h)] +=
            static_cast<double>(layer.weights[static_cast<std::size_t>(t * K + j)]) * y[static_cast<std::size_t>(h)];
    }
  }
  return out;
}

Float4Model random_float4(Float4Model m, std::uint32_t seed) {
  std::mt19937 rng(seed);
  Float8Model& l = m.layer;
  for (std::int64_t e = 0; e < l.E; ++e) {
    if (m.gated()) m.gate.push_back(random_matrix(m, l.I, l.H, rng));
    m.up.push_back(random_matrix(m, l.I, l.H, rng));
    m.down.push_back(random_matrix(m, l.H, l.I, rng));
  }
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<std::size_t>(l.T * l.H));
  for (float& v : x) v = normal(rng);
  l.x = floats_of(in_dtype(x, l.io_type()), l.io_type());
  for (std::int64_t t = 0; t < l.T; ++t)
    for (std::int64_t j = 0; j < l.K; ++j) {
      l.ids.push_back(static_cast<std::int32_t>((t + j) % l.E));
      l.weights.push_back(0.25f + 0.5f / static_cast<float>(1 + j));
    }
  return m;
}

std::vector<OwnedTensor> expert_roles(const Float4Model& m, bool divisors) {
  std::vector<OwnedTensor> all;
  for (std::int64_t e = 0; e < m.layer.E; ++e) {
    const auto i = static_cast<std::size_t>(e);
    for (const std::string& kind : kinds(m, divisors)) {
      const auto add = [&](const std::string& role, const std::string& shard, const Float4Matrix& w) {
        Part p = part_of(w, kind);
        all.push_back({role + kind, e, shard, p.dtype, p.shape, std::move(p.bytes)});
      };
      if (m.gated()) add("w13_", "w1", m.gate[i]);
      add("w13_", m.gated() ? "w3" : "w13", m.up[i]);
      add("w2_", "w2", m.down[i]);
    }
  }
  return all;
}

std::vector<OwnedTensor> stacked_roles(const Float4Model& m, bool divisors) {
  std::vector<OwnedTensor> all;
  for (const std::string& kind : kinds(m, divisors))
    for (const bool w13 : {true, false}) {
      OwnedTensor t{(w13 ? "w13_" : "w2_") + kind, -1, "", MOE_DTYPE_F32, {}, {}};
      for (std::size_t e = 0; e < static_cast<std::size_t>(m.layer.E); ++e) {
        const Part p = w13 ? joined(m, e, kind) : part_of(m.down[e], kind);
        append(t.bytes, p.bytes.data(), p.bytes.size());
        t.dtype = p.dtype;
        t.shape = {m.layer.E};
        t.shape.insert(t.shape.end(), p.shape.begin(), p.shape.end());
        if (t.shape.back() == 1 && p.dtype == MOE_DTYPE_F32 && p.shape.size() == 1) t.shape.pop_back();  // [E]
      }
      all.push_back(std::move(t));
    }
  return all;
}

std::vector<OwnedTensor> named_tensors(const Float4Model& m, const std::string& module, const Float4Names& names) {
  std::vector<OwnedTensor> all;
  for (std::size_t e = 0; e < static_cast<std::size_t>(m.layer.E); ++e) {
    const auto add = [&](const char* projection, const Float4Matrix& w) {
      const std::string at = module + "." + std::to_string(e) + "." + projection + ".";
      const auto put = [&](const std::string& name, const std::string& kind, std::optional<moe_dtype> dtype) {
        if (name.empty()) return;
        Part p = part_of(w, kind);
        const bool number = kind == "scale_2" || kind == "global_scale";
        if (number && names.scalars) p.shape.clear();
        all.push_back({at + name, -1, "", dtype.value_or(p.dtype), p.shape, std::move(p.bytes)});
      };
      put(names.weight, "weight", names.codes);
      put(names.scale, "scale", m.nv ? MOE_DTYPE_F8_E4M3FN : names.scales);
      if (m.nv) put(names.factor, "scale_2", std::nullopt);
      if (m.nv) put(names.divisor, "global_scale", std::nullopt);
      if (m.layer.bias) put("bias", "bias", std::nullopt);
    };
    if (m.gated()) add("gate_proj", m.gate[e]);
    add("up_proj", m.up[e]);
    add("down_proj", m.down[e]);
  }
  return all;
}

std::vector<OwnedTensor> gpt_oss_tensors(const Float4Model& m, const std::string& module) {
  std::vector<OwnedTensor> all = stacked_roles(m);
  for (OwnedTensor& t : all) {
    const bool w13 = t.name.starts_with("w13"), codes = t.name.ends_with("weight");
    const char* kind = codes ? "_blocks" : t.name.ends_with("scale") ? "_scales" : "_bias";
    t.name = module + (w13 ? ".gate_up_proj" : ".down_proj") + kind;
    if (!codes) continue;
    t.shape.back() /= 16;
    t.shape.push_back(16);
  }
  return all;
}

}  // namespace moe::test
