// Weights, packed weights, layers and tensors of a checkpoint are those that the single calls make.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "support/model_dir.h"
#include "support/rooms.h"
#include "support/temp_dir.h"

namespace moe::test::layers_test {
namespace {

using testing::HasSubstr;

class Layers : public testing::Test {
 protected:
  TempDir dir;
  std::string at = dir.file("model");
  ModelDir model;
  CheckpointPtr c;

  void SetUp() override {
    model.write(at);
    c = open_model(at);
  }
  // By the calls for one layer.
  PackedPtr packed_alone(std::int64_t layer, const std::string& more = "") const {
    const std::string text = file_text(at + "/config.json");
    const std::string options = "{\"layer_index\":" + std::to_string(layer) + more + "}";
    const ConfigPtr config = make<ConfigPtr>([&](moe_config** o, moe_error** e) {
      return moe_config_create_from_hf(text.data(), text.size(), options.data(), options.size(), o, e);
    });
    const SelectionPtr selection = make_selection(config.get());
    const WeightsPtr weights =
        make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(config.get(), o, e); });
    EXPECT_EQ(moe_weights_load_safetensors(weights.get(), at.c_str(), nullptr, nullptr), MOE_OK);
    return make<PackedPtr>([&](moe_packed** o, moe_error** e) {
      return moe_convert_weights(nullptr, selection.get(), weights.get(), nullptr, o, e);
    });
  }
  PackedPtr packed_of(const moe_selection* selection) const {
    return make<PackedPtr>([&](moe_packed** o, moe_error** e) {
      return moe_checkpoint_packed(nullptr, c.get(), selection, nullptr, o, e);
    });
  }
};

TEST_F(Layers, PackTheSameBytesAsAlone) {
  for (std::int64_t l = 0; l < model.layers; ++l) {
    const ConfigPtr config = config_of(c.get(), l);
    const SelectionPtr selection = make_selection(config.get());
    EXPECT_EQ(bytes_of_packed(packed_of(selection.get()).get()), bytes_of_packed(packed_alone(l).get()));
  }
}

TEST_F(Layers, TwoRanksShareOneOpen) {
  for (int rank : {0, 1}) {
    const std::string parallel =
        R"({"tp_size":2,"tp_rank":)" + std::to_string(rank) + R"(,"enable_expert_parallel":true})";
    const ConfigPtr config = config_of(c.get(), 1, R"({"parallel":)" + parallel + "}");
    const SelectionPtr selection = make_selection(config.get());
    EXPECT_EQ(bytes_of_packed(packed_of(selection.get()).get()),
              bytes_of_packed(packed_alone(1, R"(,"overrides":{"parallel":)" + parallel + "}").get()));
  }
  EXPECT_EQ(config_failure(c.get(), 1, R"({"parallel":{"tp_size":0}})").subject, "/parallel/tp_size");
  EXPECT_EQ(config_failure(c.get(), 1, "{").status, MOE_ERR_INVALID_CONFIG);
}

TEST_F(Layers, RunAsThoseOfSingleCalls) {
  std::vector<std::uint16_t> x(static_cast<std::size_t>(model.H)), y(x.size()), want(x.size());
  std::vector<float> logits(static_cast<std::size_t>(model.E));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<std::uint16_t>(0x3f00 + i);
  for (std::size_t e = 0; e < logits.size(); ++e) logits[e] = 0.1f * static_cast<float>(e);
  const auto apply = [&](const LayerPtr& layer, std::vector<std::uint16_t>& out) {
    return moe_apply_flat(layer.get(), 1, MOE_DTYPE_BF16, x.data(), MOE_DTYPE_F32, logits.data(), nullptr, nullptr,
                          MOE_DTYPE_BF16, out.data(), nullptr);
  };
  for (std::int64_t l = 0; l < model.layers; ++l) {
    const LayerPtr whole = make<LayerPtr>(
        [&](moe_layer** o, moe_error** e) { return moe_checkpoint_layer(nullptr, c.get(), l, nullptr, o, e); });
    const ConfigPtr config = config_of(c.get(), l);
    const SelectionPtr selection = make_selection(config.get());
    const PackedPtr packed = packed_alone(l);
    const LayerPtr alone = make<LayerPtr>([&](moe_layer** o, moe_error** e) {
      return moe_layer_create(nullptr, selection.get(), packed.get(), nullptr, o, e);
    });
    ASSERT_EQ(apply(whole, y), MOE_OK);
    ASSERT_EQ(apply(alone, want), MOE_OK);
    EXPECT_EQ(y, want);
    EXPECT_NE(y, std::vector<std::uint16_t>(y.size()));
  }
}

