// What conversion to other engines' WNA16 layouts needs beyond vLLM's checks: each condition of wna16.md 1.5a once,
// with its reason and place; and that every layer which is accepted has a layout that fits.
#include "oracle/rules/wna16_needs.h"

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "layouts/families.h"
#include "layouts/wna16/wna16_layout.h"
#include "oracle/selection.h"
#include "support/rooms.h"

namespace moe::test::wna16_needs_test {
namespace {

using nlohmann::json;

json base() {
  return {
      {"num_experts", 4},
      {"top_k", 2},
      {"hidden_dim", 256},
      {"intermediate_size", 256},
      {"selection_policy", "vllm"},
      {"quantization",
       {{"weights", {{"num_bits", 4}, {"type", "int"}, {"strategy", "group"}, {"group_size", 64}, {"symmetric", true}}},
        {"format", "gptq"}}}};
}

Result<Selection> explain(const json& patch) {
  json document = base();
  document.merge_patch(patch);
  Result<Config> c = parse_config(document.dump());
  EXPECT_TRUE(c) << c.error().message << " at " << c.error().subject;
  if (!c) return std::move(c.error());
  auto config = std::make_shared<const Config>(*std::move(c));
  const Result<Platform> platform = effective_platform(*config);
  EXPECT_TRUE(platform);
  return select_backend(config, *platform, {.explain_only = true});
}

json weights(json members) { return {{"quantization", {{"weights", std::move(members)}}}}; }
json with(json a, const json& b) {  // one patch of two; nulls stay
  a.update(b, true);
  return a;
}

const json kHopper = {{"platform", {{"type", "cuda"}, {"capability", {9, 0}}}}};
const json kBlackwell = {
    {"platform", {{"type", "cuda"}, {"capability", {10, 0}}, {"libs", {{"flashinfer_trtllm_moe", true}}}}},
    {"vllm_env", {{"VLLM_USE_FLASHINFER_MOE_INT4", "1"}}},
    {"quantization", {{"weights", {{"group_size", 32}}}, {"format", "pack-quantized"}}}};
const json kXpu = {{"platform", {{"type", "xpu"}}}};
const json kCpu = {{"platform", {{"type", "cpu"}, {"arch", "x86_64"}}}};
const json kRocm = {{"platform", {{"type", "rocm"}, {"gfx", "gfx942"}}}, {"moe_backend", "emulation"}};
const json kAwq = {{"quantization", {{"format", "awq"}}}};
const json kCt = {{"quantization", {{"format", "pack-quantized"}}}};
const json kOrdered = weights({{"actorder", "group"}});
const json kBias = {{"has_bias", true}};
const json kOnInput = {{"apply_router_weight_on_input", true}, {"top_k", 1}};
const json kChannel = weights({{"strategy", "channel"}, {"group_size", nullptr}});

TEST(Wna16Needs, ReasonsByLayout) {
  struct Row {
    json patch;
    const char* experts;
    Reject reason;
    const char* subject;
  };
  const Row rows[] = {
      {kHopper, "MarlinExperts", Reject::none, ""},
      {with(kHopper, kChannel), "MarlinExperts", Reject::none, ""},
      {with(kHopper, {{"intermediate_size", 320}}), "MarlinExperts", Reject::none, ""},  // padded to 384
      {with(kHopper, {{"hidden_dim", 192}}), "MarlinExperts", Reject::alignment, "/hidden_dim"},
      {with(kHopper, weights({{"group_size", 16}})), "MarlinExperts", Reject::group_size,
       "/quantization/weights/group_size"},
      {with(kHopper, kOnInput), "MarlinExperts", Reject::routing, "/apply_router_weight_on_input"},
      {with(kHopper, weights({{"symmetric", false}})), "MarlinExperts", Reject::zero_point,
       "/quantization/weights/symmetric"},
      {with(with(kHopper, weights({{"symmetric", false}})), kAwq), "MarlinExperts", Reject::none, ""},
      {with(with(kHopper, weights({{"symmetric", false}})), kCt), "MarlinExperts", Reject::none, ""},
      {with(with(kHopper, weights({{"symmetric", false}, {"num_bits", 8}})), kCt), "MarlinExperts", Reject::none, ""},
      {with(kHopper, kOrdered), "MarlinExperts", Reject::none, ""},
      {with(with(kHopper, kOrdered),
            {{"intermediate_size", 96}, {"quantization", {{"weights", {{"group_size", 32}}}}}}),
       "MarlinExperts", Reject::act_order, "/quantization/weights/actorder"},
      {with(with(kHopper, kOrdered), {{"intermediate_size", 64}}), "MarlinExperts", Reject::act_order,
       "/quantization/weights/actorder"},
      {with(kHopper, {{"marlin_input_dtype", "int8"}}), "MarlinExperts", Reject::none, ""},
      {with(kHopper, {{"marlin_input_dtype", "fp8"}}), "MarlinExperts", Reject::platform, "/marlin_input_dtype"},
      {with(kHopper, {{"marlin_input_dtype", "fp8"}, {"platform", {{"capability", {12, 1}}}}}), "MarlinExperts",
       Reject::none, ""},
      {with(kHopper, {{"marlin_input_dtype", "fp8"}, {"platform", {{"capability", {8, 9}}}}}), "MarlinExperts",
       Reject::none, ""},
      {with(kHopper, {{"in_dtype", "float32"}}), "MarlinExperts", Reject::input_dtype, "/in_dtype"},
      {kBlackwell, "TrtLlmMxint4ExpertsMonolithic", Reject::none, ""},
      {with(kBlackwell, {{"hidden_dim", 384}}), "TrtLlmMxint4ExpertsMonolithic", Reject::alignment, "/hidden_dim"},
      {with(kBlackwell, {{"intermediate_size", 128}}), "TrtLlmMxint4ExpertsMonolithic", Reject::alignment,
       "/intermediate_size_per_partition"},
      {with(kBlackwell, kBias), "TrtLlmMxint4ExpertsMonolithic", Reject::bias, "/has_bias"},
      {with(kBlackwell, kOrdered), "TrtLlmMxint4ExpertsMonolithic", Reject::act_order,
       "/quantization/weights/actorder"},
      {kXpu, "XPUExpertsWNA16", Reject::none, ""},
      {with(kXpu, kAwq), "XPUExpertsWNA16", Reject::weight_layout, "/quantization/format"},
      {with(kXpu, weights({{"symmetric", false}})), "XPUExpertsWNA16", Reject::zero_point,
       "/quantization/weights/symmetric"},
      {with(kXpu, kOrdered), "XPUExpertsWNA16", Reject::act_order, "/quantization/weights/actorder"},
      {kCpu, "CPUExpertsInt4", Reject::none, ""},
      {with(kCpu, kOrdered), "CPUExpertsInt4", Reject::act_order, "/quantization/weights/actorder"},
      {with(kCpu, {{"hidden_dim", 208}, {"quantization", {{"weights", {{"group_size", 16}}}}}}), "CPUExpertsInt4",
       Reject::alignment, "/hidden_dim"},
      {with(kCpu,
            {{"hidden_dim", 384}, {"intermediate_size", 192}, {"quantization", {{"weights", {{"group_size", 192}}}}}}),
       "CPUExpertsInt4", Reject::alignment, "/quantization/weights/group_size"},
      {with(kCpu, kChannel), "CPUExpertsInt4", Reject::none, ""},
      {with(with(kCpu, kChannel), {{"hidden_dim", 512}}), "CPUExpertsInt4", Reject::group_size,
       "/quantization/weights/group_size"},
      {with(kCpu, kOnInput), "CPUExpertsInt4", Reject::routing, "/apply_router_weight_on_input"},
      {with(kCpu, kBias), "CPUExpertsInt4", Reject::bias, "/has_bias"},
      {with(with(kCpu, kBias), {{"bit_compat", "vllm"}}), "CPUExpertsInt4", Reject::none, ""},
      {kRocm, "TritonWNA16OTFExperts", Reject::none, ""},
      {with(kRocm, kOrdered), "TritonWNA16OTFExperts", Reject::act_order, "/quantization/weights/actorder"},
      {with(kRocm, {{"emulation_layout", "dense"}}), "TritonWNA16OTFExperts", Reject::user, "/emulation_layout"},
      {with(kRocm, {{"emulation_layout", "dense"}}), "Int4EmulationTritonExperts", Reject::none, ""},
      {with(with(kRocm, {{"emulation_layout", "dense"}}), kOrdered), "Int4EmulationTritonExperts", Reject::none, ""},
      {kRocm, "Int4EmulationTritonExperts", Reject::user, "/emulation_layout"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.patch.dump() + " " + row.experts);
    const Result<Selection> s = explain(row.patch);
    ASSERT_TRUE(s);
    bool found = false;
    for (const Candidate& c : s->candidates) {
      if (c.experts != row.experts) continue;
      found = true;
      EXPECT_EQ(reject_name(c.reason), std::string(reject_name(row.reason))) << c.detail;
      EXPECT_EQ(c.subject, row.subject);
      EXPECT_EQ(c.chosen, row.reason == Reject::none);
    }
    EXPECT_TRUE(found);
    if (row.reason != Reject::none || !s->winner) continue;
    ASSERT_TRUE(is_wna16_kind(s->layout.kind)) << s->layout_id;
    EXPECT_TRUE(layout_family(s->layout.kind)->valid(s->layout)) << s->layout_id;
    EXPECT_FALSE(s->kernel);
  }
}

TEST(Wna16Needs, HummingIsAnAnswerOnlyUnderVllm) {
  const json patch = with(kHopper, {{"moe_backend", "humming"}});
  const auto theirs = explain(patch);
  ASSERT_TRUE(theirs);
  EXPECT_EQ(theirs->backend_name(), "HUMMING");
  EXPECT_EQ(theirs->layout.kind, LayoutKind::foreign);
  const auto ours = explain(with(patch, {{"selection_policy", "libmoe"}}));
  ASSERT_TRUE(ours);
  EXPECT_FALSE(ours->winner);
  for (const Candidate& c : ours->candidates) {
    if (c.backend == "HUMMING" && c.experts != "BatchedHummingGroupedExperts") {
      EXPECT_EQ(c.reason, Reject::not_built) << c.detail;
    }
  }
}

TEST(Wna16Needs, ACpuRunsThemByName) {
  const json ours = with(kCpu, {{"selection_policy", "libmoe"}, {"moe_backend", "emulation"}});
  const auto s = explain(ours);
  ASSERT_TRUE(s);
  EXPECT_EQ(s->backend_name(), "EMULATION");
  EXPECT_EQ(s->layout_id, "on_the_fly/b4-g64-bf16/1");
  const auto f32 = explain(with(ours, {{"in_dtype", "float32"}}));
  ASSERT_TRUE(f32);
  EXPECT_EQ(f32->layout_id, "on_the_fly/b4-g64-f32/1");
  const auto reason = [](const json& patch) {
    const auto refused = explain(patch);
    EXPECT_TRUE(refused && !refused->winner);
    for (const Candidate& c : refused->candidates)
      if (c.experts == "TritonWNA16OTFExperts") return c.reason;
    return Reject::none;
  };
  EXPECT_EQ(reason(with(ours, {{"compute", "a8"}})), Reject::not_built);
  EXPECT_EQ(reason(with(ours, weights({{"group_size", 8}}))), Reject::group_size);
  EXPECT_EQ(reason(with(ours, kOrdered)), Reject::act_order);
  const auto auto_choice = explain(with(ours, {{"moe_backend", "auto"}}));
  ASSERT_TRUE(auto_choice);
  EXPECT_EQ(auto_choice->backend_name(), "CPU");
}

TEST(Wna16Layout, OutputNames) {
  const auto name_of = [](std::string_view spelled) { return layout_families::wna16.parts.name_of(spelled); };
  EXPECT_EQ(name_of("w13"), "w13_weight");
  EXPECT_EQ(name_of("w2_qweight"), "w2_weight");
  EXPECT_EQ(name_of("w13_scales"), "w13_scale");
  EXPECT_EQ(name_of("w2_qzeros"), "w2_zero_point");
  EXPECT_EQ(name_of("w13_g_idx_sort_indices"), "w13_g_idx_sort_indices");
  EXPECT_EQ(name_of("workspace"), "workspace");
  for (const char* other :
       {"", "w1", "w13_", "w2_shape", "w13weight", "w3_weight", "w13_weight_scale", "s13", "w2_alpha"})
    EXPECT_EQ(name_of(other), "") << other;
}

// The numbers of a packed file: nothing but what a selection writes is a layout.
TEST(Wna16Layout, StoredNumbersAreChecked) {
  const auto s = explain(with(kHopper, {{"bit_compat", "vllm"}, {"platform", {{"multiprocessor_count", 132}}}}));
  ASSERT_TRUE(s && s->winner);
  const Layout good = s->layout;
  ASSERT_TRUE(layout_family(good.kind)->valid(good));
  const auto bad = [&](auto change) {
    Layout l = good;
    change(l);
    return !layout_family(l.kind)->valid(l);
  };
  EXPECT_TRUE(bad([](Layout& l) { l.variant.multiprocessors = -1; }));
  EXPECT_TRUE(bad([](Layout& l) { l.variant.multiprocessors = INT64_MAX; }));
  EXPECT_TRUE(bad([](Layout& l) { l.variant.zero_shift = 2; }));
  EXPECT_TRUE(bad([](Layout& l) { l.variant.bias = DType::invalid; }));
  EXPECT_TRUE(bad([](Layout& l) { l.variant.number = DType::i32; }));
  EXPECT_TRUE(bad([](Layout& l) { l.w13.groups = Groups::even(32); }));
  EXPECT_TRUE(bad([](Layout& l) { l.w13.scales = l.w2.scales = Scales::f32; }));
  EXPECT_TRUE(bad([](Layout& l) { l.w13.element = l.w2.element = Element::bf16; }));
  EXPECT_TRUE(bad([](Layout& l) { l.w2.has_zeros = true; }));
  EXPECT_TRUE(bad([](Layout& l) { l.w13.k = l.w2.half_rows = 208; }));
  EXPECT_TRUE(bad([](Layout& l) { l.kind = LayoutKind::wna16_trtllm; }));
}

}  // namespace
}  // namespace moe::test::wna16_needs_test
