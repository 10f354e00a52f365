// Vectors beside a layer's experts (correction bias, scales, norm) are found by their names, in any of the three types,
// and checked.
#include "weights/side_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/float_formats.h"
#include "hf/architecture.h"
#include "support/rooms.h"
#include "support/safetensors_writer.h"
#include "weights/weight_fixture.h"

namespace moe::test::side_tensors_test {
namespace {

constexpr const char* kBiased = R"(,"routing":{"e_score_correction_bias":true,"scoring_func":"sigmoid"})";
const std::vector<float> kValues = {0.5f, -1, 0, 2};

std::string write_bias(const TempDir& dir, const std::string& name, const std::vector<std::int64_t>& shape,
                       const std::vector<float>& values = kValues) {
  SafetensorsWriter w;
  w.add(name, "F32", shape, values.data(), values.size() * sizeof(float));
  return dir.write("model.safetensors", w.bytes());
}

TEST(CheckpointBias, FoundByEveryName) {
  for (const char* name : {"gate.e_score_correction_bias", "e_score_correction_bias",
                           "moe_statics.e_score_correction_bias", "router.e_score_correction_bias", "gate.expert_bias",
                           "expert_bias", "router_bias", "router.expert_bias", "gate.balancing_biases"})
    for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{4}, std::vector<std::int64_t>{1, 4}}) {
      const TempDir dir;
      write_bias(dir, std::string("model.layers.0.mlp.") + name, shape);
      WeightSet set(config_of({.more = kBiased}));
      const Check c = set.load_safetensors(dir.path().c_str(), nullptr);
      ASSERT_TRUE(c) << c.error().message;
      EXPECT_EQ(set.loaded().correction_bias, kValues) << name;
      set.clear();
      EXPECT_TRUE(set.loaded().correction_bias.empty());
    }
}

// DeepSeek-V4's gate, in either of its places; another gate's bias is none.
TEST(CheckpointBias, OfDeepSeekV4) {
  Config config = *config_of({.more = kBiased});
  config.name = "model.layers.0.ffn.experts";
  for (const char* tensor :
       {"model.layers.0.ffn.gate.bias", "layers.0.ffn.gate.bias", "model.layers.0.mlp.gate.bias"}) {
    const TempDir dir;
    write_bias(dir, tensor, {4});
    WeightSet set(std::make_shared<const Config>(config));
    ASSERT_TRUE(set.load_safetensors(dir.path().c_str(), nullptr));
    EXPECT_EQ(set.loaded().correction_bias.empty(), std::string(tensor).find("mlp") != std::string::npos) << tensor;
  }
}

TEST(CheckpointBias, SixteenBitValuesAreWidened) {
  const TempDir dir;
  std::vector<std::uint16_t> half;
  for (float v : kValues) half.push_back(f32_to_bf16(v));
  SafetensorsWriter w;
  w.add("a.b.gate.e_score_correction_bias", "BF16", {4}, half.data(), 8);
  const std::string path = dir.write("x.safetensors", w.bytes());
  WeightSet set(config_of({.more = kBiased}));
  ASSERT_TRUE(set.load_safetensors(path.c_str(), "a.b.experts"));
  EXPECT_EQ(set.loaded().correction_bias, kValues);
}

TEST(CheckpointBias, Elsewhere) {
  const TempDir dir;
  const std::string path = write_bias(dir, "model.layers.0.mlp.gate.e_score_correction_bias", {4});
  WeightSet other(config_of({.more = kBiased}));
  ASSERT_TRUE(other.load_safetensors(path.c_str(), "model.layers.1.mlp.experts"));
  EXPECT_TRUE(other.loaded().correction_bias.empty());
}

