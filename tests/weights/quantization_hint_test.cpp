// Files and configs that do not agree on whether experts are quantized: the message says which is which and what helps,
// for every format, form and way in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "hf/hf.h"
#include "support/rooms.h"
#include "support/safetensors_writer.h"
#include "weights/weight_fixture.h"

namespace moe::test::quantization_hint_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kModule = "model.layers.0.mlp.experts.";
const char* const kReadPlain = R"(overrides {"quantization": null})";

std::shared_ptr<const Config> config(const std::string& quantization) {
  auto c = parse_config(R"({"name":"model.layers.0.mlp.experts","num_experts":2,"top_k":1,"hidden_dim":128,)"
                        R"("intermediate_size":128)" +
                        (quantization.empty() ? "" : ",\"hf_quantization_config\":" + quantization) + "}");
  EXPECT_TRUE(c) << quantization << c.error().message;
  return std::make_shared<const Config>(*std::move(c));
}

struct Tensor {
  std::string name, dtype;
  std::vector<std::int64_t> shape;
  int bytes;  // of an element
};

// By a file and by name.
void expect_messages(const std::string& quantization, const Tensor& t, const std::vector<const char*>& words,
                     bool by_name = true) {
  const TempDir dir;
  std::size_t size = static_cast<std::size_t>(t.bytes);
  for (const std::int64_t d : t.shape) size *= static_cast<std::size_t>(d);
  std::vector<std::byte> data(size);
  SafetensorsWriter w;
  w.add(t.name, t.dtype, t.shape, data.data(), data.size());
  dir.write("model.safetensors", w.bytes());
  WeightSet set(config(quantization));
  const Check loaded = set.load_safetensors(dir.path().c_str(), nullptr);
  ASSERT_FALSE(loaded) << quantization << t.name;
  for (const char* word : words) EXPECT_THAT(loaded.error().message, HasSubstr(word)) << quantization;
  if (!by_name) return;
  TensorView view;
  view.data = data.data();
  view.nbytes = data.size();
  view.dtype = dtype_from_safetensors(t.dtype);
  view.ndim = static_cast<int>(t.shape.size());
  std::int64_t stride = 1;
  for (std::size_t i = t.shape.size(); i-- > 0; stride *= t.shape[i]) {
    view.shape[i] = t.shape[i];
    view.strides[i] = stride;
  }
  const auto named = set.set_named(t.name, view, {});
  ASSERT_FALSE(named) << quantization << t.name;
  for (const char* word : words) EXPECT_THAT(named.error().message, HasSubstr(word)) << quantization;
}

TEST(QuantizationHint, PlainExpertsOfAQuantizedFile) {
  const auto compressed = [](const std::string& args) {
    return R"({"quant_method":"compressed-tensors","config_groups":{"g":{"targets":["Linear"],"weights":{)" + args +
           "}}}}";
  };
  for (const std::string& q : {
           std::string(R"({"quant_method":"gptq","bits":4,"group_size":128,"desc_act":false,"sym":true})"),
           std::string(R"({"quant_method":"awq","bits":4,"group_size":128,"zero_point":true})"),
           std::string(R"({"quant_method":"fp8","activation_scheme":"dynamic"})"),
           std::string(R"({"quant_method":"fp8","activation_scheme":"dynamic","weight_block_size":[128,128]})"),
           std::string(R"({"quant_method":"modelopt","quant_algo":"NVFP4"})"),
           std::string(R"({"quant_method":"modelopt","quant_algo":"MXFP8"})"),
           std::string(R"({"quant_method":"modelopt","quant_algo":"FP8"})"),
           compressed(R"("num_bits":4,"group_size":32)"),
           compressed(R"("num_bits":8,"strategy":"channel")"),
       })
    for (const char* dtype : {"BF16", "F16", "F32"}) {
      const int bytes = std::string(dtype) == "F32" ? 4 : 2;
      expect_messages(q, {kModule + "0.gate_proj.weight", dtype, {128, 128}, bytes},
                      {"plain", "not quantized", kReadPlain});
    }
  // In one tensor, where the format has no such form.
  expect_messages(R"({"quant_method":"gptq","bits":4,"group_size":128,"desc_act":false,"sym":true})",
                  {kModule + "gate_up_proj", "BF16", {2, 256, 128}, 2}, {"plain", kReadPlain}, false);
}

