// Experts are found under the prefixes, blocks and names that writers use; two places, or names that nobody knows, are
// refused.
#include "weights/expert_places.h"

#include <gtest/gtest.h>

#include "support/rooms.h"
#include "support/safetensors_writer.h"
#include "weights/weight_fixture.h"

namespace moe::test::expert_places_test {
namespace {

TEST(ExpertPlaces, PartsOfAModulesPath) {
  struct Case {
    const char *module, *layers, *number, *block;
  };
  for (const Case& c : {Case{"model.layers.3.mlp.experts", "model.layers", "3", "mlp.experts"},
                        Case{"layers.12.ffn.experts", "layers", "12", "ffn.experts"},
                        Case{"transformer.blocks.0.ffn.experts.mlp", "transformer.blocks", "0", "ffn.experts.mlp"},
                        Case{"model.language_model.layers.7", "model.language_model.layers", "7", ""}}) {
    const auto path = layer_path(c.module);
    ASSERT_TRUE(path) << c.module;
    EXPECT_EQ(path->layers, c.layers);
    EXPECT_EQ(path->number, c.number);
    EXPECT_EQ(path->block, c.block);
  }
  for (const char* module : {"", "experts", "model.layers", "model.layers.x.mlp", "players.3.mlp"})
    EXPECT_FALSE(layer_path(module)) << module;
}

// Of a layer of the fixture (hidden 64, experts 32 wide, four of them).
struct File {
  SafetensorsWriter writer;
  std::vector<float> values = std::vector<float>(4 * 2 * 64 * 64, 0.5f);

  void add(const std::string& name, const std::vector<std::int64_t>& shape) {
    std::size_t count = 1;
    for (const std::int64_t d : shape) count *= static_cast<std::size_t>(d);
    ASSERT_LE(count, values.size());
    writer.add(name, "F32", shape, values.data(), count * sizeof(float));
  }
  void add_each(const std::string& prefix, const char* gate, const char* up, const char* down) {
    for (int e = 0; e < 4; ++e) {
      const std::string at = prefix + "." + std::to_string(e) + ".";
      add(at + gate + ".weight", {32, 64});
      add(at + up + ".weight", {32, 64});
      add(at + down + ".weight", {64, 32});
    }
  }
};

std::shared_ptr<const Config> plain(const std::string& name, const std::string& more = "") {
  auto c = parse_config(R"({"num_experts":4,"top_k":2,"hidden_dim":64,"intermediate_size":32,"name":")" + name + "\"" +
                        more + "}");
  EXPECT_TRUE(c) << c.error().message;
  return std::make_shared<const Config>(*std::move(c));
}

TEST(ExpertPlaces, UnderEveryPrefixAndName) {
  struct Case {
    const char *prefix, *gate, *up, *down;
  };
  for (const Case& c : {Case{"model.layers.5.mlp.experts", "gate_proj", "up_proj", "down_proj"},
                        Case{"layers.5.mlp.experts", "w1", "w3", "w2"},
                        Case{"language_model.model.layers.5.block_sparse_moe.experts", "w1", "w3", "w2"},
                        Case{"model.language_model.layers.5.feed_forward.experts", "gate_proj", "up_proj", "down_proj"},
                        Case{"thinker.model.layers.5.mlp.experts", "gate_proj", "up_proj", "down_proj"}}) {
    const TempDir dir;
    File f;
    f.add_each(c.prefix, c.gate, c.up, c.down);
    f.add_each("model.layers.6.mlp.experts", "gate_proj", "up_proj", "down_proj");  // another layer
    dir.write("model.safetensors", f.writer.bytes());
    WeightSet set(plain("model.layers.5.mlp.experts"));
    const Check loaded = set.load_safetensors(dir.path().c_str(), nullptr);
    ASSERT_TRUE(loaded) << loaded.error().message;
    EXPECT_TRUE(set.check_complete()) << c.prefix;
  }
}

TEST(ExpertPlaces, StacksUnderTheirNames) {
  struct Case {
    const char* more;
    const char *w13, *w2;
    std::vector<std::int64_t> w13_shape, w2_shape;
  };
  for (const Case& c :
       {Case{R"(,"stacked_weights":"rows_first")", "gate_up_proj", "down_proj", {4, 64, 64}, {4, 64, 32}},
        Case{R"(,"stacked_weights":"columns_first","stacked_names":["fc1.weight","fc2.weight"])",
             "fc1.weight",
             "fc2",
             {4, 64, 64},
             {4, 32, 64}},
        Case{R"(,"stacked_weights":"rows_first","stacked_names":["a","b"])",
             "gate_up_proj",  // transformers' own names serve, too
             "down_proj.weight",
             {4, 64, 64},
             {4, 64, 32}}}) {
    const TempDir dir;
    File f;
    f.add(std::string("model.layers.0.mlp.experts.") + c.w13, c.w13_shape);
    f.add(std::string("model.layers.0.mlp.experts.") + c.w2, c.w2_shape);
    dir.write("model.safetensors", f.writer.bytes());
    WeightSet set(plain("model.layers.0.mlp.experts", c.more));
    const Check loaded = set.load_safetensors(dir.path().c_str(), nullptr);
    ASSERT_TRUE(loaded) << loaded.error().message;
    EXPECT_TRUE(set.check_complete()) << c.w13;
  }
}

TEST(ExpertPlaces, FlatAndApart) {
  const TempDir dir;
  File f;
  for (const char* name : {"w1", "v1", "w2"})
    f.add(std::string("transformer.blocks.1.ffn.experts.mlp.") + name, {128, 64});
  dir.write("model.safetensors", f.writer.bytes());
  WeightSet set(
      plain("transformer.blocks.1.ffn.experts.mlp", R"(,"stacked_weights":"flat","stacked_names":["w1","v1","w2"])"));
  const Check loaded = set.load_safetensors(dir.path().c_str(), nullptr);
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_TRUE(set.check_complete());
}

TEST(ExpertPlaces, TwoPlacesAreRefused) {
  const TempDir dir;
  File f;
  f.add_each("model.layers.0.mlp.experts", "gate_proj", "up_proj", "down_proj");
  f.add_each("layers.0.mlp.experts", "gate_proj", "up_proj", "down_proj");
  dir.write("model.safetensors", f.writer.bytes());
  WeightSet set(plain("model.layers.0.mlp.experts"));
  const Check loaded = set.load_safetensors(dir.path().c_str(), nullptr);
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, Code::unexpected_weight);
}

TEST(ExpertPlaces, UnknownNamesAreListed) {
  const TempDir dir;
  File f;
  f.add_each("model.layers.0.mlp.experts", "wi_0", "wi_1", "wo");
  f.add("model.layers.0.mlp.shared_experts.up_proj.weight", {32, 64});
  dir.write("model.safetensors", f.writer.bytes());
  WeightSet set(plain("model.layers.0.mlp.experts"));
  const Check loaded = set.load_safetensors(dir.path().c_str(), nullptr);
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, Code::unexpected_weight);
  for (const char* part : {"model.layers.0.mlp.experts.*.wi_0.weight", "experts.*.wo.weight", "projection_names",
                           "model.layers.0.mlp.experts.0.up_proj.weight"})
    EXPECT_NE(loaded.error().message.find(part), std::string::npos) << part << ": " << loaded.error().message;
  EXPECT_EQ(loaded.error().message.find("shared"), std::string::npos);
}

}  // namespace
}  // namespace moe::test::expert_places_test
