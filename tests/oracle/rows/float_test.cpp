// The rows of oracles fp8, mxfp8, nvfp4, mxfp4 and w4a8_fp8 for a layer's config: which oracle with which keys,
// libmoe's CPU row with every width it has, and what vLLM does beside its oracles. The golden questions are in
// golden_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "oracle/float_world.h"
#include "oracle/query.h"
#include "support/rooms.h"

namespace moe::test::rows_float_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::vector<std::pair<json, const char*>>& float_layers() {
  static const std::vector<std::pair<json, const char*>> layers = {
      {scheme("FP8"), "fp8"},        {scheme("FP8_DYNAMIC"), "fp8"}, {scheme("FP8_BLOCK"), "fp8"},
      {blocks(64, 32), "fp8"},       {scheme("MXFP8"), "mxfp8"},     {scheme("MXFP8A16"), "mxfp8"},
      {scheme("NVFP4"), "nvfp4"},    {scheme("NVFP4A16"), "nvfp4"},  {scheme("MXFP4"), "mxfp4"},
      {scheme("MXFP4A16"), "mxfp4"}, {gpt_oss("silu"), "mxfp4"},     {scheme("W4AFP8"), "w4a8_fp8"}};
  return layers;
}

// One row, which is taken.
void expect_our_row(const json& patch, const Platform& p) {
  SCOPED_TRACE(patch.dump());
  const auto s = explain_float(patch, p);
  ASSERT_TRUE(s);
  for (const Candidate& c : s->candidates) EXPECT_EQ(c.backend, "CPU");
  EXPECT_TRUE(s->winner) << s->candidates[0].detail;
}

TEST(FloatRows, OurCpuRowTakesEveryLayer) {
  for (const Platform& p : {avx512(), plain_x86(), arm()})
    for (const auto& [layer, oracle] : float_layers()) {
      EXPECT_EQ(explain_float(layer, p)->oracle, oracle) << layer.dump();
      expect_our_row(layer, p);
    }
  for (const auto& [layer, oracle] : float_layers()) {
    for (const std::string_view name : kActivationNames) expect_our_row(with(layer, {{"activation", name}}), avx2());
    for (const json& patch :
         {json{{"has_bias", true}}, json{{"moe_backend", "cpu"}}, json{{"vllm_env", {{"VLLM_BATCH_INVARIANT", "1"}}}},
          json{{"vllm_env", {{"VLLM_USE_FLASHINFER_MOE_FP8", "1"}, {"VLLM_MXFP4_USE_MARLIN", "1"}}}},
          json{{"parallel", {{"tp_size", 2}, {"tp_rank", 1}, {"enable_expert_parallel", true}}}},
          json{{"routing", {{"scoring_func", "sigmoid"}, {"num_expert_group", 4}, {"topk_group", 2}}}},
          json{{"routing", {{"method", "custom"}, {"routed_scaling_factor", 2}}}}, json{{"in_dtype", "float16"}},
          json{{"in_dtype", "float32"}}})
      expect_our_row(with(layer, patch), avx2());
  }
}

TEST(FloatRows, OurCpuRowSaysWhatItDoesNotTake) {
  const auto columns = explain_float(blocks(128, 48), avx512());
  ASSERT_TRUE(columns);
  EXPECT_EQ(columns->candidates[0].reason, Reject::group_size);
  EXPECT_EQ(columns->candidates[0].subject, "/quantization/weights/block_structure");
  expect_our_row(with(blocks(2, 96), {{"hidden_dim", 100}}), avx512());  // H needs no whole blocks
  const auto batched = explain_float(
      with(scheme("FP8"),
           {{"parallel", {{"dp_size", 2}, {"enable_expert_parallel", true}, {"all2all_backend", "nixl_ep"}}}}),
      avx512());
  ASSERT_TRUE(batched);
  EXPECT_EQ(batched->candidates[0].reason, Reject::activation_format);
  const auto named = select_backend(float_layer(with(scheme("FP8"), {{"moe_backend", "marlin"}})), avx512(), {});
  ASSERT_FALSE(named);
  EXPECT_EQ(named.error().code, Code::no_backend);
  EXPECT_THAT(named.error().message, HasSubstr("MARLIN needs device cuda"));
}

