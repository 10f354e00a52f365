// WNA16 layers: their numbers, tensors and files, and the plain layer.
#include "support/wna16_model.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "support/rooms.h"
#include "support/safetensors_writer.h"
#include "support/topk_call.h"

namespace moe::test {

std::string Wna16Model::config_text() const {
  nlohmann::json w = {{"num_bits", bits}, {"type", "int"}, {"symmetric", !zeros}, {"dynamic", false}};
  w["strategy"] = group < 0 ? "channel" : "group";
  if (group > 0) w["group_size"] = group;
  if (order) w["actorder"] = "group";
  nlohmann::json q = {{"weights", w}, {"format", format}};
  q["zero_point_convention"] = plus_one ? "plus_one" : "as_stored";
  if (packed()) q["is_transposed"] = transposed;
  nlohmann::json c = {{"num_experts", E}, {"top_k", K}, {"hidden_dim", H}, {"intermediate_size", I}};
  c["quantization"] = q;
  c["has_bias"] = bias;
  c["name"] = "model.layers.0.mlp.experts";
  c["in_dtype"] = dtype == MOE_DTYPE_F32 ? "float32" : dtype == MOE_DTYPE_BF16 ? "bfloat16" : "float16";
  c.update(extra);
  return c.dump();
}

Wna16Layer::Wna16Layer(const Wna16Model& m, const char* threads, const moe_platform* platform) {
  context = make_context(threads);
  config = make_config(m.config_text());
  selection = make_selection(config.get(), context.get(), platform);
  if (!selection) return;
  kernel = moe_selection_kernel(selection.get());
  weights = stacked_weights(m, config.get());
  convert();
}

void Wna16Layer::convert() {
  packed = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
    return moe_convert_weights(context.get(), selection.get(), weights.get(), nullptr, o, e);
  });
  create();
}

void Wna16Layer::create() {
  layer = make<LayerPtr>([&](moe_layer** o, moe_error** e) {
    return moe_layer_create(context.get(), selection.get(), packed.get(), nullptr, o, e);
  });
}

std::vector<std::byte> Wna16Layer::run(const Wna16Model& m, std::int64_t first, std::int64_t count) const {
  return apply_some(layer.get(), m, first, count);
}

void Wna16Layer::load(const std::string& folder) {
  weights = make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(config.get(), o, e); });
  const Failure loaded =
      failure([&](moe_error** e) { return moe_weights_load_safetensors(weights.get(), folder.c_str(), nullptr, e); });
  ASSERT_EQ(loaded.status, MOE_OK) << loaded.message;
  convert();
}

void expect_same_from_files(Wna16Layer& layer, const Wna16Model& m) {
  const TempDir dir;
  dir.write("model.safetensors", checkpoint_file(m));
  const std::vector<std::byte> want = layer.run(m, 0, m.T);
  layer.load(dir.path());
  EXPECT_EQ(layer.run(m, 0, m.T), want);
  const std::string saved = dir.file("layer.moe");
  const Failure f =
      failure([&](moe_error** e) { return moe_packed_save(layer.packed.get(), saved.c_str(), 0, nullptr, e); });
  ASSERT_EQ(f.status, MOE_OK) << f.message;
  layer.packed = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
    return moe_packed_load(nullptr, saved.c_str(), MOE_LOAD_VERIFY, nullptr, o, e);
  });
  layer.create();
  EXPECT_EQ(layer.run(m, 0, m.T), want);
}

Wna16Model random_wna16(Wna16Model m, std::uint32_t seed) {
  std::mt19937 rng(seed), signs(seed + 1);
  std::normal_distribution<float> normal;
  const auto matrix = [&](std::int64_t n, std::int64_t k) {
    Matrix13or2 r{n, k, m.group < 0 ? 1 : k / m.group, {}, {}, {}, {}, {}};
    const unsigned range = 1u << m.bits;
    for (std::int64_t i = 0; i < n * k; ++i) r.codes.push_back(static_cast<std::uint8_t>(rng() % range));
    for (std::int64_t i = 0; i < n * r.groups; ++i) {
      r.zeros.push_back(static_cast<std::uint8_t>(range / 4 + rng() % (range / 2)));
      if (m.plus_one && m.bits == 4 && i % 7 == 0) r.zeros.back() = 15;  // means 16
      const float sign = m.signed_scales && signs() % 2 == 0 ? -1.0f : 1.0f;
      r.scales.push_back(sign * (0.5f + static_cast<float>(rng() % 100) / 100.0f) / static_cast<float>(range));
    }
    for (std::int64_t i = 0; i < k; ++i) r.g_idx.push_back(static_cast<std::int32_t>(i / (k / r.groups)));
    if (m.order) std::shuffle(r.g_idx.begin(), r.g_idx.end(), rng);
    for (std::int64_t i = 0; m.bias && i < n; ++i) r.bias.push_back(normal(rng));
    return r;
  };
  for (std::int64_t e = 0; e < m.E; ++e) {
    m.w13.push_back(matrix(2 * m.I, m.H));
    m.w2.push_back(matrix(m.H, m.I));
  }
  for (std::int64_t i = 0; i < m.T * m.H; ++i) {
    const float v = normal(rng);
    m.x.push_back(m.dtype == MOE_DTYPE_F32    ? v
                  : m.dtype == MOE_DTYPE_BF16 ? bf16_to_f32(f32_to_bf16(v))
                                              : f16_to_f32(f32_to_f16(v)));
  }
  for (std::int64_t t = 0; t < m.T; ++t)
    for (std::int64_t j = 0; j < m.K; ++j) {
      m.ids.push_back(static_cast<std::int32_t>((t * 5 + j) % m.E));
      m.weights.push_back(0.2f + static_cast<float>(rng() % 8) / 10.0f);
    }
  return m;
}

