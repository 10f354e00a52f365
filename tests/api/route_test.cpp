// moe_route: every golden vector through moe.h with each instruction set, where a bias may come from, refusals.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "base/platform.h"
#include "support/capi.h"
#include "support/rooms.h"
#include "support/vectors.h"

namespace moe::test::route_test {
namespace {

// MOE_MAX_ISA for a scope.
class MaxIsa {
 public:
  explicit MaxIsa(const char* word) { ::setenv("MOE_MAX_ISA", word, 1); }
  ~MaxIsa() {
    if (before_.empty())
      ::unsetenv("MOE_MAX_ISA");
    else
      ::setenv("MOE_MAX_ISA", before_.c_str(), 1);
  }
  MaxIsa(const MaxIsa&) = delete;
  MaxIsa& operator=(const MaxIsa&) = delete;

 private:
  std::string before_ = std::getenv("MOE_MAX_ISA") == nullptr ? "" : std::getenv("MOE_MAX_ISA");
};

nlohmann::json document(std::int64_t experts, std::int64_t top_k, nlohmann::json routing) {
  return {{"num_experts", experts},
          {"top_k", top_k},
          {"hidden_dim", 64},
          {"intermediate_size", 64},
          {"routing", std::move(routing)}};
}

// Logits, a bias if there is one, and the results of one call.
struct Routing {
  moe_tensor logits{}, bias{};
  bool has_bias = false;
  std::int64_t tokens = 0, width = 0;
  std::vector<std::int32_t> ids;
  std::vector<float> weights;

