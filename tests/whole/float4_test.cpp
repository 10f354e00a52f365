// MXFP4 and NVFP4 layers through the ABI: against float64, the golden layers, files as each tool names and shapes them,
// tensor-parallel parts, the two forms of scales of tensors, and what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "support/float4_model.h"
#include "support/golden_roles.h"
#include "support/rooms.h"
#include "support/safetensors_writer.h"
#include "support/topk_call.h"
#include "support/weight_files.h"

namespace moe::test::float4_test {
namespace {

using nlohmann::json;

constexpr const char* kModule = "model.layers.0.mlp.experts";
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

double rms_from_reference(const Float4Model& m, const std::vector<std::byte>& out) {
  return relative_rms(floats_of(out, m.layer.io_type()), m.reference());
}

struct Case {
  const char* name;
  Float4Model model;
};

Float4Model mx(Float8Model layer = {}) { return {.nv = false, .layer = std::move(layer)}; }
Float4Model nv(Float8Model layer = {}) { return {.nv = true, .layer = std::move(layer)}; }
Float4Model a8(Float4Model m) {
  m.layer.more["compute"] = "a8";
  return m;
}
Float4Model w4a4(Float4Model m) {
  m.quantized_inputs = true;
  return m;
}

std::vector<Case> cases() {
  const Float8Model gpt_oss = {.activation = "swigluoai", .bias = true};
  return {
      {"mxfp4", mx()},
      {"mxfp4_w4a4", w4a4(mx())},
      {"mxfp4_odd_sizes", mx({.H = 160, .I = 96})},
      {"mxfp4_bias", mx({.bias = true})},
      {"mxfp4_ungated", mx({.activation = "relu2_no_mul"})},
      {"mxfp4_float32", mx({.dtype = "float32"})},
      {"mxfp4_float16", mx({.dtype = "float16"})},
      {"mxfp4_a8", a8(mx())},
      {"mxfp4_a8_odd_sizes", a8(mx({.H = 160, .I = 96}))},
      {"gpt_oss", {.layer = gpt_oss, .format = "mxfp4-gpt-oss"}},
      {"gpt_oss_a8", a8({.layer = gpt_oss, .format = "mxfp4-gpt-oss"})},
      {"nvfp4", nv()},
      {"nvfp4_w4a4", w4a4(nv())},
      {"nvfp4_odd_sizes", nv({.H = 208, .I = 80})},
      {"nvfp4_bias", nv({.bias = true})},
      {"nvfp4_ungated", nv({.activation = "relu2_no_mul"})},
      {"nvfp4_float32", nv({.dtype = "float32"})},
      {"nvfp4_float16", nv({.dtype = "float16"})},
      {"nvfp4_a8", a8(nv())},
      {"nvfp4_a8_ungated", a8(nv({.activation = "relu2_no_mul", .bias = true}))},
  };
}

double bound_of(const Float4Model& m) {
  if (m.layer.more.contains("compute")) return 3e-2;
  return m.layer.dtype == "float32" ? 1e-5 : m.layer.dtype == "float16" ? 1e-3 : 8e-3;
}

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class Float4 : public ::testing::TestWithParam<Case> {};

TEST_P(Float4, FromRolesToTheOutput) {
  const Float4Model m = random_float4(GetParam().model);
  const std::vector<OwnedTensor> all = stacked_roles(m), each = expert_roles(m, true);
  const Float8Layer stacked(m.config_text(), all), split(m.config_text(), each, 2);
  ASSERT_TRUE(stacked.layer && split.layer);
  const std::vector<std::byte> out = stacked.run(m.layer);
  EXPECT_LE(rms_from_reference(m, out), bound_of(m)) << moe_selection_kernel(stacked.selection.get());
  EXPECT_EQ(split.run(m.layer), out);
  const auto row = static_cast<std::ptrdiff_t>(out.size()) / m.layer.T;
  for (std::int64_t t = 0; t < m.layer.T; ++t)
    EXPECT_EQ(stacked.run(m.layer, t, 1), std::vector<std::byte>(out.begin() + t * row, out.begin() + (t + 1) * row))
        << t;
}

TEST_P(Float4, EveryInstructionSetGivesTheSameBits) {
  const Float4Model m = random_float4(GetParam().model, 7);
  const std::vector<OwnedTensor> roles = stacked_roles(m);
  std::vector<std::byte> first;
  for (const PlatformPtr& p : capped_platforms({"scalar", "avx2", "avxvnni", "avx512vnni", "amxint8"})) {
    const Float8Layer layer(m.config_text(), roles, 2, p.get());
    ASSERT_TRUE(layer.layer);
    const std::vector<std::byte> out = layer.run(m.layer);
    if (first.empty()) first = out;
    EXPECT_EQ(out, first) << moe_selection_kernel(layer.selection.get());
  }
  EXPECT_LE(rms_from_reference(m, first), bound_of(m));
}

TEST_P(Float4, SavedAndLoadedAndBackToNumbers) {
  const Float4Model m = random_float4(GetParam().model, 3);
  const std::int64_t H = m.layer.H, I = m.layer.I;
  const std::vector<OwnedTensor> roles = stacked_roles(m);
  const Float8Layer layer(m.config_text(), roles);
  ASSERT_TRUE(layer.packed);
  const TempDir dir;
  const std::string file = dir.file("layer.moe");
  ASSERT_EQ(
      failure([&](moe_error** e) { return moe_packed_save(layer.packed.get(), file.c_str(), 0, nullptr, e); }).status,
      MOE_OK);
  const PackedPtr again = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
    return moe_packed_load(nullptr, file.c_str(), MOE_LOAD_VERIFY, nullptr, o, e);
  });
  ASSERT_TRUE(again);
  const std::int64_t rows = I * (m.gated() ? 2 : 1);
  std::vector<float> w13(static_cast<std::size_t>(rows * H)), w2(static_cast<std::size_t>(H * I));
  for (std::int64_t e = 0; e < m.layer.E; ++e) {
    const auto i = static_cast<std::size_t>(e);
    const moe_tensor out13 = tensor(MOE_DTYPE_F32, {rows, H}, w13.data()),
                     out2 = tensor(MOE_DTYPE_F32, {H, I}, w2.data());
    ASSERT_EQ(moe_packed_dequantize(again.get(), "w13_weight", e, &out13, nullptr), MOE_OK);
    ASSERT_EQ(moe_packed_dequantize(again.get(), "w2_weight", e, &out2, nullptr), MOE_OK);
    for (std::int64_t r = 0; r < rows; ++r) {
      const Float4Matrix& w = r < I && m.gated() ? m.gate[i] : m.up[i];
      for (std::int64_t c = 0; c < H; ++c)  // numbers of few bits times powers of two
        ASSERT_EQ(w13[static_cast<std::size_t>(r * H + c)], static_cast<float>(w.at(r % I, c))) << r << "," << c;
    }
    for (std::int64_t r = 0; r < H; ++r)
      for (std::int64_t c = 0; c < I; ++c)
        ASSERT_EQ(w2[static_cast<std::size_t>(r * I + c)], static_cast<float>(m.down[i].at(r, c))) << r << "," << c;
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, Float4, ::testing::ValuesIn(cases()),
                         [](const auto& test) { return std::string(test.param.name); });

// --- golden layers ----------------------------------------------------------------------------------------

struct Golden {
  const char *file, *scheme, *format, *activation;
  bool bias;
  std::vector<GoldenRole> roles;
};

TEST(Float4Golden, WeightOnlyLayers) {
  const std::vector<GoldenRole> factors = {
      {"w13", "w13"}, {"w13_scale", "w13_scale"}, {"w13_scale_2", "w13_scale_2"}, {"w13_input_scale", "a13_scale"},
      {"w2", "w2"},   {"w2_scale", "w2_scale"},   {"w2_scale_2", "w2_scale_2"},   {"w2_input_scale", "a2_scale"}};
  for (const Golden& g : {Golden{"mxfp4_gptoss", "MXFP4A16", "mxfp4-gpt-oss", "swigluoai", true, kGptOssRoles},
                          Golden{"nvfp4", "NVFP4", "nvfp4-pack-quantized", "silu", false, kDivisorRoles},
                          Golden{"nvfp4_nongated", "NVFP4", "nvfp4-pack-quantized", "relu2_no_mul", false, factors}}) {
    const VecFile f = load_vectors(std::string("float/") + g.file + ".safetensors");
    const VecTensor &x = f.at("x"), &ids = f.at("topk_ids"), &w2 = f.at(g.roles[g.bias ? 3 : 4].tensor);
    for (const std::string dtype : {"bfloat16", "float32"}) {
      SCOPED_TRACE(std::string(g.file) + " " + dtype);
      Float8Model m = {.E = w2.shape[0], .H = x.shape[1], .K = ids.shape[1], .T = x.shape[0], .dtype = dtype};
      m.x = x.floats();
      m.ids = ids.as<std::int32_t>();
      m.weights = f.at("topk_weights").floats();
      const std::int64_t packed = w2.shape.size() == 4 ? w2.shape[2] * 16 : w2.shape[2];
      const json config = {
          {"num_experts", m.E},         {"top_k", m.K},
          {"hidden_dim", m.H},          {"intermediate_size", packed * 2},
          {"activation", g.activation}, {"has_bias", g.bias},
          {"in_dtype", dtype},          {"quantization", {{"scheme", g.scheme}, {"format", g.format}}}};
      std::vector<OwnedTensor> roles;
      for (const GoldenRole& r : g.roles) {
        const VecTensor& t = f.at(r.tensor);
        roles.push_back({r.role, -1, "", static_cast<moe_dtype>(t.dtype), t.shape, t.data});
      }
      const Float8Layer layer(config.dump(), roles, 2);
      ASSERT_TRUE(layer.layer);
      const std::vector<float> got = floats_of(layer.run(m), m.io_type());
      EXPECT_LE(relative_rms(got, f.at(dtype == "float32" ? "yx_w4a16" : "y_w4a16").floats()),
                dtype == "float32" ? 1e-5 : 8e-3);
    }
  }
}

// --- files ----------------------------------------------------------------------------------------------

json compressed_tensors(bool nv, bool activations) {
  json weights = {
      {"num_bits", 4},     {"type", "float"}, {"strategy", nv ? "tensor_group" : "group"}, {"group_size", nv ? 16 : 32},
      {"symmetric", true}, {"dynamic", false}};
  json inputs = weights;
  if (nv)
    inputs["dynamic"] = "local";
  else
    inputs["dynamic"] = true;
  return {{"quant_method", "compressed-tensors"},
          {"format", nv ? "nvfp4-pack-quantized" : "mxfp4-pack-quantized"},
          {"config_groups",
           {{"group_0",
             {{"targets", {"Linear"}}, {"weights", weights}, {"input_activations", activations ? inputs : json()}}}}},
          {"ignore", json::array()}};
}
json modelopt(const char* algorithm) { return {{"quant_method", "modelopt"}, {"quant_algo", algorithm}}; }

struct FileCase {
  const char* name;
  Float4Model model;
  Float4Names names;  // weight "": stacks
  json quantization;  // hf_quantization_config; null: the strict form
};

std::vector<FileCase> files() {
  const Float8Model gpt_oss = {.activation = "swigluoai", .bias = true};
  return {
      {"llmcompressor_mxfp4", mx(), kLlmcompressorMx, compressed_tensors(false, true)},
      {"llmcompressor_mxfp4a16", mx(), kLlmcompressorMx, compressed_tensors(false, false)},
      {"llmcompressor_gpt_oss", mx(gpt_oss), kLlmcompressorMx, compressed_tensors(false, true)},
      {"deepseek_v4", mx(), kDeepSeekMx, json()},
      {"gpt_oss", {.layer = gpt_oss, .format = "mxfp4-gpt-oss"}, {}, {{"quant_method", "mxfp4"}}},
      {"stack_of_gate_above_up", {.layer = {.bias = true}, .format = "mxfp4-gpt-oss"}, {}, json()},
      {"llmcompressor_nvfp4", nv(), kLlmcompressorNv, compressed_tensors(true, true)},
      {"llmcompressor_nvfp4a16", nv(), kLlmcompressorNv, compressed_tensors(true, false)},
      {"modelopt_nvfp4", nv(), kModelOptNv, modelopt("NVFP4")},
      {"modelopt_w4a16_nvfp4", nv({.bias = true}), kModelOptNv, modelopt("W4A16_NVFP4")},
      {"modelopt_nvfp4_ungated", nv({.activation = "relu2_no_mul"}), kModelOptNv, modelopt("NVFP4")},
  };
}

// The config of a model that says how its file was made.
std::string file_config(const Float4Model& given, const json& quantization) {
  Float4Model m = given;
  if (!quantization.is_null()) m.layer.more["hf_quantization_config"] = quantization;
  m.layer.more["name"] = kModule;
  return m.config_text();
}
std::vector<OwnedTensor> tensors_of(const Float4Model& m, const Float4Names& names) {
  return names.weight.empty() ? gpt_oss_tensors(m, kModule) : named_tensors(m, kModule, names);
}

void PrintTo(const FileCase& c, std::ostream* out) { *out << c.name; }

class Float4Files : public ::testing::TestWithParam<FileCase> {};

TEST_P(Float4Files, GiveTheBytesOfTheirRoles) {
  const FileCase& c = GetParam();
  const Float4Model m = random_float4(c.model, 11);
  const ConfigPtr config = make_config(file_config(m, c.quantization));
  ASSERT_TRUE(config);
  const std::vector<OwnedTensor> tensors = tensors_of(m, c.names), roles = stacked_roles(m);
  const TempDir dir;
  dir.write("model.safetensors", safetensors_of(tensors));
  expect_one_way_as_the_other(config.get(), dir, tensors, roles);
}

// Newer writers say what the codes are, two a byte.
TEST_P(Float4Files, MayHaveCodesUnderTheirOwnType) {
  const FileCase& c = GetParam();
  const Float4Model m = random_float4(c.model, 13);
  std::vector<OwnedTensor> tensors = tensors_of(m, c.names);
  const TempDir as_codes;
  for (OwnedTensor& t : tensors) {
    const bool weight = t.name.ends_with("weight") || t.name.ends_with("weight_packed") || t.name.ends_with("_blocks");
    if (!weight) continue;
    t.dtype = MOE_DTYPE_F4_E2M1FN;
    t.shape.back() *= 2;
  }
  as_codes.write("model.safetensors", safetensors_of(tensors));
  const ConfigPtr config = make_config(file_config(m, c.quantization));
  ASSERT_TRUE(config);
  expect_one_way_as_the_other(config.get(), as_codes, tensors, stacked_roles(m));
  // Rows of codes that end within a byte.
  for (OwnedTensor& t : tensors) {
    if (t.dtype != MOE_DTYPE_F4_E2M1FN) continue;
    t.shape.back() -= 1;
    std::size_t codes = 1;
    for (const std::int64_t d : t.shape) codes *= static_cast<std::size_t>(d);
    t.bytes.resize(codes / 2);
  }
  const TempDir odd;
  odd.write("model.safetensors", safetensors_of(tensors));
  EXPECT_NE(load(weights_of(config.get()).get(), odd).status, MOE_OK);
}

// What a rank packed of `expert`: rows [first13, ...) of gate and up, columns [first2, ...) of down.
void expect_part(const moe_packed* p, const Float4Model& m, std::int64_t expert, std::int64_t first,
                 std::int64_t count) {
  const auto e = static_cast<std::size_t>(expert);
  const std::int64_t H = m.layer.H, halves = m.gated() ? 2 : 1;
  std::vector<float> w13(static_cast<std::size_t>(halves * count * H)), w2(static_cast<std::size_t>(H * count));
  const moe_tensor out13 = tensor(MOE_DTYPE_F32, {halves * count, H}, w13.data()),
                   out2 = tensor(MOE_DTYPE_F32, {H, count}, w2.data());
  ASSERT_EQ(moe_packed_dequantize(p, "w13_weight", expert, &out13, nullptr), MOE_OK);
  ASSERT_EQ(moe_packed_dequantize(p, "w2_weight", expert, &out2, nullptr), MOE_OK);
  for (std::int64_t r = 0; r < count; ++r)
    for (std::int64_t k = 0; k < H; ++k) {
      if (m.gated()) {
        ASSERT_EQ(w13[static_cast<std::size_t>(r * H + k)], static_cast<float>(m.gate[e].at(first + r, k)));
      }
      ASSERT_EQ(w13[static_cast<std::size_t>(((halves - 1) * count + r) * H + k)],
                static_cast<float>(m.up[e].at(first + r, k)));
      ASSERT_EQ(w2[static_cast<std::size_t>(k * count + r)], static_cast<float>(m.down[e].at(k, first + r)));
    }
}

// Matrices of a tensor-parallel rank are rows and columns of the whole ones, and its outputs add up.
TEST_P(Float4Files, RanksReadTheirPart) {
  const FileCase& c = GetParam();
  Float4Model m = c.model;
  m.layer.I = 192;
  m = random_float4(std::move(m), 12);
  const std::vector<OwnedTensor> tensors = tensors_of(m, c.names);
  const TempDir dir;
  dir.write("model.safetensors", safetensors_of(tensors));
  std::vector<double> sum(static_cast<std::size_t>(m.layer.T * m.layer.H));
  for (const int rank : {0, 1}) {
    Float4Model part = m;
    part.layer.more["parallel"] = {{"tp_size", 2}, {"tp_rank", rank}};
    for (const bool named : {false, true}) {
      const ConfigPtr config = make_config(file_config(part, c.quantization));
      ASSERT_TRUE(config);
      const SelectionPtr selection = make_selection(config.get());
      ASSERT_TRUE(selection);
      const WeightsPtr weights = weights_of(config.get());
      std::int32_t taken = 0;
      if (named)
        for (const OwnedTensor& t : tensors) ASSERT_EQ(set_named(weights.get(), t, taken).status, MOE_OK) << t.name;
      else
        ASSERT_EQ(load(weights.get(), dir).status, MOE_OK);
      const PackedPtr p = packed_of(selection.get(), weights.get());
      ASSERT_TRUE(p);
      expect_part(p.get(), m, 1, rank * m.layer.I / 2, m.layer.I / 2);
      if (named) continue;
      const ContextPtr context = make_context("{\"threads\":1}");
      const LayerPtr layer = make<LayerPtr>([&](moe_layer** o, moe_error** e) {
        return moe_layer_create(context.get(), selection.get(), p.get(), nullptr, o, e);
      });
      ASSERT_TRUE(layer);
      const std::vector<std::byte> x = in_dtype(m.layer.x, m.layer.io_type());
      const std::vector<float> out = floats_of(apply_topk(layer.get(), {.dtype = m.layer.io_type(),
                                                                        .count = m.layer.T,
                                                                        .H = m.layer.H,
                                                                        .K = m.layer.K,
                                                                        .x = x.data(),
                                                                        .ids = m.layer.ids.data(),
                                                                        .weights = m.layer.weights.data()}),
                                               m.layer.io_type());
      for (std::size_t i = 0; i < out.size(); ++i) sum[i] += static_cast<double>(out[i]);
    }
  }
  const std::vector<float> summed(sum.begin(), sum.end());
  EXPECT_LE(relative_rms(summed, m.reference()), 8e-3);
}

TEST_P(Float4Files, ExpertParallelRanksReadTheirExperts) {
  const FileCase& c = GetParam();
  Float4Model m = c.model;
  m.layer.E = 4;
  m = random_float4(std::move(m), 13);
  const TempDir dir;
  dir.write("model.safetensors", safetensors_of(tensors_of(m, c.names)));
  for (const int rank : {0, 1}) {
    Float4Model part = m;
    part.layer.more["parallel"] = {{"tp_size", 2}, {"tp_rank", rank}, {"enable_expert_parallel", true}};
    const ConfigPtr config = make_config(file_config(part, c.quantization));
    ASSERT_TRUE(config);
    const SelectionPtr selection = make_selection(config.get());
    ASSERT_TRUE(selection);
    const WeightsPtr weights = weights_of(config.get());
    const Failure loaded = load(weights.get(), dir);
    ASSERT_EQ(loaded.status, MOE_OK) << loaded.message;
    const PackedPtr p = packed_of(selection.get(), weights.get());
    ASSERT_TRUE(p);
    for (const int e : {0, 1}) expect_part(p.get(), m, 2 * rank + e, 0, m.layer.I);
  }
}

INSTANTIATE_TEST_SUITE_P(Tools, Float4Files, ::testing::ValuesIn(files()),
                         [](const auto& test) { return std::string(test.param.name); });

// --- what is refused --------------------------------------------------------------------------------------

OwnedTensor& named(std::vector<OwnedTensor>& all, const std::string& end) {
  return *std::find_if(all.begin(), all.end(), [&](const OwnedTensor& t) { return t.name.ends_with(end); });
}
void retype(OwnedTensor& t, moe_dtype type, std::vector<std::int64_t> shape, std::size_t bytes) {
  t.dtype = type, t.shape = std::move(shape), t.bytes.assign(bytes, std::byte{0});
}
template <class T>
void put(OwnedTensor& t, std::size_t index, T value) {
  std::memcpy(t.bytes.data() + index * sizeof(T), &value, sizeof(T));
}

struct BadFile {
  const char *what, *file;  // of files()
  void (*spoil)(std::vector<OwnedTensor>& tensors);
  moe_status status;
  const char* subject;
};

const BadFile kBad[] = {
    {"codes of floats", "llmcompressor_mxfp4",
     [](auto& t) { named(t, "1.up_proj.weight_packed").dtype = MOE_DTYPE_F8_E4M3FN; }, MOE_ERR_DTYPE,
     ".1.up_proj.weight_packed"},
    {"a column too few", "llmcompressor_mxfp4",
     [](auto& t) {
       retype(named(t, "1.up_proj.weight_packed"), MOE_DTYPE_U8, {128, 127}, 128 * 127);
     },
     MOE_ERR_SHAPE, ".1.up_proj.weight_packed"},
    {"scales of floats", "llmcompressor_mxfp4",
     [](auto& t) { named(t, "1.up_proj.weight_scale").dtype = MOE_DTYPE_F8_E4M3FN; }, MOE_ERR_DTYPE,
     ".1.up_proj.weight_scale"},
    {"scales of other groups", "deepseek_v4",
     [](auto& t) {
       retype(named(t, "1.down_proj.scale"), MOE_DTYPE_U8, {256, 8}, 2048);
     },
     MOE_ERR_SHAPE, ".1.down_proj.scale"},
    {"both names", "deepseek_v4",
     [](auto& t) {
       t.push_back(named(t, "1.up_proj.weight"));
       t.back().name = std::string(kModule) + ".1.up_proj.weight_packed";
     },
     MOE_ERR_UNEXPECTED_WEIGHT, ".1.up_proj.weight_packed"},
    {"scales of the other format", "llmcompressor_nvfp4",
     [](auto& t) { named(t, "1.up_proj.weight_scale").dtype = MOE_DTYPE_U8; }, MOE_ERR_DTYPE,
     ".1.up_proj.weight_scale"},
    {"two scales of a tensor", "llmcompressor_nvfp4",
     [](auto& t) { retype(named(t, "1.up_proj.weight_global_scale"), MOE_DTYPE_F32, {2}, 8); }, MOE_ERR_SHAPE,
     ".1.up_proj.weight_global_scale"},
    {"a scale of bf16", "modelopt_nvfp4",
     [](auto& t) { retype(named(t, "1.up_proj.weight_scale_2"), MOE_DTYPE_BF16, {}, 2); }, MOE_ERR_DTYPE,
     ".1.up_proj.weight_scale_2"},
    {"both forms", "modelopt_nvfp4",
     [](auto& t) {
       t.push_back(named(t, "1.up_proj.weight_scale_2"));
       t.back().name = std::string(kModule) + ".1.up_proj.weight_global_scale";
     },
     MOE_ERR_UNEXPECTED_WEIGHT, ""},
    {"a form for gate and another for up", "modelopt_nvfp4",
     [](auto& t) {
       named(t, "1.up_proj.weight_scale_2").name = std::string(kModule) + ".1.up_proj.weight_global_scale";
     },
     MOE_ERR_UNEXPECTED_WEIGHT, ""},
    {"an input scale of 16-bit activations", "modelopt_w4a16_nvfp4",
     [](auto& t) {
       t.push_back(named(t, "0.up_proj.weight_scale_2"));
       t.back().name = std::string(kModule) + ".0.up_proj.input_scale";
     },
     MOE_ERR_UNEXPECTED_WEIGHT, ".0.up_proj.input_scale"},
    {"a bias", "modelopt_nvfp4",
     [](auto& t) {
       t.push_back(
           {std::string(kModule) + ".0.up_proj.bias", -1, "", MOE_DTYPE_F32, {128}, std::vector<std::byte>(512)});
     },
     MOE_ERR_UNEXPECTED_WEIGHT, ".0.up_proj.bias"},
    {"a stack of too few experts", "gpt_oss",
     [](auto& t) {
       retype(named(t, "up_proj_scales"), MOE_DTYPE_U8, {2, 256, 8}, 4096);
     },
     MOE_ERR_SHAPE, ".gate_up_proj_scales"},
    {"blocks of another size", "gpt_oss",
     [](auto& t) {
       retype(named(t, "up_proj_blocks"), MOE_DTYPE_U8, {3, 256, 4, 32}, 3 * 256 * 128);
     },
     MOE_ERR_SHAPE, ".gate_up_proj_blocks"},
    {"rows of gate alone", "gpt_oss",
     [](auto& t) {
       retype(named(t, "up_proj_bias"), MOE_DTYPE_F32, {3, 128}, 3 * 512);
     },
     MOE_ERR_SHAPE, ".gate_up_proj_bias"},
    {"a tensor that no stack has", "gpt_oss",
     [](auto& t) {
       t.push_back(named(t, "up_proj_scales"));
       t.back().name = std::string(kModule) + ".gate_up_proj_zeros";
     },
     MOE_ERR_UNEXPECTED_WEIGHT, ".gate_up_proj_zeros"},
};

TEST(Float4Refusals, Files) {
  const std::vector<FileCase> all = files();
  for (const BadFile& bad : kBad) {
    SCOPED_TRACE(bad.what);
    const FileCase& c =
        *std::find_if(all.begin(), all.end(), [&](const FileCase& f) { return std::string(f.name) == bad.file; });
    const Float4Model m = random_float4(c.model, 13);
    const ConfigPtr config = make_config(file_config(m, c.quantization));
    ASSERT_TRUE(config);
    std::vector<OwnedTensor> tensors = tensors_of(m, c.names);
    bad.spoil(tensors);
    const TempDir dir;
    dir.write("model.safetensors", safetensors_of(tensors));
    const WeightsPtr weights = weights_of(config.get());
    const Failure f = load(weights.get(), dir);
    EXPECT_EQ(f.status, bad.status) << f.message;
    if (*bad.subject != '\0') {
      EXPECT_EQ(f.subject, std::string(kModule) + bad.subject);
    }
  }
}

TEST(Float4Refusals, TensorsThatAreMissing) {
  struct Missing {
    bool nv;
    const char *role, *shard, *subject;
  };
  for (const Missing& gone :
       {Missing{false, "w13_scale", "w3", "w13_scale[1].w3"}, Missing{true, "w13_scale", "w1", "w13_scale[1].w1"},
        Missing{true, "w13_global_scale", "w3", "w13_global_scale[1].w3"},
        Missing{true, "w2_global_scale", "w2", "w2_scale_2[1]"}}) {
    const Float4Model m = random_float4(gone.nv ? nv() : mx(), 13);
    std::vector<OwnedTensor> roles = expert_roles(m, true);
    std::erase_if(roles,
                  [&](const OwnedTensor& t) { return t.expert == 1 && t.shard == gone.shard && t.name == gone.role; });
    const Failure f = conversion_failure(m.config_text(), roles);
    EXPECT_EQ(f.status, MOE_ERR_MISSING_WEIGHT);
    EXPECT_EQ(f.subject, gone.subject) << f.message;
  }
}

// Both forms of one matrix, however they come.
TEST(Float4Refusals, TwoFormsOfOneScale) {
  const Float4Model m = random_float4(w4a4(nv()), 14);
  const std::vector<float> ones3 = {1, 1, 1}, one = {1};
  const auto then = [&](std::vector<OwnedTensor> roles, OwnedTensor second) {
    roles.push_back(std::move(second));
    const ConfigPtr config = make_config(m.config_text());
    const WeightsPtr weights = weights_of(config.get());
    return set_roles(weights.get(), roles);
  };
  const OwnedTensor stacked{"w13_global_scale", -1, "", MOE_DTYPE_F32, {3}, bytes_of(ones3)},
      of_one{"w13_global_scale", 1, "w1", MOE_DTYPE_F32, {1}, bytes_of(one)},
      factor{"w2_scale_2", 2, "w2", MOE_DTYPE_F32, {}, bytes_of(one)},
      input{"w2_input_scale", -1, "", MOE_DTYPE_F32, {3}, bytes_of(ones3)};
  struct Try {
    std::vector<OwnedTensor> roles;
    OwnedTensor second;
    const char* subject;
  };
  OwnedTensor inverse = input;
  inverse.name = "w2_input_global_scale";
  std::vector<OwnedTensor> with_input = stacked_roles(m);
  with_input.push_back(input);
  for (const Try& t :
       {Try{stacked_roles(m), stacked, "w13_global_scale"}, Try{stacked_roles(m), of_one, "w13_global_scale[1].w1"},
        Try{expert_roles(m), of_one, "w13_global_scale[1].w1"}, Try{expert_roles(m, true), factor, "w2_scale_2[2]"},
        Try{with_input, inverse, "w2_input_global_scale"}}) {
    const Failure f = then(t.roles, t.second);
    EXPECT_EQ(f.status, MOE_ERR_UNEXPECTED_WEIGHT) << f.message;
    EXPECT_EQ(f.subject, t.subject);
  }
  const ConfigPtr mx_config = make_config(random_float4(mx(), 1).config_text());
  const WeightsPtr weights = weights_of(mx_config.get());
  EXPECT_EQ(set_roles(weights.get(), {stacked}).status, MOE_ERR_UNEXPECTED_WEIGHT);
}

TEST(Float4Refusals, ScalesThatAreNoNumbers) {
  const auto spoiled = [&](const Float4Model& given, bool divisors, const std::string& role, auto spoil) {
    const Float4Model m = random_float4(given, 15);
    std::vector<OwnedTensor> roles = stacked_roles(m, divisors);
    spoil(named(roles, role));
    const Failure f = conversion_failure(m.config_text(), roles);
    EXPECT_EQ(f.status, MOE_ERR_INVALID_ARGUMENT) << f.message;
    return f.subject;
  };
  const auto byte = [](std::size_t i, int code) {
    return [=](OwnedTensor& t) { put(t, i, static_cast<std::uint8_t>(code)); };
  };
  EXPECT_EQ(spoiled(mx(), false, "w13_scale", byte(2048 + 5 * 8 + 3, 255)), "w13_scale[1,5,3]");
  EXPECT_EQ(spoiled(mx(), false, "w2_scale", byte(2 * 1024 + 7 * 4 + 2, 255)), "w2_scale[2,7,2]");
  for (const int code : {0x7f, 0xff, 0x81, 0xb8, 0xfe}) {  // NaNs, and numbers below 0
    EXPECT_EQ(spoiled(nv(), false, "w13_scale", byte(5 * 16 + 3, code)), "w13_scale[0,5,3]");
    EXPECT_EQ(spoiled(nv(), false, "w2_scale", byte(2 * 2048 + 255 * 8 + 7, code)), "w2_scale[2,255,7]");
  }
  for (const float bad : {kNaN, kInf, -kInf, -1.0f, -1e-30f}) {
    const auto number = [&](std::size_t i) { return [=](OwnedTensor& t) { put(t, i, bad); }; };
    EXPECT_EQ(spoiled(nv(), false, "w13_scale_2", number(3)), "w13_scale_2[1,1]");
    EXPECT_EQ(spoiled(nv(), false, "w2_scale_2", number(2)), "w2_scale_2[2,0]");
    EXPECT_EQ(spoiled(nv(), true, "w13_global_scale", number(4)), "w13_global_scale[2,0]");
    EXPECT_EQ(spoiled(nv(), true, "w2_global_scale", number(0)), "w2_global_scale[0,0]");
  }
  for (const float bad : {0.0f, -0.0f, 1e-39f})
    EXPECT_EQ(spoiled(nv(), true, "w2_global_scale", [&](OwnedTensor& t) { put(t, 1, bad); }), "w2_global_scale[1,0]");
}

// Dead experts have scales of 0 (or -0), codes may be -0, and the smallest power of two is a number.
TEST(Float4, ScalesOfZeroAndTheSmallestPowerAreFine) {
  Float4Model m = random_float4(mx({.E = 4}), 16);  // the last expert is as ever
  for (Float4Matrix* w : {&m.gate[0], &m.up[1], &m.down[2]})
    std::fill(w->scales.begin(), w->scales.end(), std::ldexp(1.0f, -127));
  std::fill(m.up[0].codes.begin(), m.up[0].codes.end(), std::uint8_t{8});
  const std::vector<OwnedTensor> roles = stacked_roles(m);
  const Float8Layer small(m.config_text(), roles);
  ASSERT_TRUE(small.layer);
  EXPECT_LE(rms_from_reference(m, small.run(m.layer)), 8e-3);
  Float4Model z = random_float4(nv({.E = 4}), 16);
  std::fill(z.gate[0].scales.begin(), z.gate[0].scales.end(), 0.0f);
  std::fill(z.down[1].scales.begin(), z.down[1].scales.end(), -0.0f);
  z.down[2].tensor_scale = 0.0f;
  const std::vector<OwnedTensor> zeros = stacked_roles(z);
  const Float8Layer zero(z.config_text(), zeros);
  ASSERT_TRUE(zero.layer);
  EXPECT_LE(rms_from_reference(z, zero.run(z.layer)), 8e-3);
}

// Gate's and up's own scales, in either order of rows, and one for both.
TEST(Float4, ScalesOfGateAndUpThatDiffer) {
  Float4Model m = random_float4(nv({.H = 128, .I = 64}), 17);
  for (Float4Matrix& w : m.up) w.tensor_scale *= 4.0f;
  ASSERT_NE(m.gate[0].tensor_scale, m.up[0].tensor_scale);
  const std::vector<OwnedTensor> each = expert_roles(m);
  const Float8Layer plain(m.config_text(), each);
  ASSERT_TRUE(plain.layer);
  std::vector<OwnedTensor> swapped = stacked_roles(m);
  for (OwnedTensor& t : swapped) {
    if (!t.name.starts_with("w13")) continue;
    const std::size_t expert = t.bytes.size() / 3;
    for (std::size_t e = 0; e < 3; ++e) {
      const auto first = t.bytes.begin() + static_cast<std::ptrdiff_t>(e * expert);
      std::rotate(first, first + static_cast<std::ptrdiff_t>(expert / 2), first + static_cast<std::ptrdiff_t>(expert));
    }
  }
  Float4Model told = m;
  told.layer.more["w13_layout"] = "up_gate";
  const Float8Layer other(told.config_text(), swapped);
  ASSERT_TRUE(other.layer);
  EXPECT_EQ(other.run(m.layer), plain.run(m.layer));

  Float4Model same = m;
  for (std::size_t e = 0; e < 3; ++e) same.up[e].tensor_scale = same.gate[e].tensor_scale;
  std::vector<OwnedTensor> one = stacked_roles(same), two = stacked_roles(same);
  OwnedTensor& t = named(one, "w13_scale_2");
  std::vector<std::byte> firsts;
  for (std::size_t e = 0; e < 3; ++e)
    firsts.insert(firsts.end(), t.bytes.begin() + static_cast<std::ptrdiff_t>(8 * e),
                  t.bytes.begin() + static_cast<std::ptrdiff_t>(8 * e + 4));
  t.shape = {3}, t.bytes = firsts;
  const Float8Layer shared(same.config_text(), one), own(same.config_text(), two);
  ASSERT_TRUE(shared.layer && own.layer);
  EXPECT_EQ(shared.run(m.layer), own.run(m.layer));
}

// Optional, as 16-bit activations need no scale, and looked at all the same.
TEST(Float4, InputScalesAreCheckedAndNotUsed) {
  const Float4Model m = random_float4(w4a4(nv()), 18);
  const std::vector<OwnedTensor> roles = stacked_roles(m);
  const Float8Layer without(m.config_text(), roles);
  ASSERT_TRUE(without.layer);
  const auto given = [&](const char* role, std::vector<std::int64_t> shape, std::vector<float> values) {
    std::vector<OwnedTensor> all = roles;
    all.push_back({role, -1, "", MOE_DTYPE_F32, std::move(shape), bytes_of(values)});
    return all;
  };
  for (const auto& all : {given("w13_input_scale", {3, 2}, {1, 2, 3, 4, 5, 6}),
                          given("w13_input_global_scale", {3}, {1, 2, 3}), given("w2_input_scale", {3}, {1, 0, 3})}) {
    const Float8Layer with_scales(m.config_text(), all);
    ASSERT_TRUE(with_scales.layer);
    EXPECT_EQ(with_scales.run(m.layer), without.run(m.layer));
  }
  const auto subject = [&](const std::vector<OwnedTensor>& all) {
    return conversion_failure(m.config_text(), all).subject;
  };
  EXPECT_EQ(subject(given("w13_input_scale", {3, 2}, {1, 2, 3, 4, 5, kInf})), "w13_input_scale[2,1]");
  EXPECT_EQ(subject(given("w13_input_global_scale", {3, 2}, {1, 2, 3, 0, 5, 6})), "w13_input_global_scale[1,1]");
  EXPECT_EQ(subject(given("w2_input_global_scale", {3}, {1, 2, kNaN})), "w2_input_global_scale[2,0]");
}

// Codes as their own type, and in gpt-oss's blocks.
TEST(Float4, CodesMayComeAsTheirOwnType) {
  const Float4Model m = random_float4(mx(), 19);
  const std::vector<OwnedTensor> plain = stacked_roles(m);
  std::vector<OwnedTensor> typed = plain, blocks = plain, odd = plain;
  for (const char* role : {"w13_weight", "w2_weight"}) {
    named(typed, role).dtype = MOE_DTYPE_F4_E2M1FN;
    named(typed, role).shape.back() *= 2;
    named(blocks, role).shape.back() /= 16;
    named(blocks, role).shape.push_back(16);
  }
  for (const char* role : {"w13_scale", "w2_scale"}) named(typed, role).dtype = MOE_DTYPE_F8_E8M0FNU;
  const Float8Layer a(m.config_text(), plain), b(m.config_text(), typed), c(m.config_text(), blocks);
  ASSERT_TRUE(a.layer && b.layer && c.layer);
  EXPECT_EQ(b.run(m.layer), a.run(m.layer));
  EXPECT_EQ(c.run(m.layer), a.run(m.layer));
  named(odd, "w13_weight").dtype = MOE_DTYPE_F4_E2M1FN;  // half of the columns
  const ConfigPtr config = make_config(m.config_text());
  const WeightsPtr weights = weights_of(config.get());
  EXPECT_EQ(set_roles(weights.get(), odd).status, MOE_ERR_SHAPE);
}

// A cut within a group or a byte.
TEST(Float4Refusals, RanksThatWouldCutAGroup) {
  struct Cut {
    bool nv;
    std::int64_t intermediate;
  };
  for (const Cut& c : {Cut{false, 96}, Cut{true, 48}}) {
    Float4Model m = c.nv ? nv({.I = c.intermediate}) : mx({.I = c.intermediate});
    m.layer.more["parallel"] = {{"tp_size", 2}, {"tp_rank", 0}};
    const std::string text = m.config_text();
    const Failure f = failure([&](moe_error** e) {
      moe_config* config = nullptr;
      return moe_config_create(text.data(), text.size(), &config, e);
    });
    EXPECT_EQ(f.status, MOE_ERR_INVALID_CONFIG) << f.message;
  }
}

}  // namespace
}  // namespace moe::test::float4_test
