// Checkpoint directories from config.json to outputs: those of Hugging Face's own classes (tests/vectors/hf), and files
// that llmcompressor and GPTQModel wrote (tests/vectors/hf_quantized). Golden: ids, weights and sums of one layer.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "support/capi.h"
#include "support/describe.h"
#include "support/hf_checkpoint.h"
#include "support/rooms.h"

namespace moe::test::hf_checkpoints_test {
namespace {

using nlohmann::json;

struct Checkpoint {
  std::string path;  // of the directory
  json manifest;
  VecFile golden;
};

// A layer of a directory, as somebody would make it who knows the directory alone.
Steps layer_of(const Checkpoint& c, const json& overrides = json::object(), const json& architecture = nullptr) {
  Steps s;
  s.context = make_context("{\"threads\":2}");
  const std::string file = read_text(c.path + "/config.json");
  json given = {{"layer_index", c.manifest["layer_index"]}, {"overrides", overrides}};
  if (!architecture.is_null()) given["architecture"] = architecture;
  const std::string options = given.dump();
  s.config = make<ConfigPtr>([&](moe_config** o, moe_error** e) {
    return moe_config_create_from_hf(file.data(), file.size(), options.data(), options.size(), o, e);
  });
  if (!s.config) return s;
  s.selection = make_selection(s.config.get(), s.context.get());
  s.weights =
      make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(s.config.get(), o, e); });
  if (!s.selection || !s.weights) return s;
  const Failure load =
      failure([&](moe_error** e) { return moe_weights_load_safetensors(s.weights.get(), c.path.c_str(), nullptr, e); });
  EXPECT_EQ(load.status, MOE_OK) << load.message;
  s.packed = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
    return moe_convert_weights(s.context.get(), s.selection.get(), s.weights.get(), nullptr, o, e);
  });
  if (!s.packed) return s;
  s.layer = make<LayerPtr>([&](moe_layer** o, moe_error** e) {
    return moe_layer_create(s.context.get(), s.selection.get(), s.packed.get(), nullptr, o, e);
  });
  return s;
}

moe_tensor tensor_of(const VecTensor& t) { return tensor(static_cast<moe_dtype>(t.dtype), t.shape, t.data.data()); }

struct Output {
  std::vector<float> out;
  std::vector<std::int32_t> ids;  // that routing chose
};

Output run(const moe_layer* layer, const VecFile& golden, bool logits) {
  const VecTensor &hidden = golden.at("hidden"), &ids = golden.at("topk_ids");
  Output r{{}, std::vector<std::int32_t>(ids.data.size() / 4)};
  std::vector<std::byte> out(hidden.data.size());
  const moe_tensor x = tensor_of(hidden), l = tensor_of(golden.at("logits")), i = tensor_of(ids),
                   w = tensor_of(golden.at("topk_weights")), y = tensor(x.dtype, hidden.shape, out.data()),
                   chosen = tensor(MOE_DTYPE_I32, ids.shape, r.ids.data());
  moe_apply_args a{};
  a.struct_size = sizeof a;
  a.mode = logits ? MOE_APPLY_ROUTER_LOGITS : MOE_APPLY_TOPK;
  a.hidden = &x;
  a.out = &y;
  (logits ? a.router_logits : a.topk_ids) = logits ? &l : &i;
  (logits ? a.out_topk_ids : a.topk_weights) = logits ? &chosen : &w;
  const Failure f = failure([&](moe_error** e) { return moe_apply(layer, &a, e); });
  EXPECT_EQ(f.status, MOE_OK) << f.message;
  r.out = floats_of(out, x.dtype);
  return r;
}

// max|d| / max|want|, want times `factor`.
double distance(const std::vector<float>& got, const VecTensor& golden, double factor) {
  const std::vector<float> want = golden.floats();
  double error = 0, most = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    error = std::max(error, std::abs(static_cast<double>(got.at(i)) - factor * static_cast<double>(want[i])));
    most = std::max(most, std::abs(factor * static_cast<double>(want[i])));
  }
  return error / most;
}

std::set<std::int32_t> ids_of(const std::vector<std::int32_t>& ids, std::size_t token, std::size_t k) {
  const auto first = ids.begin() + static_cast<std::ptrdiff_t>(token * k);
  return {first, first + static_cast<std::ptrdiff_t>(k)};
}