  Routing(const VecTensor& x, std::int64_t slots)
      : logits(tensor(static_cast<moe_dtype>(x.dtype), {x.shape[0], x.shape[1]}, x.data.data())),
        tokens(x.shape[0]),
        width(slots),
        ids(static_cast<std::size_t>(tokens * width), -7),
        weights(ids.size(), -7.0f) {}
  void with_bias(const VecTensor& b) {
    bias = tensor(static_cast<moe_dtype>(b.dtype), {b.shape[0]}, b.data.data());
    has_bias = true;
  }
  Failure run(const moe_config* config, moe_context* ctx = nullptr) {
    const moe_tensor i = tensor(MOE_DTYPE_I32, {tokens, width}, ids.data()),
                     w = tensor(MOE_DTYPE_F32, {tokens, width}, weights.data());
    const moe_route_args args{sizeof args, 0, &logits, has_bias ? &bias : nullptr, &i, &w};
    return failure([&](moe_error** e) { return moe_route(ctx, config, &args, e); });
  }
};

// --- the vectors of routing/index.json (routing.md 12) ---------------------------------------------------

// How a case of the index is asked for.
nlohmann::json document_of(const nlohmann::json& k, std::int64_t columns) {
  nlohmann::json routing = k["params"];
  const std::string method = k["method"];
  const std::int64_t top_k = routing["top_k"];
  routing.erase("top_k");
  std::int64_t experts = columns;
  if (method == "topk_then_softmax") routing = {{"renormalize", true}};
  if (method == "topk_raw") routing = {{"method", "topk"}};
  if (method == "llama4") routing = {{"scoring_func", "sigmoid"}, {"renormalize", false}};
  if (method == "sparsemixer") routing["method"] = "sparsemixer";
  if (method == "hash") routing["hash_routing"] = true;
  if (method == "zero_experts") {
    experts = routing["num_real"];
    routing.erase("num_real");
    routing["num_zero_experts"] = columns - experts;
    routing["e_score_correction_bias"] = true;
  }
  nlohmann::json d = document(experts, top_k, routing);
  d["router_logits_dtype"] = k["logits_dtype"] == "bf16"   ? "bfloat16"
                             : k["logits_dtype"] == "fp16" ? "float16"
                                                           : "float32";
  return d;
}

void run_index(const char* isa) {
  const MaxIsa cap(isa);
  const auto index = load_json("routing/index.json");
  int cases = 0;
  for (const auto& k : index["cases"]) {
    const std::string name = k["file"];
    const VecFile file = load_vectors("routing/" + name);
    const VecTensor& logits = file.at("logits");
    const bool zero = k["method"] == "zero_experts";
    const auto ids = file.at(zero ? "routed_ids" : "topk_ids").as<std::int32_t>();
    const auto weights = file.at(zero ? "routed_weights" : "topk_weights").floats();
    const ConfigPtr config = make_config(document_of(k, logits.shape[1]).dump());
    Routing r(logits, k["params"]["top_k"]);
    if (file.has("e_score_correction_bias")) r.with_bias(file.at("e_score_correction_bias"));
    if (k["method"] == "hash") r.ids = ids;  // the caller's own look-up, left as it is
    const Failure f = r.run(config.get());
    ASSERT_EQ(f.status, MOE_OK) << name << ": " << f.message;
    EXPECT_EQ(r.ids, ids) << name << " " << isa;
    ASSERT_EQ(r.weights.size(), weights.size());
    for (std::size_t i = 0; i < weights.size(); ++i)
      EXPECT_LE(std::abs(r.weights[i] - weights[i]), 1e-6f + 2e-6f * std::abs(weights[i])) << name << " " << i;
    ++cases;
  }
  EXPECT_EQ(cases, 89);
}

TEST(RouteVectors, IndexOnTheBestIsa) { run_index(""); }
TEST(RouteVectors, IndexOnAvx2) { run_index("avx2"); }
TEST(RouteVectors, IndexOnTheScalarDefinition) { run_index("scalar"); }

TEST(RouteVectors, HashIdsAreTheTablesRows) {
  const VecFile f = load_vectors("routing/hash_route.safetensors");
  const auto table = f.at("table").as<std::int32_t>(), ids = f.at("topk_ids").as<std::int32_t>();
  const auto tokens = f.at("input_ids").as<std::int32_t>();
  ASSERT_EQ(f.at("input_ids").dtype, DType::i32);
  for (std::size_t t = 0; t < tokens.size(); ++t)
    for (std::size_t j = 0; j < 4; ++j) EXPECT_EQ(ids[t * 4 + j], table[static_cast<std::size_t>(tokens[t]) * 4 + j]);
}

TEST(RouteVectors, ErrorCases) {
  struct Row {
    const char *why, *pointer;
  };
  const Row rows[] = {{"top_k > num_experts", "/top_k"},
                      {"top_k < 1", "/top_k"},
                      {"indivisible groups", "/routing/num_expert_group"},
                      {"one expert per group with bias", "/routing/num_expert_group"},
                      {"topk_group > groups", "/routing/topk_group"},
                      {"topk_group < 1", "/routing/topk_group"},
                      {"too few experts left", "/routing/topk_group"},
                      {"scoring_func", "/routing/scoring_func"}};
  std::size_t cases = 0;
  const auto document_list = load_json("routing/error_cases.json");
  for (const auto& c : document_list["cases"]) {
    nlohmann::json routing = c["params"];
    const std::int64_t experts = routing["num_experts"], top_k = routing["top_k"];
    for (const char* name : {"num_experts", "top_k"}) routing.erase(name);
    if (routing.contains("has_bias")) routing["e_score_correction_bias"] = routing["has_bias"];
    routing.erase("has_bias");
    const std::string text = document(experts, top_k, routing).dump();
    moe_config* config = nullptr;
    const Failure f = failure([&](moe_error** e) { return moe_config_create(text.data(), text.size(), &config, e); });
    EXPECT_EQ(f.status, MOE_ERR_INVALID_CONFIG) << c["why"];
    EXPECT_EQ(config, nullptr);
    const auto* row = std::find_if(std::begin(rows), std::end(rows), [&](const Row& r) { return c["why"] == r.why; });
    ASSERT_NE(row, std::end(rows)) << c["why"];
    EXPECT_EQ(f.subject, row->pointer) << c["why"];
    ++cases;
  }
  EXPECT_EQ(cases, std::size(rows));
}

// --- the correction bias (routing.md 13) -------------------------------------------------------------------

TEST(RouteBias, OneSourceAndNoneMissing) {
  const std::vector<float> logits = {0, 0, 0, 0}, bias = {0, 0.5f, 0, 1};
  const nlohmann::json wants = {{"scoring_func", "sigmoid"}, {"e_score_correction_bias", true}},
                       has = {{"scoring_func", "sigmoid"}, {"e_score_correction_bias", bias}},
                       none = {{"scoring_func", "sigmoid"}};
  const auto run = [&](const nlohmann::json& routing, const moe_tensor* b, std::vector<std::int32_t>* out = nullptr) {
    const ConfigPtr config = make_config(document(4, 2, routing).dump());
    std::vector<std::int32_t> ids(2, -7);
    std::vector<float> weights(2, -7.0f);
    const moe_tensor l = tensor(MOE_DTYPE_F32, {1, 4}, logits.data()), i = tensor(MOE_DTYPE_I32, {1, 2}, ids.data()),
                     w = tensor(MOE_DTYPE_F32, {1, 2}, weights.data());
    const moe_route_args args{sizeof args, 0, &l, b, &i, &w};
    const Failure f = failure([&](moe_error** e) { return moe_route(nullptr, config.get(), &args, e); });
    if (out != nullptr) *out = ids;
    EXPECT_EQ(ids[0] == -7, f.status != MOE_OK) << f.message;
    return f;
  };
  std::vector<std::uint16_t> half;
  for (float b : bias) half.push_back(f32_to_bf16(b));
  const moe_tensor flat = tensor(MOE_DTYPE_F32, {4}, bias.data()), row = tensor(MOE_DTYPE_BF16, {1, 4}, half.data());
  const std::vector<std::int32_t> want = {3, 1};
  for (const moe_tensor* b : {&flat, &row}) {
    std::vector<std::int32_t> ids;
    EXPECT_EQ(run(wants, b, &ids).status, MOE_OK);
    EXPECT_EQ(ids, want);
  }
  std::vector<std::int32_t> ids;
  EXPECT_EQ(run(has, nullptr, &ids).status, MOE_OK);
  EXPECT_EQ(ids, want);

  const auto expect = [](const Failure& f, moe_status status, const char* subject) {
    EXPECT_EQ(f.status, status) << f.message;
    EXPECT_EQ(f.subject, subject);
  };
  expect(run(wants, nullptr), MOE_ERR_MISSING_WEIGHT, "correction_bias");
  expect(run(has, &flat), MOE_ERR_UNEXPECTED_WEIGHT, "correction_bias");
  expect(run(none, &flat), MOE_ERR_UNEXPECTED_WEIGHT, "correction_bias");
  const moe_tensor three = tensor(MOE_DTYPE_F32, {3}, bias.data()), column = tensor(MOE_DTYPE_F32, {4, 1}, bias.data()),
                   cube = tensor(MOE_DTYPE_F32, {1, 1, 4}, bias.data()),
                   whole = tensor(MOE_DTYPE_I32, {4}, bias.data());
  expect(run(wants, &three), MOE_ERR_SHAPE, "correction_bias");
  expect(run(wants, &column), MOE_ERR_SHAPE, "correction_bias");
  expect(run(wants, &cube), MOE_ERR_SHAPE, "correction_bias");
  expect(run(wants, &whole), MOE_ERR_DTYPE, "correction_bias");
  std::vector<float> broken = bias;
  broken[2] = std::numeric_limits<float>::quiet_NaN();
  const moe_tensor nan = tensor(MOE_DTYPE_F32, {4}, broken.data());
  expect(run(wants, &nan), MOE_ERR_INVALID_ARGUMENT, "correction_bias[2]");
}

// --- shapes and modes of the methods -------------------------------------------------------------------------

TEST(RouteMethods, CustomIsTheCallers) {
  const ConfigPtr config = make_config(document(4, 2, {{"method", "custom"}}).dump());
  const VecTensor zeros{DType::f32, {1, 4}, std::vector<std::byte>(16)};  // outlives the call
  Routing r(zeros, 2);
  const Failure f = r.run(config.get());
  EXPECT_EQ(f.status, MOE_ERR_UNSUPPORTED);
  EXPECT_EQ(f.subject, "/routing/method");
  EXPECT_EQ(r.ids, (std::vector<std::int32_t>{-7, -7}));
}

TEST(RouteMethods, FusedSharedExpertsComeLastWithWeightOne) {
  const std::vector<float> x = {1, 3, 2, 0};
  VecTensor logits{DType::f32, {1, 4}, std::vector<std::byte>(16)};
  std::memcpy(logits.data.data(), x.data(), 16);
  nlohmann::json routing = {{"num_fused_shared_experts", 2}, {"routed_scaling_factor", 4.0}};
  const ConfigPtr config = make_config(document(4, 2, routing).dump());
  Routing r(logits, 4);
  ASSERT_EQ(r.run(config.get()).status, MOE_OK);
  EXPECT_EQ(r.ids, (std::vector<std::int32_t>{1, 2, 4, 5}));
  EXPECT_NEAR(r.weights[0] + r.weights[1], 4.0f, 1e-6f);
  EXPECT_EQ(r.weights[2], 1.0f);
  EXPECT_EQ(r.weights[3], 1.0f);
  Routing narrow(logits, 2);
  EXPECT_EQ(narrow.run(config.get()).status, MOE_ERR_SHAPE);
}

TEST(RouteMethods, HashIdsAreChecked) {
  const ConfigPtr config = make_config(document(4, 2, {{"hash_routing", true}, {"scoring_func", "sigmoid"}}).dump());
  for (const std::int32_t bad : {-1, 4, 1 << 30}) {
    const VecTensor zeros{DType::f32, {2, 4}, std::vector<std::byte>(32)};  // outlives the call
    Routing r(zeros, 2);
    r.ids = {0, 3, bad, 1};
    const Failure f = r.run(config.get());
    EXPECT_EQ(f.status, MOE_ERR_INVALID_ARGUMENT);
    EXPECT_EQ(f.subject, "out_topk_ids[1,0]");
    EXPECT_EQ(r.weights[0], -7.0f);
  }
  const VecTensor zeros{DType::f32, {2, 4}, std::vector<std::byte>(32)};  // outlives the call
  Routing r(zeros, 2);
  r.ids = {3, 3, 0, 1};  // repeats are the caller's choice
  ASSERT_EQ(r.run(config.get()).status, MOE_OK);
  EXPECT_EQ(r.ids, (std::vector<std::int32_t>{3, 3, 0, 1}));
  EXPECT_EQ(r.weights, std::vector<float>(4, 0.5f));
}

TEST(RouteMethods, NoTokensIsFine) {
  const ConfigPtr config = make_config(document(4, 2, {{"scoring_func", "sigmoid"}}).dump());
  const VecTensor zeros{DType::f32, {0, 4}, std::vector<std::byte>(16)};  // outlives the call
  Routing r(zeros, 2);
  EXPECT_EQ(r.run(config.get()).status, MOE_OK);
}

TEST(RouteCall, Refusals) {
  const Model m = random_model();
  const ConfigPtr config = make_config(m.config_text());
  std::vector<std::int32_t> ids(10, 77);
  std::vector<float> weights(10, 77.0f), bias(4);
  struct Tensors {
    moe_tensor logits, ids, weights, bias;
    moe_route_args args;
  };
  struct Row {
    moe_status status;
    const char* subject;
    std::function<void(Tensors&)> spoil;
  };
  const Row rows[] = {
      {MOE_ERR_INVALID_ARGUMENT, "router_logits", [](Tensors& t) { t.args.router_logits = nullptr; }},
      {MOE_ERR_INVALID_ARGUMENT, "out_topk_ids", [](Tensors& t) { t.args.out_topk_ids = nullptr; }},
      {MOE_ERR_INVALID_ARGUMENT, "args", [](Tensors& t) { t.args.struct_size = 0; }},
      {MOE_ERR_INVALID_ARGUMENT, "args", [](Tensors& t) { t.args.reserved0 = 1; }},
      {MOE_ERR_SHAPE, "correction_bias", [](Tensors& t) { t.args.correction_bias = &t.weights; }},
      {MOE_ERR_DTYPE, "correction_bias", [](Tensors& t) { t.args.correction_bias = &t.ids; }},
      {MOE_ERR_UNEXPECTED_WEIGHT, "correction_bias", [](Tensors& t) { t.args.correction_bias = &t.bias; }},
      {MOE_ERR_DTYPE, "router_logits", [](Tensors& t) { t.logits.dtype = MOE_DTYPE_F64; }},
      {MOE_ERR_SHAPE, "router_logits", [](Tensors& t) { t.logits.shape[1] = 5; }},
      {MOE_ERR_SHAPE, "out_topk_weights", [](Tensors& t) { t.weights.shape[1] = 3; }},
      {MOE_ERR_INVALID_ARGUMENT, "out_topk_weights", [](Tensors& t) { t.weights.data = t.ids.data; }},
      {MOE_ERR_INVALID_ARGUMENT, "out_topk_ids", [](Tensors& t) { t.ids.data = t.logits.data; }},
  };
  for (const Row& r : rows) {
    Tensors t{tensor(MOE_DTYPE_F32, {m.T, m.E}, m.logits.data()),
              tensor(MOE_DTYPE_I32, {m.T, m.K}, ids.data()),
              tensor(MOE_DTYPE_F32, {m.T, m.K}, weights.data()),
              tensor(MOE_DTYPE_F32, {m.E}, bias.data()),
              {}};
    t.args = {sizeof(moe_route_args), 0, &t.logits, nullptr, &t.ids, &t.weights};
    r.spoil(t);
    const Failure f = failure([&](moe_error** e) { return moe_route(nullptr, config.get(), &t.args, e); });
    EXPECT_EQ(f.status, r.status) << r.subject << f.message;
    EXPECT_EQ(f.subject, r.subject);
    EXPECT_EQ(ids, std::vector<std::int32_t>(10, 77));
    EXPECT_EQ(weights, std::vector<float>(10, 77.0f));
  }
}

TEST(RouteCall, UpstreamsVectors) {
  const VecFile f = load_vectors("w4a8_int8/routing.safetensors");
  int count = 0;
  for (const auto& c : nlohmann::json::parse(f.meta.at("cases"))) {
    const auto name = c["name"].get<std::string>();
    if (name.rfind("topk_", 0) != 0) continue;
    const VecTensor& logits = f.at(name + ".logits");
    const std::int64_t T = logits.shape[0], E = logits.shape[1], K = c["top_k"];
    Model m;
    m.E = E;
    m.K = K;
    m.compat = "vllm";
    auto text = nlohmann::json::parse(m.config_text());
    text["router_logits_dtype"] = text["in_dtype"] = text["out_dtype"] = c["logits_dtype"];
    text["routing"] = {{"renormalize", c["renormalize"]}};
    const ConfigPtr config = make_config(text.dump());
    std::vector<std::int32_t> ids(static_cast<std::size_t>(T * K));
    std::vector<float> weights(ids.size());
    const moe_tensor l = tensor(static_cast<moe_dtype>(logits.dtype), {T, E}, logits.data.data()),
                     i = tensor(MOE_DTYPE_I32, {T, K}, ids.data()), w = tensor(MOE_DTYPE_F32, {T, K}, weights.data());
    const moe_route_args args{sizeof args, 0, &l, nullptr, &i, &w};
    ASSERT_EQ(moe_route(nullptr, config.get(), &args, nullptr), MOE_OK) << name;
    EXPECT_EQ(ids, f.at(name + ".ids").as<std::int32_t>()) << name;
    const auto want = f.at(name + ".weights").floats();
    const float bound = logits.dtype == DType::f32 ? 1e-6f : logits.dtype == DType::f16 ? 0x1p-10f : 0x1p-7f;
    for (std::size_t j = 0; j < want.size(); ++j) EXPECT_NEAR(weights[j], want[j], bound * want[j]) << name << " " << j;
    ++count;
  }
  EXPECT_EQ(count, 18);
}

}  // namespace
}  // namespace moe::test::route_test