TEST_F(Layers, OptionsReachTheLayer) {
  const std::vector<std::int32_t> map = {1, 0, 3, 2};
  const moe_tensor map_tensor = tensor(MOE_DTYPE_I32, {4}, map.data());
  moe_layer_options of_layer{};
  of_layer.struct_size = sizeof of_layer;
  of_layer.expert_map = &map_tensor;
  moe_checkpoint_options options{};
  options.struct_size = sizeof options;
  options.layer = &of_layer;
  const LayerPtr layer = make<LayerPtr>(
      [&](moe_layer** o, moe_error** e) { return moe_checkpoint_layer(nullptr, c.get(), 0, &options, o, e); });
  EXPECT_NE(layer, nullptr);
  of_layer.flags = 1u << 20;
  moe_layer* none = nullptr;
  EXPECT_EQ(moe_checkpoint_layer(nullptr, c.get(), 0, &options, &none, nullptr), MOE_ERR_INVALID_ARGUMENT);
  of_layer.flags = 0;
  const std::string patch = R"({"moe_backend":"no_such"})";
  options.patch_json = patch.data();
  options.patch_len = patch.size();
  EXPECT_EQ(moe_checkpoint_layer(nullptr, c.get(), 0, &options, &none, nullptr), MOE_ERR_INVALID_CONFIG);
  options.patch_json = nullptr;
  options.patch_len = 0;
}

// A member that a call does not read is refused: it would be lost in silence.
TEST_F(Layers, EachCallReadsItsOptions) {
  const ConfigPtr config = config_of(c.get(), 0);
  const SelectionPtr selection = make_selection(config.get());
  const PlatformPtr platform =
      make<PlatformPtr>([&](moe_platform** o, moe_error** e) { return moe_platform_create(nullptr, 0, o, e); });
  moe_layer_options of_layer{};
  of_layer.struct_size = sizeof of_layer;
  const std::int64_t number = 0;
  using Options = moe_checkpoint_options;
  const struct {
    const char* member;
    std::function<void(Options&)> set;
    bool packed, layer, convert;  // which calls read it
  } rows[] = {{"load_flags", [](Options& o) { o.load_flags = MOE_LOAD_VERIFY; }, true, true, true},
              {"load_flags", [](Options& o) { o.load_flags = MOE_LOAD_MMAP; }, true, true, true},
              {"load_flags", [](Options& o) { o.load_flags = std::uint64_t{1} << 40; }, false, false, false},
              {"select_flags", [](Options& o) { o.select_flags = MOE_SELECT_ALLOW_FALLBACK; }, false, true, true},
              {"select_flags", [](Options& o) { o.select_flags = MOE_SELECT_EXPLAIN_ONLY; }, false, false, false},
              {"patch_json", [](Options& o) { o.patch_json = "{}", o.patch_len = 2; }, false, true, true},
              {"platform", [&](Options& o) { o.platform = platform.get(); }, false, true, true},
              {"layer", [&](Options& o) { o.layer = &of_layer; }, false, true, false},
              {"layers", [&](Options& o) { o.layers = &number, o.num_layers = 1; }, false, false, true},
              {"num_layers", [&](Options& o) { o.layers = &number; }, false, false, false},
              {"num_layers", [](Options& o) { o.num_layers = 1; }, false, false, false}};
  for (const auto& r : rows) {
    Options options{};
    options.struct_size = sizeof options;
    r.set(options);
    const auto expect = [&](const char* call, bool reads, const Failure& f) {
      SCOPED_TRACE(std::string(call) + ": " + r.member);
      EXPECT_EQ(f.status, reads ? MOE_OK : MOE_ERR_INVALID_ARGUMENT) << f.message;
      if (!reads) {
        EXPECT_THAT(f.subject, testing::AnyOf(r.member, "layers"));
      }
    };
    moe_packed* packed = nullptr;
    expect("packed", r.packed, failure([&](moe_error** e) {
             return moe_checkpoint_packed(nullptr, c.get(), selection.get(), &options, &packed, e);
           }));
    moe_packed_destroy(packed);
    moe_layer* layer = nullptr;
    expect("layer", r.layer,
           failure([&](moe_error** e) { return moe_checkpoint_layer(nullptr, c.get(), 0, &options, &layer, e); }));
    moe_layer_destroy(layer);
    expect("convert", r.convert, failure([&](moe_error** e) {
             return moe_checkpoint_convert(nullptr, c.get(), dir.file("out").c_str(), &options, e);
           }));
    std::filesystem::remove_all(dir.file("out"));
  }
}

