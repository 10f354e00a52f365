// moe_describe("oracle") against vectors/selection: every case, answers compared by subset, failures by
// status, subject and the details that the vector fixes.
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <tuple>

#include "oracle/selection.h"
#include "support/rooms.h"
#include "support/vectors.h"

namespace moe::test::golden_test {
namespace {

using nlohmann::json;

struct Golden {
  const char* file;
  std::size_t cases;
};

// Every member of `want` is in `have` with the same value.
void expect_subset(const json& have, const json& want) {
  for (const auto& [key, value] : want.items()) {
    ASSERT_TRUE(have.contains(key)) << key << " in " << have.dump();
    EXPECT_EQ(have[key], value) << key;
  }
}

// Rules of every answer, accepted or not.
void expect_sound(const json& candidates) {
  for (const json& c : candidates) {
    EXPECT_FALSE(c.at("backend").get<std::string>().empty());
    EXPECT_TRUE(c.at("experts").is_null() || !c.at("experts").get<std::string>().empty());
    EXPECT_EQ(c.at("accepted").get<bool>(), c.at("reason").is_null()) << c.dump();
    EXPECT_EQ(c.at("accepted").get<bool>(), c.at("detail").get<std::string>().empty()) << c.dump();
  }
}

void check_failure(const Error& e, const json& expect) {
  const json details = json::parse("{" + e.details + "}");
  EXPECT_FALSE(e.message.empty());
  EXPECT_EQ(details.at("error"), expect.at("error"));
  if (expect.at("error") == "unknown_backend") {
    EXPECT_EQ(e.code, Code::invalid_config);
    EXPECT_EQ(e.subject, "/moe/moe_backend");
    return;
  }
  EXPECT_EQ(e.code, Code::no_backend);
  expect_subset(details, expect);
  expect_sound(details.at("candidates"));
  for (const json& c : details.at("candidates")) EXPECT_FALSE(c.at("accepted").get<bool>());
}

void check_answer(const std::string& text, const json& expect) {
  const json answer = json::parse(text);
  expect_subset(answer, expect);
  EXPECT_EQ(answer.contains("warning"), expect.contains("warning"));
  expect_sound(answer.at("candidates"));
  for (const json& c : answer.at("candidates")) {  // the first that accepts is the answer
    if (!c.at("accepted").get<bool>()) continue;
    EXPECT_EQ(c.at("backend"), answer.at("backend"));
    EXPECT_EQ(c.at("experts"), answer.at("experts"));
    break;
  }
}

class GoldenSelection : public testing::TestWithParam<Golden> {};

TEST_P(GoldenSelection, EveryCase) {
  const json cases = load_json(std::string("selection/") + GetParam().file).at("cases");
  EXPECT_EQ(cases.size(), GetParam().cases);
  for (const json& c : cases) {
    SCOPED_TRACE(c.at("id").get<std::string>() + ": " + c.at("note").get<std::string>());
    const auto query = moe::json::parse(c.at("query").dump());
    ASSERT_TRUE(query) << query.error().message;
    const Result<std::string> answer = describe_oracle(*query);
    const json& expect = c.at("expect");
    ASSERT_EQ(static_cast<bool>(answer), !expect.contains("error")) << (answer ? *answer : answer.error().message);
    if (answer)
      check_answer(*answer, expect);
    else
      check_failure(answer.error(), expect);
  }
}

INSTANTIATE_TEST_SUITE_P(Vectors, GoldenSelection,
                         testing::Values(Golden{"w4a8_int8.json", 81}, Golden{"int_wna16.json", 161},
                                         Golden{"unquantized.json", 67}, Golden{"int8.json", 26},
                                         Golden{"fp8.json", 84}, Golden{"mxfp8.json", 34}, Golden{"nvfp4.json", 58},
                                         Golden{"mxfp4.json", 129}, Golden{"mxfp4_deepseek_v4.json", 66}),
                         [](const auto& p) {
                           const std::string file = p.param.file;
                           return file.substr(0, file.find('.'));
                         });

// What vLLM 0.33.0 itself answered on faked CPUs: [platform, oracle, activation, routing, in_dtype, backend, experts].
// "raise": the call raises.
json november_query(const json& row) {
  static const json platforms = json::parse(R"({
    "x86_amx": {"type": "cpu", "arch": "x86_64", "features": ["amx_tile", "amx_int8", "amx_bf16"]},
    "x86_amx_fp8": {"type": "cpu", "arch": "x86_64", "features": ["amx_tile", "amx_int8", "amx_bf16", "amx_fp8"]},
    "x86": {"type": "cpu", "arch": "x86_64", "features": []},
    "arm": {"type": "cpu", "arch": "aarch64", "features": ["dotprod", "i8mm", "bf16"],
            "libs": {"torch_dyn_quant_4bit": true}}})");
  static const json keys = json::parse(R"({
    "int8": ["kInt8StaticChannelSym", "kInt8DynamicTokenSym"], "fp8": ["kFp8Static128BlockSym", "kFp8Dynamic128Sym"],
    "fp8t": ["kFp8StaticTensorSym", "kFp8StaticTensorSym"], "fp8c": ["kFp8StaticChannelSym", "kFp8DynamicTokenSym"],
    "unquantized": [null, null], "mxfp4": ["kMxfp4Static", null], "mxfp4_deepseek_v4": ["kMxfp4Static", null],
    "int_wna16": ["kInt4Static", null], "nvfp4": ["kNvfp4Static", "kNvfp4Dynamic"],
    "mxfp8": ["kMxfp8Static", "kMxfp8Dynamic"], "w4a8_int8": ["kInt4W4A8StaticChannelSym", null]})");
  const auto oracle = row[1].get<std::string>();
  return {{"oracle", oracle.rfind("fp8", 0) == 0 ? "fp8" : oracle},
          {"profile", "2026-11"},
          {"platform", platforms.at(row[0].get<std::string>())},
          {"moe",
           {{"activation", row[2]},
            {"routing_method", row[3]},
            {"in_dtype", row[4]},
            {"hidden_dim", 2048},
            {"intermediate_size_per_partition", 1024},
            {"num_experts", 64},
            {"experts_per_token", 8}}},
          {"weight_key", keys.at(oracle)[0]},
          {"activation_key", keys.at(oracle)[1]}};
}