void expect_same_ids(const Output& got, const VecFile& golden) {
  const std::vector<std::int32_t> want = golden.at("topk_ids").as<std::int32_t>();
  const auto k = static_cast<std::size_t>(golden.at("topk_ids").shape[1]);
  for (std::size_t t = 0; t < want.size() / k; ++t)  // orders differ by architecture
    EXPECT_EQ(ids_of(got.ids, t, k), ids_of(want, t, k)) << "token " << t;
}

class HfClass : public ::testing::TestWithParam<const char*> {};

TEST_P(HfClass, GivesItsOwnOutput) {
  const TempDir dir;
  write_hf_checkpoint(GetParam(), dir);
  const std::string folder = std::string("hf/") + GetParam() + "/";
  const Checkpoint c{dir.path(), load_json(folder + "manifest.json"), load_vectors(folder + "golden.safetensors")};
  const bool scaled = c.manifest["scaled"] == true;  // the golden weights hold the factor
  const double after = c.manifest["factor_after"];
  constexpr double kBound = 1e-2;  // bfloat16
  {
    const Steps s = layer_of(c);
    ASSERT_NE(s.layer, nullptr);
    const Output got = run(s.layer.get(), c.golden, true);
    expect_same_ids(got, c.golden);
    EXPECT_LE(distance(got.out, c.golden.at("out"), after), kBound);
  }
  const Steps s = layer_of(c, {{"routing", {{"topk_weights_hold_factor", scaled}}}});
  ASSERT_NE(s.layer, nullptr);
  EXPECT_LE(distance(run(s.layer.get(), c.golden, false).out, c.golden.at("out"), after), kBound);
  const Output routed = run(s.layer.get(), c.golden, true);
  expect_same_ids(routed, c.golden);
  EXPECT_LE(distance(routed.out, c.golden.at("out"), after), kBound);
}

INSTANTIATE_TEST_SUITE_P(
    HfCheckpoints, HfClass,
    ::testing::Values("AfmoeForCausalLM-base", "BailingHybridForCausalLM-base", "Cohere2MoeForCausalLM-base",
                      "DeepseekV2ForCausalLM-greedy", "DeepseekV2ForCausalLM-group_limited",
                      "DeepseekV32ForCausalLM-base", "DeepseekV3ForCausalLM-base", "DeepseekV4ForCausalLM-base",
                      "Dots1ForCausalLM-base", "Ernie4_5_MoeForCausalLM-base", "ExaoneMoeForCausalLM-base",
                      "FlexOlmoForCausalLM-base", "Gemma4ForCausalLM-base", "Glm4MoeForCausalLM-base",
                      "Glm4MoeLiteForCausalLM-base", "Glm4vMoeForConditionalGeneration-base",
                      "GlmMoeDsaForCausalLM-base", "GptOssForCausalLM-base", "GraniteMoeForCausalLM-base",
                      "GraniteMoeHybridForCausalLM-base", "GraniteMoeSharedForCausalLM-base", "HYV3ForCausalLM-base",
                      "HunYuanMoEV1ForCausalLM-base", "Inkling2ForCausalLM-base", "JambaForCausalLM-base",
                      "KimiLinearForCausalLM-base", "Lfm2MoeForCausalLM-base", "Llama4ForCausalLM-base",
                      "Llama4ForConditionalGeneration-base", "LongcatFlashForCausalLM-base",
                      "MiMoV2FlashForCausalLM-base", "MiniMaxForCausalLM-base", "MiniMaxM2ForCausalLM-base",
                      "MiniMaxM3SparseForConditionalGeneration-base", "Mistral4ForCausalLM-base",
                      "MixtralForCausalLM-base", "MuseSparkForConditionalGeneration-base", "NemotronHForCausalLM-base",
                      "OlmoeForCausalLM-base", "PhimoeForCausalLM-base", "Qwen2MoeForCausalLM-base",
                      "Qwen3MoeForCausalLM-base", "Qwen3NextForCausalLM-base",
                      "Qwen3OmniMoeThinkerForConditionalGeneration-base", "Qwen3VLMoeForConditionalGeneration-base",
                      "Qwen3_5MoeForCausalLM-base", "Qwen3_5MoeForConditionalGeneration-base"));

