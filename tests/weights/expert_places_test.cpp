// Experts are found under the prefixes, blocks and names that writers use for one model; those of another model beside
// it are never taken; two places, or names that nobody knows, are refused.
#include "weights/expert_places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hf/hf.h"

#include "support/rooms.h"
#include "support/safetensors_writer.h"
#include "weights/weight_fixture.h"

namespace moe::test::expert_places_test {
namespace {

using ::testing::HasSubstr;

TEST(ExpertPlaces, PartsOfAModulesPath) {
  struct Case {
    const char *module, *layers, *number, *block;
  };
  for (const Case& c : {Case{"model.layers.3.mlp.experts", "model.layers", "3", "mlp.experts"},
                        Case{"layers.12.ffn.experts", "layers", "12", "ffn.experts"},
                        Case{"transformer.blocks.0.ffn.experts.mlp", "transformer.blocks", "0", "ffn.experts.mlp"},
                        Case{"model.language_model.layers.7", "model.language_model.layers", "7", ""},
                        Case{"mtp.0.ffn.experts", "mtp", "0", "ffn.experts"},
                        Case{"mtp.layers.1.mlp.experts", "mtp.layers", "1", "mlp.experts"}}) {
    const auto path = layer_path(c.module);
    ASSERT_TRUE(path) << c.module;
    EXPECT_EQ(path->layers, c.layers);
    EXPECT_EQ(path->number, c.number);
    EXPECT_EQ(path->block, c.block);
  }
  for (const char* module : {"", "experts", "model.layers", "model.layers.x.mlp", "players.3.mlp"})
    EXPECT_FALSE(layer_path(module)) << module;
}

TEST(ExpertPlaces, NamesOfOneLayer) {
  struct Case {
    const char *a, *b;
    bool given, guessed;
  };
  for (const Case& c : {Case{"model.layers.0.mlp.experts", "model.layers.0.mlp.experts", true, true},
                        Case{"experts", "experts", true, true},
                        Case{"model.layers.0.mlp.experts", "model.layers.1.mlp.experts", false, false},
                        Case{"model.layers.1.mlp.experts", "model.layers.11.mlp.experts", false, false},
                        Case{"a.layers.0.b", "blocks.1.ffn.experts", false, false},
                        Case{"model.layers.0.mlp.experts", "language_model.model.layers.0.ffn.experts", true, true},
                        Case{"model.layers.0.mlp.experts", "a.layers.0.mlp.experts", false, true},
                        Case{"model.layers.0.mlp.experts", "model.layers.0.other", false, true},
                        Case{"model.layers.0.mlp.experts", "experts", false, true},
                        Case{"model.layers.0.mlp.experts", "talker.model.layers.0.mlp.experts", false, true},
                        Case{"thinker.model.layers.0.mlp.experts", "talker.model.layers.0.mlp.experts", false, false},
                        Case{"model.layers.0.mlp.experts", "mtp.layers.0.mlp.experts", false, false},
                        Case{"model.layers.0.mlp.experts", "model.mtp.layers.0.mlp.experts", false, false},
                        Case{"a", "b", false, true}}) {
    EXPECT_EQ(may_be_one_layer(c.a, c.b, false), c.given) << c.a << " " << c.b;
    EXPECT_EQ(may_be_one_layer(c.b, c.a, true), c.guessed) << c.a << " " << c.b;
  }
}

// Of a layer of the fixture (hidden 64, experts 32 wide, four of them).
struct File {
  SafetensorsWriter writer;
  std::vector<float> values = std::vector<float>(4 * 2 * 64 * 64);
  float next = 1;  // of every value of the next tensor

