// Checkpoint of moe.hpp: a model's directory opened, run, converted, and opened again.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

#include "cpp/world.h"
#include "support/temp_dir.h"

namespace cpp_test {
namespace {

using namespace libmoe;

constexpr const char* kRouter = "model.layers.0.mlp.gate.weight";

// A Qwen3 model of three layers in float32; the second one is dense.
class CppCheckpoint : public testing::Test {
 protected:
  void SetUp() override {
    write("model", n);
    model = Checkpoint::open(at("model"), context);
  }
  std::string at(const char* name) const { return folder.file(name); }

  // Layers 0 and 2 have the same weights but for the sign of w2.
  void write(const std::string& name, const Numbers& numbers) const {
    std::string header, data;
    const auto add = [&](const std::string& tensor, std::int64_t rows, std::int64_t columns, const float* values,
                         float factor = 1) {
      header += (header.empty() ? "{\"" : ",\"") + tensor + "\":{\"dtype\":\"F32\",\"shape\":[" + std::to_string(rows) +
                "," + std::to_string(columns) + "],\"data_offsets\":[" + std::to_string(data.size());
      for (std::int64_t i = 0; i < rows * columns; ++i) {
        const float value = factor * values[i];
        data.append(reinterpret_cast<const char*>(&value), sizeof value);
      }
      header += "," + std::to_string(data.size()) + "]}";
    };
    for (const int layer : {0, 2}) {
      const std::string prefix = "model.layers." + std::to_string(layer) + ".mlp.";
      for (std::int64_t e = 0; e < kExperts; ++e) {
        const std::string expert = prefix + "experts." + std::to_string(e) + ".";
        const float* w13 = numbers.w13.data() + e * 2 * kInner * kHidden;
        add(expert + "gate_proj.weight", kInner, kHidden, w13);
        add(expert + "up_proj.weight", kInner, kHidden, w13 + kInner * kHidden);
        add(expert + "down_proj.weight", kHidden, kInner, numbers.w2.data() + e * kHidden * kInner,
            layer == 0 ? 1.0F : -1.0F);
      }
      add(prefix + "gate.weight", kExperts, kHidden, numbers.w13.data());
    }
    header += "}";
    const std::uint64_t size = header.size();
    const std::string length(reinterpret_cast<const char*>(&size), sizeof size);
    folder.write(name + "/model.safetensors", length + header + data);
    folder.write(
        name + "/config.json",
        R"({"architectures":["Qwen3MoeForCausalLM"],"hidden_act":"silu","torch_dtype":"float32","hidden_size":64,)"
        R"("moe_intermediate_size":32,"intermediate_size":128,"num_experts":4,"num_experts_per_tok":2,)"
        R"("num_hidden_layers":3,"norm_topk_prob":true,"decoder_sparse_step":1,"mlp_only_layers":[1]})");
  }
  std::vector<float> apply(const Layer& layer) const {
    std::vector<float> out(n.hidden.size());
    layer.apply({n.hidden, {kTokens, kHidden}}, {n.logits, {kTokens, kExperts}}, {out, {kTokens, kHidden}});
    return out;
  }
  // Layer 0 by the calls for single layers.
  Packed by_hand(const Selection& selection, const Config& config) const {
    Weights weights = Weights::create(config);
    weights.load_safetensors(at("model"));
    return Packed::convert(selection, weights);
  }
  static std::string text(const Packed& packed) {
    const View<const std::byte> data = packed.data();
    return {reinterpret_cast<const char*>(data.data()), data.size()};
  }
  template <class R>
  static moe_status status(const R& result) {
    return result ? MOE_OK : result.error().status();
  }