// 4-bit floats run as integers do: 16 bits of 16-bit inputs, int8 on demand, float32 else.
TEST(FloatRows, ActivationsOfFourBitFloats) {
  const auto kernel_of = [](const json& layer) {
    const auto s = explain_float(layer, avx512());
    EXPECT_TRUE(s && s->winner) << layer.dump();
    return s && s->winner ? std::string(s->candidates[static_cast<std::size_t>(*s->winner)].kernel) : "";
  };
  for (const char* name : {"MXFP4", "MXFP4A16", "NVFP4", "NVFP4A16"}) {
    const std::string begin = name[0] == 'M' ? "mxfp4_" : "nvfp4_";
    for (const char* dtype : {"bfloat16", "float16"})
      EXPECT_THAT(kernel_of(with(scheme(name), {{"in_dtype", dtype}})), testing::StartsWith(begin + "blk16_"));
    EXPECT_THAT(kernel_of(with(scheme(name), {{"in_dtype", "float32"}})), testing::StartsWith(begin + "f32_"));
    EXPECT_THAT(kernel_of(with(scheme(name), {{"compute", "a16"}})), testing::StartsWith(begin + "f32_"));
    for (const char* dtype : {"bfloat16", "float32"})
      EXPECT_THAT(kernel_of(with(scheme(name), {{"compute", "a8"}, {"in_dtype", dtype}})),
                  testing::StartsWith(begin + "blk8_"));
  }
  EXPECT_THAT(kernel_of(gpt_oss()), testing::StartsWith("mxfp4_blk16_"));
}

// GPUs have one answer under both policies. vLLM's own CPU rows are the narrow ones.
TEST(FloatRows, PoliciesDifferOnCpusAlone) {
  const std::vector<Platform> gpus = {
      gpu(8), gpu(8, 9), gpu(9), gpu(10), gpu(12), rocm("gfx950"), other(DeviceType::xpu)};
  for (const Platform& p : gpus)
    for (const auto& [layer, oracle] : float_layers()) {
      const auto ours = explain_float(layer, p);
      const auto theirs = explain_float(with(layer, {{"selection_policy", "vllm"}}), p);
      ASSERT_TRUE(ours && theirs);
      const auto others = [](const Selection& s) {  // our CPU row has a candidate for each kernel
        std::vector<Candidate> list;
        for (const Candidate& c : s.candidates)
          if (c.backend != "CPU") list.push_back(c);
        return list;
      };
      const std::vector<Candidate> of_ours = others(*ours), of_theirs = others(*theirs);
      ASSERT_EQ(of_ours.size(), of_theirs.size()) << layer.dump();
      for (std::size_t i = 0; i < of_ours.size(); ++i) {
        const Candidate &a = of_ours[i], &b = of_theirs[i];
        EXPECT_EQ(a.experts, b.experts);
        EXPECT_EQ(a.priority, b.priority);
        if (b.reason != Reject::none) {
          EXPECT_EQ(a.detail, b.detail);
          EXPECT_EQ(a.reason, b.reason);
        }
      }
      expect_sound(ours->candidates);
    }
  const json vllm = {{"selection_policy", "vllm"}};
  EXPECT_EQ(answer_of(with(scheme("FP8_BLOCK"), vllm), avx512()), "CPU");
  const json sigmoid = {{"routing", {{"scoring_func", "sigmoid"}, {"num_expert_group", 4}, {"topk_group", 2}}}};
  for (const json& layer : {with(with(scheme("FP8_BLOCK"), vllm), sigmoid), with(scheme("FP8"), vllm),
                            with(scheme("NVFP4"), vllm), with(scheme("MXFP8"), vllm), with(scheme("W4AFP8"), vllm)}) {
    EXPECT_EQ(answer_of(layer, avx512()), "none") << layer.dump();
    EXPECT_EQ(candidate(*explain_float(layer, avx512()), "NONE"), nullptr);
    EXPECT_EQ(select_backend(float_layer(layer), avx512(), {}).error().code, Code::no_backend);
  }
  EXPECT_EQ(answer_of(with(gpt_oss(), vllm), avx512()), "CPU");
}

// --- keys ---------------------------------------------------------------------------------------------------

Query asked(const json& patch) {
  static std::vector<std::shared_ptr<const Config>> kept;  // the query points at its config
  kept.push_back(float_layer(patch));
  return query_of(*kept.back(), gpu(9));
}

