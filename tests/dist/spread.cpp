// Layers of ranks that are threads.
#include "dist/spread.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "support/safetensors_writer.h"

namespace moe::test {
namespace {

std::shared_ptr<TempDir> folder_of(const std::string& file) {
  auto dir = std::make_shared<TempDir>();
  dir->write("model.safetensors", file);
  return dir;
}

// Ids of `experts` experts, weights and values.
void fill_tokens(Sample& s, std::int64_t experts, std::uint32_t seed) {
  std::mt19937 rng(seed);
  std::vector<float> x(static_cast<std::size_t>(s.T * s.H)), logits(static_cast<std::size_t>(s.T * experts));
  for (float& v : x) v = static_cast<float>(rng() >> 8) * 0x1p-24f - 0.5f;
  for (float& v : logits) v = static_cast<float>(rng() >> 8) * 0x1p-22f - 2.0f;
  s.x = in_dtype(x, s.dtype);
  s.logits = bytes_of(logits);
  for (std::int64_t t = 0; t < s.T; ++t)
    for (std::int64_t j = 0; j < s.K; ++j) {
      auto id = static_cast<std::int32_t>(rng() % static_cast<std::uint32_t>(experts));
      if (t % 7 == 3 || rng() % 8 == 0) id = -1;
      if (t % 5 == 2 && j > 0) id = s.ids[static_cast<std::size_t>(t * s.K)];
      s.ids.push_back(id);
      s.weights.push_back(static_cast<float>(rng() >> 8) * 0x1p-24f + 0.1f);
    }
}

}  // namespace

Sample sample(std::string name, const std::string& config, const std::string& file, moe_dtype dtype,
              std::int64_t tokens, std::uint32_t seed) {
  Sample s;
  s.name = std::move(name);
  s.dir = folder_of(file);
  s.dtype = dtype;
  auto c = nlohmann::json::parse(config);
  c["name"] = kModule;
  s.config = c.dump();
  s.T = tokens, s.H = c["hidden_dim"], s.K = c["top_k"];
  fill_tokens(s, c["num_experts"], seed);
  return s;
}

Sample Sample::with(const nlohmann::json& more) const {
  Sample s = *this;
  auto c = nlohmann::json::parse(config);
  c.merge_patch(more);
  s.config = c.dump();
  return s;
}

Sample int4_sample(Model m, std::int64_t tokens, std::uint32_t seed) {
  m = random_model(std::move(m), seed);
  return sample("int4", m.config_text(), checkpoint_bytes(m), m.io_type(), tokens, seed);
}
Sample int8_sample(Wna16Model m, std::int64_t tokens) {
  m = random_wna16(std::move(m), 3);
  return sample(m.format + std::to_string(m.bits), m.config_text(), checkpoint_file(m), m.dtype, tokens);
}
Sample float8_sample(Float8Model m, std::int64_t tokens) {
  m = random_float8(std::move(m));
  return sample("float8", m.config_text(), safetensors_of(named_tensors(m, kModule)), m.io_type(), tokens);
}
Sample float4_sample(Float4Model m, std::int64_t tokens) {
  m = random_float4(std::move(m));
  return sample(m.nv ? "nvfp4" : "mxfp4", m.config_text(),
                safetensors_of(named_tensors(m, kModule, m.nv ? kLlmcompressorNv : kLlmcompressorMx)),
                m.layer.io_type(), tokens);
}

Sample plain_sample(const std::string& dtype, std::int64_t experts, std::int64_t tokens) {
  constexpr std::int64_t kHidden = 48, kInter = 32;
  std::mt19937 rng(5);
  SafetensorsWriter file;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
    std::size_t n = 1;
    for (const std::int64_t d : shape) n *= static_cast<std::size_t>(d);
    std::vector<float> v(n);
    for (float& f : v) f = static_cast<float>(rng() >> 8) * 0x1p-25f - 0.25f;
    const std::vector<std::byte> bytes = in_dtype(v, moe_dtype_from_name(dtype.c_str()));
    file.add(name, dtype == "float32" ? "F32" : dtype == "float16" ? "F16" : "BF16", shape, bytes.data(), bytes.size());
  };
  for (std::int64_t e = 0; e < experts; ++e) {
    const std::string at = std::string(kModule) + "." + std::to_string(e);
    for (const char* p : {".gate_proj", ".up_proj"}) add(at + p + ".weight", {kInter, kHidden});
    add(at + ".down_proj.weight", {kHidden, kInter});
  }
  const nlohmann::json config = {{"num_experts", experts},           {"top_k", 3},        {"hidden_dim", kHidden},
                                 {"intermediate_size", kInter},      {"in_dtype", dtype}, {"out_dtype", dtype},
                                 {"router_logits_dtype", "float32"}, {"name", kModule}};
  return sample("plain " + dtype, config.dump(), file.bytes(), moe_dtype_from_name(dtype.c_str()), tokens);
}

