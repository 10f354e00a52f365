// Activations that are quantized to floats as the file says (float_oracles.md 9.6): the golden layers of its 11.1, what
// their scales ask of weights and configs, and that a token's bits depend on no other token, thread or machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "support/float8_model.h"
#include "support/golden_roles.h"
#include "support/temp_dir.h"
#include "support/vectors.h"

namespace moe::test {
namespace {

using nlohmann::json;

struct Golden {
  const char *name, *file, *y, *compute, *bit_compat, *activation;
  const char* quantization;
  std::vector<GoldenRole> roles;
  double bound;
};

const std::vector<GoldenRole> kBlocks = {{"w13_weight", "w13"},
                                         {"w13_weight_scale_inv", "w13_scale_inv"},
                                         {"w2_weight", "w2"},
                                         {"w2_weight_scale_inv", "w2_scale_inv"}};
const std::vector<GoldenRole> kScaled = {
    {"w13_weight", "w13"}, {"w13_scale", "w13_scale"}, {"w2_weight", "w2"}, {"w2_scale", "w2_scale"}};
const std::vector<GoldenRole> kStatic = {
    {"w13_weight", "w13"}, {"w13_scale", "w13_scale"}, {"w13_input_scale", "w13_input_scale"},
    {"w2_weight", "w2"},   {"w2_scale", "w2_scale"},   {"w2_input_scale", "w2_input_scale"}};
const std::vector<GoldenRole> kChannels = {
    {"w13_weight", "ch_w13"}, {"w13_scale", "ch_w13_scale"}, {"w2_weight", "ch_w2"}, {"w2_scale", "ch_w2_scale"}};
constexpr const char* kTensorAndToken =
    R"({"weights": {"num_bits": 8, "type": "float", "strategy": "tensor"},
        "input_activations": {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": true}})";
constexpr const char* kGptOssFiles = R"({"scheme": "MXFP4A16", "format": "mxfp4-gpt-oss"})";

const Golden kGolden[] = {
    {"blocks", "fp8_block", "w8a8", "a8", "libmoe", "silu", R"({"scheme": "FP8_BLOCK"})", kBlocks, 3e-2},
    {"static", "fp8_tensor", "static", "a8", "vllm", "silu", R"({"scheme": "FP8"})", kStatic, 3e-2},
    {"token", "fp8_tensor", "token", "a8", "vllm", "silu", kTensorAndToken, kScaled, 3e-2},
    {"channel_token", "fp8_tensor", "channel_token", "a8", "libmoe", "silu", R"({"scheme": "FP8_DYNAMIC"})", kChannels,
     3e-2},
    {"mxfp8", "mxfp8", "w8a8", "a8", "libmoe", "silu", R"({"scheme": "MXFP8"})", kScaled, 3e-2},
    {"nvfp4", "nvfp4", "w4a4", "a4", "vllm", "silu", R"({"scheme": "NVFP4"})", kDivisorRoles, 6e-2},
    {"mxfp4_mxfp8", "mxfp4_gptoss", "w4a8_mxfp8", "mxfp8", "libmoe", "swigluoai", kGptOssFiles, kGptOssRoles, 3e-2},
    {"mxfp4", "mxfp4_gptoss", "w4a4_even", "a4", "libmoe", "swigluoai", kGptOssFiles, kGptOssRoles, 6e-2},
};

// A golden file as a layer.
struct GoldenLayer {
  VecFile file;
  Float8Model m;
  json config;
  std::vector<OwnedTensor> roles;

  explicit GoldenLayer(const Golden& g, const std::string& dtype = "bfloat16")
      : file(load_vectors(std::string("float/") + g.file + ".safetensors")) {
    const VecTensor &x = file.at("x"), &ids = file.at("topk_ids");
    const bool nibbles = std::strcmp(g.compute, "a8") != 0;
    const VecTensor& w2 = file.at(g.roles[g.roles.size() / 2].tensor);
    const std::int64_t stored = w2.shape.size() == 4 ? w2.shape[2] * 16 : w2.shape[2];
    m = {.E = w2.shape[0],
         .H = x.shape[1],
         .I = stored * (nibbles ? 2 : 1),
         .K = ids.shape[1],
         .T = x.shape[0],
         .dtype = dtype};
    m.x = x.floats();
    m.ids = ids.as<std::int32_t>();
    m.weights = file.at("topk_weights").floats();
    config = {{"num_experts", m.E},         {"top_k", m.K},
              {"hidden_dim", m.H},          {"intermediate_size", m.I},
              {"activation", g.activation}, {"has_bias", g.roles.size() == 6 && nibbles},
              {"in_dtype", dtype},          {"compute", g.compute},
              {"bit_compat", g.bit_compat}, {"quantization", json::parse(g.quantization)}};
    for (const GoldenRole& r : g.roles) {
      const VecTensor& t = file.at(r.tensor);
      roles.push_back({r.role, -1, "", static_cast<moe_dtype>(t.dtype), t.shape, t.data});
    }
  }
  std::vector<float> want(const std::string& name) const { return file.at(name).floats(); }
};

class FloatActsGolden : public ::testing::TestWithParam<Golden> {};

TEST_P(FloatActsGolden, OutputsOfTheReference) {
  const Golden& g = GetParam();
  for (const std::string dtype : {"bfloat16", "float32"}) {
    SCOPED_TRACE(dtype);
    const GoldenLayer golden(g, dtype);
    const Float8Layer layer(golden.config.dump(), golden.roles, 2);
    ASSERT_TRUE(layer.layer);
    const std::vector<float> got = floats_of(layer.run(golden.m), golden.m.io_type());
    const std::string y = (dtype == "float32" ? "yx_" : "y_") + std::string(g.y);
    EXPECT_LE(relative_rms(got, golden.want(y)), g.bound) << y;
  }
}

// Other kernels have the same bits, but those of bf16 units, and so have threads and tokens alone.
TEST_P(FloatActsGolden, BitsOfEveryMachineThreadAndToken) {
  const GoldenLayer golden(GetParam());
  const Float8Layer layer(golden.config.dump(), golden.roles, 1), threads(golden.config.dump(), golden.roles, 3);
  ASSERT_TRUE(layer.layer && threads.layer);
  const std::vector<std::byte> all = layer.run(golden.m);
  EXPECT_EQ(threads.run(golden.m), all);
  const std::size_t row = all.size() / static_cast<std::size_t>(golden.m.T);
  for (std::int64_t t = 0; t < golden.m.T; ++t) {
    const std::vector<std::byte> one = layer.run(golden.m, t, 1);
    EXPECT_EQ(0, std::memcmp(one.data(), all.data() + static_cast<std::size_t>(t) * row, row)) << t;
  }
}

INSTANTIATE_TEST_SUITE_P(All, FloatActsGolden, ::testing::ValuesIn(kGolden),
                         [](const auto& test) { return std::string(test.param.name); });

const Golden& golden_named(const std::string& name) {
  return *std::find_if(std::begin(kGolden), std::end(kGolden), [&](const Golden& g) { return name == g.name; });
}

// Scales of inputs are the checkpoint's: each expert's own, or vLLM's one for all.
TEST(FloatActs, InputScalesOfEachExpert) {
  for (const char* name : {"static", "nvfp4"}) {
    SCOPED_TRACE(name);
    GoldenLayer golden(golden_named(name));
    const auto run = [&](const json& config, const std::vector<OwnedTensor>& roles) {
      const Float8Layer layer(config.dump(), roles, 2);
      EXPECT_TRUE(layer.layer);
      return layer.layer ? layer.run(golden.m) : std::vector<std::byte>();
    };
    json own = golden.config;
    own["bit_compat"] = "libmoe";
    const std::vector<std::byte> one = run(golden.config, golden.roles), each = run(own, golden.roles);
    EXPECT_NE(one, each);  // the file's scales differ
    // With equal scales both are the same, where weights are not requantized.
    std::vector<OwnedTensor> equal = golden.roles;
    for (OwnedTensor& t : equal)
      if (t.name.find("input") != std::string::npos)
        for (std::size_t at = 4; at < t.bytes.size(); at += 4) std::memcpy(t.bytes.data() + at, t.bytes.data(), 4);
    if (std::string(name) == "nvfp4") {
      EXPECT_EQ(run(golden.config, equal), run(own, equal));
    }
  }
}

TEST(FloatActs, InputScalesStayInThePackedFile) {
  GoldenLayer golden(golden_named("nvfp4"));
  golden.config["bit_compat"] = "libmoe";
  const Float8Layer layer(golden.config.dump(), golden.roles);
  ASSERT_TRUE(layer.layer);
  const TempDir dir;
  const std::string file = dir.file("layer.moe");
  ASSERT_EQ(moe_packed_save(layer.packed.get(), file.c_str(), 0, nullptr, nullptr), MOE_OK);
  const PackedPtr again = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
    return moe_packed_load(nullptr, file.c_str(), MOE_LOAD_VERIFY, nullptr, o, e);
  });
  ASSERT_TRUE(again);
  const LayerPtr loaded = make<LayerPtr>([&](moe_layer** o, moe_error** e) {
    return moe_layer_create(nullptr, layer.selection.get(), again.get(), nullptr, o, e);
  });
  ASSERT_TRUE(loaded);
  // Packed without them, the weights do not serve.
  json plain = golden.config;
  plain["compute"] = "auto";
  const Float8Layer a16(plain.dump(), golden.roles);
  ASSERT_TRUE(a16.layer);
  const Failure f = failure([&](moe_error** e) {
    moe_layer* out = nullptr;
    return moe_layer_create(nullptr, layer.selection.get(), a16.packed.get(), nullptr, &out, e);
  });
  EXPECT_EQ(f.status, MOE_ERR_CONFIG_MISMATCH) << f.message;
}

// What is packed depends neither on bit_compat nor on how a layer rounds its scales.
TEST(FloatActs, PackedOnceForEveryRuleOfScales) {
  const auto layer_of = [](const Float8Layer& config, const Float8Layer& packed) {
    return make<LayerPtr>([&](moe_layer** o, moe_error** e) {
      return moe_layer_create(nullptr, config.selection.get(), packed.packed.get(), nullptr, o, e);
    });
  };
  for (const char* name : {"nvfp4", "blocks"}) {
    SCOPED_TRACE(name);
    GoldenLayer golden(golden_named(name));
    json other = golden.config;
    if (name[0] == 'n') {
      other["bit_compat"] = "libmoe";
    } else {
      other["quantization"] = json::parse(
          R"({"weights": {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]},
              "input_activations": {"num_bits": 8, "type": "float", "group_size": 128, "dynamic": true,
                                    "scale_format": "ue8m0"}})");
    }
    Float8Layer a(golden.config.dump(), golden.roles), b(other.dump(), golden.roles);
    ASSERT_TRUE(a.layer && b.layer);
    const std::vector<std::byte> as_a = a.run(golden.m), as_b = b.run(golden.m);
    EXPECT_NE(as_a, as_b);
    LayerPtr a_of_b = layer_of(a, b), b_of_a = layer_of(b, a);
    ASSERT_TRUE(a_of_b && b_of_a);
    a.layer = std::move(a_of_b), b.layer = std::move(b_of_a);
    EXPECT_EQ(a.run(golden.m), as_a);
    EXPECT_EQ(b.run(golden.m), as_b);
  }
}