json weights(const char* strategy) { return {{"num_bits", 8}, {"type", "float"}, {"strategy", strategy}}; }
json inputs(const char* strategy, bool dynamic) { return with(weights(strategy), {{"dynamic", dynamic}}); }
json quantization(const json& w, const json& a) {
  return {{"quantization", {{"weights", w}, {"input_activations", a}}}};
}
json hf(const json& object) { return {{"hf_quantization_config", object}, {"name", "model.layers.0.mlp.experts"}}; }

TEST(FloatRows, KeysOfAConfig) {
  struct Row {
    json layer;
    const char *weight, *activation;
    bool cutlass = true;
  };
  const json deepseek = {{"quant_method", "fp8"}, {"activation_scheme", "dynamic"}};
  const Row rows[] = {
      {scheme("FP8"), "kFp8StaticTensorSym", "kFp8StaticTensorSym"},
      {scheme("FP8_DYNAMIC"), "kFp8StaticChannelSym", "kFp8DynamicTokenSym"},
      {scheme("FP8_BLOCK"), "kFp8Static128BlockSym", "kFp8Dynamic128Sym"},
      {quantization(weights("tensor"), inputs("token", true)), "kFp8StaticTensorSym", "kFp8DynamicTokenSym"},
      {quantization(weights("tensor"), nullptr), "kFp8StaticTensorSym", ""},
      // vLLM's slip, where a file of compressed-tensors says dynamic and per tensor
      {quantization(weights("tensor"), inputs("tensor", true)), "kFp8StaticTensorSym", "kFp8Dynamic128Sym"},
      {hf(deepseek), "kFp8StaticTensorSym", "kFp8DynamicTensorSym", false},
      {hf(with(deepseek, {{"weight_block_size", {128, 128}}})), "kFp8Static128BlockSym", "kFp8Dynamic128Sym", false},
      {hf({{"quant_method", "modelopt"}, {"quant_algo", "FP8"}}), "kFp8StaticTensorSym", "kFp8StaticTensorSym", false},
      {scheme("MXFP8"), "kMxfp8Static", "kMxfp8Dynamic", false},
      {scheme("MXFP8A16"), "kMxfp8Static", "", false},
      {scheme("NVFP4"), "kNvfp4Static", "kNvfp4Dynamic", false},
      {scheme("NVFP4A16"), "kNvfp4Static", "", false},
      {scheme("MXFP4"), "kMxfp4Static", "", false},
      {gpt_oss(), "kMxfp4Static", "", false},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.layer.dump());
    const Query q = asked(row.layer);
    EXPECT_EQ(key_text(q.weight_key), row.weight);
    EXPECT_EQ(key_text(q.activation_key), *row.activation == '\0' ? "none" : row.activation);
    EXPECT_EQ(q.allow_vllm_cutlass, row.cutlass);
  }
  // Blocks of other sizes have keys of their own, which vLLM's rows do not take.
  const Query odd = asked(blocks(64, 32));
  EXPECT_EQ(odd.weight_key, key_rows::fixed(KeyType::fp8, KeyType::fp32, {64, 32}));
  EXPECT_EQ(answer_of(blocks(64, 32), gpu(9)), "none");
}

// --- what vLLM does with files -------------------------------------------------------------------------------

