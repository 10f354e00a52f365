// Binding packed weights to a kernel: what must agree, expert maps, workspace sizes, counts.
#include <gtest/gtest.h>

#include "support/capi.h"
#include "support/rooms.h"

namespace moe::test::layer_test {
namespace {

class LayerEntry : public testing::Test {
 protected:
  Model m = random_model();
  Steps s = four_steps(m);
  moe_layer_options options{sizeof(moe_layer_options), 0, nullptr, nullptr, 0};

  Failure create(const moe_selection* selection, const moe_packed* packed, LayerPtr* result = nullptr) {
    moe_layer* out = reinterpret_cast<moe_layer*>(8);
    const Failure f =
        failure([&](moe_error** e) { return moe_layer_create(s.context.get(), selection, packed, &options, &out, e); });
    if (f.status != MOE_OK) {
      EXPECT_EQ(out, nullptr);
      return f;
    }
    LayerPtr layer(out);
    if (result != nullptr) *result = std::move(layer);
    return f;
  }
  // A selection for the config with some members changed.
  SelectionPtr changed(const nlohmann::json& members, ConfigPtr* keep) {
    auto text = nlohmann::json::parse(m.config_text());
    text.merge_patch(members);
    *keep = make_config(text.dump());
    return make_selection(keep->get());
  }
};

TEST_F(LayerEntry, MembersThatMustAgree) {
  struct Row {
    nlohmann::json members;
    const char* member;
  };
  const Row rows[] = {
      {{{"quantization", {{"group_size", 64}}}}, "layout"},
      {{{"has_bias", true}}, "layout"},
      {{{"num_experts", 8}}, "/num_experts"},
      {{{"hidden_dim", 128}}, "/hidden_dim"},
      {{{"intermediate_size", 128}}, "/intermediate_size_per_partition"},
      {{{"parallel", {{"tp_size", 2}}}}, "/parallel"},
      {{{"activation", "swigluoai_uninterleave"}}, "/activation"},
      {{{"activation_params", {{"limit", 3.0}}}}, "/activation_params"},
  };
  for (const Row& r : rows) {
    ConfigPtr config;
    const SelectionPtr other = changed(r.members, &config);
    const Failure f = create(other.get(), s.packed.get());
    EXPECT_EQ(f.status, MOE_ERR_CONFIG_MISMATCH) << r.members << f.message;
    EXPECT_EQ(f.subject, r.member) << f.message;
    EXPECT_EQ(f.details["member"], r.member);
  }
}

TEST_F(LayerEntry, AnotherRankIsNamed) {
  const auto ranks = [](int rank) {
    return nlohmann::json{{"parallel", {{"tp_size", 2}, {"tp_rank", rank}, {"enable_expert_parallel", true}}}};
  };
  for (const int rank : {0, 1}) {
    ConfigPtr config;
    const SelectionPtr other = changed(ranks(rank), &config);
    const Failure f = create(other.get(), s.packed.get());
    EXPECT_EQ(f.status, MOE_ERR_CONFIG_MISMATCH);
    EXPECT_EQ(f.subject, "/parallel");
    EXPECT_EQ(f.message, std::string(rank == 0 ? "" : "ep_rank is 0 in packed, the selection's is 1, ") +
                             (rank == 0 ? "ep_size is 1 in packed, the selection's is 2" : "ep_size is 1, not 2") +
                             ", use_ep is false, not true; a folder of converted layers is of one rank: open this "
                             "one's, or convert it");
  }
}

TEST_F(LayerEntry, MembersThatMayDiffer) {
  for (const nlohmann::json& members :
       {nlohmann::json{{"in_dtype", "bfloat16"}}, nlohmann::json{{"bit_compat", "vllm"}},
        nlohmann::json{{"moe_backend", "cpu"}}, nlohmann::json{{"name", ""}}, nlohmann::json{{"top_k", 1}}}) {
    ConfigPtr config;
    const SelectionPtr other = changed(members, &config);
    EXPECT_EQ(create(other.get(), s.packed.get()).status, MOE_OK) << members;
  }
}

// The model's own name is model.layers.0.mlp.experts.
TEST_F(LayerEntry, WeightsOfAnotherLayer) {
  for (const char* name : {"model.layers.1.mlp.experts", "another.layer", "mtp.layers.0.mlp.experts",
                           "talker.model.layers.0.mlp.experts", "model.layers.0.mlp.other"}) {
    ConfigPtr config;
    const SelectionPtr other = changed({{"name", name}}, &config);
    options.flags = 0;
    const Failure f = create(other.get(), s.packed.get());
    EXPECT_EQ(f.status, MOE_ERR_CONFIG_MISMATCH) << name;
    EXPECT_EQ(f.subject, "/name");
    EXPECT_EQ(f.details["member"], "/name");
    for (const std::string& word :
         {std::string("model.layers.0.mlp.experts"), std::string(name), std::string("MOE_LAYER_ANY_NAME")})
      EXPECT_NE(f.message.find(word), std::string::npos) << f.message;
    options.flags = MOE_LAYER_ANY_NAME;
    EXPECT_EQ(create(other.get(), s.packed.get()).status, MOE_OK) << name;
    // So it is where weights are converted.
    const WeightsPtr weights = make_weights(config.get(), m);
    moe_convert_options convert{};
    convert.struct_size = sizeof convert;
    const auto converted = [&] {
      moe_packed* out = nullptr;
      const Failure failed = failure([&](moe_error** e) {
        return moe_convert_weights(nullptr, s.selection.get(), weights.get(), &convert, &out, e);
      });
      const PackedPtr packed(out);
      return failed;
    };
    const Failure refused = converted();
    EXPECT_EQ(refused.status, MOE_ERR_CONFIG_MISMATCH) << name;
    EXPECT_NE(refused.message.find("MOE_CONVERT_ANY_NAME"), std::string::npos) << refused.message;
    convert.flags = MOE_CONVERT_ANY_NAME;
    EXPECT_EQ(converted().status, MOE_OK) << name;
  }
  ConfigPtr config;
  const SelectionPtr same = changed({{"name", "language_model.model.layers.0.mlp.experts"}}, &config);
  options.flags = 0;
  EXPECT_EQ(create(same.get(), s.packed.get()).status, MOE_OK);  // where writers put the same layer
}

// A name that a class suggests: the layer's number is certain, the rest is a guess.
TEST_F(LayerEntry, NamesOfAClass) {
  const std::string file =
      R"({"architectures":["Qwen3MoeForCausalLM"],"torch_dtype":"bfloat16","num_experts":4,"num_experts_per_tok":2,
          "hidden_size":64,"moe_intermediate_size":32,"num_hidden_layers":4,"norm_topk_prob":true})";
  const auto config_at = [&](const std::string& hf_options) {
    return make<ConfigPtr>([&](moe_config** o, moe_error** e) {
      return moe_config_create_from_hf(file.c_str(), MOE_NUL_TERMINATED, hf_options.c_str(), MOE_NUL_TERMINATED, o, e);
    });
  };
  const std::vector<std::uint16_t> zeros(std::size_t{4} * 64 * 64);
  const ConfigPtr one = config_at(R"({"layer_index":1})");
  WeightsPtr weights =
      make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(one.get(), o, e); });
  for (const StackedTensor& t : {StackedTensor{"w13_weight", tensor(MOE_DTYPE_BF16, {4, 64, 64}, zeros.data())},
                                 StackedTensor{"w2_weight", tensor(MOE_DTYPE_BF16, {4, 64, 32}, zeros.data())}}) {
    const Failure f =
        failure([&](moe_error** e) { return moe_weights_set(weights.get(), t.role, &t.tensor, nullptr, nullptr, e); });
    ASSERT_EQ(f.status, MOE_OK) << f.message;
  }
  const SelectionPtr selection = make_selection(one.get());
  const PackedPtr packed = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
    return moe_convert_weights(nullptr, selection.get(), weights.get(), nullptr, o, e);
  });
  struct Case {
    const char* options;
    moe_status status;
  };
  for (const Case& c : {Case{R"({"layer_index":1})", MOE_OK}, Case{R"({"layer_index":0})", MOE_ERR_CONFIG_MISMATCH},
                        Case{R"({"layer_index":1,"module":"language_model.model.layers.1.mlp.experts"})", MOE_OK},
                        Case{R"({"layer_index":0,"module":"model.layers.1.mlp.experts"})", MOE_OK},
                        Case{R"({"layer_index":1,"module":"a.layers.1.b"})", MOE_ERR_CONFIG_MISMATCH}}) {
    const ConfigPtr config = config_at(c.options);
    EXPECT_EQ(create(make_selection(config.get()).get(), packed.get()).status, c.status) << c.options;
  }
}

