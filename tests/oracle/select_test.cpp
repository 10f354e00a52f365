// moe_select_backend: the libmoe table of W4A8-int8 with each reason once, priorities, requests by name,
// fallback, explain_only; policy vllm.
#include "oracle/select.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>

#include "oracle/select_world.h"
#include "oracle/selection.h"
#include "support/rooms.h"

namespace moe::test::select_test {
namespace {

std::size_t kernels_of(LayoutKind layout, ActFormat act = ActFormat::tok8) {
  return static_cast<std::size_t>(std::count_if(kKernelIds.begin(), kKernelIds.end(),
                                                [&](const KernelId& k) { return k.layout == layout && k.act == act; }));
}

using testing::HasSubstr;

// --- the kernels ------------------------------------------------------------------------------------------

struct MachineRow {
  const char* name;
  Platform platform;
  const char* kernel;
};

struct Accepted {
  const char *patch, *layout, *weights;
};

TEST(Select, TakesTheBestKernelOfTheMachine) {
  const MachineRow rows[] = {{"avx512", avx512(), "w4a8_tok8_p16_avx512vnni"},
                             {"avx2", avx2(), "w4a8_tok8_p16_avx2"},
                             {"plain x86", plain_x86(), "w4a8_tok8_p16_scalar"},
                             {"arm", arm(), "w4a8_tok8_kai_dotprod"},
                             {"arm i8mm", arm_with(Feature::i8mm, true), "w4a8_tok8_kai_i8mm"},
                             {"old arm", arm_with(Feature::dotprod, false), "w4a8_tok8_kai_scalar"}};
  for (const MachineRow& row : rows) {
    SCOPED_TRACE(row.name);
    const auto s = select("{}", row.platform);
    ASSERT_TRUE(s) << s.error().message;
    EXPECT_EQ(s->backend_name(), "CPU_INT4");
    ASSERT_TRUE(s->winner && s->kernel);
    EXPECT_EQ(s->candidates[*s->winner].kernel, row.kernel);
    EXPECT_EQ(s->candidates[*s->winner].experts, "CPUExpertsInt4");
    EXPECT_EQ(kKernelIds[*s->kernel].name, row.kernel);
    const bool on_arm = row.platform.arch == Arch::aarch64;
    EXPECT_EQ(s->layout_id, on_arm ? "kai/qsi4c32p-g32/1" : "p16/int4-g32/1");
    EXPECT_EQ(s->weight_scheme, "int4_g32_sym");
    EXPECT_EQ(s->activation_scheme, "int8_token_dynamic");
    EXPECT_EQ(s->oracle, "w4a8_int8");
    EXPECT_EQ(s->warning, "");
    EXPECT_EQ(s->candidates.size(), kernels_of(on_arm ? LayoutKind::kai : LayoutKind::p16_int4));
    expect_sound(s->candidates);
  }
}

const Candidate& row_named(const Selection& s, std::string_view kernel) {
  static const Candidate none;
  for (const Candidate& c : s.candidates)
    if (c.kernel == kernel) return c;
  ADD_FAILURE() << "no candidate " << kernel;
  return none;
}

TEST(Select, NamesTheMissingInstructionSet) {
  const auto s = select("{}", avx2());
  ASSERT_TRUE(s);
  const Candidate& c = row_named(*s, "w4a8_tok8_p16_avx512vnni");
  EXPECT_EQ(c.reason, Reject::isa);
  EXPECT_EQ(c.subject, "avx512_vnni");
  EXPECT_THAT(c.detail, HasSubstr("needs avx512f, avx512bw, avx512vl, avx512_vnni; the platform has avx2, fma, f16c"));

  Platform no_vnni = avx512();
  no_vnni.features.reset(static_cast<std::size_t>(Feature::avx512_vnni));
  const auto t = select("{}", no_vnni);
  ASSERT_TRUE(t);
  EXPECT_THAT(row_named(*t, "w4a8_tok8_p16_avx512vnni").detail, HasSubstr("needs avx512_vnni;"));

  const auto u = select("{}", plain_x86());
  ASSERT_TRUE(u);
  EXPECT_EQ(row_named(*u, "w4a8_tok8_p16_avx2").subject, "avx2");
  EXPECT_THAT(row_named(*u, "w4a8_tok8_p16_avx2").detail, HasSubstr("has none"));

  const auto v = select(R"({"activation_quant": "block32"})", arm());
  ASSERT_TRUE(v);
  EXPECT_EQ(v->candidates[0].reason, Reject::platform);
  EXPECT_EQ(v->candidates[0].subject, "/platform/arch");
  EXPECT_EQ(v->layout_id, "p16/int4-g32/1");  // KleidiAI's form has no such kernels
}

TEST(Select, CandidatesAfterTheWinnerAreAskedToo) {
  const auto s = select("{}", avx512());
  ASSERT_TRUE(s);
  for (const Candidate& c : s->candidates) {
    // Only instruction sets that this machine lacks are refused.
    EXPECT_TRUE(c.reason == Reject::none || c.reason == Reject::isa) << c.kernel;
    EXPECT_EQ(c.chosen, c.kernel == "w4a8_tok8_p16_avx512vnni");
  }
  EXPECT_EQ(s->candidates.back().kernel, "w4a8_tok8_p16_scalar");
  EXPECT_EQ(s->candidates.back().reason, Reject::none);
}

// --- what the row of CPU_INT4 takes under policy libmoe ------------------------------------------------------

// What Arm has instead of a p16 layout.
std::string kai_id(const std::string& p16) {
  const std::string words = p16.substr(std::strlen("p16/int4-"));
  std::string id = "kai/";
  for (std::size_t i = 0; i < words.size(); ++i) {
    const bool begins = i == 0 || words[i - 1] == ',';
    const bool channel = begins && words[i] == 'c';
    id += channel ? "qsi4cxp" : begins ? "qsi4c32p-g" : words.substr(i, 1);
    i += channel ? 1 : 0;  // "cw"
  }
  return id;
}

TEST(Select, Accepts) {
  const Accepted rows[] = {
      {R"({})", "p16/int4-g32/1", "int4_g32_sym"},
      {R"({"quantization": {"group_size": -1}})", "p16/int4-cw/1", "int4_channel_sym"},
      {R"({"quantization": {"group_size": 64}})", "p16/int4-g64/1", "int4_g64_sym"},
      {R"({"quantization": {"group_size": 128}})", "p16/int4-g128,cw/1", "int4_g128_sym"},
      {R"({"quantization": {"group_size": 96}, "hidden_dim": 192, "intermediate_size": 288})", "p16/int4-g96/1",
       "int4_g96_sym"},
      {R"({"quantization": {"group_size": 160}, "hidden_dim": 320, "intermediate_size": 640})", "p16/int4-g160/1",
       "int4_g160_sym"},
      {R"({"quantization": {"format": "pack-quantized"}})", "p16/int4-g32/1", "int4_g32_sym"},
      {R"({"has_bias": true})", "p16/int4-g32-bias/1", "int4_g32_sym"},
      {R"({"in_dtype": "float32"})", "p16/int4-g32/1", "int4_g32_sym"},
      {R"({"in_dtype": "float16", "out_dtype": "float32", "router_logits_dtype": "bfloat16"})", "p16/int4-g32/1",
       "int4_g32_sym"},
      {R"({"activation_params": {"limit": 5.0}})", "p16/int4-g32/1", "int4_g32_sym"},
      {R"({"activation": "swigluoai"})", "p16/int4-g32/1", "int4_g32_sym"},
      {R"({"activation": "swigluoai_uninterleave", "activation_params": {"alpha": 1.5}})", "p16/int4-g32/1",
       "int4_g32_sym"},
      {R"({"activation": "swiglustep"})", "p16/int4-g32/1", "int4_g32_sym"},
      {R"({"w13_layout": "up_gate"})", "p16/int4-g32/1", "int4_g32_sym"},
      {R"({"routing": {"renormalize": false}})", "p16/int4-g32/1", "int4_g32_sym"},
      {R"({"routing": {"routed_scaling_factor": 2.5}})", "p16/int4-g32/1", "int4_g32_sym"},
      {R"({"routing": {"routed_scaling_factor": 2.5, "apply_routed_scale_to_output": true}})", "p16/int4-g32/1",
       "int4_g32_sym"},
      {R"({"routing": {"method": "custom"}})", "p16/int4-g32/1", "int4_g32_sym"},
      {R"({"routing": {"scoring_func": "sigmoid"}})", "p16/int4-g32/1", "int4_g32_sym"},
      {R"({"routing": {"scoring_func": "sqrtsoftplus", "e_score_correction_bias": true}})", "p16/int4-g32/1",
       "int4_g32_sym"},
      {R"({"routing": {"method": "topk"}})", "p16/int4-g32/1", "int4_g32_sym"},
      {R"({"routing": {"method": "sparsemixer"}})", "p16/int4-g32/1", "int4_g32_sym"},
      {R"({"routing": {"method": "simulated", "simulation_strategy": "uniform_random"}})", "p16/int4-g32/1",
       "int4_g32_sym"},
      {R"({"routing": {"num_expert_group": 4, "topk_group": 2}})", "p16/int4-g32/1", "int4_g32_sym"},
      {R"({"routing": {"num_fused_shared_experts": 1}})", "p16/int4-g32/1", "int4_g32_sym"},
      {R"({"routing": {"e_score_correction_bias": true, "num_zero_experts": 3}})", "p16/int4-g32/1", "int4_g32_sym"},
      {R"({"routing": {"hash_routing": true}})", "p16/int4-g32/1", "int4_g32_sym"},
      {R"({"top_k": 1, "apply_router_weight_on_input": true})", "p16/int4-g32/1", "int4_g32_sym"},
      {R"({"parallel": {"tp_size": 4, "tp_rank": 1, "enable_expert_parallel": true}})", "p16/int4-g32/1",
       "int4_g32_sym"},
      {R"({"parallel": {"tp_size": 2, "tp_rank": 1}})", "p16/int4-g32/1", "int4_g32_sym"},
      {R"({"parallel": {"tp_size": 4, "enable_expert_parallel": true, "expert_placement_strategy": "round_robin"}})",
       "p16/int4-g32/1", "int4_g32_sym"},
      {R"({"parallel": {"dp_size": 2, "enable_expert_parallel": true}})", "p16/int4-g32/1", "int4_g32_sym"},
      {R"({"bit_compat": "vllm"})", "p16/int4-g32/1", "int4_g32_sym"},
      {R"({"compute": "a8"})", "p16/int4-g32/1", "int4_g32_sym"},
      {R"({"activation_quant": "per_token"})", "p16/int4-g32/1", "int4_g32_sym"},
      {R"({"vllm_env": {"VLLM_BATCH_INVARIANT": "1"}})", "p16/int4-g32/1", "int4_g32_sym"},
      {R"({"moe_backend": "CPU"})", "p16/int4-g32/1", "int4_g32_sym"},
      {R"({"quantization": {"group_size": -1}, "hidden_dim": 40, "intermediate_size": 26})", "p16/int4-cw/1",
       "int4_channel_sym"},
  };
  for (const Accepted& row : rows)
    for (const Platform& p : {avx512(), arm()}) {
      SCOPED_TRACE(row.patch);
      const auto s = select(row.patch, p);
      ASSERT_TRUE(s) << s.error().message;
      EXPECT_EQ(s->backend_name(), "CPU_INT4");
      EXPECT_EQ(s->layout_id, p.arch == Arch::aarch64 ? kai_id(row.layout) : row.layout);
      EXPECT_EQ(s->weight_scheme, row.weights);
      expect_sound(s->candidates);
    }
}

TEST(Select, LayoutIsThisRanksShare) {
  const auto s =
      select(R"({"parallel": {"tp_size": 2, "tp_rank": 1, "dp_size": 2, "enable_expert_parallel": true}})", avx2());
  ASSERT_TRUE(s);
  EXPECT_EQ(s->layout.experts, 2);
  EXPECT_EQ(s->layout.w13,
            (Matrix{.half_rows = 128, .halves = 2, .k = 256, .groups = Groups::of_size(32, 256), .has_bias = false}));
  const auto t = select(R"({"parallel": {"tp_size": 2}})", avx2());
  ASSERT_TRUE(t);
  EXPECT_EQ(t->layout.experts, 8);
  EXPECT_EQ(t->layout.w2,
            (Matrix{.half_rows = 256, .halves = 1, .k = 64, .groups = Groups::of_size(32, 64), .has_bias = false}));
}

// --- each reason -------------------------------------------------------------------------------------------

struct Refused {
  const char* patch;
  Reject reason;
  const char *subject, *needed, *found;
};

TEST(Select, RefusesWithReasonSubjectAndBothValues) {
  const Refused rows[] = {
      {R"({"quantization": {"group_size": 16}})", Reject::group_size, "/quantization/weights/group_size",
       "multiple of 32", "16"},
      {R"({"quantization": {"group_size": 48}, "hidden_dim": 96, "intermediate_size": 96})", Reject::group_size,
       "/quantization/weights/group_size", "multiple of 32", "48"},
      {R"({"quantization": {"group_size": -1}, "hidden_dim": 41})", Reject::alignment, "/hidden_dim", "multiples of 2",
       "41"},
      {R"({"quantization": {"group_size": -1}, "intermediate_size": 27})", Reject::alignment,
       "/intermediate_size_per_partition", "multiples of 2", "27"},
      {R"({"quantization": {"format": "pack-quantized", "is_transposed": true}})", Reject::weight_layout,
       "/quantization/is_transposed", "row-major", "true"},
      {R"({"routing": {"method": "custom", "routed_scaling_factor": 2.0}})", Reject::routing,
       "/routing/routed_scaling_factor", "factor of 1", "2.0"},
      {R"({"parallel": {"dp_size": 2, "enable_expert_parallel": true, "all2all_backend": "deepep_low_latency"}})",
       Reject::activation_format, "/parallel/all2all_backend", "standard", "batched"},
  };
  for (const Refused& row : rows) {
    SCOPED_TRACE(row.patch);
    const auto s = select(row.patch, avx512());
    ASSERT_FALSE(s);
    EXPECT_EQ(s.error().code, Code::no_backend);
    EXPECT_THAT(s.error().message, HasSubstr("CPU_INT4 needs"));
    const auto details = nlohmann::json::parse("{" + s.error().details + "}");
    EXPECT_EQ(details.at("error"), "none");

    const auto t = select(row.patch, avx512(), {.explain_only = true});
    ASSERT_TRUE(t);
    EXPECT_FALSE(t->winner || t->kernel);
    EXPECT_EQ(t->backend_name(), "");
    EXPECT_EQ(t->layout_id, "");
    EXPECT_EQ(t->layout.kind, LayoutKind::none);
    expect_sound(t->candidates);
    ASSERT_EQ(t->candidates.size(), kernels_of(LayoutKind::p16_int4));
    for (const Candidate& c : t->candidates) {
      EXPECT_EQ(c.reason, row.reason) << reject_name(c.reason) << " " << c.detail;
      EXPECT_EQ(c.subject, row.subject);
      EXPECT_THAT(c.detail, HasSubstr(row.needed));
      EXPECT_THAT(c.detail, HasSubstr(row.found));
      EXPECT_NE(json::at_pointer(t->config->resolved, c.subject), nullptr) << c.subject;
    }
    EXPECT_EQ(details.at("candidates"), nlohmann::json::parse(candidates_to_json(t->candidates)));
  }
}

TEST(Select, RefusesOtherDevicesAndArchitectures) {
  struct Row {
    Platform platform;
    const char *subject, *found;
  };
  const Row rows[] = {{machine(DeviceType::cpu, Arch::riscv64, {}), "/platform/arch", "cpu riscv64"},
                      {machine(DeviceType::cpu, Arch::ppc64le, {}), "/platform/arch", "cpu ppc64le"},
                      {hopper(), "/platform/type", "cuda 9.0"},
                      {machine(DeviceType::rocm, Arch::x86_64, {}), "/platform/type", "rocm"},
                      {machine(DeviceType::xpu, Arch::x86_64, {}), "/platform/type", "xpu"}};
  for (const Row& row : rows)
    for (const char* name : {"auto", "cpu", "triton"}) {
      SCOPED_TRACE(std::string(row.found) + " " + name);
      const bool cpu = row.platform.type == DeviceType::cpu;
      if (cpu && name == std::string("triton")) continue;
      const auto s = select(R"({"moe_backend": ")" + std::string(name) + "\"}", row.platform);
      ASSERT_FALSE(s);
      EXPECT_EQ(s.error().code, Code::no_backend);  // the device is asked before the name
      const auto details = nlohmann::json::parse("{" + s.error().details + "}");
      for (const auto& c : details.at("candidates")) {
        EXPECT_EQ(c.at("reason"), "MOE_REJECT_PLATFORM");
        EXPECT_EQ(c.at("subject"), row.subject);
        EXPECT_THAT(c.at("detail").get<std::string>(), HasSubstr(row.found));
      }
    }
}

// --- moe_backend -------------------------------------------------------------------------------------------

TEST(Select, UnknownName) {
  for (const char* name : {"triton", "marlin", "emulation"}) {
    const std::string patch = R"({"moe_backend": ")" + std::string(name) + "\"}";
    const auto s = select(patch, avx2());
    ASSERT_FALSE(s);
    EXPECT_EQ(s.error().code, Code::invalid_config);
    EXPECT_EQ(s.error().subject, "/moe_backend");
    EXPECT_THAT(s.error().message, HasSubstr("auto, cpu"));
    const auto details = nlohmann::json::parse("{" + s.error().details + "}");
    for (const auto& c : details.at("candidates")) EXPECT_EQ(c.at("reason"), "MOE_REJECT_USER");

    const auto explained = select(patch, avx2(), {.explain_only = true});
    ASSERT_TRUE(explained);
    EXPECT_FALSE(explained->winner);
    expect_sound(explained->candidates);

    const auto wish = select(patch, avx2(), {.allow_fallback = true});
    ASSERT_TRUE(wish) << wish.error().message;
    EXPECT_EQ(wish->backend_name(), "CPU_INT4");
    EXPECT_EQ(wish->warning, "requested_backend_unknown");
  }
}