TEST(FloatRows, AnswersForFiles) {
  const json deepseek =
      hf({{"quant_method", "fp8"}, {"activation_scheme", "dynamic"}, {"weight_block_size", {128, 128}}});
  const json per_tensor = hf({{"quant_method", "fp8"}, {"activation_scheme", "static"}});
  const json expert_parallel = {{"parallel", {{"tp_size", 2}, {"enable_expert_parallel", true}}}};
  EXPECT_EQ(answer_of(deepseek, gpu(9)), "TRITON");
  EXPECT_EQ(answer_of(with(deepseek, expert_parallel), gpu(9)), "FLASHINFER_CUTLASS");
  EXPECT_EQ(answer_of(deepseek, gpu(10)), "FLASHINFER_TRTLLM");
  EXPECT_EQ(answer_of(deepseek, gpu(8)), "MARLIN");
  EXPECT_EQ(answer_of(scheme("FP8_DYNAMIC"), gpu(9)), "VLLM_CUTLASS");
  EXPECT_EQ(answer_of(hf({{"quant_method", "modelopt"}, {"quant_algo", "FP8_PER_CHANNEL_PER_TOKEN"}}), gpu(9)),
            "TRITON");
  EXPECT_EQ(answer_of(scheme("NVFP4"), gpu(9)), "MARLIN");
  EXPECT_EQ(answer_of(scheme("NVFP4"), gpu(12)), "B12X");
  EXPECT_EQ(answer_of(scheme("MXFP8"), gpu(12)), "MARLIN");
  // Its weights have one key, so Marlin takes them weight-only.
  EXPECT_EQ(answer_of(quantization(weights("tensor"), inputs("tensor", true)), gpu(9)), "MARLIN");

  // The word of vLLM's own CUTLASS kernels is for compressed-tensors.
  const json cutlass = {{"moe_backend", "cutlass"}};
  EXPECT_EQ(answer_of(with(scheme("FP8"), cutlass), gpu(9)), "VLLM_CUTLASS");
  const auto refused = select_backend(float_layer(with(per_tensor, cutlass)), gpu(9), {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::no_backend);
  EXPECT_THAT(refused.error().message, HasSubstr("compressed-tensors alone"));
  EXPECT_THAT(refused.error().details, HasSubstr("\"kind\":\"disabled\""));
  const auto fallback =
      select_backend(float_layer(with(per_tensor, cutlass)), gpu(9), {.explain_only = true, .allow_fallback = true});
  ASSERT_TRUE(fallback);
  EXPECT_EQ(fallback->warning, "requested_backend_refused");
  EXPECT_EQ(candidate(*fallback, "FLASHINFER_CUTLASS")->reason, Reject::none);
  EXPECT_EQ(candidate(*fallback, "VLLM_CUTLASS"), nullptr);

  // A switch that nothing can serve names itself.
  const auto kind = select_backend(
      float_layer(
          with(scheme("FP8"),
               {{"vllm_env", {{"VLLM_USE_FLASHINFER_MOE_FP8", "1"}, {"VLLM_FLASHINFER_MOE_BACKEND", "masked_gemm"}}}})),
      gpu(10), {});
  ASSERT_FALSE(kind);
  EXPECT_THAT(kind.error().details, HasSubstr("\"kind\":\"bad_flashinfer_backend\""));
}

TEST(FloatRows, ToolkitOfCutlass) {
  Platform old = gpu(10);
  old.cuda_version = 12060;
  const auto s = explain_float(scheme("FP8_DYNAMIC"), old);
  ASSERT_TRUE(s);
  const Candidate* c = candidate(*s, "VLLM_CUTLASS");
  EXPECT_EQ(c->reason, Reject::platform);
  EXPECT_EQ(c->subject, "/platform/cuda_version");
  EXPECT_THAT(c->detail, HasSubstr("CUDA 12.8 for compute capability 10.0 or later"));
  EXPECT_THAT(c->detail, HasSubstr("cuda_version is 12060"));
  EXPECT_EQ(candidate(*explain_float(scheme("FP8_DYNAMIC"), gpu(10)), "VLLM_CUTLASS")->reason, Reject::none);
}

TEST(FloatRows, SchemesNameTheMachineOrTheKey) {
  const auto old = explain_float(scheme("FP8"), gpu(8));
  ASSERT_TRUE(old);
  EXPECT_EQ(candidate(*old, "TRITON")->reason, Reject::quant_scheme);
  EXPECT_EQ(candidate(*old, "TRITON")->subject, "/platform");
  const auto a16 = explain_float(scheme("NVFP4A16"), gpu(10));
  ASSERT_TRUE(a16);
  EXPECT_EQ(candidate(*a16, "VLLM_CUTLASS")->reason, Reject::quant_scheme);
  EXPECT_EQ(candidate(*a16, "VLLM_CUTLASS")->subject, "/quantization/input_activations");
  const auto odd = explain_float(blocks(64, 32), gpu(10));
  ASSERT_TRUE(odd);
  EXPECT_EQ(candidate(*odd, "DEEPGEMM")->subject, "/quantization/weights");
  EXPECT_EQ(candidate(*odd, "MARLIN")->subject, "/quantization/weights");
}

// vLLM asks no oracle about MXFP4 files of compressed-tensors, and does not read moe_backend for them.
TEST(FloatRows, Mxfp4OfCompressedTensors) {
  for (const Platform& p : {gpu(8), gpu(9), gpu(12)}) EXPECT_EQ(answer_of(scheme("MXFP4"), p), "MARLIN");
  EXPECT_EQ(answer_of(scheme("MXFP4A16"), gpu(10)), "MARLIN");
  EXPECT_EQ(answer_of(scheme("MXFP4"), gpu(10)), "CUTLASS");
  const auto s = explain_float(scheme("MXFP4"), gpu(10));
  ASSERT_TRUE(s);
  ASSERT_EQ(s->candidates.size(), 1U);
  EXPECT_EQ(s->candidates[0].experts, "CutlassExpertsMxfp4");
  EXPECT_EQ(s->candidates[0].reason, Reject::not_built);
  const json low_latency = {
      {"parallel", {{"dp_size", 2}, {"enable_expert_parallel", true}, {"all2all_backend", "deepep_low_latency"}}}};
  EXPECT_EQ(answer_of(with(scheme("MXFP4A16"), low_latency), gpu(10)), "BATCHED_MARLIN");
  const auto named = explain_float(with(scheme("MXFP4"), {{"moe_backend", "triton"}}), gpu(9));
  ASSERT_TRUE(named);
  EXPECT_EQ(named->warning, "requested_backend_not_read_on_this_platform");
  EXPECT_EQ(named->candidates[0].backend, "MARLIN");
  EXPECT_EQ(explain_float(with(scheme("MXFP4"), {{"moe_backend", "marlin"}}), gpu(9))->warning, "");
  const auto cpu = explain_float(with(scheme("MXFP4"), {{"selection_policy", "vllm"}}), avx512());
  ASSERT_TRUE(cpu);
  ASSERT_EQ(cpu->candidates.size(), 1U);
  EXPECT_EQ(cpu->candidates[0].backend, "MARLIN");
  EXPECT_EQ(cpu->candidates[0].reason, Reject::platform);
}

// Layouts that are not public as bytes: vLLM's answer under its policy, refused under ours.
TEST(FloatRows, LayoutsOfOtherLibraries) {
  struct Row {
    json layer;
    Platform platform;
    const char* backend;
  };
  const json aiter = {{"vllm_env", {{"VLLM_ROCM_USE_AITER", "1"}}}};
  const Row rows[] = {{gpt_oss(), gpu(9), "TRITON"},
                      {with(gpt_oss(), {{"moe_backend", "triton_unfused"}}), gpu(9), "TRITON_UNFUSED"},
                      {with(gpt_oss(), {{"moe_backend", "humming"}}), gpu(9), "HUMMING"},
                      {with(gpt_oss(), {{"moe_backend", "humming"}}), avx512(), "HUMMING"}};
  for (const Row& row : rows) {
    SCOPED_TRACE(row.backend);
    const auto theirs = explain_float(with(row.layer, {{"selection_policy", "vllm"}}), row.platform);
    ASSERT_TRUE(theirs);
    EXPECT_EQ(theirs->backend_name(), row.backend);
    EXPECT_EQ(theirs->layout.kind, LayoutKind::foreign);
    if (row.platform.type == DeviceType::cpu) continue;
    const auto ours = explain_float(row.layer, row.platform);
    ASSERT_TRUE(ours);
    EXPECT_EQ(ours->winner.has_value(), !row.layer.contains("moe_backend"));  // else the next one takes it
    if (ours->winner) {
      EXPECT_EQ(ours->backend_name(), "FLASHINFER_CUTLASS_MXFP4_BF16");
    }
    bool waits = false;
    for (const Candidate& c : ours->candidates)
      waits = waits || (c.backend == row.backend && c.reason == Reject::not_built);
    EXPECT_TRUE(waits);
  }
  const auto static_fp8 = explain_float(with(gpt_oss(), aiter), rocm("gfx950"));
  ASSERT_TRUE(static_fp8);
  EXPECT_EQ(candidate(*static_fp8, "AITER_MXFP4_FP8"), nullptr);  // its files are Quark's, which are not read
}

TEST(FloatRows, HummingHasAClassForEachSwitch) {
  const auto chosen = [](const char* word) {
    json layer = with(gpt_oss(), {{"moe_backend", "humming"}, {"selection_policy", "vllm"}});
    if (*word != '\0') layer["vllm_env"] = {{"VLLM_HUMMING_MOE_GEMM_TYPE", word}};
    const auto s = explain_float(layer, gpu(9));
    return s && s->winner ? s->candidates[*s->winner].experts : std::string();
  };
  EXPECT_EQ(chosen(""), "HummingIndexedExperts");
  EXPECT_EQ(chosen("indexed"), "HummingIndexedExperts");
  EXPECT_EQ(chosen("Grouped"), "HummingGroupedExperts");
  EXPECT_EQ(chosen("grouped_contiguous"), "HummingGroupedExperts");
  EXPECT_EQ(chosen("masked"), "HummingIndexedExperts");
  const auto s = explain_float(with(gpt_oss(), {{"moe_backend", "humming"}, {"selection_policy", "vllm"}}), gpu(9));
  EXPECT_EQ(candidate(*s, "HummingGroupedExperts")->reason, Reject::user);
  EXPECT_EQ(candidate(*s, "HummingGroupedExperts")->subject, "/vllm_env");
}

TEST(FloatRows, W4a8Fp8) {
  EXPECT_EQ(answer_of(scheme("W4AFP8"), gpu(9)), "CUTLASS");
  EXPECT_EQ(answer_of(with(scheme("W4AFP8"), {{"quantization", {{"format", "int-quantized"}}}}), gpu(9)), "CUTLASS");
  struct Row {
    json patch;
    Platform platform;
    Reject reason;
    const char* subject;
  };
  const json ordered = {
      {"quantization",
       {{"weights",
         {{"num_bits", 4}, {"type", "int"}, {"strategy", "group"}, {"group_size", 128}, {"actorder", "group"}}},
        {"input_activations", inputs("token", true)}}}};
  const json eplb = {{"parallel", {{"tp_size", 2}, {"enable_expert_parallel", true}, {"enable_eplb", true}}}};
  const Row rows[] = {
      {scheme("W4AFP8"), gpu(8, 9), Reject::platform, "/platform/capability"},
      {scheme("W4AFP8"), gpu(10), Reject::platform, "/platform/capability"},
      {with(scheme("W4AFP8"), eplb), gpu(9), Reject::parallel, "/parallel/enable_eplb"},
      {with(scheme("W4AFP8"),
            {{"parallel", {{"dp_size", 2}, {"enable_expert_parallel", true}, {"all2all_backend", "nixl_ep"}}}}),
       gpu(9), Reject::activation_format, "/parallel/all2all_backend"},
      {with(scheme("W4AFP8"), {{"quantization", {{"group_size", 64}}}}), gpu(9), Reject::group_size,
       "/quantization/weights/group_size"},
      {with(scheme("W4AFP8"), {{"quantization", {{"group_size", -1}}}}), gpu(9), Reject::group_size,
       "/quantization/weights/group_size"},
      {with(scheme("W4AFP8"), {{"hidden_dim", 384}}), gpu(9), Reject::alignment, "/hidden_dim"},
      {with(scheme("W4AFP8"), {{"intermediate_size", 384}}), gpu(9), Reject::alignment,
       "/intermediate_size_per_partition"},
      {ordered, gpu(9), Reject::act_order, "/quantization/weights/actorder"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.patch.dump());
    const auto s = explain_float(row.patch, row.platform);
    ASSERT_TRUE(s);
    EXPECT_EQ(s->oracle, "w4a8_fp8");
    const Candidate* c = candidate(*s, "CutlassExpertsW4A8Fp8");
    ASSERT_NE(c, nullptr);
    EXPECT_EQ(c->reason, row.reason) << c->detail;
    EXPECT_EQ(c->subject, row.subject);
  }
  // Asymmetric ones are nobody's.
  json asymmetric = ordered;
  asymmetric["quantization"]["weights"].erase("actorder");
  asymmetric["quantization"]["weights"]["symmetric"] = false;
  EXPECT_EQ(explain_float(asymmetric, gpu(9))->oracle, "none");
}

}  // namespace
}  // namespace moe::test::rows_float_test
