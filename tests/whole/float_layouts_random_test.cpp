// Layers of random numbers in every float layout of another engine that selection accepts: whatever is accepted
// converts, comes back as the same numbers (rounded where the layout says so), also through a file, and does not depend
// on the number of threads. What layouts have no room for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "support/capi.h"
#include "support/float8_model.h"
#include "support/rooms.h"
#include "support/temp_dir.h"

namespace moe::test::float_layouts_random_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json args(const char* strategy, bool dynamic, int group = 0) {
  json a = {{"num_bits", 8}, {"type", "float"}, {"strategy", strategy}, {"dynamic", dynamic}};
  if (group != 0) a["group_size"] = group;
  return a;
}

struct Weights {
  ScaleForm form;
  std::vector<json> inputs;  // input_activations that come with it
};
std::vector<Weights> weights() {
  return {{kOneScale, {args("tensor", false), args("tensor", true), args("token", true), nullptr}},
          {kRowScales, {args("token", true)}},
          {kBlocks128, {args("group", true, 128)}},
          {kMxScales, {args("group", true, 32), nullptr}}};
}

std::vector<json> machines() {
  const auto cuda = [](int major, int minor, const char* word) {
    return json{
        {"platform",
         {{"type", "cuda"}, {"capability", {major, minor}}, {"libs", {{"flashinfer", true}, {"deep_gemm", true}}}}},
        {"moe_backend", word}};
  };
  const auto rocm = [](const char* gfx) {
    return json{{"platform", {{"type", "rocm"}, {"gfx", gfx}, {"libs", {{"aiter", true}}}}}};
  };
  std::vector<json> all = {cuda(8, 0, "marlin"),    cuda(9, 0, "triton"),    cuda(9, 0, "flashinfer_cutlass"),
                           cuda(9, 0, "deep_gemm"), cuda(9, 0, "cutlass"),   cuda(10, 0, "flashinfer_trtllm"),
                           cuda(8, 9, "triton"),    cuda(10, 0, "deep_gemm")};
  for (const char* gfx : {"gfx942", "gfx950"}) {
    all.push_back(rocm(gfx));
    all.push_back(rocm(gfx));
    all.back()["vllm_env"] = {{"VLLM_ROCM_USE_AITER", "1"}};
  }
  all.push_back({{"platform", {{"type", "xpu"}}}});
  all.push_back({{"platform", {{"type", "cpu"}, {"arch", "x86_64"}, {"features", {"avx512_bf16", "avx512_vnni"}}}},
                 {"selection_policy", "vllm"},
                 {"vllm_env", {{"VLLM_CPU_SGL_KERNEL", "1"}}}});
  all.push_back(cuda(9, 0, "deep_gemm"));
  all.back()["vllm_env"] = {{"VLLM_USE_DEEP_GEMM_E8M0", "0"}};
  for (const char* word : {"triton", "deep_gemm", "cutlass"}) {
    all.push_back(cuda(9, 0, word));
    all.back()["parallel"] = {
        {"dp_size", 2}, {"enable_expert_parallel", true}, {"all2all_backend", "deepep_low_latency"}};
  }
  return all;
}

// Of a static activation scale, one for each projection.
std::vector<OwnedTensor> with_input_scales(std::vector<OwnedTensor> tensors, const Float8Model& m) {
  for (const bool w13 : {true, false}) {
    std::vector<float> s;
    const std::int64_t each = w13 && m.gated() ? 2 : 1;
    for (std::int64_t i = 0; i < m.E * each; ++i) s.push_back(0.5f + 0.125f * static_cast<float>(i));
    std::vector<std::int64_t> shape = {m.E};
    if (each == 2) shape.push_back(2);
    tensors.push_back({w13 ? "w13_input_scale" : "w2_input_scale", -1, "", MOE_DTYPE_F32, shape, bytes_of(s)});
  }
  return tensors;
}

