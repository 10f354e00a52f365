// Which file says how the experts are quantized.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/model_dir.h"
#include "support/rooms.h"
#include "support/temp_dir.h"

namespace moe::test::quantization_test {
namespace {

using testing::HasSubstr;

class QuantizationFiles : public testing::Test {
 protected:
  TempDir dir;
  std::string at = dir.file("model");
  ModelDir model;

  nlohmann::json quantization_of(const CheckpointPtr& c, std::int64_t layer = 0) const {
    const ConfigPtr config = config_of(c.get(), layer);
    return json_of(
        [&](moe_buffer** o, moe_error** e) { return moe_config_to_json(config.get(), o, e); })["quantization"];
  }
};

TEST_F(QuantizationFiles, OfConfigJsonElseOfATool) {
  model.write(at);
  const nlohmann::json own = quantization_of(open_model(at));
  for (const char* file : {"hf_quant_config.json", "quantize_config.json"}) {
    TempDir other;
    model.quantization = file;
    model.write(other.file("model"));
    const CheckpointPtr c = open_model(other.file("model"));
    EXPECT_EQ(describe(c.get())["quantization_from"], file);
    EXPECT_EQ(quantization_of(c), own);
  }
}

TEST_F(QuantizationFiles, FilesThatDisagreeAreRefused) {
  model.write(at);
  dir.write("model/hf_quant_config.json", model.quantization_config());
  EXPECT_EQ(describe(open_model(at).get())["quantization_from"], "config.json");  // they agree
  std::string other = model.quantization_config();
  other.replace(other.find("\"group_size\":32"), 15, "\"group_size\":64");
  dir.write("model/hf_quant_config.json", other);
  const Failure f = open_failure(at);
  EXPECT_EQ(f.status, MOE_ERR_INVALID_CONFIG);
  EXPECT_THAT(f.subject, HasSubstr("hf_quant_config.json"));
  EXPECT_THAT(f.message, HasSubstr("config.json says"));
  EXPECT_EQ(f.details["reason"], "two_quantizations");
  // The caller decides.
  const CheckpointPtr c = open_model(at, R"({"quantization_config":)" + model.quantization_config() + "}");
  EXPECT_EQ(describe(c.get())["quantization_from"], "options");
  dir.write("model/hf_quant_config.json", "{");
  EXPECT_EQ(open_failure(at).subject, at + "/hf_quant_config.json");
}

TEST_F(QuantizationFiles, AutoGptqsFileNamesNoMethod) {
  model.quantization = "";
  model.write(at);
  dir.write("model/quantize_config.json",
            R"({"bits":4,"group_size":32,"desc_act":false,"sym":true,"damp_percent":0.01})");
  const CheckpointPtr c = open_model(at);
  EXPECT_EQ(describe(c.get())["quantization_from"], "quantize_config.json");
  EXPECT_EQ(quantization_of(c)["format"], "gptq");
  // A fault of the file is the layers', in its own words.
  dir.write("model/quantize_config.json", R"({"bits":4,"group_size":48,"desc_act":false,"sym":true})");
  const CheckpointPtr bad = open_model(at);
  EXPECT_EQ(info_of(bad.get(), 0).kind, MOE_LAYER_OTHER);
  EXPECT_THAT(config_failure(bad.get(), 0).subject, HasSubstr("quantize_config.json:"));
  EXPECT_THAT(info_of(bad.get(), 0).problem, HasSubstr("48"));
  dir.write("model/quantize_config.json", R"({"bits":4,"group_size":32})");
  const Failure f = open_failure(at);
  EXPECT_EQ(f.status, MOE_ERR_INVALID_CONFIG);
  EXPECT_THAT(f.message, HasSubstr("quant_method"));
}

// A tool may leave the experts alone without saying so.
TEST_F(QuantizationFiles, ExpertsThatStayedPlainAreSeenInTheFiles) {
  model.plain = true;
  model.write(at);
  const CheckpointPtr c = open_model(at);
  const nlohmann::json layer = describe(c.get())["layers"][0];
  EXPECT_EQ(layer["plain"], true);
  EXPECT_EQ(layer["format"], "none");
  EXPECT_EQ(quantization_of(c)["format"], "none") << quantization_of(c);
  const LayerPtr runs = make<LayerPtr>(
      [&](moe_layer** o, moe_error** e) { return moe_checkpoint_layer(nullptr, c.get(), 0, nullptr, o, e); });
  EXPECT_NE(runs, nullptr);
  // An option that says what they are is not overruled.
  const CheckpointPtr told = open_model(at, R"({"quantization_config":)" + model.quantization_config() + "}");
  EXPECT_FALSE(describe(told.get())["layers"][0].contains("plain"));
}

// Files may have the experts elsewhere than their class does. Rules are of the names in the files, or of the class's
// where they say nothing of those.
TEST_F(QuantizationFiles, RulesOfNamesThatTheFilesHave) {
  model.class_name = "MixtralForCausalLM";
  model.write(at);
  const auto config_with = [&](const char* pattern) {
    nlohmann::json quantization = nlohmann::json::parse(model.quantization_config());
    nlohmann::json& groups = quantization["config_groups"];
    nlohmann::json ours = groups["g"], others = groups["g"];
    ours["targets"] = {pattern};
    others["weights"] = {{"num_bits", 8}, {"strategy", "channel"}};
    groups = {{"a", ours}, {"b", others}};
    nlohmann::json config = nlohmann::json::parse(model.config());
    config["num_local_experts"] = model.E;
    config["intermediate_size"] = model.I;
    config["quantization_config"] = quantization;
    dir.write("model/config.json", config.dump());
  };
  for (const char* pattern : {"re:.*mlp\\.experts\\..*", "re:.*\\.(gate|up|down)_proj", "re:.*block_sparse_moe.*"}) {
    config_with(pattern);
    const CheckpointPtr c = open_model(at);
    EXPECT_EQ(quantization_of(c)["weights"]["num_bits"], 4) << pattern;
    const std::string to = dir.file("converted");
    ASSERT_EQ(moe_checkpoint_convert(nullptr, c.get(), to.c_str(), nullptr, nullptr), MOE_OK) << pattern;
    const CheckpointPtr converted = open_model(to);
    EXPECT_EQ(quantization_of(converted), quantization_of(c));
    const LayerPtr runs = make<LayerPtr>(
        [&](moe_layer** o, moe_error** e) { return moe_checkpoint_layer(nullptr, converted.get(), 0, nullptr, o, e); });
    EXPECT_NE(runs, nullptr);
    std::filesystem::remove_all(to);
  }
  config_with("re:.*w1");
  EXPECT_EQ(quantization_of(open_model(at))["weights"]["num_bits"], 8);
}

// Groups that do not fit the experts are those of other layers.
TEST_F(QuantizationFiles, PlainExpertsWhoseSizesNoGroupDivides) {
  model.plain = true;
  model.group = 128;
  model.write(at);
  const CheckpointPtr c = open_model(at);
  EXPECT_EQ(describe(c.get())["layers"][0]["plain"], true);
  EXPECT_EQ(quantization_of(c)["format"], "none");
}

TEST_F(QuantizationFiles, NothingIsSaidOfPlainWeights) {
  model.plain = true;
  model.quantization = "";
  model.write(at);
  const CheckpointPtr c = open_model(at);
  EXPECT_EQ(describe(c.get())["quantization_from"], "");
  EXPECT_FALSE(describe(c.get())["layers"][0].contains("plain"));
}

}  // namespace
}  // namespace moe::test::quantization_test
