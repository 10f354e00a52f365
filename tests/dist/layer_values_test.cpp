// What a spread layer needs to know of the layers of other ranks, and what it refuses because they cannot agree.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "dist/spread.h"
#include "support/safetensors_writer.h"

namespace moe::test::dist_layer_values_test {
namespace {

// FP8 with a scale of inputs for each projection of each expert.
Sample static_fp8(const std::string& bit_compat, bool alike) {
  const nlohmann::json more = {{"quantization", {{"scheme", "FP8"}}}, {"compute", "a8"}, {"bit_compat", bit_compat}};
  const Float8Model m = random_float8({.form = kOneScale, .E = 6});
  std::vector<OwnedTensor> tensors = named_tensors(m, kModule);
  for (int e = 0; e < 6; ++e)
    for (const char* p : {"gate_proj", "up_proj", "down_proj"}) {
      const float scale = alike ? 0.01f : 0.002f * static_cast<float>(1 + e);
      OwnedTensor t;
      t.name = std::string(kModule) + "." + std::to_string(e) + "." + p + ".input_scale";
      t.shape = {1};
      t.bytes.resize(sizeof scale);
      std::memcpy(t.bytes.data(), &scale, sizeof scale);
      tensors.push_back(t);
    }
  nlohmann::json config = nlohmann::json::parse(m.config_text());
  config.update(more);
  return sample("fp8 static", config.dump(), safetensors_of(tensors), m.io_type(), 12);
}

TEST(DistLayerValues, InputScalesThatARankWouldShareMustBeThoseOfAll) {
  for (const bool alike : {true, false}) {
    EXPECT_EQ(spread_output(static_fp8("libmoe", alike), 3, Cut::even), whole_output(static_fp8("libmoe", alike)));
    const Sample s = static_fp8("vllm", alike);
    if (alike) {
      EXPECT_EQ(spread_output(s, 3, Cut::even), whole_output(s));
      continue;
    }
    on_ranks(3, [&](int, moe_comm* comm) {
      for (const char* options : {"{}", R"({"combine":"compact"})"}) {
        const ConfigPtr config = s.make();
        const DistPtr dist = make_dist(comm, config.get(), options);
        const LayerPtr layer = own_layer(s, dist.get());
        const Failure f = failure([&](moe_error** e) { return moe_dist_attach(dist.get(), layer.get(), e); });
        EXPECT_EQ(f.status, MOE_ERR_UNSUPPORTED);
        EXPECT_EQ(f.subject, "/compute");
        EXPECT_EQ(f.details["rank"], 1);
        EXPECT_NE(f.message.find("of w13 it is 0.004 on rank 0 and 0.008 on rank 1"), std::string::npos) << f.message;
      }
    });
  }
}

// Two experts; what routes is a tensor of the checkpoint, which only ranks with a layer have read.
Sample routed_by_the_checkpoint(bool bias) {
  SafetensorsWriter file;
  std::mt19937 rng(5);
  const auto add = [&](const std::string& name, const std::vector<std::int64_t>& shape) {
    std::size_t count = 1;
    for (const std::int64_t d : shape) count *= static_cast<std::size_t>(d);
    std::vector<float> v(count);
    for (float& f : v) f = static_cast<float>(rng() >> 8) * 0x1p-25f - 0.25f;
    file.add(name, "F32", shape, v.data(), v.size() * sizeof(float));
  };
  for (int e = 0; e < 2; ++e) {
    const std::string at = std::string(kModule) + "." + std::to_string(e);
    for (const char* p : {".gate_proj.weight", ".up_proj.weight"}) add(at + p, {32, 48});
    add(at + ".down_proj.weight", {48, 32});
  }
  if (bias) add("model.layers.0.mlp.gate.e_score_correction_bias", {2});
  const nlohmann::json config = {{"num_experts", 2},
                                 {"top_k", 1},
                                 {"hidden_dim", 48},
                                 {"intermediate_size", 32},
                                 {"in_dtype", "float32"},
                                 {"out_dtype", "float32"},
                                 {"router_logits_dtype", "float32"},
                                 {"routing", {{"scoring_func", "sigmoid"}, {"e_score_correction_bias", true}}}};
  return sample("bias", config.dump(), file.bytes(), MOE_DTYPE_F32, 12);
}

TEST(DistLayerValues, ARankWithoutExpertsRoutesAsTheOthersDo) {
  const Sample s = routed_by_the_checkpoint(true);
  const std::vector<std::byte> want = whole_output(s, true);
  for (const char* options : {"{}", R"({"placement":[[],[0,1],[]]})", R"({"placement":[[1],[],[0]]})"})
    EXPECT_EQ(spread_output(s, 3, Cut::even, options, true), want) << options;
}

// A checkpoint that lacks it is told about on every rank, as by one process.
TEST(DistLayerValues, WhatNoRankHasIsMissingOnAll) {
  const Sample s = routed_by_the_checkpoint(false);
  on_ranks(3, [&](int rank, moe_comm* comm) {
    const Spread spread(s, comm);
    Part part(s, rank * 4, 4, true);
    const Failure f = failure([&](moe_error** e) { return moe_dist_apply(spread.dist.get(), &part.args, e); });
    EXPECT_EQ(f.status, MOE_ERR_MISSING_WEIGHT);
    EXPECT_EQ(f.subject, "correction_bias");
  });
}

TEST(DistLayerValues, ALayerThatPlacesItsExpertsIsRefused) {
  const Sample s = int4_sample({.E = 4, .K = 2}, 8);
  on_ranks(1, [&](int, moe_comm* comm) {
    const ConfigPtr config = s.make();
    const SelectionPtr selection = make_selection(config.get(), nullptr);
    const WeightsPtr weights =
        make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(config.get(), o, e); });
    ASSERT_EQ(moe_weights_load_safetensors(weights.get(), s.dir->path().c_str(), nullptr, nullptr), MOE_OK);
    const PackedPtr packed = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
      return moe_convert_weights(nullptr, selection.get(), weights.get(), nullptr, o, e);
    });
    std::vector<std::int32_t> map = {1, 0, 3, 2};
    const moe_tensor places = tensor(MOE_DTYPE_I32, {4}, map.data());
    moe_layer_options options{};
    options.struct_size = sizeof options;
    options.expert_map = &places;
    const LayerPtr layer = make<LayerPtr>([&](moe_layer** o, moe_error** e) {
      return moe_layer_create(nullptr, selection.get(), packed.get(), &options, o, e);
    });
    const DistPtr dist = make_dist(comm, config.get(), "{}");
    const Failure f = failure([&](moe_error** e) { return moe_dist_attach(dist.get(), layer.get(), e); });
    EXPECT_EQ(f.status, MOE_ERR_UNSUPPORTED);
    EXPECT_NE(f.message.find("expert_map"), std::string::npos);
    const LayerPtr plain = layer_of(s, config.get());
    EXPECT_EQ(moe_dist_attach(dist.get(), plain.get(), nullptr), MOE_OK);
  });
}

TEST(DistLayerValues, AForgottenPlaceForTheCallIsToldToTheOthers) {
  const Sample s = int4_sample({.E = 6, .K = 2}, 12);
  on_ranks(2, [&](int rank, moe_comm* comm) {
    const Spread spread(s, comm);
    Part part(s, rank * 6, 6);
    if (rank == 0)
      EXPECT_EQ(moe_dist_begin(spread.dist.get(), &part.args, nullptr, nullptr), MOE_ERR_INVALID_ARGUMENT);
    else
      EXPECT_EQ(moe_dist_apply(spread.dist.get(), &part.args, nullptr), MOE_ERR_PEER);
    EXPECT_EQ(moe_dist_apply(spread.dist.get(), &part.args, nullptr), MOE_OK);
  });
}

}  // namespace
}  // namespace moe::test::dist_layer_values_test