TEST(GoldenSelectionOfNovember, EveryCase) {
  const json rows = load_json("selection/vllm_0_33_cpu.json");
  ASSERT_EQ(rows.size(), 2374u);
  int others = 0;  // than those of May
  for (const json& row : rows) {
    SCOPED_TRACE(row.dump());
    json query = november_query(row);
    const Result<std::string> answer = describe_oracle(*moe::json::parse(query.dump()));
    if (row[5] == "raise") {
      ASSERT_FALSE(answer) << *answer;
      check_failure(answer.error(), {{"error", "none"}});
    } else {
      ASSERT_TRUE(answer) << answer.error().message;
      check_answer(*answer, {{"backend", row[5]}, {"experts", row[6]}});
    }
    query["profile"] = "2026-05";
    const Result<std::string> may = describe_oracle(*moe::json::parse(query.dump()));
    others += static_cast<bool>(may) != static_cast<bool>(answer) ||
              (may && json::parse(*may).at("experts") != json::parse(*answer).at("experts"));
  }
  EXPECT_GT(others, 300);
}

Result<std::string> ask(const json& query) { return describe_oracle(*moe::json::parse(query.dump())); }

TEST(Profiles, WordsOfNovember) {
  json query = november_query({"x86_amx", "mxfp4", "silu", "Default", "bfloat16"});
  for (const char* word : {"cpu", "auto"}) {
    query["moe"]["moe_backend"] = word;
    const Result<std::string> answer = ask(query);
    ASSERT_TRUE(answer) << answer.error().message;
    check_answer(*answer, {{"backend", "CPU"}, {"experts", "CPUExpertsMxfp4"}});
  }
  query["activation_key"] = "kMxfp8Dynamic";  // 16-bit activations all the same
  EXPECT_TRUE(ask(query));
  query["user_activation"] = "kMxfp4Dynamic";
  check_failure(ask(query).error(), {{"error", "refused"}, {"kind", "conflict"}});
  for (const auto& [oracle, words, refused] :
       {std::tuple{"mxfp4", "flashinfer_cutlass_afp8 triton_unfused flashinfer_moe_ep_cutedsl aiter b12x", true},
        {"mxfp4", "hpc CPU", false},
        {"fp8", "hpc humming cutlass", true},
        {"fp8", "cpu rdna3", false},
        {"int_wna16", "rdna3 triton marlin", true},
        {"int_wna16", "cpu aiter", false},
        {"unquantized", "batched_triton aiter", true},
        {"unquantized", "cpu emulation", false},
        {"nvfp4", "flashinfer_b12x b12x humming", true},
        {"mxfp8", "aiter xpu triton", true},
        {"mxfp8", "emulation", false}}) {
    json q = november_query({"x86_amx", oracle, "silu", "Default", "bfloat16"});
    std::istringstream in(words);
    for (std::string word; in >> word;) {
      q["moe"]["moe_backend"] = word;
      const Result<std::string> answer = ask(q);
      ASSERT_FALSE(answer) << oracle << " " << word;
      check_failure(answer.error(), {{"error", refused ? "refused" : "unknown_backend"}});
    }
  }
  json plain = november_query({"x86", "unquantized", "silu", "Default", "float32"});
  for (const char* word : {"humming", "marlin"}) {  // they mean quantized layers alone
    plain["moe"]["moe_backend"] = word;
    check_answer(*ask(plain), {{"experts", "CPUUnquantizedExperts"}});
  }
  plain["moe"]["is_lora_enabled"] = true;
  check_answer(*ask(plain), {{"backend", "TRITON"}, {"experts", "TritonExperts"}});
}