TEST(Select, NamedBackendThatRefuses) {
  const auto s = select(R"({"moe_backend": "cpu", "quantization": {"group_size": 16}})", avx2());
  ASSERT_FALSE(s);
  const auto details = nlohmann::json::parse("{" + s.error().details + "}");
  EXPECT_EQ(details.at("error"), "refused");
  EXPECT_EQ(details.at("reason"), "group_size");
  EXPECT_FALSE(details.contains("warning"));
}

TEST(Select, IsDeterministic) {
  const auto config = layer();
  const auto a = select_backend(config, avx512(), {}), b = select_backend(config, avx512(), {});
  ASSERT_TRUE(a && b);
  EXPECT_EQ(selection_to_json(*a), selection_to_json(*b));
}

// --- policy vllm -------------------------------------------------------------------------------------------

TEST(Select, PolicyVllmIsTheOracleAndWritesWhatPytorchPacks) {
  Platform old = arm();
  old.features.reset(static_cast<std::size_t>(Feature::dotprod));
  const auto s = select(R"({"selection_policy": "vllm", "quantization": {"group_size": 64}})", old);
  ASSERT_TRUE(s) << s.error().message;
  ASSERT_EQ(s->candidates.size(), 1u);
  EXPECT_EQ(s->backend_name(), "CPU_INT4");
  EXPECT_EQ(s->candidates[0].kernel, "CPUExpertsInt4");
  EXPECT_FALSE(s->kernel);  // written, not run
  EXPECT_EQ(s->layout_id, "torch/dyn_quant_4bit-g64/1");
  EXPECT_EQ(s->layout.tensors.size(), 2u);

  struct Row {
    const char* patch;
    Platform platform;
    Reject reason;
  };
  const Row rows[] = {
      {R"({"selection_policy": "vllm"})", avx512(), Reject::platform},
      {R"({"selection_policy": "vllm", "quantization": {"group_size": 96}, "hidden_dim": 192, "intermediate_size": 288})",
       arm(), Reject::quant_scheme},
      {R"({"selection_policy": "vllm", "parallel": {"tp_size": 2, "enable_expert_parallel": true}})", arm(),
       Reject::parallel},
      {R"({"selection_policy": "vllm", "activation": "swigluoai_uninterleave"})", arm(), Reject::activation},
      {R"({"selection_policy": "vllm", "routing": {"method": "custom"}})", arm(), Reject::routing},
      {R"({"selection_policy": "vllm", "vllm_env": {"VLLM_BATCH_INVARIANT": "1"}})", arm(), Reject::batch_invariance},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.patch);
    const auto t = select(row.patch, row.platform, {.explain_only = true});
    ASSERT_TRUE(t);
    EXPECT_FALSE(t->winner);
    for (const Candidate& c : t->candidates) EXPECT_EQ(c.reason, row.reason) << c.detail;
  }
  Platform no_ops = arm();
  no_ops.libs.clear();
  const auto u = select(R"({"selection_policy": "vllm"})", no_ops, {.explain_only = true});
  ASSERT_TRUE(u);
  EXPECT_EQ(u->candidates[0].reason, Reject::not_built);
  EXPECT_EQ(u->candidates[0].subject, "/platform/libs");
}

TEST(RejectName, AllValues) {
  EXPECT_STREQ(reject_name(Reject::none), "MOE_REJECT_NONE");
  EXPECT_STREQ(reject_name(Reject::shard_splits_group), "MOE_REJECT_SHARD_SPLITS_GROUP");
  for (int i = 0; i <= 25; ++i) EXPECT_STRNE(reject_name(static_cast<Reject>(i)), "MOE_REJECT_UNKNOWN") << i;
  EXPECT_STREQ(reject_name(static_cast<Reject>(26)), "MOE_REJECT_UNKNOWN");
  EXPECT_STREQ(reject_name(static_cast<Reject>(-1)), "MOE_REJECT_UNKNOWN");
}

}  // namespace
}  // namespace moe::test::select_test