TEST_F(Layers, HandOutAnyTensor) {
  moe_tensor t{};
  t.struct_size = sizeof t;
  moe_buffer* hold = nullptr;
  ASSERT_EQ(moe_checkpoint_tensor(c.get(), "model.layers.2.mlp.gate.weight", &t, &hold, nullptr), MOE_OK);
  const BufferPtr owner(hold);
  EXPECT_EQ(t.dtype, MOE_DTYPE_BF16);
  EXPECT_EQ(t.ndim, 2);
  EXPECT_EQ(t.shape[0], model.E);
  EXPECT_EQ(t.shape[1], model.H);
  EXPECT_EQ(t.data, moe_buffer_data(hold));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t.data) % 64, 0u);
  const std::string shard = file_text(at + "/" + model.shard(2));
  const std::string got(static_cast<const char*>(t.data), static_cast<std::size_t>(t.nbytes));
  EXPECT_NE(shard.find(got), std::string::npos);
  moe_buffer* none = nullptr;
  const Failure f =
      failure([&](moe_error** e) { return moe_checkpoint_tensor(c.get(), "model.layers.9.mlp", &t, &none, e); });
  EXPECT_EQ(f.status, MOE_ERR_MISSING_WEIGHT);
  EXPECT_EQ(none, nullptr);
}

TEST_F(Layers, ASelectionOfAnotherModelIsRefused) {
  const std::string text = file_text(at + "/config.json"), options = R"({"layer_index":0,"module":"model.x.experts"})";
  const ConfigPtr config = make<ConfigPtr>([&](moe_config** o, moe_error** e) {
    return moe_config_create_from_hf(text.data(), text.size(), options.data(), options.size(), o, e);
  });
  const SelectionPtr selection = make_selection(config.get());
  moe_packed* none = nullptr;
  const Failure f = failure(
      [&](moe_error** e) { return moe_checkpoint_packed(nullptr, c.get(), selection.get(), nullptr, &none, e); });
  EXPECT_EQ(f.status, MOE_ERR_CONFIG_MISMATCH);
  EXPECT_EQ(f.details["member"], "/name");
}

// A name tells whose tensors are meant: one name for all layers would give each of them the weights of one.
TEST_F(Layers, KeepTheirNames) {
  const std::string name = R"({"name":"model.layers.1.mlp.experts"})";
  EXPECT_EQ(open_failure(at, R"({"overrides":)" + name + "}").subject, "options:/overrides/name");
  for (const std::string& patch : {name, std::string(R"({"name":null})")}) {
    const Failure f = config_failure(c.get(), 0, patch);
    EXPECT_EQ(f.status, MOE_ERR_INVALID_CONFIG);
    EXPECT_EQ(f.subject, "/name");
  }
  EXPECT_NE(config_of(c.get(), 1, name), nullptr);
  moe_checkpoint_options options{};
  options.struct_size = sizeof options;
  options.patch_json = name.data();
  options.patch_len = name.size();
  const Failure f = failure(
      [&](moe_error** e) { return moe_checkpoint_convert(nullptr, c.get(), dir.file("out").c_str(), &options, e); });
  EXPECT_EQ(f.subject, "/name");
  EXPECT_FALSE(std::filesystem::exists(dir.file("out")));
}

// A text without a length would count as no patch, and give the layer of another rank.
TEST_F(Layers, APatchHasItsLength) {
  moe_checkpoint_options options{};
  options.struct_size = sizeof options;
  const auto expect_refused = [&] {
    moe_layer* none = nullptr;
    const Failure f =
        failure([&](moe_error** e) { return moe_checkpoint_layer(nullptr, c.get(), 0, &options, &none, e); });
    EXPECT_EQ(f.status, MOE_ERR_INVALID_ARGUMENT);
    EXPECT_EQ(f.subject, "patch_len");
  };
  options.patch_json = R"({"parallel":{"tp_size":2}})";
  expect_refused();
  options.patch_json = nullptr;
  options.patch_len = 4;
  expect_refused();
}

// Handles may end in any order: what was made of a checkpoint keeps its files open.
TEST_F(Layers, OutliveTheCheckpoint) {
  const ConfigPtr config = config_of(c.get(), 0);
  const SelectionPtr selection = make_selection(config.get());
  const WeightsPtr weights =
      make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(config.get(), o, e); });
  ASSERT_EQ(moe_weights_load_checkpoint(weights.get(), c.get(), nullptr), MOE_OK);
  const std::string want = bytes_of_packed(packed_of(selection.get()).get());
  c.reset();
  const PackedPtr packed = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
    return moe_convert_weights(nullptr, selection.get(), weights.get(), nullptr, o, e);
  });
  EXPECT_EQ(bytes_of_packed(packed.get()), want);
}

}  // namespace
}  // namespace moe::test::layers_test
