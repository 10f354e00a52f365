// Hostile members (H1) and hostile text (H2): each answer is a fault of the right member or the value
// that was written, read back.
#include <gtest/gtest.h>

#include <cmath>
#include <ctime>
#include <limits>
#include <set>

#include "config/documents.h"
#include "support/rooms.h"
#include "support/sanitizers.h"
#include "support/vectors.h"

namespace moe::test::hostile_test {
namespace {

using nlohmann::json;

// CPU time, so that a busy machine does not fail a limit.
double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

struct IntMember {
  std::string pointer;
  std::int64_t low, high;
  bool required = false, nullable = false;
  json around;  // what the member needs to be legal through its whole range
};

// `d` with the text of a number, or any other JSON text, in the place of the member.
std::string with_text(json d, const std::string& pointer, const std::string& text) {
  d[json::json_pointer(pointer)] = "@@here@@";
  std::string s = d.dump();
  const std::string mark = "\"@@here@@\"";
  return s.replace(s.find(mark), mark.size(), text);
}

void sweep(const IntMember& m) {
  const json d = layer_document(m.around);
  const json::json_pointer p(m.pointer);
  const auto expect_accepted = [&](const std::string& text, std::int64_t value) {
    const auto c = parse_config(with_text(d, m.pointer, text));
    ASSERT_TRUE(c) << m.pointer << " = " << text << ": " << c.error().message;
    const json::json_pointer in_input(m.pointer);
    const json input = json::parse(moe::json::write(c->input));
    EXPECT_EQ(input[in_input], value);
    const json canonical = json::parse(c->canonical);
    if (canonical.contains(p)) {
      EXPECT_EQ(canonical[p], value) << m.pointer;
    }
  };
  json without = d;
  without[p.parent_pointer()].erase(p.back());
  EXPECT_EQ(fault_of(without), m.required ? m.pointer : "accepted");
  expect_accepted(std::to_string(m.low), m.low);
  expect_accepted(std::to_string(m.high), m.high);
  if (m.high <= (std::int64_t{1} << 53)) expect_accepted(std::to_string(m.high) + ".0", m.high);
  std::vector<std::string> refused = {"true",
                                      "\"8\"",
                                      "\"\"",
                                      "[1]",
                                      "{}",
                                      "1.5",
                                      "1e30",
                                      "-1e30",
                                      "18446744073709551616",
                                      "9223372036854775808",
                                      "-9223372036854775808"};
  if (!m.nullable) refused.push_back("null");
  refused.push_back(std::to_string(m.low - 1));
  if (m.high < std::numeric_limits<std::int64_t>::max()) {
    refused.push_back(std::to_string(m.high + 1));
    refused.push_back("9223372036854775807");
    refused.push_back("4294967297");
    refused.push_back("2147483648");
  }
  if (m.low > -1) refused.push_back("-1");
  for (const std::string& text : refused) EXPECT_EQ(fault_of(with_text(d, m.pointer, text)), m.pointer) << text;
  // A repeated key is a fault of the text.
  const std::string key = "\"" + p.back() + "\":";
  std::string twice = with_text(d, m.pointer, std::to_string(m.low));
  twice.insert(twice.find(key), key + std::to_string(m.low) + ",");
  EXPECT_EQ(fault_of(twice), "") << twice;
}

TEST(Hostile, IntegerMembers) {
  const json many = {{"num_experts", 65536}};
  const std::vector<IntMember> members = {
      {"/version", 1, 1, false, false, json::object()},
      {"/num_experts", 1, 65536, true, false, {{"top_k", 1}}},
      {"/top_k", 1, 65536, true, false, many},
      {"/hidden_dim", 1, 1 << 20, true, false, json::object()},
      {"/intermediate_size", 1, 1 << 20, true, false, json::object()},
      {"/max_num_tokens", 1, 1 << 24, false, false, json::object()},
      {"/parallel/num_redundant_experts",
       0,
       65536,
       false,
       false,
       {{"parallel",
         {{"enable_eplb", true}, {"tp_size", 2}, {"enable_expert_parallel", true}, {"num_redundant_experts", 0}}}}},
      {"/parallel/tp_size", 1, 65536, false, false, {{"intermediate_size", 65536}, {"parallel", {{"tp_size", 1}}}}},
      {"/parallel/dp_size", 1, 65536, false, false, {{"intermediate_size", 65536}, {"parallel", {{"dp_size", 1}}}}},
      {"/parallel/pcp_size", 1, 65536, false, false, {{"intermediate_size", 65536}, {"parallel", {{"pcp_size", 1}}}}},
      {"/parallel/tp_rank",
       0,
       65535,
       false,
       false,
       {{"intermediate_size", 65536}, {"parallel", {{"tp_size", 65536}, {"tp_rank", 0}}}}},
      {"/routing/num_zero_experts",
       0,
       65536,
       false,
       false,
       {{"routing", {{"num_zero_experts", 0}, {"e_score_correction_bias", true}, {"scoring_func", "sigmoid"}}}}},
      {"/routing/num_fused_shared_experts", 0, 64, false, false, {{"routing", {{"num_fused_shared_experts", 0}}}}},
      {"/routing/seed", 0, std::numeric_limits<std::int64_t>::max(), false, false, {{"routing", {{"seed", 0}}}}},
      {"/platform/num_threads", 0, 4096, false, false, {{"platform", {{"num_threads", 0}}}}},
      {"/platform/numa_node", -1, 1023, false, false, {{"platform", {{"numa_node", 0}}}}},
      {"/platform/cuda_version", 0, 1000000, false, false, {{"platform", {{"cuda_version", 0}}}}},
      {"/platform/multiprocessor_count", 1, 4096, false, false, {{"platform", {{"multiprocessor_count", 1}}}}},
  };
  for (const IntMember& m : members) sweep(m);
  const json cuda = layer_document({{"platform", {{"type", "cuda"}, {"capability", {9, 0}}}}});
  for (const char* text : {"-1", "256", "1.5", "true", "null", "\"0\"", "4294967296", "1e30"})
    EXPECT_EQ(fault_of(with_text(cuda, "/platform/capability/1", text)), "/platform/capability/1") << text;
  EXPECT_EQ(fault_of(with_text(cuda, "/platform/capability/1", "255")), "accepted");
  EXPECT_EQ(fault_of(with_text(cuda, "/platform/capability/1", "7.0")), "accepted");
}

TEST(Hostile, GroupSizes) {
  const auto group = [](const std::string& text) {
    return fault_of(with_text(layer_document({{"hidden_dim", 65536},
                                              {"intermediate_size", 65536},
                                              {"quantization", {{"scheme", "W4A8"}, {"group_size", 1}}}}),
                              "/quantization/group_size", text));
  };
  for (const char* good : {"-1", "1", "16", "32", "512", "65536", "128.0"}) EXPECT_EQ(group(good), "accepted") << good;
  for (const char* bad :
       {"0", "-2", "31", "65537", "2147483647", "null", "1.5", "1e30", "true", "\"32\"", "-0.0", "-0"})
    EXPECT_EQ(group(bad), "/quantization/group_size") << bad;
  const auto strict = [](const std::string& text) {
    return fault_of(with_text(
        layer_document({{"quantization", {{"weights", {{"num_bits", 4}, {"strategy", "group"}, {"group_size", 1}}}}}}),
        "/quantization/weights/group_size", text));
  };
  for (const char* good : {"1", "32", "256"}) EXPECT_EQ(strict(good), "accepted") << good;
  for (const char* bad : {"0", "-2", "-1", "31", "65537", "null", "1.5"})
    EXPECT_EQ(strict(bad), "/quantization/weights/group_size") << bad;
}

TEST(Hostile, NumberMembers) {
  const json oai = {{"activation", "swigluoai"}, {"activation_params", {{"limit", 1}}}};
  const auto limit = [&](const std::string& text) {
    return fault_of(with_text(layer_document(oai), "/activation_params/limit", text));
  };
  for (const char* good : {"1", "1e30", "4.9e-324", "7.0"}) EXPECT_EQ(limit(good), "accepted") << good;
  for (const char* bad : {"0", "-1", "0.0", "-0.0", "1.0000001e30", "null", "true", "\"1\"", "[]", "1e-400"})
    EXPECT_EQ(limit(bad), "/activation_params/limit") << bad;
  const json bias = {{"routing", {{"scoring_func", "sigmoid"}, {"e_score_correction_bias", {0, 0, 0, 0, 0, 0, 0, 0}}}}};
  const auto element = [&](const std::string& text) {
    return fault_of(with_text(layer_document(bias), "/routing/e_score_correction_bias/5", text));
  };
  for (const char* good : {"1", "-3.4e38", "1e-300"}) EXPECT_EQ(element(good), "accepted") << good;
  for (const char* bad : {"3.5e38", "1e300", "null", "true", "\"1\"", "[]"})
    EXPECT_EQ(element(bad), "/routing/e_score_correction_bias/5") << bad;
}

// Members of another type, one by one, in a document that has them all.
TEST(Hostile, WrongTypesEverywhere) {
  const json d =
      json::parse(R"({"version":1,"$schema":"s","name":"n","projection_names":["a","b","c"],"num_experts":8,"top_k":2,
    "hidden_dim":256,"intermediate_size":512,"activation":"swigluoai","activation_params":{"alpha":1.5,"beta":1.5,"limit":2.5},
    "w13_layout":"interleaved","has_bias":true,"in_dtype":"float32","out_dtype":"float32","router_logits_dtype":"float32",
    "moe_backend":"cpu","max_num_tokens":4,"apply_router_weight_on_input":false,"disable_inplace":true,"compute":"auto",
    "activation_quant":"auto","marlin_input_dtype":"none","emulation_layout":"dense","selection_policy":"vllm","bit_compat":"vllm",
    "parallel":{"tp_size":1,"pcp_size":1,"dp_size":1,"sp_size":1,"tp_rank":0,"pcp_rank":0,"dp_rank":0,"enable_expert_parallel":false,
      "all2all_backend":"mori","enable_eplb":false,"num_redundant_experts":0,"expert_placement_strategy":"linear"},
    "routing":{"method":"simulated","scoring_func":"softmax","renormalize":true,"use_grouped_topk":true,"num_expert_group":4,
      "topk_group":2,"routed_scaling_factor":1.5,"apply_routed_scale_to_output":false,"e_score_correction_bias":false,
      "simulation_strategy":"uniform_random","seed":1,"num_fused_shared_experts":0,"num_zero_experts":0,"hash_routing":false},
    "quantization":{"weights":{"num_bits":4,"type":"int","strategy":"group","group_size":32,"symmetric":true,"dynamic":false,
      "actorder":"weight"},"input_activations":{"num_bits":8,"type":"int","strategy":"token","symmetric":true,"dynamic":true},
      "format":"pack-quantized","zero_point_convention":"auto","is_transposed":true},
    "platform":{"type":"cuda","arch":"x86_64","features":["avx2"],"num_threads":1,"numa_node":0,"capability":[9,0],"gfx":"gfx942",
      "cuda_version":12080,"libs":{"flashinfer":true},"multiprocessor_count":132},
    "vllm_env":{"VLLM_USE_DEEP_GEMM":"0"}})");
  ASSERT_EQ(fault_of(d), "accepted") << parse_config(d.dump()).error().message;
  // These may be null.
  const std::set<std::string> nullable = {"/quantization/input_activations", "/quantization/weights/group_size",
                                          "/quantization/weights/actorder"};
  int checked = 0;
  const json flat = d.flatten();
  for (const auto& [pointer, value] : flat.items()) {
    // Every prefix of the path is a member too.
    for (std::size_t end = pointer.find('/', 1);; end = pointer.find('/', end + 1)) {
      const std::string member = pointer.substr(0, end);
      const json& now = d[json::json_pointer(member)];
      for (const json& wrong :
           {json(nullptr), json(true), json(3), json(0.5), json("?"), json::array({json::array()}), json{{"?", 1}}}) {
        if (wrong.type() == now.type() && !wrong.is_object() && !wrong.is_array() && !wrong.is_string()) continue;
        if (now.is_number() && wrong.is_number()) continue;
        if (now.is_string() && wrong.is_string()) continue;
        if (wrong.is_null() && nullable.count(member) != 0) continue;
        json broken = d;
        broken[json::json_pointer(member)] = wrong;
        const std::string at = fault_of(broken);
        // Booleans where bool or a list is allowed, and the like, may be legal; else the member or one inside it.
        if (at == "accepted") {
          EXPECT_TRUE(member == "/routing/e_score_correction_bias" || member == "/quantization/weights/actorder" ||
                      member.find("dynamic") != std::string::npos)
              << member << " = " << wrong;
          continue;
        }
        ++checked;
        const bool dynamic = member == "/quantization/weights/actorder";
        EXPECT_TRUE(at == member || at.rfind(member + "/", 0) == 0 || dynamic)
            << member << " = " << wrong << " blamed " << at;
      }
      if (end == std::string::npos) break;
    }
  }
  EXPECT_GT(checked, 400);
}

TEST(Hostile, UnknownMembersEverywhere) {
  for (const char* place : {"", "/activation_params", "/parallel", "/routing", "/quantization", "/quantization/weights",
                            "/quantization/input_activations", "/platform", "/vllm_env"}) {
    json d = layer_document({{"activation_params", json::object()},
                             {"parallel", json::object()},
                             {"routing", json::object()},
                             {"platform", json::object()},
                             {"vllm_env", json::object()},
                             {"quantization",
                              {{"weights", {{"num_bits", 8}, {"group_size", -1}}},
                               {"input_activations", {{"strategy", "token"}, {"dynamic", true}}}}}});
    ASSERT_EQ(fault_of(d), "accepted");
    for (const char* key : {"x", "", "a/b~c", "Top_k", "top_k ", "\xc3\xa9"}) {
      json broken = d;
      broken[json::json_pointer(place)][key] = 1;
      EXPECT_EQ(fault_of(broken), std::string(place) + "/" + moe::json::escape_pointer(key));
    }
  }
}

TEST(Hostile, TextCutAtEveryByte) {
  const std::string text = read_text(vector_path("config/valid/deepseek_v3.json"));
  const std::size_t last = text.find_last_of('}');
  for (std::size_t n = 0; n <= last; ++n) EXPECT_EQ(fault_of(text.substr(0, n)), "") << n;
  EXPECT_EQ(fault_of(text.substr(0, last + 1)), "accepted");
}

TEST(Hostile, TextWithAnyByteChanged) {
  const std::string text = layer_document({{"name", "caf\xc3\xa9"}, {"routing", {{"renormalize", true}}}}).dump();
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (int byte = 0; byte < 256; byte += 5) {
      std::string s = text;
      s[i] = static_cast<char>(byte);
      const auto c = parse_config(s);
      if (c) {
        EXPECT_TRUE(json::accept(s)) << s;
      } else {
        EXPECT_EQ(c.error().code, Code::invalid_config);
        EXPECT_TRUE(json::accept(json(c.error().message).dump())) << "the message is UTF-8";
      }
    }
  }
}

