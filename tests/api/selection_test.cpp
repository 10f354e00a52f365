// Selection through the ABI: accessors, candidates, what fails and how.
#include <gtest/gtest.h>

#include "support/capi.h"
#include "support/rooms.h"

namespace moe::test::selection_test {
namespace {

moe_candidate candidate_at(const moe_selection* s, std::size_t i) {
  moe_candidate c{};
  c.struct_size = sizeof c;
  EXPECT_EQ(moe_selection_candidate(s, i, &c, nullptr), MOE_OK);
  EXPECT_EQ(c.struct_size, sizeof c);
  return c;
}

TEST(Selection, NamesTheWinner) {
  const ConfigPtr config = make_config(random_model().config_text());
  const SelectionPtr s = make_selection(config.get());
  EXPECT_STREQ(moe_selection_backend(s.get()), "CPU_INT4");
  EXPECT_EQ(std::string(moe_selection_kernel(s.get())).rfind("w4a8_tok8_p16_", 0), 0U);
  EXPECT_STREQ(moe_selection_layout(s.get()), "p16/int4-g32/1");
  int chosen = 0;
  for (std::size_t i = 0; i < moe_selection_candidate_count(s.get()); ++i) {
    const moe_candidate c = candidate_at(s.get(), i);
    EXPECT_EQ(c.reason == MOE_REJECT_NONE, std::string(c.detail).empty()) << c.kernel;
    chosen += c.chosen;
    if (c.chosen != 0) {
      EXPECT_STREQ(c.kernel, moe_selection_kernel(s.get()));
    }
  }
  EXPECT_EQ(chosen, 1);
  const auto j = json_of([&](moe_buffer** o, moe_error** e) { return moe_selection_to_json(s.get(), o, e); });
  EXPECT_EQ(j["backend"], "CPU_INT4");
  EXPECT_EQ(j["candidates"].size(), moe_selection_candidate_count(s.get()));
}

TEST(Selection, CandidateIndex) {
  const ConfigPtr config = make_config(random_model().config_text());
  const SelectionPtr s = make_selection(config.get());
  moe_candidate c{};
  c.struct_size = sizeof c;
  c.priority = 77;
  for (const std::size_t i : {moe_selection_candidate_count(s.get()), SIZE_MAX}) {
    const Failure f = failure([&](moe_error** e) { return moe_selection_candidate(s.get(), i, &c, e); });
    EXPECT_EQ(f.status, MOE_ERR_INVALID_ARGUMENT);
    EXPECT_EQ(f.subject, "index");
  }
  EXPECT_EQ(c.priority, 77);
}

TEST(Selection, PackedSizeIsWhatConversionTakes) {
  const Model m = random_model();
  const Steps s = four_steps(m);
  std::uint64_t bytes = 0, alignment = 0, size = 0;
  const void* data = nullptr;
  EXPECT_EQ(moe_selection_packed_size(s.selection.get(), &bytes, &alignment, nullptr), MOE_OK);
  EXPECT_EQ(moe_packed_data(s.packed.get(), &data, &size, nullptr), MOE_OK);
  EXPECT_EQ(bytes, size);
  EXPECT_EQ(alignment, 64U);
}

// A config that no backend takes: weights of this kind have no kernel yet.
TEST(Selection, NoBackendListsEveryReason) {
  Model m = random_model();
  auto text = nlohmann::json::parse(m.config_text());
  text["quantization"]["group_size"] = 16;
  const ConfigPtr config = make_config(text.dump());
  moe_selection* out = reinterpret_cast<moe_selection*>(8);
  const Failure f =
      failure([&](moe_error** e) { return moe_select_backend(nullptr, config.get(), nullptr, 0, &out, e); });
  EXPECT_EQ(f.status, MOE_ERR_NO_BACKEND);
  EXPECT_EQ(out, nullptr);
  ASSERT_GE(f.details["candidates"].size(), 1U);
  for (const auto& c : f.details["candidates"]) {
    EXPECT_NE(c["reason"], "MOE_REJECT_NONE");
    EXPECT_FALSE(c["detail"].get<std::string>().empty());
  }
  const SelectionPtr explained = make<SelectionPtr>([&](moe_selection** o, moe_error** e) {
    return moe_select_backend(nullptr, config.get(), nullptr, MOE_SELECT_EXPLAIN_ONLY, o, e);
  });
  EXPECT_STREQ(moe_selection_backend(explained.get()), "");
  EXPECT_STREQ(moe_selection_kernel(explained.get()), "");
  EXPECT_STREQ(moe_selection_layout(explained.get()), "");
  // every later call refuses it
  std::uint64_t bytes = 1, alignment = 1;
  EXPECT_EQ(
      failure([&](moe_error** e) { return moe_selection_packed_size(explained.get(), &bytes, &alignment, e); }).status,
      MOE_ERR_NO_BACKEND);
  EXPECT_EQ(bytes + alignment, 0U);
  const WeightsPtr w =
      make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(config.get(), o, e); });
  moe_packed* packed = nullptr;
  const Failure g = failure(
      [&](moe_error** e) { return moe_convert_weights(nullptr, explained.get(), w.get(), nullptr, &packed, e); });
  EXPECT_EQ(g.status, MOE_ERR_NO_BACKEND);
  EXPECT_EQ(g.details["candidates"], f.details["candidates"]);
}

