// FP8 and MXFP8 layers through the ABI: every form of scales against float64, the golden layers, files as each tool
// names and shapes them, tensor-parallel parts, equal bits for every batch and number of threads, and what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "support/float8_model.h"
#include "support/rooms.h"
#include "support/safetensors_writer.h"
#include "support/weight_files.h"

namespace moe::test::float8_test {
namespace {

using nlohmann::json;

constexpr const char* kModule = "model.layers.0.mlp.experts";

double rms_from_reference(const Float8Model& m, const std::vector<std::byte>& out) {
  return relative_rms(floats_of(out, m.io_type()), m.reference());
}

struct Case {
  const char* name;
  Float8Model model;
};

Float8Model with(const ScaleForm& form, Float8Model m = {}) {
  m.form = form;
  if (form.mx) m.scale_type = MOE_DTYPE_U8;
  return m;
}

std::vector<Case> cases() {
  const auto sized = [](const ScaleForm& f, std::int64_t h, std::int64_t i) { return with(f, {.H = h, .I = i}); };
  return {
      {"tensor", with(kOneScale)},
      {"tensor_f16", with(kOneScale, {.scale_type = MOE_DTYPE_F16})},
      {"channel", with(kRowScales)},
      {"channel_bf16", with(kRowScales, {.scale_type = MOE_DTYPE_BF16})},
      {"channel_odd_sizes", sized(kRowScales, 106, 74)},
      {"channel_static", with(kRowScales, {.input_activations = json{{"num_bits", 8}, {"type", "float"}}})},
      {"group", with(kGroupScales)},
      {"block", with(kBlocks128)},
      {"block_e8m0", with(kBlocks128, {.scale_type = MOE_DTYPE_F8_E8M0FNU})},
      {"block_64", with({"block", 64, 64})},
      {"block_32", with({"block", 32, 32})},
      {"block_rows_of_one", with({"block", 1, 128})},
      {"block_rows_of_eight", with({"block", 8, 64})},
      {"block_cut_short", sized(kBlocks128, 200, 128)},
      {"block_wider_than_w2", sized({"block", 64, 128}, 328, 64)},
      {"block_long_w2", sized({"block", 32, 96}, 160, 224)},
      {"mxfp8", with(kMxScales)},
      {"mxfp8_e8m0", with(kMxScales, {.scale_type = MOE_DTYPE_F8_E8M0FNU})},
      {"bias", with(kBlocks128, {.bias = true})},
      {"ungated", with(kRowScales, {.activation = "relu2_no_mul"})},
      {"ungated_tensor", with(kOneScale, {.activation = "relu2_no_mul"})},
      {"float32", with(kBlocks128, {.dtype = "float32"})},
      {"float16", with(kMxScales, {.dtype = "float16"})},
  };
}

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class Float8 : public ::testing::TestWithParam<Case> {};

TEST_P(Float8, FromRolesToTheOutput) {
  Float8Model m = GetParam().model;
  if (m.form.mx && m.scale_type == MOE_DTYPE_F32) m.scale_type = MOE_DTYPE_U8;
  m = random_float8(std::move(m));
  const Float8Layer stacked(m.config_text(), stacked_roles(m)), split(m.config_text(), expert_roles(m), 2);
  ASSERT_TRUE(stacked.layer && split.layer);
  const std::vector<std::byte> out = stacked.run(m);
  EXPECT_LE(rms_from_reference(m, out), m.dtype == "float32" ? 1e-5 : m.dtype == "float16" ? 1e-3 : 8e-3);
  EXPECT_EQ(split.run(m), out);
  const auto row = static_cast<std::ptrdiff_t>(out.size()) / m.T;
  for (std::int64_t t = 0; t < m.T; ++t)
    EXPECT_EQ(stacked.run(m, t, 1), std::vector<std::byte>(out.begin() + t * row, out.begin() + (t + 1) * row)) << t;
}

// On every instruction set of this machine.
TEST_P(Float8, EveryInstructionSetIsClose) {
  Float8Model m = random_float8(GetParam().model, 7);
  for (const PlatformPtr& p : capped_platforms({"scalar", "avx2", "avx512vnni", "avx512bf16", "amxbf16"})) {
    const Float8Layer layer(m.config_text(), stacked_roles(m), 2, p.get());
    ASSERT_TRUE(layer.layer);
    EXPECT_LE(rms_from_reference(m, layer.run(m)), m.dtype == "float32"   ? 1e-5
                                                   : m.dtype == "float16" ? 1e-3
                                                                          : 8e-3)
        << moe_selection_kernel(layer.selection.get());
  }
}

TEST_P(Float8, SavedAndLoadedAndBackToNumbers) {
  const Float8Model m = random_float8(GetParam().model, 3);
  const Float8Layer layer(m.config_text(), stacked_roles(m));
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
  const std::int64_t rows = m.I * (m.gated() ? 2 : 1);
  std::vector<float> w13(static_cast<std::size_t>(rows * m.H)), w2(static_cast<std::size_t>(m.H * m.I));
  for (std::int64_t e = 0; e < m.E; ++e) {
    const auto i = static_cast<std::size_t>(e);
    const moe_tensor out13 = tensor(MOE_DTYPE_F32, {rows, m.H}, w13.data()),
                     out2 = tensor(MOE_DTYPE_F32, {m.H, m.I}, w2.data());
    ASSERT_EQ(moe_packed_dequantize(again.get(), "w13_weight", e, &out13, nullptr), MOE_OK);
    ASSERT_EQ(moe_packed_dequantize(again.get(), "w2_weight", e, &out2, nullptr), MOE_OK);
    for (std::int64_t r = 0; r < rows; ++r) {
      const Float8Matrix& w = r < m.I && m.gated() ? m.gate[i] : m.up[i];
      for (std::int64_t c = 0; c < m.H; ++c)
        ASSERT_EQ(w13[static_cast<std::size_t>(r * m.H + c)], static_cast<float>(w.at(r % m.I, c))) << r << "," << c;
    }
    for (std::int64_t r = 0; r < m.H; ++r)
      for (std::int64_t c = 0; c < m.I; ++c)
        ASSERT_EQ(w2[static_cast<std::size_t>(r * m.I + c)], static_cast<float>(m.down[i].at(r, c))) << r << "," << c;
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, Float8, ::testing::ValuesIn(cases()),
                         [](const auto& test) { return std::string(test.param.name); });

// What rows of w13 that lie otherwise mean for scales that they share.
TEST(Float8Orders, UpBeforeGateAndInterleaved) {
  for (const ScaleForm& form : {kOneScale, kRowScales, ScaleForm{"block", 16, 64}, kMxScales}) {
    Float8Model m = with(form, {.H = 128, .I = 64});
    m = random_float8(std::move(m), 5);
    if (form.strategy == "block")
      for (std::size_t e = 0; e < m.gate.size(); ++e)
        m.up[e].scales = m.gate[e].scales;  // interleaved blocks hold both
    const Float8Layer plain(m.config_text(), expert_roles(m));
    ASSERT_TRUE(plain.layer);
    for (const std::string order : {"up_gate", "interleaved"}) {
      SCOPED_TRACE(form.strategy + " " + order);
      std::vector<OwnedTensor> roles = stacked_roles(m);
      for (OwnedTensor& t : roles) {
        if (t.name.rfind("w13", 0) != 0) continue;
        const auto rows = static_cast<std::size_t>(t.shape[1]),
                   each = t.bytes.size() / rows / static_cast<std::size_t>(m.E);
        const bool shared_block = order == "interleaved" && t.name == "w13_scale" && form.strategy == "block";
        const bool one_each = t.name == "w13_scale" && form.strategy == "tensor";
        std::vector<std::byte> bytes;
        for (std::size_t e = 0; e < static_cast<std::size_t>(m.E); ++e)
          for (std::size_t r = 0; r < rows; ++r) {
            std::size_t from = order == "up_gate" ? (r + rows / 2) % rows : r % 2 * (rows / 2) + r / 2;
            if (shared_block) from = r / 2;  // 32 rows of both: a block of 16 of each, twice
            if (one_each && order == "interleaved") from = r;
            const auto* at = t.bytes.data() + (e * rows + from) * each;
            bytes.insert(bytes.end(), at, at + each);
          }
        t.bytes = std::move(bytes);
      }
      Float8Model told = m;
      told.more["w13_layout"] = order;
      const Float8Layer other(told.config_text(), roles);
      ASSERT_TRUE(other.layer);
      EXPECT_EQ(other.run(m), plain.run(m));
    }
  }
}

// The golden layers of 16-bit activations, with the rounding steps of the reference and without.
TEST(Float8Golden, WeightOnlyLayers) {
  struct Golden {
    const char *file, *scale;
    ScaleForm form;
  };
  for (const Golden& g : {Golden{"fp8_block", "_scale_inv", kBlocks128}, Golden{"mxfp8", "_scale", kMxScales}}) {
    const VecFile f = load_vectors(std::string("float/") + g.file + ".safetensors");
    for (const std::string dtype : {"bfloat16", "float32"}) {
      SCOPED_TRACE(std::string(g.file) + " " + dtype);
      Float8Model m = with(g.form);
      m.dtype = dtype;
      m.E = f.at("w13").shape[0], m.H = f.at("w13").shape[2], m.I = f.at("w2").shape[2], m.T = f.at("x").shape[0];
      m.x = f.at("x").floats();
      m.ids = f.at("topk_ids").as<std::int32_t>();
      m.weights = f.at("topk_weights").floats();
      std::vector<OwnedTensor> roles;
      for (const std::string w : {"w13", "w2"})
        for (const std::string kind : {"", g.scale}) {
          const VecTensor& t = f.at(w + kind);
          roles.push_back(
              {w + (kind.empty() ? "_weight" : kind), -1, "", static_cast<moe_dtype>(t.dtype), t.shape, t.data});
        }
      for (OwnedTensor& t : roles)
        if (t.name.ends_with("_scale_inv")) t.name.insert(t.name.size() - 10, "_weight");
      const Float8Layer layer(m.config_text(), roles, 2);
      ASSERT_TRUE(layer.layer);
      const std::vector<float> got = floats_of(layer.run(m), m.io_type());
      EXPECT_LE(relative_rms(got, f.at(dtype == "float32" ? "yx_w8a16" : "y_w8a16").floats()),
                dtype == "float32" ? 1e-5 : 8e-3);
    }
  }
}

// --- files ----------------------------------------------------------------------------------------------

std::vector<std::int64_t> no_dimension(const Float8Matrix&) { return {}; }
std::vector<std::int64_t> one_dimension(const Float8Matrix& m) { return {m.scale_rows}; }
std::vector<std::int64_t> four_dimensions(const Float8Matrix& m) { return {m.scale_rows, 1, m.scale_columns, 1}; }

struct FileCase {
  const char* name;
  ScaleForm form;
  moe_dtype scale_type;
  const char* scale;
  ScaleShape shape;
  json quantization;          // hf_quantization_config
  const char* usual = scale;  // the name that the tool's own files have
};

json compressed_tensors(const char* format, const ScaleForm& form, bool activations = true) {
  json dynamic = {{"num_bits", 8}, {"type", "float"}, {"strategy", "token"}, {"dynamic", true}};
  if (form.strategy == "block" || form.mx) dynamic["strategy"] = "group", dynamic["group_size"] = form.columns;
  return {{"quant_method", "compressed-tensors"},
          {"format", format},
          {"config_groups",
           {{"group_0",
             {{"targets", {"Linear"}},
              {"weights", form.weights()},
              {"input_activations", activations ? dynamic : json()}}}}},
          {"ignore", json::array()}};
}
json deepseek(std::int64_t n, std::int64_t k) {
  return {{"quant_method", "fp8"}, {"fmt", "e4m3"}, {"activation_scheme", "dynamic"}, {"weight_block_size", {n, k}}};
}
json modelopt(const char* algorithm) { return {{"quant_method", "modelopt"}, {"quant_algo", algorithm}}; }

const FileCase kFiles[] = {
    {"llmcompressor_channel", kRowScales, MOE_DTYPE_BF16, "weight_scale", scale_as_it_is,
     compressed_tensors("float-quantized", kRowScales)},
    {"llmcompressor_tensor", kOneScale, MOE_DTYPE_BF16, "weight_scale", scale_as_it_is,
     compressed_tensors("float-quantized", kOneScale)},
    {"llmcompressor_block", kBlocks128, MOE_DTYPE_BF16, "weight_scale", scale_as_it_is,
     compressed_tensors("float-quantized", kBlocks128)},
    {"naive_tensor", kOneScale, MOE_DTYPE_F32, "weight_scale", no_dimension,
     compressed_tensors("naive-quantized", kOneScale, false)},
    {"naive_channel", kRowScales, MOE_DTYPE_F16, "weight_scale", scale_as_it_is,
     compressed_tensors("naive-quantized", kRowScales, false)},
    {"naive_block",
     {"block", 32, 64},
     MOE_DTYPE_F32,
     "weight_scale",
     scale_as_it_is,
     compressed_tensors("naive-quantized", {"block", 32, 64}, false)},
    {"llmcompressor_mxfp8", kMxScales, MOE_DTYPE_U8, "weight_scale", scale_as_it_is,
     compressed_tensors("mxfp8-quantized", kMxScales)},
    {"deepseek", kBlocks128, MOE_DTYPE_F32, "weight_scale_inv", scale_as_it_is, deepseek(128, 128)},
    {"deepseek_bf16", kBlocks128, MOE_DTYPE_BF16, "weight_scale_inv", scale_as_it_is, deepseek(128, 128)},
    {"deepseek_e8m0", kBlocks128, MOE_DTYPE_F8_E8M0FNU, "weight_scale_inv", scale_as_it_is, deepseek(128, 128)},
    {"deepseek_v4", kBlocks128, MOE_DTYPE_F32, "scale", scale_as_it_is, deepseek(128, 128), "weight_scale_inv"},
    {"deepseek_v4_e8m0", kBlocks128, MOE_DTYPE_F8_E8M0FNU, "scale", scale_as_it_is, deepseek(128, 128),
     "weight_scale_inv"},
    {"deepseek_blocks_of_32", {"block", 32, 32}, MOE_DTYPE_F32, "weight_scale_inv", scale_as_it_is, deepseek(32, 32)},
    {"fp8_tensor",
     kOneScale,
     MOE_DTYPE_F32,
     "weight_scale",
     no_dimension,
     {{"quant_method", "fp8"}, {"activation_scheme", "dynamic"}}},
    {"modelopt_tensor", kOneScale, MOE_DTYPE_F32, "weight_scale", no_dimension, modelopt("FP8")},
    {"modelopt_channel", kRowScales, MOE_DTYPE_F32, "weight_scale", one_dimension,
     modelopt("FP8_PER_CHANNEL_PER_TOKEN")},
    {"modelopt_block", kBlocks128, MOE_DTYPE_F32, "weight_scale", four_dimensions, modelopt("FP8_PB_WO")},
    {"modelopt_block_plain", kBlocks128, MOE_DTYPE_F32, "weight_scale", scale_as_it_is, modelopt("FP8_PB_WO")},
    {"modelopt_block_scales", kBlocks128, MOE_DTYPE_F32, "weight_scale_inv", scale_as_it_is,
     modelopt("FP8_BLOCK_SCALES"), "weight_scale"},
    {"modelopt_mxfp8", kMxScales, MOE_DTYPE_U8, "weight_scale", scale_as_it_is, modelopt("MXFP8")},
};

// The config of a model that says how its file was made.
std::string file_config(const Float8Model& m, const json& quantization) {
  json c = json::parse(m.config_text());
  c.erase("quantization");
  c["hf_quantization_config"] = quantization;
  c["name"] = kModule;
  return c.dump();
}

void PrintTo(const FileCase& c, std::ostream* out) { *out << c.name; }

class Float8Files : public ::testing::TestWithParam<FileCase> {};

TEST_P(Float8Files, GiveTheBytesOfTheirRoles) {
  const FileCase& c = GetParam();
  Float8Model m = with(c.form);
  m.scale_type = c.scale_type;
  m = random_float8(std::move(m), 11);
  const ConfigPtr config = make_config(file_config(m, c.quantization));
  ASSERT_TRUE(config);
  const std::vector<OwnedTensor> tensors = named_tensors(m, kModule, c.scale, c.shape);
  const TempDir dir;
  dir.write("model.safetensors", safetensors_of(tensors));
  expect_one_way_as_the_other(config.get(), dir, tensors, stacked_roles(m));
}

// The model's config.json has the same quantization: the same file is read.
TEST_P(Float8Files, AreReadByTheModelsConfig) {
  const FileCase& c = GetParam();
  Float8Model m = with(c.form);
  m.scale_type = c.scale_type;
  m = random_float8(std::move(m), 13);
  const json hf = {{"architectures", {"Qwen3MoeForCausalLM"}},
                   {"model_type", "qwen3_moe"},
                   {"hidden_size", m.H},
                   {"moe_intermediate_size", m.I},
                   {"num_experts", m.E},
                   {"num_experts_per_tok", m.K},
                   {"num_hidden_layers", 1},
                   {"hidden_act", "silu"},
                   {"norm_topk_prob", true},
                   {"torch_dtype", m.dtype},
                   {"quantization_config", c.quantization}};
  const std::string text = hf.dump();
  const ConfigPtr config = make<ConfigPtr>([&](moe_config** o, moe_error** e) {
    return moe_config_create_from_hf(text.data(), text.size(), nullptr, 0, o, e);
  });
  ASSERT_TRUE(config);
  const ConfigPtr merged = make<ConfigPtr>([&](moe_config** o, moe_error** e) {
    constexpr std::string_view kPatch = R"({"top_k":1})";
    return moe_config_merge(config.get(), kPatch.data(), kPatch.size(), o, e);
  });
  ASSERT_TRUE(merged);
  const TempDir dir;
  dir.write("model.safetensors", safetensors_of(named_tensors(m, kModule, c.scale, c.shape)));
  for (const moe_config* made : {config.get(), merged.get()}) {
    const WeightsPtr weights = weights_of(made);
    const Failure loaded = load(weights.get(), dir);
    EXPECT_EQ(loaded.status, MOE_OK) << loaded.message;
    const SelectionPtr selection = make_selection(made);
    ASSERT_TRUE(selection);
    const PackedPtr p = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
      return moe_convert_weights(nullptr, selection.get(), weights.get(), nullptr, o, e);
    });
    ASSERT_TRUE(p);
    std::vector<float> w2(static_cast<std::size_t>(m.H * m.I));
    const moe_tensor out = tensor(MOE_DTYPE_F32, {m.H, m.I}, w2.data());
    ASSERT_EQ(moe_packed_dequantize(p.get(), "w2_weight", 1, &out, nullptr), MOE_OK);
    for (std::int64_t r = 0; r < m.H; ++r)
      for (std::int64_t k = 0; k < m.I; ++k)
        ASSERT_EQ(w2[static_cast<std::size_t>(r * m.I + k)], static_cast<float>(m.down[1].at(r, k)));
  }
  // What is expected of a file has the file's names.
  const json query = {{"hf_config", hf}};
  const json told = json_of([&](moe_buffer** o, moe_error** e) {
    const std::string q = query.dump();
    return moe_describe("checkpoint", q.data(), q.size(), o, e);
  });
  bool named = false;
  for (const json& t : told["tensors"]) named = named || t["name"] == std::string(kModule) + ".0.up_proj." + c.usual;
  EXPECT_TRUE(named) << told["tensors"].dump();
}

// A tensor-parallel rank's matrices are rows and columns of the whole ones.
TEST_P(Float8Files, RanksReadTheirPart) {
  const FileCase& c = GetParam();
  Float8Model m = with(c.form, {.H = 256, .I = 256});
  m.scale_type = c.scale_type;
  m = random_float8(std::move(m), 12);
  const TempDir dir;
  dir.write("model.safetensors", safetensors_of(named_tensors(m, kModule, c.scale, c.shape)));
  for (const int rank : {0, 1}) {
    Float8Model part = m;
    part.more["parallel"] = {{"tp_size", 2}, {"tp_rank", rank}};
    const ConfigPtr config = make_config(file_config(part, c.quantization));
    ASSERT_TRUE(config);
    const SelectionPtr selection = make_selection(config.get());
    ASSERT_TRUE(selection);
    const WeightsPtr weights = weights_of(config.get());
    const Failure loaded = load(weights.get(), dir);
    ASSERT_EQ(loaded.status, MOE_OK) << loaded.message;
    const PackedPtr p = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
      return moe_convert_weights(nullptr, selection.get(), weights.get(), nullptr, o, e);
    });
    ASSERT_TRUE(p);
    const std::int64_t half = m.I / 2, first = rank * half;
    std::vector<float> w13(static_cast<std::size_t>(2 * half * m.H)), w2(static_cast<std::size_t>(m.H * half));
    const moe_tensor out13 = tensor(MOE_DTYPE_F32, {2 * half, m.H}, w13.data()),
                     out2 = tensor(MOE_DTYPE_F32, {m.H, half}, w2.data());
    ASSERT_EQ(moe_packed_dequantize(p.get(), "w13_weight", 1, &out13, nullptr), MOE_OK);
    ASSERT_EQ(moe_packed_dequantize(p.get(), "w2_weight", 1, &out2, nullptr), MOE_OK);
    for (std::int64_t r = 0; r < half; ++r)
      for (std::int64_t k = 0; k < m.H; ++k) {
        ASSERT_EQ(w13[static_cast<std::size_t>(r * m.H + k)], static_cast<float>(m.gate[1].at(first + r, k)));
        ASSERT_EQ(w13[static_cast<std::size_t>((half + r) * m.H + k)], static_cast<float>(m.up[1].at(first + r, k)));
        ASSERT_EQ(w2[static_cast<std::size_t>(k * half + r)], static_cast<float>(m.down[1].at(k, first + r)));
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Tools, Float8Files, ::testing::ValuesIn(kFiles),
                         [](const auto& test) { return std::string(test.param.name); });

// --- what is refused --------------------------------------------------------------------------------------

struct BadFile {
  const char* what;
  ScaleForm form;
  json quantization;
  void (*spoil)(std::vector<OwnedTensor>& tensors);
  moe_status status;
  const char* subject;
};

OwnedTensor& named(std::vector<OwnedTensor>& all, const std::string& end) {
  return *std::find_if(all.begin(), all.end(), [&](const OwnedTensor& t) { return t.name.ends_with(end); });
}
void retype(OwnedTensor& t, moe_dtype type, std::vector<std::int64_t> shape, std::size_t bytes) {
  t.dtype = type, t.shape = std::move(shape), t.bytes.assign(bytes, std::byte{0});
}

const BadFile kBad[] = {
    {"weights of int8", kRowScales, compressed_tensors("float-quantized", kRowScales),
     [](auto& t) { named(t, "1.up_proj.weight").dtype = MOE_DTYPE_U8; }, MOE_ERR_DTYPE, "1.up_proj.weight"},
    {"scales of bytes", kRowScales, compressed_tensors("float-quantized", kRowScales),
     [](auto& t) {
       retype(named(t, "1.up_proj.weight_scale"), MOE_DTYPE_U8, {128, 1}, 128);
     },
     MOE_ERR_DTYPE, "1.up_proj.weight_scale"},
    {"floats where MX has bytes", kMxScales, compressed_tensors("mxfp8-quantized", kMxScales),
     [](auto& t) {
       retype(named(t, "1.up_proj.weight_scale"), MOE_DTYPE_F32, {128, 8}, 4096);
     },
     MOE_ERR_DTYPE, "1.up_proj.weight_scale"},
    {"one scale of a row too few", kRowScales, compressed_tensors("float-quantized", kRowScales),
     [](auto& t) {
       retype(named(t, "1.up_proj.weight_scale"), MOE_DTYPE_F32, {127, 1}, 508);
     },
     MOE_ERR_SHAPE, "1.up_proj.weight_scale"},
    {"two scales of a tensor", kOneScale, compressed_tensors("float-quantized", kOneScale),
     [](auto& t) { retype(named(t, "1.up_proj.weight_scale"), MOE_DTYPE_F32, {2}, 8); }, MOE_ERR_SHAPE,
     "1.up_proj.weight_scale"},
    {"blocks on their side",
     {"block", 64, 128},
     deepseek(64, 128),
     [](auto& t) {
       retype(named(t, "1.down_proj.weight_scale_inv"), MOE_DTYPE_F32, {1, 4}, 16);
     },
     MOE_ERR_SHAPE,
     "1.down_proj.weight_scale_inv"},
    {"four dimensions of no tool", kBlocks128, deepseek(128, 128),
     [](auto& t) {
       retype(named(t, "1.up_proj.weight_scale_inv"), MOE_DTYPE_F32, {1, 2, 1, 1}, 8);
     },
     MOE_ERR_SHAPE, "1.up_proj.weight_scale_inv"},
    {"a name of no tool", kBlocks128, deepseek(128, 128),
     [](auto& t) { named(t, "1.up_proj.weight_scale_inv").name = std::string(kModule) + ".1.up_proj.weight_scales"; },
     MOE_ERR_UNEXPECTED_WEIGHT, "1.up_proj.weight_scales"},
    {"both names", kBlocks128, modelopt("FP8_PB_WO"),
     [](auto& t) {
       t.push_back(named(t, "1.up_proj.weight_scale_inv")),
           t.back().name = std::string(kModule) + ".1.up_proj.weight_scale";
     },
     MOE_ERR_UNEXPECTED_WEIGHT, "1.up_proj.weight_scale_inv"},
    {"an input scale of dynamic activations", kOneScale, compressed_tensors("float-quantized", kOneScale),
     [](auto& t) {
       t.push_back(
           {std::string(kModule) + ".0.up_proj.input_scale", -1, "", MOE_DTYPE_F32, {1}, std::vector<std::byte>(4)});
     },
     MOE_ERR_UNEXPECTED_WEIGHT, "0.up_proj.input_scale"},
    {"a bias", kRowScales, compressed_tensors("float-quantized", kRowScales),
     [](auto& t) {
       t.push_back(
           {std::string(kModule) + ".0.up_proj.bias", -1, "", MOE_DTYPE_F32, {128}, std::vector<std::byte>(512)});
     },
     MOE_ERR_UNEXPECTED_WEIGHT, "0.up_proj.bias"},
    {"a zero point", kRowScales, compressed_tensors("float-quantized", kRowScales),
     [](auto& t) {
       t.push_back({std::string(kModule) + ".0.up_proj.weight_zero_point",
                    -1,
                    "",
                    MOE_DTYPE_U8,
                    {128, 1},
                    std::vector<std::byte>(128)});
     },
     MOE_ERR_UNEXPECTED_WEIGHT, "0.up_proj.weight_zero_point"},
};

TEST(Float8Refusals, Files) {
  for (const BadFile& bad : kBad) {
    SCOPED_TRACE(bad.what);
    const Float8Model m = random_float8(with(bad.form), 13);
    const ConfigPtr config = make_config(file_config(m, bad.quantization));
    ASSERT_TRUE(config);
    const bool inverse =
        bad.quantization["quant_method"] == "fp8" || bad.quantization.value("quant_algo", "") == "FP8_PB_WO";
    std::vector<OwnedTensor> tensors = named_tensors(m, kModule, inverse ? "weight_scale_inv" : "weight_scale");
    bad.spoil(tensors);
    const TempDir dir;
    dir.write("model.safetensors", safetensors_of(tensors));
    const WeightsPtr weights = weights_of(config.get());
    const Failure f = load(weights.get(), dir);
    EXPECT_EQ(f.status, bad.status) << f.message;
    EXPECT_EQ(f.subject, std::string(kModule) + "." + bad.subject);
  }
}

TEST(Float8Refusals, ScalesThatAreMissing) {
  const Float8Model m = random_float8(with(kBlocks128), 13);
  std::vector<OwnedTensor> roles = expert_roles(m);
  std::erase_if(roles, [](const OwnedTensor& t) { return t.expert == 1 && t.shard == "w3" && t.name == "w13_scale"; });
  const Failure f = conversion_failure(m.config_text(), roles);
  EXPECT_EQ(f.status, MOE_ERR_MISSING_WEIGHT);
  EXPECT_EQ(f.subject, "w13_scale[1].w3");
}

template <class T>
void put(OwnedTensor& t, std::size_t index, T value) {
  std::memcpy(t.bytes.data() + index * sizeof(T), &value, sizeof(T));
}

TEST(Float8Refusals, CodesThatAreNoNumbers) {
  for (const int code : {0x7f, 0xff}) {
    const Float8Model m = random_float8(with(kRowScales), 14);
    std::vector<OwnedTensor> roles = stacked_roles(m);
    put(roles[1], static_cast<std::size_t>((2 * m.H + 9) * m.I + 77), static_cast<std::uint8_t>(code));
    const Failure f = conversion_failure(m.config_text(), roles);
    EXPECT_EQ(f.status, MOE_ERR_INVALID_ARGUMENT);
    EXPECT_EQ(f.subject, "w2_weight[2,9,77]") << f.message;
  }
}

TEST(Float8Refusals, ScalesThatAreNoNumbers) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();
  for (const float bad : {kNaN, kInf, -kInf, -1.0f, -1e-30f}) {
    SCOPED_TRACE(bad);
    const auto spoiled = [&](const ScaleForm& form, std::size_t role, std::size_t index) {
      const Float8Model m = random_float8(with(form), 15);
      std::vector<OwnedTensor> roles = stacked_roles(m);
      put(roles[role], index, bad);
      const Failure f = conversion_failure(m.config_text(), roles);
      EXPECT_EQ(f.status, MOE_ERR_INVALID_ARGUMENT);
      return f.subject;
    };
    EXPECT_EQ(spoiled(kRowScales, 2, 256 + 130), "w13_scale[1,130,0]");
    EXPECT_EQ(spoiled(kBlocks128, 2, 4 + 2 + 1), "w13_scale[1,1,1]");  // [3, 2, 2]
    EXPECT_EQ(spoiled(kBlocks128, 3, 2 * 2 + 1), "w2_scale[2,1,0]");   // [3, 2, 1]
    EXPECT_EQ(spoiled(kOneScale, 2, 2 * 2 + 1), "w13_scale[2,1,0]");   // [3, 2]
    EXPECT_EQ(spoiled(kOneScale, 3, 1), "w2_scale[1,0,0]");            // [3]
  }
  Float8Model m = random_float8(with(kMxScales), 15);
  std::vector<OwnedTensor> roles = stacked_roles(m);
  put(roles[2], static_cast<std::size_t>(5 * 8 + 3), std::uint8_t{255});
  EXPECT_EQ(conversion_failure(m.config_text(), roles).subject, "w13_scale[0,5,3]");
}