TEST_F(LayerEntry, Flags) {
  options.flags = 2;
  EXPECT_EQ(create(s.selection.get(), s.packed.get()).subject, "flags");
  options.struct_size = offsetof(moe_layer_options, flags);  // as callers of the first release have it
  EXPECT_EQ(create(s.selection.get(), s.packed.get()).status, MOE_OK);
}

TEST_F(LayerEntry, AHostThatCannotRunTheKernel) {
  const PlatformPtr other = make<PlatformPtr>([](moe_platform** o, moe_error** e) {
#if defined(__aarch64__)
    return moe_platform_create("{\"type\":\"cpu\",\"arch\":\"x86_64\",\"features\":[\"avx2\",\"fma\",\"f16c\"]}",
                               MOE_NUL_TERMINATED, o, e);
#else
    return moe_platform_create(nullptr, 0, o, e);
#endif
  });
  const SelectionPtr selection = make_selection(s.config.get(), nullptr, other.get());
#if defined(__x86_64__)
  if (std::string(moe_selection_kernel(selection.get())) == "w4a8_tok8_p16_scalar")
    GTEST_SKIP() << "no better kernel to take away";
  setenv("MOE_MAX_ISA", "scalar", 1);
#endif
  // packed for that selection: another architecture may have another layout
  const WeightsPtr weights = make_weights(s.config.get(), m);
  const PackedPtr packed = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
    return moe_convert_weights(nullptr, selection.get(), weights.get(), nullptr, o, e);
  });
  const Failure f = create(selection.get(), packed.get());
  unsetenv("MOE_MAX_ISA");
  EXPECT_EQ(f.status, MOE_ERR_UNSUPPORTED) << f.message;
  EXPECT_NE(f.message.find("this host cannot run kernel w4a8_tok8_p16_"), std::string::npos) << f.message;
}