// vLLM's answer whose layout is not public as bytes: it is given, and every later step says that nothing follows.
TEST(Selection, AnswerWithoutALayout) {
  const ConfigPtr config = make_config(R"({"num_experts": 4, "top_k": 2, "hidden_dim": 64, "intermediate_size": 64,
    "activation": "swigluoai", "quantization": {"scheme": "MXFP4A16", "format": "mxfp4-gpt-oss"},
    "selection_policy": "vllm",
    "platform": {"type": "cuda", "capability": [9, 0], "libs": {"triton_kernels": true}}})");
  const SelectionPtr s = make_selection(config.get());
  EXPECT_STREQ(moe_selection_backend(s.get()), "TRITON");
  EXPECT_STREQ(moe_selection_kernel(s.get()), "OAITritonMxfp4ExpertsMonolithic");
  std::uint64_t bytes = 1, alignment = 1;
  EXPECT_EQ(failure([&](moe_error** e) { return moe_selection_packed_size(s.get(), &bytes, &alignment, e); }).status,
            MOE_ERR_UNSUPPORTED);
  const WeightsPtr w =
      make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(config.get(), o, e); });
  moe_packed* packed = nullptr;
  EXPECT_EQ(failure([&](moe_error** e) {
              return moe_convert_weights(nullptr, s.get(), w.get(), nullptr, &packed, e);
            }).status,
            MOE_ERR_UNSUPPORTED);
  const auto j = json_of([&](moe_buffer** o, moe_error** e) { return moe_selection_to_json(s.get(), o, e); });
  EXPECT_EQ(j["oracle"], "mxfp4");
  EXPECT_EQ(j["runs_as"], nullptr);
}

TEST(Selection, PlatformHandleWins) {
  const ConfigPtr config = make_config(random_model().config_text());
  const PlatformPtr scalar = make<PlatformPtr>([](moe_platform** o, moe_error** e) {
    return moe_platform_create("{\"type\":\"cpu\",\"arch\":\"x86_64\",\"features\":[\"scalar\"]}", MOE_NUL_TERMINATED,
                               o, e);
  });
  const SelectionPtr s = make_selection(config.get(), nullptr, scalar.get());
  EXPECT_STREQ(moe_selection_kernel(s.get()), "w4a8_tok8_p16_scalar");
}