// A router that has one and a config that does not know it: the experts chosen would be others.
TEST(CheckpointBias, NeverLeftOut) {
  const std::string name = "model.layers.0.mlp.gate.e_score_correction_bias";
  const TempDir dir;
  const std::string path = write_bias(dir, name, {4});
  WeightSet plain(config_of({}));
  const Check c = plain.load_safetensors(path.c_str(), nullptr);
  ASSERT_FALSE(c);
  EXPECT_EQ(c.error().code, Code::unexpected_weight);
  EXPECT_EQ(c.error().subject, name);
  EXPECT_THAT(c.error().message, ::testing::HasSubstr("routing.e_score_correction_bias"));
  EXPECT_THAT(c.error().message, ::testing::HasSubstr("ignored_tensors"));
  EXPECT_THAT(c.error().message, ::testing::HasSubstr(path));
  for (const char* callers : {R"(,"routing":{"method":"custom"})", R"(,"routing":{"hash_routing":true})",
                              R"(,"routing":{"method":"simulated","simulation_strategy":"uniform_random"})"}) {
    WeightSet set(config_of({.more = callers}));  // does not choose by scores
    EXPECT_TRUE(set.load_safetensors(path.c_str(), nullptr)) << callers;
    EXPECT_TRUE(set.loaded().correction_bias.empty());
  }
}

// A layer that has a table of experts does not choose by its logits.
TEST(CheckpointBias, TableOfALayerThatIsNotHashed) {
  const std::string name = "model.layers.0.mlp.gate.tid2eid";
  const TempDir dir;
  SafetensorsWriter w;
  const std::vector<std::int64_t> table(20);
  w.add(name, "I64", {10, 2}, table.data(), 160);
  const std::string path = dir.write("model.safetensors", w.bytes());
  const auto load = [&](const char* more) {
    WeightSet set(config_of({.more = more}));
    return set.load_safetensors(path.c_str(), nullptr);
  };
  const Check plain = load("");
  ASSERT_FALSE(plain);
  EXPECT_EQ(plain.error().subject, name);
  EXPECT_TRUE(load(R"(,"routing":{"hash_routing":true})"));
  EXPECT_TRUE(load(R"(,"ignored_tensors":["gate.tid2eid"])"));
}

// Unless the caller says so, by its name or by the end of it behind a dot.
TEST(CheckpointBias, LeftOutWhenAsked) {
  const std::string name = "model.layers.0.mlp.gate.e_score_correction_bias";
  const TempDir dir;
  const std::string path = write_bias(dir, name, {4});
  for (const std::string& asked : {name, std::string("gate.e_score_correction_bias"), std::string("correction_bias")}) {
    WeightSet set(config_of({.more = R"(,"ignored_tensors":["other",")" + asked + R"("])"}));
    EXPECT_EQ(static_cast<bool>(set.load_safetensors(path.c_str(), nullptr)), asked != "correction_bias") << asked;
    EXPECT_TRUE(set.loaded().correction_bias.empty());
  }
}

TEST(CheckpointBias, FaultsNameTheTensor) {
  const std::string name = "model.layers.0.mlp.gate.e_score_correction_bias";
  const auto load = [&](const SafetensorsWriter& w) {
    const TempDir dir;
    const std::string path = dir.write("x.safetensors", w.bytes());
    WeightSet set(config_of({.more = kBiased}));
    const Check c = set.load_safetensors(path.c_str(), nullptr);
    EXPECT_FALSE(c);
    EXPECT_TRUE(set.loaded().correction_bias.empty());
    if (c) return Error{Code::ok, {}, {}, {}};
    EXPECT_THAT(c.error().message, ::testing::HasSubstr(path));
    return c.error();
  };
  const std::vector<double> wide(8);
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{5}, std::vector<std::int64_t>{4, 1}, std::vector<std::int64_t>{}}) {
    SafetensorsWriter w;
    std::size_t bytes = 4;
    for (std::int64_t d : shape) bytes *= static_cast<std::size_t>(d);
    w.add(name, "F32", shape, wide.data(), bytes);
    const Error e = load(w);
    EXPECT_EQ(e.code, Code::shape);
    EXPECT_EQ(e.subject, name);
  }
  SafetensorsWriter type, value, two;
  type.add(name, "F64", {4}, wide.data(), 32);
  EXPECT_EQ(load(type).code, Code::dtype);
  std::vector<float> broken = kValues;
  broken[1] = std::numeric_limits<float>::infinity();
  value.add(name, "F32", {4}, broken.data(), 16);
  EXPECT_EQ(load(value).subject, name + "[1]");
  two.add(name, "F32", {4}, kValues.data(), 16);
  two.add("model.layers.0.mlp.expert_bias", "F32", {4}, kValues.data(), 16);
  EXPECT_EQ(load(two).code, Code::unexpected_weight);
}

