// The rows of oracle w4a8_int8 on Arm: each kernel's reason, KleidiAI's layouts, and vLLM's answer with what PyTorch
// packs. What the rows take otherwise is in select_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "oracle/selection.h"
#include "support/rooms.h"

namespace moe::test::rows_w4a8_int8_test {
namespace {

using testing::HasSubstr;

Platform arm() {
  Platform p;
  p.type = DeviceType::cpu;
  p.arch = Arch::aarch64;
  for (const Feature f : {Feature::scalar, Feature::neon, Feature::dotprod})
    p.features.set(static_cast<std::size_t>(f));
  p.libs = {{"torch_dyn_quant_4bit", true}};
  return p;
}
Platform arm_with(Feature f, bool on) {
  Platform p = arm();
  p.features.set(static_cast<std::size_t>(f), on);
  return p;
}

Result<Selection> select(const std::string& patch, const Platform& p) {
  nlohmann::json doc = {{"num_experts", 8},
                        {"top_k", 2},
                        {"hidden_dim", 256},
                        {"intermediate_size", 128},
                        {"quantization", {{"scheme", "W4A8"}, {"group_size", 32}}}};
  doc.merge_patch(nlohmann::json::parse(patch));
  Result<Config> c = parse_config(doc.dump());
  EXPECT_TRUE(c) << c.error().message;
  return select_backend(std::make_shared<const Config>(*std::move(c)), p, {});
}

const Candidate& row_named(const Selection& s, std::string_view kernel) {
  static const Candidate none;
  for (const Candidate& c : s.candidates)
    if (c.kernel == kernel) return c;
  ADD_FAILURE() << "no candidate " << kernel;
  return none;
}

struct Row {
  const char *patch, *layout;
};

TEST(W4a8Int8, ExplainsEachKernelOfAnArmCpu) {
  const auto s = select("{}", arm());
  ASSERT_TRUE(s);
  EXPECT_EQ(row_named(*s, "w4a8_tok8_kai_i8mm").reason, Reject::isa);
  EXPECT_EQ(row_named(*s, "w4a8_tok8_kai_i8mm").subject, "i8mm");
  EXPECT_EQ(row_named(*s, "w4a8_tok8_kai_dotprod").reason, Reject::none);
  EXPECT_TRUE(row_named(*s, "w4a8_tok8_kai_dotprod").chosen);
  EXPECT_EQ(row_named(*s, "w4a8_tok8_kai_scalar").reason, Reject::none);

  const auto t = select("{}", arm_with(Feature::dotprod, false));
  ASSERT_TRUE(t);
  EXPECT_EQ(row_named(*t, "w4a8_tok8_kai_i8mm").reason, Reject::isa);
  EXPECT_EQ(row_named(*t, "w4a8_tok8_kai_dotprod").reason, Reject::isa);
  EXPECT_EQ(row_named(*t, "w4a8_tok8_kai_dotprod").subject, "dotprod");
  EXPECT_THAT(row_named(*t, "w4a8_tok8_kai_dotprod").detail, HasSubstr("needs dotprod; the platform has neon"));
  EXPECT_TRUE(row_named(*t, "w4a8_tok8_kai_scalar").chosen);
}

// A group as wide as a matrix is channel-wise there.
TEST(W4a8Int8, KleidiaiLayouts) {
  const Row rows[] = {
      {R"({})", "kai/qsi4c32p-g32/1"},
      {R"({"has_bias": true})", "kai/qsi4c32p-g32-bias/1"},
      {R"({"quantization": {"group_size": -1}})", "kai/qsi4cxp/1"},
      {R"({"quantization": {"group_size": 128}})", "kai/qsi4c32p-g128,qsi4cxp/1"},
      {R"({"quantization": {"group_size": 96}, "hidden_dim": 192, "intermediate_size": 288})", "kai/qsi4c32p-g96/1"},
  };
  for (const Row& row : rows) {
    const auto s = select(row.patch, arm());
    ASSERT_TRUE(s) << s.error().message;
    EXPECT_EQ(s->layout_id, row.layout);
  }
  const auto s = select(R"({"selection_policy": "vllm", "quantization": {"group_size": 128}})", arm());
  ASSERT_TRUE(s) << s.error().message;
  EXPECT_EQ(s->layout_id, "kai/qsi4c32p-g128,qsi4cxp/1");
  EXPECT_EQ(s->candidates[*s->winner].kernel, "w4a8_tok8_kai_dotprod");
}

// Policy vllm: PyTorch packs a generic blob where KleidiAI can't run, and without its operators nothing can; our own
// policy never asks for them.
TEST(W4a8Int8, VllmOnArm) {
  const char* vllm = R"({"selection_policy": "vllm"})";
  const auto blob = select(vllm, arm_with(Feature::dotprod, false));
  ASSERT_TRUE(blob) << blob.error().message;
  EXPECT_EQ(blob->layout_id, "torch/dyn_quant_4bit-g32/1");
  EXPECT_EQ(blob->candidates[*blob->winner].kernel, "CPUExpertsInt4");

  for (const bool dotprod : {true, false}) {
    Platform p = arm_with(Feature::dotprod, dotprod);
    p.libs.clear();
    const auto none = select(vllm, p);
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().code, Code::no_backend);
    EXPECT_THAT(none.error().details, HasSubstr("torch_dyn_quant_4bit"));
    EXPECT_THAT(none.error().details, HasSubstr("/platform/libs"));
    EXPECT_TRUE(select("{}", p));
  }
}

}  // namespace
}  // namespace moe::test::rows_w4a8_int8_test