bool is_accepted(const json& document) {
  const ConfigPtr config = make_config(document.dump());
  moe_selection* s = nullptr;
  const Failure f =
      failure([&](moe_error** e) { return moe_select_backend(nullptr, config.get(), nullptr, 0, &s, e); });
  moe_selection_destroy(s);
  return f.status == MOE_OK;
}

struct Layer {
  ConfigPtr config;
  SelectionPtr selection;
  WeightsPtr weights;
  PackedPtr packed;
  Failure converted;

  Layer(const json& document, const std::vector<OwnedTensor>& tensors, int threads = 1) {
    config = make_config(document.dump());
    selection = make_selection(config.get());
    if (!selection) return;
    weights = make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(config.get(), o, e); });
    const Failure set = set_roles(weights.get(), tensors);
    EXPECT_EQ(set.status, MOE_OK) << set.message;
    const ContextPtr context = make_context("{\"threads\":" + std::to_string(threads) + "}");
    moe_packed* p = nullptr;
    converted = failure([&](moe_error** e) {
      return moe_convert_weights(context.get(), selection.get(), weights.get(), nullptr, &p, e);
    });
    packed.reset(p);
  }
  json about() const {
    return json_of([&](moe_buffer** o, moe_error** e) { return moe_packed_to_json(packed.get(), o, e); });
  }
  std::string bytes() const {
    const void* data = nullptr;
    std::uint64_t size = 0;
    EXPECT_EQ(moe_packed_data(packed.get(), &data, &size, nullptr), MOE_OK);
    return {static_cast<const char*>(data), size};
  }
  moe_tensor get(const char* role, std::int64_t expert = -1) const {
    moe_tensor t{};
    t.struct_size = sizeof t;
    const Failure f = failure([&](moe_error** e) { return moe_packed_get(packed.get(), role, expert, &t, e); });
    EXPECT_EQ(f.status, MOE_OK) << f.message;
    return t;
  }
};

std::vector<float> dense(const moe_packed* packed, const char* role, std::int64_t expert, std::int64_t rows,
                         std::int64_t columns) {
  std::vector<float> out(static_cast<std::size_t>(rows * columns));
  const moe_tensor view = tensor(MOE_DTYPE_F32, {rows, columns}, out.data());
  const Failure f = failure([&](moe_error** e) { return moe_packed_dequantize(packed, role, expert, &view, e); });
  EXPECT_EQ(f.status, MOE_OK) << f.message;
  return out;
}

PackedPtr through_a_file(const Layer& l) {
  const TempDir dir;
  const std::string path = dir.path() + "/layer.moe";
  const Failure saved =
      failure([&](moe_error** e) { return moe_packed_save(l.packed.get(), path.c_str(), 0, nullptr, e); });
  EXPECT_EQ(saved.status, MOE_OK) << saved.message;
  return make<PackedPtr>([&](moe_packed** o, moe_error** e) {
    return moe_packed_load(nullptr, path.c_str(), MOE_LOAD_VERIFY, nullptr, o, e);
  });
}

// How far a number may be from the file's: new codes have three bits of mantissa, Marlin's scales those of the
// activations.
struct Slack {
  double relative = 0, absolute = 0;
};
Slack slack_of(const std::string& layout, const json& about) {
  if (about["requantized_experts"] > 0) return {1.0 / 16, 1e-4};
  if (layout.rfind("marlin/fp8", 0) == 0) return {1.0 / 256, 0};
  return {};
}

void expect_rows(const std::vector<float>& got, std::size_t first_row, const Float8Matrix& want, const Slack& slack) {
  const float* from = got.data() + first_row * static_cast<std::size_t>(want.k);
  for (std::int64_t r = 0; r < want.n; ++r)
    for (std::int64_t c = 0; c < want.k; ++c, ++from) {
      const float w = static_cast<float>(want.at(r, c));
      const double off = std::fabs(static_cast<double>(*from) - static_cast<double>(w));
      if (off <= slack.relative * std::fabs(static_cast<double>(w)) + slack.absolute) continue;
      FAIL() << "row " << r << " column " << c << ": " << *from << ", expected " << w;
    }
}