std::vector<Sample> all_formats(std::int64_t tokens) {
  std::vector<Sample> all;
  all.push_back(int4_sample({.E = 7, .K = 3, .dtype = "bfloat16"}, tokens));
  all.push_back(int4_sample({.E = 8, .K = 2, .group = -1, .dtype = "float16", .bias = true}, tokens));
  all.push_back(int8_sample({.E = 6}, tokens));
  all.push_back(int8_sample({.format = "pack-quantized", .bits = 8, .E = 5, .dtype = MOE_DTYPE_BF16}, tokens));
  all.push_back(int8_sample({.format = "awq", .E = 5, .zeros = true, .dtype = MOE_DTYPE_F16}, tokens));
  all.push_back(int8_sample({.E = 5, .order = true}, tokens));
  all.push_back(float8_sample({.E = 5}, tokens));
  all.push_back(float8_sample({.form = kBlocks128, .E = 5, .dtype = "float16"}, tokens));
  all.push_back(float4_sample({.layer = {.E = 5}}, tokens));
  all.push_back(float4_sample({.nv = true, .layer = {.E = 5}}, tokens));
  for (const char* dtype : {"float32", "float16", "bfloat16"}) all.push_back(plain_sample(dtype, 6, tokens));
  return all;
}

LayerPtr layer_of(const Sample& s, const moe_config* config, moe_context* ctx) {
  const SelectionPtr selection = make_selection(config, ctx);
  const WeightsPtr weights =
      make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(config, o, e); });
  moe_error* err = nullptr;
  expect_status_ok(moe_weights_load_safetensors(weights.get(), s.dir->path().c_str(), nullptr, &err), err);
  const PackedPtr packed = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
    return moe_convert_weights(ctx, selection.get(), weights.get(), nullptr, o, e);
  });
  return make<LayerPtr>([&](moe_layer** o, moe_error** e) {
    return moe_layer_create(ctx, selection.get(), packed.get(), nullptr, o, e);
  });
}

Part::Part(const Sample& s, std::int64_t first, std::int64_t count, bool routes)
    : out(static_cast<std::size_t>(count) * s.row_bytes(), std::byte{0xA5}) {
  const std::int64_t columns = s.T == 0 ? 0 : static_cast<std::int64_t>(s.logits.size()) / 4 / s.T;
  hidden = tensor(s.dtype, {count, s.H}, s.x.data() + static_cast<std::size_t>(first) * s.row_bytes());
  ids = tensor(MOE_DTYPE_I32, {count, s.K}, s.ids.data() + first * s.K);
  weights = tensor(MOE_DTYPE_F32, {count, s.K}, s.weights.data() + first * s.K);
  logits = tensor(MOE_DTYPE_F32, {count, columns}, s.logits.data() + first * columns * 4);
  result = tensor(s.dtype, {count, s.H}, out.data());
  args.struct_size = sizeof args;
  args.mode = routes ? MOE_APPLY_ROUTER_LOGITS : MOE_APPLY_TOPK;
  args.hidden = &hidden;
  args.out = &result;
  if (routes) args.router_logits = &logits;
  if (!routes) args.topk_ids = &ids, args.topk_weights = &weights;
}