// A class that nobody knows: its files describe it, and somebody says what they do not tell.
struct Unknown {
  const char* hf_case;
  const char* patch;   // of the description
  std::size_t unsure;  // sentences
};
class HfUnknownClass : public ::testing::TestWithParam<Unknown> {};

// [name, shape] of what the directory has.
json tensors_of(const std::string& directory) {
  json all = json::array();
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() != ".safetensors") continue;
    const std::string bytes = read_text(entry.path().string());
    std::uint64_t size = 0;
    std::memcpy(&size, bytes.data(), sizeof size);
    const json header = json::parse(bytes.substr(sizeof size, size));
    for (const auto& [name, tensor] : header.items())
      if (name != "__metadata__") all.push_back(json::array({name, tensor["shape"]}));
  }
  return all;
}

TEST_P(HfUnknownClass, IsReadByItsDescription) {
  const TempDir dir;
  SCOPED_TRACE(GetParam().hf_case);
  write_hf_checkpoint(GetParam().hf_case, dir);
  const std::string folder = std::string("hf/") + GetParam().hf_case + "/";
  const Checkpoint c{dir.path(), load_json(folder + "manifest.json"), load_vectors(folder + "golden.safetensors")};
  json file = json::parse(read_text(c.path + "/config.json"));
  file["architectures"] = {"NoveltyForCausalLM"};
  if (file.contains("text_config")) file["text_config"].erase("model_type");  // else that says what it is
  const std::string text = file.dump();
  std::ofstream(c.path + "/config.json") << text;
  moe_config* none = nullptr;
  const Failure refused =
      failure([&](moe_error** e) { return moe_config_create_from_hf(text.data(), text.size(), nullptr, 0, &none, e); });
  EXPECT_EQ(refused.status, MOE_ERR_UNSUPPORTED);
  EXPECT_EQ(refused.subject, "/architectures/0");
  EXPECT_EQ(refused.details["nearest"].size(), 3U);  // by its keys

  const Described seen = describe("checkpoint", json{{"config", file}, {"tensors", tensors_of(c.path)}}.dump());
  ASSERT_EQ(seen.why.status, MOE_OK) << seen.why.message;
  EXPECT_EQ(seen.answer["unsure"].size(), GetParam().unsure) << seen.answer["unsure"];
  json architecture = seen.answer["architecture"];
  architecture.merge_patch(json::parse(GetParam().patch));
  const Steps s = layer_of(c, json::object(), architecture);
  ASSERT_NE(s.layer, nullptr) << architecture;
  const Output got = run(s.layer.get(), c.golden, true);
  expect_same_ids(got, c.golden);
  EXPECT_LE(distance(got.out, c.golden.at("out"), c.manifest["factor_after"]), 1e-2);
}

INSTANTIATE_TEST_SUITE_P(
    HfCheckpoints, HfUnknownClass,
    ::testing::Values(
        Unknown{"Qwen3MoeForCausalLM-base", R"({"routing": {"scoring_func": "softmax"}})", 3},
        Unknown{"MixtralForCausalLM-base", R"({"routing": {"scoring_func": "softmax", "renormalize": true}})", 3},
        Unknown{"DeepseekV3ForCausalLM-base",
                R"({"routing": {"scoring_func": "sigmoid", "apply_routed_scale_to_output": true}})", 2},
        Unknown{"GraniteMoeForCausalLM-base",  // w13 of the tiny model is square
                R"({"stacked": "rows_first", "routing": {"scoring_func": "softmax", "renormalize": true}})", 4},
        Unknown{"Qwen3VLMoeForConditionalGeneration-base",
                R"({"stacked": "rows_first", "routing": {"scoring_func": "softmax", "renormalize": true}})", 6}));

class ToolsFile : public ::testing::TestWithParam<const char*> {};