struct Sizes {
  std::int64_t hidden, intermediate;
};

TEST(FloatLayoutsRandom, WhatIsAcceptedConvertsAndComesBack) {
  std::map<std::string, int> layouts;
  std::uint32_t seed = 0;
  for (const Weights& w : weights())
    for (const json& input : w.inputs)
      for (const json& machine : machines())
        for (const auto& [hidden, intermediate] : {Sizes{256, 128}, Sizes{96, 88}})
          for (const std::string activation : {"silu", "relu2_no_mul", "swigluoai"})
            for (const bool vllm : {false, true}) {
              if (w.form.strategy == "block" && activation == "swigluoai") continue;  // below
              if (vllm && w.form.strategy != "tensor") continue;                      // the same bytes
              if (w.form.mx && (hidden % 32 != 0 || intermediate % 32 != 0)) continue;
              if (w.form.strategy == "block" && intermediate % 128 != 0) continue;
              ++seed;
              Float8Model m;
              m.E = 2, m.H = hidden, m.I = intermediate, m.T = 1, m.form = w.form, m.activation = activation;
              m.bias = seed % 3 == 0, m.dtype = seed % 5 == 0 ? "float16" : "bfloat16";
              if (w.form.mx) m.scale_type = MOE_DTYPE_U8;
              m.input_activations = input;
              m.more = machine;
              if (vllm) m.more["bit_compat"] = "vllm";
              json document = json::parse(m.config_text());
              if (machine.contains("parallel")) document["num_experts"] = 2 * m.E;
              SCOPED_TRACE(document.dump());
              if (!is_accepted(document)) continue;
              m = random_float8(std::move(m), seed);
              // Stacked rows of swigluoai are pairs.
              std::vector<OwnedTensor> tensors = activation == "swigluoai" ? expert_roles(m) : stacked_roles(m);
              if (input.is_object() && input["dynamic"] == false) tensors = with_input_scales(std::move(tensors), m);
              const Layer l(document, tensors);
              ASSERT_TRUE(l.packed) << l.converted.message;
              const json about = l.about();
              const std::string layout = about["layout"];
              if (layout.rfind("p16", 0) == 0) continue;
              ++layouts[layout];
              const Slack slack = slack_of(layout, about);
              const PackedPtr loaded = seed % 4 == 1 ? through_a_file(l) : nullptr;
              const moe_packed* from = loaded ? loaded.get() : l.packed.get();
              for (std::int64_t e = 0; e < m.E; ++e) {
                const auto i = static_cast<std::size_t>(e);
                const std::int64_t halves = m.gated() ? 2 : 1;
                const std::vector<float> got = dense(from, "w13_weight", e, halves * m.I, m.H);
                if (m.gated()) expect_rows(got, 0, m.gate[i], slack);
                expect_rows(got, m.gated() ? static_cast<std::size_t>(m.I) : 0, m.up[i], slack);
                expect_rows(dense(from, "w2_weight", e, m.H, m.I), 0, m.down[i], slack);
              }
              if (::testing::Test::HasFatalFailure()) return;
              if (seed % 4 == 0) {
                EXPECT_EQ(Layer(document, tensors, 3).bytes(), l.bytes());
              }
            }
  std::set<std::string> forms;  // without what follows from bias and bit_compat
  for (const auto& [layout, count] : layouts) {
    std::string form = layout.substr(0, layout.rfind('/'));
    for (const char* end : {"-vllm", "-bias"})
      if (form.ends_with(end)) form.resize(form.size() - 5);
    forms.insert(form);
  }
  for (const char* form : {"plain/fp8-tensor",
                           "plain/fp8-channel",
                           "plain/fp8-block",
                           "flashinfer_cutlass/fp8-tensor",
                           "flashinfer_cutlass/fp8-block",
                           "flashinfer_trtllm/fp8-tensor",
                           "flashinfer_trtllm/fp8-block",
                           "flashinfer_trtllm/mxfp8",
                           "marlin/fp8-tensor",
                           "marlin/fp8-channel",
                           "marlin/fp8-block",
                           "marlin/mxfp8",
                           "deepgemm/fp8-ue8m0",
                           "deepgemm/fp8-block",
                           "aiter/fp8-tensor",
                           "aiter/fp8-channel",
                           "aiter/fp8-block",
                           "aiter/fp8-tensor-fnuz",
                           "plain/fp8-channel-fnuz",
                           "xpu/fp8-tensor",
                           "xpu/mxfp8",
                           "vnni/fp8"})
    EXPECT_EQ(forms.count(form), 1u) << form;
}