// --- scales of experts, the norm of their output ----------------------------------------------------------------

// Beside a weight of an expert, so that the file is one of this layer.
void write_side(const TempDir& dir, const std::string& name, const std::vector<std::int64_t>& shape,
                const std::vector<float>& values) {
  const LayerSpec spec{};
  const std::vector<std::int8_t> up(static_cast<std::size_t>(spec.inter * spec.hidden));
  SafetensorsWriter w;
  w.add("model.layers.0.mlp.experts.0.up_proj.weight", "I8", {spec.inter, spec.hidden}, up.data(), up.size());
  w.add(name, "F32", shape, values.data(), values.size() * sizeof(float));
  dir.write("model.safetensors", w.bytes());
}

constexpr const char* kScaled = R"(,"routing":{"expert_scale":"my.scale"})";
constexpr const char* kNormed = R"(,"expert_norm":"my.norm.weight")";

TEST(CheckpointScales, ByTheNameOfTheConfigOrAModels) {
  for (const char* name :
       {"model.layers.0.mlp.my.scale", "model.layers.0.my.scale", "model.layers.0.mlp.router.per_expert_scale"})
    for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{4}, std::vector<std::int64_t>{1, 4},
                                                   std::vector<std::int64_t>{1}, std::vector<std::int64_t>{}}) {
      const TempDir dir;
      std::vector<float> values(shape.empty() || shape == std::vector<std::int64_t>{1} ? 1 : 4);
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.5f + static_cast<float>(i);
      write_side(dir, name, shape, values);
      WeightSet set(config_of({.more = kScaled}));
      const Check c = set.load_safetensors(dir.path().c_str(), nullptr);
      ASSERT_TRUE(c) << c.error().message;
      EXPECT_EQ(set.loaded().expert_scale, values) << name;
      EXPECT_TRUE(set.loaded().correction_bias.empty() && set.loaded().expert_norm.empty());
      set.clear();
      EXPECT_TRUE(set.loaded().expert_scale.empty());
    }
}

TEST(CheckpointNorms, ByTheNameOfTheConfigOrAModels) {
  const LayerSpec spec{.more = kNormed};
  const auto config = config_of(spec);
  std::vector<float> values(static_cast<std::size_t>(config->hidden_dim), 0.25f);
  values.back() = -1;
  for (const char* name : {"model.layers.0.mlp.my.norm.weight", "model.layers.0.mlp.experts.post_expert_norm.weight"}) {
    const TempDir dir;
    write_side(dir, name, {config->hidden_dim}, values);
    WeightSet set(config);
    const Check c = set.load_safetensors(dir.path().c_str(), nullptr);
    ASSERT_TRUE(c) << c.error().message;
    EXPECT_EQ(set.loaded().expert_norm, values) << name;
  }
  for (const char* other : {"model.layers.1.mlp.my.norm.weight", "model.layers.0.mlp.imy.norm.weight"}) {
    const TempDir dir;
    write_side(dir, other, {config->hidden_dim}, values);
    WeightSet set(config);
    ASSERT_TRUE(set.load_safetensors(dir.path().c_str(), nullptr)) << other;
    EXPECT_TRUE(set.loaded().expert_norm.empty()) << other;
  }
}

TEST(CheckpointScales, FaultsNameTheTensor) {
  const auto load = [](const char* more, const char* name, const std::vector<std::int64_t>& shape, float first = 1) {
    const TempDir dir;
    std::vector<float> values(shape.empty() ? 1 : static_cast<std::size_t>(shape.back()), 1.0f);
    values[0] = first;
    write_side(dir, name, shape, values);
    WeightSet set(config_of({.more = more}));
    const Check c = set.load_safetensors(dir.path().c_str(), nullptr);
    EXPECT_FALSE(c);
    return c ? Error{Code::ok, {}, {}, {}} : c.error();
  };
  const std::string scale = "model.layers.0.mlp.my.scale", norm = "model.layers.0.mlp.my.norm.weight";
  EXPECT_EQ(load(kScaled, scale.c_str(), {5}).code, Code::shape);
  EXPECT_EQ(load(kScaled, scale.c_str(), {2}).subject, scale);
  EXPECT_EQ(load(kScaled, scale.c_str(), {4}, std::numeric_limits<float>::quiet_NaN()).subject, scale + "[0]");
  EXPECT_EQ(load(kNormed, norm.c_str(), {1}).code, Code::shape);
  EXPECT_EQ(load(kNormed, norm.c_str(), {}).code, Code::shape);
}