TEST_F(LayerEntry, ExpertMaps) {
  struct Row {
    std::vector<std::int32_t> map;
    const char* subject;  // nullptr: accepted
  };
  const Row rows[] = {{{0, 1, 2, 3}, nullptr},         {{3, 2, 1, 0}, nullptr},
                      {{-1, 0, -1, 1}, nullptr},       {{-1, -1, -1, -1}, nullptr},
                      {{0, 1, 2, 4}, "expert_map[3]"}, {{0, -2, 1, 2}, "expert_map[1]"},
                      {{0, 1, 1, 2}, "expert_map[2]"}, {{0, INT32_MIN, 1, 2}, "expert_map[1]"}};
  for (const Row& r : rows) {
    const moe_tensor t = tensor(MOE_DTYPE_I32, {m.E}, r.map.data());
    options.expert_map = &t;
    const Failure f = create(s.selection.get(), s.packed.get());
    EXPECT_EQ(f.status, r.subject == nullptr ? MOE_OK : MOE_ERR_INVALID_ARGUMENT) << f.message;
    EXPECT_EQ(f.subject, r.subject == nullptr ? "" : r.subject);
  }
  const std::vector<std::int64_t> wide(4);
  for (const auto& [t, status] : {std::pair{tensor(MOE_DTYPE_I64, {4}, wide.data()), MOE_ERR_DTYPE},
                                  std::pair{tensor(MOE_DTYPE_I32, {3}, wide.data()), MOE_ERR_SHAPE},
                                  std::pair{tensor(MOE_DTYPE_I32, {2, 2}, wide.data()), MOE_ERR_SHAPE}}) {
    options.expert_map = &t;
    EXPECT_EQ(create(s.selection.get(), s.packed.get()).status, status);
  }
}

TEST_F(LayerEntry, AMapMovesExperts) {
  const std::vector<std::int32_t> swapped = {1, 0, 2, 3};
  const moe_tensor t = tensor(MOE_DTYPE_I32, {m.E}, swapped.data());
  options.expert_map = &t;
  LayerPtr layer;
  ASSERT_EQ(create(s.selection.get(), s.packed.get(), &layer).status, MOE_OK);
  // one expert per token, so that the order of the sum is the same
  for (std::size_t i = 0; i < m.ids.size(); i += 2) m.ids[i + 1] = -1;
  Call a(m);
  ASSERT_EQ(moe_apply(layer.get(), &a.args, nullptr), MOE_OK);
  for (auto& id : m.ids) id = id == 0 ? 1 : id == 1 ? 0 : id;
  Call b(m);
  ASSERT_EQ(moe_apply(s.layer.get(), &b.args, nullptr), MOE_OK);
  EXPECT_EQ(a.out, b.out);
}

