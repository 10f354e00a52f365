// Simulated ranks.
#include "support/ranks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "support/rooms.h"
#include "support/safetensors_writer.h"

namespace moe::test {

std::vector<NamedTensor> named_tensors(const Model& m) {
  std::vector<NamedTensor> all;
  const std::int64_t g13 = m.groups(m.H), g2 = m.groups(m.I);
  const auto element = [](moe_dtype d) { return static_cast<std::int64_t>(dtype_bits(static_cast<DType>(d)) / 8); };
  for (std::int64_t e = 0; e < m.E; ++e) {
    const std::string prefix = "model.layers.0.mlp.experts." + std::to_string(e) + ".";
    for (std::int64_t half = 0; half < 2; ++half) {
      const std::string p = prefix + (half == 0 ? "gate_proj." : "up_proj.");
      const std::int64_t row = (2 * e + half) * m.I;
      all.push_back({p + "weight", MOE_DTYPE_I8, {m.I, m.H}, m.w13.data() + row * m.H});
      all.push_back({p + "weight_scale", m.s13_type, {m.I, g13}, m.s13.data() + row * g13 * element(m.s13_type)});
      if (m.bias) all.push_back({p + "bias", m.bias_type, {m.I}, m.b13.data() + row * element(m.bias_type)});
    }
    const std::string p = prefix + "down_proj.";
    all.push_back({p + "weight", MOE_DTYPE_I8, {m.H, m.I}, m.w2.data() + e * m.H * m.I});
    all.push_back({p + "weight_scale", m.s2_type, {m.H, g2}, m.s2.data() + e * m.H * g2 * element(m.s2_type)});
    if (m.bias) all.push_back({p + "bias", m.bias_type, {m.H}, m.b2.data() + e * m.H * element(m.bias_type)});
  }
  return all;
}

std::string checkpoint_bytes(const Model& m) {
  SafetensorsWriter w;
  for (const NamedTensor& t : named_tensors(m))
    w.add(t.name, t.dtype == MOE_DTYPE_I8 ? "I8" : "F32", t.shape, t.data, t.bytes());
  return w.bytes();
}

Model share_of(const Model& m, const std::vector<std::int64_t>& experts, std::int64_t parts, std::int64_t part) {
  Model s = m;
  s.E = static_cast<std::int64_t>(experts.size());
  s.I = m.I / parts;
  s.w13.clear(), s.w2.clear(), s.s13.clear(), s.s2.clear(), s.b13.clear(), s.b2.clear();
  // columns [first, first + count) of rows of `width` elements of `size` bytes
  const auto take = [](auto& to, const auto& from, std::int64_t row, std::int64_t rows, std::int64_t width,
                       std::int64_t first, std::int64_t count, std::int64_t size) {
    for (std::int64_t r = row; r < row + rows; ++r)
      to.insert(to.end(), from.begin() + (r * width + first) * size, from.begin() + (r * width + first + count) * size);
  };
  const std::int64_t g13 = m.groups(m.H), g2 = m.groups(m.I), kept = m.group < 0 ? 1 : g2 / parts,
                     first_group = m.group < 0 ? 0 : part * kept;
  for (const std::int64_t e : experts) {
    for (std::int64_t half = 0; half < 2; ++half) {
      const std::int64_t row = (2 * e + half) * m.I + part * s.I;
      take(s.w13, m.w13, row, s.I, m.H, 0, m.H, 1);
      take(s.s13, m.s13, row, s.I, g13, 0, g13, 4);
      if (m.bias) take(s.b13, m.b13, row, s.I, 1, 0, 1, 4);
    }
    take(s.w2, m.w2, e * m.H, m.H, m.I, part * s.I, s.I, 1);
    take(s.s2, m.s2, e * m.H, m.H, g2, first_group, kept, 4);
    if (m.bias) take(s.b2, m.b2, e * m.H, m.H, 1, 0, 1, 4);
  }
  return s;
}

std::string config_of(const Model& m, const nlohmann::json& parallel, const nlohmann::json& more) {
  auto c = nlohmann::json::parse(m.config_text());
  c["parallel"] = parallel;
  c["out_dtype"] = "float32";
  if (more.is_object()) c.merge_patch(more);
  return c.dump();
}

void expect_status_ok(moe_status status, moe_error* err) {
  EXPECT_EQ(status, MOE_OK) << moe_error_details_json(err);
  moe_error_destroy(err);
}

void set_weights(moe_weights* set, const Model& m, const Rank& r, Source source, std::int64_t tp_size,
                 std::int64_t tp_rank) {
  moe_error* err = nullptr;
  if (source == Source::file) {
    const TempDir dir;
    dir.write("model.safetensors", checkpoint_bytes(m));
    expect_status_ok(moe_weights_load_safetensors(set, dir.path().c_str(), nullptr, &err), err);
    return;  // open files outlive their names
  }
  if (source == Source::named) {
    for (const NamedTensor& n : named_tensors(m)) {
      const moe_tensor t = tensor(n.dtype, n.shape, n.data);
      std::int32_t consumed = 0;
      expect_status_ok(moe_weights_set_named(set, n.name.c_str(), &t, nullptr, nullptr, &consumed, &err), err);
      EXPECT_EQ(consumed, 1) << n.name;
    }
    return;
  }
  std::vector<std::int64_t> sources;  // experts of the checkpoint in local order
  for (const std::int64_t e : r.experts) sources.push_back(e % m.E);
  // kept until the set is converted: leaked into the tensor's release
  auto* share = new Model(share_of(m, sources, tp_size, tp_rank));
  const auto tensors = stacked(*share);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const moe_release_fn release = [](void* user) { delete static_cast<Model*>(user); };
    const bool last = i + 1 == tensors.size();
    if (source == Source::stacked) {
      expect_status_ok(moe_weights_set(set, tensors[i].role, &tensors[i].tensor, last ? release : nullptr, share, &err),
                       err);
      continue;
    }
    for (std::size_t e = 0; e < r.experts.size(); ++e) {
      moe_tensor one = tensors[i].tensor;
      std::size_t bytes = static_cast<std::size_t>(dtype_bits(static_cast<DType>(one.dtype)) / 8);
      for (int d = 1; d < one.ndim; ++d) {
        bytes *= static_cast<std::size_t>(one.shape[d]);
        one.shape[d - 1] = one.shape[d];
      }
      one.shape[--one.ndim] = 0;
      one.data = static_cast<char*>(one.data) + e * bytes;
      const bool final = last && e + 1 == r.experts.size();
      expect_status_ok(moe_weights_set_expert(set, tensors[i].role, r.experts[e], nullptr, &one,
                                              final ? release : nullptr, share, &err),
                       err);
    }
  }
}