// Rows g0 u0 g1 u1 ...
std::vector<float> gate_then_up(const std::vector<float>& pairs, std::int64_t k) {
  std::vector<float> out;
  const std::int64_t rows = std::ssize(pairs) / k;
  for (const std::int64_t half : {0, 1})
    for (std::int64_t r = half; r < rows; r += 2)
      out.insert(out.end(), pairs.begin() + r * k, pairs.begin() + (r + 1) * k);
  return out;
}

// Numbers that are not quantized come back to the bit.
TEST(FloatLayoutsRandom, Values) {
  std::set<std::string> forms;
  std::uint32_t seed = 0;
  for (const json& machine : machines())
    for (const auto& [hidden, intermediate] : {Sizes{128, 64}, Sizes{96, 160}, Sizes{40, 24}})
      for (const std::string activation : {"silu", "relu2_no_mul", "swigluoai"})
        for (const moe_dtype dtype : {MOE_DTYPE_BF16, MOE_DTYPE_F16, MOE_DTYPE_F32}) {
          const std::int64_t E = 2, rows = (activation == "relu2_no_mul" ? 1 : 2) * intermediate;
          const char* word = dtype == MOE_DTYPE_BF16 ? "bfloat16" : dtype == MOE_DTYPE_F16 ? "float16" : "float32";
          json document = machine;
          document.update({{"num_experts", machine.contains("parallel") ? 2 * E : E},
                           {"top_k", 1},
                           {"hidden_dim", hidden},
                           {"intermediate_size", intermediate},
                           {"activation", activation},
                           {"has_bias", seed % 2 == 0},
                           {"in_dtype", word}});
          if (!is_accepted(document)) continue;
          std::mt19937 rng(++seed);
          const auto random = [&](const char* role, std::vector<std::int64_t> shape) {
            std::int64_t n = 1;
            for (const std::int64_t d : shape) n *= d;
            std::vector<float> v;
            for (std::int64_t i = 0; i < n; ++i)
              v.push_back(static_cast<float>(static_cast<int>(rng() % 255) - 127) / 64);
            return OwnedTensor{role, -1, "", dtype, shape, dtype == MOE_DTYPE_F32 ? bytes_of(v) : in_dtype(v, dtype)};
          };
          std::vector<OwnedTensor> tensors = {random("w13_weight", {E, rows, hidden}),
                                              random("w2_weight", {E, hidden, intermediate})};
          if (document["has_bias"] == true) {
            tensors.push_back(random("w13_bias", {E, rows}));
            tensors.push_back(random("w2_bias", {E, hidden}));
          }
          SCOPED_TRACE(document.dump());
          const Layer l(document, tensors);
          ASSERT_TRUE(l.packed) << l.converted.message;
          const std::string layout = l.about()["layout"];
          forms.insert(layout.substr(0, layout.find('-')));
          const PackedPtr loaded = seed % 4 == 1 ? through_a_file(l) : nullptr;
          const moe_packed* from = loaded ? loaded.get() : l.packed.get();
          for (std::int64_t e = 0; e < E; ++e)
            for (const bool w13 : {true, false}) {
              const OwnedTensor& t = tensors[w13 ? 0 : 1];
              const std::vector<float> all = floats_of(t.bytes, dtype);
              const std::int64_t n = w13 ? rows : hidden, k = w13 ? hidden : intermediate;
              std::vector<float> want(all.begin() + e * n * k, all.begin() + (e + 1) * n * k);
              if (w13 && activation == "swigluoai") want = gate_then_up(want, k);
              ASSERT_EQ(dense(from, w13 ? "w13_weight" : "w2_weight", e, n, k), want);
            }
        }
  EXPECT_EQ(forms, (std::set<std::string>{"plain/unquantized", "flashinfer_cutlass/unquantized",
                                          "flashinfer_trtllm/unquantized", "aiter/unquantized", "xpu/unquantized",
                                          "vnni/unquantized"}));
}