TEST(FloatActs, InputScalesThatAreMissingOrNone) {
  for (const char* name : {"static", "nvfp4"}) {
    SCOPED_TRACE(name);
    const GoldenLayer golden(golden_named(name));
    for (std::size_t i = 0; i < golden.roles.size(); ++i) {
      if (golden.roles[i].name.find("input") == std::string::npos) continue;
      std::vector<OwnedTensor> roles = golden.roles;
      roles.erase(roles.begin() + static_cast<std::ptrdiff_t>(i));
      Failure f = conversion_failure(golden.config.dump(), roles);
      EXPECT_EQ(f.status, MOE_ERR_MISSING_WEIGHT) << f.message;
      EXPECT_NE(f.subject.find(i < golden.roles.size() / 2 ? "w13_input" : "w2_input"), std::string::npos) << f.subject;
      roles = golden.roles;
      std::memset(roles[i].bytes.data(), 0, 4);
      f = conversion_failure(golden.config.dump(), roles);
      EXPECT_EQ(f.status, MOE_ERR_INVALID_ARGUMENT) << f.message;
    }
  }
}

struct Asked {
  const char *compute, *quantization;
  moe_status status;
  const char *pointer, *runs_as;
};
#define MOE_FP8(acts) \
  R"({"weights": {"num_bits": 8, "type": "float", "strategy": "channel"}, "input_activations": )" acts "}"
