// The rows of oracle unquantized for a layer's config: libmoe's CPU row with every width it has, vLLM's CPU, and what
// switches and data parallelism make of a GPU's list. The golden questions are in golden_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "oracle/selection.h"
#include "support/rooms.h"
#include "support/vectors.h"

namespace moe::test::rows_unquantized_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

Platform machine(DeviceType type, Arch arch, std::initializer_list<Feature> features) {
  Platform p;
  p.type = type;
  p.arch = arch;
  for (const Feature f : features) p.features.set(static_cast<std::size_t>(f));
  return p;
}
Platform avx512() {
  using enum Feature;
  return machine(DeviceType::cpu, Arch::x86_64, {scalar, avx2, fma, f16c, avx512f, avx512bw, avx512vl, avx512_vnni});
}
Platform avx2() {
  return machine(DeviceType::cpu, Arch::x86_64, {Feature::scalar, Feature::avx2, Feature::fma, Feature::f16c});
}
Platform arm() { return machine(DeviceType::cpu, Arch::aarch64, {Feature::scalar, Feature::neon}); }
Platform gpu(int major) {
  Platform p = machine(DeviceType::cuda, Arch::x86_64, {});
  p.capability = std::array<int, 2>{major, 0};
  p.libs = {{"flashinfer", true}};
  return p;
}

Result<Selection> select(const json& patch, const Platform& p, SelectFlags flags = {}) {
  json doc = {{"num_experts", 8}, {"top_k", 2}, {"hidden_dim", 256}, {"intermediate_size", 128}};
  if (!patch.is_null()) doc.merge_patch(patch);
  Result<Config> c = parse_config(doc.dump());
  EXPECT_TRUE(c) << c.error().message << " in " << doc.dump();
  if (!c) return c.error();
  return select_backend(std::make_shared<const Config>(*std::move(c)), p, flags);
}

// The backend that wins, or would if its layout were built: the first that only the layout keeps back.
std::string answer(const json& patch, const Platform& p) {
  const auto s = select(patch, p, {.explain_only = true});
  EXPECT_TRUE(s);
  if (s->winner) return s->backend_name();
  for (const Candidate& c : s->candidates)
    if (c.reason == Reject::not_built) return c.backend;
  return "none";
}

TEST(Unquantized, CpuRowTakesTheBestKernelOfTheDtype) {
  struct Row {
    Platform platform;
    const char *in_dtype, *kernel, *layout;
  };
  const std::vector<Row> rows = {{avx512(), "bfloat16", "bf16_f32_p16_avx512vnni", "p16/bf16/1"},
                                 {avx512(), "float16", "f16_f32_p16_avx512vnni", "p16/f16/1"},
                                 {avx512(), "float32", "f32_f32_p16_avx512vnni", "p16/f32/1"},
                                 {avx2(), "bfloat16", "bf16_f32_p16_avx2", "p16/bf16/1"},
                                 {avx2(), "float32", "f32_f32_p16_avx2", "p16/f32/1"},
                                 {arm(), "float16", "f16_f32_p16_scalar", "p16/f16/1"}};
  for (const Row& row : rows) {
    const auto s = select({{"in_dtype", row.in_dtype}}, row.platform);
    ASSERT_TRUE(s) << row.kernel << ": " << s.error().message;
    EXPECT_EQ(s->oracle, "unquantized");
    EXPECT_EQ(s->backend_name(), "CPU");
    EXPECT_EQ(s->candidates[*s->winner].kernel, row.kernel);
    EXPECT_EQ(s->candidates[*s->winner].experts, "");
    EXPECT_EQ(s->layout_id, row.layout);
    EXPECT_EQ(s->weight_scheme, "none");
    EXPECT_EQ(s->warning, "");
    for (const Candidate& c : s->candidates) EXPECT_EQ(c.reason == Reject::none, c.detail.empty()) << c.kernel;
  }
}

