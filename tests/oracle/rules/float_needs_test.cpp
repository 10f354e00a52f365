// What the layouts of other engines' float kernels need beyond vLLM's checks: each condition of float_oracles.md 2.9
// once, with its reason and place, and the size beside it that is taken. And vLLM's padding of MXFP4.
#include "oracle/rules/float_needs.h"

#include <gtest/gtest.h>

#include <string>

#include "layouts/floats/float_layout.h"
#include "oracle/float_world.h"
#include "support/rooms.h"

namespace moe::test::float_needs_test {
namespace {

using nlohmann::json;

json sizes(int hidden, int intermediate) { return {{"hidden_dim", hidden}, {"intermediate_size", intermediate}}; }

struct Row {
  json layer;
  Platform platform;
  const char* experts;
  json refused, waiting;  // sizes
  const char* subject;
};

constexpr const char* kHidden = "/hidden_dim";
constexpr const char* kIntermediate = "/intermediate_size_per_partition";

std::vector<Row> rows() {
  const json fp8 = scheme("FP8"), block = scheme("FP8_BLOCK"), mxfp8 = scheme("MXFP8"), nvfp4 = scheme("NVFP4");
  const json ungated = {{"activation", "relu2_no_mul"}};
  const json low_latency = {
      {"parallel", {{"dp_size", 2}, {"enable_expert_parallel", true}, {"all2all_backend", "deepep_low_latency"}}}};
  const json aiter = {{"vllm_env", {{"VLLM_ROCM_USE_AITER", "1"}}}};
  const json vllm = {{"selection_policy", "vllm"}};
  return {
      // Tiles of 16 by 64 in both matrices: H gives rows of w2, twice I the rows of w13.
      {fp8, gpu(8), "MarlinExperts", sizes(96, 64), sizes(64, 64), kHidden},
      {fp8, gpu(8), "MarlinExperts", sizes(64, 16), sizes(64, 32), kIntermediate},
      {fp8, gpu(8), "MarlinExperts", sizes(64, 40), sizes(64, 96), kIntermediate},
      {with(fp8, ungated), gpu(8), "MarlinExperts", sizes(64, 96), sizes(64, 64), kIntermediate},
      {mxfp8, gpu(8), "MarlinExperts", sizes(32, 64), sizes(64, 64), kHidden},
      {nvfp4, gpu(9), "MarlinExperts", sizes(64, 48), sizes(64, 32), kIntermediate},
      // TensorRT-LLM: rows in blocks of 32; I is padded.
      {fp8, gpu(10), "TrtLlmFp8ExpertsMonolithic", sizes(48, 64), sizes(96, 40), kHidden},
      {block, gpu(10), "TrtLlmFp8ExpertsMonolithic", sizes(192, 128), sizes(384, 128), kHidden},
      {block, gpu(10), "TrtLlmFp8ExpertsModular", sizes(192, 128), sizes(384, 128), kHidden},
      {mxfp8, gpu(10), "TrtLlmFp8ExpertsMonolithic", sizes(64, 128), sizes(128, 128), kHidden},
      {mxfp8, gpu(10), "TrtLlmFp8ExpertsMonolithic", sizes(128, 192), sizes(128, 256), kIntermediate},
      {nvfp4, gpu(10), "TrtLlmNvFp4ExpertsMonolithic", sizes(256, 48), sizes(48, 64), kIntermediate},
      // Swizzled block scales, without room for padding behind a gate.
      {nvfp4, gpu(10), "FlashInferExperts", sizes(256, 32), sizes(16, 64), kIntermediate},
      {nvfp4, gpu(10), "CutlassExpertsFp4", sizes(256, 32), sizes(16, 64), kIntermediate},
      {nvfp4, gpu(12), "B12xExperts", sizes(256, 96), sizes(16, 64), kIntermediate},
      {nvfp4, gpu(10), "FlashInferCuteDSLExperts", sizes(256, 96), sizes(16, 64), kIntermediate},
      {with(nvfp4, low_latency), gpu(10), "FlashInferCuteDSLBatchedExperts", sizes(256, 96), sizes(16, 64),
       kIntermediate},
      {block, gpu(9), "TritonOrDeepGemmExperts", sizes(192, 128), sizes(128, 128), kHidden},
      {with(block, low_latency), gpu(9), "BatchedDeepGemmExperts", sizes(192, 128), sizes(128, 128), kHidden},
      {with(fp8, aiter), rocm("gfx942"), "AiterExperts", sizes(48, 64), sizes(64, 64), kHidden},
      {with(fp8, aiter), rocm("gfx942"), "AiterExperts", sizes(64, 48), sizes(64, 32), kIntermediate},
      {with(block, vllm), avx512(), "CPUExpertsFp8", sizes(144, 128), sizes(160, 128), kHidden},
  };
}

TEST(FloatNeeds, EachConditionHasItsReasonAndPlace) {
  for (const Row& row : rows()) {
    SCOPED_TRACE(std::string(row.experts) + " " + row.layer.dump() + row.refused.dump());
    const auto refused = explain_float(with(row.layer, row.refused), row.platform);
    ASSERT_TRUE(refused);
    const Candidate* c = candidate(*refused, row.experts);
    ASSERT_NE(c, nullptr);
    EXPECT_EQ(c->reason, Reject::alignment) << c->detail;
    EXPECT_EQ(c->subject, row.subject);
    const auto waiting = explain_float(with(row.layer, row.waiting), row.platform);
    ASSERT_TRUE(waiting);
    c = candidate(*waiting, row.experts);
    ASSERT_NE(c, nullptr);
    EXPECT_EQ(c->reason, Reject::none) << c->detail;
  }
}

// Conditions that are no sizes.
TEST(FloatNeeds, OtherReasons) {
  const json vllm = {{"selection_policy", "vllm"}}, sgl = {{"vllm_env", {{"VLLM_CPU_SGL_KERNEL", "1"}}}};
  const json f16 = {{"in_dtype", "float16"}}, f32 = {{"in_dtype", "float32"}}, none = json::object();
  struct Other {
    json layer;
    Platform platform;
    const char* name;
    Reject reason;
    const char* subject;
  };
  const Other rows[] = {
      {with(scheme("FP8"), f32), gpu(8), "MarlinExperts", Reject::input_dtype, "/in_dtype"},
      {with(scheme("FP8"), f16), gpu(8), "MarlinExperts", Reject::none, ""},
      {with(scheme("MXFP8"), f32), gpu(8), "MarlinExperts", Reject::none, ""},
      {with(scheme("NVFP4"), f32), gpu(9), "MarlinExperts", Reject::input_dtype, "/in_dtype"},
      {with(scheme("NVFP4"), f16), gpu(9), "MarlinExperts", Reject::none, ""},
      {f16, gpu(10), "TrtLlmBf16Experts", Reject::input_dtype, "/in_dtype"},
      {none, gpu(10), "TrtLlmBf16Experts", Reject::none, ""},
      {f16, gpu(10), "FlashInferExperts", Reject::none, ""},
      {vllm, avx512(), "CPU", Reject::not_built, "/vllm_env"},
      {with(with(vllm, sgl), f16), avx512(), "CPU", Reject::not_built, "/in_dtype"},
      {with(vllm, sgl), avx512(), "CPU", Reject::none, ""},
      {with(with(vllm, sgl), sizes(48, 64)), avx512(), "CPU", Reject::alignment, kHidden},
      {with(with(vllm, sgl), sizes(64, 48)), avx512(), "CPU", Reject::alignment, kIntermediate},
      {sizes(96, 64), gpu(10), "TrtLlmBf16Experts", Reject::alignment, kHidden},
      {sizes(64, 96), gpu(10), "TrtLlmBf16Experts", Reject::alignment, kIntermediate},
  };
  for (const Other& row : rows) {
    SCOPED_TRACE(std::string(row.name) + " " + row.layer.dump());
    const auto s = explain_float(row.layer, row.platform);
    ASSERT_TRUE(s);
    const Candidate* c = candidate(*s, row.name);
    ASSERT_NE(c, nullptr);
    EXPECT_EQ(c->reason, row.reason) << c->detail;
    EXPECT_EQ(c->subject, row.subject);
  }
  const json aiter = {{"vllm_env", {{"VLLM_ROCM_USE_AITER", "1"}}}};
  for (const json& odd : {sizes(48, 64), sizes(64, 48)}) {
    const auto s = explain_float(with(aiter, odd), rocm("gfx950"));
    EXPECT_EQ(candidate(*s, "AITER")->reason, Reject::alignment);
  }
}

// Kernels without a gate pad, and what vLLM pads before anything else needs nothing.
TEST(FloatNeeds, PaddedSizesNeedNothing) {
  const json ungated = {{"activation", "relu2_no_mul"}};
  struct Free {
    json layer;
    Platform platform;
    const char* experts;
  };
  const Free rows[] = {
      {with(with(scheme("NVFP4"), ungated), sizes(16, 48)), gpu(10), "TrtLlmNvFp4ExpertsMonolithic"},
      {with(with(scheme("NVFP4"), ungated), sizes(16, 48)), gpu(10), "FlashInferExperts"},
      {with(with(scheme("FP8"), ungated), sizes(32, 24)), gpu(10), "TrtLlmFp8ExpertsMonolithic"},
      {with(gpt_oss(), sizes(32, 96)), gpu(8), "MarlinExperts"},
      {with(gpt_oss(), sizes(2880, 2880)), gpu(10), "TrtLlmMxfp4ExpertsMonolithic"},
      {with(scheme("FP8"), sizes(24, 40)), gpu(9), "TritonExperts"},
  };
  for (const Free& row : rows) {
    const auto s = explain_float(row.layer, row.platform);
    ASSERT_TRUE(s);
    const Candidate* c = candidate(*s, row.experts);
    ASSERT_NE(c, nullptr) << row.experts;
    EXPECT_EQ(c->reason, Reject::none) << c->detail;
  }
}

// A config cannot ask for it: its own rules want integer weights.
TEST(FloatNeeds, MarlinHasNoOtherActivations) {
  Config c = *float_layer(scheme("NVFP4"));
  c.marlin_input_dtype = MarlinInput::fp8;
  const auto s = select_backend(std::make_shared<const Config>(c), gpu(9), {.explain_only = true});
  ASSERT_TRUE(s);
  EXPECT_EQ(candidate(*s, "MARLIN")->reason, Reject::quant_scheme);
  EXPECT_EQ(candidate(*s, "MARLIN")->subject, "/marlin_input_dtype");
}

TEST(FloatNeeds, PaddingOfMxfp4) {
  struct Padded {
    const char* backend;
    DeviceType device;
    LayerSizes sizes;
  };
  using enum DeviceType;
  const Padded rows[] = {
      {"DEEPGEMM_MXFP4", cuda, {2944, 2944}},
      {"FLASHINFER_CUTLASS_MXFP4_BF16", cuda, {2944, 2944}},
      {"FLASHINFER_CUTLASS_MXFP4_MXFP8", cuda, {2944, 2944}},
      {"MARLIN", cuda, {3072, 2944}},
      {"BATCHED_MARLIN", cuda, {3072, 2944}},
      {"MARLIN", xpu, {2944, 2944}},
      {"FLASHINFER_TRTLLM_MXFP4_BF16", cuda, {3072, 3072}},
      {"FLASHINFER_TRTLLM_MXFP4_MXFP8", cuda, {3072, 3072}},
      {"AITER_MXFP4_BF16", rocm, {3072, 3072}},
      {"TRITON", rocm, {3072, 3072}},
      {"EMULATION", rocm, {3072, 3072}},
      {"TRITON", cuda, {2880, 2880}},
      {"CPU", cpu, {2880, 2880}},
      {"XPU", xpu, {2880, 2880}},
      {"EMULATION", cuda, {2880, 2880}},
  };
  for (const Padded& row : rows)
    EXPECT_EQ(mxfp4_padded(row.backend, row.device, {2880, 2880}), row.sizes) << row.backend;
  EXPECT_EQ(mxfp4_padded("CPU", cpu, {33, 65}), (LayerSizes{64, 96}));
  EXPECT_EQ(mxfp4_padded("TRITON", cuda, {33, 65}), (LayerSizes{33, 128}));
  EXPECT_EQ(mxfp4_padded("MARLIN", cuda, {256, 128}), (LayerSizes{256, 128}));
}

// The layouts of the rows pad in the same way.
TEST(FloatNeeds, LayoutsOfMxfp4ArePaddedSo) {
  struct Asked {
    json layer;
    Platform platform;
    const char* backend;
  };
  const json aiter = {{"vllm_env", {{"VLLM_ROCM_USE_AITER", "1"}}}};
  const auto named = [](const char* word) { return with(gpt_oss(), {{"moe_backend", word}}); };
  const Asked written[] = {
      {named("flashinfer_trtllm"), gpu(10), "FLASHINFER_TRTLLM_MXFP4_BF16"},
      {named("flashinfer_cutlass"), gpu(9), "FLASHINFER_CUTLASS_MXFP4_BF16"},
      {with(gpt_oss(), {{"vllm_env", {{"VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8_CUTLASS", "1"}}}}), gpu(10),
       "FLASHINFER_CUTLASS_MXFP4_MXFP8"},
      {gpt_oss(), gpu(8), "MARLIN"},
      {with(gpt_oss(), aiter), rocm("gfx950"), "AITER_MXFP4_BF16"},
      {with(gpt_oss(), {{"selection_policy", "vllm"}}), avx512(), "CPU"},
      {with(gpt_oss("silu"), {{"moe_backend", "deep_gemm"}}), gpu(10), "DEEPGEMM_MXFP4"},
      {named("emulation"), gpu(9), "EMULATION"},
      {named("emulation"), rocm("gfx950"), "EMULATION"},
  };
  for (const Asked& row : written)
    for (const json& size : {sizes(2880, 2880), sizes(96, 160)}) {
      const auto s = explain_float(with(row.layer, size), row.platform);
      ASSERT_TRUE(s && s->winner) << row.backend;
      EXPECT_EQ(s->backend_name(), row.backend);
      EXPECT_EQ((LayerSizes{padded_hidden(s->layout), padded_intermediate(s->layout)}),
                mxfp4_padded(row.backend, row.platform.type, {size["hidden_dim"], size["intermediate_size"]}))
          << row.backend;
    }
}

}  // namespace
}  // namespace moe::test::float_needs_test
