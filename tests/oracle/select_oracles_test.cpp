// moe_select_backend beyond W4A8-int8: int_wna16, int8, and what has no oracle. Float weights: rows/float_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "oracle/select.h"
#include "oracle/select_world.h"
#include "oracle/selection.h"
#include "support/rooms.h"

namespace moe::test::select_oracles_test {
namespace {

using testing::HasSubstr;

constexpr const char* kW4A16 = R"("quantization": {"scheme": "W4A16", "group_size": 128})";

std::string braced(const std::string& members) { return std::string("{").append(members).append("}"); }
Result<Selection> explain(const std::string& members, const Platform& p) {
  return select(braced(members), p, {.explain_only = true});
}

TEST(Select, IntWna16OnAGpu) {
  const auto s = explain(kW4A16, hopper());
  ASSERT_TRUE(s);
  EXPECT_EQ(s->oracle, "int_wna16");
  expect_sound(s->candidates);
  ASSERT_EQ(s->candidates.size(), 9u);  // five backends, HUMMING and EMULATION with three classes each
  EXPECT_EQ(s->candidates[0].backend, "FLASHINFER_TRTLLM");
  EXPECT_EQ(s->candidates[0].reason, Reject::platform);
  EXPECT_EQ(s->backend_name(), "MARLIN");
  EXPECT_EQ(s->candidates[1].kernel, "MarlinExperts");
  EXPECT_FALSE(s->kernel);  // libmoe converts, and runs nothing there
  EXPECT_EQ(s->layout_id, "marlin/gptq-b4-g128,cw-bf16/1");
  EXPECT_EQ(s->candidates[2].reason, Reject::activation_format);
  EXPECT_EQ(s->weight_scheme, "int4_g128_sym");
  EXPECT_EQ(s->activation_scheme, "none");
}

TEST(Select, IntWna16OnACpu) {
  const auto ours = explain(kW4A16, avx2());
  ASSERT_TRUE(ours);
  EXPECT_EQ(ours->backend_name(), "CPU");
  EXPECT_EQ(ours->candidates[*ours->winner].kernel, "w4a16_blk16_p16_avx2");
  EXPECT_EQ(ours->layout_id, "p16/w4-g128,cw-f32/1");
  EXPECT_EQ(ours->candidates.back().backend, "EMULATION");
  struct Row {
    const char *patch, *kernel;  // kernel: nullptr where this build has none
  };
  const Row rows[] = {
      {R"("quantization": {"scheme": "W8A16", "group_size": -1})", "w8a16_blk16_p16_avx2"},
      {R"("quantization": {"scheme": "W8A16"}, "in_dtype": "float32", "out_dtype": "float32")", "w8a16_f32_p16_avx2"},
      {R"("quantization": {"scheme": "W4A16_ASYM"}, "in_dtype": "float16", "out_dtype": "float16")",
       "w4a16_blk16_p16_avx2"},
      {R"("quantization": {"scheme": "W8A16"}, "compute": "a8")", "w8a8_blk8_p16_avx2"},
      {R"("quantization": {"scheme": "W8A16"}, "compute": "a8", "activation_quant": "per_token")",
       "w8a8_tok8_p16_avx2"},
      {R"("quantization": {"scheme": "W4A16"}, "compute": "a8")", "w4a8_blk8_p16_avx2"},
      {R"("quantization": {"scheme": "W4A16_ASYM"}, "compute": "a8")", "w4a8_blk8_p16_avx2_zp"},
      {R"("quantization": {"scheme": "W4A16_ASYM"}, "compute": "a8", "activation_quant": "per_token")", nullptr},
      {R"("quantization": {"scheme": "W4A16_ASYM"})", "w4a16_blk16_p16_avx2"}};
  for (const Row& row : rows) {
    SCOPED_TRACE(row.patch);
    const auto s = explain(row.patch, avx2());
    ASSERT_TRUE(s);
    ASSERT_EQ(static_cast<bool>(s->winner), row.kernel != nullptr);
    if (row.kernel != nullptr)
      EXPECT_EQ(s->candidates[*s->winner].kernel, row.kernel);
    else
      EXPECT_EQ(s->candidates[0].reason, Reject::not_built);
  }
  const auto theirs = explain(std::string(kW4A16) + R"(, "selection_policy": "vllm")", avx2());
  ASSERT_TRUE(theirs);
  ASSERT_EQ(theirs->candidates.size(), 1u);
  EXPECT_EQ(theirs->layout_id, "vnni/b4-g128,cw/1");
  const auto bits8 = explain(R"("quantization": {"scheme": "W8A16"}, "selection_policy": "vllm")", avx2());
  ASSERT_TRUE(bits8);
  EXPECT_EQ(bits8->candidates[0].reason, Reject::quant_scheme);
  // a group of 32 has one key for all on a CPU under policy vllm
  const auto g32 =
      explain(R"("quantization": {"scheme": "W4A16", "group_size": 32}, "selection_policy": "vllm")", avx2());
  ASSERT_TRUE(g32);
  EXPECT_EQ(g32->backend_name(), "CPU");
}

// Codes of fewer bits are those that they are read as, to every row of policy libmoe; vLLM has no reader for them.
TEST(Select, NarrowCodes) {
  struct Row {
    const char *wide, *format;
  };
  for (const Row& row :
       {Row{R"("scheme": "W4A16", "group_size": 32)", "pack-quantized-w2"},
        Row{R"("scheme": "W4A16_ASYM")", "pack-quantized-w3"}, Row{R"("scheme": "W8A16")", "pack-quantized-w5"},
        Row{R"("scheme": "W8A16", "group_size": -1)", "pack-quantized-w6"},
        Row{R"("scheme": "W8A16", "group_size": 32)", "pack-quantized-w7"},
        Row{R"("scheme": "W4A8", "format": "pack-quantized")", "pack-quantized-w3"},
        Row{R"("scheme": "W8A8", "group_size": null, "format": "pack-quantized")", "pack-quantized-w7"},
        Row{R"("scheme": "MXFP8A16", "group_size": null)", "mxfp6-pack-quantized"},
        Row{R"("scheme": "MXFP8", "group_size": null)", "mxfp6-pack-quantized"}})
    for (const Platform& p : {avx512(), amx(), arm(), hopper()}) {
      SCOPED_TRACE(row.format + std::string(" ") + row.wide);
      const std::string wide = std::string(R"("quantization": {)") + row.wide + "}";
      std::string members = row.wide;
      if (const auto given = members.find(", \"format\""); given != std::string::npos) members.resize(given);
      const std::string narrow =
          std::string(R"("quantization": {)") + members + R"(, "format": ")" + row.format + "\"}";
      const auto want = explain(wide, p), got = explain(narrow, p);
      ASSERT_TRUE(want);
      ASSERT_TRUE(got) << got.error().message;
      EXPECT_EQ(got->oracle, want->oracle);
      EXPECT_EQ(got->layout_id, want->layout_id);
      EXPECT_EQ(got->weight_scheme, want->weight_scheme);
      ASSERT_EQ(got->candidates.size(), want->candidates.size());
      for (std::size_t i = 0; i < got->candidates.size(); ++i) {
        EXPECT_EQ(got->candidates[i].kernel, want->candidates[i].kernel);
        EXPECT_EQ(got->candidates[i].reason, want->candidates[i].reason) << got->candidates[i].detail;
      }
      const auto theirs = explain(narrow + R"(, "selection_policy": "vllm")", p);
      ASSERT_TRUE(theirs);
      EXPECT_FALSE(theirs->winner);
    }
}

// AMX has rows for groups of whole A tiles and activations of 16 bits; every other machine and layer hears why not.
TEST(Select, IntWna16OnAmx) {
  struct Row {
    const char *patch, *kernel;
  };
  const Row rows[] = {{R"("quantization": {"scheme": "W4A16", "group_size": 128})", "w4a16_blk16_p16_amxint8"},
                      {R"("quantization": {"scheme": "W4A16_ASYM", "group_size": 64})", "w4a16_blk16_p16_amxint8"},
                      {R"("quantization": {"scheme": "W8A16", "group_size": -1})", "w8a16_blk16_p16_amxint8"}};
  for (const Row& row : rows) {
    SCOPED_TRACE(row.patch);
    const auto s = explain(row.patch, amx());
    ASSERT_TRUE(s && s->winner);
    EXPECT_EQ(s->candidates[*s->winner].kernel, row.kernel);
    expect_sound(s->candidates);
  }
  const auto small_groups = explain(R"("quantization": {"scheme": "W4A16", "group_size": 32})", amx());
  ASSERT_TRUE(small_groups && small_groups->winner);
  EXPECT_EQ(small_groups->candidates[*small_groups->winner].kernel, "w4a16_blk16_p16_avx512vnni");
  EXPECT_EQ(small_groups->candidates[0].kernel, "w4a16_blk16_p16_amxint8");
  EXPECT_EQ(small_groups->candidates[0].reason, Reject::group_size);
  EXPECT_THAT(small_groups->candidates[0].detail, HasSubstr("a group size that is a multiple of 64"));
  const auto without = explain(kW4A16, avx512());
  ASSERT_TRUE(without);
  EXPECT_EQ(without->candidates[0].kernel, "w4a16_blk16_p16_amxint8");
  EXPECT_EQ(without->candidates[0].reason, Reject::isa);
  EXPECT_THAT(without->candidates[0].detail, HasSubstr("needs amx_tile, amx_int8;"));
}

TEST(Select, IntWna16ByName) {
  const std::string cpu = std::string(kW4A16) + R"(, "moe_backend": "cpu")";
  const auto ours = explain(cpu, avx2());
  ASSERT_TRUE(ours);
  EXPECT_TRUE(ours->winner);
  EXPECT_EQ(ours->candidates.back().reason, Reject::user);
  const auto theirs = select(braced(cpu + R"(, "selection_policy": "vllm")"), avx2());
  ASSERT_FALSE(theirs);
  EXPECT_EQ(theirs.error().code, Code::invalid_config);  // vLLM's map lacks the word
  EXPECT_EQ(theirs.error().subject, "/moe_backend");
  const auto marlin = select(braced(std::string(kW4A16) + R"(, "moe_backend": "marlin")"), avx2());
  ASSERT_TRUE(marlin);  // vLLM's rule for a device that cannot run it: a warning, and the list decides
  EXPECT_EQ(marlin->backend_name(), "CPU");
  EXPECT_EQ(marlin->warning, "requested_backend_not_on_this_platform");
}

TEST(Select, WeightsWithoutAnOracle) {
  const std::string patch = R"({"quantization": {"scheme": null, "group_size": null,
    "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": false},
    "input_activations": {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": true}}})";
  const auto s = select(patch, avx512(), {.explain_only = true});
  ASSERT_TRUE(s);
  EXPECT_EQ(s->oracle, "none");
  EXPECT_FALSE(s->winner);
  ASSERT_EQ(s->candidates.size(), 1u);
  EXPECT_EQ(s->candidates[0].reason, Reject::not_built);
  EXPECT_EQ(s->candidates[0].subject, "/quantization");
  expect_sound(s->candidates);
  EXPECT_EQ(select(patch, avx512()).error().code, Code::no_backend);
}

TEST(Select, Int8) {
  const auto s = select(R"({"quantization": {"scheme": "W8A8", "group_size": null}})", avx512());
  ASSERT_TRUE(s);
  EXPECT_EQ(s->oracle, "int8");
  EXPECT_EQ(s->backend_name(), "CPU");
  EXPECT_EQ(s->candidates[*s->winner].kernel, "w8a8_tok8_p16_avx512vnni");
  EXPECT_EQ(s->layout_id, "p16/w8-cw-f32/1");
  const auto blocks =
      select(R"({"quantization": {"scheme": "W8A8", "group_size": null}, "activation_quant": "block32"})", avx512());
  ASSERT_TRUE(blocks);
  EXPECT_EQ(blocks->candidates[*blocks->winner].kernel, "w8a8_blk8_p16_avx512vnni");
  const auto theirs =
      select(R"({"quantization": {"scheme": "W8A8", "group_size": null}, "selection_policy": "vllm"})", avx512());
  ASSERT_FALSE(theirs);
  EXPECT_EQ(theirs.error().code, Code::no_backend);
  const auto int4 = select(R"({"activation_quant": "block32"})", avx512());
  ASSERT_TRUE(int4);
  EXPECT_EQ(int4->candidates[*int4->winner].kernel, "w4a8_blk8_p16_avx512vnni");
}

TEST(Select, Int8SumsHaveALimit) {
  const auto s = explain(R"("quantization": {"scheme": "W8A8", "group_size": null}, "hidden_dim": 132106)", avx512());
  ASSERT_TRUE(s);
  EXPECT_FALSE(s->winner);
  const auto row = std::find_if(s->candidates.begin(), s->candidates.end(),
                                [](const auto& c) { return c.kernel == "w8a8_tok8_p16_avx512vnni"; });
  ASSERT_NE(row, s->candidates.end());
  EXPECT_EQ(row->reason, Reject::group_size);
  EXPECT_THAT(row->detail, HasSubstr("132104"));
}

}  // namespace
}  // namespace moe::test::select_oracles_test