TEST(QuantizationHint, QuantizedExpertsOfAPlainConfig) {
  for (const Tensor& t : {Tensor{kModule + "0.gate_proj.weight", "U8", {128, 64}, 1},
                          Tensor{kModule + "0.gate_proj.weight", "F8_E4M3", {128, 128}, 1},
                          Tensor{kModule + "0.gate_proj.weight", "I8", {128, 128}, 1},
                          Tensor{kModule + "0.gate_proj.qweight", "I32", {16, 128}, 4},
                          Tensor{kModule + "0.gate_proj.weight_packed", "I32", {128, 16}, 4},
                          Tensor{kModule + "0.gate_proj.weight_scale", "F32", {128, 1}, 4},
                          Tensor{kModule + "0.gate_proj.scales", "F16", {1, 128}, 2}})
    expect_messages("", t, {"quantized", "hf_quant_config.json", "option quantization_config"});
  expect_messages("", {kModule + "gate_up_proj_blocks", "U8", {2, 256, 4, 16}, 1}, {"hf_quant_config.json"}, false);
}

TEST(QuantizationHint, StacksThatAreNotRead) {
  expect_messages(R"({"quant_method":"gptq","bits":4,"group_size":128,"desc_act":false,"sym":true})",
                  {kModule + "gate_up_proj", "I32", {2, 16, 256}, 4}, {"stacks", "gptq", "each expert by itself"},
                  false);
}

TEST(QuantizationHint, OtherFaultsHaveNone) {
  const TempDir dir;
  const std::vector<float> data(128 * 128);
  SafetensorsWriter w;
  w.add(kModule + "2.gate_proj.weight", "F32", {128, 128}, data.data(), data.size() * 4);
  dir.write("model.safetensors", w.bytes());
  WeightSet set(config(""));
  const Check loaded = set.load_safetensors(dir.path().c_str(), nullptr);
  ASSERT_FALSE(loaded);
  EXPECT_THAT(loaded.error().message, Not(HasSubstr("quantized")));
}

// The key of the file that says so stands beside our member.
TEST(QuantizationHint, ABiasThatTheFileDenies) {
  const TempDir dir;
  const std::vector<float> values(4);
  SafetensorsWriter w;
  w.add("model.layers.0.block_sparse_moe.e_score_correction_bias", "F32", {4}, values.data(), 16);
  dir.write("model.safetensors", w.bytes());
  const std::string file =
      R"({"architectures":["MiniMaxM2ForCausalLM"],"model_type":"minimax_m2","num_hidden_layers":1,"hidden_size":64,)"
      R"("intermediate_size":32,"num_local_experts":4,"num_experts_per_tok":2,"hidden_act":"silu",)"
      R"("scoring_func":"sigmoid","use_routing_bias":false})";
  struct Case {
    const char *options, *words;
  };
  for (const Case& c : {Case{"", "routing.e_score_correction_bias of the config (/use_routing_bias of config.json)"},
                        Case{R"({"overrides":{"routing":{"e_score_correction_bias":false}}})",
                             "(options:/overrides/routing/e_score_correction_bias)"}}) {
    auto made = hf::config_from_hf(file, c.options);
    ASSERT_TRUE(made) << made.error().message;
    WeightSet set(std::make_shared<const Config>(*std::move(made)));
    const Check loaded = set.load_safetensors(dir.path().c_str(), nullptr);
    ASSERT_FALSE(loaded);
    EXPECT_THAT(loaded.error().message, HasSubstr(c.words));
  }
}

}  // namespace
}  // namespace moe::test::quantization_hint_test