// Rows of the dequantized weights that the tool itself gives, of the experts and rows in the manifest: at most `bound`
// of a number away, and `least`.
void expect_rows(const Checkpoint& c, const moe_packed* packed, const json& config, float bound, float least) {
  const json& of = c.manifest["rows_of"];
  for (const bool is_w13 : {true, false}) {
    const char* name = is_w13 ? "w13" : "w2";
    const std::int64_t h = config["hidden_dim"], i = config["intermediate_size_per_partition"];
    const std::int64_t n = is_w13 ? 2 * i : h, k = is_w13 ? h : i;
    const std::vector<float> rows = c.golden.at(std::string(name) + "_rows").floats();
    std::vector<float> all(static_cast<std::size_t>(n * k));
    std::size_t at = 0;
    for (const std::int64_t expert : of["experts"]) {
      const moe_tensor out = tensor(MOE_DTYPE_F32, {n, k}, all.data());
      const std::string role = std::string(name) + "_weight";
      ASSERT_EQ(moe_packed_dequantize(packed, role.c_str(), expert, &out, nullptr), MOE_OK);
      for (const std::size_t row : of[name])
        for (std::size_t column = 0; column < static_cast<std::size_t>(k); ++column, ++at)
          ASSERT_NEAR(all[row * static_cast<std::size_t>(k) + column], rows.at(at),
                      bound * std::abs(rows.at(at)) + least)
              << role << " expert " << expert << " row " << row << " column " << column;
    }
    EXPECT_EQ(at, rows.size());
  }
}

// Weights of floats are exact, and 16-bit activations close to those that nobody quantized.
bool has_float_activations(const std::string& name) {
  return name.find("fp8") != std::string::npos || name.find("fp4") != std::string::npos;
}
// llmcompressor rounds what it makes of NVFP4 weights to bfloat16.
bool has_rounded_rows(const std::string& name) { return name.find("nvfp4") != std::string::npos; }

TEST_P(ToolsFile, GivesTheToolsOutput) {
  const bool floats = has_float_activations(GetParam()), exact = floats && !has_rounded_rows(GetParam());
  const std::string folder = std::string("hf_quantized/") + GetParam() + "/";
  const Checkpoint c{vector_path(folder), load_json(folder + "manifest.json"),
                     load_vectors(folder + "golden.safetensors")};
  const Steps s = layer_of(c);
  ASSERT_NE(s.layer, nullptr);
  const double bound = floats ? 0.008 : c.manifest["bound"].get<double>();
  for (const bool logits : {true, false}) {
    const Output got = run(s.layer.get(), c.golden, logits);
    if (logits) expect_same_ids(got, c.golden);
    const bool alone = floats && c.golden.has("out_no_act_quant");
    double nearest = distance(got.out, c.golden.at(alone ? "out_no_act_quant" : "out"), 1);
    if (c.golden.has("out_no_act_quant"))
      nearest = std::min(nearest, distance(got.out, c.golden.at("out_no_act_quant"), 1));
    EXPECT_LE(nearest, bound) << (logits ? "logits" : "topk");
  }
  expect_rows(c, s.packed.get(),
              json_of([&](moe_buffer** o, moe_error** e) { return moe_config_to_json(s.config.get(), o, e); }),
              exact ? 1e-6f : 1e-2f, exact ? 0.0f : 1e-6f);
}

INSTANTIATE_TEST_SUITE_P(HfCheckpoints, ToolsFile,
                         ::testing::Values("mixtral-w4a16-g32", "mixtral-gptqmodel-gptq-g32-sym",
                                           "qwen3-gptqmodel-awq-gemm-g32-sym", "qwen3-gptq-w4a16-actorder-weight",
                                           "qwen3-w8a8", "qwen3-w8a8-cfg-tensor", "qwen3-fp8-block",
                                           "qwen3-fp8-dynamic", "qwen3-fp8-static", "qwen3-mxfp8", "qwen3-w4afp8",
                                           "gptoss-mxfp4", "qwen3-mxfp4", "qwen3-nvfp4", "qwen3-nvfp4a16",
                                           "qwen3-ar-w4g128sym-auto_gptq", "qwen3-ar-w4g32sym-llm_compressor",
                                           "qwen3-ar-w4g128sym-auto_round", "qwen3-ar-w4g32asym-auto_round",
                                           "qwen3-mo-mxfp4", "qwen3-mo-v4int4awq", "gptoss-mo-nvfp4", "qwen3-qk-mxfp4",
                                           "qwen3-qk-fp8", "qwen3-qk-int4wo128", "qwen3-t5-tao-int8wo-experts"));

}  // namespace
}  // namespace moe::test::hf_checkpoints_test