namespace {

double in_type(moe_dtype dtype, double v) {
  const auto f = static_cast<float>(v);
  if (dtype == MOE_DTYPE_F32) return v;
  return static_cast<double>(dtype == MOE_DTYPE_BF16 ? bf16_to_f32(f32_to_bf16(f)) : f16_to_f32(f32_to_f16(f)));
}

}  // namespace

double bound_of(const Wna16Model& m) {
  return m.dtype == MOE_DTYPE_F32 ? 1e-5 : m.dtype == MOE_DTYPE_BF16 ? 2.5e-3 : 4e-4;
}

std::vector<double> plain_layer(const Wna16Model& m) {
  std::vector<double> out(static_cast<std::size_t>(m.T * m.H), 0.0), act(static_cast<std::size_t>(m.I));
  const auto row = [&](const Matrix13or2& w, std::int64_t n, const auto& x) {
    double sum = m.bias ? static_cast<double>(w.bias[static_cast<std::size_t>(n)]) : 0.0;
    for (std::int64_t k = 0; k < w.k; ++k) sum += m.weight(w, n, k) * static_cast<double>(x[k]);
    return sum;
  };
  for (std::int64_t t = 0; t < m.T; ++t)
    for (std::int64_t j = 0; j < m.K; ++j) {
      const auto slot = static_cast<std::size_t>(t * m.K + j);
      if (m.ids[slot] < 0) continue;
      const auto e = static_cast<std::size_t>(m.ids[slot]);
      for (std::int64_t i = 0; i < m.I; ++i) {
        const double g = row(m.w13[e], i, m.x.data() + t * m.H);
        const double up = row(m.w13[e], m.I + i, m.x.data() + t * m.H);
        act[static_cast<std::size_t>(i)] = in_type(m.dtype, g / (1 + std::exp(-g)) * up);
      }
      for (std::int64_t h = 0; h < m.H; ++h)
        out[static_cast<std::size_t>(t * m.H + h)] +=
            static_cast<double>(m.weights[slot]) * row(m.w2[e], h, act.data());
    }
  return out;
}

void put_field(Words& words, std::int64_t at, unsigned shift, std::uint8_t v) {
  words[static_cast<std::size_t>(at)] |= static_cast<std::uint32_t>(v) << shift;
}