// --- what is said
// ------------------------------------------------------------------------------------------------------

Float8Model model(const ScaleForm& form, const json& machine, const json& input = nullptr) {
  Float8Model m;
  m.E = 2, m.H = 256, m.I = 128, m.T = 1, m.form = form, m.more = machine, m.input_activations = input;
  return m;
}
json cuda(int major, const char* word) {
  return {{"platform",
           {{"type", "cuda"}, {"capability", {major, 0}}, {"libs", {{"flashinfer", true}, {"deep_gemm", true}}}}},
          {"moe_backend", word}};
}

// One scale for gate and up where the layout has one; Marlin keeps both.
TEST(FloatLayoutsSaid, UnequalShardScales) {
  for (const bool equal : {false, true})
    for (const bool vllm : {false, true}) {
      SCOPED_TRACE(testing::Message() << "equal " << equal << " vllm " << vllm);
      json triton = cuda(9, "triton"), marlin = cuda(8, "marlin");
      if (vllm) triton["bit_compat"] = marlin["bit_compat"] = "vllm";
      Float8Model m = random_float8(model(kOneScale, triton, args("token", true)), 5);
      if (equal)
        for (std::size_t e = 0; e < 2; ++e) m.up[e].scales = m.gate[e].scales;
      const Layer l(json::parse(m.config_text()), stacked_roles(m));
      ASSERT_TRUE(l.packed) << l.converted.message;
      EXPECT_EQ(l.about()["requantized_experts"], equal ? 0 : 2);
      const auto* scales = static_cast<const float*>(l.get("w13_scale").data);
      for (std::size_t e = 0; e < 2; ++e) EXPECT_EQ(scales[e], std::max(m.gate[e].scales[0], m.up[e].scales[0]));
      m.more = marlin;
      const Layer kept(json::parse(m.config_text()), stacked_roles(m));
      ASSERT_TRUE(kept.packed) << kept.converted.message;
      EXPECT_EQ(kept.about()["requantized_experts"], vllm && !equal ? 2 : 0);
      const moe_tensor s13 = kept.get("s13", 1);
      ASSERT_EQ(s13.ndim, 2);
      const auto* bytes = static_cast<const std::byte*>(s13.data);
      const std::vector<float> each = floats_of({bytes, bytes + s13.nbytes}, s13.dtype);
      EXPECT_EQ(std::set<float>(each.begin(), each.end()).size(), vllm || equal ? 1u : 2u);
      // Ours holds the numbers of the layout with one scale or, by default, those of the file.
      m.more = vllm ? json{{"bit_compat", "vllm"}} : json::object();
      const Layer ours(json::parse(m.config_text()), stacked_roles(m));
      ASSERT_TRUE(ours.packed) << ours.converted.message;
      EXPECT_EQ(ours.about()["layout"], vllm ? "p16/e4m3-t-vllm/1" : "p16/e4m3-t/1");
      EXPECT_EQ(ours.about()["requantized_experts"], vllm && !equal ? 2 : 0);
      const PackedPtr loaded = through_a_file(ours);
      for (std::int64_t e = 0; e < 2; ++e) {
        const std::vector<float> numbers = dense(loaded.get(), "w13", e, 256, 256),
                                 one_scale = dense(l.packed.get(), "w13", e, 256, 256);
        EXPECT_EQ(numbers == one_scale, vllm || equal);
        EXPECT_EQ(dense(ours.packed.get(), "w13", e, 256, 256), numbers);
      }
    }
}