Rank make_rank(const Model& m, const std::string& config, Source source) {
  Rank r;
  r.config = make_config(config);
  r.selection = make_selection(r.config.get());
  const auto told =
      json_of([&](moe_buffer** o, moe_error** e) { return moe_selection_to_json(r.selection.get(), o, e); });
  r.placement = told["expert_placement"];
  r.experts = r.placement["experts"].get<std::vector<std::int64_t>>();
  const auto& parallel = told["config"]["parallel"];
  r.weights =
      make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(r.config.get(), o, e); });
  set_weights(r.weights.get(), m, r, source, parallel["tp_size"], parallel["tp_rank"]);
  r.packed = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
    return moe_convert_weights(nullptr, r.selection.get(), r.weights.get(), nullptr, o, e);
  });
  r.layer = make<LayerPtr>([&](moe_layer** o, moe_error** e) {
    return moe_layer_create(nullptr, r.selection.get(), r.packed.get(), nullptr, o, e);
  });
  return r;
}

std::vector<Rank> make_ranks(const Model& m, nlohmann::json parallel, int size, Source source,
                             const nlohmann::json& more) {
  std::vector<Rank> ranks;
  for (int rank = 0; rank < size; ++rank) {
    parallel["tp_size"] = size;
    parallel["tp_rank"] = rank;
    ranks.push_back(make_rank(m, config_of(m, parallel, more), source));
  }
  return ranks;
}

