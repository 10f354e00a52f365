// The quantization configs of the float oracles: by backend, equal to what the builder of moe_describe says.
#include "oracle/float_configs.h"

#include <gtest/gtest.h>

#include <string>

#include "oracle/float_world.h"
#include "support/rooms.h"
#include "vllm/topics.h"

namespace moe::test::float_configs_test {
namespace {

using nlohmann::json;
using Make = Result<QuantConfig> (*)(const Config& c, std::string_view backend);

json call(const char* builder, const json& kwargs) { return {{"builder", builder}, {"kwargs", kwargs}}; }
json tensors(std::initializer_list<const char*> names) {
  json members = json::object();
  for (const char* name : names) members[name] = "tensor";
  return members;
}

void expect_built(Make make, const json& layer, const char* backend, const json& query) {
  SCOPED_TRACE(std::string(backend) + " " + query.dump());
  const Result<QuantConfig> made = make(*float_layer(layer), backend);
  ASSERT_TRUE(made) << made.error().message;
  const auto value = moe::json::parse(query.dump());
  ASSERT_TRUE(value);
  const Result<std::string> answer = describe_quant_config(*value);
  ASSERT_TRUE(answer) << answer.error().message;
  json want = json::parse(*answer);
  want.erase("scale_shape");
  moe::json::Writer w;
  w.begin_object();
  write_members(w, *made);
  EXPECT_EQ(json::parse(w.end_object().take()), want);
}

TEST(FloatConfigs, Fp8) {
  const json scales = tensors({"w1_scale", "w2_scale"});
  const json with_inputs = tensors({"w1_scale", "w2_scale", "a1_scale", "a2_scale"});
  expect_built(fp8_config, scheme("FP8"), "TRITON", call("fp8_w8a8", with_inputs));
  expect_built(fp8_config, scheme("FP8"), "MARLIN", call("fp8_w8a16", scales));
  expect_built(fp8_config, scheme("FP8"), "FLASHINFER_CUTLASS",
               call("fp8_w8a8", with(with_inputs, tensors({"g1_alphas", "g2_alphas", "a1_gscale", "a2_gscale"}))));
  expect_built(fp8_config, scheme("FP8_DYNAMIC"), "VLLM_CUTLASS",
               call("fp8_w8a8", with(scales, {{"per_act_token_quant", true}, {"per_out_ch_quant", true}})));
  const json block = with(scales, {{"block_shape", {128, 128}}});
  expect_built(fp8_config, scheme("FP8_BLOCK"), "FLASHINFER_CUTLASS", call("fp8_w8a8", block));
  expect_built(fp8_config, scheme("FP8_BLOCK"), "CPU", call("fp8_w8a16", block));
  EXPECT_FALSE(fp8_config(*float_layer(scheme("FP8")), ""));
}

TEST(FloatConfigs, Mxfp8) {
  const json scales = with(tensors({"w1_scale", "w2_scale"}), {{"block_shape", {1, 32}}});
  expect_built(mxfp8_config, scheme("MXFP8"), "MARLIN", call("fp8_w8a16", scales));
  expect_built(mxfp8_config, scheme("MXFP8"), "FLASHINFER_TRTLLM",
               call("make", with(scales, {{"quant_dtype", "mxfp8"}, {"is_scale_swizzled", false}})));
}

TEST(FloatConfigs, Nvfp4) {
  const json a16 = tensors({"w1_scale", "w2_scale", "g1_alphas", "g2_alphas"});
  const json all = with(a16, tensors({"a1_gscale", "a2_gscale"}));
  expect_built(nvfp4_config, scheme("NVFP4"), "MARLIN", call("nvfp4_w4a16", a16));
  for (const char* backend : {"B12X", "FLASHINFER_CUTLASS", "FLASHINFER_CUTEDSL_BATCHED", "VLLM_CUTLASS", "EMULATION"})
    expect_built(nvfp4_config, scheme("NVFP4"), backend, call("nvfp4", all));
  for (const char* backend : {"FLASHINFER_TRTLLM", "FLASHINFER_CUTEDSL"})
    expect_built(nvfp4_config, scheme("NVFP4"), backend, call("nvfp4", with(all, {{"is_scale_swizzled", false}})));
}

TEST(FloatConfigs, Mxfp4) {
  const Config c = *float_layer(gpt_oss("silu"));
  const auto with_bias = with(gpt_oss("silu"), {{"has_bias", true}});
  const json biased = tensors({"w1_scale", "w2_scale", "w1_bias", "w2_bias"});
  for (const char* backend : {"MARLIN", "BATCHED_MARLIN", "TRITON", "TRITON_UNFUSED", "CPU", "AITER_MXFP4_BF16",
                              "FLASHINFER_TRTLLM_MXFP4_BF16", "FLASHINFER_CUTLASS_MXFP4_BF16"})
    expect_built(mxfp4_config, with_bias, backend, call("mxfp4_w4a16", biased));
  expect_built(mxfp4_config, with_bias, "FLASHINFER_CUTLASS_MXFP4_MXFP8", call("mxfp4_mxfp8", biased));
  expect_built(mxfp4_config, with_bias, "AITER_MXFP4_FP8",
               call("mxfp4_w4a8", with(biased, tensors({"a1_scale", "a2_scale"}))));
  for (const char* backend : {"AITER_MXFP4_MXFP4", "XPU", "EMULATION", "CUTLASS"})
    expect_built(mxfp4_config, with_bias, backend, call("ocp_mx", with(biased, {{"quant_dtype", "mxfp4"}})));
  const auto trtllm = mxfp4_config(c, "FLASHINFER_TRTLLM_MXFP4_MXFP8");
  ASSERT_TRUE(trtllm);
  EXPECT_FALSE(trtllm->is_scale_swizzled);
  EXPECT_EQ(trtllm->a1.dtype, QuantType::mxfp8);
  expect_built(
      mxfp4_config, gpt_oss("silu"), "DEEPGEMM_MXFP4",
      call("make", with(tensors({"w1_scale", "w2_scale"}),
                        {{"quant_dtype", "fp8_e4m3fn"}, {"weight_dtype", "mxfp4"}, {"block_shape", {128, 128}}})));
}

TEST(FloatConfigs, W4a8Fp8) {
  expect_built(w4a8_fp8_config, scheme("W4AFP8"), "CUTLASS",
               call("int4_w4afp8", with(tensors({"w1_scale", "w2_scale", "g1_alphas", "g2_alphas"}),
                                        {{"per_act_token_quant", true}, {"per_out_ch_quant", true}})));
}

// In a selection: of the winner, none without one.
TEST(FloatConfigs, InASelection) {
  const auto triton = explain_float(with(gpt_oss(), {{"selection_policy", "vllm"}}), gpu(9));
  ASSERT_TRUE(triton);
  const json shown = json::parse(selection_to_json(*triton));
  EXPECT_EQ(shown.at("backend"), "TRITON");
  EXPECT_EQ(shown.at("quant_config").at("predicates").at("use_mxfp4_w4a16"), true);
  const auto none = explain_float(with(gpt_oss(), {{"moe_backend", "humming"}}), gpu(9));
  ASSERT_TRUE(none);
  EXPECT_EQ(json::parse(selection_to_json(*none)).at("quant_config"), nullptr);
}

}  // namespace
}  // namespace moe::test::float_configs_test