TEST(Hostile, TextBombs) {
  const std::string many_keys = [] {
    std::string s = "{";
    for (int i = 0; s.size() < 1'000'000; ++i) s += (i != 0 ? ",\"k" : "\"k") + std::to_string(i) + "\":0";
    return s + "}";
  }();
  const std::pair<std::string, std::string> cases[] = {
      {std::string(5'000'000, '['), ""},
      {"{\"name\":" + std::string(1'000'000, '['), ""},
      {std::string((1 << 20) + 1, ' '), ""},
      {"{\"name\":\"" + std::string(1'000'000, 'x') + "\"}", "/name"},
      {"{\"num_experts\":" + std::string(1'000'000, '9') + "}", ""},
      {"{\"num_experts\":0." + std::string(1'000'000, '9') + "e10}", "/num_experts"},
      {many_keys, "/k0"},
      {"{\"projection_names\":[" + std::string(500'000, '0') + "]}", ""},
      {std::string("{\"a\":1\0}", 8), ""},
      {"\xef\xbb\xbf{}", ""},
      {"{\"name\":\"\xff\"}", ""},
      {"{\"name\":\"\\ud800\"}", ""},
  };
  for (const auto& [text, pointer] : cases) {
    const double start = cpu_seconds();
    EXPECT_EQ(fault_of(text), pointer) << text.substr(0, 40);
#if defined(NDEBUG) && !MOE_ASAN && !MOE_TSAN
    EXPECT_LT(cpu_seconds() - start, text == many_keys ? 0.5 : 0.05) << text.substr(0, 40);
#endif
    // Nothing is quadratic; slow machines under sanitizers take several seconds.
    EXPECT_LT(cpu_seconds() - start, MOE_ASAN || MOE_TSAN ? 60.0 : 5.0) << text.substr(0, 40);
  }
}

}  // namespace
}  // namespace moe::test::hostile_test