// Left out they would make other numbers: only whoever uses none of them may load such a file.
TEST(CheckpointScales, NeverLeftOut) {
  const TempDir scales, norms;
  const std::string scale = "model.layers.0.mlp.gate.global_scale",
                    norm = "model.layers.0.mlp.experts.post_expert_norm.weight";
  const auto config = config_of({});
  write_side(scales, scale, {1}, {2.0f});
  write_side(norms, norm, {config->hidden_dim}, std::vector<float>(static_cast<std::size_t>(config->hidden_dim)));
  const auto code = [](const TempDir& dir, const char* more, const std::string& name) {
    WeightSet set(config_of({.more = more}));
    const Check c = set.load_safetensors(dir.path().c_str(), nullptr);
    EXPECT_TRUE(set.loaded().expert_scale.empty() && set.loaded().expert_norm.empty());
    if (!c) {
      EXPECT_EQ(c.error().subject, name);
    }
    return c ? Code::ok : c.error().code;
  };
  constexpr const char* kCustom = R"(,"routing":{"method":"custom"})";
  constexpr const char* kSimulated = R"(,"routing":{"method":"simulated","simulation_strategy":"uniform_random"})";
  constexpr const char* kHash = R"(,"routing":{"hash_routing":true})";  // makes weights of scores
  for (const char* more : {"", kHash, kNormed}) EXPECT_EQ(code(scales, more, scale), Code::unexpected_weight) << more;
  for (const char* more : {kCustom, kSimulated}) EXPECT_EQ(code(scales, more, scale), Code::ok) << more;
  for (const char* more : {"", kHash, kCustom, kSimulated, kScaled})
    EXPECT_EQ(code(norms, more, norm), Code::unexpected_weight) << more;
}

// What one class calls so, a file of another has for the same. A gate's bias is the matrix's own, unless the config
// says.
TEST(SideTensors, NamesOfAllClasses) {
  const Config plain = *config_of({});
  for (const Architecture& a : architectures())
    for (const std::string_view name : {a.routing.bias_name, a.routing.expert_scale, a.expert_norm}) {
      if (name.empty() || name == "gate.bias") continue;
      EXPECT_TRUE(side_of(plain, "x." + std::string(name), "x.", "")) << a.name << ": " << name;
    }
}

struct Beside {
  const char* name;
  std::vector<std::int64_t> shape;
  bool refused;
};
void expect_beside(const Beside& b, const char* more = "", const char* module = nullptr) {
  const TempDir dir;
  std::size_t count = 1;
  for (const std::int64_t d : b.shape) count *= static_cast<std::size_t>(d);
  write_side(dir, b.name, b.shape, std::vector<float>(count, 0.5f));
  WeightSet set(config_of({.more = more}));
  const Check c = set.load_safetensors(dir.path().c_str(), module);
  EXPECT_NE(static_cast<bool>(c), b.refused) << b.name << ": " << (c ? "" : c.error().message);
  if (c) return;
  EXPECT_EQ(c.error().code, Code::unexpected_weight);
  EXPECT_EQ(c.error().subject, b.name);
  EXPECT_THAT(c.error().message, ::testing::HasSubstr("ignored_tensors"));
  const std::string ignored = std::string(R"(,"ignored_tensors":[")") + b.name + "\"]" + more;
  WeightSet asked(config_of({.more = ignored}));
  EXPECT_TRUE(asked.load_safetensors(dir.path().c_str(), module)) << b.name;
}