std::vector<std::byte> whole_output(const Sample& s, bool routes) {
  const ConfigPtr config = s.make();
  const LayerPtr layer = layer_of(s, config.get());
  Part all(s, 0, s.T, routes);
  moe_error* err = nullptr;
  expect_status_ok(moe_apply(layer.get(), &all.args, &err), err);
  return all.out;
}

void on_ranks(int size, const OnRank& fn, const std::string& options) {
  std::vector<moe_comm*> made(static_cast<std::size_t>(size));
  moe_error* err = nullptr;
  expect_status_ok(moe_comm_create_threads(size, made.data(), &err), err);
  for (moe_comm* comm : made) expect_status_ok(moe_comm_set_options(comm, options.c_str(), options.size(), &err), err);
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r)
    threads.emplace_back([&fn, r, comm = made[static_cast<std::size_t>(r)]] {
      const CommPtr owned(comm);
      EXPECT_EQ(moe_comm_rank(comm), r);
      fn(r, comm);
    });
  for (std::thread& t : threads) t.join();
}

DistPtr make_dist(moe_comm* comm, const moe_config* config, const std::string& options, moe_context* ctx) {
  return make<DistPtr>([&](moe_dist** o, moe_error** e) {
    return moe_dist_create(ctx, comm, config, options.c_str(), options.size(), o, e);
  });
}

LayerPtr own_layer(const Sample& s, const moe_dist* dist, moe_context* ctx) {
  const ConfigPtr local =
      make<ConfigPtr>([&](moe_config** o, moe_error** e) { return moe_dist_local_config(dist, o, e); });
  return layer_of(s, local.get(), ctx);
}

Spread::Spread(const Sample& s, moe_comm* comm, const std::string& options, moe_context* ctx)
    : config(s.make()), dist(make_dist(comm, config.get(), options, ctx)) {
  if (dist == nullptr) return;
  if (!told()["experts"].empty()) layer = own_layer(s, dist.get(), ctx);
  moe_error* err = nullptr;
  expect_status_ok(moe_dist_attach(dist.get(), layer.get(), &err), err);
}

nlohmann::json Spread::told() const {
  return json_of([&](moe_buffer** o, moe_error** e) { return moe_dist_to_json(dist.get(), o, e); });
}

std::vector<std::int64_t> cut_tokens(Cut cut, std::int64_t tokens, int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  std::vector<std::int64_t> counts(n, 0);
  if (cut == Cut::none) return counts;
  if (cut == Cut::all_on_one) {
    counts.back() = tokens;
    return counts;
  }
  std::int64_t left = tokens;
  for (std::size_t r = 0; r < n; ++r) {
    const bool empty = cut == Cut::one_empty && r == 0 && n > 1;
    const std::int64_t share = r + 1 == n           ? left
                               : cut == Cut::skewed ? std::min<std::int64_t>(left, 1)
                               : empty              ? 0
                                                    : tokens / ranks;
    counts[r] = share;
    left -= share;
  }
  return counts;
}

std::vector<std::byte> spread_output(const Sample& s, int ranks, Cut cut, const std::string& options, bool routes,
                                     const std::string& context) {
  const std::vector<std::int64_t> counts = cut_tokens(cut, s.T, ranks);
  std::vector<std::byte> out(static_cast<std::size_t>(cut == Cut::none ? 0 : s.T) * s.row_bytes());
  on_ranks(ranks, [&](int r, moe_comm* comm) {
    const ContextPtr ctx = context.empty() ? nullptr : make_context(context);
    const Spread spread(s, comm, options, ctx.get());
    if (spread.dist == nullptr) return;
    std::int64_t first = 0;
    for (int i = 0; i < r; ++i) first += counts[static_cast<std::size_t>(i)];
    const std::int64_t count = counts[static_cast<std::size_t>(r)];
    Part part(s, first, count, routes);
    moe_error* err = nullptr;
    expect_status_ok(moe_dist_apply(spread.dist.get(), &part.args, &err), err);
    if (count > 0)
      std::memcpy(out.data() + static_cast<std::size_t>(first) * s.row_bytes(), part.out.data(), part.out.size());
  });
  return out;
}

}  // namespace moe::test
