// Derived values of a QuantConfig that no golden case reaches: profiles on other devices, blocks as wide as the
// matrix, tuning file names; and the builders' table itself. The golden calls run through moe_describe
// (tests/api/describe_quant_test.cpp).
#include "vllm/quant_config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "support/rooms.h"
#include "vllm/quant_config_builders.h"

namespace moe::test::quant_config_test {
namespace {

QuantConfig built(const char* builder, const BuilderArgs& a) {
  const Result<QuantConfig> q = find_quant_builder(builder)->build(a);
  EXPECT_TRUE(q) << builder << ": " << q.error().message;
  return q ? *q : QuantConfig();
}

TEST(QuantConfig, ProfilesDifferInFp8) {
  BuilderArgs a{.profile = Profile::april_2026, .platform_fp8 = QuantType::fp8_e4m3fnuz};
  EXPECT_EQ(built("fp8_w8a8", a).a1.dtype, QuantType::fp8_e4m3fn);
  EXPECT_TRUE(built("fp8_w8a8", a).use_fp8_w8a8());
  a.quant_dtype = QuantType::fp8_e4m3fnuz;
  EXPECT_FALSE(built("make", a).use_fp8_w8a8());  // the seed compares with e4m3fn only
  a.profile = Profile::may_2026;
  EXPECT_TRUE(built("make", a).use_fp8_w8a8());
  EXPECT_EQ(built("fp8_w8a8", a).a1.dtype, QuantType::fp8_e4m3fnuz);
  EXPECT_EQ(built("fp8_w8a16", a).w1.dtype, QuantType::fp8_e4m3fnuz);
  EXPECT_TRUE(built("fp8_w8a16", a).use_fp8_w8a16());
  a.quant_dtype = QuantType::fp8_e4m3fn;
  EXPECT_FALSE(built("make", a).use_fp8_w8a8());
}

TEST(QuantConfig, ScaleShapes) {
  BuilderArgs a{.quant_dtype = QuantType::fp8_e4m3fn, .block_shape = GroupShape{128, 128}};
  using Shape = std::array<std::int64_t, 2>;
  EXPECT_EQ(built("make", a).scale_shape(7, 200), (Shape{7, 2}));
  EXPECT_EQ(built("make", a).batched_scale_shape(5, 7, 256), (std::array<std::int64_t, 3>{5, 7, 2}));
  a.block_shape = GroupShape{128, -1};
  EXPECT_EQ(built("make", a).scale_shape(7, 200), (Shape{7, 1}));
  a.block_shape.reset();
  EXPECT_EQ(built("make", a).scale_shape(7, 200), (Shape{1, 1}));
  a.per_act_token_quant = true;
  EXPECT_EQ(built("make", a).scale_shape(7, 200), (Shape{7, 1}));
  a.quant_dtype = QuantType::none;  // quantized elsewhere: still no scales to allocate
  EXPECT_FALSE(built("make", a).scale_shape(7, 200));
  EXPECT_FALSE(built("make", a).batched_scale_shape(5, 7, 200));
}

TEST(QuantConfig, TuningFileNames) {
  const QuantConfig int4 = built("int4_w4a16", {.block_shape = GroupShape{1, 128}});
  EXPECT_EQ(int4.tuning_suffix(QuantType::bf16), ",dtype=int4_w4a16,block_shape=[1,128].json");
  // vLLM's moe_wna16 path has rows 0: such a block is not in the name.
  BuilderArgs a{.weight_bits = 8, .group_size = 64};
  EXPECT_EQ(built("wna16", a).tuning_suffix(QuantType::bf16), ",dtype=int8_w8a16.json");
  EXPECT_EQ(built("make", {}).tuning_suffix(QuantType::bf16), ".json");
  EXPECT_EQ(built("make", {}).tuning_suffix(QuantType::fp32), ",dtype=float32.json");
  // Neither int8_w8a8 nor a scheme of OCP-MX has a name.
  EXPECT_EQ(built("int8_w8a8", {}).config_name(QuantType::bf16), "");
  EXPECT_EQ(built("mxfp4_w4a16", {}).config_name(QuantType::fp32), "");
}

TEST(QuantConfig, Wna16KeepsRowsOfZero) {
  const QuantConfig q = built("wna16", {.w1_scale = true, .w1_zp = true, .weight_bits = 4, .group_size = -1});
  EXPECT_EQ(q.block_shape(), (GroupShape{0, -1}));
  EXPECT_TRUE(q.use_int4_w4a16());
  EXPECT_TRUE(q.w1.scale && q.w1.zp);
  EXPECT_FALSE(q.w2.scale || q.w2.zp);
  const Result<QuantConfig> odd = find_quant_builder("wna16")->build({.weight_bits = 2, .group_size = 32});
  ASSERT_FALSE(odd);
  EXPECT_EQ(odd.error().code, Code::invalid_config);
  EXPECT_NE(odd.error().message.find("2 bits"), std::string::npos);
}

TEST(QuantConfig, OnlyA1AndW1Count) {
  QuantConfig q = built("make", {});
  q.a2 = {.dtype = QuantType::int8, .shape = kPerToken, .scale = true};
  q.w2.dtype = QuantType::mxfp4;
  EXPECT_FALSE(q.is_quantized() || q.use_int8_w8a8() || q.use_mxfp4_w4a16() || q.per_act_token_quant());
  EXPECT_EQ(q.ocp_mx_scheme(), "");
  EXPECT_TRUE(q.is_scale_swizzled);  // as vLLM's class takes for granted
}

// Weights and activations are both asked.
TEST(QuantConfig, Mxfp4OfBothSides) {
  const auto q = [](QuantType a1, QuantType w1) {
    QuantConfig made;
    made.a1.dtype = a1, made.w1.dtype = w1;
    return made;
  };
  using enum QuantType;
  EXPECT_TRUE(q(mxfp4, mxfp4).use_mxfp4_w4a4());
  EXPECT_FALSE(q(mxfp4, nvfp4).use_mxfp4_w4a4() || q(none, mxfp4).use_mxfp4_w4a4());
  EXPECT_TRUE(q(fp8, mxfp4).use_mxfp4_w4a8());
  EXPECT_FALSE(q(fp8, nvfp4).use_mxfp4_w4a8() || q(none, mxfp4).use_mxfp4_w4a8());
}

TEST(QuantConfig, TableOfBuilders) {
  std::set<std::string_view> names;
  for (const QuantBuilder& b : quant_builders()) {
    EXPECT_TRUE(names.insert(b.name).second) << b.name;
    EXPECT_EQ(find_quant_builder(b.name), &b);
    EXPECT_LE(b.required, b.positional.size());
    std::set<std::string_view> arguments(b.positional.begin(), b.positional.end());
    arguments.insert(b.by_name.begin(), b.by_name.end());
    EXPECT_EQ(arguments.size(), b.positional.size() + b.by_name.size()) << b.name;
  }
  EXPECT_EQ(names.size(), 19U);
  EXPECT_EQ(find_quant_builder("Make"), nullptr);
}

}  // namespace
}  // namespace moe::test::quant_config_test