TEST_F(LayerEntry, CorrectionBiasWithoutUseIsRefused) {
  const std::vector<float> bias(4);
  const moe_tensor t = tensor(MOE_DTYPE_F32, {4}, bias.data()), longer = tensor(MOE_DTYPE_F32, {5}, bias.data());
  options.correction_bias = &t;
  Failure f = create(s.selection.get(), s.packed.get());
  EXPECT_EQ(f.status, MOE_ERR_UNEXPECTED_WEIGHT);
  EXPECT_EQ(f.subject, "correction_bias");
  options.correction_bias = &longer;
  f = create(s.selection.get(), s.packed.get());
  EXPECT_EQ(f.status, MOE_ERR_SHAPE);
  EXPECT_EQ(f.subject, "correction_bias");
}

TEST_F(LayerEntry, WorkspaceSizes) {
  std::uint64_t bytes = 7, alignment = 7, before = 0;
  for (const std::int64_t tokens : {0, 1, 2, 16, 1000}) {
    ASSERT_EQ(moe_layer_workspace_size(s.layer.get(), MOE_APPLY_TOPK, tokens, &bytes, &alignment, nullptr), MOE_OK);
    EXPECT_EQ(alignment, 64U);
    EXPECT_GE(bytes, before);
    before = bytes;
  }
  struct Row {
    moe_apply_mode mode;
    std::int64_t tokens;
    moe_status status;
    const char* subject;
  };
  for (const Row& r :
       {Row{1, -1, MOE_ERR_INVALID_ARGUMENT, "num_tokens"}, Row{1, INT64_MAX, MOE_ERR_INVALID_ARGUMENT, "num_tokens"},
        Row{2, 1, MOE_ERR_UNSUPPORTED, "mode"}, Row{3, 1, MOE_ERR_INVALID_ARGUMENT, "mode"},
        Row{-1, 1, MOE_ERR_INVALID_ARGUMENT, "mode"}}) {
    bytes = alignment = 7;
    const Failure f = failure([&](moe_error** e) {
      return moe_layer_workspace_size(s.layer.get(), r.mode, r.tokens, &bytes, &alignment, e);
    });
    EXPECT_EQ(f.status, r.status);
    EXPECT_EQ(f.subject, r.subject);
    EXPECT_EQ(bytes + alignment, 0U);
  }
}

TEST_F(LayerEntry, CountsOfTokens) {
  Call call(m);
  ASSERT_EQ(moe_apply(s.layer.get(), &call.args, nullptr), MOE_OK);
  std::vector<std::uint64_t> counts(5, 99), want(4);
  for (std::int32_t id : m.ids) ++want[static_cast<std::size_t>(id)];
  ASSERT_EQ(moe_layer_expert_counts(s.layer.get(), counts.data(), 5, 1, nullptr), MOE_OK);
  EXPECT_EQ(std::vector(counts.begin(), counts.begin() + 4), want);
  EXPECT_EQ(counts[4], 99U);
  ASSERT_EQ(moe_layer_expert_counts(s.layer.get(), counts.data(), 4, 0, nullptr), MOE_OK);
  EXPECT_EQ(counts, (std::vector<std::uint64_t>{0, 0, 0, 0, 99}));
  const Failure f =
      failure([&](moe_error** e) { return moe_layer_expert_counts(s.layer.get(), counts.data(), 3, 0, e); });
  EXPECT_EQ(f.status, MOE_ERR_BUFFER_TOO_SMALL);
  EXPECT_EQ(f.details["needed"], 4);
  EXPECT_EQ(moe_layer_expert_counts(s.layer.get(), counts.data(), 4, 2, nullptr), MOE_ERR_INVALID_ARGUMENT);
}

TEST_F(LayerEntry, Report) {
  const auto j = json_of([&](moe_buffer** o, moe_error** e) { return moe_layer_to_json(s.layer.get(), o, e); });
  EXPECT_EQ(j["backend"], "CPU_INT4");
  EXPECT_EQ(j["threads"], 1);
  EXPECT_EQ(j["config"]["num_experts"], 4);
}

}  // namespace
}  // namespace moe::test::layer_test
