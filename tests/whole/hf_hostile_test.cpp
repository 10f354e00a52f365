// Checkpoints that are not what the config says: each is refused with its tensor, and the set of weights stays as it
// was. Names that look like this layer's and are not, files of other formats, and how often files are read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "support/call_faults.h"
#include "support/capi.h"
#include "support/rooms.h"
#include "support/safetensors_writer.h"
#include "support/sanitizers.h"
#include "support/weight_files.h"

namespace moe::test::hf_hostile_test {
namespace {

using ::testing::HasSubstr;

constexpr int kExperts = 4;
constexpr std::int64_t kHidden = 64, kWidth = 32;
const std::string kBlock = "model.layers.1.mlp.", kModule = kBlock + "experts.";

std::string config_text(const std::string& more = "") {
  return R"({"name":"model.layers.1.mlp.experts","num_experts":4,"top_k":2,"hidden_dim":64,"intermediate_size":32)" +
         more + "}";
}

// Files of tensors, whose values follow from `seed`.
class Checkpoint {
 public:
  explicit Checkpoint(int shards = 1) : files_(static_cast<std::size_t>(shards)) {}

  void add(const std::string& name, const std::vector<std::int64_t>& shape, const char* dtype = "F32") {
    add_to(next_++ % files_.size(), name, shape, dtype);
  }
  void add_to(std::size_t shard, const std::string& name, const std::vector<std::int64_t>& shape,
              const char* dtype = "F32") {
    std::size_t bytes = std::string(dtype) == "F32" ? 4 : std::string(dtype) == "I8" ? 1 : 2;
    for (const std::int64_t d : shape) bytes *= static_cast<std::size_t>(d);
    std::vector<float> values((bytes + 3) / 4);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>((i + name.size() + seed_) % 61) / 64 - 0.5f;
    seed_ += 7;
    files_[shard].add(name, dtype, shape, values.data(), bytes);
    places_[name] = shard;
  }
  void add_expert(const std::string& module, int expert, const char* gate = "gate_proj", const char* up = "up_proj",
                  const char* down = "down_proj") {
    const std::string at = module + std::to_string(expert) + ".";
    add(at + gate + ".weight", {kWidth, kHidden});
    add(at + up + ".weight", {kWidth, kHidden});
    add(at + down + ".weight", {kHidden, kWidth});
  }
  void add_experts(const std::string& module, int from = 0, int to = kExperts) {
    for (int e = from; e < to; ++e) add_expert(module, e);
  }

  std::string name(std::size_t shard) const {
    return files_.size() == 1 ? "model.safetensors" : "model-0000" + std::to_string(shard + 1) + ".safetensors";
  }
  void write(const TempDir& dir, bool index) const {
    nlohmann::json map;
    for (const auto& [tensor, shard] : places_) map[tensor] = name(shard);
    for (std::size_t s = 0; s < files_.size(); ++s) dir.write(name(s), files_[s].bytes());
    if (index) dir.write("model.safetensors.index.json", nlohmann::json{{"weight_map", map}}.dump());
  }