TEST(FloatLayoutsSaid, DeepGemmScales) {
  const json machine = cuda(9, "deep_gemm"), input = args("group", true, 128);
  Float8Model m = random_float8(model(kBlocks128, machine, input), 3);
  const Layer l(json::parse(m.config_text()), stacked_roles(m));
  ASSERT_TRUE(l.packed) << l.converted.message;
  EXPECT_EQ(l.about()["requantized_experts"], 2);
  const moe_tensor s = l.get("w2_scale");
  EXPECT_EQ(static_cast<int>(s.dtype), MOE_DTYPE_I32);
  EXPECT_EQ(std::vector<std::int64_t>(s.shape, s.shape + s.ndim), (std::vector<std::int64_t>{2, 256, 1}));
  EXPECT_EQ(std::vector<std::int64_t>(s.strides, s.strides + s.ndim), (std::vector<std::int64_t>{256, 1, 256}));
  const json about = l.about();
  for (const json& output : about["outputs"])
    if (output["name"] == "w13_scale") {
      EXPECT_EQ(output["strides"], (json{256, 1, 256}));
    }
  EXPECT_EQ(l.get("w2_scale", 1).nbytes, 4u * 256);
  // Powers of two from the file are taken as they are.
  m = model(kBlocks128, machine, input);
  m.scale_type = MOE_DTYPE_F8_E8M0FNU;
  m = random_float8(std::move(m), 4);
  const Layer powers(json::parse(m.config_text()), stacked_roles(m));
  ASSERT_TRUE(powers.packed) << powers.converted.message;
  EXPECT_EQ(powers.about()["requantized_experts"], 0);
  expect_rows(dense(powers.packed.get(), "w2_weight", 1, 256, 128), 0, m.down[1], {});
  // Of gate alone they are not: up's scales are none, and both get new codes.
  m = random_float8(model(kBlocks128, machine, input), 5);
  for (Float8Matrix& gate : m.gate)
    for (float& scale : gate.scales) scale = std::exp2(std::round(std::log2(scale)));
  std::vector<OwnedTensor> mixed = expert_roles(m);
  for (OwnedTensor& t : mixed)
    if (t.shard == "w1" && t.name == "w13_scale") {
      t.dtype = MOE_DTYPE_F8_E8M0FNU;
      t.bytes = scale_bytes(m.gate[static_cast<std::size_t>(t.expert)].scales, t.dtype);
    }
  const Layer both(json::parse(m.config_text()), mixed);
  ASSERT_TRUE(both.packed) << both.converted.message;
  EXPECT_EQ(both.about()["requantized_experts"], m.E);
  const std::vector<float> w13 = dense(both.packed.get(), "w13_weight", 1, 2 * m.I, m.H);
  for (std::int64_t r = 0; r < m.I; ++r)
    for (std::int64_t k = 0; k < m.H; ++k) {
      const double want = m.up[1].at(r, k);
      const auto got = static_cast<double>(w13[static_cast<std::size_t>((m.I + r) * m.H + k)]);
      ASSERT_NEAR(got, want, std::fabs(want) / 16 + 1e-5) << r << "," << k;
    }
  m = random_float8(model(kBlocks128, machine, input), 4);
  // And floats where the environment says so.
  m.more["vllm_env"] = {{"VLLM_USE_DEEP_GEMM_E8M0", "0"}};
  const Layer floats(json::parse(m.config_text()), stacked_roles(m));
  ASSERT_TRUE(floats.packed) << floats.converted.message;
  EXPECT_EQ(floats.about()["layout"], "deepgemm/fp8-block/1");
  const moe_tensor f = floats.get("w13_scale");
  EXPECT_EQ(static_cast<int>(f.dtype), MOE_DTYPE_F32);
  EXPECT_EQ(std::vector<std::int64_t>(f.shape, f.shape + f.ndim), (std::vector<std::int64_t>{2, 2, 2}));
  EXPECT_EQ(std::vector<std::int64_t>(f.strides, f.strides + f.ndim), (std::vector<std::int64_t>{8, 1, 4}));
}