TEST(Profiles, SizesOfNovember) {
  json query = november_query({"x86_amx", "unquantized", "silu", "Default", "bfloat16"});
  query["moe"]["intermediate_size_per_partition"] = 1000;  // padded
  EXPECT_TRUE(ask(query));
  query["moe"]["activation"] = "swigluoai";
  EXPECT_FALSE(ask(query));
  query["moe"]["intermediate_size_per_partition"] = 1024;
  query["moe"]["hidden_dim"] = 2040;
  EXPECT_FALSE(ask(query));
  json int8 = november_query({"arm", "int8", "silu", "Default", "bfloat16"});
  EXPECT_TRUE(ask(int8));
  int8["moe"]["intermediate_size_per_partition"] = 1000;
  EXPECT_FALSE(ask(int8));
}

TEST(Profiles, AllToAllOfNovember) {
  json query = november_query({"x86_amx", "fp8", "silu", "Default", "bfloat16"});
  query["moe"]["parallel"] = {
      {"sp_size", 2}, {"ep_size", 2}, {"use_ep", true}, {"all2all_backend", "deepep_low_latency"}};
  EXPECT_EQ(json::parse(*ask(query)).at("backend"), "NONE");  // batched activations
  query["profile"] = "2026-05";
  EXPECT_EQ(json::parse(*ask(query)).at("backend"), "CPU");
  json plain = november_query({"x86_amx", "unquantized", "silu", "Default", "bfloat16"});
  plain["moe"]["parallel"] = {{"dp_size", 2}, {"ep_size", 2}, {"use_ep", true}, {"all2all_backend", "moonep"}};
  check_failure(ask(plain).error(), {{"error", "refused"}});
}

TEST(Profiles, Zentorch) {
  json query = november_query({"x86", "int_wna16", "gelu", "Custom", "bfloat16"});
  EXPECT_FALSE(ask(query));
  query["platform"]["libs"] = {{"zentorch", true}};
  check_answer(*ask(query), {{"backend", "ZEN_CPU"}, {"experts", "ZentorchExpertsInt4"}});
}

TEST(Profiles, TheFirstStageOfIntWna16) {
  json query = {
      {"oracle", "int_wna16"}, {"profile", "2026-04"}, {"platform", {{"type", "cpu"}}}, {"weight_key", "kInt4Static"}};
  check_failure(ask(query).error(), {{"error", "none"}});
  query["platform"] = {{"type", "cuda"}, {"capability", {9, 0}}};
  check_answer(*ask(query), {{"backend", "MARLIN"}, {"experts", "MarlinExperts"}});
  query["moe"] = {{"moe_backend", "nonsense"}};  // not read
  check_answer(*ask(query), {{"backend", "MARLIN"}, {"experts", "MarlinExperts"}});
  query["weight_key"] = "kInt4StaticAsym";
  check_failure(ask(query).error(), {{"error", "none"}});
  query["platform"] = {{"type", "xpu"}};
  query["weight_key"] = "kInt4Static32";
  check_answer(*ask(query), {{"backend", "XPU"}});
  query["platform"] = {{"type", "rocm"}, {"gfx", "gfx942"}};
  check_failure(ask(query).error(), {{"error", "none"}});
}

TEST(Profiles, WhatIsNotKnownIsRefused) {
  json query = november_query({"x86_amx", "fp8", "silu", "Default", "bfloat16"});
  for (const auto& [profile, platform, code] : {std::tuple{"2026-04", "cpu", Code::unsupported},
                                                {"2026-11", "cuda", Code::unsupported},
                                                {"2027-01", "cpu", Code::invalid_config}}) {
    query["profile"] = profile;
    query["platform"] = {{"type", platform}};
    const Result<std::string> answer = ask(query);
    ASSERT_FALSE(answer) << profile;
    EXPECT_EQ(answer.error().code, code) << answer.error().message;
    EXPECT_EQ(answer.error().subject, "/profile");
  }
  query["platform"] = {{"type", "cpu"}};
  query["profile"] = 11;
  EXPECT_EQ(ask(query).error().subject, "/profile");
}

}  // namespace
}  // namespace moe::test::golden_test