Rank whole_layer(const Model& m, const nlohmann::json& more) {
  return make_rank(m, config_of(m, nlohmann::json::object(), more), Source::stacked);
}

Floats apply_topk(const moe_layer* layer, const Model& m, const std::vector<std::int32_t>& ids,
                  const std::vector<float>& weights, Floats start) {
  const bool accumulate = !start.empty();
  Floats out = accumulate ? std::move(start) : Floats(static_cast<std::size_t>(m.T * m.H), -77.0f);
  const moe_tensor x = tensor(m.io_type(), {m.T, m.H}, m.x.data()), y = tensor(MOE_DTYPE_F32, {m.T, m.H}, out.data()),
                   i = tensor(MOE_DTYPE_I32, {m.T, m.K}, ids.data()),
                   w = tensor(MOE_DTYPE_F32, {m.T, m.K}, weights.data());
  moe_apply_args a{};
  a.struct_size = sizeof a;
  a.mode = MOE_APPLY_TOPK;
  a.flags = accumulate ? MOE_APPLY_ACCUMULATE : 0;
  a.hidden = &x, a.out = &y, a.topk_ids = &i, a.topk_weights = &w;
  moe_error* err = nullptr;
  expect_status_ok(moe_apply(layer, &a, &err), err);
  return out;
}

Floats apply_topk(const moe_layer* layer, const Model& m) { return apply_topk(layer, m, m.ids, m.weights); }

Floats apply_logits(const moe_layer* layer, const Model& m, std::vector<std::int32_t>* ids,
                    std::vector<float>* weights) {
  Floats out(static_cast<std::size_t>(m.T * m.H));
  std::vector<std::int32_t> chosen(static_cast<std::size_t>(m.T * m.K));
  std::vector<float> gates(chosen.size());
  const moe_tensor x = tensor(m.io_type(), {m.T, m.H}, m.x.data()), y = tensor(MOE_DTYPE_F32, {m.T, m.H}, out.data()),
                   l = tensor(MOE_DTYPE_F32, {m.T, m.E}, m.logits.data()),
                   i = tensor(MOE_DTYPE_I32, {m.T, m.K}, chosen.data()),
                   w = tensor(MOE_DTYPE_F32, {m.T, m.K}, gates.data());
  moe_apply_args a{};
  a.struct_size = sizeof a;
  a.mode = MOE_APPLY_ROUTER_LOGITS;
  a.hidden = &x, a.out = &y, a.router_logits = &l, a.out_topk_ids = &i, a.out_topk_weights = &w;
  moe_error* err = nullptr;
  expect_status_ok(moe_apply(layer, &a, &err), err);
  if (ids != nullptr) *ids = chosen;
  if (weights != nullptr) *weights = gates;
  return out;
}

std::vector<Floats> slot_rows(const moe_layer* layer, const Model& m) {
  std::vector<Floats> rows;
  for (std::int64_t j = 0; j < m.K; ++j) {
    std::vector<std::int32_t> ids = m.ids;
    for (std::size_t s = 0; s < ids.size(); ++s)
      if (static_cast<std::int64_t>(s) % m.K != j) ids[s] = -1;
    rows.push_back(apply_topk(layer, m, ids, std::vector<float>(ids.size(), 1.0f)));
  }
  return rows;
}

Floats combine(const Model& m, const std::vector<Floats>& rows) {
  Floats out(static_cast<std::size_t>(m.T * m.H));
  const auto k = static_cast<std::size_t>(m.K), h = static_cast<std::size_t>(m.H);
  for (std::size_t t = 0; t < static_cast<std::size_t>(m.T); ++t) {
    std::vector<std::pair<std::int32_t, std::size_t>> order;
    for (std::size_t j = 0; j < k; ++j)
      if (m.ids[t * k + j] >= 0) order.emplace_back(m.ids[t * k + j], j);
    std::sort(order.begin(), order.end());
    for (const auto& [id, j] : order)
      for (std::size_t i = 0; i < h; ++i)
        out[t * h + i] = std::fma(m.weights[t * k + j], rows[j][t * h + i], out[t * h + i]);
  }
  return out;
}

bool same_bits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace moe::test