// A vector of a value for each expert that nobody knows would change the layer; the matrix's own, and those of other
// modules, would not.
TEST(SideTensors, UnknownVectorsAreRefused) {
  const std::string block = "model.layers.0.mlp.";
  for (const Beside& b : {
           Beside{"gate.correction_bias", {4}, true},
           Beside{"router.e_score_bias", {1, 4}, true},
           Beside{"router.choice_bias", {4}, true},
           Beside{"per_expert_scale", {4}, true},
           Beside{"gate.e_score_correction_bias.bias", {4}, true},
           Beside{"gate.per_layer_bias", {5}, false},
           Beside{"gate.temperature", {1}, false},
           Beside{"gate.weight", {4, 64}, false},
           Beside{"gate.bias", {4}, false},
           Beside{"router.bias", {4}, false},
           Beside{"router.linear.bias", {4}, false},
           Beside{"router.classifier.bias", {4}, false},
           Beside{"gate.wg.weight_scale", {4}, false},
           Beside{"gate.scales", {1, 4}, false},
           Beside{"shared_experts.up_proj.weight_scale", {4}, false},
           Beside{"shared_expert_gate.weight", {1, 4}, false},
       }) {
    const std::string name = block + b.name;
    expect_beside({name.c_str(), b.shape, b.refused});
  }
  for (const Beside& b : {
           Beside{"model.layers.0.router.choice_bias", {4}, true},
           Beside{"model.layers.0.gate.scale", {4}, true},
           Beside{"model.layers.0.gate.bias", {4}, false},
           Beside{"model.layers.0.self_attn.q_norm.weight", {4}, false},
           Beside{"model.layers.1.mlp.router.choice_bias", {4}, false},
           Beside{"mtp.layers.0.mlp.router.choice_bias", {4}, false},
       })
    expect_beside(b);
  // Nobody who brings the ids and weights himself loses by it.
  expect_beside({"model.layers.0.mlp.router.choice_bias", {4}, false}, R"(,"routing":{"method":"custom"})");
  // The config may say what it is.
  expect_beside({"model.layers.0.mlp.router.choice_bias", {4}, false},
                R"(,"routing":{"scoring_func":"sigmoid","e_score_correction_bias":true,
                    "correction_bias_name":"router.choice_bias"})");
}

// Zero experts count as columns of the router.
TEST(SideTensors, VectorsOfAllColumns) {
  constexpr const char* kZero =
      R"(,"routing":{"num_zero_experts":2,"scoring_func":"sigmoid","e_score_correction_bias":true})";
  expect_beside({"model.layers.0.mlp.router.choice_bias", {6}, true}, kZero);
  expect_beside({"model.layers.0.mlp.router.choice_bias", {5}, false}, kZero);
  expect_beside({"model.layers.0.mlp.experts.4.norm.weight", {64}, false}, kZero);
  expect_beside({"model.layers.0.mlp.experts.6.norm.weight", {64}, true}, kZero);
}

// Those of an expert have their own meaning.
TEST(SideTensors, AnExpertsOwnVectors) {
  const TempDir dir;
  SafetensorsWriter w;
  const std::array<std::int64_t, 2> shape = {32, 64};
  w.add("model.layers.0.mlp.experts.0.up_proj.weight_shape", "I64", {2}, shape.data(), 16);
  const std::string path = dir.write("model.safetensors", w.bytes());
  WeightSet set(config_of({.experts = 2, .format = "pack-quantized"}));
  const Check c = set.load_safetensors(path.c_str(), nullptr);
  EXPECT_TRUE(c) << c.error().message;
}

// A file with no expert has them, too.
TEST(SideTensors, UnknownVectorsOfAnotherFile) {
  const TempDir dir;
  for (const char* name : {"model.layers.0.mlp.router.choice_bias", "layers.0.ffn.gate.choice_bias"}) {
    const std::string path = write_bias(dir, name, {4});
    WeightSet set(config_of({}));
    const Check c = set.load_safetensors(path.c_str(), nullptr);
    ASSERT_FALSE(c) << name;
    EXPECT_EQ(c.error().subject, name);
  }
}

// Among the experts there is nothing else.
TEST(SideTensors, UnknownTensorsOfExperts) {
  const std::string experts = "model.layers.0.mlp.experts.";
  for (const char* name : {"scale", "per_expert_scale", "0.post_expert_norm.weight", "1.scale", "act.alpha"})
    for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{4}, {64}, {3, 2}}) {
      const std::string whole = experts + name;
      expect_beside({whole.c_str(), shape, true});
      expect_beside({whole.c_str(), shape, true}, "", "model.layers.0.mlp.experts");
    }
}

}  // namespace
}  // namespace moe::test::side_tensors_test