// Dead experts have scales of 0, and the smallest power of two is a number.
TEST(Float8, ScalesOfZeroAndTheSmallestPowerAreFine) {
  Float8Model m = random_float8(with(kMxScales), 16);
  for (Float8Matrix* w : {&m.gate[0], &m.up[1], &m.down[2]})
    std::fill(w->scales.begin(), w->scales.end(), std::ldexp(1.0f, -127));
  const Float8Layer mx(m.config_text(), stacked_roles(m));
  ASSERT_TRUE(mx.layer);
  EXPECT_LE(rms_from_reference(m, mx.run(m)), 8e-3);
  Float8Model z = random_float8(with(kBlocks128), 16);
  for (Float8Matrix* w : {&z.gate[0], &z.down[2]}) std::fill(w->scales.begin(), w->scales.end(), 0.0f);
  const Float8Layer zero(z.config_text(), stacked_roles(z));
  ASSERT_TRUE(zero.layer);
  EXPECT_LE(rms_from_reference(z, zero.run(z)), 8e-3);
}

// Of static activations: optional, as 16-bit ones need no scale, and looked at all the same.
TEST(Float8, InputScalesAreCheckedAndNotUsed) {
  Float8Model m = with(kOneScale);
  m.input_activations = {{"num_bits", 8}, {"type", "float"}};
  m = random_float8(std::move(m), 17);
  std::vector<OwnedTensor> roles = stacked_roles(m);
  const Float8Layer without(m.config_text(), roles);
  ASSERT_TRUE(without.layer);
  const auto given = [&](std::vector<std::int64_t> shape, std::vector<float> values) {
    std::vector<OwnedTensor> all = roles;
    all.push_back({"w13_input_scale", -1, "", MOE_DTYPE_F32, std::move(shape), bytes_of(values)});
    return all;
  };
  for (const auto& all : {given({3, 2}, {1, 2, 3, 4, 5, 6}), given({3}, {1, 2, 3})}) {
    const Float8Layer with_scales(m.config_text(), all);
    ASSERT_TRUE(with_scales.layer);
    EXPECT_EQ(with_scales.run(m), without.run(m));
  }
  constexpr float kInf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(conversion_failure(m.config_text(), given({3, 2}, {1, 2, 3, 4, 5, kInf})).subject, "w13_input_scale[2,1]");
  EXPECT_EQ(conversion_failure(m.config_text(), given({3}, {1, -2, 3})).subject, "w13_input_scale[1,0]");
  // Of both halves or of none.
  for (const char* shard : {"w1", "w3"}) {
    std::vector<OwnedTensor> all = roles;
    all.push_back({"w13_input_scale", 1, shard, MOE_DTYPE_F32, {1}, bytes_of(std::vector<float>{2})});
    const Failure f = conversion_failure(m.config_text(), all);
    EXPECT_EQ(f.status, MOE_ERR_MISSING_WEIGHT);
    EXPECT_EQ(f.subject, std::string("w13_input_scale[1].") + (shard[1] == '1' ? "w3" : "w1"));
  }
  const ConfigPtr config = make_config(m.config_text());
  const WeightsPtr weights = weights_of(config.get());
  EXPECT_EQ(set_roles(weights.get(), given({3, 3}, std::vector<float>(9, 1.0f))).status, MOE_ERR_SHAPE);
}

}  // namespace
}  // namespace moe::test::float8_test