TEST(Unquantized, CpuRowTakesEveryActivationSizeAndRank) {
  for (const Platform& p : {avx512(), arm()}) {
    for (const std::string_view name : kActivationNames) {
      const auto s = select({{"activation", name}}, p);
      ASSERT_TRUE(s) << name << ": " << s.error().message;
      EXPECT_EQ(s->layout.w13.halves, is_gated(s->config->activation) ? 2 : 1) << name;
    }
    const json limited = {{"activation", "silu"}, {"activation_params", {{"limit", 2.5}}}};
    const json tuned = {{"activation", "swigluoai"},
                        {"activation_params", {{"alpha", 1.0}, {"beta", 0.0}, {"limit", 5.0}}}};
    const json ranked = {{"parallel", {{"tp_size", 3}, {"tp_rank", 1}, {"enable_expert_parallel", true}}}};
    const json copies = {{"parallel",
                          {{"tp_size", 2},
                           {"tp_rank", 1},
                           {"enable_expert_parallel", true},
                           {"enable_eplb", true},
                           {"num_redundant_experts", 2}}}};
    const json sharded = {{"parallel", {{"tp_size", 2}, {"tp_rank", 1}}}};
    for (const json& patch :
         {limited, tuned, ranked, copies, sharded, json{{"hidden_dim", 7}, {"intermediate_size", 1}},
          json{{"has_bias", true}}, json{{"moe_backend", "cpu"}}, json{{"vllm_env", {{"VLLM_BATCH_INVARIANT", "1"}}}},
          json{{"routing", {{"renormalize", false}}}}, json{{"routing", {{"method", "custom"}}}}}) {
      const auto s = select(patch, p);
      EXPECT_TRUE(s) << patch.dump() << ": " << s.error().message;
    }
  }
  const auto s = select(
      {{"has_bias", true}, {"parallel", {{"tp_size", 3}, {"tp_rank", 1}, {"enable_expert_parallel", true}}}}, avx2());
  ASSERT_TRUE(s);
  EXPECT_EQ(s->layout_id, "p16/bf16-bias/1");
  EXPECT_EQ(s->layout.experts, 3);
}

TEST(Unquantized, CpuRowTakesEveryRouting) {
  for (const char* routing :
       {R"({"scoring_func": "sigmoid", "num_expert_group": 4, "topk_group": 2, "e_score_correction_bias": true,
            "routed_scaling_factor": 2.5})",
        R"({"scoring_func": "sigmoid", "renormalize": false})", R"({"scoring_func": "sqrtsoftplus"})",
        R"({"method": "topk"})", R"({"method": "sparsemixer"})", R"({"method": "custom", "routed_scaling_factor": 2})",
        R"({"method": "simulated", "simulation_strategy": "uniform_random"})", R"({"hash_routing": true})",
        R"({"num_fused_shared_experts": 2})", R"({"num_zero_experts": 2, "e_score_correction_bias": true})"}) {
    const auto s = select({{"routing", json::parse(routing)}}, avx2());
    EXPECT_TRUE(s) << routing << ": " << s.error().message;
  }
}

TEST(Unquantized, WordsOfMoeBackend) {
  // libmoe follows the word or says why not; vLLM's CPU does not read it, which a config is told.
  const auto triton = select({{"moe_backend", "triton"}}, avx2());
  ASSERT_FALSE(triton);
  EXPECT_EQ(triton.error().code, Code::no_backend);
  EXPECT_THAT(triton.error().message, HasSubstr("TRITON needs device cuda, rocm, xpu"));
  const auto fallback = select({{"moe_backend", "triton"}}, avx2(), {.allow_fallback = true});
  ASSERT_TRUE(fallback);
  EXPECT_EQ(fallback->warning, "requested_backend_refused");
  const auto marlin = select({{"moe_backend", "marlin"}}, avx2());
  ASSERT_FALSE(marlin);
  EXPECT_EQ(marlin.error().subject, "/moe_backend");
  EXPECT_THAT(marlin.error().message, HasSubstr("auto, aiter, flashinfer_trtllm, flashinfer_cutlass, triton, cpu"));

  for (const char* word : {"triton", "marlin"}) {
    const auto s = select({{"moe_backend", word}, {"selection_policy", "vllm"}}, avx2(), {.explain_only = true});
    ASSERT_TRUE(s);
    EXPECT_EQ(s->warning, "requested_backend_not_read_on_this_platform") << word;
    ASSERT_EQ(s->candidates.size(), 1U);
    EXPECT_EQ(s->candidates[0].backend, "CPU");
  }
  for (const char* word : {"auto", "cpu"})
    EXPECT_EQ(select({{"moe_backend", word}, {"selection_policy", "vllm"}}, avx2(), {.explain_only = true})->warning,
              "");
}