TEST(Selection, UnknownFlags) {
  const ConfigPtr config = make_config(random_model().config_text());
  moe_selection* out = nullptr;
  for (const std::uint64_t flags : {std::uint64_t{4}, std::uint64_t{1} << 63, UINT64_MAX}) {
    const Failure f =
        failure([&](moe_error** e) { return moe_select_backend(nullptr, config.get(), nullptr, flags, &out, e); });
    EXPECT_EQ(f.status, MOE_ERR_INVALID_ARGUMENT);
    EXPECT_EQ(f.subject, "flags");
  }
}

TEST(Selection, AccessorsTakeNull) {
  EXPECT_STREQ(moe_selection_backend(nullptr), "");
  EXPECT_STREQ(moe_selection_kernel(nullptr), "");
  EXPECT_STREQ(moe_selection_layout(nullptr), "");
  EXPECT_EQ(moe_selection_candidate_count(nullptr), 0U);
}

// What a selection accepts, conversion asks the weights for: of every quantization that a config can state.
TEST(Selection, AcceptsNothingThatLoadingRefuses) {
  using Json = nlohmann::json;
  int accepted = 0, refused = 0, impossible = 0;
  const auto try_one = [&](const Json& quantization, const Json& platform) {
    const Json document = {{"num_experts", 4},       {"top_k", 2},
                           {"hidden_dim", 256},      {"intermediate_size", 256},
                           {"in_dtype", "bfloat16"}, {"quantization", quantization},
                           {"platform", platform}};
    const std::string text = document.dump();
    moe_config* made = nullptr;
    if (moe_config_create(text.data(), text.size(), &made, nullptr) != MOE_OK) {
      ++impossible;
      return;
    }
    const ConfigPtr config(made);
    moe_selection* chosen = nullptr;
    if (moe_select_backend(nullptr, config.get(), nullptr, 0, &chosen, nullptr) != MOE_OK) {
      ++refused;
      return;
    }
    const SelectionPtr selection(chosen);
    ++accepted;
    const auto weights =
        make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(config.get(), o, e); });
    moe_packed* packed = nullptr;
    const Failure f = failure([&](moe_error** e) {
      return moe_convert_weights(nullptr, selection.get(), weights.get(), nullptr, &packed, e);
    });
    EXPECT_EQ(f.status, MOE_ERR_MISSING_WEIGHT) << text << " " << f.message;
  };
  const Json strategies = {{{"strategy", "tensor"}},
                           {{"strategy", "channel"}},
                           {{"strategy", "group"}, {"group_size", 32}},
                           {{"strategy", "group"}, {"group_size", 128}},
                           {{"strategy", "tensor_group"}, {"group_size", 16}},
                           {{"strategy", "block"}, {"block_structure", {128, 128}}}};
  const Json activations = {nullptr,
                            {{"num_bits", 8}, {"type", "int"}, {"strategy", "token"}, {"dynamic", true}},
                            {{"num_bits", 8}, {"type", "int"}, {"strategy", "tensor"}, {"dynamic", false}},
                            {{"num_bits", 8}, {"type", "float"}, {"strategy", "token"}, {"dynamic", true}}};
  const Json platforms = {{{"type", "cpu"}},
                          {{"type", "cpu"}, {"arch", "aarch64"}, {"features", {"neon", "dotprod", "i8mm"}}},
                          {{"type", "cuda"}, {"capability", {9, 0}}},
                          {{"type", "xpu"}}};
  for (const Json& platform : platforms)
    for (const int bits : {4, 8})
      for (const char* type : {"int", "float"})
        for (const Json& strategy : strategies)
          for (const bool symmetric : {true, false})
            for (const Json& a : activations)
              for (const char* format : {"int-quantized", "pack-quantized", "float-quantized", "gptq", "awq"}) {
                Json w = strategy;
                w.update(Json{{"num_bits", bits}, {"type", type}, {"symmetric", symmetric}, {"dynamic", false}});
                try_one({{"weights", w}, {"input_activations", a}, {"format", format}}, platform);
              }
  EXPECT_GE(accepted, 40);
  EXPECT_GE(refused, 40);
  EXPECT_GE(impossible, 40);
}

}  // namespace
}  // namespace moe::test::selection_test