  Numbers n;
  moe::test::TempDir folder;
  Context context = Context::create(R"({"threads":2})");
  Checkpoint model;
};

TEST_F(CppCheckpoint, SaysWhatItsLayersAre) {
  ASSERT_EQ(model.layer_count(), 3);
  EXPECT_EQ(Checkpoint().layer_count(), 0);
  const std::vector<LayerInfo> layers = model.layers();
  ASSERT_EQ(layers.size(), 3U);
  const LayerInfo& last = layers[2];
  EXPECT_EQ(last.layer, 2);
  EXPECT_EQ(last.kind, LayerKind::experts);
  EXPECT_FALSE(last.is_mtp);
  EXPECT_FALSE(last.is_converted);
  EXPECT_EQ(last.num_experts, kExperts);
  EXPECT_EQ(last.top_k, kTopK);
  EXPECT_EQ(last.hidden_dim, kHidden);
  EXPECT_EQ(last.intermediate_size, kInner);
  EXPECT_EQ(last.bytes, static_cast<std::uint64_t>(kExperts * 3 * kHidden * kInner * 4));
  EXPECT_EQ(last.name, "model.layers.2.mlp.experts");
  EXPECT_EQ(last.problem, "");
  EXPECT_EQ(layers[1].kind, LayerKind::dense);
  EXPECT_EQ(status(model.try_info(3)), MOE_ERR_INVALID_ARGUMENT);
  EXPECT_NE(model.to_json().text().find(kRouter), std::string_view::npos);
  EXPECT_EQ(detail::known(99, LayerKind::dense, LayerKind::other), LayerKind::other);
  EXPECT_EQ(detail::known(-1, Phase::apply, Phase::none), Phase::none);
  EXPECT_EQ(detail::known(6, Phase::apply, Phase::none), Phase::apply);
}

TEST_F(CppCheckpoint, LayersGiveTheBytesOfSingleCallsAndOfConvertedOnes) {
  const Config config = model.config(0);
  const Selection selection = Selection::create(config);
  const Packed packed = by_hand(selection, config);
  const std::vector<float> expected = apply(Layer::create(selection, packed));
  EXPECT_NE(expected, std::vector<float>(expected.size()));
  EXPECT_EQ(apply(model.layer(0, context)), expected);
  EXPECT_NE(apply(model.layer(2, context)), expected);
  EXPECT_EQ(text(model.packed(selection, context)), text(packed));
  Weights weights = Weights::create(config);
  weights.load_checkpoint(model);
  EXPECT_EQ(text(Packed::convert(selection, weights)), text(packed));

  CheckpointConvertOptions one;
  one.layers = {2};
  model.convert(at("converted"), context, one);
  Checkpoint converted = Checkpoint::open(at("converted"), context);
  EXPECT_FALSE(converted.info(0).is_converted);
  EXPECT_TRUE(converted.info(2).is_converted);
  EXPECT_EQ(status(converted.try_layer(0)), MOE_ERR_MISSING_WEIGHT);
  one.layers = {};
  one.verify = true;
  model.convert(at("converted"), context, one);
  converted = Checkpoint::open(at("converted"), context);
  CheckpointLayerOptions how;
  for (const std::uint64_t flags :
       std::initializer_list<std::uint64_t>{0, MOE_LOAD_MMAP | MOE_LOAD_PREFAULT, MOE_LOAD_VERIFY}) {
    how.load_flags = flags;
    EXPECT_EQ(apply(converted.layer(0, context, how)), expected);
    EXPECT_EQ(text(converted.packed(selection, context, flags)), text(packed));
  }
  const Layer layer = model.layer(0, context);
  model = Checkpoint();  // a layer keeps what it needs
  context = Context();
  EXPECT_EQ(apply(layer), expected);

  EXPECT_EQ(status(converted.try_tensor(kRouter)), MOE_ERR_UNSUPPORTED);
  EXPECT_EQ(status(weights.try_load_checkpoint(converted)), MOE_ERR_UNSUPPORTED);
}

TEST_F(CppCheckpoint, OptionsAreHandedOn) {
  CheckpointLayerOptions how;
  how.patch_json = R"({"parallel":{"tp_size":2,"tp_rank":1,"enable_expert_parallel":true}})";
  EXPECT_EQ(model.config(0, how.patch_json).get_int("/num_local_experts"), kExperts / 2);
  EXPECT_NE(model.layer(0, context, how).to_json().text().find("\"num_local_experts\":2"), std::string_view::npos);
  CheckpointConvertOptions half;
  half.patch_json = how.patch_json;
  half.layers = std::vector<std::int64_t>();  // not all of them
  EXPECT_EQ(status(model.try_convert(at("half"), context, half)), MOE_ERR_INVALID_ARGUMENT);
  half.layers = {0};
  model.convert(at("half"), context, half);
  EXPECT_EQ(Checkpoint::open(at("half")).config(0).get_int("/num_local_experts"), kExperts / 2);
  EXPECT_EQ(status(model.try_convert(at("half"), context)), MOE_ERR_CONFIG_MISMATCH);

  const std::vector<std::int32_t> map{0, 1, 2, 3};
  CheckpointLayerOptions mapped;
  mapped.layer.expert_map = {map, {2, 2}};
  EXPECT_EQ(status(model.try_layer(0, context, mapped)), MOE_ERR_SHAPE);
  const Platform gpu = Platform::create(R"({"type":"cpu","arch":"riscv64"})");
  CheckpointLayerOptions other;
  other.platform = &gpu;
  EXPECT_EQ(status(model.try_layer(0, context, other)), MOE_ERR_NO_BACKEND);
  CheckpointConvertOptions there;
  there.platform = &gpu;
  EXPECT_EQ(status(model.try_convert(at("there"), context, there)), MOE_ERR_NO_BACKEND);
  other = {};
  other.patch_json = R"({"moe_backend":"triton"})";
  EXPECT_EQ(status(model.try_layer(0, context, other)), MOE_ERR_NO_BACKEND);
  other.allow_fallback = true;
  EXPECT_EQ(status(model.try_layer(0, context, other)), MOE_OK);
  EXPECT_EQ(status(Checkpoint::try_open(at("model"), context, R"({"layer_index":1})")), MOE_ERR_INVALID_CONFIG);
}

TEST_F(CppCheckpoint, ErrorsSayWhy) {
  const auto past = model.try_layer(3, context);
  ASSERT_FALSE(past);
  EXPECT_NE(std::strstr(past.error().details(), "\"past_the_end\""), nullptr);
  EXPECT_FALSE(past.error().code());
  const auto dense = model.try_config(1);
  ASSERT_FALSE(dense);
  EXPECT_NE(std::strstr(dense.error().details(), "\"dense_layer\""), nullptr);
  const auto nowhere = Checkpoint::try_open(at("nowhere"));
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().status(), MOE_ERR_IO);
  EXPECT_TRUE(nowhere.error().code() == std::errc::no_such_file_or_directory);
  EXPECT_EQ(nowhere.error().subject(), at("nowhere") + "/config.json");
  const auto hidden = Checkpoint::try_open(at("\"errno\":5"));
  ASSERT_FALSE(hidden);
  EXPECT_TRUE(hidden.error().code() == std::errc::no_such_file_or_directory) << "a name is no number";
  EXPECT_EQ(status(Checkpoint::try_open(std::string("some\0thing", 10))), MOE_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(status(Checkpoint().try_layer(0)), MOE_ERR_INVALID_ARGUMENT) << "moved from";

  model.convert(at("converted"), context);
  Numbers others;
  write("other", others);
  const Checkpoint other = Checkpoint::open(at("other"));
  const auto mixed = other.try_convert(at("converted"), context);
  ASSERT_FALSE(mixed);
  EXPECT_EQ(mixed.error().status(), MOE_ERR_CONFIG_MISMATCH);
  EXPECT_NE(std::strstr(mixed.error().details(), "\"source\""), nullptr);
}

TEST_F(CppCheckpoint, TensorsAndFingerprints) {
  {
    const HeldTensor router = model.tensor(kRouter);
    model = Checkpoint();
    EXPECT_EQ(router.tensor.dtype(), MOE_DTYPE_F32);
    ASSERT_EQ(router.tensor.shape().size(), 2U);
    EXPECT_TRUE(router.hold);
    const View<const float> values = router.tensor.as<float>();
    EXPECT_TRUE(std::equal(values.begin(), values.end(), n.w13.begin()));
  }
  model = Checkpoint::open(at("model"));
  EXPECT_EQ(status(model.try_tensor("nothing")), MOE_ERR_MISSING_WEIGHT);
  const std::string fast(model.fingerprint().text()), full(model.fingerprint(true, context).text());
  EXPECT_EQ(fast.substr(0, 10), "fast:xxh3:");
  EXPECT_EQ(full.substr(0, 10), "full:xxh3:");
  model.convert(at("converted"));
  EXPECT_EQ(Checkpoint::open(at("converted")).fingerprint().text(), fast);
  EXPECT_EQ(Checkpoint::open(at("converted")).fingerprint(true).text(), "");
}

TEST_F(CppCheckpoint, ProgressIsOfTheWholeCall) {
  std::vector<State> seen;
  Control control;
  control = Control::create([&](std::uint64_t done, std::uint64_t total) {
    seen.push_back(control.state());
    EXPECT_EQ(seen.back().done, done);
    EXPECT_EQ(seen.back().total, total);
    return true;
  });
  EXPECT_EQ(control.state().phase, Phase::none);
  EXPECT_EQ(control.state().layer, -1);
  CheckpointConvertOptions how;
  how.control = &control;
  model.convert(at("converted"), context, how);
  ASSERT_FALSE(seen.empty());
  std::uint64_t before = 0;
  std::set<std::pair<Phase, std::int64_t>> phases;
  for (const State& state : seen) {
    EXPECT_GE(state.bytes_done, before);
    before = state.bytes_done;
    EXPECT_EQ(state.unit, state.phase == Phase::convert ? Unit::experts : Unit::bytes);
    EXPECT_EQ(state.layers_total, 2);
    phases.insert({state.phase, state.layer});
  }
  const std::set<std::pair<Phase, std::int64_t>> expected{
      {Phase::hash, -1}, {Phase::convert, 0}, {Phase::convert, 2}, {Phase::save, 0}, {Phase::save, 2}};
  EXPECT_EQ(phases, expected);
  EXPECT_EQ(control.state().bytes_done, control.state().bytes_total);
  EXPECT_EQ(control.state().layers_done, 2);

  seen.clear();
  EXPECT_EQ(status(Checkpoint::try_open(at("model"), context, {}, control)), MOE_OK);
  EXPECT_EQ(control.state().phase, Phase::open);
  EXPECT_EQ(control.state().unit, Unit::files);
  EXPECT_EQ(status(model.try_fingerprint(true, context, control)), MOE_OK);
  EXPECT_EQ(control.state().phase, Phase::hash);
  EXPECT_EQ(
      status(Checkpoint::open(at("converted")).try_packed(Selection::create(model.config(0)), context, 0, control)),
      MOE_OK);
  EXPECT_EQ(control.state().phase, Phase::load);
  EXPECT_EQ(control.state().layer, 0);
  control.cancel();
  EXPECT_EQ(status(Checkpoint::try_open(at("model"), context, {}, control)), MOE_ERR_CANCELLED);

  const Control throwing =
      Control::create([](std::uint64_t, std::uint64_t) -> bool { throw std::runtime_error("no"); });
  CheckpointLayerOptions one;
  one.control = &throwing;
  EXPECT_EQ(status(model.try_layer(0, context, one)), MOE_ERR_CALLBACK);
  EXPECT_EQ(status(Control().try_state()), MOE_ERR_INVALID_ARGUMENT);
}

TEST_F(CppCheckpoint, ACancelledConversionGoesOn) {
  Control control;
  control = Control::create([&](std::uint64_t, std::uint64_t) { return control.try_state()->layers_done == 0; });
  CheckpointConvertOptions how;
  how.control = &control;
  EXPECT_EQ(status(model.try_convert(at("converted"), context, how)), MOE_ERR_CANCELLED);
  EXPECT_TRUE(Checkpoint::open(at("converted")).info(0).is_converted);
  EXPECT_FALSE(Checkpoint::open(at("converted")).info(2).is_converted);
  model.convert(at("converted"), context);
  EXPECT_TRUE(Checkpoint::open(at("converted")).info(2).is_converted);
}

TEST_F(CppCheckpoint, AFileWithoutExceptions) {
  std::vector<float> out(n.hidden.size());
  EXPECT_STREQ(checkpoint_without_exceptions(at("model"), at("converted"), n, out), "");
  EXPECT_EQ(out, apply(model.layer(0, context)));
}

static_assert(!std::is_copy_constructible_v<Checkpoint> && std::is_nothrow_move_constructible_v<Checkpoint>);

}  // namespace
}  // namespace cpp_test