#define MOE_NVFP4(acts)                                                                            \
  R"({"weights": {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16},)" \
  R"("input_activations": {"num_bits": 4, "type": "float", "strategy": "tensor_group", )" acts "}}"
constexpr Asked kAsked[] = {
    {"a8", R"({"scheme": "FP8"})", MOE_OK, "", "float8_e4m3_per_tensor"},
    {"a8", R"({"scheme": "FP8_DYNAMIC"})", MOE_OK, "", "float8_e4m3_per_token"},
    {"a8", R"({"scheme": "FP8_BLOCK"})", MOE_OK, "", "float8_e4m3_block128"},
    {"a8", MOE_FP8("null"), MOE_OK, "", "float8_e4m3_per_token"},
    {"a8", MOE_FP8(R"({"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": true})"), MOE_OK, "",
     "float8_e4m3_per_token"},
    {"a8", MOE_FP8(R"({"num_bits": 8, "type": "float", "group_size": 64, "dynamic": true})"), MOE_OK, "",
     "float8_e4m3_block64"},
    {"a8", MOE_FP8(R"({"num_bits": 8, "type": "float", "group_size": 96, "dynamic": true, "scale_format": "ue8m0"})"),
     MOE_OK, "", "float8_e4m3_ue8m0_block96"},
    {"a8", MOE_FP8(R"({"num_bits": 8, "type": "float", "group_size": 40, "dynamic": true})"), MOE_ERR_UNSUPPORTED,
     "/quantization/input_activations/group_size", ""},
    {"a8", MOE_FP8(R"({"num_bits": 8, "type": "float", "group_size": 64})"), MOE_ERR_UNSUPPORTED,
     "/quantization/input_activations/strategy", ""},
    {"a8", MOE_FP8(R"({"num_bits": 8, "type": "int", "strategy": "token", "dynamic": true})"), MOE_ERR_INVALID_CONFIG,
     "/compute", ""},
    {"a8",
     MOE_FP8(R"({"num_bits": 8, "type": "float", "strategy": "token", "dynamic": true, "scale_format": "ue8m0"})"),
     MOE_ERR_INVALID_CONFIG, "/quantization/input_activations/scale_format", ""},
    {"a8", R"({"weights": {"num_bits": 8, "type": "float", "group_size": 64, "scale_format": "ue8m0"}})",
     MOE_ERR_INVALID_CONFIG, "/quantization/weights/scale_format", ""},
    {"a8", R"({"scheme": "MXFP8"})", MOE_OK, "", "mxfp8_block32"},
    {"a8", R"({"scheme": "MXFP8A16"})", MOE_OK, "", "mxfp8_block32"},
    {"a8", R"({"scheme": "MXFP4"})", MOE_OK, "", "int8_block32"},
    {"a8", R"({"scheme": "NVFP4A16"})", MOE_OK, "", "int8_block32"},
    {"a4", R"({"scheme": "MXFP4"})", MOE_OK, "", "mxfp4_block32"},
    {"a4", R"({"scheme": "MXFP4A16"})", MOE_OK, "", "mxfp4_block32"},
    {"a4", R"({"scheme": "NVFP4"})", MOE_OK, "", "nvfp4_block16"},
    {"a4", R"({"scheme": "NVFP4A16"})", MOE_ERR_INVALID_CONFIG, "/compute", ""},
    {"a4", MOE_NVFP4(R"("group_size": 16, "dynamic": "local")"), MOE_OK, "", "nvfp4_block16"},
    {"a4", MOE_NVFP4(R"("group_size": 16, "dynamic": true)"), MOE_ERR_INVALID_CONFIG, "/compute", ""},
    {"a4", MOE_NVFP4(R"("group_size": 32, "dynamic": "local")"), MOE_ERR_UNSUPPORTED,
     "/quantization/input_activations/group_size", ""},
    {"a4", MOE_NVFP4(R"("group_size": 16, "dynamic": "local", "symmetric": false)"), MOE_ERR_UNSUPPORTED,
     "/quantization/input_activations/symmetric", ""},
    {"a8", MOE_FP8(R"({"num_bits": 8, "type": "float", "strategy": "token", "dynamic": true, "symmetric": false})"),
     MOE_ERR_UNSUPPORTED, "/quantization/input_activations/symmetric", ""},
    {"a4", R"({"scheme": "FP8"})", MOE_ERR_INVALID_CONFIG, "/compute", ""},
    {"a4", R"({"scheme": "W4A16"})", MOE_ERR_INVALID_CONFIG, "/compute", ""},
    {"mxfp8", R"({"scheme": "MXFP4"})", MOE_OK, "", "mxfp8_block32"},
    {"mxfp8", R"({"scheme": "MXFP4A16"})", MOE_OK, "", "mxfp8_block32"},
    {"mxfp8", R"({"scheme": "NVFP4"})", MOE_ERR_INVALID_CONFIG, "/compute", ""},
    {"mxfp8", R"({"scheme": "MXFP8"})", MOE_ERR_INVALID_CONFIG, "/compute", ""},
    {"a8", R"({"scheme": "W4AFP8"})", MOE_ERR_INVALID_CONFIG, "/compute", ""},
};