// vLLM takes the CPU unseen; its layout is not built, which is the only thing that keeps the row back.
TEST(Unquantized, VllmAsksItsCpuNothing) {
  const json odd = {
      {"selection_policy", "vllm"},
      {"activation", "relu2_no_mul"},
      {"routing", {{"scoring_func", "sigmoid"}}},
      {"vllm_env", {{"VLLM_BATCH_INVARIANT", "1"}}},
      {"parallel", {{"dp_size", 2}, {"enable_expert_parallel", true}, {"all2all_backend", "deepep_low_latency"}}}};
  for (const Platform& p : {avx512(), arm(), machine(DeviceType::tpu, Arch::x86_64, {})}) {
    const auto s = select(odd, p, {.explain_only = true});
    ASSERT_TRUE(s);
    ASSERT_EQ(s->candidates.size(), 1U);
    EXPECT_EQ(s->candidates[0].backend, p.type == DeviceType::tpu ? "TPU" : "CPU");
    EXPECT_EQ(s->candidates[0].reason, Reject::not_built);
    const bool tpu = p.type == DeviceType::tpu;
    EXPECT_THAT(s->candidates[0].detail, HasSubstr(tpu ? "the packed layout of" : "VLLM_CPU_SGL_KERNEL 1"));
  }
}

TEST(Unquantized, GpuLists) {
  EXPECT_EQ(answer({}, gpu(9)), "FLASHINFER_CUTLASS");
  EXPECT_EQ(answer({{"parallel", {{"dp_size", 2}}}}, gpu(9)), "TRITON");
  EXPECT_EQ(answer({}, gpu(10)), "FLASHINFER_TRTLLM");
  EXPECT_EQ(answer({}, gpu(8)), "TRITON");
  EXPECT_EQ(answer({{"activation", "gelu"}}, gpu(10)), "TRITON");
  EXPECT_EQ(answer({{"activation", "relu2"}}, gpu(9)), "none");
  // Data parallelism moves a backend to the end of the list, and the priorities with it.
  const auto s = select({{"parallel", {{"dp_size", 2}}}}, gpu(9), {.explain_only = true});
  std::vector<std::string> order;
  for (const Candidate& c : s->candidates) order.push_back(c.backend);
  EXPECT_EQ(order, (std::vector<std::string>{"FLASHINFER_TRTLLM", "TRITON", "BATCHED_TRITON", "FLASHINFER_CUTLASS"}));
}

TEST(Unquantized, Switches) {
  const auto with = [](const json& env) { return json{{"vllm_env", env}}; };
  constexpr const char *kFp16 = "VLLM_USE_FLASHINFER_MOE_FP16", *kKind = "VLLM_FLASHINFER_MOE_BACKEND";
  EXPECT_EQ(answer(with({{kFp16, "0"}}), gpu(10)), "TRITON");
  EXPECT_EQ(answer(with({{kFp16, "1"}}), gpu(9)), "FLASHINFER_CUTLASS");
  EXPECT_EQ(answer(with({{kFp16, "1"}, {kKind, "throughput"}}), gpu(10)), "FLASHINFER_CUTLASS");
  EXPECT_EQ(answer(with({{kFp16, "True"}, {kKind, "latency"}}), gpu(10)), "FLASHINFER_TRTLLM");
  EXPECT_EQ(answer(with({{kFp16, "1"}, {kKind, "latency"}}), gpu(9)), "FLASHINFER_CUTLASS");
  EXPECT_EQ(answer(with({{kKind, "masked_gemm"}}), gpu(9)), "FLASHINFER_CUTLASS");  // alone it says nothing
  EXPECT_EQ(answer(with({{"VLLM_ROCM_USE_AITER", "0"}}), gpu(9)), "FLASHINFER_CUTLASS");
  // A word of the config goes before the switches.
  EXPECT_EQ(answer({{"moe_backend", "triton"}, {"vllm_env", {{kFp16, "1"}, {kKind, "masked_gemm"}}}}, gpu(9)),
            "TRITON");

  const auto needed = select(with({{"VLLM_ROCM_USE_AITER", "1"}}), gpu(9));
  ASSERT_FALSE(needed);
  const json why = json::parse("{" + needed.error().details + "}");
  EXPECT_EQ(why["error"], "refused");
  EXPECT_EQ(why["reason"], "device");
  for (const json& c : why["candidates"]) {
    EXPECT_EQ(c["reason"], c["backend"] == "AITER" ? "MOE_REJECT_PLATFORM" : "MOE_REJECT_USER") << c.dump();
    if (c["backend"] != "AITER") {
      EXPECT_EQ(c["subject"], "/vllm_env");
    }
  }
  const auto bad = select(with({{kFp16, "1"}, {kKind, "masked_gemm"}}), gpu(9));
  ASSERT_FALSE(bad);
  const json kind = json::parse("{" + bad.error().details + "}");
  EXPECT_EQ(kind["kind"], "bad_flashinfer_backend");
  EXPECT_GE(kind["candidates"].size(), 2U);
}

}  // namespace
}  // namespace moe::test::rows_unquantized_test