  void add(const std::string& name, const std::vector<std::int64_t>& shape) {
    std::size_t count = 1;
    for (const std::int64_t d : shape) count *= static_cast<std::size_t>(d);
    ASSERT_LE(count, values.size());
    values.assign(values.size(), next++);
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
                        Case{"transformer.layers.5.mlp.experts", "gate_proj", "up_proj", "down_proj"},
                        Case{"language_model.model.blocks.5.mlp.experts", "gate_proj", "up_proj", "down_proj"},
                        Case{"model.decoder.layers.5.mlp.experts", "gate_proj", "up_proj", "down_proj"}}) {
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

// A layer of multi-token prediction counts on its own: the text model's layer of that number is another.
TEST(ExpertPlaces, OfLayersThatPredict) {
  const nlohmann::json hf = {{"architectures", {"DeepseekV4ForCausalLM"}},
                             {"hidden_size", 64},
                             {"moe_intermediate_size", 32},
                             {"n_routed_experts", 4},
                             {"num_experts_per_tok", 2},
                             {"num_hidden_layers", 1},
                             {"num_nextn_predict_layers", 1},
                             {"num_hash_layers", 1},
                             {"dtype", "float32"}};
  for (const char* prefix : {"mtp.0.", "model.mtp.0."}) {
    const TempDir dir;
    File f;
    f.add_each("layers.0.ffn.experts", "w1", "w3", "w2");
    const float first = f.next;
    f.add_each(std::string(prefix) + "ffn.experts", "w1", "w3", "w2");
    dir.write("model.safetensors", f.writer.bytes());
    for (const int layer : {0, 1}) {
      auto made =
          hf::config_from_hf(hf.dump(), R"({"overrides":{"routing":{"e_score_correction_bias":false}},"layer_index":)" +
                                            std::to_string(layer) + "}");
      ASSERT_TRUE(made) << made.error().message;
      WeightSet set(std::make_shared<const Config>(*std::move(made)));
      const Check loaded = set.load_safetensors(dir.path().c_str(), nullptr);
      ASSERT_TRUE(loaded) << loaded.error().message;
      const auto w2 = set.tensor(Role::w2_weight, 0);
      ASSERT_TRUE(w2) << w2.error().message;
      const float value = *reinterpret_cast<const float*>(w2->view.data);
      EXPECT_EQ(value >= first, layer == 1) << prefix;
    }
    const TempDir without;
    File other;
    other.add_each("layers.0.ffn.experts", "w1", "w3", "w2");
    without.write("model.safetensors", other.writer.bytes());
    auto made =
        hf::config_from_hf(hf.dump(), R"({"overrides":{"routing":{"e_score_correction_bias":false}},"layer_index":1})");
    ASSERT_TRUE(made);
    WeightSet set(std::make_shared<const Config>(*std::move(made)));
    const Check loaded = set.load_safetensors(without.path().c_str(), nullptr);
    EXPECT_FALSE(loaded && set.check_complete());
  }
}

// Writers that save a model again number its layers of multi-token prediction behind all others.
TEST(ExpertPlaces, OfLayersThatPredictSavedAgain) {
  const std::string hf =
      R"({"architectures":["DeepseekV4ForCausalLM"],"hidden_size":64,"moe_intermediate_size":32,"n_routed_experts":4,
          "num_experts_per_tok":2,"num_hidden_layers":2,"num_nextn_predict_layers":1,"num_hash_layers":1,"dtype":"float32"})";
  for (const char* prefix : {"layers.2.ffn.experts", "model.layers.2.mlp.experts"}) {
    const TempDir dir;
    File f;
    f.add_each("layers.0.ffn.experts", "w1", "w3", "w2");
    f.add_each(prefix, "w1", "w3", "w2");
    dir.write("model.safetensors", f.writer.bytes());
    auto made =
        hf::config_from_hf(hf, R"({"overrides":{"routing":{"e_score_correction_bias":false}},"layer_index":2})");
    ASSERT_TRUE(made) << made.error().message;
    EXPECT_EQ(made->name, "mtp.0.ffn.experts");
    WeightSet set(std::make_shared<const Config>(*std::move(made)));
    const Check loaded = set.load_safetensors(dir.path().c_str(), nullptr);
    ASSERT_TRUE(loaded) << loaded.error().message;
    EXPECT_TRUE(set.check_complete()) << prefix;
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

// Gate and up of one stacked tensor, in the order that the config states.
TEST(ExpertPlaces, HalvesOfAStack) {
  std::vector<float> w13(4 * 64 * 64), w2(4 * 64 * 32);
  for (std::size_t i = 0; i < w13.size(); ++i) w13[i] = static_cast<float>(i / 64);  // the number of its row
  for (const char* order : {"gate_up", "up_gate"}) {
    const TempDir dir;
    SafetensorsWriter file;
    file.add("model.layers.0.mlp.experts.gate_up_proj", "F32", {4, 64, 64}, w13.data(), w13.size() * 4);
    file.add("model.layers.0.mlp.experts.down_proj", "F32", {4, 64, 32}, w2.data(), w2.size() * 4);
    dir.write("model.safetensors", file.bytes());
    WeightSet set(plain("model.layers.0.mlp.experts",
                        std::string(R"(,"stacked_weights":"rows_first","w13_layout":")") + order + "\""));
    const Check loaded = set.load_safetensors(dir.path().c_str(), nullptr);
    ASSERT_TRUE(loaded) << loaded.error().message;
    for (const Half half : {Half::w1, Half::w3}) {
      const auto lease = set.get({Role::w13_weight, 2, half});
      ASSERT_TRUE(lease) << lease.error().message;
      const bool second = (half == Half::w3) == (std::string(order) == "gate_up");
      for (std::int64_t r = 0; r < 32; ++r)
        EXPECT_EQ(load<float>(lease->view.data + r * lease->view.strides[0] * 4),
                  static_cast<float>(2 * 64 + (second ? 32 : 0) + r))
            << order << ", row " << r;
    }
  }
}

// A second scale as a factor and as a divisor: which of the two is right is not known.
TEST(ExpertPlaces, TwoFormsOfOneScale) {
  const std::string at = "model.layers.0.mlp.experts.";
  const auto config =
      plain("model.layers.0.mlp.experts",
            R"(,"quantization":{"format":"nvfp4-pack-quantized","weights":{"num_bits":4,"type":"float",)"
            R"("strategy":"tensor_group","group_size":16,"symmetric":true},"input_activations":null})");
  const float one = 1.0f;
  for (const std::int64_t expert : {0, 3})
    for (const std::int64_t other : {0, 3}) {
      const TempDir dir;
      SafetensorsWriter file;
      file.add(at + std::to_string(expert) + ".down_proj.weight_global_scale", "F32", {1}, &one, 4);
      file.add(at + std::to_string(other) + ".down_proj.weight_scale_2", "F32", {1}, &one, 4);
      dir.write("model.safetensors", file.bytes());
      WeightSet set(config);
      const Check loaded = set.load_safetensors(dir.path().c_str(), nullptr);
      EXPECT_EQ(static_cast<bool>(loaded), expert != other) << expert << ", " << other;
      if (loaded) continue;
      EXPECT_EQ(loaded.error().code, Code::unexpected_weight) << loaded.error().message;
      EXPECT_EQ(loaded.error().subject.rfind(at + std::to_string(expert) + ".down_proj.", 0), 0u)
          << loaded.error().subject;
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

std::shared_ptr<const Config> of_class(const std::string& name, const std::string& named_by_class) {
  Config c = *plain(name);
  c.named_by_class = named_by_class;
  return std::make_shared<const Config>(std::move(c));
}

// All values of one expert's tensor are the same in files of these tests.
float value_at(const WeightSet& set, const Place& place) {
  const auto lease = set.get(place);
  EXPECT_TRUE(lease) << (lease ? "" : lease.error().message);
  float value = 0;
  if (lease) std::memcpy(&value, lease->view.data, sizeof value);
  return value;
}

TEST(ExpertPlaces, TwoPlacesAreRefusedUnlessOneWasNamed) {
  const TempDir dir;
  File f;
  f.add_each("layers.0.mlp.experts", "gate_proj", "up_proj", "down_proj");
  f.add_each("model.layers.0.mlp.experts", "gate_proj", "up_proj", "down_proj");
  dir.write("model.safetensors", f.writer.bytes());
  WeightSet guessed(of_class("model.layers.0.mlp.experts", "Qwen3MoeForCausalLM"));
  const Check loaded = guessed.load_safetensors(dir.path().c_str(), nullptr);
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, Code::unexpected_weight);
  EXPECT_EQ(loaded.error().subject, "layers.0.mlp.experts.0.down_proj.weight");
  for (const char* part : {"model.layers.0.mlp.experts.0.down_proj.weight", "the option module"})
    EXPECT_THAT(loaded.error().message, HasSubstr(part));
  for (const char* name : {"model.layers.0.mlp.experts", "layers.0.mlp.experts"}) {
    WeightSet named(plain(name));
    const Check ours = named.load_safetensors(dir.path().c_str(), nullptr);
    ASSERT_TRUE(ours) << ours.error().message;
    EXPECT_EQ(value_at(named, {Role::w13_weight, 0, Half::w1}), name[0] == 'l' ? 1 : 13) << name;
  }
}

// Another model's experts of the same layer and sizes.
TEST(ExpertPlaces, OfOneModelOnly) {
  const char* const text = "model.layers.0.mlp.experts";
  const char *const thinker = "thinker.model.layers.0.mlp.experts", *const talker = "talker.model.layers.0.mlp.experts";
  const char *const is_thinker = "Qwen3OmniMoeThinkerForConditionalGeneration",
                    *const is_talker = "Qwen3OmniMoeTalkerForConditionalGeneration";
  struct Case {
    const char *name, *named_by;
    std::vector<const char*> files;
    int found;  // of files; -1: none
  };
  for (const Case& c : {
           Case{text, "", {thinker}, -1},
           Case{text, "Qwen3MoeForCausalLM", {thinker, talker}, -1},
           Case{text, is_thinker, {thinker, talker}, 0},
           Case{text, is_talker, {thinker, talker}, 1},
           Case{text, is_talker, {thinker}, -1},
           Case{text, is_talker, {text}, 0},
           Case{thinker, "Qwen3OmniMoeForConditionalGeneration", {talker, text}, 1},
           Case{thinker, "Qwen3OmniMoeForConditionalGeneration", {talker}, -1},
           Case{talker, "", {thinker, talker}, 1},
           Case{talker, "", {text, thinker}, -1},
           Case{"vision_tower.blocks.0.moe.experts", "", {text}, -1},
           Case{"model.layers.0.mlp.vision_experts", "", {text}, -1},
           Case{"transformer.h.0.moe.experts", "", {"transformer.h.0.moe.experts", text}, 0},
       }) {
    const TempDir dir;
    File f;
    for (const char* file : c.files) f.add_each(file, "gate_proj", "up_proj", "down_proj");
    dir.write("model.safetensors", f.writer.bytes());
    WeightSet set(of_class(c.name, c.named_by));
    const Check loaded = set.load_safetensors(dir.path().c_str(), nullptr);
    const std::string what = std::string(c.name) + " of " + c.named_by + " in " + c.files[0];
    ASSERT_TRUE(loaded) << what << ": " << loaded.error().message;
    EXPECT_EQ(static_cast<bool>(set.check_complete()), c.found >= 0) << what;
    if (c.found >= 0) {
      EXPECT_EQ(value_at(set, {Role::w13_weight, 0, Half::w1}), static_cast<float>(1 + 12 * c.found)) << what;
    } else {
      EXPECT_THAT(set.check_complete().error().message, HasSubstr("The options layer_index, module"));
    }
    std::vector<float> values(32 * 64, 1.0f);
    TensorView gate = row_major(DType::f32, {32, 64}, nullptr);
    gate.data = reinterpret_cast<std::byte*>(values.data());
    WeightSet by_name(of_class(c.name, c.named_by));
    for (std::size_t i = 0; i < c.files.size(); ++i) {
      const auto taken = by_name.set_named(std::string(c.files[i]) + ".0.gate_proj.weight", gate, {});
      ASSERT_TRUE(taken) << taken.error().message;
      EXPECT_EQ(*taken, static_cast<int>(i) == c.found) << what;
    }
  }
}

// Whose the name is: the class's row, or the caller's.
TEST(ExpertPlaces, WhoNamedTheModule) {
  const std::string file =
      R"({"architectures":["Qwen3MoeForCausalLM"],"num_experts":4,"num_experts_per_tok":2,"hidden_size":64,
          "moe_intermediate_size":32,"num_hidden_layers":1,"norm_topk_prob":true})";
  struct Case {
    const char *options, *named_by;
  };
  for (const Case& c :
       {Case{"", "Qwen3MoeForCausalLM"}, Case{R"({"architecture":"Qwen2MoeForCausalLM"})", "Qwen2MoeForCausalLM"},
        Case{R"({"architecture":{"like":"Qwen2MoeForCausalLM","has_bias":false}})", "Qwen2MoeForCausalLM"},
        Case{R"({"architecture":{"like":"Qwen2MoeForCausalLM","module":"a.{layer}.b"}})", ""},
        Case{R"({"module":"model.layers.0.mlp.experts"})", ""},
        Case{R"({"overrides":{"name":"model.layers.0.mlp.experts"}})", ""}}) {
    const auto config = config_from_hf(file, c.options);
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_EQ(config->named_by_class, c.named_by) << c.options;
    const auto merged = merge_config(*config, R"({"moe_backend":"cpu"})"),
               named = merge_config(*config, R"({"name":"x"})");
    ASSERT_TRUE(merged && named);
    EXPECT_EQ(merged->named_by_class, c.named_by) << c.options;
    EXPECT_EQ(named->named_by_class, "") << c.options;
  }
  EXPECT_EQ(plain("model.layers.0.mlp.experts")->named_by_class, "");
}

// The config's own names come first, also where another set has one of them as another projection.
TEST(ExpertPlaces, NamesThatAnotherSetHas) {
  using Names = std::array<const char*, 3>;
  for (const Names& n : {Names{"w1", "w2", "w3"}, Names{"gate", "up_proj", "down_proj"}, Names{"w1", "w3", "down_proj"},
                         Names{"up_proj", "gate_proj", "down_proj"}, Names{"w2", "w3", "w1"}}) {
    const TempDir dir;
    File f;
    f.add_each("model.layers.0.mlp.experts", n[0], n[1], n[2]);
    dir.write("model.safetensors", f.writer.bytes());
    const std::string names = std::string(R"(,"projection_names":[")") + n[0] + "\",\"" + n[1] + "\",\"" + n[2] + "\"]";
    for (const char* module : {static_cast<const char*>(nullptr), "model.layers.0.mlp.experts"}) {
      WeightSet set(plain("model.layers.0.mlp.experts", names));
      const Check loaded = set.load_safetensors(dir.path().c_str(), module);
      ASSERT_TRUE(loaded) << loaded.error().message;
      ASSERT_TRUE(set.check_complete()) << names;
      EXPECT_EQ(value_at(set, {Role::w13_weight, 1, Half::w1}), 4) << names;
      EXPECT_EQ(value_at(set, {Role::w13_weight, 1, Half::w3}), 5) << names;
      EXPECT_EQ(value_at(set, {Role::w2_weight, 1, Half::whole}), 6) << names;
    }
  }
  const TempDir dir;
  File f;
  f.add_each("model.layers.0.mlp.experts", "gate_proj", "up_proj", "down_proj");
  dir.write("model.safetensors", f.writer.bytes());
  WeightSet set(plain("model.layers.0.mlp.experts", R"(,"projection_names":["gate","up_proj","down_proj"])"));
  const Check loaded = set.load_safetensors(dir.path().c_str(), nullptr);
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().subject, "model.layers.0.mlp.experts.0.gate_proj.weight");
  for (const char* part : {"also at model.layers.0.mlp.experts.0.down_proj.weight", "projection_names"})
    EXPECT_THAT(loaded.error().message, HasSubstr(part));
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

// Whoever loads nothing learns what was looked for, what is there instead, and what to say.
TEST(ExpertPlaces, WhatIsThereInstead) {
  struct Case {
    const char* what;
    const char *name, *module;       // of the config; of the call
    std::vector<const char*> files;  // modules of experts
    std::vector<const char*> parts;
    const char* projection = "up_proj";
  };
  const char* const own = "model.layers.0.mlp.experts";
  for (const Case& c : {
           Case{"another block",
                own,
                nullptr,
                {"model.layers.0.ff.moe_experts"},
                {"of layer 0 it has model.layers.0.ff.moe_experts.*.down_proj.weight", "moe_experts.*.up_proj.weight"}},
           Case{"another word for layers",
                own,
                nullptr,
                {"transformer.h.0.moe.experts", "transformer.h.1.moe.experts"},
                {"of layer 0 it has transformer.h.0.moe.experts.*.down_proj.weight"}},
           Case{"without the word experts",
                own,
                nullptr,
                {"nova.layers.0.ff.bank"},
                {"of layer 0 it has nova.layers.0.ff.bank.*.down_proj.weight"}},
           Case{"another layer", own, nullptr, {"model.layers.2.mlp.experts"}, {"it has experts of layer 2. "}},
           Case{"other layers",
                own,
                nullptr,
                {"model.layers.2.mlp.experts", "model.layers.3.mlp.experts", "model.layers.5.mlp.experts",
                 "model.layers.11.mlp.experts", "model.layers.12.mlp.experts"},
                {"it has experts of layers 2, 3, 5 .. 12. "}},
           Case{"another model",
                "talker.model.layers.0.mlp.experts",
                nullptr,
                {own},
                {"looked for talker.model.layers.0.mlp.experts.0.up_proj.weight",
                 "of layer 0 it has model.layers.0.mlp.experts.*.down_proj.weight"}},
           Case{"the call's module",
                own,
                "x.layers.0.mlp.experts",
                {own},
                {"looked for x.layers.0.mlp.experts.0.up_proj.weight",
                 "of layer 0 it has model.layers.0.mlp.experts.*.down_proj.weight"}},
           Case{"no layer",
                "nothing",
                nullptr,
                {own},
                {"looked for nothing.0.up_proj.weight", "it has model.layers.0.mlp.experts.*.down_proj.weight"}},
       }) {
    const TempDir dir;
    File f;
    for (const char* file : c.files) f.add_each(file, "gate_proj", "up_proj", "down_proj");
    dir.write("model.safetensors", f.writer.bytes());
    WeightSet set(plain(c.name));
    const Check loaded = set.load_safetensors(dir.path().c_str(), c.module);
    ASSERT_TRUE(loaded) << c.what << ": " << loaded.error().message;
    const Check complete = set.check_complete();
    ASSERT_FALSE(complete) << c.what;
    EXPECT_EQ(complete.error().code, Code::missing_weight);
    EXPECT_EQ(complete.error().subject, "w13_weight[0]");
    for (const char* part : c.parts) EXPECT_THAT(complete.error().message, HasSubstr(part)) << c.what;
    for (const char* part : {"8 weights were never set: ", "The options layer_index, module, projection_names"})
      EXPECT_THAT(complete.error().message, HasSubstr(part)) << c.what;
    EXPECT_THAT(complete.error().details, HasSubstr("w2_weight[3]")) << c.what;
  }
}

TEST(ExpertPlaces, AFileWithoutExperts) {
  const TempDir dir;
  File f;
  f.add("model.layers.0.mlp.gate_proj.weight", {32, 64});
  f.add("model.layers.0.mlp.shared_expert.up_proj.weight", {32, 64});
  dir.write("dense.safetensors", f.writer.bytes());
  dir.write("none.safetensors", SafetensorsWriter().bytes());
  WeightSet set(plain("model.layers.0.mlp.experts"));
  ASSERT_TRUE(set.load_safetensors(dir.file("dense.safetensors").c_str(), nullptr));
  EXPECT_THAT(set.check_complete().error().message,
              HasSubstr("it has no experts, of layer 0 model.layers.0.mlp.gate_proj.weight, "));
  ASSERT_TRUE(set.load_safetensors(dir.file("none.safetensors").c_str(), nullptr));
  EXPECT_THAT(set.check_complete().error().message, HasSubstr("it has no tensors"));
  std::filesystem::remove(dir.file("none.safetensors"));
  EXPECT_THAT(set.check_complete().error().message, HasSubstr("never set: w13_weight[0-3], "));
  set.clear();
  EXPECT_THAT(set.check_complete().error().message, HasSubstr("never set: w13_weight[0-3], "));
}

// One after the other, and no matter which of them have tensors of this layer.
TEST(ExpertPlaces, FilesOneByOne) {
  const TempDir dir;
  const char* const own = "model.layers.0.mlp.experts";
  for (const char* module : {"talker.model.layers.0.mlp.experts", own, "model.layers.1.mlp.experts"}) {
    File f;
    f.add_each(module, "gate_proj", "up_proj", "down_proj");
    dir.write(std::string(module) + ".safetensors", f.writer.bytes());
  }
  const auto load = [&](WeightSet& set, const std::string& module) {
    const Check loaded = set.load_safetensors(dir.file(module + ".safetensors").c_str(), nullptr);
    EXPECT_TRUE(loaded) << module << ": " << loaded.error().message;
  };
  WeightSet set(plain(own));
  load(set, "model.layers.1.mlp.experts");
  EXPECT_FALSE(set.check_complete());
  load(set, own);
  EXPECT_TRUE(set.check_complete());
  load(set, "talker.model.layers.0.mlp.experts");
  EXPECT_TRUE(set.check_complete());
}

// Below a module that was named itself, whatever it is called.
TEST(ExpertPlaces, UnknownNamesOfANamedModule) {
  const TempDir dir;
  File f;
  f.add_each("nova.layers.0.ff.bank", "wg", "wu", "wd");
  dir.write("model.safetensors", f.writer.bytes());
  for (const char* module : {static_cast<const char*>(nullptr), "nova.layers.0.ff.bank"}) {
    WeightSet set(plain(module == nullptr ? "nova.layers.0.ff.bank" : "model.layers.0.mlp.experts"));
    const Check loaded = set.load_safetensors(dir.path().c_str(), module);
    ASSERT_FALSE(loaded);
    EXPECT_EQ(loaded.error().code, Code::unexpected_weight);
    for (const char* part :
         {"nova.layers.0.ff.bank.*.wg.weight", "looked for nova.layers.0.ff.bank.0.up_proj.weight", "projection_names"})
      EXPECT_THAT(loaded.error().message, HasSubstr(part));
  }
}

}  // namespace
}  // namespace moe::test::expert_places_test