json layer_config(const Asked& asked) {
  return {{"num_experts", 4},
          {"top_k", 2},
          {"hidden_dim", 768},
          {"intermediate_size", 384},
          {"activation", "silu"},
          {"compute", asked.compute},
          {"quantization", json::parse(asked.quantization)}};
}

// What creating a config says; the config, unless it is refused.
struct Created {
  ConfigPtr config;
  Failure failure;
  explicit Created(const json& document) {
    const std::string text = document.dump();
    failure = test::failure([&](moe_error** e) {
      moe_config* out = nullptr;
      const moe_status status = moe_config_create(text.data(), text.size(), &out, e);
      config.reset(out);
      return status;
    });
  }
};

TEST(FloatActs, WhatRunsIsSaid) {
  for (const Asked& asked : kAsked) {
    SCOPED_TRACE(std::string(asked.compute) + " " + asked.quantization);
    const Created made(layer_config(asked));
    EXPECT_EQ(made.failure.status, asked.status) << made.failure.message;
    if (!made.config) {
      EXPECT_EQ(made.failure.subject, asked.pointer) << made.failure.message;
      continue;
    }
    const SelectionPtr selection = make<SelectionPtr>([&](moe_selection** o, moe_error** e) {
      return moe_select_backend(nullptr, made.config.get(), nullptr, 0, o, e);
    });
    ASSERT_TRUE(selection);
    const json said =
        json_of([&](moe_buffer** o, moe_error** e) { return moe_selection_to_json(selection.get(), o, e); });
    EXPECT_EQ(said["runs_as"]["activations"], asked.runs_as);
  }
}

// vLLM's scale of a whole batch would make a token's bits depend on the others.
TEST(FloatActs, ScaleOfAWholeBatch) {
  json config = layer_config(kAsked[4]);
  config["bit_compat"] = "vllm";
  for (const json& platform : {json({{"type", "auto"}}), json({{"type", "cpu"}})}) {
    config["platform"] = platform;
    const Failure f = Created(config).failure;
    EXPECT_EQ(f.status, MOE_ERR_UNSUPPORTED) << f.message;
    EXPECT_EQ(f.subject, "/quantization/input_activations/dynamic");
  }
  // What a GPU does with it is its kernel's affair.
  config["platform"] = {{"type", "cuda"}, {"capability", {9, 0}}};
  EXPECT_EQ(Created(config).failure.status, MOE_OK);
}

}  // namespace
}  // namespace moe::test