TEST(FloatLayoutsSaid, InputScalesAreNeeded) {
  const Float8Model m = random_float8(model(kOneScale, cuda(9, "triton"), args("tensor", false)), 3);
  const Layer none(json::parse(m.config_text()), stacked_roles(m));
  EXPECT_EQ(none.converted.status, MOE_ERR_MISSING_WEIGHT);
  EXPECT_EQ(none.converted.subject, "w13_input_scale[0]");
  const Layer all(json::parse(m.config_text()), with_input_scales(stacked_roles(m), m));
  ASSERT_TRUE(all.packed) << all.converted.message;
  EXPECT_EQ(*static_cast<const float*>(all.get("w13_input_scale").data), 0.5f + 0.125f * 3);
  EXPECT_EQ(*static_cast<const float*>(all.get("a2").data), 0.5f + 0.125f * 1);
  moe_tensor t{};
  t.struct_size = sizeof t;
  EXPECT_EQ(failure([&](moe_error** e) { return moe_packed_get(all.packed.get(), "w13_alpha", -1, &t, e); }).status,
            MOE_ERR_MISSING_WEIGHT);
  EXPECT_EQ(failure([&](moe_error** e) { return moe_packed_get(all.packed.get(), "a13", 0, &t, e); }).status,
            MOE_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(
      failure([&](moe_error** e) { return moe_packed_get(all.packed.get(), "w13_zero_point", -1, &t, e); }).status,
      MOE_ERR_INVALID_ARGUMENT);
}

TEST(FloatLayoutsSaid, ScalesThatDoNotFit) {
  Float8Model m = random_float8(model(kRowScales, cuda(8, "marlin"), args("token", true)), 3);
  m.down[1].scales[7] = 300.0f;
  const Layer l(json::parse(m.config_text()), stacked_roles(m));
  EXPECT_EQ(l.converted.status, MOE_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(l.converted.subject, "w2_scale");
  EXPECT_THAT(l.converted.message, HasSubstr("too large for Marlin"));
}

// Blocks of rows in pairs of gate and up, and rows that come in another order.
TEST(FloatLayoutsSaid, BlocksOfPairs) {
  const json input = args("group", true, 128);
  Float8Model m = model(kBlocks128, cuda(9, "triton"), input);
  m.activation = "swigluoai";
  m = random_float8(std::move(m), 3);
  const json document = json::parse(m.config_text());
  const Layer halves(document, expert_roles(m));
  EXPECT_EQ(halves.converted.status, MOE_ERR_UNSUPPORTED);
  EXPECT_EQ(halves.converted.subject, "w13_scale");
  EXPECT_THAT(halves.converted.message, HasSubstr("another order"));
  const Layer pairs(document, stacked_roles(m));
  ASSERT_TRUE(pairs.packed) << pairs.converted.message;
  EXPECT_EQ(pairs.about()["w13_layout"], "interleaved");
  const std::vector<OwnedTensor> given = stacked_roles(m);  // unchanged
  const moe_tensor w13 = pairs.get("w13_weight"), s13 = pairs.get("w13_scale");
  EXPECT_EQ(std::memcmp(w13.data, given[0].bytes.data(), w13.nbytes), 0);
  EXPECT_EQ(std::memcmp(s13.data, given[2].bytes.data(), s13.nbytes), 0);
}

}  // namespace
}  // namespace moe::test::float_layouts_random_test