std::vector<Wna16Part> parts_of(const Wna16Model& m, const Matrix13or2& w, std::int64_t first, std::int64_t n) {
  const std::int64_t pf = m.pf(), kw = (w.k + pf - 1) / pf, nw = (n + pf - 1) / pf;
  const bool k_first = !m.packed();
  Words codes(static_cast<std::size_t>(m.awq() ? w.k * nw : kw * n), 0),
      zeros(static_cast<std::size_t>(nw * w.groups), 0);
  std::vector<float> scales(static_cast<std::size_t>(n * w.groups));
  constexpr unsigned kInv4[] = {0, 4, 1, 5, 2, 6, 3, 7};
  const auto shift = [&](std::int64_t c, bool awq) {
    return static_cast<unsigned>(m.bits) * (awq ? kInv4[c % 8] : static_cast<unsigned>(c % pf));
  };
  for (std::int64_t r = 0; r < n; ++r) {
    for (std::int64_t c = 0; c < w.k; ++c) {
      const std::int64_t at = m.awq() ? c * nw + r / pf : k_first ? c / pf * n + r : r * kw + c / pf;
      put_field(codes, at, shift(m.awq() ? r : c, m.awq()), w.codes[static_cast<std::size_t>((first + r) * w.k + c)]);
    }
    for (std::int64_t g = 0; g < w.groups; ++g) {
      const auto from = static_cast<std::size_t>((first + r) * w.groups + g);
      scales[static_cast<std::size_t>(k_first ? g * n + r : r * w.groups + g)] = w.scales[from];
      put_field(zeros, k_first ? g * nw + r / pf : r / pf * w.groups + g, shift(r, m.awq()), w.zeros[from]);
    }
  }
  using Shape = std::vector<std::int64_t>;
  const auto shape = [&](std::int64_t rows, std::int64_t columns) {
    return k_first ? Shape{columns, rows} : Shape{rows, columns};
  };
  std::vector<Wna16Part> parts;
  parts.push_back({k_first ? "qweight" : "weight_packed", "weight", "I32", m.awq() ? shape(nw, w.k) : shape(n, kw),
                   bytes_of(codes)});
  parts.push_back({k_first ? "scales" : "weight_scale", "scale", "F32", shape(n, w.groups), bytes_of(scales)});
  if (m.zeros)
    parts.push_back(
        {k_first ? "qzeros" : "weight_zero_point", "zero_point", "I32", shape(nw, w.groups), bytes_of(zeros)});
  if (m.order || m.plain_g_idx)
    parts.push_back({k_first ? "g_idx" : "weight_g_idx", "g_idx", "I32", {w.k}, bytes_of(w.g_idx)});
  if (m.bias)
    parts.push_back(
        {"bias", "bias", "F32", {n}, bytes_of(std::vector<float>(w.bias.begin() + first, w.bias.begin() + first + n))});
  return parts;
}

void transpose(Wna16Part& p) {
  const auto rows = static_cast<std::size_t>(p.shape[0]), columns = static_cast<std::size_t>(p.shape[1]);
  std::vector<std::byte> out(p.bytes.size());
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < columns; ++c)
      std::copy_n(p.bytes.begin() + static_cast<std::ptrdiff_t>((r * columns + c) * 4), 4,
                  out.begin() + static_cast<std::ptrdiff_t>((c * rows + r) * 4));
  p.bytes = std::move(out);
  std::swap(p.shape[0], p.shape[1]);
}

WeightsPtr stacked_weights(const Wna16Model& m, const moe_config* config, const StackedAs& as) {
  WeightsPtr w = make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(config, o, e); });
  for (const bool up : {true, false}) {
    const auto& matrices = up ? m.w13 : m.w2;
    std::vector<Wna16Part> all;
    for (const Matrix13or2& matrix : matrices) {
      std::vector<Wna16Part> one = parts_of(m, matrix, 0, matrix.n);
      for (Wna16Part& p : one)
        if (m.packed() && m.transposed && p.shape.size() == 2) transpose(p);
      if (all.empty()) {
        all = std::move(one);
        continue;
      }
      for (std::size_t i = 0; i < all.size(); ++i)
        all[i].bytes.insert(all[i].bytes.end(), one[i].bytes.begin(), one[i].bytes.end());
    }
    for (Wna16Part& p : all) {
      p.shape.insert(p.shape.begin(), m.E);
      auto* kept = new std::vector<std::byte>(std::move(p.bytes));
      const std::string role = std::string(up ? "w13_" : "w2_") + (as.vllm ? p.suffix : p.role);
      std::byte* const elsewhere = as.place ? as.place(role, *kept) : nullptr;
      const moe_tensor t = tensor(p.dtype == "I32" ? MOE_DTYPE_I32 : MOE_DTYPE_F32, p.shape,
                                  elsewhere != nullptr ? elsewhere : kept->data());
      const Failure f = failure([&](moe_error** e) {
        return moe_weights_set(
            w.get(), role.c_str(), &t, [](void* user) { delete static_cast<std::vector<std::byte>*>(user); }, kept, e);
      });
      EXPECT_EQ(f.status, MOE_OK) << role << ": " << f.message;
    }
  }
  return w;
}

std::string checkpoint_file(const Wna16Model& m, const std::array<const char*, 3>& names, const std::string& module) {
  SafetensorsWriter file;
  for (std::int64_t e = 0; e < m.E; ++e)
    for (std::size_t p = 0; p < 3; ++p) {
      const Matrix13or2& w = p < 2 ? m.w13[static_cast<std::size_t>(e)] : m.w2[static_cast<std::size_t>(e)];
      for (const Wna16Part& part : parts_of(m, w, p == 1 ? m.I : 0, p < 2 ? m.I : m.H))
        file.add(module + "." + std::to_string(e) + "." + names[p] + "." + part.suffix, part.dtype, part.shape,
                 part.bytes.data(), part.bytes.size());
    }
  return file.bytes();
}

}  // namespace moe::test