 private:
  std::vector<SafetensorsWriter> files_;
  std::map<std::string, std::size_t> places_;
  std::size_t next_ = 0, seed_ = 0;
};

Checkpoint good(int shards = 1) {
  Checkpoint c(shards);
  c.add_experts(kModule);
  return c;
}

std::vector<std::byte> packed_bytes(const moe_config* config, moe_weights* weights) {
  const SelectionPtr selection = make_selection(config);
  const PackedPtr p = packed_of(selection.get(), weights);
  const void* data = nullptr;
  std::uint64_t size = 0;
  EXPECT_EQ(moe_packed_data(p.get(), &data, &size, nullptr), MOE_OK);
  return {static_cast<const std::byte*>(data), static_cast<const std::byte*>(data) + size};
}

// What a fresh set makes of the good checkpoint.
std::vector<std::byte> good_bytes(const moe_config* config) {
  const TempDir dir;
  good().write(dir, false);
  const WeightsPtr weights = weights_of(config);
  EXPECT_EQ(load(weights.get(), dir).status, MOE_OK);
  return packed_bytes(config, weights.get());
}

// Nothing of a refused checkpoint is there, and a good one loads as ever.
void expect_as_it_was(const moe_config* config, moe_weights* weights, const std::string& what) {
  const SelectionPtr selection = make_selection(config);
  const Failure f = failure([&](moe_error** e) {
    moe_packed* none = nullptr;
    return moe_convert_weights(nullptr, selection.get(), weights, nullptr, &none, e);
  });
  EXPECT_EQ(f.status, MOE_ERR_MISSING_WEIGHT) << what;
  EXPECT_EQ(f.subject, "w13_weight[0]") << what;
  const TempDir dir;
  good().write(dir, false);
  ASSERT_EQ(load(weights, dir).status, MOE_OK) << what;
  EXPECT_EQ(packed_bytes(config, weights), good_bytes(config)) << what;
}

struct Spoilt {
  const char* what;
  std::function<Checkpoint()> make;
  moe_status want;
  std::string subject;
  std::vector<std::string> words{};  // of the message
  const char* more = "";             // of the config
};

TEST(HfHostile, RefusedAndAsItWas) {
  const auto with = [](const std::string& name, const std::vector<std::int64_t>& shape, const char* dtype = "F32") {
    return [=] {
      Checkpoint c = good();
      c.add(name, shape, dtype);
      return c;
    };
  };
  const auto but_one = [](const std::string& name, const std::vector<std::int64_t>& shape, const char* dtype) {
    return [=] {
      Checkpoint c;
      c.add_experts(kModule, 0, 3);
      c.add(name, shape, dtype);
      return c;
    };
  };
  const std::string one = kModule + "3.gate_proj.weight";
  const std::vector<Spoilt> cases = {
      {"a correction bias",
       with(kBlock + "gate.e_score_correction_bias", {4}),
       MOE_ERR_UNEXPECTED_WEIGHT,
       kBlock + "gate.e_score_correction_bias",
       {"e_score_correction_bias of the config"}},
      {"a scale per expert",
       with(kBlock + "router.per_expert_scale", {4}),
       MOE_ERR_UNEXPECTED_WEIGHT,
       kBlock + "router.per_expert_scale",
       {"left out"}},
      {"a scale", with(kBlock + "gate.global_scale", {1}), MOE_ERR_UNEXPECTED_WEIGHT, kBlock + "gate.global_scale"},
      {"a norm", with(kModule + "post_expert_norm.weight", {64}), MOE_ERR_UNEXPECTED_WEIGHT,
       kModule + "post_expert_norm.weight"},
      {"biases", with(kModule + "2.up_proj.bias", {32}), MOE_ERR_UNEXPECTED_WEIGHT, kModule + "2.up_proj.bias"},
      {"scales of experts that are not quantized", with(kModule + "2.up_proj.weight_scale", {32, 1}),
       MOE_ERR_UNEXPECTED_WEIGHT, kModule + "2.up_proj.weight_scale"},
      {"an expert too many",
       with(kModule + "4.gate_proj.weight", {32, 64}),
       MOE_ERR_UNEXPECTED_WEIGHT,
       kModule + "4.gate_proj.weight",
       {"num_experts"}},
      {"a number that is not plain", with(kModule + "03.gate_proj.weight", {32, 64}), MOE_ERR_UNEXPECTED_WEIGHT,
       kModule + "03.gate_proj.weight"},
      {"another type", but_one(one, {32, 64}, "I8"), MOE_ERR_DTYPE, one, {"got i8"}},
      {"another shape", but_one(one, {64, 32}, "F32"), MOE_ERR_SHAPE, one, {"[32, 64]", "[64, 32]"}},
      {"another rank", but_one(one, {1, 32, 64}, "F32"), MOE_ERR_SHAPE, one},
      {"two names",
       [] {
         Checkpoint c = good();
         c.add_expert(kModule, 0, "w1", "w3", "w2");
         return c;
       },
       MOE_ERR_UNEXPECTED_WEIGHT, kModule + "0.w1.weight"},
      {"names that nobody knows",
       [] {
         Checkpoint c;
         for (int e = 0; e < kExperts; ++e) c.add_expert(kModule, e, "wi_0", "wi_1", "wo");
         return c;
       },
       MOE_ERR_UNEXPECTED_WEIGHT,
       kModule + "*.wi_0.weight",
       {kModule + "*.wi_1.weight", kModule + "*.wo.weight", kModule + "0.up_proj.weight", "projection_names"}},
      {"a name in two files",
       [] {
         Checkpoint c = good(2);
         c.add_to(0, kModule + "0.up_proj.weight", {32, 64});
         c.add_to(1, kModule + "0.up_proj.weight", {32, 64});
         return c;
       },
       MOE_ERR_FORMAT,
       "",
       {kModule + "0.up_proj.weight"}},
  };
  for (const Spoilt& s : cases) {
    const ConfigPtr config = make_config(config_text(s.more));
    const WeightsPtr weights = weights_of(config.get());
    const TempDir dir;
    s.make().write(dir, false);
    const Failure f = load(weights.get(), dir);
    EXPECT_EQ(f.status, s.want) << s.what << ": " << f.message;
    EXPECT_TRUE(s.subject.empty() || f.subject == s.subject) << s.what << ": " << f.subject;
    for (const std::string& word : s.words) EXPECT_THAT(f.message, HasSubstr(word)) << s.what;
    expect_as_it_was(config.get(), weights.get(), s.what);
  }
}

TEST(HfHostile, AMissingExpertIsNamed) {
  const ConfigPtr config = make_config(config_text());
  const SelectionPtr selection = make_selection(config.get());
  const WeightsPtr weights = weights_of(config.get());
  const TempDir dir;
  Checkpoint c;
  c.add_experts(kModule, 0, 2);
  c.add_expert(kModule, 3);
  c.write(dir, false);
  ASSERT_EQ(load(weights.get(), dir).status, MOE_OK);
  const Failure f = failure([&](moe_error** e) {
    moe_packed* none = nullptr;
    return moe_convert_weights(nullptr, selection.get(), weights.get(), nullptr, &none, e);
  });
  EXPECT_EQ(f.status, MOE_ERR_MISSING_WEIGHT);
  EXPECT_EQ(f.subject, "w13_weight[2]");
}

// Other layers, towers and heads, a dense layer's matrices, shared experts, the router.
TEST(HfHostile, NamesOfOthers) {
  Checkpoint c = good();
  for (const char* module :
       {"model.layers.11.mlp.experts.", "model.layers.61.mlp.experts.", "mtp.layers.1.mlp.experts.",
        "model.mtp.layers.1.mlp.experts.", "talker.model.layers.1.mlp.experts.",
        "vision_tower.encoder.layers.1.mlp.experts.", "model.visual.blocks.1.mlp.experts."})
    c.add_experts(module);
  for (const char* module : {"mtp.layers.1.mlp.", "talker.model.layers.1.mlp.", "model.layers.61.mlp."})
    c.add(std::string(module) + "gate.e_score_correction_bias", {4});
  c.add("model.layers.0.mlp.gate_up_proj.weight", {64, 64});
  c.add("model.visual.blocks.1.mlp.gate_up_proj.weight", {64, 64});
  c.add(kBlock + "gate.weight", {4, 64});
  c.add(kBlock + "shared_expert.gate_proj.weight", {32, 64});
  c.add(kBlock + "shared_experts.gate_up_proj.weight", {32, 64});
  c.add(kBlock + "shared_expert_gate.weight", {1, 64});
  const TempDir dir;
  c.write(dir, false);
  const ConfigPtr config = make_config(config_text());
  const WeightsPtr weights = weights_of(config.get());
  const Failure f = load(weights.get(), dir);
  ASSERT_EQ(f.status, MOE_OK) << f.message;
  EXPECT_EQ(packed_bytes(config.get(), weights.get()), good_bytes(config.get()));
}

// A dense layer has none of a stack's matrices.
TEST(HfHostile, ADenseLayerIsNoStack) {
  Checkpoint c;
  c.add(kBlock + "gate_up_proj.weight", {64, 64});
  c.add(kBlock + "down_proj.weight", {64, 32});
  const TempDir dir;
  c.write(dir, false);
  for (const char* more : {"", R"(,"stacked_weights":"rows_first")", R"(,"stacked_weights":"columns_first")"}) {
    const ConfigPtr config = make_config(config_text(more));
    const WeightsPtr weights = weights_of(config.get());
    ASSERT_EQ(load(weights.get(), dir).status, MOE_OK);
    expect_as_it_was(config.get(), weights.get(), more);
  }
}

// --- files --------------------------------------------------------------------------------------------------------

TEST(HfFiles, AnExpertTornApart) {
  const ConfigPtr config = make_config(config_text());
  for (const bool index : {true, false}) {
    const TempDir dir;
    good(3).write(dir, index);
    const WeightsPtr weights = weights_of(config.get());
    ASSERT_EQ(load(weights.get(), dir).status, MOE_OK);
    EXPECT_EQ(packed_bytes(config.get(), weights.get()), good_bytes(config.get()));
  }
}

// Mistral's own files: other names, beside those of transformers or alone.
TEST(HfFiles, Consolidated) {
  const ConfigPtr config = make_config(config_text());
  Checkpoint own;
  for (int e = 0; e < kExperts; ++e) own.add_expert("layers.1.experts.", e, "w1", "w3", "w2");
  own.add("layers.1.gate.weight", {4, 64});
  const TempDir alone, both;
  own.write(alone, false);
  std::filesystem::rename(alone.file("model.safetensors"), alone.file("consolidated.safetensors"));
  WeightsPtr weights = weights_of(config.get());
  Failure f = load(weights.get(), alone);
  ASSERT_EQ(f.status, MOE_OK) << f.message;
  EXPECT_FALSE(packed_bytes(config.get(), weights.get()).empty());
  good(2).write(both, true);
  both.write("consolidated.safetensors", "not looked at");
  weights = weights_of(config.get());
  f = load(weights.get(), both);
  ASSERT_EQ(f.status, MOE_OK) << f.message;
  EXPECT_EQ(packed_bytes(config.get(), weights.get()), good_bytes(config.get()));
}

TEST(HfFiles, OfOtherFormats) {
  struct Case {
    std::vector<const char*> files;
    const char *named, *cure;
  };
  const ConfigPtr config = make_config(config_text());
  const WeightsPtr weights = weights_of(config.get());
  for (const Case& c :
       {Case{{"config.json", "model-q4_k_m.gguf"}, "model-q4_k_m.gguf", "gguf_file="},
        Case{{"training_args.bin", "pytorch_model-00001-of-00002.bin"},
             "pytorch_model-00001-of-00002.bin",
             "safe_serialization=True"},
        Case{{"model.bin"}, "model.bin", "save_pretrained"}, Case{{"weights.pt"}, "weights.pt", "save_pretrained"},
        Case{{"weights.pth"}, "weights.pth", "save_pretrained"},
        Case{{"consolidated.00.pth", "tokenizer.model"}, "consolidated.00.pth", "_weights_to_hf.py"}}) {
    const TempDir dir;
    for (const char* file : c.files) dir.write(file, "GGUF and other bytes");
    const Failure f = load(weights.get(), dir);
    EXPECT_EQ(f.status, MOE_ERR_IO);
    EXPECT_EQ(f.subject, dir.path());
    for (const char* word : {"no .safetensors file", c.named, c.cure}) EXPECT_THAT(f.message, HasSubstr(word));
    const std::string path = dir.file(c.named);
    const Failure one =
        failure([&](moe_error** e) { return moe_weights_load_safetensors(weights.get(), path.c_str(), nullptr, e); });
    EXPECT_EQ(one.status, MOE_ERR_FORMAT);
    EXPECT_EQ(one.subject, path);
    for (const char* word : {"no .safetensors file", c.cure}) EXPECT_THAT(one.message, HasSubstr(word));
  }
  const TempDir none, pointers;
  none.write("config.json", "{}");
  EXPECT_THAT(load(weights.get(), none).message, ::testing::EndsWith("no .safetensors file in this directory"));
  pointers.write("model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n");
  const Failure f = load(weights.get(), pointers);
  EXPECT_EQ(f.status, MOE_ERR_FORMAT);
  EXPECT_THAT(f.message, HasSubstr("git lfs pull"));
  expect_as_it_was(config.get(), weights.get(), "other formats");
}

#if !MOE_ASAN && !MOE_TSAN  // a sanitizer's runtime makes calls of its own

// One opening and two reads of each file (the header's length, the header), one and one of an index, and the listing of
// a directory.
TEST(HfFiles, EachHeaderIsReadOnce) {
  struct Case {
    int shards;
    bool index;
    int opened, read;
  };
  const ConfigPtr config = make_config(config_text());
  for (const Case& c : {Case{1, false, 1, 2}, Case{5, false, 6, 10}, Case{5, true, 6, 11}}) {
    const TempDir dir;
    good(c.shards).write(dir, c.index);
    const WeightsPtr weights = weights_of(config.get());
    const auto count = [&](const std::vector<int>& calls) {
      return with_call_faults(
          calls, [](int) { return 0; }, [&] { EXPECT_EQ(load(weights.get(), dir).status, MOE_OK); });
    };
    std::vector<int> opening = {SYS_openat};
#ifdef SYS_open  // musl's open() where there is one
    opening.push_back(SYS_open);
#endif
    const int opened = count(opening), read = count({SYS_pread64});
    if (opened < 0) GTEST_SKIP() << "no seccomp user notification here";
    EXPECT_EQ(opened, c.opened) << c.shards << " files";
    EXPECT_EQ(read, c.read) << c.shards << " files";
  }
}

#endif

}  // namespace
}  // namespace moe::test::hf_hostile_test
